"""What a store tells those who watch it: its commits, its unfinished runs, the stuck ones, and what ails it."""

from __future__ import annotations

import asyncio

from tests.store.places import TTL, ManualClock, Place, finish, new, owned, park, step, write

from holdfast.store.appends import Transition
from holdfast.store.operations import Crash
from holdfast.store.runs import Census


async def test_every_commit_is_told_with_its_size(place: Place) -> None:
    """Writes that go out together are told as one commit of so many operations."""
    told: list[tuple[int, float]] = []
    async with place.open() as store:
        store.observe(lambda operations, seconds: told.append((operations, seconds)))
        await asyncio.gather(*[store.create(new(f"run-{number}")) for number in range(30)])
        together = sum(operations for operations, _ in told)
        assert together == 30
        assert max(operations for operations, _ in told) > 1
        before = len(told)
        row = await owned(store, "alone", agent="other")
        await store.append(write(row, step()))
    assert sum(operations for operations, _ in told[before:]) >= 3  # created, claimed, appended
    assert all(0 < seconds < 10 for _, seconds in told)


async def test_unfinished_runs_are_counted_by_queue_and_state(place: Place) -> None:
    """Each queue and state has its count, how many of it are due, and the first time; ended runs count nowhere."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await finish(store, await owned(store, "ended"))
        await park(store, await owned(store, "for a message"), seen=0)
        await park(store, await owned(store, "for a timer"), seen=0, due_at=clock.time + 500)
        running = await owned(store, "running")
        stopped = await owned(store, "paused")
        await store.append(write(stopped, transition=Transition("paused", reason="so")))
        await store.create(new("later", queue="slow", delay_ms=2_000))
        await store.create(new("new", queue="slow"))
        assert sorted(await store.census(1_000), key=lambda row: (row.queue, row.status)) == [
            Census("default", "paused", 1, 0, 0, None),
            Census("default", "running", 1, 0, 0, running.due_at),
            Census("default", "waiting", 2, 0, 0, clock.time + 500),
            Census("slow", "ready", 2, 1, 0, clock.time),
        ]
        clock.time += TTL
        counts = await store.census(TTL - 100)
        assert [(row.queue, row.status, row.late) for row in counts if row.late] == [("slow", "ready", 1)]
        due = {(row.queue, row.status): row.due for row in counts}
        assert due == {
            ("default", "paused"): 0,
            ("default", "running"): 1,
            ("default", "waiting"): 1,
            ("slow", "ready"): 2,
        }


async def test_stuck_runs_are_those_that_nobody_takes_and_those_that_crash(place: Place) -> None:
    """Late ones come first, the longest due first; then those with two crashes, paused or not; no others."""
    clock = ManualClock()
    async with place.open(clock) as first:
        await first.create(new("due long ago"))
        clock.time += 10
        await park(first, await owned(first, "its timer is over", agent="b"), seen=0, due_at=clock.time + 1)
        await park(first, await owned(first, "waits for a message", agent="b"), seen=0)
        await finish(first, await owned(first, "ended", agent="b"))
        lost = await owned(first, "its worker hangs", agent="b")
        crashing = await owned(first, "crashes", agent="c")
        for number in range(3):  # claimed by others in turn, whose leases run out
            async with place.open(clock) as other:
                clock.time += TTL + 1
                (crashing,) = await other.claim(["c"], 1, TTL, alone=True)
                if number == 2:
                    await other.append(write(crashing, transition=Transition("paused", reason="it crashed")))
                else:
                    other.abandon()
        await first.create(new("just now"))
        found = await first.stuck(1_000)
        assert [row.id for row in found] == ["due long ago", "its timer is over", "its worker hangs", "crashes"]
        assert (found[-1].status, found[-1].crash_count) == ("paused", 3)
        assert lost.due_at is not None
        assert found[2].due_at == lost.due_at
        assert [row.id for row in await first.stuck(1_000, limit=1)] == ["due long ago"]
        assert [row.id for row in await first.stuck(10 * TTL)] == ["its worker hangs", "crashes"]


class Faulty:
    """Breaks commits as it is told to."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def before_commit(self, writes: list[str]) -> None:
        if self.error is not None:
            raise self.error

    def after_commit(self, writes: list[str]) -> None: ...


async def test_what_ails_a_store_is_told_until_it_has_passed(place: Place) -> None:
    """A disk that cannot be written is a passing ailment; a writer that has ended is a lasting one."""
    faults = Faulty()
    async with place.open(faults=faults) as store:
        assert store.ailment() is None
        faults.error = OSError("no space left")
        writing = asyncio.ensure_future(store.create(new("a")))
        while store.ailment() is None:
            await asyncio.sleep(0.01)
        ailment = store.ailment()
        assert ailment is not None
        assert not ailment.lasting
        faults.error = None
        await writing
        while store.ailment() is not None:
            await asyncio.sleep(0.01)
        faults.error = Crash()
        lost = asyncio.ensure_future(store.create(new("b")))
        while store.ailment() is None:
            await asyncio.sleep(0.01)
        ailment = store.ailment()
        assert ailment is not None
        assert ailment.lasting
        await asyncio.wait([lost])
        assert lost.exception() is not None


async def test_halted_runs_are_paged_without_those_that_people_paused(place: Place) -> None:
    """However many these are, and although they were there first."""
    clock = ManualClock()
    async with place.open(clock) as store:
        for number in range(4):
            row = await owned(store, f"by-person-{number}")
            await store.append(write(row, transition=Transition("paused", reason="paused by ana")))
        clock.time += 1_000
        for number in range(5):
            row = await owned(store, f"stopped-{number}")
            await store.append(write(row, transition=Transition("paused", reason="its code has changed")))
        await store.create(new("late"))
        clock.time += 60_000
        await store.create(new("early"))
        found = [await store.halted(60_000, 2)]
        while len(found[-1]) == 2:
            found.append(await store.halted(60_000, 2, found[-1][-1]))
        assert sorted(row.id for page in found for row in page) == ["late", *(f"stopped-{n}" for n in range(5))]
        assert [len(page) for page in found] == [2, 2, 2, 0]
