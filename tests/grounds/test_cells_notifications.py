"""Notifications of cells: what each cell has to tell is told, listed, counted and sent again as if there were one database."""

import asyncio

import pytest
from tests.cells import cell_urls, cells_url  # noqa: F401 - fixtures
from tests.grounds.test_cells_feed import run_in

import holdfast

pytestmark = pytest.mark.slow


@holdfast.agent
async def fails() -> None:
    raise ValueError("no luck")


async def ops(hf, kinds):
    return await hf.notify("https://example.com/", kinds=kinds, secret="env:NO_SUCH_SECRET", name="ops")


async def test_messages_of_all_cells_are_counted_listed_and_sent_again(cells_url):  # noqa: F811
    async with holdfast.open(cells_url, agents=[fails]) as hf, asyncio.timeout(60):
        handle = await ops(hf, "run.failed")
        for cell, many in (("a", 1), ("b", 2)):
            for n in range(many):
                with pytest.raises(holdfast.RunFailed):
                    await (await hf.start(fails, id=run_in(hf, cell, n))).result()
        while len(await handle.deliveries()) < 3:
            await asyncio.sleep(0.05)
        for cell in hf.store.cells.made.values():
            await cell.ask(lambda db: db.execute("UPDATE deliveries SET status = 'dead', due_at = NULL"))
        assert [info.dead for info in await hf.notifications()] == [3]
        dead = await handle.deliveries(status="dead")
        assert len(await handle.deliveries(status="dead", limit=2)) == 2
        assert {(await handle.replay(info.id)).status for info in dead} == {"new"}
        assert (await handle.info()).dead == 0
        with pytest.raises(holdfast.UnknownNotification):
            await handle.replay("no-such-message")


async def test_a_notification_of_cells_is_tried(cells_url):  # noqa: F811
    async with holdfast.open(cells_url) as hf:
        handle = await ops(hf, "run.failed")
        assert [await handle.test()] == [info.id for info in await handle.deliveries()]
