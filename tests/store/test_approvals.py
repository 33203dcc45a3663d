from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from tests.store.places import TTL, ManualClock, Place, finish, new, owned, park, write

from holdfast.errors import AlreadyDecided, Expired, NotAllowed, RunFinished, Stale, UnknownApproval
from holdfast.store.approvals import NewApproval
from holdfast.store.store import Store
from holdfast.values.codec import digest
from holdfast.words.model import ApprovalRow, Event, RunRow
from holdfast.words.people import Actor, Ballot

ALL = ("open", "decided", "expired", "withdrawn")
SHOWN = '{"groups":["dev"]}'


async def asked(store: Store, run: str, *questions: str, **fields: Any) -> RunRow:
    row = await owned(store, run)
    await ask(store, row, *questions, **fields)
    return row


async def ask(store: Store, row: RunRow, *questions: str, **fields: Any) -> None:
    fields = {"shown": SHOWN, "digest": digest(SHOWN), "schema": "{}"} | fields
    kind = fields.pop("kind", "approve")
    approvals = [NewApproval(question, f"key-{question}", kind, "May it?", **fields) for question in questions]
    await store.append(write(row, Event(0, "approval.asked", "work#0"), approvals=approvals))


def yes(by: str | Actor, value: str | None = None, **fields: Any) -> Ballot:
    """A ballot of its own for each person and value."""
    actor = Actor(by) if isinstance(by, str) else by
    return Ballot(f"{actor.name} {value} {fields}", actor, value=value, digest=value and digest(value), **fields)


def no(by: str, note: str = "") -> Ballot:
    return Ballot(f"{by} no", Actor(by), False, note)


async def told(store: Store, run: str) -> list[tuple[str, Any]]:
    return [(signal.kind, signal.value) for signal in await store.inbox(run, 0)]


async def test_a_decision_reaches_the_run(place: Place) -> None:
    """A decision is stored with who and why, put into the run's inbox, wakes the run, and is in the audit."""
    clock = ManualClock()
    async with place.open(clock) as store:
        row = await asked(store, "a", "q")
        await park(store, row, awaits=["approval:q"], waits_for="person", seen=0)
        clock.time += 9
        decided = await store.decide("q", yes("eve", note="looked at it"))
        assert (decided.status, decided.decision, decided.decided_by) == ("decided", "approved", "eve")
        assert (decided.note, decided.decided_at) == ("looked at it", clock.time)
        (signal,) = await store.inbox("a", 0)
        assert (signal.kind, signal.topic, signal.value) == ("approval.decided", "q", None)
        said = {"by": "eve", "yes": True, "note": "looked at it", "at": clock.time, "digest": digest(SHOWN)}
        about = {"approval": "q", "key": "key-q", "question": "May it?", "decision": "approved", "votes": [said]}
        assert signal.data == about | said
        assert [found.id for found in await store.claim(["agent"], 1, TTL)] == ["a"]
        (noted,) = await store.audit("a")
        assert (noted["actor"], noted["action"], noted["at"], noted["data"]) == (
            "eve",
            "approve",
            clock.time,
            signal.data,
        )


async def test_decided_once_under_racing_deciders(place: Place) -> None:
    """Of forty deciders in two stores one wins; all others are told who it was, and the run hears of one."""
    async with place.open() as one, place.open() as two:
        await asked(one, "a", "q")
        deciders = [store.decide("q", yes(f"person-{number}")) for number, store in enumerate((one, two) * 20)]
        results = await asyncio.gather(*deciders, return_exceptions=True)
        (winner,) = [result for result in results if isinstance(result, ApprovalRow)]
        losers = [result for result in results if isinstance(result, AlreadyDecided)]
        assert len(losers) == 39
        assert all(repr(winner.decided_by) in str(loser) for loser in losers)
        assert [signal.data["by"] for signal in await one.inbox("a", 0)] == [winner.decided_by]
        assert len(await one.audit("a")) == 1


async def test_votes_that_race_are_all_counted(place: Place) -> None:
    """Of twenty that vote at once on what needs twenty, none is lost; the last decides."""
    async with place.open() as one, place.open() as two:
        await asked(one, "a", "q", needs="20")
        results = await asyncio.gather(*[store.decide("q", yes(f"p{n}")) for n, store in enumerate((one, two) * 10)])
        assert sorted(row.status for row in results) == ["decided", *["open"] * 19]
        (row,) = await one.approvals(approval="q", statuses=ALL)
        assert {vote["by"] for vote in json.loads(row.votes)} == {f"p{n}" for n in range(20)}
        assert [kind for kind, _ in await told(one, "a")] == ["approval.voted"] * 19 + ["approval.decided"]
        assert sorted(each["action"] for each in await one.audit("a")) == ["approve", *["vote"] * 19]


async def test_the_same_ballot_twice_is_one(place: Place) -> None:
    """Whoever does not know whether the vote was counted says the same again."""
    async with place.open() as store:
        await asked(store, "a", "q", needs="2")
        for _ in range(2):
            assert (await store.decide("q", yes("ana"))).status == "open"
        for _ in range(2):
            assert (await store.decide("q", yes("bob"))).status == "decided"
        assert len(await told(store, "a")) == 2


async def test_votes_are_for_a_value(place: Place) -> None:
    """An edit puts another value on the table and counting begins anew; who saw the old one is told to look again."""
    async with place.open() as store:
        await asked(store, "a", "q", needs="2")
        await store.decide("q", yes("ana"))
        edited = await store.decide("q", yes("bob", '{"groups":[]}', seen=digest(SHOWN)))
        assert (edited.status, edited.data, edited.digest) == ("open", '{"groups":[]}', digest('{"groups":[]}'))
        with pytest.raises(Stale, match="shows something else by now: bob changed it on"):
            await store.decide("q", yes("cid", seen=digest(SHOWN)))
        decided = await store.decide("q", yes("ana", seen=edited.digest))
        assert (decided.status, decided.data, decided.decided_by) == ("decided", '{"groups":[]}', "ana")
        assert (await told(store, "a"))[-1] == ("approval.decided", '{"groups":[]}')


async def test_how_many_are_needed_may_depend_on_the_value(place: Place) -> None:
    """A vote for a value of which that is not known is kept; once the owner says it, it decides if it suffices."""
    async with place.open() as store:
        known = {"needs": json.dumps({digest(SHOWN): 1})}
        await asked(store, "a", "q", "r", **known)
        for question in ("q", "r"):
            assert (await store.decide(question, yes("ana", "[1]"))).status == "open"
        assert (await store.require("q", digest("[1]"), 2, "[1]")).status == "open"
        assert (await store.decide("q", yes("bob", seen=digest("[1]")))).status == "decided"
        decided = await store.require("r", digest("[1]"), 1, "[1]")
        assert (decided.status, decided.decided_by, decided.data) == ("decided", "ana", "[1]")
        assert (await store.require("r", digest("[1]"), 1, "[1]")).status == "decided"
        ends = [signal.topic for signal in await store.inbox("a", 0) if signal.kind == "approval.decided"]
        assert ends == ["q", "r"]


async def test_only_those_it_is_for_may_decide(place: Place) -> None:
    """By name, by group, or because it was passed on; others hear who may, and who passed it on no longer may."""
    async with place.open() as store:
        await asked(store, "a", "q", recipients=["ana", "it"], needs="3")
        with pytest.raises(NotAllowed, match="'eve' may not decide question 'q': it is for ana, it"):
            await store.decide("q", yes("eve"))
        with pytest.raises(NotAllowed):
            await store.delegate("q", "eve", Ballot("d0", Actor("eve")))
        await store.decide("q", yes(Actor("bob", ["it"])))
        for _ in range(2):  # said again, it is said once
            await store.delegate("q", "eve", Ballot("d1", Actor("ana"), note="on leave"))
        with pytest.raises(NotAllowed, match="'ana' passed question 'q' on to 'eve'"):
            await store.decide("q", yes("ana"))
        await store.decide("q", yes("eve"))
        await store.delegate("q", "ana", Ballot("d2", Actor("eve")))
        assert (await store.decide("q", yes("ana"))).status == "decided"
        assert [kind for kind, _ in await told(store, "a")] == [
            "approval.voted", "approval.delegated", "approval.voted", "approval.delegated", "approval.decided",
        ]  # fmt: skip
        actions = [(each["actor"], each["action"]) for each in reversed(await store.audit("a"))]
        assert actions == [
            ("bob", "vote"),
            ("ana", "delegate"),
            ("eve", "vote"),
            ("eve", "delegate"),
            ("ana", "approve"),
        ]


async def test_a_trusted_channel_acts_for_anybody(place: Place) -> None:
    """The command line of whoever owns the store is not asked who it is, and the audit shows that it was used."""
    async with place.open() as store:
        await asked(store, "a", "q", recipients=["ana"])
        decided = await store.decide("q", replace(yes(Actor("zoe", via="cli:root")), via="cli:root"))
        assert decided.decided_by == "zoe"
        (noted,) = await store.audit("a")
        assert (noted["actor"], noted["via"], noted["data"]["by"]) == ("zoe", "cli:root", "zoe")


async def test_expired_when_its_time_is_over(place: Place) -> None:
    """Not before its time; then nobody can decide it any more, also before its owner has noticed."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await asked(store, "a", "q", "r", expires_ms=1000, fallback="true")
        clock.time += 999
        assert (await store.expire("q")).status == "open"
        assert (await store.decide("r", yes("ana"))).status == "decided"
        clock.time += 1
        with pytest.raises(Expired, match="expired on"):
            await store.decide("q", yes("ana"))
        for _ in range(2):
            assert (await store.expire("q")).status == "expired"
        assert (await store.expire("r")).status == "decided"
        with pytest.raises(Expired):
            await store.decide("q", yes("ana"))
        assert await told(store, "a") == [("approval.decided", None), ("approval.expired", "true")]


async def test_the_end_of_a_run_withdraws_its_questions(place: Place) -> None:
    """Questions open at a run's end are withdrawn and can no longer be decided; decided ones stay as they are."""
    async with place.open() as store:
        row = await asked(store, "a", "q1", "q2")
        await store.decide("q1", no("eve"))
        await finish(store, row)
        everything = await store.approvals(run="a", statuses=ALL)
        assert {found.id: found.status for found in everything} == {"q1": "decided", "q2": "withdrawn"}
        with pytest.raises(RunFinished, match="withdrawn"):
            await store.decide("q2", yes("eve"))
        with pytest.raises(UnknownApproval):
            await store.decide("q3", yes("eve"))


async def test_an_owner_withdraws_what_it_no_longer_waits_for(place: Place) -> None:
    """Only what is open; a decision that came first stands."""
    async with place.open() as store:
        row = await asked(store, "a", "q1", "q2")
        await store.decide("q1", yes("eve"))
        await store.append(write(row, Event(0, "approval.withdrawn", "work#0"), withdraws=["q1", "q2"]))
        everything = await store.approvals(run="a", statuses=ALL)
        assert {found.id: found.status for found in everything} == {"q1": "decided", "q2": "withdrawn"}


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
        await store.decide("q9", yes("eve"))
        assert await ids(run="a") == ["q2"]
        assert await ids(approval="q9") == []
        assert await ids(approval="q9", statuses=("decided",)) == ["q9"]
        assert await ids(statuses=("decided", "open")) == ["q2", "q9", "q1"]
        assert await ids(statuses=("decided", "open"), limit=2) == ["q9", "q1"]


async def test_a_question_knows_the_way_from_the_root(place: Place) -> None:
    """It is listed once, with the agents above it, and found by every run above it and by no other."""
    async with place.open() as store:
        for run, above in (("onboard", None), ("accounts", "onboard"), ("privileges", "accounts"), ("mail", "onboard")):
            await store.create(new(run, agent=run, parent_id=above, root_id="onboard"))
        (row,) = await store.claim(["privileges"], 1, TTL)
        await ask(store, row, "q")
        (found,) = await store.approvals()
        assert (json.loads(found.path), found.root_id) == (["onboard", "accounts", "privileges"], "onboard")
        listed = {run: len(await store.approvals(run=run)) for run in ("onboard", "accounts", "privileges", "mail")}
        assert listed == {"onboard": 1, "accounts": 1, "privileges": 1, "mail": 0}
