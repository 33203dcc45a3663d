"""Filters and orders of lists of runs, on both stores: what fits, and pages that neither skip nor repeat."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast import BadArguments, Retry
from holdfast.client.filter import place_of

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {
    "test_a_run_that_changes_between_pages_is_not_the_reason_to_skip_others",
    "test_every_filter_fits_what_lists_say",
}


@holdfast.step(retry=Retry(8, first="1h", max="1h"))
async def stumbles() -> None:
    raise ConnectionError("503")


@holdfast.step
async def pays(usd: float) -> None:
    holdfast.spend(usd=usd)


@holdfast.agent
async def waits(what: str) -> None:
    if what == "person":
        await holdfast.approve("Go on?", to="ana")
    elif what == "timer":
        await holdfast.sleep("2h")
    elif what == "message":
        await holdfast.receive("news")
    elif what == "child":
        await waits("timer")
    elif what == "retry":
        await stumbles()


@holdfast.agent(queue="mail")
async def mails(usd: float) -> None:
    await pays(usd)
    await holdfast.sleep("1h")


@holdfast.agent
async def ends(number: int) -> int:
    if number < 0:
        raise ValueError(number)
    return number


@holdfast.agent(version="7")
async def old(number: int) -> int:
    return number


AGENTS = [waits, mails, ends]


async def settled(hf: holdfast.Client) -> None:
    async with asyncio.timeout(30):
        while await hf.runs(status=["ready", "running"], agent=["waits", "mails", "ends"]):
            await asyncio.sleep(0.02)


async def listed(hf: holdfast.Client, **which) -> set[str]:
    return {info.id for info in await hf.runs(**which)}


async def test_every_filter_fits_what_lists_say(store_url: str) -> None:
    settings = holdfast.Settings(park_grace_s=0)
    async with holdfast.open(store_url, agents=AGENTS, settings=settings) as hf:
        for what in ("person", "timer", "message", "child", "retry"):
            await hf.start(waits, what, id=what)
        await hf.start(mails, 0.25, id="cheap")
        await hf.start(mails, 4.0, id="dear")
        await hf.start(ends, 1, id="done")
        await hf.start(ends, -1, id="failed")
        await hf.start(old, 1, id="unserved")
        await settled(hf)
        (child,) = await listed(hf, root=False)
        assert await listed(hf, waits_for="person") == {"person"}
        assert await listed(hf, waits_for=["retry", "message"]) == {"retry", "message"}
        assert await listed(hf, waits_for="timer") == {"timer", "cheap", "dear", child}
        assert await listed(hf, waits_for="worker") == {"unserved"}
        assert await listed(hf, waits_for="timer", status="completed") == set()
        for info in await hf.runs():  # whatever it says that it waits for, it is found by that
            if info.waits_for is not None:
                assert info.id in await listed(hf, waits_for=info.waits_for)
        assert await listed(hf, queue="mail") == {"cheap", "dear"}
        assert await listed(hf, queue=["mail", "default"], agent=["mails", ends]) == {"cheap", "dear", "done", "failed"}
        assert await listed(hf, version="7") == {"unserved"}
        assert child not in await listed(hf, root=True)
        assert await listed(hf, cost=0.2) == {"cheap", "dear"}
        assert await listed(hf, cost=1) == {"dear"}
        assert await listed(hf, attempt=1) == {"retry"}
        assert await listed(hf, attempt=2) == set()
        assert await listed(hf, stuck=True) == {"unserved"}
        assert await listed(hf, needs=True) == {"unserved", "person"}
        assert await listed(hf, needs=False, root=True, status=["waiting", "completed"]) == {
            "timer", "message", "child", "retry", "cheap", "dear", "done",
        }  # fmt: skip
        await hf.get("timer").pause(by="ana", reason="so")
        assert await listed(hf, stuck=True) == {"unserved", "timer"}
        assert await listed(hf, parent="child", waits_for="timer", since="1h", search="timer") == {child}


ORDERS = {
    "newest": lambda info: (-info.created_at.timestamp(), info.id),
    "oldest": lambda info: info.created_at.timestamp(),
    "updated": lambda info: (-(info.finished_at or info.updated_at).timestamp(), info.id),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("which", [{}, {"status": ["waiting", "failed"]}, {"agent": ["ends"]}], ids=str)
async def test_pages_of_every_order_are_the_whole(store_url: str, order, which) -> None:
    """Two runs at a time, by the last one of the page before: all of them once, in order."""
    settings = holdfast.Settings(park_grace_s=0)
    async with holdfast.open(store_url, agents=AGENTS, settings=settings) as hf:
        for number in range(-3, 4):
            await hf.start(ends, number, id=f"e{number + 3}")
            await hf.start(waits, "timer", id=f"w{number + 3}")
        await settled(hf)
        whole = await hf.runs(order=order, **which)
        assert [ORDERS[order](info) for info in whole] == sorted(ORDERS[order](info) for info in whole)
        for place in (lambda info: info, lambda info: place_of(info, order)):
            after, found = None, []
            while page := await hf.runs(order=order, limit=2, after=after, **which):
                found += [info.id for info in page]
                after = place(page[-1])
            assert found == [info.id for info in whole]


async def test_a_run_that_changes_between_pages_is_not_the_reason_to_skip_others(store_url: str) -> None:
    """In the order of changes a page goes on where the last run stood, and not where it stands now."""
    settings = holdfast.Settings(park_grace_s=0)
    async with holdfast.open(store_url, agents=AGENTS, settings=settings) as hf:
        for name in "abcd":
            await hf.start(waits, "timer", id=name)
            await settled(hf)
        first = await hf.runs(order="updated", limit=2)
        assert [info.id for info in first] == ["d", "c"]
        await hf.get("c").pause(by="ana")
        rest = await hf.runs(order="updated", limit=2, after=place_of(first[-1], "updated"))
        assert [info.id for info in rest] == ["b", "a"]


@pytest.mark.parametrize(
    ("which", "says"),
    [
        ({"order": "random"}, "runs are listed 'newest', 'oldest', 'updated'"),
        ({"waits_for": "godot"}, "'godot' is nothing that a run waits for; there are: timer, person"),
        ({"attempt": 0}, "give a whole number from 1 on"),
        ({"cost": -1}, "give US dollars, from 0 on"),
    ],
)
async def test_a_filter_that_cannot_be_used_says_what_can(store_url: str, which, says: str) -> None:
    async with holdfast.open(store_url) as hf:
        with pytest.raises(BadArguments, match=says):
            await hf.runs(**which)


@pytest.mark.parametrize("flag", ["root", "stuck", "needs"])
async def test_a_flag_is_not_the_id_of_a_run(tmp_path, flag):
    async with holdfast.open(f"sqlite:{tmp_path}/runs.db") as hf:
        for ask in (hf.runs, hf.run_counts):
            with pytest.raises(BadArguments, match=rf"^{flag}='some-id': this is a flag; give True, False or None"):
                await ask(**{flag: "some-id"})


async def test_an_id_that_is_far_too_long_is_not_quoted_whole(tmp_path):
    async with holdfast.open(f"sqlite:{tmp_path}/runs.db") as hf:
        with pytest.raises(BadArguments, match="cannot name a conversation") as error:
            hf.conversation("x" * 5_000_000)
        assert len(str(error.value)) < 300
        with pytest.raises(BadArguments, match="is not a run id") as error:
            await hf.start(waits, "timer", id="x" * 5_000_000)
        assert len(str(error.value)) < 300
