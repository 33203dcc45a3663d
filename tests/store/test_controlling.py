"""Pause and cancel in the store: requests for owners, runs that nobody carries, and what the audit keeps of it."""

from __future__ import annotations

import pytest
from tests.store.scenes import TTL, ManualClock, Place, new, owned, park, scenario, step, write

from holdfast.errors import LeaseLost, RunActive, UnknownRun
from holdfast.store.base import Store, Transition


async def cancel(store: Store, run: str, request: str, **more: bool) -> str:
    return await store.cancel(run, by="ana", grace_ms=1000, request=request, **more)


async def asked(store: Store, run: str) -> list[str]:
    return [signal.kind for signal in await store.inbox(run, 0)]


@scenario
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


@scenario
async def test_a_pause_that_no_owner_saw_is_over_with_the_resume(place: Place) -> None:
    """Asked of an owner that gave the run back, then done without one: after one resume nothing is left of it."""
    async with place.open() as store:
        row = await owned(store, "a")
        await store.pause("a", by="ana", request="1")
        await store.append(write(row, transition=Transition("ready")))
        assert await store.pause("a", by="ben", request="2") == "paused"
        await store.resume("a", by="ben")
        assert [signal.data for signal in await store.inbox("a", 0)] == [{}]


@scenario
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


@scenario
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


@scenario
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


@scenario
async def test_a_family_that_nobody_carries_ends_together(place: Place) -> None:
    """Children and theirs end with the run, each with a row of the audit; one that is carried is asked."""
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
        assert states == {"a": "cancelled", "a.b": "running", "a.c": "cancelled", "a.b.d": "cancelled"}
        assert await asked(store, "a.b") == ["child.ended", "run.cancelling"]
        assert sorted(deed["run"] for deed in await store.audit()) == ["a", "a", "a.b", "a.b.d", "a.c"]
