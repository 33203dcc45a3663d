"""Approvals: questions to people, and how each ends: decided by a person, or by the last of several; expired; withdrawn.

A question is open until one of these ends it, and each is one transaction: the run's row first, then the question's, then
a signal to the run. The transaction that holds the run's row has its questions to itself, so what a person is told is what
the agent sees: of a decision and an expiry, or of a thousand decisions, one is first and all others are told so.

The rules (`count`, `delegated`, `expired`, `required`) are functions of the question, the ballot and the time alone: another
ground than a database can use them.

Votes are for a value. A person who edits what is shown puts another value on the table, and counting begins anew for that.
The agent is told the votes for the value that was decided; the row and the audit keep all. How many must agree may depend on
the value in a way only the agent's code knows; then a vote is kept, and the run's owner, told of it, says how many are
needed (`require`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

from holdfast.errors import AlreadyDecided, BadArguments, Expired, NotAllowed, RunFinished, Stale, UnknownApproval
from holdfast.store import audit
from holdfast.store.blobs import insert_blobs
from holdfast.store.budgets import BUDGET
from holdfast.store.inbox import put_signal
from holdfast.store.links import use_link
from holdfast.store.work import Asking, Feature, Transaction, only_of, rows, to_json
from holdfast.words.durations import moment
from holdfast.words.model import ApprovalRow
from holdfast.words.people import (
    SOMEONE,
    Actor,
    Ballot,
    agreeing,
    held_by,
    is_left_out,
    may_decide,
    needed,
    passed_on,
    votes_for,
)

_SHOWN: Final = ("by", "yes", "note", "at", "digest")
_DONE: Final = {"approve": "approved", "ask": "answered", "in_doubt": "answered"}
_MOST_SAID: Final = (
    1_000_000  # characters of votes and notes; a question that has more is changed and passed on no more
)
_DEEDS: Final = {"approved": "approve", "answered": "answer", "denied": "deny"}


@dataclass(slots=True)
class NewApproval:
    """A question to be stored together with the event that asks it."""

    id: str
    key: str
    kind: str
    question: str
    shown: str | None = None  # a large one names the blob that the event has
    digest: str = ""
    schema: str | None = None
    recipients: list[str] = field(default_factory=list)
    needs: str = "1"
    expires_ms: int | None = None
    fallback: str | None = None
    remind_ms: int | None = None
    not_by_starter: bool = False  # the person who started the run, or the one above all, may not decide it
    about: str | None = None  # the run whose budget it is about; then several runs may ask it


@dataclass(frozen=True, slots=True)
class QuestionAges:
    """Counts of open questions by their age, up to 5 minutes, an hour, a day, a week and longer, and the age of the oldest."""

    counts: tuple[int, ...]
    oldest_ms: int


class Approvals(Feature):
    """Questions to people, as clients and owners reach them. Appends ask and withdraw them."""

    async def decide(
        self,
        approval: str,
        ballot: Ballot,
        blobs: Mapping[str, bytes] | None = None,
        known: ApprovalRow | None = None,
    ) -> ApprovalRow:
        """Count what a person says to an open question, and tell its run; the last that is needed decides it, once.

        `known` is the question as it was a moment ago, if that is known: it need not be looked up if it is still so.
        `AlreadyDecided` names the person who was first; `NotAllowed` the people who may; `Stale` when something else is
        shown by now; `Expired`; `RunFinished` when it was withdrawn.
        """
        return await self._submit(Decide(approval, ballot, blobs or {}, known), small=not blobs)

    async def delegate(self, approval: str, to: str, ballot: Ballot) -> ApprovalRow:
        """Pass an open question on to another person. The sender must be one of its deciders, and then no longer is."""

        def work(tx: Transaction) -> Asking[ApprovalRow]:
            found = yield from held(tx, approval)
            if any(each["id"] == ballot.id for each in json.loads(found.delegations)):
                return found  # our own: its commit was not known to have happened
            said = delegated(tx.now, found, to, ballot)
            yield from use_link(tx, ballot.via)
            return (yield from _say(tx, said))

        return await self._submit(work, small=True)

    async def expire(self, approval: str) -> ApprovalRow:
        """End an open question whose time is over, and tell its run; one that a person decided first stays so."""

        def work(tx: Transaction) -> Asking[ApprovalRow]:
            found = yield from held(tx, approval)
            said = expired(tx.now, found)
            return found if said is None else (yield from _say(tx, said))

        return await self._submit(work, small=True)

    async def require(self, approval: str, digest: str, needs: int, value: str) -> ApprovalRow:
        """Set how many must agree to this value, as only its run can tell; decides the question if that many have."""

        def work(tx: Transaction) -> Asking[ApprovalRow]:
            found = yield from held(tx, approval)
            then = required(tx.now, found, digest, needs, value)
            if then is found:
                return found
            return (yield from _say(tx, then) if isinstance(then, Said) else _changed(tx, then))

        return await self._submit(work, small=True)

    async def approval(self, approval: str) -> ApprovalRow:
        """Read one question, open or not; `UnknownApproval` if there is none."""
        found = await self._read(rows, "approval", approval=approval)
        if not found:
            raise UnknownApproval(f"there is no question {approval!r}")
        return ApprovalRow(*found[0])

    async def approvals(
        self,
        *,
        run: str | None = None,
        approval: str | None = None,
        statuses: Iterable[str] = ("open",),
        limit: int = 100,
        after: str | None = None,
        at: int | None = None,
        only: Mapping[str, str] | None = None,
    ) -> list[ApprovalRow]:
        """List questions in the order asked: one, those of a run and of all below it, or all.

        If there are more than the limit: of open questions of all runs the ones that wait longest, otherwise the
        newest. `after` is where the page before ended: then the questions asked later, or otherwise the ones asked
        before. `at` is when that one was asked; without it the question must be here.
        """
        return await self._read(_approvals, run, approval, list(statuses), limit, after, at, only)

    async def voted(self, run: str, ballot: str) -> ApprovalRow | None:
        """Find the question of a run, or of one below it, for which this ballot was cast."""
        return await self._read(voted, run, ballot)

    async def question_ages(self, now: int | None = None) -> QuestionAges:
        """Tell how long the questions that are open at a time, now, have waited; from an index."""
        at = self.clock.now() if now is None else now
        ((oldest, *counts),) = await self._read(rows, "question_ages", now=at)
        return QuestionAges(tuple(count or 0 for count in counts), max(at - oldest, 0) if oldest is not None else 0)


def _approvals(
    run: str | None,
    approval: str | None,
    wanted: list[str],
    limit: int,
    after: str | None,
    at: int | None,
    only: Mapping[str, str] | None,
) -> Asking[list[ApprovalRow]]:
    place: dict[str, Any] = {"after": after, "asked_at": at, "only": only_of(only)}
    if after is not None and at is None:
        known = yield from rows("asked_at", approval=after)
        if not known:
            raise UnknownApproval(
                f"question {after!r}, after which the next page begins, is not there any more; begin again"
            )
        place["asked_at"] = known[0][0]
    if approval is not None:
        found = yield from rows("approval", approval=approval)
    elif run is None and wanted == ["open"]:
        found = yield from rows("open_approvals", limit=limit, **place)
    else:
        narrowed: dict[str, Any] = place if run is None else {"run": run, **place}
        query = "approvals" if run is None else "approvals_below"
        found = yield from rows(query, statuses=to_json(wanted), limit=limit, **narrowed)
        found = found[::-1]
    return [asked for asked in (ApprovalRow(*row) for row in found) if asked.status in wanted]


def voted(run: str, ballot: str) -> Asking[ApprovalRow | None]:
    """Find the question of a run, or of one below it, for which this ballot was cast."""
    found = [ApprovalRow(*row) for row in (yield from rows("voted_below", run=run, key=to_json(ballot)))]
    return next((row for row in found if _has(row, ballot)), None)


def _has(found: ApprovalRow, ballot: str) -> bool:
    return any(vote["id"] == ballot for vote in json.loads(found.votes))


def ask(tx: Transaction, run: str, new: NewApproval) -> Asking[None]:
    """Keep a question, with the way from the root run to the one that asks, or that it is about."""
    asker, run = run, new.about or run
    if new.about is not None:
        yield from tx.rows("hold_run", run=run)  # as the answer does: it sees this question, or we see it
    line = yield from tx.rows("ancestry", run=run)
    not_by = None
    if new.not_by_starter:
        found = yield from audit.starters_of(tx, line[0][1])
        fork = yield from tx.row("fork", run=line[0][1])
        before = json.loads(fork[2]) if fork is not None else []  # the starters of the runs before a fork, too
        not_by = to_json([*(found or [SOMEONE.name]), *before])
    yield from tx.rows(
        "insert_approval", not_by=not_by, id=new.id, run=run, root=line[0][1], path=to_json([agent for agent, _ in reversed(line)]),
        key=new.key, kind=new.kind, question=new.question, shown=new.shown, digest=new.digest, schema=new.schema,
        recipients=to_json(new.recipients), needs=new.needs, fallback=new.fallback, remind_ms=new.remind_ms,
        expires_at=None if new.expires_ms is None else tx.now + new.expires_ms,
    )  # fmt: skip
    if new.about is not None:
        yield from tx.rows("join_question", approval=new.id, run=asker)


@dataclass(frozen=True, slots=True)
class Decide:
    """Count what a person says. A no decides at once, a yes when it is the last one needed."""

    approval: str
    ballot: Ballot
    blobs: Mapping[str, bytes]
    known: ApprovalRow | None = None  # as it was a moment ago
    at: int | None = None  # when it was said, if that was somewhere else and before

    def __call__(self, tx: Transaction) -> Asking[ApprovalRow]:
        found = yield from held(tx, self.approval)
        if _has(found, self.ballot.id):
            return found  # our own: its commit was not known to have happened
        stops = (yield from tx.row("asked_to_stop", run=found.run_id)) if found.status == "open" else None
        if stops is not None:
            raise closed_by(stops[0], found.id)
        said = count(tx.now if self.at is None else self.at, found, self.ballot)
        yield from use_link(tx, self.ballot.via)
        if self.blobs:
            yield from insert_blobs(tx, self.blobs)
        return (yield from _say(tx, said))


def closed_by(run: str, approval: str) -> RunFinished:
    """Refuse a decision behind a request to stop this run, which asked the question or is above the one that did."""
    return RunFinished(f"question {approval!r} is closed: run {run!r} was cancelled, and is about to end")


@dataclass(frozen=True, slots=True)
class Said:
    """Outcome of what a person said: the question as it is then, the signal to its run, and the line of the audit."""

    row: ApprovalRow
    kind: str
    value: str | None
    data: dict[str, Any]
    by: str
    via: str
    action: str
    nth: int | str = ""

    @property
    def signal_id(self) -> str:
        """Id of the signal. A question has one signal that ends it: its id is the second fence."""
        return f"approval:{self.row.id}" + (f":{self.nth}" if self.nth else "")

    @property
    def about(self) -> str | None:
        """Value that it is about, as the audit keeps it: as last edited, or the answer."""
        return self.row.data if self.row.data is not None else self.row.shown


def count(now: int, found: ApprovalRow, ballot: Ballot) -> Said:
    """Count a vote: returns what comes of it, or raises why it does not count. Pure."""
    votes = json.loads(found.votes)
    check_voter(now, found, ballot.by, ballot.seen)
    digest = ballot.digest or found.digest
    _check_vote(found, ballot, votes, digest)
    vote = {"by": ballot.by.name, "yes": ballot.yes, "note": ballot.note, "at": now, "digest": digest}
    votes.append({**vote, "id": ballot.id, "via": ballot.via})
    changed = digest != found.digest
    row = replace(found, votes=to_json(votes), digest=digest)
    row.data = ballot.value if ballot.value is not None else found.data
    enough = needed(found.needs, digest)
    if not ballot.yes or (enough is not None and len(agreeing(votes, digest)) >= enough):
        return _ended(now, row, votes[-1])
    if changed:
        _check_room(row)
    data = {**_about(found), **vote, "changed": changed, "agree": len(agreeing(votes, digest)), "needs": enough}
    value = ballot.value if changed else None
    return Said(row, "approval.voted", value, data, ballot.by.name, ballot.via, "vote", len(votes))


def foreseen(now: int, found: ApprovalRow, digest: str, ballot: Ballot) -> Said:
    """Decide a question as it was asked at first, for a fork that comes to it again. One ballot must be enough. Pure.

    It counts as it would count there, so whatever is refused there is refused here.
    """
    if found.not_by is not None:
        check_allowed(found, ballot.by)
        raise NotAllowed(
            f"question {found.id!r} is not for who started the run, and {ballot.by.name!r} starts the fork: fork "
            f"at={found.key!r}, and it is asked anew"
        )
    asked = replace(found, status="open", expires_at=None, votes="[]", digest=digest, data=None)
    said = count(now, asked, ballot)
    if said.row.status != "decided":
        raise BadArguments(
            f"question {found.id!r} needs more than one person, or only its run can tell how many agree to this value, and a fork "
            f"is made by one: fork at={found.key!r}; the fork then asks, and people decide"
        )
    return said


def delegated(now: int, found: ApprovalRow, to: str, ballot: Ballot) -> Said:
    """Pass a question on: returns what comes of it, or raises why it stays where it is. Pure."""
    _check(now, found, ballot.by)
    if ballot.seen is not None:  # a person who has seen nothing can still say whose it is
        _check_seen(found, ballot.seen)
    if to in json.loads(found.not_by or "[]"):
        raise NotAllowed(
            f"{to!r} started the run {found.root_id!r}, and another person is to decide question {found.id!r}"
        )
    passed = json.loads(found.delegations)
    passed.append({"id": ballot.id, "by": ballot.by.name, "to": to, "note": ballot.note, "at": now})
    row = replace(found, delegations=to_json(passed))
    _check_room(row)
    return _passed(row, len(passed), ballot.via)


def repeated(found: ApprovalRow, ballot: Ballot) -> Said | None:
    """Return the end of a ballot that passed this question on, or decided it, before; its signal has the same id. Pure."""
    for nth, each in enumerate(json.loads(found.delegations), 1):
        if each["id"] == ballot.id:
            return _passed(found, nth, ballot.via)
    return decided(found, ballot.via) if found.status == "decided" and _has(found, ballot.id) else None


def _passed(row: ApprovalRow, nth: int, via: str) -> Said:
    """Return the outcome of the `nth` delegation of a question: its run is told the sender and the receiver."""
    passing = {name: value for name, value in json.loads(row.delegations)[nth - 1].items() if name not in ("id", "at")}
    data = {**_about(row), **passing}
    return Said(row, "approval.delegated", None, data, passing["by"], via, "delegate", f"to{nth}")


def expired(now: int, found: ApprovalRow) -> Said | None:
    """End a question whose time is over; None if it is not, or a person was first. Pure."""
    if found.status != "open" or found.expires_at is None or found.expires_at > now:
        return None
    row = replace(found, status="expired", decided_at=now)
    return Said(row, "approval.expired", row.fallback, {**_about(row), "at": now}, "", "", "")


def required(now: int, found: ApprovalRow, digest: str, needs: int, value: str) -> ApprovalRow | Said:
    """Set how many must agree to a value: returns the question as it is then, or, if that many have, its end. Pure."""
    told = json.loads(found.needs)
    if found.status != "open" or not isinstance(told, dict):
        return found
    row = replace(found, needs=to_json({**told, digest: needs}))
    votes = [vote for vote in votes_for(json.loads(found.votes), digest) if vote["yes"]]
    if len(agreeing(votes, digest)) < needs:
        return row
    row.digest, row.data = digest, value
    return _ended(now, row, votes[-1])


def held(tx: Transaction, approval: str) -> Asking[ApprovalRow]:
    """Read the question: as it ended, or, if it is open, to ourselves until the end of the transaction."""
    row = yield from tx.row("approval", approval=approval)
    if row is None:
        raise UnknownApproval(f"there is no question {approval!r}")
    found = ApprovalRow(*row)
    if found.status != "open":
        return found
    yield from tx.rows("hold_run", run=found.run_id)
    row = yield from tx.row("approval", approval=approval)  # another may have been quicker
    if row is None:  # so was a deletion, or a move to another cell
        raise UnknownApproval(f"there is no question {approval!r}")
    return ApprovalRow(*row)


def check_voter(now: int, found: ApprovalRow, by: Actor, seen: str | None) -> None:
    """Raise an error unless the question is open, this person's to decide, and still shows what this person has seen."""
    _check(now, found, by)
    _check_seen(found, seen)


def _check(now: int, found: ApprovalRow, by: Actor) -> None:
    """Is it open, and this person's?"""
    if found.status == "decided":
        raise AlreadyDecided(
            f"question {found.id!r} was decided before: {found.decision} by {found.decided_by!r} on"
            f" {_date(found.decided_at)}" + (f" ({found.note})" if found.note else ""),
            details={
                "decision": found.decision,
                "decided_by": found.decided_by,
                "decided_at": moment(found.decided_at or 0),
                "digest": found.digest,
            },
        )
    if found.status == "withdrawn" and found.note:
        raise RunFinished(f"question {found.id!r} is closed: its run was {found.note}")
    if found.status == "withdrawn":
        raise RunFinished(f"question {found.id!r} was withdrawn: run {found.run_id!r} no longer waits for it")
    if found.status == "expired" or (found.expires_at is not None and found.expires_at <= now):
        raise Expired(
            f"question {found.id!r} expired on {_date(found.expires_at)}; nobody waits for an answer any more",
            details={"expires_at": moment(found.expires_at or 0)},
        )
    check_allowed(found, by)


def check_allowed(found: ApprovalRow, by: Actor) -> None:
    """Refuse a person who may not decide a question, whatever becomes of it: `NotAllowed`."""
    _check_starter(found, by)
    recipients, passed = json.loads(found.recipients), json.loads(found.delegations)
    if not may_decide(by, recipients, passed_on(found.delegations)):
        given = next((each for each in reversed(passed) if each["by"] == by.name), None)
        if given is not None:
            raise NotAllowed(f"{by.name!r} passed question {found.id!r} on to {given['to']!r} on {_date(given['at'])}")
        allowed = held_by(recipients, passed_on(found.delegations))
        raise NotAllowed(
            f"{by.name!r} may not decide question {found.id!r}: it is for {', '.join(allowed)}. One of them can pass it on with "
            "delegate",
            details={"to": allowed},
        )


def _check_starter(found: ApprovalRow, by: Actor) -> None:
    not_by = json.loads(found.not_by or "[]")
    if not is_left_out(by, not_by):
        return
    if SOMEONE.name in not_by:
        raise NotAllowed(
            f"question {found.id!r} is not for who started the run, and nobody knows who that was: it is decided at the command "
            f"line of the store's owner. Programs say for whom they start runs: `hf.acting_as(name).start(...)`"
        )
    raise NotAllowed(
        f"{by.name!r} may not decide question {found.id!r}: {', '.join(not_by)} started the run {found.root_id!r}, and another "
        "person is to decide" + (", with a token or from an account of their own" if by.via else "")
    )


def _check_seen(found: ApprovalRow, seen: str | None) -> None:
    """Is it for what is shown now? A ballot that names nothing seen was made before any person edited the value."""
    if seen != found.digest and (seen is not None or found.data not in (None, found.shown)):
        last = _change(found)
        who = "" if last is None else f": {last['by']} changed it on {_date(last['at'])}"
        raise Stale(
            f"question {found.id!r} shows something else by now{who}. Look at it again (its digest is {found.digest}), "
            "then decide",
            digest=found.digest,
            details={
                "digest": found.digest,
                "changed_by": None if last is None else last["by"],
                "changed_at": None if last is None else moment(last["at"]),
            },
        )


def _change(found: ApprovalRow) -> dict[str, Any] | None:
    """Return the vote that made the value what it is now; None if nobody has changed it. Who agrees changes nothing."""
    votes = json.loads(found.votes)
    for before, vote in reversed(list(pairwise(votes))):
        if vote["digest"] == found.digest != before["digest"]:
            changed: dict[str, Any] = vote
            return changed
    return votes[0] if votes and found.data not in (None, found.shown) else None


def _check_vote(found: ApprovalRow, ballot: Ballot, votes: list[dict[str, Any]], digest: str) -> None:
    """Is it the person's first, and does it fit?"""
    if ballot.yes and ballot.by.name in (agreed := agreeing(votes, digest)):
        needs = needed(found.needs, digest)
        raise AlreadyDecided(
            f"{ballot.by.name!r} has agreed to question {found.id!r} before; it needs"
            f" {needs or 'more'} different people, and {', '.join(sorted(agreed))} agreed so far",
            details={"agreed": sorted(agreed), "needs": needs},
        )
    if ballot.value is not None and found.schema is None:
        raise BadArguments(
            f"question {found.id!r} shows a value that cannot be edited; approve it as it is, or deny it"
        )


def _check_room(found: ApprovalRow) -> None:
    """Refuse more words on a long question: each is read and written again with the next. A last word is always heard."""
    if len(found.votes) + len(found.delegations) > _MOST_SAID:
        raise BadArguments(
            f"question {found.id!r} was changed and passed on so often that no more of it is kept; approve what it shows now, or "
            "deny it"
        )


def _ended(now: int, row: ApprovalRow, last: dict[str, Any]) -> Said:
    """Let the last vote decide."""
    by, yes, note = last["by"], last["yes"], last["note"]
    row.status, row.decided_at, row.decided_by, row.note = "decided", now, by, note
    row.decision = _DONE[row.kind] if yes else "denied"
    return decided(row, last.get("via", ""))


def decided(row: ApprovalRow, via: str = "") -> Said:
    """Tell how a question was decided, from the row that it left. Pure."""
    yes, by, note, decision = row.decision != "denied", row.decided_by or "", row.note, row.decision or ""
    votes = [{name: vote[name] for name in _SHOWN} for vote in votes_for(json.loads(row.votes), row.digest)]
    data = {**_about(row), "decision": decision, "yes": yes, "by": by, "note": note, "at": row.decided_at}
    data |= {"digest": row.digest, "votes": votes}
    return Said(row, "approval.decided", row.data if yes else None, data, by, via, _DEEDS[decision])


def _about(found: ApprovalRow) -> dict[str, Any]:
    return {"approval": found.id, "key": found.key, "question": found.question[:2000]}


def _say(tx: Transaction, said: Said) -> Asking[ApprovalRow]:
    """Tell the run, note it in the audit, and keep the question as it is now."""
    yield from _tell(tx, said)
    yield from audit.note(tx, said.row.run_id, said.by, said.via, said.action, said.data, said.about)
    return (yield from _changed(tx, said.row))


def _tell(tx: Transaction, said: Said) -> Asking[None]:
    row = said.row
    waiting = [row.run_id]
    if row.key == BUDGET:
        waiting = [run for (run,) in (yield from tx.rows("askers", approval=row.id))]
    for run in waiting:
        yield from put_signal(tx, run, said.signal_id, said.kind, row.id, said.value, said.data)


def _changed(tx: Transaction, found: ApprovalRow) -> Asking[ApprovalRow]:
    return ApprovalRow(*(yield from tx.row("decide", **what_changes(found))))


def what_changes(found: ApprovalRow) -> dict[str, Any]:
    """Parameters of the statement that keeps a question as it is now."""
    return {
        "approval": found.id, "status": found.status, "digest": found.digest, "data": found.data, "needs": found.needs,
        "votes": found.votes, "delegations": found.delegations, "decided_at": found.decided_at, "by": found.decided_by,
        "decision": found.decision, "note": found.note,
    }  # fmt: skip


def _date(at: int | None) -> str:
    return datetime.fromtimestamp((at or 0) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
