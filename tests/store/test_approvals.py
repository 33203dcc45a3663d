from __future__ import annotations

import asyncio

import pytest
from tests.store.scenes import TTL, ManualClock, Place, finish, owned, park, scenario, write

from holdfast.errors import AlreadyDecided, RunFinished, UnknownApproval
from holdfast.model import ApprovalRow, Event, RunRow
from holdfast.store.base import NewApproval, Store


async def asked(store: Store, run: str, *questions: str) -> RunRow:
    row = await owned(store, run)
    approvals = [NewApproval(question, f"key-{question}", "in_doubt", "Did it happen?") for question in questions]
    await store.append(write(row, Event(0, "approval.asked", "work#0"), approvals=approvals))
    return row


@scenario
async def test_a_decision_reaches_the_run(place: Place) -> None:
    """A decision is stored with who and why, put into the run's inbox, wakes the run, and is in the audit."""
    clock = ManualClock()
    async with place.open(clock) as store:
        row = await asked(store, "a", "q")
        await park(store, row, awaits=["approval:q"], waits_for="person", seen=0)
        clock.time += 9
        decided = await store.decide("q", '"run"', "eve", "looked at it")
        assert (decided.status, decided.decided_by, decided.note) == ("decided", "eve", "looked at it")
        assert (decided.decision, decided.decided_at) == ('"run"', clock.time)
        (signal,) = await store.inbox("a", 0)
        assert (signal.kind, signal.topic, signal.value) == ("approval.decided", "q", None)
        expected = {"approval": "q", "key": "key-q", "decision": '"run"', "by": "eve", "note": "looked at it"}
        assert signal.data == expected
        assert [found.id for found in await store.claim(["agent"], 1, TTL)] == ["a"]
        (noted,) = await store.audit("a")
        assert (noted["actor"], noted["action"], noted["at"], noted["data"]) == ("eve", "decide", clock.time, expected)


@scenario
async def test_decided_once_under_racing_deciders(place: Place) -> None:
    """Of forty deciders in two stores one wins; all others are told who it was, and the run hears of one."""
    async with place.open() as one, place.open() as two:
        await asked(one, "a", "q")
        deciders = [store.decide("q", '"run"', f"person-{number}", "") for number, store in enumerate((one, two) * 20)]
        results = await asyncio.gather(*deciders, return_exceptions=True)
        (winner,) = [result for result in results if isinstance(result, ApprovalRow)]
        losers = [result for result in results if isinstance(result, AlreadyDecided)]
        assert len(losers) == 39
        assert all(repr(winner.decided_by) in str(loser) for loser in losers)
        assert [signal.data["by"] for signal in await one.inbox("a", 0)] == [winner.decided_by]


@scenario
async def test_the_end_of_a_run_withdraws_its_questions(place: Place) -> None:
    """Questions open at a run's end are withdrawn and can no longer be decided; decided ones stay as they are."""
    async with place.open() as store:
        row = await asked(store, "a", "q1", "q2")
        await store.decide("q1", '"fail"', "eve", "")
        await finish(store, row)
        everything = await store.approvals(run="a", statuses=("open", "decided", "withdrawn"))
        assert {found.id: found.status for found in everything} == {"q1": "decided", "q2": "withdrawn"}
        with pytest.raises(RunFinished, match="withdrawn"):
            await store.decide("q2", '"run"', "eve", "")
        with pytest.raises(UnknownApproval):
            await store.decide("q3", '"run"', "eve", "")


@scenario
async def test_questions_are_found(place: Place) -> None:
    """Questions are listed in the order asked, by run, by id and by status."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await asked(store, "a", "q2", "q9")
        clock.time += 1
        await asked(store, "b", "q1")

        async def ids(**filters: object) -> list[str]:
            return [found.id for found in await store.approvals(**filters)]  # type: ignore[arg-type]

        assert await ids() == ["q2", "q9", "q1"]
        assert await ids(limit=2) == ["q2", "q9"]
        assert await ids(run="b") == ["q1"]
        await store.decide("q9", '"run"', "eve", "")
        assert await ids(run="a") == ["q2"]
        assert await ids(approval="q9") == []
        assert await ids(approval="q9", statuses=("decided",)) == ["q9"]
        assert await ids(statuses=("decided", "open")) == ["q2", "q9", "q1"]
