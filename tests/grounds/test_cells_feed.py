"""The feed of all cells: whoever goes on in it, and whatever cell was down meanwhile, misses nothing and is told little again."""

import asyncio
import contextlib

import pytest
from tests.cells import cell_urls, cells_url, own_cells_url, own_servers  # noqa: F401 - fixtures

import holdfast
from holdfast.backends.cells.places import Place, Places, Positions, _since
from holdfast.backends.cells.slots import slot_of
from holdfast.client.edge import Edge

pytestmark = pytest.mark.slow
HOUR_MS = 3_600_000


@holdfast.agent
async def nothing() -> None: ...


@holdfast.step
async def one() -> int:
    return 1


@holdfast.agent
async def many() -> None:
    for _ in range(30):
        await one()


def run_in(hf, cell, n=0):
    names = (f"run-{each}" for each in range(999))
    return [name for name in names if hf.store.cells.owners[slot_of(name)] == cell][n]


@contextlib.asynccontextmanager
async def down(hf, name):
    """A cell that does not answer this process."""
    cell, went = hf.store.cells.made[name], ("ask", "feed", "feed_lines", "feed_reach", "_read")

    async def away(*_, **__):
        raise holdfast.StoreUnavailable("it is away")

    for each in went:
        setattr(cell, each, away)
    while name not in hf.store.cells.down:  # a look that had its answer before may say otherwise
        await hf.store.cells.look()
    try:
        yield
    finally:
        for each in went:
            delattr(cell, each)
        while hf.store.cells.down:
            await hf.store.cells.look()


async def age(hf, by_ms=HOUR_MS):
    """Let all that happened have happened earlier."""
    for cell in hf.store.cells.made.values():
        await cell.ask(lambda db: db.execute("UPDATE events SET at = at - $1", by_ms))


async def told(hf, after=0, **which):
    return [event async for event in hf.events(after=after, follow=False, **which)]


def places(events):
    return [(event.run, event.seq) for event in events]


async def end_of_feed(hf):
    """The last position of a reader that no transaction keeps behind what was made old."""
    while True:
        position = (await told(hf))[-1].position
        if _since(position) > hf.store.clock.now() - HOUR_MS / 2:
            return position
        await asyncio.sleep(0.1)


async def test_a_reader_that_begins_while_a_cell_is_down_is_not_told_its_history_again(cells_url):  # noqa: F811
    async with holdfast.open(cells_url, agents=[nothing]) as hf:
        for cell in "ab":
            await hf.run(nothing, id=run_in(hf, cell))
        await age(hf)
        last = await end_of_feed(hf)
        async with holdfast.open(cells_url) as other:
            async with down(other, "b"):
                await hf.run(nothing, id=run_in(hf, "a", 1))
                while_down = await told(other, last)
                assert {event.run for event in while_down} == {run_in(hf, "a", 1)}
            await hf.run(nothing, id=run_in(hf, "b", 1))
            back = await told(other, while_down[-1].position)
            assert {event.run for event in back} == {run_in(hf, "b", 1)}


async def test_a_reader_that_begins_at_the_end_while_a_cell_is_down_is_not_told_its_history(cells_url):  # noqa: F811
    async with holdfast.open(cells_url, agents=[nothing]) as hf:
        for cell in "ab":
            await hf.run(nothing, id=run_in(hf, cell))
        await age(hf)
        async with holdfast.open(cells_url) as other:
            async with down(other, "b"):
                while _since(end := await Edge(other).last_position()) < other.store.clock.now() - HOUR_MS / 2:
                    await asyncio.sleep(0.1)  # somebody's transaction keeps it behind what was made old
            assert await told(other, end) == []


async def test_what_a_cell_said_before_it_went_down_is_told_when_it_is_back(cells_url):  # noqa: F811
    """Also to a process that goes on from where one was that had not heard of it."""
    async with holdfast.open(cells_url, agents=[nothing]) as hf:
        await hf.run(nothing, id=run_in(hf, "a"))
        begun = (await told(hf))[-1].position
        await hf.run(nothing, id=run_in(hf, "b"))
        await age(hf)
        async with down(hf, "b"):
            last = (await told(hf))[-1]
            assert last.run == run_in(hf, "a")
            assert await told(hf, begun) == []
        for position in (begun, last.position):
            assert {event.run for event in await told(hf, position)} == {run_in(hf, "b")}
        async with holdfast.open(cells_url) as other:
            assert run_in(hf, "b") in {event.run for event in await told(other, last.position)}


async def test_another_process_misses_nothing_of_a_backlog(cells_url):  # noqa: F811
    """A position of an event of long ago is followed by what happened since, in any process."""
    async with holdfast.open(cells_url, agents=[nothing, many]) as hf:
        for n in range(3):
            for cell in "ab":
                await hf.run(many, id=run_in(hf, cell, n))
            await age(hf)
        whole = await told(hf)
        async with holdfast.open(cells_url) as other:
            for nth in (0, 10, len(whole) // 2, len(whole) - 5):
                missed = set(places(whole[nth + 1 :])) - set(places(await told(other, whole[nth].position)))
                assert missed == set(), nth
            whole_there = await told(other)
            assert places(whole_there) == places(whole)
            assert [event.position for event in whole_there] == sorted({event.position for event in whole_there})


async def test_another_process_is_told_the_last_minute_again_and_nothing_older(cells_url):  # noqa: F811
    """However few events there are: the ones before may be days old."""
    async with holdfast.open(cells_url, agents=[nothing]) as hf:
        await hf.run(nothing, id=run_in(hf, "a"))
        await age(hf)
        await hf.run(nothing, id=run_in(hf, "a", 1))
        last = await end_of_feed(hf)
        async with holdfast.open(cells_url) as other:
            assert {event.run for event in await told(other, last)} == {run_in(hf, "a", 1)}


async def test_a_cell_that_dies_before_its_events_are_read_has_not_told_them(cells_url):  # noqa: F811
    """It had said how far its feed is sure; a reader of some kinds jumps over what does not fit, and over nothing else."""
    async with holdfast.open(cells_url, agents=[nothing]) as hf:
        await hf.run(nothing, id=run_in(hf, "b"))
        cell, reaches = hf.store.cells.made["b"], []
        reach, lines = cell.feed_reach, cell.feed_lines

        async def dies(*_, **__):
            raise holdfast.StoreUnavailable("it is away")

        async def told_until(*_):
            reaches.append(await reach())
            cell.feed_lines = dies if len(reaches) == 1 else lines
            return reaches[-1]

        cell.feed_reach = told_until
        async with asyncio.timeout(30):
            async for event in hf.events(
                kinds="run.completed"
            ):  # follows: the cell is there again when it is looked at
                assert event.run == run_in(hf, "b")
                break


async def test_what_a_transaction_keeps_back_is_told_to_whoever_goes_on(own_cells_url):  # noqa: F811
    """A reader of one cell may be minutes ahead of the other, where somebody's transaction is open."""
    async with holdfast.open(own_cells_url, agents=[nothing]) as hf:
        cell = hf.store.cells.made["b"]
        db = await cell.connection()
        try:
            async with db.transaction():
                await db.execute("SELECT pg_current_xact_id()")
                await hf.run(nothing, id=run_in(hf, "b"))
                await age(hf)
                await hf.run(nothing, id=run_in(hf, "a"))
                lines = await hf.store.feed_lines(0, None)
                assert run_in(hf, "b") not in {line.run for line in lines}
        finally:
            await db.close()
        async with holdfast.open(own_cells_url) as other:
            assert run_in(hf, "b") in {event.run for event in await told(other, lines[-1].position)}


async def test_no_process_takes_a_position_of_another_for_its_own(cells_url):  # noqa: F811
    """At one moment, too: one that was farther on would leave out what the other has not told."""
    async with (
        holdfast.open(cells_url, agents=[many]) as hf,
        holdfast.open(cells_url) as one,
        holdfast.open(cells_url) as other,
    ):
        for cell in "ab":
            await (await hf.start(many, id=run_in(hf, cell))).result()
        now = hf.store.clock.now()
        for each in (one, other):
            each.store._positions._now = lambda: now
        first, second = await told(one), await told(other)
        assert len(first) == len(second)
        assert not {event.position for event in first} & {event.position for event in second}
        for nth in range(0, len(second), 10):
            again = places(await told(one, after=second[nth].position))
            assert set(places(second)[nth + 1 :]) <= set(again)


def test_positions_grow_and_say_how_far_a_reader_was_behind():
    now = 1_800_000_000_000
    positions = Positions(["a"], lambda: now)
    positions.reader = 63
    given = []
    for nth in range(2000):
        behind_ms = (nth * 7919) % 5_000_000
        given.append((positions.give(Places({"a": Place(nth, now - behind_ms)}, 0)), now - behind_ms))
    assert [each for each, _ in given] == sorted({each for each, _ in given})
    assert all(_since(each) <= since and _since(each - 1) <= since for each, since in given)
    assert given[-1][0] < 2**53
