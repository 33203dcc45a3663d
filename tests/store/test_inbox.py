from __future__ import annotations

import asyncio
import random

import pytest
from tests.store.places import TTL, ManualClock, Place, finish, new, owned, park, step, write

from holdfast.errors import RunFinished, UnknownRun
from holdfast.store.appends import InboxMoved, Transition
from holdfast.store.store import Store
from holdfast.words.model import Event


async def tell(store: Store, run: str, topic: str = "topic", signal: str | None = None, value: str = "1") -> int:
    return await store.send(run, signal or f"signal-{random.random()}", "message.received", topic, value, {})


async def test_signals_keep_their_order(place: Place) -> None:
    """Signals lie in the inbox at positions 1, 2, 3 with all they carry, and are read from any position on."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.create(new("a"))
        for number in (1, 2, 3):
            data = {"n": number}
            assert await store.send("a", f"s{number}", "message.received", f"t{number}", str(number), data) == number
        first, second, third = await store.inbox("a", 0)
        assert (second.position, second.kind, second.topic, second.value) == (2, "message.received", "t2", "2")
        assert (second.data, second.sent_at) == ({"n": 2}, clock.time)
        assert await store.inbox("a", 1) == [second, third]
        assert await store.inbox("a", 0, limit=1) == [first]


async def test_the_same_signal_twice_is_one(place: Place) -> None:
    """A signal repeated with its id returns the old position and changes nothing, even after the run's end."""
    async with place.open() as store:
        row = await owned(store, "a")
        assert await tell(store, "a", signal="s", value="1") == 1
        assert await tell(store, "a", signal="s", value="2") == 1
        assert [signal.value for signal in await store.inbox("a", 0)] == ["1"]
        await finish(store, row)
        assert await tell(store, "a", signal="s") == 1


async def test_nobody_to_send_to(place: Place) -> None:
    """Sending to no run or to an ended one is an error, and nothing is stored."""
    async with place.open() as store:
        row = await owned(store, "a")
        await finish(store, row)
        with pytest.raises(RunFinished, match="completed"):
            await tell(store, "a")
        with pytest.raises(UnknownRun):
            await tell(store, "b")
        assert await store.inbox("a", 0) == []


async def test_park_is_refused_when_a_signal_came(place: Place) -> None:
    """A run whose owner has not seen every signal is not parked: InboxMoved, nothing written, the lease still held."""
    async with place.open() as store:
        row = await owned(store, "a")
        await tell(store, "a")
        with pytest.raises(InboxMoved):
            await store.append(write(row, step(), transition=Transition("waiting", inbox_seen=0)))
        row.next_seq -= 1
        assert await store.journal("a") == []
        (signal,) = await store.inbox("a", 0)
        await store.append(write(row, Event(0, "message.received"), inbox_seen=signal.position))
        await park(store, row, seen=signal.position)
        found = await store.run("a")
        assert found is not None
        assert (found.status, found.due_at, found.inbox_seen) == ("waiting", None, 1)


async def test_only_awaited_topics_wake(place: Place) -> None:
    """A parked run becomes due by an awaited token only, or by any if it named none; a due one is not put off."""
    clock = ManualClock()
    async with place.open(clock) as store:
        picky, open_ = await owned(store, "picky"), await owned(store, "open")
        await park(store, picky, due_at=clock.time + 500, awaits=["yes", "child:c"], seen=0)
        await park(store, open_, seen=0)

        async def due_at(run: str) -> int | None:
            found = await store.run(run)
            assert found is not None
            return found.due_at

        await tell(store, "picky", "no")
        await store.send("picky", "s", "child.ended", "other", None, {})
        await store.send("picky", "t", "approval.decided", "yes", None, {})
        assert await due_at("picky") == clock.time + 500
        clock.time += 3
        await tell(store, "picky", "yes")
        await tell(store, "open", "anything")
        woken_at = clock.time
        clock.time += 3
        await tell(store, "picky", "yes")
        await tell(store, "open", "anything")
        assert (await due_at("picky"), await due_at("open")) == (woken_at, woken_at)
        assert len(await store.claim(["agent"], 5, TTL)) == 2


async def test_tokens_of_children_and_decisions(place: Place) -> None:
    """`child:<id>` and `approval:<id>` are the tokens of a child's end and of a decision."""
    async with place.open() as store:
        for kind, token in (("child.ended", "child:x"), ("approval.decided", "approval:x")):
            row = await owned(store, kind)
            await park(store, row, awaits=[token], seen=0)
            await store.send(kind, "s", kind, "x", None, {})
            assert [found.id for found in await store.claim(["agent"], 1, TTL)] == [kind]


async def test_paused_runs_still_receive(place: Place) -> None:
    """A signal to a paused run lies in its inbox and does not make it due."""
    async with place.open() as store:
        row = await owned(store, "a")
        await store.append(write(row, transition=Transition("paused")))
        assert await tell(store, "a") == 1
        found = await store.run("a")
        assert found is not None
        assert (found.status, found.due_at, found.inbox_count) == ("paused", None, 1)


async def test_no_wake_up_is_lost(place: Place) -> None:
    """300 parks racing 300 sends from another store: every run is refused or ends up due, never asleep."""
    async with place.open() as owner, place.open() as sender:
        await asyncio.gather(*[owner.create(new(f"run-{number}")) for number in range(300)])
        rows = await owner.claim(["agent"], 300, TTL)
        random.shuffle(rows)
        order = random.sample(rows, len(rows))
        refused = 0

        async def parks() -> None:
            nonlocal refused
            for start in range(0, 300, 7):
                parked = [park(owner, row, awaits=["topic"], seen=0) for row in rows[start : start + 7]]
                results = await asyncio.gather(*parked, return_exceptions=True)
                assert all(result is None or isinstance(result, InboxMoved) for result in results)
                refused += sum(result is not None for result in results)

        async def sends() -> None:
            for start in range(0, 300, 7):
                await asyncio.gather(*[tell(sender, row.id) for row in order[start : start + 7]])

        await asyncio.gather(parks(), sends())
        states = [(row.status, row.due_at is None) for row in await owner.runs(limit=1000)]
        assert set(states) <= {("waiting", False), ("running", False)}
        assert states.count(("running", False)) == refused


async def test_the_end_of_a_child_wakes_its_parent(place: Place) -> None:
    """When a child ends, its parent's inbox holds result and status in the same moment, and the parent is due."""
    async with place.open() as store:
        parent = await owned(store, "p")
        await store.append(write(parent, Event(0, "child.started", "c#0"), children=[new("p.c", parent_id="p")]))
        (child,) = await store.claim(["agent"], 1, TTL)
        await park(store, parent, awaits=["child:p.c"], seen=0)
        await finish(store, child, "failed", error='{"type":"ValueError"}', result=None)
        (signal,) = await store.inbox("p", 0)
        assert (signal.kind, signal.topic, signal.value) == ("child.ended", "p.c", None)
        assert signal.data == {"child": "p.c", "status": "failed", "error": {"type": "ValueError"}}
        (parent,) = await store.claim(["agent"], 1, TTL)
        assert parent.id == "p"

        await store.resume("p.c", by="me", retry=True)
        (child,) = await store.claim(["agent"], 1, TTL)
        await finish(store, child, result='"done"')
        second = (await store.inbox("p", 1))[0]
        assert (second.value, second.data["status"], second.data["error"]) == ('"done"', "completed", None)


async def test_a_child_may_outlive_its_parent(place: Place) -> None:
    """The end of a child whose parent has ended is no error and leaves no signal."""
    async with place.open() as store:
        parent = await owned(store, "p")
        await store.append(write(parent, step(), children=[new("p.c", parent_id="p")]))
        (child,) = await store.claim(["agent"], 1, TTL)
        await finish(store, parent)
        await finish(store, child)
        assert await store.inbox("p", 0) == []


async def test_parent_and_child_in_one_batch(place: Place) -> None:
    """A child's end and its parent's park, queued together in either order, leave the parent due or refused."""
    async with place.open() as store:
        for number in range(10):
            parent = await owned(store, f"p{number}")
            await store.append(write(parent, step(), children=[new(f"c{number}", parent_id=parent.id)]))
            (child,) = await store.claim(["agent"], 1, TTL)
            both = [finish(store, child), park(store, parent, seen=0)]
            results = await asyncio.gather(*(both if number % 2 else reversed(both)), return_exceptions=True)
            assert all(result is None or isinstance(result, InboxMoved) for result in results)
            found = await store.run(parent.id)
            assert found is not None
            assert found.due_at is not None
            assert len(await store.inbox(parent.id, 0)) == 1
            if found.status == "waiting":
                await store.claim(["agent"], 1, TTL)
