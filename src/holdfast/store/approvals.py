"""How a question to people ends: decided by a person, or by the last of several; expired; and passed on on the way.

A question is open until one of these ends it, and each is one transaction: the run's row first, then the question's, then
a signal to the run. Who holds the run's row has its questions to himself, so what a person is told is what the agent sees:
of a decision and an expiry, or of a thousand decisions, one is first and all others are told so.

Votes are for a value. Whoever edits what is shown puts another value on the table, and counting begins anew for that. The
agent is told the votes for the value that was decided; the row and the audit keep all. How many must agree may depend on
the value in a way only the agent's code knows; then a vote is kept, and the run's owner, who is told of it, says how many
are needed (`require`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.errors import AlreadyDecided, BadArguments, Expired, NotAllowed, RunFinished, Stale, UnknownApproval
from holdfast.store import audit
from holdfast.store.contract import BUDGET
from holdfast.store.inbox import put_signal
from holdfast.store.transaction import Asking, Transaction, to_json
from holdfast.words.model import ApprovalRow
from holdfast.words.people import (
    SOMEONE,
    Actor,
    Ballot,
    agreeing,
    is_left_out,
    may_decide,
    needed,
    passed_on,
    votes_for,
)

Work = Callable[[Transaction], Asking[ApprovalRow]]

_SHOWN: Final = ("by", "yes", "note", "at", "digest")
_DONE: Final = {"approve": "approved", "ask": "answered", "in_doubt": "answered"}
_MOST_SAID: Final = (
    1_000_000  # characters of votes and notes, from which on a question is changed and passed on no more
)
_DEEDS: Final = {"approved": "approve", "answered": "answer", "denied": "deny"}


@dataclass(frozen=True, slots=True)
class Decide:
    """Count what a person says. A no decides at once, a yes when it is the last one needed."""

    approval: str
    ballot: Ballot
    blobs: dict[str, bytes]
    known: ApprovalRow | None = None  # as it was a moment ago

    def __call__(self, tx: Transaction) -> Asking[ApprovalRow]:
        found = yield from _held(tx, self.approval)
        if any(vote["id"] == self.ballot.id for vote in json.loads(found.votes)):
            return found  # our own: its commit was not known to have happened
        said = count(tx.now, found, self.ballot)
        for blob, content in self.blobs.items():
            yield from tx.rows("insert_blob", digest=blob, content=content)
        return (yield from _say(tx, said))


@dataclass(frozen=True, slots=True)
class Said:
    """What comes of what a person said: the question as it is then, the signal to its run, and the line of the audit."""

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
        """A question has one signal that ends it: its id is the second fence."""
        return f"approval:{self.row.id}" + (f":{self.nth}" if self.nth else "")

    @property
    def about(self) -> str | None:
        """The value that it is about, as the audit keeps it: as last edited, or the answer."""
        return self.row.data if self.row.data is not None else self.row.shown


def count(now: int, found: ApprovalRow, ballot: Ballot) -> Said:
    """What comes of this vote, or why it does not count."""
    votes = json.loads(found.votes)
    _check(now, found, ballot.by)
    digest = ballot.digest or found.digest
    _check_seen(found, ballot)
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


def delegate(approval: str, to: str, ballot: Ballot) -> Work:
    """Pass a question on: now it is that person's, and no longer the one's who passed it on."""

    def work(tx: Transaction) -> Asking[ApprovalRow]:
        found = yield from _held(tx, approval)
        passed = json.loads(found.delegations)
        if any(each["id"] == ballot.id for each in passed):
            return found
        _check(tx.now, found, ballot.by)
        if ballot.seen is not None:  # who has seen nothing can still say whose it is
            _check_seen(found, ballot)
        if to in json.loads(found.not_by or "[]"):
            raise NotAllowed(
                f"{to!r} started the run {found.root_id!r}, and another person is to decide question {found.id!r}"
            )
        passing = {"by": ballot.by.name, "to": to, "note": ballot.note}
        passed.append({"id": ballot.id, **passing, "at": tx.now})
        found.delegations = to_json(passed)
        _check_room(found)
        data = {**_about(found), **passing}
        said = Said(found, "approval.delegated", None, data, ballot.by.name, ballot.via, "delegate", f"to{len(passed)}")
        return (yield from _say(tx, said))

    return work


def expire(approval: str) -> Work:
    """Its time is over; unless a person was first."""

    def work(tx: Transaction) -> Asking[ApprovalRow]:
        found = yield from _held(tx, approval)
        if found.status != "open" or found.expires_at is None or found.expires_at > tx.now:
            return found
        found.status, found.decided_at = "expired", tx.now
        data = {**_about(found), "at": tx.now}
        yield from _tell(tx, Said(found, "approval.expired", found.fallback, data, "", "", ""))
        return (yield from _changed(tx, found))

    return work


def require(approval: str, digest: str, needs: int, value: str) -> Work:
    """The owner says how many must agree to a value; perhaps that many have."""

    def work(tx: Transaction) -> Asking[ApprovalRow]:
        found = yield from _held(tx, approval)
        told = json.loads(found.needs)
        if found.status != "open" or not isinstance(told, dict):
            return found
        found.needs = to_json({**told, digest: needs})
        votes = [vote for vote in votes_for(json.loads(found.votes), digest) if vote["yes"]]
        if len(agreeing(votes, digest)) < needs:
            return (yield from _changed(tx, found))
        found.digest, found.data = digest, value
        return (yield from _say(tx, _ended(tx.now, found, votes[-1])))

    return work


def _held(tx: Transaction, approval: str) -> Asking[ApprovalRow]:
    """The question: as it ended, or, if it is open, to ourselves until the end of the transaction."""
    row = yield from tx.row("approval", approval=approval)
    if row is None:
        raise UnknownApproval(f"there is no question {approval!r}")
    found = ApprovalRow(*row)
    if found.status != "open":
        return found
    yield from tx.rows("hold_run", run=found.run_id)
    return ApprovalRow(*(yield from tx.row("approval", approval=approval)))  # somebody may have been quicker


def _check(now: int, found: ApprovalRow, by: Actor) -> None:
    """Is it open, and this person's?"""
    if found.status == "decided":
        raise AlreadyDecided(
            f"question {found.id!r} was decided before: {found.decision} by {found.decided_by!r} on"
            f" {_date(found.decided_at)}" + (f" ({found.note})" if found.note else "")
        )
    if found.status == "withdrawn":
        raise RunFinished(f"question {found.id!r} was withdrawn: run {found.run_id!r} no longer waits for it")
    if found.status == "expired" or (found.expires_at is not None and found.expires_at <= now):
        raise Expired(
            f"question {found.id!r} expired on {_date(found.expires_at)}; nobody waits for an answer any more"
        )
    _check_starter(found, by)
    recipients, passed = json.loads(found.recipients), json.loads(found.delegations)
    if not may_decide(by, recipients, passed_on(found.delegations)):
        given = next((each for each in reversed(passed) if each["by"] == by.name), None)
        if given is not None:
            raise NotAllowed(f"{by.name!r} passed question {found.id!r} on to {given['to']!r} on {_date(given['at'])}")
        allowed = ", ".join(dict.fromkeys([*recipients, *(each["to"] for each in passed)]))
        raise NotAllowed(
            f"{by.name!r} may not decide question {found.id!r}: it is for {allowed}. One of them can pass it on with delegate"
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


def _check_seen(found: ApprovalRow, ballot: Ballot) -> None:
    """Is it for what is shown now? Who does not say what was seen has seen nothing that a person has made of it."""
    if ballot.seen != found.digest and (ballot.seen is not None or found.data not in (None, found.shown)):
        last = next(reversed(votes_for(json.loads(found.votes), found.digest)), None)
        who = "" if last is None else f": {last['by']} changed it on {_date(last['at'])}"
        raise Stale(
            f"question {found.id!r} shows something else by now{who}. Look at it again (its digest is {found.digest}), "
            "then decide",
            digest=found.digest,
        )


def _check_vote(found: ApprovalRow, ballot: Ballot, votes: list[dict[str, Any]], digest: str) -> None:
    """Is it the person's first, and does it fit?"""
    if ballot.yes and ballot.by.name in agreeing(votes, digest):
        raise AlreadyDecided(
            f"{ballot.by.name!r} has agreed to question {found.id!r} before; it needs"
            f" {needed(found.needs, digest) or 'more'} different people"
        )
    if ballot.value is not None and found.schema is None:
        raise BadArguments(
            f"question {found.id!r} shows a value that cannot be edited; approve it as it is, or deny it"
        )


def _check_room(found: ApprovalRow) -> None:
    """What is said is read and written again with each word. Who agrees, or ends the question, is always heard."""
    if len(found.votes) + len(found.delegations) > _MOST_SAID:
        raise BadArguments(
            f"question {found.id!r} was changed and passed on so often that no more of it is kept; approve what it shows now, or "
            "deny it"
        )


def _ended(now: int, row: ApprovalRow, last: dict[str, Any]) -> Said:
    """The last vote decides."""
    by, yes, note = last["by"], last["yes"], last["note"]
    row.status, row.decided_at, row.decided_by, row.note = "decided", now, by, note
    row.decision = _DONE[row.kind] if yes else "denied"
    votes = [{name: vote[name] for name in _SHOWN} for vote in votes_for(json.loads(row.votes), row.digest)]
    data = {**_about(row), "decision": row.decision, "yes": yes, "by": by, "note": note, "at": now}
    data |= {"digest": row.digest, "votes": votes}
    return Said(row, "approval.decided", row.data if yes else None, data, by, last.get("via", ""), _DEEDS[row.decision])


def _about(found: ApprovalRow) -> dict[str, Any]:
    return {"approval": found.id, "key": found.key, "question": found.question[:2000]}


def _say(tx: Transaction, said: Said) -> Asking[ApprovalRow]:
    """The run is told, and whoever looks into the audit; and the question is another."""
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
    """The parameters of the statement that keeps a question as it is now."""
    return {
        "approval": found.id, "status": found.status, "digest": found.digest, "data": found.data, "needs": found.needs,
        "votes": found.votes, "delegations": found.delegations, "decided_at": found.decided_at, "by": found.decided_by,
        "decision": found.decision, "note": found.note,
    }  # fmt: skip


def _date(at: int | None) -> str:
    return datetime.fromtimestamp((at or 0) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
