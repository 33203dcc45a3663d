"""Questions to people, seen from outside: listed with the way to each, decided from any process.

None of the agent's code is needed here. What a person enters is checked by the schema that was stored with the question;
what is decided is bound to the digest of what was shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Coroutine, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from holdfast.client.aside import aside
from holdfast.client.base import Base
from holdfast.client.refusals import Refusals, Try
from holdfast.errors import BadArguments, NotAllowed, NotStorable, Stale, UnknownApproval
from holdfast.store.approvals import Decide as Cast
from holdfast.store.approvals import check_voter
from holdfast.store.blobs import spilled, unspilled
from holdfast.store.forks import USE
from holdfast.store.store import Store
from holdfast.store.triggers import DecideAct
from holdfast.values import tagged
from holdfast.values.codec import BLOB_BYTES, UNTYPED, digest, preview, shape_of
from holdfast.values.schema import entered
from holdfast.values.text import cut, show, size
from holdfast.verbs.approvals import Vote
from holdfast.words.durations import moment
from holdfast.words.model import ApprovalRow, checked_limit, is_served
from holdfast.words.people import (
    Actor,
    Ballot,
    checked_name,
    checked_note,
    is_left_out,
    may_decide,
    needed,
    passed_on,
    votes_for,
    whose,
)
from holdfast.words.triggers import Decide

_STATUSES: Final = ("open", "decided", "expired", "withdrawn")
_PLAIN: Final = (dict, list, tuple, set, frozenset, str, int, float, bool, bytes, type(None))
_MANY: Final = 10_000
_SOME: Final = 500  # questions that are looked at together for those of one person
_LATER: Final = object()
_BEGINNING: Final = 200  # characters of a value that finds no room
LISTED_BYTES: Final = 1024 * 1024  # of values in one list
_FIRST_LOOK_S: Final = 0.01  # doubled at each look: about five seconds in all
_LAST_LOOK_S: Final = 4.0


@dataclass(frozen=True, slots=True)
class Delegation:
    """Somebody passed a question on."""

    by: str
    to: str
    note: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Change:
    """A value that a person entered instead of the one that a question showed.

    Attributes:
        by: The person.
        at: When.
        digest: Names the value.
        value: The value; None once it was erased from the audit.

    Example:
        ```python
        for change in (await hf.approval("r-1")).changes:
            print(change.by, change.at, change.value)
        ```
    """

    by: str
    at: datetime
    digest: str
    value: Any


class _Kept:
    """Room for the row that a question was made of, outside its fields: no serialiser shows how the store keeps it."""

    __slots__ = ("_row",)

    _row: ApprovalRow


@dataclass(frozen=True, slots=True)
class Approval(_Kept):
    """A question to people: what is shown, whose it is, and how it ended.

    Attributes:
        id: The question.
        run: The run that asks.
        root: The run above all.
        path: The agents from the root run down to the one that asks.
        key: The call in the run's journal.
        kind: "approve", "ask" or "in_doubt".
        question: The text.
        shown: The value exactly as the agent showed it.
        data: The value as last edited; the answer, once there is one.
        digest: Names what is to be decided. A decision is for that.
        editable: Whether the value may be edited.
        schema: The JSON schema of what may be edited or answered.
        to: People and groups who may decide; empty: anybody.
        needs: How many must agree; None when the run must tell first.
        votes: The votes for the value as it is now.
        delegations: The people who passed it on, and to whom.
        asked_at: When it was asked.
        expires_at: When the default holds.
        default: The decision or answer if nobody decides in time.
        status: "open", "decided", "expired" or "withdrawn".
        decision: "approved", "denied" or "answered".
        decided_by: The person who decided.
        decided_at: When.
        note: The reason that was given.
        not_by: People who may not decide, because they started the run; "someone" if the starter is not known.
        changes: The values that people entered instead of the one shown, the first first.
        has_default: Whether `default` holds at `expires_at`; otherwise the agent gets `Expired`.

    Example:
        ```python
        (question,) = await hf.approvals()
        await hf.approve(question, by="ana")
        ```
    """

    id: str
    run: str
    root: str
    path: tuple[str, ...]  # the agents from the root run down to the one that asks
    key: str
    kind: str  # 'approve', 'ask' or 'in_doubt'
    question: str
    shown: Any  # exactly what the agent showed
    data: Any  # the same as last edited; the answer, once there is one
    digest: str  # names what is to be decided, as the event that asks does: a decision is for that
    editable: bool
    schema: dict[str, Any] | None  # the JSON schema of what may be edited or answered
    to: tuple[str, ...]  # people and groups; empty: anybody
    needs: int | None  # how many must agree; None when the run must tell first
    votes: tuple[Vote, ...]  # for the value as it is now; the audit has those for what it was before
    delegations: tuple[Delegation, ...]
    asked_at: datetime
    expires_at: datetime | None
    default: Any
    status: str  # 'open', 'decided', 'expired' or 'withdrawn'
    decision: str | None  # 'approved', 'denied' or 'answered'
    decided_by: str | None
    decided_at: datetime | None
    note: str
    not_by: tuple[str, ...] = ()  # the starter of the run, who may not decide it; 'someone' if not known
    changes: tuple[Change, ...] = ()
    has_default: bool = False  # a default may be None

    @classmethod
    def of(
        cls,
        row: ApprovalRow,
        shown: Any,
        data: Any,
        schema: dict[str, Any] | None,
        default: Any,
        room: Room,
        changes: tuple[Change, ...] = (),
    ) -> Approval:
        """A row of the store, with its values, and with its notes as far as there is room."""
        said = votes_for(json.loads(row.votes), row.digest)
        votes = tuple(Vote(vote["by"], vote["yes"], room.note(vote["note"]), moment(vote["at"])) for vote in said)
        passed = [
            Delegation(each["by"], each["to"], room.note(each["note"]), moment(each["at"]))
            for each in json.loads(row.delegations)
        ]
        made = cls(
            id=row.id, run=row.run_id, root=row.root_id, path=tuple(json.loads(row.path)), key=row.key, kind=row.kind,
            question=row.question, shown=shown, data=shown if row.data is None else data, digest=row.digest,
            editable=row.kind == "approve" and row.schema is not None,
            schema=schema, to=tuple(json.loads(row.recipients)),
            needs=needed(row.needs, row.digest), votes=votes, delegations=tuple(passed), asked_at=moment(row.asked_at),
            expires_at=None if row.expires_at is None else moment(row.expires_at), default=default,
            status=row.status, decision=row.decision, decided_by=row.decided_by,
            decided_at=None if row.decided_at is None else moment(row.decided_at), note=room.note(row.note or ""),
            not_by=tuple(json.loads(row.not_by or "[]")), changes=changes, has_default=row.fallback is not None,
        )  # fmt: skip
        object.__setattr__(made, "_row", row)  # so that it need not be looked up again
        return made

    def is_for(self, person: str | Actor) -> bool:
        """Tell whether this person may decide it.

        Example:
            ```python
            assert question.is_for("ana")
            ```
        """
        actor, passed = Actor.of(person), [(passed.by, passed.to) for passed in self.delegations]
        return may_decide(actor, self.to, passed) and not is_left_out(actor, self.not_by)


class Room:
    """Room for values in a list, in bytes; without a number, for all. A value that finds none is told by its beginning."""

    def __init__(self, bytes: int | None = None) -> None:
        self._left = bytes

    async def value(self, store: Store, text: str | None) -> Any:
        """Read a stored value as plain data, or `{"$cut": ...}` in its place."""
        if self._left is None:
            whole = await unspilled(store, text)
            return await aside(whole, read_value, whole)
        if text is not None and text.startswith('{"$blob":'):
            return _cut(f"a value of more than {size(BLOB_BYTES)}")
        return read_value(text) if self._takes(text) else _cut(preview(text or "", _BEGINNING))

    def schema(self, text: str) -> dict[str, Any]:
        """Read a schema, or say that it was cut."""
        made: dict[str, Any] = json.loads(text) if self._takes(text) else _cut("a schema")
        return made

    def note(self, text: str) -> str:
        """Cut what a person wrote beside a decision, if there is no room."""
        return text if self._takes(text) else cut(text, _BEGINNING)

    def _takes(self, text: str | None) -> bool:
        if self._left is None or text is None:
            return True
        fits = len(text) <= self._left
        self._left -= len(text) if fits else _BEGINNING
        return fits


def _cut(told: str) -> dict[str, Any]:
    return {"$cut": told}


class Questions(Base):
    """The part of a client that has to do with people."""

    _door: str
    _refusals: Refusals

    async def approvals(
        self,
        *,
        run: str | None = None,
        to: str | Actor | None = None,
        open: bool = True,
        limit: int = 100,
        status: str | Iterable[str] | None = None,
        after: str | None = None,
    ) -> list[Approval]:
        """List questions to people in the order asked.

        Args:
            run: Questions of a run and all runs below it.
            to: Questions that this person, or `group:NAME`, may decide.
            open: Only open ones; with False the newest, however they ended.
            limit: How many at most.
            status: One state or several, instead of `open`: "open", "decided", "expired", "withdrawn". The newest come first,
                unless only open ones are listed.
            after: Where the page before ended: the id of its last question; with `open=False` or `run=`, of its oldest.

        Raises:
            BadArguments: A filter cannot be used.
            UnknownApproval: The question `after` is not there any more.

        Example:
            ```python
            for question in await hf.approvals(to="ana"):
                print(question.question, question.shown)
            ```
        """
        found, _ = await self._listed(Room(), run=run, to=to, open=open, limit=limit, status=status, after=after)
        return found

    async def _listed(
        self,
        room: Room,
        *,
        run: str | None,
        to: str | Actor | None,
        open: bool,
        limit: int,
        status: str | Iterable[str] | None = None,
        after: str | None = None,
    ) -> tuple[list[Approval], str | None]:
        """List questions with so much of their values as there is room for; and where to go on, None at the end."""
        statuses = _checked_states(status if status is not None else "open" if open else _STATUSES)
        person, limit = None if to is None else whose(to), checked_limit(limit)
        forwards = run is None and statuses == ["open"]
        found, seen, following = list[ApprovalRow](), 0, after
        while len(found) < limit and seen < _MANY:
            size = limit - len(found) if person is None else _SOME
            page = await self.store.approvals(run=run, statuses=statuses, limit=size, after=following, only=self._only)
            now = self.store.clock.now()
            for row in page if forwards else reversed(page):
                seen, following = seen + 1, row.id
                # One that is over is nobody's any more, though its run may have to notice yet.
                over = row.status == "open" and row.expires_at is not None and row.expires_at <= now
                if not (over and statuses == ["open"]) and (person is None or _is_for(row, person)):
                    found.append(row)
                    if len(found) == limit:
                        break
            else:
                if len(page) < size:
                    following = None
                    break
        if not forwards and (status is None or statuses == ["open"]):
            found = found[::-1]  # in the order asked
        return [await self._seen(row, room) for row in found], following if limit else None

    async def approval(self, approval: str) -> Approval:
        """Find one question, by its id or that of a run with exactly one open.

        Raises:
            UnknownApproval: There is none, or the run has several.

        Example:
            ```python
            question = await hf.approval("r-1")
            ```
        """
        return await self._seen(await self._row(approval))

    async def approve(
        self,
        approval: Approval | str,
        *,
        by: str | Actor,
        note: str = "",
        data: Any = _LATER,
        digest: str | None = None,
    ) -> Approval:
        """Approve the value shown, or `data` instead where it may be edited. Returns the question as it is then.

        Args:
            approval: The question, its id, or the id of a run with exactly one open. By an id alone only what the agent
                showed is approved, and nothing that a person has made of it.
            by: The person who decides.
            note: The reason; the agent sees it.
            data: The value to approve instead of the one shown. It must be whole.
            digest: The digest of what the person was shown; an `Approval` has it.

        Raises:
            Stale: Something else is shown by now; nothing was decided.
            AlreadyDecided: Somebody was quicker.
            NotAllowed: It is not this person's to decide.
            Expired: It expired.
            UnknownApproval: There is no such question.
            BadArguments: `data` does not fit, or the question wants an answer.

        Example:
            ```python
            await hf.approve(question, by="ana", note="looks right")
            assert await run.result() == "published"
            ```
        """
        return await self._decide(approval, by, note, yes=True, data=data, seen=digest)

    async def deny(
        self, approval: Approval | str, *, by: str | Actor, note: str = "", digest: str | None = None
    ) -> Approval:
        """Deny what is shown; the agent sees the note as the reason. The errors are those of `approve`.

        Raises:
            Stale: Something else is shown by now; nothing was decided.
            AlreadyDecided: Somebody was quicker.
            NotAllowed: It is not this person's to decide.

        Example:
            ```python
            await hf.deny(question, by="ana", note="not before Monday")
            ```
        """
        return await self._decide(approval, by, note, yes=False, data=_LATER, seen=digest)

    async def answer(
        self, approval: Approval | str, value: Any, *, by: str | Actor, note: str = "", digest: str | None = None
    ) -> Approval:
        """Answer a question with a value of its type. The errors are those of `approve`.

        A step in doubt is answered with `{"result": ...}` (it happened), "run" (it did not happen, run it) or "fail".

        Raises:
            BadArguments: The value does not fit the question.
            AlreadyDecided: Somebody was quicker.

        Example:
            ```python
            asked = await hf.start(desk)
            await hf.answer(await asked.wait_for_question(), "by the window", by="ana")
            ```
        """
        seen, found = _shown_to(approval, digest), await self._row(approval)
        return await self._cast(found, by, note, True, await self._answer(found, value, by, seen), seen)

    async def _answer(self, found: ApprovalRow, value: Any, by: str | Actor, seen: str | None) -> str | None:
        """Check an answer; None for a question that is not open: that is said first, whatever was answered."""
        if found.status != "open":
            return None
        if found.kind == "approve":
            raise BadArguments(f"question {found.id!r} wants to be approved or denied; use `hf.approve` or `hf.deny`")
        async with self._entering(found, by, seen, "answer"):
            if found.kind == "in_doubt":
                recorded = await self._recorded(found) if isinstance(value, str) and value == USE else None
                given = await aside(value, _checked_doubt, found, value, recorded)
            else:
                what = f"question {found.id!r}"
                given = await aside(value, lambda: entered(json.loads(found.schema or "{}"), stored_text(value), what))
            return self._sized(given, "the answer")

    async def _recorded(self, found: ApprovalRow) -> str:
        """Read the result that a step has come to before, where a question about a fork offers it."""
        offers = offers_result(json.loads(await unspilled(self.store, found.shown) or "null"))
        text = await self.store.former_result(found.run_id, found.key) if offers else None
        if text is None:
            raise BadArguments(
                f"question {found.id!r}: no result is recorded that could be used; answer 'run', {{'result': ...}} or 'fail'"
            )
        return text

    async def delegate(
        self, approval: Approval | str, *, to: str, by: str | Actor, note: str = "", digest: str | None = None
    ) -> Approval:
        """Pass a question on to a person or a group, as a person who may decide it. The errors are those of `approve`.

        Raises:
            NotAllowed: It is not this person's to pass on.
            AlreadyDecided: It was decided before.

        Example:
            ```python
            await hf.delegate(question, to="eve", by="ana", note="on leave")
            ```
        """
        found = await self._row(approval)
        actor = Actor.of(by)
        ballot = Ballot(secrets.token_hex(8), actor, note=checked_note(note), seen=_shown_to(approval, digest),
                        via=actor.via or self._door)  # fmt: skip
        write = self.store.delegate(found.id, checked_name(to, "to"), ballot)
        return await self._seen(await self._said(found, write, ballot, "delegate"))

    async def _decide(
        self, approval: Approval | str, by: str | Actor, note: str, *, yes: bool, data: Any, seen: str | None
    ) -> Approval:
        seen, found = _shown_to(approval, seen), await self._row(approval)
        return await self._cast(found, by, note, yes, await self._edited(found, data, by, seen), seen)

    async def _edited(self, found: ApprovalRow, data: Any, by: str | Actor, seen: str | None) -> str | None:
        """Check a value approved instead of the one shown; None if none is given, or the question is not open any more."""
        if found.kind != "approve" and found.status == "open":
            wants = "'run', 'fail' or {'result': ...}" if found.kind == "in_doubt" else "a value"
            raise BadArguments(f"question {found.id!r} wants an answer: use `hf.answer(..., {wants})`")
        if data is _LATER or found.status != "open":
            return None
        async with self._entering(found, by, seen, "approve"):
            if found.schema is None:
                raise BadArguments(
                    f"question {found.id!r} shows a value that cannot be edited; leave out data=, or deny it"
                )
            shown = await unspilled(self.store, found.shown if found.data is None else found.data)
            schema, what = json.loads(found.schema), f"question {found.id!r}: data"
            given = await aside((data, shown), lambda: entered(schema, stored_text(data), what, shown))
            return self._sized(given, "the answer")

    async def _decide_act(self, decide: Decide, ballot: str, door: str) -> DecideAct:
        """Make the work that decides a question for a trigger. The same ballot again does nothing."""
        found = await self.store.voted(decide.question, ballot)
        if found is None:
            found = await self._row(decide.question)
        yes = decide.decision != "deny"
        if decide.decision == "answer":
            text = await self._answer(found, decide.value, decide.by, decide.digest)
        else:
            text = await self._edited(found, decide.value if decide.has_value else _LATER, decide.by, decide.digest)
        cast, blobs = await self._ballot(found, decide.by, decide.note, yes, text, decide.digest, ballot, door)
        named = None if found.id == decide.question else decide.question
        return DecideAct(Cast(found.id, cast, blobs), found.run_id, named)

    @contextlib.asynccontextmanager
    async def _entering(self, found: ApprovalRow, by: str | Actor, seen: str | None, tried: str) -> AsyncIterator[None]:
        """Check what a person entered. If it does not fit, people who may not decide the question hear that instead.

        So the audit has the try, and only people who may decide see the reason, which may name what is shown.
        """
        try:
            yield
        except (BadArguments, NotStorable):
            actor, now = Actor.of(by), self.store.clock.now()
            row = await self._row(found.id)  # as it is now: it may have been passed on
            try:
                check_voter(now, row, actor, seen)
            except (NotAllowed, Stale) as refused:
                await self._note_refused(refused, row, actor.name, actor.via or self._door, tried)
                raise refused from None
            raise

    async def _cast(
        self, found: ApprovalRow, by: str | Actor, note: str, yes: bool, text: str | None, seen: str | None
    ) -> Approval:
        id, door = secrets.token_hex(8), self._door
        ballot, blobs = await self._ballot(found, by, note, yes, text, seen, id, door)
        tried = "deny" if not yes else "approve" if found.kind == "approve" else "answer"
        row = await self._said(found, self.store.decide(found.id, ballot, blobs, found), ballot, tried)
        if row.status == "open" and needed(row.needs, row.digest) is None:
            row = await self._weighed(row)
        return await self._seen(row)

    async def _ballot(
        self, found: ApprovalRow, by: str | Actor, note: str, yes: bool, text: str | None, seen: str | None, id: str, door: str
    ) -> tuple[Ballot, dict[str, bytes]]:  # fmt: skip
        """Make what a person says to a question, and the large values to store with it."""
        of, blobs = None, dict[str, bytes]()
        if text is not None:
            shown = await unspilled(self.store, found.shown)
            of = await aside((text, shown), digest_for, found, text, shown)
            text, blobs = spilled(text)
        actor = Actor.of(by)
        return Ballot(id, actor, yes, checked_note(note), seen, text, of, actor.via or door), blobs

    async def _said(
        self, found: ApprovalRow, write: Coroutine[Any, Any, ApprovalRow], ballot: Ballot, tried: str
    ) -> ApprovalRow:
        """Do what a person says to a question. The audit has also what was refused."""
        try:
            return await self._written(write, _look(found))
        except (NotAllowed, Stale) as refused:
            await self._note_refused(refused, found, ballot.by.name, ballot.via, tried)
            raise

    async def _note_refused(
        self, refused: NotAllowed | Stale, found: ApprovalRow, by: str, via: str, tried: str
    ) -> None:
        """Count a refusal for the audit; a stale decision also gets the question as it is now."""
        code = "stale" if isinstance(refused, Stale) else "not_allowed"
        self._refusals.note(Try(tried, code, by, via, found.run_id))
        if isinstance(refused, Stale):
            refused.approval = await self.approval(found.id)
            refused.digest = refused.approval.digest

    async def _weighed(self, row: ApprovalRow) -> ApprovalRow:
        """The question once its run has said how many must agree to what a person has made of it, if that is soon.

        Only the agent's code knows. Without a worker that has it the question stays open, and nobody is kept waiting.
        """
        wait_s = _FIRST_LOOK_S
        while wait_s < _LAST_LOOK_S and row.status == "open" and needed(row.needs, row.digest) is None:
            run = await self.store.run(row.run_id)
            if run is None or run.status == "paused" or not is_served(run, await self.store.agents()):
                break
            await asyncio.sleep(wait_s)
            wait_s *= 2
            found = await self.store.approvals(approval=row.id, statuses=_STATUSES)
            row = found[0] if found else row
        return row

    async def _row(self, approval: Approval | str) -> ApprovalRow:
        if isinstance(approval, Approval) and (kept := getattr(approval, "_row", None)) is not None:  # a copy has none
            row: ApprovalRow = kept
            return row  # if it has changed since, the store finds that
        wanted = approval.id if isinstance(approval, Approval) else approval
        found = await self.store.approvals(approval=wanted, statuses=_STATUSES)
        if not found:
            found = await self.store.approvals(run=wanted)
        if not found:  # a late caller is told how the last one ended
            found = await self.store.approvals(run=wanted, statuses=_STATUSES[1:], limit=1)
        if self._only is not None:
            found = [row for row in found if await self.store.sees_run(row.run_id, self._only)]
        if len(found) == 1:
            return found[0]
        ids = ": " + ", ".join(row.id for row in found[:5]) if found else ""
        raise UnknownApproval(
            f"{wanted!r} is neither the id of a question nor a run with exactly one open question "
            f"(it has {len(found)}{ids}); list them with `await hf.approvals()` or `holdfast approvals`"
        )

    async def _seen(self, row: ApprovalRow, room: Room | None = None) -> Approval:
        room = room or Room()
        shown, data = await room.value(self.store, row.shown), await room.value(self.store, row.data)
        schema = None if row.schema is None else room.schema(row.schema)
        default, changes = await room.value(self.store, row.fallback), await self._changes(row, room)
        return Approval.of(row, shown, data, schema, default, room, changes)

    async def _changes(self, row: ApprovalRow, room: Room) -> tuple[Change, ...]:
        """Read from the audit the values that people entered instead of the one shown; most questions have no such row."""
        if row.kind != "approve" or row.data is None:
            return ()
        found = await self.store.audit(row.run_id, _MANY, actions=["vote", "approve"])
        made, last = list[Change](), ""
        for deed in reversed(found):
            data = deed["data"]
            if data.get("approval") != row.id:
                continue
            digest = str(data.get("digest", ""))
            if data.get("changed", digest != last):
                at = moment(data.get("at", deed["at"]))
                made.append(Change(deed["actor"], at, digest, await room.value(self.store, deed["value"])))
            last = digest
        return tuple(made)


def _checked_states(status: str | Iterable[str]) -> list[str]:
    """Check states of questions; else `BadArguments`."""
    found = [status] if isinstance(status, str) else list(status)
    for each in found:
        if each not in _STATUSES:
            raise BadArguments(f"{each!r} is no state of a question; there are: {', '.join(_STATUSES)}")
    return list(dict.fromkeys(found))


def _is_for(row: ApprovalRow, person: Actor) -> bool:
    left_out = is_left_out(person, json.loads(row.not_by or "[]"))
    return not left_out and may_decide(person, json.loads(row.recipients), passed_on(row.delegations))


def _shown_to(approval: Approval | str, digest: str | None) -> str | None:
    """The digest of what the person was shown, if that is known."""
    return approval.digest if digest is None and isinstance(approval, Approval) else digest


def _look(row: ApprovalRow) -> str:
    return f"`await hf.approval({row.id!r})` says how the question stands"


def offers_result(shown: Any) -> bool:
    """Does a question about a step in doubt, which shows this, offer the result that the step has come to before?"""
    return isinstance(shown, dict) and "result" in shown


def _checked_doubt(row: ApprovalRow, value: Any, recorded: str | None = None) -> str:
    """Check an answer to a question about a step in doubt; it may be the result that is `recorded`."""
    if isinstance(value, str) and value in ("run", "fail"):
        return tagged.write(value)
    if recorded is None and (not isinstance(value, dict) or set(value) != {"result"}):
        raise BadArguments(
            f"{cut(show(value, 60), 60)} does not answer question {row.id!r}; use {{'result': ...}} if it happened, 'run' if it "
            "did not and should run, 'fail' to fail the step"
        )
    text = stored_text(value["result"]) if recorded is None else recorded
    return _happened(row, f'{{"result":{text}}}')


def _happened(row: ApprovalRow, text: str) -> str:
    """The text of the answer that a step in doubt happened, with its result checked."""
    schema = json.loads(row.schema or "{}")
    wrapped = {"type": "object", "properties": {"result": schema}, "$defs": schema.get("$defs", {})}
    return entered(wrapped, text, f"question {row.id!r}")


def checked_entry(row: ApprovalRow, text: str, shown: str | None) -> str:
    """Check the text of what a person has entered elsewhere, as it is checked here; `shown` is what it takes the place of."""
    if row.kind == "in_doubt":
        value = json.loads(text)
        told = isinstance(value, dict) and set(value) == {"result"}
        return _happened(row, text) if told else _checked_doubt(row, value)
    schema, what = json.loads(row.schema or "{}"), f"question {row.id!r}: data"
    return entered(schema, text, what, shown if row.kind == "approve" else None)


def digest_for(row: ApprovalRow, text: str, shown: str | None) -> str:
    """The digest under which votes for an entered value count: that of the question, if it is what the agent showed."""
    of = digest(text)
    return row.digest if row.data is None and of == digest(shown or "null") else of


def read_value(text: str | None) -> Any:
    """A stored value as plain data."""
    try:
        return None if text is None else UNTYPED.load(text)
    except NotStorable:  # written by another version; it is shown as it is
        return text


def stored_text(value: Any) -> str:
    """A value as text, by its own type."""
    shape = UNTYPED if type(value) in _PLAIN else shape_of(type(value))
    return shape.store(value, "value")[0]
