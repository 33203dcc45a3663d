"""Notifications of cells: what each cell has to tell is told, listed, counted and sent again as if there were one database."""

import asyncio

import pytest
from tests.cells import cell_urls, cells_url, own_cells_url, own_servers  # noqa: F401 - fixtures
from tests.grounds.test_cells_feed import run_in

import holdfast
from holdfast.backends.cells import inventory, moves
from holdfast.backends.cells.slots import slot_of
from holdfast.errors import RunActive
from holdfast.store.notifications import outgoing

pytestmark = pytest.mark.slow


@holdfast.agent
async def fails() -> None:
    raise ValueError("no luck")


@holdfast.agent
async def asks() -> str:
    return str((await holdfast.approve("really?")).by)


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


async def test_what_a_transaction_keeps_back_is_not_moved_before_it_is_told(own_cells_url, monkeypatch):  # noqa: F811
    monkeypatch.setattr(moves, "_TOLD_S", 0.5)
    async with holdfast.open(own_cells_url, agents=[asks]) as hf, asyncio.timeout(60):
        await ops(hf, "approval.asked")
        name, cell = run_in(hf, "a"), hf.store.cells.made["a"]
        db = await cell.connection()
        async with db.transaction():
            await db.fetchval("SELECT pg_current_xact_id()::text")
            run = await hf.start(asks, id=name)
            question = await run.wait_for_question()
            async with inventory.opened(own_cells_url) as store:
                with pytest.raises(RunActive, match="a transaction that is open in its database"):
                    await moves.move(store, slot_of(name), "b")
        await db.close()
        async with inventory.opened(own_cells_url) as store:
            await moves.move(store, slot_of(name), "b")
        assert len(await hf.store.deliveries(outgoing("ops"), "new")) == 1
        await hf.approve(question, by="ana")
        assert await run.result() == "ana"
