"""Forks: runs whose history begins in another run. How one is made, what it shares, and what of a deleted run is kept for it.

A fork copies no event. Rows of `lineage` say which events of other runs are the beginning of its journal ('shared'), up to the
point; a fork of a fork has a row for each run that it shares with, and never a chain to walk. Its own events come behind the
point: the first of them is `run.forked`, which gives the identity of the run from there on. Behind the point the other
runs may go on, be retried and be deleted: a retry only marks events as dropped, and `seen` tells the fork which marks
came later; the events of a deleted run are kept under another name, which no run can have ('#...'), until the last fork
that counts on them is deleted.

What the other run did behind the point, and runs below it, is no part of the fork's history. It is kept too ('behind', 'below'),
because the fork must know which of its steps were done before.

Runs below the other run are kept with what lists show of them ('archived'): a fork shows children that had ended at the point as
they were, and what they were called with, also when they are gone.

What is copied: the text of streams that calls wrote which had ended (a stream belongs to its run), and, when the fork first
enters one, conversations.

A retry of a fork that goes back into the shared part takes over what it shares from there on, and then drops of it as always.

Lock order: the runs that are shared with, in the order of their ids, so that none of them is deleted or retried meanwhile; then
the runs below, in that order, against being deleted alone, because they may be at work and end in the run above.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from holdfast.errors import BadArguments, RunExists, RunFinished
from holdfast.store import audit
from holdfast.store.announcements import resubscribe
from holdfast.store.approvals import check_allowed, foreseen
from holdfast.store.blobs import insert_blobs, spilled
from holdfast.store.inbox import put_signal, signal_of
from holdfast.store.journal import events_of
from holdfast.store.rewind import first_cause
from holdfast.store.runs import NewRun, Origin, existing, insert_run
from holdfast.store.work import Asking, Count, Feature, Transaction, rows, to_json
from holdfast.values.codec import BLOB_BYTES, digest, preview
from holdfast.values.schema import entered
from holdfast.values.text import show
from holdfast.words.limits import Lane
from holdfast.words.model import CLOSING, FINISHED, ApprovalRow, Event, RunRow, Signal, plain_id
from holdfast.words.people import Actor, Ballot, checked_note

_ENDS: Final = ("run.completed", "run.failed", "run.cancelled")
_STOPS: Final = ("run.cancelling",)
_AWAITED: Final = ("child", "approval", "request")  # by which an arrival names what it ends
_CLOSED: Final = sorted(CLOSING - {"stream.opened"})  # a block is over when it is closed
USE: Final = "use"  # the answer that takes what is recorded: clients put the result itself in its place
_PUT: Final = "fork:"  # begins the ids of signals that a fork has instead of others
_TOLD: Final = 60  # characters of what is replaced, for people
_MOST_TOLD: Final = 20  # replacements that the event names; the audit has all
_NAMED: Final = 5  # keys, in an error
SHOWN: Final = (  # of runs that are deleted
    "agent", "status", "version", "queue", "next_seq", "parent_id", "parent_key", "root_id", "labels", "error", "reason", "steps",
    "created_at", "started_at", "finished_at", "updated_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Done:
    """Something that was done behind the point to which a run went back."""

    kind: str
    key: str
    data: dict[str, Any]
    preview: str  # of its result
    run: str
    seq: int
    dropped: int | None  # by which retry; None: another run did it
    at: int

    @classmethod
    def of(cls, event: Event, run: str) -> Done:
        """Make it of an event of another run."""
        return cls(event.kind, event.key or "", event.data, "", run, event.seq, None, event.at)


@dataclass(frozen=True, slots=True)
class NewFork:
    """A fork to be made. `at` is an event, a call by its key or name, or 'checkpoint'; None: as far as makes sense."""

    run: str
    id: str
    uid: str
    at: int | str | None
    effects: str
    actor: Actor
    via: str
    input: tuple[str, str | None] | None = None  # other arguments, and their digest
    replace: Mapping[str, str] = field(default_factory=dict)  # by the key of a call: what it gets
    messages: Mapping[int, str] = field(default_factory=dict)  # by the event of a message: what comes instead
    blobs: Mapping[str, bytes] = field(default_factory=dict)


class Segment(NamedTuple):
    """Events of another run that count for a fork."""

    part: str
    base: str
    first: int
    until: int
    seen: int
    name: str


@dataclass(frozen=True, slots=True)
class ForkRow:
    """A fork, as the tree of forks shows it."""

    run: str
    base: str
    at: int
    created_at: int
    agent: str
    status: str
    instead: dict[str, str]  # what was replaced, in a few words, by key


class Forks(Feature):
    """Forks, made and looked at."""

    async def fork(self, new: NewFork) -> tuple[RunRow, bool]:
        """Make a fork, or find the one with this id that was made from this run; True: it was made."""
        return await self._submit(Fork(new))

    async def former(self, run: str) -> list[Done]:
        """Read what was done behind the point to which a run went back, in order."""
        found = await self._read(rows, "former", run=run)
        return [
            Done(
                kind,
                key or "",
                json.loads(data or "{}"),
                "" if value is None else preview(value, 120),
                name,
                seq,
                dropped,
                at,
            )
            for kind, key, data, value, name, seq, dropped, _, at in found
        ]

    async def former_result(self, run: str, key: str) -> str | None:
        """Read the result of a step behind the point to which a run went back, whichever run did it; None: it has none."""
        return await self._read(_former_result, run, key)

    async def origin(self, run: str) -> tuple[str, int, str] | None:
        """Read the run that this one was made from: its name, the first event that they do not share, and where that is kept."""
        found = await self._glance(rows, "fork", run=run)
        return (found[0][0], found[0][1], found[0][3]) if found else None

    async def below(self, run: str) -> list[RunRow]:
        """Read the runs below the one that a fork was made from, as they were when it was made, whether they are here or not."""
        return await self._read(_below, run)

    async def journal_below(self, run: str, name: str) -> list[Event]:
        """Read all events of such a run, dropped ones too, as they were when the fork was made."""
        return await self._read(_journal_below, run, name)

    async def keys_like(self, run: str, name: str) -> list[str]:
        """List the keys of calls that a text may name: that are it, or begin with it behind the path of the call."""
        return [key for (key,) in await self._read(rows, "keys_like", run=run, key=name, limit=1000)]

    async def forks(self, runs: Iterable[str]) -> list[ForkRow]:
        """Read the forks that were made from these runs, the oldest first."""
        found = await self._read(rows, "forks_of", ids=to_json(list(runs)))
        return [
            ForkRow(run, base, at, made, agent, status, json.loads(data or "{}").get("instead", {}))
            for run, base, at, made, agent, status, data in found
        ]


@dataclass(frozen=True, slots=True)
class Fork:
    """Make a fork."""

    new: NewFork

    def __call__(self, tx: Transaction) -> Asking[tuple[RunRow, bool]]:
        new = self.new
        yield from _hold(tx, new.run)
        base = yield from existing(tx, new.run)
        if base.status == "moved":
            raise RunFinished(
                f"run {new.run!r} was moved to another store, where it goes on: fork it there. If it never came there, "
                f"`holdfast export {base.root_id} --undo --force` takes it back"
            )
        row = yield from tx.row("run", run=new.id)
        if row is not None:
            return (yield from self._again(tx, RunRow(*row)))
        shares = yield from segments(tx, new.run)
        until, replaced, ends, named = yield from self._point(tx, base)
        yield from self._check(tx, until)
        fork = _row_of(base, new)
        if (yield from insert_run(tx, fork)) is None:
            raise BadArguments(f"there is a run {new.id!r} already; give the fork another id")
        yield from _share(tx, new.id, base, shares, until)
        yield from tx.rows("hold_below", run=new.run)
        yield from tx.rows("insert_segments_below", run=new.id, base=new.run)
        yield from tx.rows("inherit_segments", run=new.id, base=new.run)
        checkpoint, steps, last_at = yield from tx.row("shared_counts", run=new.id)
        yield from tx.rows(
            "become_fork", run=new.id, next_seq=until + 1, epoch=base.lease_epoch, checkpoint_seq=checkpoint, steps=steps
        )  # fmt: skip
        origin = yield from self._origin(tx, base, until, last_at)
        carried = yield from self._carried(tx, until, ends)
        children = [signal.topic for signal in carried if signal.kind == "child.ended"]
        origin["children"] = yield from self._stand_ins(tx, origin, until, [*ends, *children])
        told = self._told(named)
        if told:
            origin["instead"] = dict(sorted(told.items())[:_MOST_TOLD])
        text = to_json(replaced) if replaced else None
        yield from _begin(tx, new.id, until, base.lease_epoch + 1, origin, text)
        if new.blobs:
            yield from insert_blobs(tx, new.blobs)
        yield from _copy_streams(tx, new.id, new.run, until)
        yield from resubscribe(tx, new.id)
        for signal in carried:
            name = f"{_PUT}+{signal.position}"
            yield from put_signal(tx, new.id, name, signal.kind, signal.topic, signal.value, signal.data)
        for seq, value in sorted(new.messages.items()):
            topic = (yield from _event(tx, new.run, seq))[1]["topic"]
            yield from put_signal(tx, new.id, f"{_PUT}{seq}", "message.received", topic, value, {})
        for child, (value, blobs) in sorted(ends.items()):
            yield from insert_blobs(tx, blobs)
            data = {"child": child, "status": "completed", "error": None, "replaced": True}
            yield from put_signal(tx, new.id, f"{_PUT}{child}", "child.ended", child, value, data)
        yield from self._note(tx, base, until, told)
        made = yield from existing(tx, new.id)
        return made, True

    def _again(self, tx: Transaction, found: RunRow) -> Asking[tuple[RunRow, bool]]:
        """Return the run that has this id: our own, whose commit was unknown, or the one that an earlier call made."""
        made = yield from tx.row("fork", run=found.id)
        if made is None or made[3] != self.new.run:
            raise BadArguments(
                f"there is a run {found.id!r} already, and it is no fork of {self.new.run!r}; give another id"
            )
        _, before = yield from _event(tx, found.id, made[1])
        differ = self._differences(before)
        if differ:
            raise RunExists(
                f"run {found.id!r} is another fork of {self.new.run!r}: {'; '.join(differ)}. Use another id, or the same request "
                "to go on with it"
            )
        return found, False

    def _order(self) -> dict[str, Any]:
        """Tell what is asked for, as far as the same id must mean the same: the point as it is given, and what is replaced."""
        new = self.new
        given = [sorted(new.replace.items()), sorted(new.messages.items()), new.input and new.input[0]]
        return {
            "at": new.at,
            "replace": hashlib.sha256(to_json(given).encode("utf-8", "surrogatepass")).hexdigest()[:32],
        }

    def _differences(self, before: Mapping[str, Any]) -> list[str]:
        """Say how a fork that was made differs from the one that is asked for; forks of old do not say how they were made."""
        new, now, then = self.new, self._order(), before.get("order") or {}
        found = []
        if then.get("at", now["at"]) != now["at"]:
            found.append(
                f"it was made with at={show(then['at'], 60)}, before event {before['at']}, and not with at={show(new.at, 60)}"
            )
        if then.get("replace", now["replace"]) != now["replace"]:
            told = ", ".join(f"{key}: {text}" for key, text in before.get("instead", {}).items()) or "nothing"
            asked = (
                ", ".join(f"{key}: {text}" for key, text in sorted(self._told(new.replace).items())[:_MOST_TOLD])
                or "nothing"
            )
            found.append(f"it replaces {told}, and not {asked}")
        if before["effects"] != new.effects:
            found.append(f"it was made with effects={before['effects']!r}, and not with {new.effects!r}")
        return found

    # The point

    def _point(
        self, tx: Transaction, base: RunRow
    ) -> Asking[tuple[int, dict[str, str], dict[str, tuple[str, dict[str, bytes]]], dict[str, str]]]:
        """Find the first event that is not shared, and what replaces outcomes: of calls, of spawned children, as it was given."""
        new, at = self.new, self.new.at
        places: list[int] = []
        if new.input is not None:
            if at not in (None, 0):
                raise BadArguments("other arguments are given to a fork from the beginning: leave out at=, or say at=0")
            places.append(0)
        if at is not None:
            places.append((yield from place_of(tx, base, at)))
        replaced: dict[str, str] = {}
        ends: dict[str, tuple[str, dict[str, bytes]]] = {}
        named: dict[str, str] = {}
        for name, text in new.replace.items():
            key = yield from key_of(tx, new.run, name)
            named[key] = text
            place, found = yield from _outcome(tx, base, key)
            places.append(place)
            asked = next((each for each in reversed(found) if each.kind == "approval.asked"), None)
            if asked is not None and asked.data.get("kind") in ("approve", "ask"):
                replaced[key] = yield from self._decision(tx, key, asked, text)
            elif any(event.kind.startswith("step.") or event.kind == "child.started" for event in found):
                replaced[key] = text
            elif (spawned := next((each for each in found if each.kind == "child.spawned"), None)) is not None:
                child = spawned.data["child"]
                places[-1] = yield from _end_of_child(tx, base, child)
                ends[child] = spilled(text)
            else:
                kinds = ", ".join(sorted({event.kind for event in found}))
                raise BadArguments(
                    f"{key!r} of run {new.run!r} is no step, no question and no child ({kinds}): only the outcomes of these can be "
                    f"replaced. `fork(at={key!r})` goes on from before it"
                )
        for seq in new.messages:
            event = yield from _event(tx, new.run, seq)
            if event is None or event[0] != "message.received":
                what = "there is no such event" if event is None else f"that is {event[0]}"
                raise BadArguments(f"'message:{seq}' names no message of run {new.run!r}: {what}")
            places.append(seq)
        return (min(places) if places else (yield from _end_of(tx, base))), replaced, ends, named

    def _told(self, named: Mapping[str, str]) -> dict[str, str]:
        """Write in a few words what is replaced, by key: for people, so of large values the beginning."""
        new = self.new
        told = {key: preview(text, _TOLD) for key, text in named.items()}
        told |= {f"message:{seq}": preview(text, _TOLD) for seq, text in new.messages.items()}
        return told | ({"arguments": preview(new.input[0], _TOLD)} if new.input else {})

    def _decision(self, tx: Transaction, key: str, asked: Event, text: str) -> Asking[str]:
        """Turn a given value into the decision that the agent gets, if the person who forks could have decided so."""
        new, kind = self.new, asked.data["kind"]
        row = yield from tx.row("approval", approval=asked.data["approval"])
        if row is None:
            place = (yield from _last(tx, new.run, ("run.forked",), asked.seq)) if asked.data.get("replaced") else key
            raise BadArguments(
                f"the question {key!r} of run {new.run!r} is not in this store, so who may decide it is not known: fork from "
                f"before it, at={place!r}; the fork then asks, and people decide"
            )
        question = ApprovalRow(*row)
        check_allowed(question, new.actor)  # others are told nothing of what is shown
        ballot = Ballot(new.uid, new.actor, via=new.via)
        if kind == "approve":
            yes, note, value = _said(key, text)
            ballot = replace(ballot, yes=yes, note=note)
        else:
            value = text
        if value is not None and (kind == "ask" or question.schema is not None):
            schema, what = json.loads(question.schema or "{}"), f"what replaces {key!r}"
            shown = yield from _whole(tx, question.shown)
            value = entered(schema, value, what, shown if kind == "approve" else None)
            same = shown is not None and digest(shown) == digest(value)
            ballot = replace(ballot, digest=asked.data["digest"] if same else digest(value))
        said = foreseen(tx.now, question, asked.data["digest"], replace(ballot, value=value))
        decision = {name: said.data[name] for name in ("by", "note", "yes", "decision")}
        if said.value is not None:
            decision["value"] = said.value
        # What the fork asks may be another question, to others: the engine compares.
        whole = asked.data.get("whole_digest") or asked.data["digest"]
        return to_json({**decision, "digest": whole, "to": asked.data["to"]})

    def _check(self, tx: Transaction, until: int) -> Asking[None]:
        """Refuse a point behind a request to stop: the fork would be asked to stop too."""
        stopped = yield from _last(tx, self.new.run, _STOPS, until)
        if stopped is not None:
            raise BadArguments(
                f"run {self.new.run!r} was asked to stop before (event {stopped}), and so would the fork be: say at={stopped} or "
                "an earlier event"
            )

    # Identity

    def _origin(self, tx: Transaction, base: RunRow, until: int, last_at: int | None) -> Asking[dict[str, Any]]:
        """Data of the event that makes it a run of its own."""
        new = self.new
        began: int = base.created_at
        was: list[Any] = [base.id, base.parent_id, base.root_id]
        copies: list[Any] = []
        stand_ins: dict[str, str] = {}
        before = yield from _last(tx, base.id, ("run.forked",), until)
        own = yield from tx.row("fork", run=base.id)
        if before is not None:
            _, data = yield from _event(tx, base.id, before)
            was, copies, stand_ins = data["now"], data["copies"], data.get("children", {})
        elif own is not None:  # it was forked behind the point: all that is shared was made before
            _, data = yield from _event(tx, base.id, own[1])
            was, began = data["was"], data["began"]
        copies = [*copies, [new.id, began if last_at is None else last_at]]
        return {
            "uid": hashlib.sha256(f"fork\0{new.uid}".encode()).hexdigest()[:32], "of": base.id, "at": until,
            "effects": new.effects, "by": new.actor.name, "was": was, "now": [new.id, None, new.id], "began": began,
            "copies": copies, "children": stand_ins, "order": self._order(),
        }  # fmt: skip

    def _stand_ins(
        self, tx: Transaction, origin: dict[str, Any], until: int, ends: Collection[str]
    ) -> Asking[dict[str, str]]:
        """Start others for children that were spawned and had not ended at the point; the code knows them by the old names."""
        new, known = self.new, dict(origin["children"])
        found = yield from tx.rows("left_children", run=new.run, until=until)
        events = [(kind, key, json.loads(data or "{}")) for kind, key, data in found]
        ended = {data["child"] for kind, _, data in events if kind == "child.ended"}
        for kind, key, data in events:
            before = known.get(data["child"], data["child"])
            if kind != "child.spawned" or before in ended or data["child"] in ends:
                continue
            row = yield from _kept(tx, new.id, before, data)
            if row is None:
                raise BadArguments(
                    f"child {before!r}, which run {new.run!r} spawned and which had not ended there, was deleted, and the fork "
                    f"would wait for it: say at={key!r} to spawn it anew, or replace={{{key!r}: ...}} to give what it comes to"
                )
            child = _child_of(row, origin["uid"], key, new)
            child.origin = Origin(before, new.effects, new.actor.name, origin["copies"])
            created = yield from insert_run(tx, child)
            if created is not None:
                yield from born(tx, RunRow(*created), child.origin)
                known[data["child"]] = child.id
        return known

    def _carried(self, tx: Transaction, until: int, ends: Collection[str]) -> Asking[list[Signal]]:
        """Find the signals that the other run, a fork too, has instead of arrivals, and had not come to at the point."""
        forked = yield from tx.row("fork", run=self.new.run)
        if forked is None or forked[1] >= until:
            return []
        found = yield from tx.rows("replaced_arrivals", run=self.new.run, signal_id=_PUT)
        signals = [signal_of(row) for row in found]
        if not signals:
            return []
        which = {"first": forked[1], "until": until, "kinds": to_json(["message.received", "child.ended"])}
        came = [json.loads(data or "{}") for (data,) in (yield from tx.rows("arrivals", run=self.new.run, **which))]
        positions, ended = {data.get("position") for data in came}, {data.get("child") for data in came} | set(ends)
        return [
            signal
            for signal in signals
            if (signal.topic not in ended if signal.kind == "child.ended" else signal.position not in positions)
        ]

    def _note(self, tx: Transaction, base: RunRow, until: int, told: dict[str, str]) -> Asking[None]:
        new = self.new
        named = yield from audit.starters_of(tx, base.root_id)
        before = yield from tx.row("fork", run=base.root_id)
        if before is not None:
            named += json.loads(before[2])
        yield from tx.rows("insert_fork", run=new.id, base=base.id, seq=until, names=to_json(sorted(set(named))))
        by, via = new.actor.name, new.via
        begun = {"agent": base.agent, "fork_of": base.id, "at": until, **({"values": told} if told else {})}
        yield from audit.note(tx, new.id, by, via, "start", begun)
        noted = {"fork": new.id, "at": until, "effects": new.effects, "replace": sorted(told), "values": told}
        yield from audit.note(tx, base.id, by, via, "fork", noted)


def _said(key: str, text: str) -> tuple[bool, str, str | None]:
    """Read a decision as it is given: yes or no, a note, and the text of the value as it was edited."""
    given = json.loads(text)
    if isinstance(given, bool):
        return given, "", None
    if isinstance(given, dict) and isinstance(given.get("yes"), bool):
        known = {"yes", "note", "value"} if given["yes"] else {"yes", "note"}
        if given.keys() <= known:
            value = to_json(given["value"]) if "value" in given else None
            return given["yes"], checked_note(given.get("note", "")), value
    raise BadArguments(
        f"{show(given, 60)} does not decide {key!r}: give true or false, or {{'yes': true, 'value': ..., 'note': '...'}}, "
        "the value with a yes alone"
    )


def _whole(tx: Transaction, text: str | None) -> Asking[str | None]:
    """Read the text of a column itself, wherever it is kept."""
    if text is None or not text.startswith('{"$blob":'):
        return text
    content: bytes = (yield from tx.row("blob", digest=text[10:74]))[0]
    return content.decode()


def _row_of(base: RunRow, new: NewFork) -> NewRun:
    """The row of a fork. Its uid is that of the run it comes from, from which all that it shares is derived."""
    text, identity = (base.input, base.identity) if new.input is None else new.input
    lane = Lane(base.priority, base.limit_key, base.limit_n, base.rate_key, base.rate_n, base.rate_ms)
    budget = None if base.budget == "{}" else base.budget  # one above it has one, and above the fork there is nobody
    return NewRun(
        new.id, base.uid, base.agent, text, base.version, base.queue, base.labels, lane=lane, budget=budget, identity=identity
    )  # fmt: skip


def _kept(tx: Transaction, fork: str, child: str, spawned: dict[str, Any]) -> Asking[RunRow | None]:
    """Read a child that a fork needs anew: as it is here, or as it is kept because the fork counts on it; None: it is gone."""
    row = yield from tx.row("run", run=child)
    if row is not None:
        return RunRow(*row)
    segment = yield from tx.row("segment_below", run=fork, name=child)
    kept = None if segment is None else (yield from tx.row("archived", name=segment[0]))
    if kept is None:
        return None
    text, data = kept
    above = yield from existing(tx, fork)
    budget = None if above.budget is None else "{}"
    return RunRow(**json.loads(data), id=child, uid="", input=text, identity=spawned.get("digest"), budget=budget)


def _child_of(before: RunRow, uid: str, key: str, new: NewFork) -> NewRun:
    """The row of a child that stands in for another: the same call of the same agent, from the beginning."""

    def derived(label: str) -> str:  # as the engine derives it (engine/identity.py)
        return hashlib.sha256(f"{uid}\0{label}".encode("utf-8", "surrogatepass")).hexdigest()[:32]

    mark = derived(f"child:{key}")
    name = f"{new.id}.{plain_id(before.agent)}-{mark[:8]}"
    lane = Lane(before.priority, before.limit_key, before.limit_n, before.rate_key, before.rate_n, before.rate_ms)
    return NewRun(
        name if len(name) <= 200 else f"{plain_id(before.agent)[:100]}-{mark}", derived(f"uid:{key}"), before.agent, before.input,
        before.version, before.queue, before.labels, new.id, key, new.id, lane=lane, budget=before.budget,
        identity=before.identity,
    )  # fmt: skip


def _begin(tx: Transaction, run: str, seq: int, epoch: int, origin: dict[str, Any], text: str | None) -> Asking[None]:
    """Write the first event of a fork's own. Its epoch is that of the first claim to come: nothing was begun before that."""
    blob = None
    if text is not None and len(text) > BLOB_BYTES:
        content = text.encode()
        blob, text = hashlib.sha256(content).hexdigest(), None
        yield from insert_blobs(tx, {blob: content})
    yield Count("record", [(run, seq, "run.forked", None, to_json(origin), text, blob, epoch, tx.now)])


def born(tx: Transaction, child: RunRow, origin: Origin) -> Asking[RunRow]:
    """Make a new child of a fork one as well, from its beginning; returns its row as it is then."""
    if origin.of:
        found = yield from tx.row("segment_below", run=child.root_id, name=origin.of)
        if found is not None:
            base, until, seen = found
            which = {"base": base, "first": 0, "until": until, "seen": seen, "name": origin.of}
            yield from tx.rows("insert_segment", run=child.id, part="behind", **which)
    names = [child.id, child.parent_id, child.root_id]
    data = {
        "uid": child.uid, "of": origin.of, "at": 0, "effects": origin.effects, "by": origin.by, "was": names, "now": names,
        "began": child.created_at, "copies": origin.copies,
    }  # fmt: skip
    yield from tx.rows("become_fork", run=child.id, next_seq=1, epoch=0, checkpoint_seq=None, steps=0)
    yield from _begin(tx, child.id, 0, 1, data, None)
    child.next_seq = 1
    return child


# What is shared


def segments(tx: Transaction, run: str) -> Asking[list[Segment]]:
    """Read which events of other runs count for a run."""
    return [Segment(*row) for row in (yield from tx.rows("segments", run=run))]


def _hold(tx: Transaction, run: str) -> Asking[None]:
    """Lock a run and the runs that it shares with."""
    shares = yield from segments(tx, run)
    for each in sorted({run, *(share.base for share in shares if not share.base.startswith("#"))}):
        yield from tx.rows("hold_run", run=each)


def _share(tx: Transaction, fork: str, base: RunRow, shares: Iterable[Segment], until: int) -> Asking[None]:
    """Have a fork share what its base has up to a place, whichever run's it is, and know of what lies behind."""
    own = Segment("shared", base.id, 0, base.next_seq, base.next_seq, base.id)
    for share in shares:
        if share.part == "shared":
            own = own._replace(first=max(own.first, share.until))
    for share in [*(each for each in shares if each.part != "below"), own]:
        which = {"run": fork, "base": share.base, "seen": share.seen, "name": share.name}
        if share.part == "shared" and share.first < min(share.until, until):
            end = min(share.until, until)
            yield from tx.rows("insert_segment", part="shared", first=share.first, until=end, **which)
        first = max(share.first, until) if share.part == "shared" else share.first
        if first < share.until:
            yield from tx.rows("insert_segment", part="behind", first=first, until=share.until, **which)


def take_over(tx: Transaction, run: str, place: int) -> Asking[None]:
    """Make what a fork shares from a place on its own, so that a retry can drop of it."""
    found = yield from tx.rows("take_over", run=run, from_seq=place)
    if found:
        yield from _hold(tx, run)  # or what its inputs are made of might be deleted
        for base in sorted({share.base for share in (yield from segments(tx, run)) if share.part == "shared"}):
            yield from tx.rows("share_uses", run=run, base=base)
        yield Count("record", [(run, *event) for *event, _ in found])
        for seq, *_, dropped in found:
            if dropped is not None:  # before the fork was made
                yield from tx.rows("drop_event", run=run, seq=seq, dropped=dropped)
        yield from tx.rows("shorten_segments", run=run, until=place)
        yield from tx.rows("drop_segments", run=run)


def _copy_streams(tx: Transaction, fork: str, base: str, until: int) -> Asking[None]:
    """Copy what was written to streams by calls that had ended at the point; what was being written is written anew."""
    found = yield from tx.rows("copied_streams", run=base)
    if not found:
        return
    keys = {key for (key,) in (yield from tx.rows("closed_keys", run=base, until=until, kinds=to_json(_CLOSED)))}
    ends: dict[str, int] = {}
    for stream, key, position in found:
        if key in keys or f"{key}:end" in keys:
            ends[stream] = max(ends.get(stream, 0), position)
    for stream, position in sorted(ends.items()):
        yield from tx.rows("copy_chunks", run=fork, base=base, stream=stream, position=position)


# Places in a history


def place_of(tx: Transaction, run: RunRow, at: int | str) -> Asking[int]:
    """Find the event that a point names: the moment before it is meant, or behind it for a checkpoint."""
    end = yield from _end_of(tx, run, whole=True)
    if isinstance(at, int):
        if not 0 <= at <= end:
            raise BadArguments(
                f"at={at}: run {run.id!r} has events 0 to {max(end - 1, 0)}; name one of them, or {end} for the end"
            )
        return at
    if at == "checkpoint":
        last = yield from _last(tx, run.id, ("checkpoint",), end)
        if last is None:
            raise BadArguments(f"at='checkpoint': run {run.id!r} has taken none")
        return last + 1
    key = yield from key_of(tx, run.id, at)
    return (yield from _outcome(tx, run, key))[0]


def keys_named(keys: Iterable[str], name: str) -> list[str]:
    """Return the keys whose calls have this name."""
    return [key for key in keys if key.rpartition("#")[0].rpartition("/")[2] == name]


def key_of(tx: Transaction, run: str, name: str) -> Asking[str]:
    """Find the call that a text names: by its key, or by the name of a step that was called once."""
    found: list[str] = [key for (key,) in (yield from tx.rows("keys_like", run=run, key=name, limit=1000))]
    if name in found:
        return name
    called = keys_named(found, name)
    if len(called) == 1:
        return called[0]
    if not called:
        below = yield from tx.rows("calls_below", run=run, key=name)
        if below:
            child, key, top = below[0]
            raise BadArguments(
                f"{show(name, 60)}: run {run!r} made no such call; run {child!r} below it did ({key!r}). Fork that run, or replace "
                f"what the child came to, by the key of the call that started it: {top!r}"
            )
    near = called or found
    told = ", ".join(map(repr, near[:_NAMED])) + (f" and {len(near) - _NAMED} more" if len(near) > _NAMED else "")
    what = "made several calls with that name" if called else "made no such call"
    hint = f": there are {told}" if near else ""
    raise BadArguments(f"{show(name, 60)}: run {run!r} {what}{hint}. `holdfast steps {run}` has the keys of its calls")


def _outcome(tx: Transaction, run: RunRow, key: str) -> Asking[tuple[int, list[Event]]]:
    """Find where the outcome of a call stands, and its events; the end of the history if it has none."""
    found = yield from tx.rows("places_of", run=run.id, key=key)
    events = [Event(seq, kind, own, json.loads(data or "{}")) for seq, kind, own, data in found]
    own = [event for event in events if event.key == key]
    closed = next((event.seq for event in own if event.kind in CLOSING), None)
    if closed is None:
        awaited = {event.data[name] for event in own for name in _AWAITED if name in event.data}
        arrived = (event for event in events if event.key is None)
        closed = next((each.seq for each in arrived if {each.data.get(name) for name in _AWAITED} & awaited), None)
    return (yield from _end_of(tx, run, whole=True)) if closed is None else closed, own


def _end_of_child(tx: Transaction, run: RunRow, child: str) -> Asking[int]:
    """Find where a run heard of the end of a child; the end of the history if it did not."""
    for kind, seq, data in (yield from tx.rows("ends_of_children", run=run.id)):
        if kind == "child.ended" and json.loads(data or "{}").get("child") == child:
            return int(seq)
    return (yield from _end_of(tx, run, whole=True))


def _end_of(tx: Transaction, run: RunRow, *, whole: bool = False) -> Asking[int]:
    """Find where a history ends: before its end, if the run has one; of a failed run, unless `whole`, before its failure."""
    if run.status not in FINISHED:
        return run.next_seq
    cause = first_cause(run.error) if run.status == "failed" and not whole else None
    if cause is not None:
        return cause
    last = yield from _last(tx, run.id, _ENDS, run.next_seq)
    return run.next_seq if last is None else last


def _last(tx: Transaction, run: str, kinds: Sequence[str], until: int) -> Asking[int | None]:
    ((last,),) = yield from tx.rows("last_of_kinds", run=run, until=until, kinds=to_json(list(kinds)))
    found: int | None = last
    return found


def _event(tx: Transaction, run: str, seq: int) -> Asking[Any]:
    row = yield from tx.row("event_at", run=run, seq=seq)
    return None if row is None else (row[0], json.loads(row[1] or "{}"))


# What is kept when a run is deleted


def keep_shared(tx: Transaction, runs: Sequence[str], mark: str) -> Asking[list[str]]:
    """Keep what forks share with runs that are about to be deleted; returns the names under which nothing is needed any more.

    Forks among these runs need nothing. A crash leaves all or nothing: it is one transaction with the deletion.
    """
    kept = [name for (name,) in (yield from tx.rows("archived_for", ids=to_json(list(runs))))]
    every = to_json([*runs, *kept])
    yield from tx.rows(
        "hold_lineage", ids=every
    )  # two that delete the last two forks must not both leave it to the other
    yield from tx.rows("forget_lineage", ids=to_json(list(runs)))
    needed = dict((yield from tx.rows("hold_lineage", ids=every)))
    for run in runs:
        name = f"#{run}#{mark}"
        if run in needed:
            row = yield from tx.row("run", run=run)
            if row is not None and RunRow(*row).parent_id is not None:
                yield from tx.rows("archive_run", name=name, **_archived(RunRow(*row)))
            yield from tx.rows("archive_events", run=run, name=name, until=needed[run])
            yield from tx.rows("archive_lineage", run=run, name=name)
            yield from tx.rows("archive_uses", run=run, name=name)
        yield from tx.rows("archive_forks", run=run, name=name)
    return [name for name in kept if name not in needed]


def _archived(row: RunRow) -> dict[str, str]:
    """Write what is shown of a run as it is kept; what it came to is in the history of the run above it."""
    return {"input": row.input, "data": to_json({name: getattr(row, name) for name in SHOWN})}


def _former_result(run: str, key: str) -> Asking[str | None]:
    found = yield from rows("former_result", run=run, key=key)
    if not found:
        return None
    value, blob, *_ = found[-1]
    if blob is None:
        return None if value is None else str(value)
    content: bytes = (yield from rows("blob", digest=blob))[0][0]
    return content.decode()


def archived(name: str) -> Asking[list[tuple[str, str]]]:
    """Read what is shown of a run that a fork counts on, as it is kept: of one that is here, or of one that was deleted."""
    if name.startswith("#"):
        return [(text, data) for text, data in (yield from rows("archived", name=name))]
    return [
        (kept["input"], kept["data"])
        for row in (yield from rows("run", run=name))
        for kept in [_archived(RunRow(*row))]
    ]


def _below(run: str) -> Asking[list[RunRow]]:
    made: list[RunRow] = []
    for name, until, *columns in (yield from rows("runs_below", run=run)):
        row = RunRow(*columns)
        row.id = name
        made.append((yield from _as_it_was(run, row, until)))
    for name, until, _, text, data in (yield from rows("archived_below", run=run)):
        row = RunRow(**json.loads(data), id=name, uid="", input=text)
        made.append((yield from _as_it_was(run, row, until)))
    return sorted(made, key=lambda row: (row.created_at, row.id))


def _as_it_was(run: str, row: RunRow, until: int) -> Asking[RunRow]:
    """Undo in a row what a retry changed since the fork was made."""
    if row.next_seq <= until:
        return row
    events = [event for event in (yield from _journal_below(run, row.id)) if event.dropped is None]
    end = next((event for event in reversed(events) if event.kind in _ENDS), None)
    row.status = "waiting" if end is None else end.kind.removeprefix("run.")
    row.error = to_json(end.data["error"]) if end is not None and "error" in end.data else None
    row.finished_at = None if end is None else end.at
    row.steps = sum(event.kind == "step.completed" for event in events)
    row.next_seq, row.result, row.reason = until, None, None
    return row


def _journal_below(run: str, name: str) -> Asking[list[Event]]:
    return events_of(name, (yield from rows("journal_below", run=run, name=name)))
