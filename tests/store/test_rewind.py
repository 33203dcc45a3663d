from __future__ import annotations

import pytest
from tests.store.places import TTL, ManualClock, Place, finish, new, owned, park, step, write

from holdfast.errors import RunActive, RunFinished, UnknownRun
from holdfast.store.appends import Transition
from holdfast.words.model import Event


async def test_a_paused_run_goes_on(place: Place) -> None:
    """Resuming a paused run makes it due now, clears reason and crash count, and leaves an event and an audit row."""
    clock = ManualClock()
    async with place.open(clock) as store, place.open(clock) as other:
        await owned(store, "a")
        clock.time += TTL
        (row,) = await other.claim(["agent"], 1, TTL)
        await other.append(write(row, Event(0, "run.paused"), transition=Transition("paused", reason="why")))
        assert await store.claim(["agent"], 1, TTL) == []
        clock.time += 1
        await store.resume("a", by="eve")
        found = await store.run("a")
        assert found is not None
        assert (found.status, found.due_at, found.reason, found.crash_count) == ("ready", clock.time, None, 0)
        event = (await store.journal("a"))[-1]
        assert (event.seq, event.kind, event.data) == (2, "run.resumed", {"by": "eve", "cut": None})
        assert [(noted["actor"], noted["action"]) for noted in await store.audit("a")] == [("eve", "resume")]
        (row,) = await store.claim(["agent"], 1, TTL)
        await store.append(write(row, step()))
        assert [event.seq for event in await store.journal("a")] == [0, 1, 2, 3]


async def test_only_stopped_runs_are_resumed(place: Place) -> None:
    """Resume refuses what goes on by itself (RunActive) and what has ended (RunFinished); a failed run needs retry."""
    async with place.open() as store:
        with pytest.raises(UnknownRun):
            await store.resume("a", by="eve")
        row = await owned(store, "a")
        for parked in (False, True):
            if parked:
                await park(store, row, seen=0)
            with pytest.raises(RunActive):
                await store.resume("a", by="eve", retry=True)
        for status in ("completed", "cancelled", "failed"):
            await finish(store, await owned(store, status), status)
            with pytest.raises(RunFinished):
                await store.resume(status, by="eve", retry=status != "failed")
        await store.create(new("ready"))
        with pytest.raises(RunActive):
            await store.resume("ready", by="eve")


async def test_a_failed_run_is_retried(place: Place) -> None:
    """A retry makes a failed run ready, takes `run.failed` out of the history and clears how it ended."""
    async with place.open() as store:
        row = await owned(store, "a")
        await store.append(write(row, step()))
        await finish(store, row, "failed", error='{"type":"E"}')
        await store.resume("a", by="eve", retry=True)
        found = await store.run("a")
        assert found is not None
        assert (found.status, found.error, found.finished_at, found.steps) == ("ready", None, None, 1)
        assert [event.kind for event in await store.journal("a")] == ["step.completed", "run.retried"]
        everything = await store.journal("a", dropped=True)
        assert [(event.kind, event.dropped) for event in everything] == [
            ("step.completed", None), ("run.failed", 2), ("run.retried", None),
        ]  # fmt: skip


async def test_a_cut_drops_what_was_asked_after_it(place: Place) -> None:
    """A cut keeps what came before, completed work asked before, and arrivals; it drops the rest and its attempts."""
    async with place.open() as store:
        row = await owned(store, "a")
        history = [
            # seq, kind, key, asked, kept by a cut at 5 (two outcomes were delivered before it)
            (0, "step.completed", "first#0", 0, True),
            (1, "step.started", "cut#0", 1, False),
            (2, "step.retrying", "cut#0", 1, False),
            (3, "step.started", "slow#0", 1, True),
            (4, "message.received", None, None, True),
            (5, "step.failed", "cut#0", 1, False),
            (6, "step.completed", "slow#0", 1, True),
            (7, "step.completed", "late#0", 3, False),
            (8, "step.failed", "other#0", 1, False),
            (9, "timer.set", "timer#0", 2, True),
            (10, "timer.set", "timer#1", 3, False),
            (11, "timer.fired", "timer#0", 2, True),
            (12, "tick", "tick#0", 2, True),
            (13, "child.started", "child#0", 2, True),
            (14, "child.spawned", "child#1", 4, False),
            (15, "note", "note#0", 2, True),
            (16, "approval.asked", "ask#0", 2, True),
            (17, "approval.decided", None, None, True),
            (18, "child.ended", None, None, True),
            (19, "patched", "patch", None, False),
            (20, "checkpoint", "checkpoint#0", 2, False),
            (21, "run.interrupted", None, None, False),
            (22, "step.completed", "unknown#0", None, False),
            (23, "run.failed", None, None, False),
        ]
        events = [
            Event(seq, kind, key, {} if asked is None else {"asked": asked}) for seq, kind, key, asked, _ in history
        ]
        await store.append(write(row, *events[:-1], checkpoint_seq=20))
        await store.append(
            write(row, events[-1], transition=Transition("failed", error='{"from":[{"seq":8},{"seq":5}]}'))
        )
        await store.resume("a", by="eve", retry=True)
        kept = {event.seq for event in await store.journal("a")} - {24}
        assert kept == {seq for seq, _, _, _, keep in history if keep}
        everything = await store.journal("a", dropped=True)
        assert [event.seq for event in everything] == list(range(25))
        assert {event.dropped for event in everything} == {None, 24}
        assert everything[24].data == {"by": "eve", "cut": 5}
        found = await store.run("a")
        assert found is not None
        assert (found.checkpoint_seq, found.steps, found.next_seq) == (None, 2, 25)


async def test_a_dropped_outcome_makes_room(place: Place) -> None:
    """After a cut the same key may have an outcome again, and an arrival at the cut itself goes too."""
    async with place.open() as store:
        row = await owned(store, "a")
        checkpoint = Event(0, "checkpoint", "c#0", {"asked": 0})
        await store.append(
            write(row, checkpoint, Event(0, "message.received"), step(key="x#0", asked=2), checkpoint_seq=0)
        )
        await finish(store, row, "failed", error='{"from":[{"seq":1}]}')
        await store.resume("a", by="eve", retry=True)
        assert [event.kind for event in await store.journal("a")] == ["checkpoint", "run.retried"]
        (row,) = await store.claim(["agent"], 1, TTL)
        await store.append(write(row, step(key="x#0")))
        found = await store.run("a")
        assert found is not None
        assert (found.checkpoint_seq, found.steps) == (0, 1)
