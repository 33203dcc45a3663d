from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.store.places import TTL, Gate, ManualClock, Place, finish, new, owned, park, step, write

from holdfast.errors import BadArguments, LeaseLost
from holdfast.store.appends import Append, Transition
from holdfast.store.approvals import NewApproval
from holdfast.words.model import Event


async def test_append_returns_when_it_is_readable(place: Place) -> None:
    """An acknowledged append is in the journal, complete, also for another store, with the time it returned."""
    async with place.open() as store, place.open() as other:
        row = await owned(store, "a")
        event = Event(0, "step.completed", "work#0", {"asked": 0, "name": "wörk"}, '"välue"', None)
        at = await store.append(write(row, event))
        (found,) = await other.journal("a")
        assert (found.seq, found.kind, found.key, found.value, found.at) == (
            0,
            "step.completed",
            "work#0",
            '"välue"',
            at,
        )
        assert (found.data, found.epoch, found.run, found.dropped) == ({"asked": 0, "name": "wörk"}, 1, "a", None)


async def test_appends_of_one_run_keep_their_order(place: Place) -> None:
    """300 appends of one run, queued without waiting, are committed in the order given."""
    async with place.open() as store:
        row = await owned(store, "a")
        await asyncio.gather(*[store.append(write(row, step(), step())) for _ in range(300)])
        assert [event.seq for event in await store.journal("a")] == list(range(600))
        found = await store.run("a")
        assert found is not None
        assert (found.next_seq, found.steps) == (600, 600)


async def test_stale_owner_is_refused(place: Place) -> None:
    """A zombie's append, park and end are refused as LeaseLost, its heartbeat shows nothing; the successor goes on."""
    clock = ManualClock()
    async with place.open(clock) as old, place.open(clock) as young:
        zombie = await owned(old, "a")
        await old.append(write(zombie, step()))
        clock.time += TTL
        (owner,) = await young.claim(["agent"], 1, TTL)
        for transition in (None, Transition("waiting"), Transition("completed", result="1")):
            with pytest.raises(LeaseLost):
                await old.append(
                    Append("a", zombie.lease_epoch, zombie.next_seq, [step(1, "late#0")], transition=transition)
                )
            with pytest.raises(LeaseLost):
                await old.append(
                    Append("a", zombie.lease_epoch, owner.next_seq, [step(2, "late#0")], transition=transition)
                )
        assert await asyncio.to_thread(old.heartbeat, TTL) == []
        await young.append(write(owner, step()))
        assert [event.kind for event in await young.journal("a")] == [
            "step.completed",
            "run.interrupted",
            "step.completed",
        ]


async def test_append_needs_a_running_run(place: Place) -> None:
    """Nothing is written to a run that is not there, not claimed, parked or finished."""
    async with place.open() as store:
        await store.create(new("ready", agent="other"))
        parked, ended = await owned(store, "parked"), await owned(store, "ended")
        await park(store, parked)
        await finish(store, ended)
        for run, epoch, seq in (("none", 1, 0), ("ready", 0, 0), ("parked", 1, 0), ("ended", 1, 1)):
            with pytest.raises(LeaseLost):
                await store.append(Append(run, epoch, seq, [step(seq, "late#0")]))


async def test_only_the_guilty_append_fails(place: Place) -> None:
    """In a batch with a stale epoch and a wrong seq, every other append is committed."""
    async with place.open() as store:
        rows = [await owned(store, f"run-{number}") for number in range(20)]
        await asyncio.gather(*[store.append(write(row, step(0, "work#0"))) for row in rows])
        rows[3].lease_epoch += 1
        rows[5].next_seq += 1
        results = await asyncio.gather(
            *[store.append(write(row, step(0, "work#1"))) for row in rows], return_exceptions=True
        )
        assert [number for number, result in enumerate(results) if isinstance(result, LeaseLost)] == [3, 5]
        lengths = [len(await store.journal(row.id)) for row in rows]
        assert lengths == [1 if number in (3, 5) else 2 for number in range(20)]


async def test_what_follows_a_refused_append_is_refused(place: Place) -> None:
    """Appends of one run queued behind a refused one do not take its place."""
    async with place.open() as store:
        row = await owned(store, "a")
        await store.append(write(row, step(0, "work#0")))
        row.lease_epoch -= 1
        stale = write(row, step(0, "work#1"))
        row.lease_epoch += 1
        results = await asyncio.gather(
            store.append(stale), store.append(write(row, step(0, "work#1"))),
            store.append(write(row, step(0, "work#2"), transition=Transition("completed"))), return_exceptions=True,
        )  # fmt: skip
        assert [type(result) for result in results] == [LeaseLost] * 3
        assert len(await store.journal("a")) == 1


@pytest.mark.parametrize(
    ("batch", "accepted"),
    [
        ([(1, 0), (0, 1)], [True, False]),  # (epoch, seq)
        ([(1, 0), (1, 2)], [True, False]),
        ([(1, 0), (0, 1), (1, 1), (1, 3), (1, 2)], [True, False, True, False, True]),
    ],
)
async def test_each_append_of_a_batch_is_fenced(
    place: Place, batch: list[tuple[int, int]], accepted: list[bool]
) -> None:
    """A stale epoch or a gap after a good append of the same run and batch is refused; what fits is written."""
    gate = Gate()
    async with place.open(faults=gate) as store:
        await owned(store, "a")
        gate.shut()
        others = asyncio.gather(*[store.create(new(name, agent="other")) for name in "bc"])  # a lone one keeps the loop
        await asyncio.to_thread(gate.reached.wait, 20)  # the writer is busy: what is queued now is its next batch
        waiting = [store.append(Append("a", epoch, seq, [step(seq, f"work#{seq}")])) for epoch, seq in batch]
        gate.opened.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [isinstance(result, int) for result in results] == accepted
        written = [(event.epoch, event.seq) for event in await store.journal("a")]
        assert written == [fence for fence, fits in zip(batch, accepted, strict=True) if fits]
        await others


async def test_repeated_append_is_acknowledged(place: Place) -> None:
    """The same append offered again, as after an unknown commit, is acknowledged with its old time and written once."""
    clock = ManualClock()
    async with place.open(clock) as store:
        row = await owned(store, "a")
        at = await store.append(write(row, step(0, "x#0"), step(0, "x#1")))
        clock.time += 7
        again = Append("a", 1, 0, [step(0, "x#0"), step(1, "x#1")])
        assert await store.append(again) == at
        with pytest.raises(LeaseLost):
            await store.append(Append("a", 1, 0, [step(0, "x#0"), step(1, "x#1", value="2")]))
        end = Append("a", 1, 2, [], transition=Transition("completed", result="1"))
        await store.append(end)
        await store.append(end)
        assert len(await store.journal("a")) == 2


async def test_wrongly_numbered_events_are_refused_at_once(place: Place) -> None:
    """Events that do not count up from the expected seq never reach the database."""
    async with place.open() as store:
        with pytest.raises(BadArguments, match="has seq 5, expected 1"):
            store.append(Append("a", 1, 0, [step(0), step(5)]))
        with pytest.raises(BadArguments, match="'running'"):
            store.append(Append("a", 1, 0, transition=Transition("running")))


async def test_append_moves_the_row(place: Place) -> None:
    """An append moves next_seq, steps, inbox_seen and checkpoint_seq; only an outcome clears the crash count."""
    clock = ManualClock()
    async with place.open(clock) as store, place.open(clock) as other:
        await owned(store, "a")
        clock.time += TTL
        (row,) = await other.claim(["agent"], 1, TTL)
        await other.append(write(row, Event(0, "step.started", "work#0")))
        found = await other.run("a")
        assert found is not None
        assert (found.crash_count, found.steps) == (1, 0)
        clock.time += 1
        await other.append(write(row, step(), Event(0, "checkpoint", "checkpoint#0"), inbox_seen=4, checkpoint_seq=3))
        await other.append(write(row, Event(0, "step.started", "work#1")))
        found = await other.run("a")
        assert found is not None
        assert (found.next_seq, found.steps, found.crash_count, found.updated_at) == (5, 1, 0, clock.time)
        assert (found.inbox_seen, found.checkpoint_seq) == (4, 3)


async def test_every_way_to_leave(place: Place) -> None:
    """Each status an owner can leave a run in sets the due time, the waiting fields and the end as described."""
    clock = ManualClock()
    async with place.open(clock) as store:
        ends = {
            "ready": Transition("ready"),
            "waiting": Transition(
                "waiting", due_at=clock.time + 50, waits_for="timer", awaits=["a", "b"], inbox_seen=0
            ),
            "paused": Transition("paused", reason="why"),
            "completed": Transition("completed", result='"r"'),
            "failed": Transition("failed", error='{"type":"E"}'),
            "cancelled": Transition("cancelled", reason="by hand"),
        }
        for status, transition in ends.items():
            row = await owned(store, status)
            await store.append(write(row, transition=transition))
            found = await store.run(status)
            assert found is not None
            assert (found.status, found.lease_owner, found.lease_epoch) == (status, None, 1)
            assert found.due_at == {"ready": clock.time, "waiting": clock.time + 50}.get(status)
            assert found.finished_at == (clock.time if status in ("completed", "failed", "cancelled") else None)
            assert found.awaits == ('["a","b"]' if status == "waiting" else None)
            assert found.waits_for == ("timer" if status == "waiting" else None)
            assert (found.result, found.error, found.reason) == (transition.result, transition.error, transition.reason)
            if status == "ready":
                await store.claim(["agent"], 1, TTL)


async def test_children_are_created_with_their_event(place: Place) -> None:
    """A child in an append exists exactly if the append does; one that exists already is left as it is."""
    async with place.open() as store:
        row = await owned(store, "a")
        child = new("a.1", agent="child", parent_id="a", parent_key="child#0", root_id="a")
        await store.append(write(row, Event(0, "child.started", "child#0"), children=[child]))
        await store.append(write(row, Event(0, "child.started", "child#0"), children=[child]))
        found = await store.run("a.1")
        assert found is not None
        assert (found.uid, found.status, found.parent_id, found.root_id) == (child.uid, "ready", "a", "a")
        row.lease_epoch += 1
        with pytest.raises(LeaseLost):
            await store.append(write(row, step(), children=[new("a.2", parent_id="a")]))
        assert await store.run("a.2") is None


async def test_blobs_and_questions_are_stored_with_their_event(place: Place) -> None:
    """Blobs and approvals in an append can be read once it is acknowledged; the same blob twice is one."""
    async with place.open() as store:
        row = await owned(store, "a")
        event = Event(0, "step.completed", "work#0", blob="digest")
        question = NewApproval("q", "work#1", "in_doubt", "Again?", shown="{}", schema="{}")
        await store.append(write(row, event, blobs={"digest": b"content"}, approvals=[question]))
        await store.append(write(row, step(), blobs={"digest": b"content"}))
        assert await store.blob("digest") == b"content"
        (asked,) = await store.approvals(run="a")
        assert (asked.id, asked.run_id, asked.key, asked.question, asked.status) == (
            "q",
            "a",
            "work#1",
            "Again?",
            "open",
        )


async def test_closed_store_says_so(place: Place) -> None:
    """What was queued before close is written; after it every call is refused as unavailable."""
    from holdfast.errors import StoreUnavailable

    async with place.open() as store:
        row = await owned(store, "a")
        waiting = [store.append(write(row, step())) for _ in range(50)]
        await store.close()
        await asyncio.gather(*waiting)
        with pytest.raises(StoreUnavailable):
            store.append(write(row, step()))
        with pytest.raises(StoreUnavailable):
            await store.run("a")
    async with place.open() as store:
        assert len(await store.journal("a")) == 50


async def test_appends_of_a_run_are_acknowledged_in_their_order(place: Place) -> None:
    """An append that finds the writer idle again does not overtake one whose acknowledgement is on its way."""
    gate = Gate()
    async with place.open(faults=gate) as store:
        row = await owned(store, "a")
        for _ in range(3):
            await store.append(write(row, step()))
        order: list[int] = []
        futures = [store.append(write(row, step())) for _ in range(2)]  # together: not a lone one
        gate.shut()
        await asyncio.sleep(0)
        await asyncio.to_thread(gate.reached.wait, 20)
        futures.append(store.append(write(row, step())))  # its turn comes ...
        gate.opened.set()
        await asyncio.to_thread(_at_rest, store)  # ... after the first two are committed, perhaps before they are told
        futures.append(store.append(write(row, step())))
        for number, future in enumerate(futures):
            future.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]
        await asyncio.gather(*futures)
        assert order == [0, 1, 2, 3]


def _at_rest(store: Any) -> None:
    """Until nobody uses the writing connection, where there is one."""
    lock = getattr(getattr(store, "_writer", None), "_connection", None)
    if lock is not None:
        with lock:
            pass
