from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.store.places import (
    TTL,
    Gate,
    ManualClock,
    Place,
    finish,
    line,
    new,
    owned,
    park,
    python,
    recovered,
    step,
    write,
)

from holdfast.errors import StoreUnavailable
from holdfast.store.changes import News
from holdfast.words.model import RunRow


async def test_create_is_idempotent(place: Place) -> None:
    """A second create with the same id returns the first run and changes nothing."""
    async with place.open() as store:
        first, created = await store.create(new("a", input="1"))
        again, created_again = await store.create(new("a", input="2"))
        assert (created, created_again) == (True, False)
        assert again == first == await store.run("a")
        assert await store.run("b") is None


async def test_create_in_parallel_creates_once(place: Place) -> None:
    """Of fifty creates with one id, in two stores, one is told that it created the run."""
    async with place.open() as one, place.open() as two:
        results = await asyncio.gather(*[store.create(new("a")) for store in (one, two) * 25])
        assert sum(created for _, created in results) == 1
        assert len({row.uid for row, _ in results}) == 1


async def test_claim_takes_the_longest_due_first(place: Place) -> None:
    """Runs are claimed in the order of the time at which they became due, up to the limit, and no other agent's."""
    clock = ManualClock()
    async with place.open(clock) as store:
        for number in (3, 1, 2):
            await store.create(new(f"run-{number}", delay_ms=number * 10))
        await store.create(new("other", agent="other"))
        assert await store.claim(["agent"], 10, TTL) == []
        assert await store.next_due(["agent"]) == clock.time + 10
        clock.time += 100
        assert [row.id for row in await store.claim(["agent"], 2, TTL)] == ["run-1", "run-2"]
        assert [row.id for row in await store.claim(["agent"], 2, TTL)] == ["run-3"]
        assert await store.claim(["agent"], 2, TTL) == []


async def test_claim_fills_the_row(place: Place) -> None:
    """A claim starts the run under the next epoch, with a lease that ends after the TTL."""
    clock = ManualClock()
    async with place.open(clock) as store:
        row = await owned(store, "a")
        assert (row.status, row.lease_epoch, row.lease_owner) == ("running", 1, store.worker_id)
        assert (row.due_at, row.started_at, row.crash_count) == (clock.time + TTL, clock.time, 0)
        clock.time += 5
        await park(store, row, due_at=clock.time, waits_for="timer", awaits=["x"], seen=0)
        (again,) = await store.claim(["agent"], 1, TTL)
        assert (again.lease_epoch, again.started_at, again.waits_for, again.awaits) == (2, clock.time - 5, None, None)
        assert await store.journal("a") == []  # nobody died, so nothing was interrupted


async def test_claim_stays_in_a_tree(place: Place) -> None:
    """With a root, only runs of its tree are claimed."""
    async with place.open() as store:
        await store.create(new("a"))
        await store.create(new("b"))
        await store.create(new("b.1", parent_id="b", root_id="b"))
        assert sorted(row.id for row in await store.claim(["agent"], 10, TTL, root="b")) == ["b", "b.1"]
        assert (await store.run("a")).status == "ready"  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.by_day("sqlite")
async def test_eight_stores_claim_each_run_once(place: Place) -> None:
    """400 runs claimed by eight stores in batches of seven: each exactly once."""
    async with place.open() as store:
        await asyncio.gather(*[store.create(new(f"run-{number}")) for number in range(400)])

        async def worker() -> list[RunRow]:
            claimed: list[RunRow] = []
            async with place.open() as own:
                while batch := await own.claim(["agent"], 7, TTL):
                    assert len(batch) <= 7
                    claimed += batch
                    for row in batch:
                        await finish(own, row)
            return claimed

        claimed = [row for rows in await asyncio.gather(*[worker() for _ in range(8)]) for row in rows]
        assert sorted(row.id for row in claimed) == sorted(f"run-{number}" for number in range(400))
        assert {row.lease_epoch for row in claimed} == {1}


CLAIMER = """
import asyncio, sys
from holdfast.store.appends import Append, Transition
from holdfast.store.urls import store_at

async def main():
    store = store_at(sys.argv[1])
    await store.open()
    print("ready", flush=True)
    sys.stdin.readline()
    while batch := await store.claim(["agent"], 7, 30_000):
        for row in batch:
            await store.append(Append(row.id, row.lease_epoch, 0, transition=Transition("completed")))
            print(row.id, flush=True)
    await store.close()

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.by_day("postgres")
async def test_processes_claim_each_run_once(place: Place) -> None:
    """200 runs claimed by four processes: each exactly once."""
    async with place.open() as store:
        await asyncio.gather(*[store.create(new(f"run-{number}")) for number in range(200)])
    processes = [python(CLAIMER, place.url) for _ in range(4)]
    assert [line(process) for process in processes] == ["ready"] * 4
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    claimed = [run for process in processes for run in process.communicate()[0].split()]
    assert sorted(claimed) == sorted(f"run-{number}" for number in range(200))


async def test_expired_lease_is_an_interruption(place: Place) -> None:
    """A run whose lease ended is claimed by another, with a crash counted and an event that names both owners."""
    clock = ManualClock()
    async with place.open(clock) as old, place.open(clock) as young:
        row = await owned(old, "a")
        await old.append(write(row, step()))
        assert await young.claim(["agent"], 1, TTL) == []
        clock.time += TTL
        assert await old.claim(["agent"], 1, TTL) == []  # never from itself
        (taken,) = await young.claim(["agent"], 1, TTL)
        assert (taken.lease_epoch, taken.crash_count, taken.next_seq) == (2, 1, 2)
        event = (await young.journal("a"))[-1]
        assert (event.seq, event.kind, event.epoch) == (1, "run.interrupted", 2)
        assert event.data == {
            "owner": old.worker_id,
            "epoch": 1,
            "by": young.worker_id,
            "how": "lease",
            "seen": 1_000_000,
        }


async def test_two_crashes_are_claimed_alone(place: Place) -> None:
    """After two crashes a run is left out of batches and claimed only alone; an outcome clears the count."""
    clock = ManualClock()
    async with place.open(clock) as one, place.open(clock) as two, place.open(clock) as three:
        await owned(one, "a")
        clock.time += TTL
        (row,) = await two.claim(["agent"], 5, TTL)
        assert row.crash_count == 1
        clock.time += TTL
        await three.create(new("b", delay_ms=1))
        assert await three.claim(["agent"], 5, TTL) == []
        clock.time += 1
        (row,) = await three.claim(["agent"], 5, TTL, alone=True)
        assert (row.id, row.crash_count) == ("a", 2)
        (other,) = await three.claim(["agent"], 5, TTL, alone=True)
        assert other.id == "b"
        await three.append(write(row, step()))
        found = await three.run("a")
        assert found is not None
        assert found.crash_count == 0


async def test_each_death_of_many_halves_those_that_are_claimed_together(place: Place) -> None:
    """The first says nothing; from the second on groups are half as large as what died, until a run is alone."""
    async with place.open() as observer:
        for number in range(8):
            await observer.create(new(f"run-{number}"))
        sizes = []
        for life in range(6):
            store = place.connect(place.url)
            await store.open()
            claimed = await store.claim(["agent"], 100, TTL, alone=life >= 2)
            sizes.append(len(claimed))
            store.abandon()
            await recovered(observer)
        assert sizes[:3] == [8, 8, 4]
        assert sizes[3:] == [4, 2, 2]  # the other half first: it has been due for longer
        rows = [await observer.run(f"run-{number}") for number in range(8)]
        assert sorted(row.company for row in rows if row is not None) == [1, 1, 1, 1, 2, 2, 2, 2]


async def test_a_run_that_dies_alone_is_known_to_have_been_alone(place: Place) -> None:
    """However many died with it before."""
    async with place.open() as observer:
        await observer.create(new("a"))
        for _ in range(3):
            store = place.connect(place.url)
            await store.open()
            (row,) = await store.claim(["agent"], 100, TTL, alone=True)
            store.abandon()
            await recovered(observer)
        found = await observer.run("a")
        assert found is not None
        assert (row.crash_count, found.company) == (2, 0)


async def test_heartbeat_prolongs_own_leases_only(place: Place) -> None:
    """A heartbeat prolongs what this incarnation holds, tells of new signals, and leaves others' leases alone."""
    clock = ManualClock()
    async with place.open(clock) as mine, place.open(clock) as other:
        row = await owned(mine, "a")
        await owned(other, "b")
        await mine.send("a", "s", "message.received", "t", None, {})
        clock.time += 1_000
        (lease,) = await asyncio.to_thread(mine.heartbeat, TTL)
        assert (lease.run, lease.epoch, lease.inbox_count) == ("a", row.lease_epoch, 1)
        due = {found.id: found.due_at for found in await mine.runs()}
        assert due == {"a": clock.time + TTL, "b": clock.time - 1_000 + TTL}


@pytest.mark.slow
async def test_claim_cancelled_before_its_commit_gives_back(place: Place) -> None:
    """Runs claimed for a caller that was cancelled during the commit are ready again, not held for nobody."""
    gate = Gate()
    async with place.open(faults=gate) as store:
        await store.create(new("a"))
        gate.shut()
        claim = asyncio.create_task(store.claim(["agent"], 1, TTL))
        await asyncio.to_thread(gate.reached.wait, 20)
        claim.cancel()
        await asyncio.wait([claim])
        given_back = asyncio.Event()
        store.on_change(lambda changes: given_back.set() if News.DUE in changes.values() else None)
        gate.opened.set()
        await given_back.wait()
        (row,) = await store.claim(["agent"], 1, TTL)
        assert (row.lease_epoch, row.crash_count) == (2, 0)


async def test_claim_cancelled_after_its_commit_gives_back(place: Place) -> None:
    """The same when the caller is cancelled between the acknowledgement and its next step."""
    async with place.open() as store:
        await store.create(new("a"))
        given_back = asyncio.Event()
        claim = asyncio.create_task(store.claim(["agent"], 1, TTL))
        store.on_change(lambda changes: given_back.set() if News.DUE in changes.values() else claim.cancel())
        await asyncio.wait([claim])
        assert claim.cancelled()
        await given_back.wait()
        assert [row.id for row in await store.claim(["agent"], 1, TTL)] == ["a"]


async def test_heartbeat_needs_nothing_of_the_loop(place: Place) -> None:
    """Leases are prolonged from a thread while the loop stands still, and what is on its way then reaches the loop."""
    async with place.open() as store:
        row = await owned(store, "a")
        written = store.append(write(row, step()))
        with ThreadPoolExecutor(1) as thread:
            (lease,) = thread.submit(store.heartbeat, TTL).result(20)  # the loop stands still here
        assert (lease.run, lease.epoch) == ("a", row.lease_epoch)
        await written
        assert len(await store.journal("a")) == 1


async def test_heartbeat_that_cannot_be_written(file: Place) -> None:
    """A heartbeat waits no longer than the time it asks for, and is refused when the store is closed."""
    gate = Gate()
    async with file.open(faults=gate) as store:
        gate.shut()
        created = asyncio.gather(store.create(new("a")), store.create(new("b")))  # two: a lone one keeps the loop
        await asyncio.to_thread(gate.reached.wait, 20)
        with pytest.raises(StoreUnavailable, match="within 20 ms"):
            await asyncio.to_thread(store.heartbeat, 20)
        gate.opened.set()
        await created
    with pytest.raises(StoreUnavailable, match="not open"):
        await asyncio.to_thread(store.heartbeat, TTL)


async def test_claim_takes_only_runs_of_its_queues(place: Place) -> None:
    """A claim that names queues takes and foresees runs of these only; one that names none takes any."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.create(new("a", queue="mail"))
        clock.time += 1
        await store.create(new("b"))
        clock.time += 1
        await store.create(new("c", queue="video"))
        assert await store.claim(["agent"], 9, TTL, queues=["paper"]) == []
        assert await store.next_due(["agent"], queues=["paper"]) is None
        assert await store.next_due(["agent"], queues=["video", "paper"]) == clock.time
        claimed = await store.claim(["agent"], 9, TTL, queues=["video", "mail"])
        assert [row.id for row in claimed] == ["a", "c"]
        assert [row.id for row in await store.claim(["agent"], 9, TTL)] == ["b"]


async def test_what_waits_is_taken_a_little_before_its_time(place: Place) -> None:
    """A waiting run comes into memory so long before its time; one that begins later does not begin early."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await park(store, await owned(store, "a"), due_at=clock.time + 10)
        await store.create(new("b", delay_ms=10))
        clock.time += 2
        assert await store.claim(["agent"], 5, TTL, early_ms=7) == []
        clock.time += 1
        assert [row.id for row in await store.claim(["agent"], 5, TTL, early_ms=7)] == ["a"]
        clock.time += 7
        assert [row.id for row in await store.claim(["agent"], 5, TTL, early_ms=7)] == ["b"]
