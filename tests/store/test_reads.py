from __future__ import annotations

import asyncio

import pytest
from tests.store.places import TTL, ManualClock, Place, fed, finish, new, owned, recovered, step, write

from holdfast.errors import StoreUnavailable, UnknownRun
from holdfast.words.model import Event


async def test_runs_are_listed_newest_first(place: Place) -> None:
    """Lists come newest first, page by page, and narrow by status, agent, labels, parent and root."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.create(new("a", labels='{"team":"x","tier":"1"}'))
        await store.create(new("a.1", agent="b", parent_id="a", root_id="a"))
        clock.time += 1
        await store.create(new("a.1.1", agent="b", parent_id="a.1", root_id="a"))
        clock.time += 1
        await store.create(new("c", labels='{"team":"x"}'))
        row = (await store.claim(["agent"], 5, TTL))[0]
        assert row.id == "a"

        async def ids(**filters: object) -> list[str]:
            return [found.id for found in await store.runs(**filters)]  # type: ignore[arg-type]

        assert await ids() == ["c", "a.1.1", "a", "a.1"]
        assert await ids(limit=2) == ["c", "a.1.1"]
        assert await ids(limit=2, after="a.1.1") == ["a", "a.1"]
        assert await ids(after="a") == ["a.1"]
        assert await ids(after="a.1") == []
        assert await ids(statuses=["ready"]) == ["a.1.1", "a.1"]
        assert await ids(agent="b", statuses=["ready", "running"], limit=1) == ["a.1.1"]
        assert await ids(labels={"team": "x"}) == ["c", "a"]
        assert await ids(labels={"team": "x", "tier": "1"}) == ["a"]
        assert await ids(labels={"tier": "2"}) == []
        assert await ids(parent="a") == ["a.1"]
        assert await ids(root="a") == ["a.1.1", "a", "a.1"]
        assert await ids(root="a", parent="a.1", after="c") == ["a.1.1"]
        with pytest.raises(UnknownRun):
            await ids(after="gone")


async def test_runs_are_found_by_time_and_text_and_counted(place: Place) -> None:
    """By when they were started and by a piece of any text of theirs, in capitals or not; counts are of all that fit."""
    clock = ManualClock()
    began = clock.time
    async with place.open(clock) as store:
        for number in range(6):
            await store.create(
                new(f"run-{number}", agent="reader" if number % 2 else "Writer", labels=f'{{"team":"x{number}"}}',
                    input=f'{{"topic":"Otters {number}"}}')
            )  # fmt: skip
            clock.time += 10
        for row in await store.claim(["Writer"], 1, TTL):
            await finish(store, row, "failed")

        async def ids(**filters: object) -> list[str]:
            return [found.id for found in await store.runs(**filters)]  # type: ignore[arg-type]

        assert await ids(since=began + 20, until=began + 40) == ["run-4", "run-3", "run-2"]
        assert await ids(since=began + 20, until=began + 40, limit=1, after="run-3") == ["run-2"]
        assert await ids(search="oTTers 3") == ["run-3"]
        assert await ids(search="x5") == ["run-5"]
        assert await ids(search="writer", statuses=["ready"]) == ["run-4", "run-2"]
        assert await ids(search="nowhere") == []
        assert await store.count_runs() == {"Writer": {"failed": 1, "ready": 2}, "reader": {"ready": 3}}
        assert await store.count_runs(since=began + 30, search="otters") == {
            "Writer": {"ready": 1},
            "reader": {"ready": 2},
        }
        assert await store.count_runs(until=began - 1) == {}


async def test_the_journal_is_read_in_parts(place: Place) -> None:
    """A journal is read from any seq on, up to a limit, with data decoded."""
    async with place.open() as store:
        row = await owned(store, "a")
        await store.append(write(row, *[step(n=number) for number in range(10)]))
        assert [event.data["n"] for event in await store.journal("a", 7)] == [7, 8, 9]
        assert [event.seq for event in await store.journal("a", 2, limit=3)] == [2, 3, 4]
        assert await store.journal("a", 10) == []
        assert await store.journal("b") == []


async def test_the_feed_misses_nothing(place: Place) -> None:
    """A reader that follows the feed beside eight writers in two stores sees every event once, each run's in order."""
    async with place.open() as one, place.open() as two:
        rows = [await owned((one, two)[number % 2], f"run-{number}") for number in range(8)]

        async def writes(number: int) -> None:
            for _ in range(60):
                await (one, two)[number % 2].append(write(rows[number], step(), step()))

        async def follow() -> list[Event]:
            seen: list[Event] = []
            while len(seen) < 8 * 120:
                seen += await one.feed(seen[-1].position if seen else 0, None, limit=50)
            return seen

        reader = asyncio.create_task(follow())
        await asyncio.gather(*[writes(number) for number in range(8)])
        seen = await reader
        assert len({event.position for event in seen}) == len(seen) == 8 * 120
        for row in rows:
            assert [event.seq for event in seen if event.run == row.id] == list(range(120))
        await one.append(write(rows[0], Event(0, "step.started", "x#0"), step()))
        assert [event.kind for event in await fed(one, seen[-1].position, 1, ["step.started"])] == ["step.started"]


async def test_positions_are_never_used_again(place: Place) -> None:
    """After the newest run is deleted, new events still come after the old cursor."""
    async with place.open() as store:
        row = await owned(store, "a")
        await store.append(write(row, step()))
        await finish(store, row)
        cursor = (await fed(store, 0, 2))[-1].position
        await store.delete("a")
        row = await owned(store, "b")
        await store.append(write(row, step()))
        assert [event.run for event in await fed(store, cursor, 1)] == ["b"]


async def test_blobs_that_are_not_there(place: Place) -> None:
    """A missing large value is an error that names it."""
    async with place.open() as store:
        with pytest.raises(StoreUnavailable, match="'abc'"):
            await store.blob("abc")


async def test_next_due_leaves_out_what_runs_here(place: Place) -> None:
    """The next due time is the earliest of these agents' runs: others' leases count, our own do not."""
    clock = ManualClock()
    async with place.open(clock) as store, place.open(clock) as other:
        assert await store.next_due(["agent"]) is None
        await owned(store, "mine")
        assert await store.next_due(["agent"]) is None
        await store.create(new("later", delay_ms=100_000))
        assert await store.next_due(["agent"]) == clock.time + 100_000
        assert await store.next_due(["nobody"]) is None
        assert await other.next_due(["nobody", "agent"]) == clock.time + TTL


async def test_next_due_is_what_a_claim_would_find(place: Place) -> None:
    """With a root only its tree counts; a run with two crashes counts only for one that would run it alone."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.create(new("a"))
        await store.create(new("b", delay_ms=50))
        assert await store.next_due(["agent"], root="b") == clock.time + 50
        for _ in range(2):
            dying = place.connect(place.url, clock=clock)
            await dying.open()
            assert [row.id for row in await dying.claim(["agent"], 1, TTL)] == ["a"]
            dying.abandon()
            assert await recovered(store) == 1
        assert await store.next_due(["agent"]) == clock.time
        assert await store.next_due(["agent"], alone=False) == clock.time + 50
        assert await store.claim(["agent"], 5, TTL) == []


async def test_published_agents(place: Place) -> None:
    """Published agents are listed with version and schema, and are served while one that published them is open."""
    async with place.open() as client:
        async with place.open() as worker:
            await worker.publish([("a", "1", "{}"), ("b", None, '{"x":1}')])
            assert await client.agents() == {"a": ("1", "{}", {"", "1"}), "b": (None, '{"x":1}', {""})}
            await worker.publish([("a", "2", "{}")])
            assert await client.agents() == {"a": ("2", "{}", {"", "1", "2"}), "b": (None, '{"x":1}', {""})}
        assert await client.agents() == {"a": ("2", "{}", set()), "b": (None, '{"x":1}', set())}


async def test_facts(place: Place) -> None:
    """The facts for `doctor` count what is there and say that the file is whole."""
    async with place.open() as store:
        await owned(store, "a")
        await store.create(new("b"))
        facts = await store.facts()
        assert facts["runs"] == {"ready": 1, "running": 1}
        assert (facts["integrity"], facts["url"], facts["workers"]) == ("ok", store.url, 1)


async def test_a_filter_that_there_is_not_is_refused(place: Place) -> None:
    """A misspelt name must not mean all runs."""
    async with place.open() as store:
        await store.create(new("a"))
        with pytest.raises(TypeError, match="status"):
            await store.runs(status=["failed"])  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="status"):
            await store.count_runs(status=["failed"])  # type: ignore[call-arg]
        assert [row.id for row in await store.runs()] == ["a"]
