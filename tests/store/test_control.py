"""Pause and cancel in the store: requests for owners, runs that nobody carries, and what the audit keeps of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.store.places import TTL, ManualClock, Place, finish, new, owned, park, step, write

from holdfast.errors import LeaseLost, RunActive, RunFinished, UnknownRun
from holdfast.store.appends import Transition
from holdfast.store.store import Store
from holdfast.words.model import Event


async def cancel(store: Store, run: str, request: str, **more: Any) -> str:
    return await store.cancel(run, by="ana", grace_ms=1000, request=request, **more)


async def asked(store: Store, run: str) -> list[str]:
    return [signal.kind for signal in await store.inbox(run, 0)]


async def test_a_request_is_made_once(place: Place) -> None:
    """The same request again, because its commit was unknown, is one signal and one row of the audit."""
    async with place.open() as store:
        await owned(store, "a")
        for _ in range(2):
            assert await store.pause("a", by="ana", request="p") == "running"
        for _ in range(2):
            assert await cancel(store, "a", "c") == "running"
        assert await asked(store, "a") == ["run.pausing", "run.cancelling"]
        assert [row["action"] for row in await store.audit("a")] == ["cancel", "pause"]


async def test_a_pause_that_no_owner_saw_is_over_with_the_resume(place: Place) -> None:
    """Asked of an owner that gave the run back, then done without one: after one resume nothing is left of it."""
    async with place.open() as store:
        row = await owned(store, "a")
        await store.pause("a", by="ana", request="1")
        await store.append(write(row, transition=Transition("ready")))
        assert await store.pause("a", by="ben", request="2") == "paused"
        await store.resume("a", by="ben")
        assert [signal.data for signal in await store.inbox("a", 0)] == [{}]


async def test_a_run_that_is_to_stop_cannot_be_paused(place: Place) -> None:
    """Wherever it is."""
    async with place.open() as store:
        row = await owned(store, "a")
        await cancel(store, "a", "c")
        with pytest.raises(RunActive, match="told to stop"):
            await store.pause("a", by="ana", request="p")
        await park(store, row, seen=1)
        with pytest.raises(RunActive, match="told to stop"):
            await store.pause("a", by="ana", request="p")
        with pytest.raises(UnknownRun):
            await store.pause("b", by="ana", request="p")
        assert len(await store.audit()) == 1


async def test_what_is_passed_on_is_no_second_request(place: Place) -> None:
    """Only who insists ends a run that was asked before."""
    async with place.open() as store:
        row = await owned(store, "a")
        await park(store, row)
        assert await cancel(store, "a", "1") == "waiting"
        assert await cancel(store, "a", "2", insist=False) == "waiting"
        assert await asked(store, "a") == ["run.cancelling"]
        assert await cancel(store, "a", "3") == "cancelled"
        assert len(await store.audit("a")) == 2


async def test_a_run_whose_lease_is_over_ends_at_the_second_request(place: Place) -> None:
    """Its owner may be dead; if it is not, it can write no more. Its slot is free."""
    clock = ManualClock()
    async with place.open(clock) as store:
        row = await owned(store, "a")
        assert [await cancel(store, "a", n) for n in "12"] == ["running"] * 2
        clock.time += TTL + 1
        assert await cancel(store, "a", "3") == "cancelled"
        with pytest.raises(LeaseLost):
            await store.append(write(row, step()))
        assert (await store.run("a")).lease_owner is None
        assert await store.claim(["agent"], 1, TTL) == []


async def test_a_run_that_is_ended_ends_with_all_below_it(place: Place) -> None:
    """Children and theirs, each with a row of the audit; whoever carries one can write no more, and start no child."""
    async with place.open() as store:
        row = await owned(store, "a")
        below = [new("a.b", parent_id="a", root_id="a"), new("a.c", parent_id="a", root_id="a")]
        await store.append(write(row, children=below))
        (carried,) = [run for run in await store.claim(["agent"], 1, TTL) if run.id == "a.b"]
        await store.append(write(carried, children=[new("a.b.d", parent_id="a.b", root_id="a")]))
        await park(store, row)
        await cancel(store, "a", "1")
        assert await cancel(store, "a", "2") == "cancelled"
        states = {run.id: run.status for run in await store.runs()}
        assert states == dict.fromkeys(("a", "a.b", "a.c", "a.b.d"), "cancelled")
        with pytest.raises(LeaseLost):
            await store.append(write(carried, step(), children=[new("a.b.e", parent_id="a.b", root_id="a")]))
        assert await store.run("a.b.e") is None
        assert sorted(deed["run"] for deed in await store.audit()) == ["a", "a", "a.b", "a.b.d", "a.c"]
        assert await store.claim(["agent"], 9, TTL) == []


async def test_a_second_request_to_stop_keeps_the_reason_of_the_first(place: Place) -> None:
    """Unless it has one of its own."""
    async with place.open() as store:
        for run, second, told in (("a", "", "wrong city"), ("b", "too late", "too late"), ("c", "", "")):
            await park(store, await owned(store, run))
            await cancel(store, run, "1", reason="wrong city" if run != "c" else "")
            assert await cancel(store, run, "2", reason=second) == "cancelled"
            assert (await store.run(run)).reason == "cancelled by ana" + (f": {told}" if told else "")


async def test_the_end_of_a_cancelled_run_is_the_end_of_all_below_it(place: Place) -> None:
    """Also when its own owner writes it, and whatever else is written in the same moment; a completed run leaves others be."""
    async with place.open() as store:
        row = await owned(store, "a")
        await store.append(write(row, step(), children=[new("a.b", parent_id="a", root_id="a")]))
        (child,) = await store.claim(["agent"], 1, TTL)
        await finish(store, child)
        retried = new("a.c", parent_id="a", root_id="a")
        writes = [write(row, step(), children=[retried]), write(row, Event(0, "run.cancelled"))]
        writes[-1].transition = Transition("cancelled")
        await asyncio.gather(*[store.append(each) for each in writes])
        assert {run.id: run.status for run in await store.runs()} == {
            "a": "cancelled", "a.b": "completed", "a.c": "cancelled",
        }  # fmt: skip
        other = await owned(store, "z")
        await store.append(write(other, step(), children=[new("z.b", parent_id="z", root_id="z")]))
        await finish(store, other)
        assert (await store.run("z.b")).status == "ready"


async def test_who_was_asked_to_stop_hears_of_all_below_it(place: Place) -> None:
    """Also of one whose own parent has ended. One that was not asked to stop hears of its children only."""
    async with place.open() as store:
        for root in ("a", "b"):
            row = await owned(store, root)
            await store.append(write(row, step(), children=[new(f"{root}.c", parent_id=root, root_id=root)]))
            (child,) = await store.claim(["agent"], 1, TTL)
            grandchild = new(f"{root}.c.d", parent_id=f"{root}.c", root_id=root)
            await store.append(write(child, step(), children=[grandchild]))
            (grandchild,) = await store.claim(["agent"], 1, TTL)
            await finish(store, child)
            assert await store.open_below(root) == [f"{root}.c.d"]
            if root == "a":
                await cancel(store, root, "1")
            await finish(store, grandchild)
            assert await store.open_below(root) == []
        assert await asked(store, "a") == ["child.ended", "run.cancelling", "child.ended"]
        assert await asked(store, "b") == ["child.ended"]


async def test_a_run_whose_code_cannot_go_on_ends_if_it_was_asked_to_stop(place: Place) -> None:
    """Whether its owner had seen the request or not: it does not lie there paused. Without a request it is paused."""
    async with place.open() as store:
        for run in ("a", "b"):
            row = await owned(store, run)
            if run == "a":
                await cancel(store, run, "1")
            await store.append(write(row, transition=Transition("paused", reason="it diverges")))
        ended, paused = await store.run("a"), await store.run("b")
        assert (ended.status, paused.status, paused.reason) == ("cancelled", "paused", "it diverges")
        assert "its code cannot go on" in ended.reason
        assert [event.kind for event in await store.journal("a")] == ["run.cancelled"]


async def test_a_reason_that_repeats_what_no_database_takes_is_kept_without_it(place: Place) -> None:
    """Otherwise the run could not be left, and would stay with its owner for ever."""
    async with place.open() as store:
        row = await owned(store, "a")
        await store.append(write(row, transition=Transition("paused", reason="not \ud800 but \0")))
        await store.refuse(await owned(store, "b"), "not \0 but \ud800")
        for run in ("a", "b"):
            assert (await store.run(run)).reason == "not \ufffd but \ufffd"


async def test_nothing_begins_again_below_a_cancelled_run(place: Place) -> None:
    """A failed run cannot be retried when any run above it was cancelled."""
    async with place.open() as store:
        row = await owned(store, "a")
        await store.append(write(row, step(), children=[new("a.b", parent_id="a", root_id="a")]))
        (child,) = await store.claim(["agent"], 1, TTL)
        await finish(store, child, "failed")
        await finish(store, row, "cancelled")
        with pytest.raises(RunFinished, match="belongs to run 'a', which was cancelled"):
            await store.resume("a.b", by="ana", retry=True)
        assert (await store.run("a.b")).status == "failed"


async def held(store: Store, run: str) -> str:
    return (await store.run(run)).status


async def test_a_child_that_an_owner_creates_before_it_has_seen_the_request_is_paused(place: Place) -> None:
    """In the transaction that creates it, also together with the one that takes the request; after a resume none is."""
    async with place.open() as store:
        row = await owned(store, "a")
        await store.append(write(row, step(), children=[new("a.0", parent_id="a", root_id="a")]))
        assert await store.pause("a", by="ana", request="p") == "running"
        assert await held(store, "a.0") == "paused"
        await store.append(write(row, step(), children=[new("a.1", parent_id="a", root_id="a")]))
        (signal,) = await store.inbox("a", 0)
        child = write(row, step(), children=[new("a.2", parent_id="a", root_id="a")])
        taken = write(row, Event(0, "run.pausing", None, signal.data), inbox_seen=1)
        await asyncio.gather(store.append(child), store.append(taken))
        assert [await held(store, f"a.{n}") for n in range(3)] == ["paused"] * 3
        assert await store.claim(["agent"], 9, TTL) == []
        paused = Event(0, "run.paused", None, signal.data)
        await store.append(write(row, paused, transition=Transition("paused", inbox_seen=1)))
        await store.resume("a", by="ana")
        assert {run.status for run in await store.runs()} == {"ready"}


async def test_the_nearest_request_holds(place: Place) -> None:
    """A resume lets those go on that the request holds which held the run; a nearer one goes on holding."""
    async with place.open() as store:
        row = await owned(store, "a")
        await store.append(write(row, step(), children=[new("a.b", parent_id="a", root_id="a")]))
        (child,) = await store.claim(["agent"], 1, TTL)
        await store.append(write(child, step(), children=[new("a.b.c", parent_id="a.b", root_id="a")]))
        await park(store, child)
        await park(store, row)
        await store.pause("a", by="ana", request="1")
        await store.pause("a.b", by="ana", request="2")
        await store.pause("a", by="ana", request="3")
        await store.resume("a", by="ana")
        assert [await held(store, run) for run in ("a", "a.b", "a.b.c")] == ["ready", "paused", "paused"]
        await store.pause("a.b.c", by="ana", request="4", family=False)
        await store.resume("a.b", by="ana")
        assert [await held(store, run) for run in ("a", "a.b", "a.b.c")] == ["ready", "ready", "paused"]
        await store.resume("a.b.c", by="ana", family=False)
        assert await held(store, "a.b.c") == "ready"


async def test_a_pause_of_an_old_version_is_one_of_its_own(place: Place) -> None:
    """Its event names no request: a resume of the run above leaves it alone."""
    async with place.open() as store:
        row = await owned(store, "a")
        await store.append(write(row, step(), children=[new("a.b", parent_id="a", root_id="a")]))
        (child,) = await store.claim(["agent"], 1, TTL)
        old = Event(0, "run.paused", None, {"by": "ana", "reason": ""})
        await store.append(write(child, old, transition=Transition("paused", inbox_seen=0)))
        await park(store, row)
        await store.pause("a", by="ana", request="1")
        await store.resume("a", by="ana")
        assert [await held(store, run) for run in ("a", "a.b")] == ["ready", "paused"]
