"""Bundles: all that a store has of a run and the runs below it, taken out, checked, and put into another store.

Look here for what a bundle holds. `values/bundle.py` says what its bytes mean, `client/bundles.py` how a file is written and read.

A move has one owner at any time. Runs that a worker has, or could take at once, are paused first; runs that wait are
left as they are. All that the store has of them is read as of one moment (`belongings`) and written to a file that no
store takes yet. Then one transaction (`Move`) finds that nothing has changed since, makes the runs 'moved', which
nothing carries on, and keeps the file as it is once released, so that it can be written again. Only then is the release
written into the file. Whatever dies in between: before the transaction the source goes on, after it only the
destination can.

The destination takes everything in one transaction (`Import`) and remembers the bundle for ever, so that it takes no
move twice. A run that comes back replaces what was left of it.

Nothing in a bundle is believed because somebody signed it: `checked` holds every row against its columns and against all others,
and a bundle of which any part does not fit is refused whole.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple, get_args

from holdfast.errors import (
    AlreadyDecided,
    BadArguments,
    BadBundle,
    ConversationBusy,
    Expired,
    HoldfastError,
    NotAllowed,
    RunActive,
    RunExists,
    RunFinished,
    Stale,
    UnknownRun,
)
from holdfast.store import audit
from holdfast.store.announcements import OVER, resubscribe
from holdfast.store.approvals import Decide, check_allowed
from holdfast.store.blobs import NAMED_BLOB, insert_blobs
from holdfast.store.budgets import BUDGET
from holdfast.store.changes import News
from holdfast.store.conversations import Enter, enter, leave_all
from holdfast.store.deletion import delete_runs
from holdfast.store.families import call_off, go_on, halt
from holdfast.store.forks import SHOWN, Fork, NewFork, archived
from holdfast.store.inbox import whole_inbox
from holdfast.store.journal import journal
from holdfast.store.parts import keep_parts
from holdfast.store.runs import existing
from holdfast.store.streams import Piece
from holdfast.store.work import ALL, Asking, Count, Feature, Transaction, rows, to_json
from holdfast.values import codec
from holdfast.values.bundle import Manifest, is_modest
from holdfast.values.parts import digest_of
from holdfast.values.text import is_whole
from holdfast.words.facts import misfit, signal_misfit
from holdfast.words.model import (
    FINISHED,
    KINDS,
    OUTCOMES,
    ApprovalRow,
    Event,
    RunRow,
    Signal,
    WaitsFor,
    is_run_id,
    is_shadow,
    where_it_went,
)
from holdfast.words.people import GROUP, Actor, Ballot

_AT_ONCE: Final = 1_000  # rows of one statement
_ENDS: Final = {"run.completed": "completed", "run.failed": "failed", "run.cancelled": "cancelled"}
_SIGNALS: Final = frozenset(name for name, kind in KINDS.items() if kind.arrives) | {"run.pausing", "run.resumed"}
_BEGINS: Final = ("child.started", "child.spawned")
MOVABLE: Final = frozenset({"waiting", "paused", "failed", "completed", "cancelled"})  # in these no worker has a run
_REFUSALS: Final = (AlreadyDecided, BadArguments, Expired, NotAllowed, RunFinished, Stale)  # of a decision
MOVES: Final = "move:"  # begins the requests by which runs are paused to be moved
_COPYABLE: Final = frozenset({"ready", "running", *MOVABLE})


class Changed(HoldfastError):
    """The runs have changed since they were read; read them again."""


class Unchanged(HoldfastError):
    """Nothing was changed, as was wished: it would have been done, and these questions would be open."""

    def __init__(self, questions: tuple[str, ...]) -> None:
        super().__init__("nothing was changed")
        self.questions = questions


# What a section has

Fits = Callable[[Any], bool]
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_SPILLED: Final = '{"$blob":'
_REFERENCE: Final = re.compile(r'\{"\$blob":"[0-9a-f]{64}"\}')
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_PART: Final = re.compile(r"[A-Za-z0-9_-]{22}")
_BASE: Final = re.compile(r"#?[\w.:@#-]{1,300}", re.ASCII)
_NAMED_PART: Final = re.compile(r'"\$part":"([A-Za-z0-9_-]{22})"')  # inside a string its quotes would be escaped
_UID: Final = re.compile(r"[0-9a-f]{32}")


def _text(value: Any) -> bool:
    return type(value) is str and _UNSTORABLE.search(value) is None


def _name(value: Any) -> bool:
    return _text(value) and 0 < len(value) <= 100_000


def _run(value: Any) -> bool:
    return type(value) is str and is_run_id(value)


def _base(value: Any) -> bool:
    """A run that a fork comes from, or the name under which a store keeps what is left of it."""
    return type(value) is str and _BASE.fullmatch(value) is not None


def _part(value: Any) -> bool:
    return type(value) is str and _PART.fullmatch(value) is not None


def _uid(value: Any) -> bool:
    return type(value) is str and _UID.fullmatch(value) is not None


def _digest(value: Any) -> bool:
    return type(value) is str and _DIGEST.fullmatch(value) is not None


def _count(value: Any) -> bool:
    return is_whole(value, 0)


def _json(value: Any) -> bool:
    if not _text(value):
        return False
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


def _inline(value: Any) -> bool:
    """A value that is never kept elsewhere, however large."""
    return _json(value) and not value.startswith(_SPILLED)


def _value(value: Any) -> bool:
    """A value as a column keeps it: its text, or the name of the large value that it is."""
    return _inline(value) or (type(value) is str and _REFERENCE.fullmatch(value) is not None)


def _dict(value: Any) -> bool:
    return _json(value) and type(json.loads(value)) is dict


def _list(value: Any) -> bool:
    return _json(value) and type(json.loads(value)) is list


def _names(value: Any) -> bool:
    return _list(value) and all(_text(each) for each in json.loads(value))


def _labels(value: Any) -> bool:
    return _dict(value) and all(_text(each) for each in json.loads(value).values())


def _votes(value: Any) -> bool:
    """Votes as `words/people.py` reads them."""
    if not _list(value):
        return False
    wanted = (("id", _text), ("by", _text), ("yes", _flag), ("note", _text), ("at", _count), ("digest", _text))
    return all(type(vote) is dict and all(fits(vote.get(name)) for name, fits in wanted) for vote in json.loads(value))


def _delegations(value: Any) -> bool:
    if not _list(value):
        return False
    wanted = (("id", _text), ("by", _text), ("to", _text), ("note", _text), ("at", _count))
    return all(type(each) is dict and all(fits(each.get(name)) for name, fits in wanted) for each in json.loads(value))


def _needs(value: Any) -> bool:
    if not _json(value):
        return False
    told = json.loads(value)
    return is_whole(told, 1) or (type(told) is dict and all(is_whole(each, 1) for each in told.values()))


def _bytes(value: Any) -> bool:
    try:
        return type(value) is str and _base64(base64.b64decode(value, validate=True)) == value
    except (binascii.Error, ValueError):
        return False


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _flag(value: Any) -> bool:
    return type(value) is bool


def _maybe(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def _one_of(*known: str) -> Fits:
    return lambda value: type(value) is str and value in known


_RUN_COLUMNS: Final[dict[str, Fits]] = {
    "id": _run, "uid": _uid, "agent": _name, "status": _one_of(*_COPYABLE), "input": _value, "version": _maybe(_name),
    "queue": _name, "due_at": _maybe(_count), "lease_epoch": _count, "next_seq": _count, "checkpoint_seq": _maybe(_count),
    "inbox_count": _count, "inbox_seen": _count, "awaits": _maybe(_names),
    "waits_for": _maybe(_one_of(*get_args(WaitsFor))), "crash_count": _count,
    "parent_id": _maybe(_run), "parent_key": _maybe(_name), "root_id": _run, "labels": _labels, "result": _maybe(_value),
    "error": _maybe(_dict), "reason": _maybe(_text), "steps": _count, "created_at": _count, "started_at": _maybe(_count),
    "finished_at": _maybe(_count), "updated_at": _count, "priority": lambda value: is_whole(value, 0, 9),
    "limit_key": _maybe(_name), "limit_n": _maybe(_count), "rate_key": _maybe(_name), "rate_n": _maybe(_count),
    "rate_ms": _maybe(_count), "singleton_key": _maybe(_name), "budget": _maybe(_dict), "identity": _maybe(_name),
}  # fmt: skip
_ASKED: Final = 2_000  # characters of a question that its event repeats
_SHOWS: Final = ("approve", "ask", BUDGET)  # kinds of questions whose event has what they show
_KINDS_ASKED: Final = ("approve", "ask", "in_doubt")
_APPROVAL_COLUMNS: Final[dict[str, Fits]] = {
    "id": _run, "run_id": _run, "root_id": _run, "path": _names, "key": _name, "kind": _one_of(*_KINDS_ASKED),
    "question": _text, "shown": _maybe(_value), "digest": _text, "schema": _maybe(_dict), "recipients": _names, "needs": _needs,
    "votes": _votes, "delegations": _delegations, "expires_at": _maybe(_count), "fallback": _maybe(_inline),
    "remind_ms": _maybe(_count), "status": _one_of("open", "decided", "expired", "withdrawn"), "asked_at": _count,
    "data": _maybe(_value), "decided_at": _maybe(_count), "decided_by": _maybe(_text),
    "decision": _maybe(_one_of("approved", "denied", "answered")), "note": _maybe(_text), "not_by": _maybe(_names),
}  # fmt: skip

# Section -> column -> what it may be. The order is that of the rows in a bundle, and never changes in a version of bundles.
SECTIONS: Final[dict[str, dict[str, Fits]]] = {
    "runs": _RUN_COLUMNS,
    "events": {
        "run": _run, "seq": _count, "kind": _one_of(*KINDS), "key": _maybe(_name), "data": _maybe(_dict), "value": _maybe(_value),
        "blob": _maybe(_digest), "at": _count, "epoch": _count, "dropped": _maybe(_count),
    },
    "signals": {
        "run": _run, "position": _count, "signal_id": _name, "kind": _one_of(*_SIGNALS), "topic": _text, "value": _maybe(_value),
        "data": _maybe(_dict), "sent_at": _count,
    },
    "approvals": _APPROVAL_COLUMNS,
    "askers": {"approval": _run, "run": _run},
    "spending": {
        "run": _run, "what": _name, "usd": _count, "input_tokens": _count, "output_tokens": _count, "model_calls": _count,
        "unpriced": _count, "steps": _count,
    },
    "conversations": {
        "id": _run, "length": _count, "created_at": _count, "updated_at": _count, "run": _maybe(_run), "request": _maybe(_name),
    },
    "waiting": {"conversation": _run, "run": _run, "request": _name, "key": _maybe(_name)},
    "messages": {"conversation": _run, "position": _count, "value": _value, "run": _run, "at": _count},
    "chunks": {
        "run": _run, "stream": _name, "position": _count, "kind": _one_of("data", "restart", "break", "end"), "data": _bytes,
        "key": _name, "attempt": _count, "began": _count, "reason": _maybe(_text), "epoch": _count, "at": _count,
    },
    "parts": {"digest": _part, "text": _json},
    "uses": {"run": _run, "part": _part},
    "forks": {"run": _run, "base": _base, "name": _run, "at": _count, "starters": _names},
    "lineage": {
        "run": _run, "part": _one_of("behind", "below"), "base": _base, "first": _count, "until": _count, "seen": _count,
        "name": _run,
    },
    "bases": {
        "base": _base, "seq": _count, "kind": _one_of(*KINDS), "key": _maybe(_name), "data": _maybe(_dict),
        "value": _maybe(_value), "blob": _maybe(_digest), "at": _count, "epoch": _count, "dropped": _maybe(_count),
    },
    "archived": {"base": _base, "input": _value, "data": _dict},
    "agents": {"name": _name, "version": _maybe(_name), "schema": _dict},
    "blobs": {"digest": _digest, "size": _count},
}  # fmt: skip
CONTENT: Final = "content"  # the section of the large values themselves, one behind the other
_STATE: Final = ("id", "status", "due_at", "waits_for", "awaits", "reason", "finished_at")  # that a move changes
# Columns of a run that belong to the store it is in. What it did before it came is in its history, and not in its life.
_OWN: Final = ("lease_owner", "company", "life", "life_at", "worked_ms", "interruptions")


@dataclass(slots=True)
class Belongings:
    """All that a store has of a family: rows by section, as they stand in a bundle, and large values by digest."""

    rows: dict[str, list[list[Any]]] = field(default_factory=lambda: {name: [] for name in SECTIONS})
    blobs: dict[str, bytes] = field(default_factory=dict)
    store: str = ""  # the id of the store it is from
    started_by: str | None = None  # the starter of the run above all, as the audit has it

    @property
    def runs(self) -> list[RunRow]:
        """The runs, the one above all first."""
        return [RunRow(**dict(zip(_RUN_COLUMNS, row, strict=True))) for row in self.rows["runs"]]

    @property
    def root(self) -> str:
        """The id of the run above all."""
        root: str = self.rows["runs"][0][0]
        return root

    @property
    def questions(self) -> list[ApprovalRow]:
        """The questions of all its runs, in any state."""
        return [ApprovalRow(*row) for row in self.rows["approvals"]]

    def events(self, run: str) -> list[Event]:
        """The journal of one run."""
        return [
            Event(seq, kind, key, json.loads(data or "{}"), value, blob, at, epoch, run, 0, dropped)
            for of, seq, kind, key, data, value, blob, at, epoch, dropped in self.rows["events"]
            if of == run
        ]

    def pieces(self, run: str) -> list[Piece]:
        """The rows of one run's streams, in order."""
        return [
            Piece(stream, position, kind, key, attempt, began, reason,
                  [base64.b64decode(data).decode("utf-8", "surrogatepass")] if data else [])
            for of, stream, position, kind, data, key, attempt, began, reason, _, _ in self.rows["chunks"]
            if of == run
        ]  # fmt: skip


class Mark(NamedTuple):
    """State of a run that is another one whenever anything of the run has changed."""

    status: str
    epoch: int
    next_seq: int
    inbox_count: int

    @classmethod
    def of(cls, row: RunRow) -> Mark:
        """Read it from a row."""
        return cls(row.status, row.lease_epoch, row.next_seq, row.inbox_count)


def public_id(own: str) -> str:
    """Name a store to others. Its own id stays inside: on PostgreSQL the channel of its wake-ups is derived from that."""
    return hashlib.sha256(f"holdfast store {own}".encode()).hexdigest()[:32]


# Taking out


def belongings(root: str) -> Asking[Belongings]:
    """Read all that belongs to a run and those below it; to be asked of one moment (`Feature._snapshot`)."""
    found = Belongings()
    ((own, *_),) = yield from rows("identity")
    found.store = public_id(own)
    members = _in_order([RunRow(*row) for row in (yield from rows("members", root=root))])
    if not members or members[0].id != root:
        raise UnknownRun(f"there is no run {root!r} above all others")
    ids = to_json([row.id for row in members])
    told = found.rows
    told["runs"] = [[getattr(row, name) for name in _RUN_COLUMNS] for row in members]
    named: set[str] = set()
    for row in members:
        for event in (yield from journal(row.id, 0, None, True)):
            data = to_json(event.data) if event.data else None
            told["events"].append([row.id, event.seq, event.kind, event.key, data, event.value, event.blob, event.at, event.epoch,
                                   event.dropped])  # fmt: skip
            if event.kind == "conversation.asked":
                named.add(event.data["conversation"])
        # What a fork has from other runs names parts that these use.
        bases = [base for part, base, *_ in (yield from rows("segments", run=row.id)) if part == "shared"]
        used = yield from rows("parts_used", ids=to_json([row.id, *bases]))
        told["uses"] += [[row.id, part] for part in sorted({part for (part,) in used})]
        told["signals"] += [[row.id, *signal] for signal in (yield from whole_inbox(row.id))]
        for stream, position, kind, data, *rest in (yield from rows("whole_streams", run=row.id)):
            told["chunks"].append([row.id, stream, position, kind, _base64(bytes(data)), *rest])
        yield from _former(told, row.id)
    told["approvals"] = [list(row) for row in (yield from rows("approvals_of", ids=ids))]
    told["askers"] = [list(row) for row in (yield from rows("asked_by", ids=ids))]
    told["spending"] = [list(row) for row in (yield from rows("spending_of", ids=ids))]
    yield from _talks(told, ids, {row.id for row in members}, named)
    used = sorted({part for _, part in told["uses"]})
    for first in range(0, len(used), _AT_ONCE):
        told["parts"] += [list(row) for row in (yield from rows("parts", ids=to_json(used[first : first + _AT_ONCE])))]
    names = {row.agent for row in members}
    told["agents"] = [list(row) for row in (yield from rows("agents")) if row[0] in names]
    for digest in sorted(_named_blobs(told)):
        content = yield from rows("blob", digest=digest)
        if not content:
            raise BadArguments(f"the large value {digest!r} of run {root!r} is not in the store any more")
        found.blobs[digest] = bytes(content[0][0])
    told["blobs"] = [[digest, len(content)] for digest, content in found.blobs.items()]
    return found


def _former(told: dict[str, list[list[Any]]], run: str) -> Asking[None]:
    """Add what a fork must know of the runs it comes from: what they did behind the point where it parted from them.

    Events up to that point are its own in a bundle, and in the store that takes it.
    """
    for name, at, starters, base in (yield from rows("fork", run=run)):
        told["forks"].append([run, base, name, at, starters])
    known, shown = {(row[0], row[1]) for row in told["bases"]}, {row[0] for row in told["archived"]}
    for part, base, first, until, seen, name in (yield from rows("segments", run=run)):
        if part == "shared":
            continue
        told["lineage"].append([run, part, base, first, until, seen, name])
        if part == "below" and base not in shown:
            shown.add(base)
            told["archived"] += [[base, *row] for row in (yield from archived(base))]
        for row in (yield from rows("journal", run=base, from_seq=first, limit=ALL, with_dropped=1)):
            seq, kind, key, data, value, blob, at, epoch, _, dropped = row
            if seq < until and (base, seq) not in known:
                known.add((base, seq))
                told["bases"].append([base, seq, kind, key, data, value, blob, at, epoch, dropped])


def _talks(told: dict[str, list[list[Any]]], ids: str, members: set[str], named: set[str]) -> Asking[None]:
    """Add the conversations that these runs have entered, have asked for or wait for."""
    told["waiting"] = [list(row) for row in (yield from rows("waiting_for", ids=ids))]
    held = {conversation for conversation, _ in (yield from rows("conversations_of", ids=ids))}
    for conversation in sorted(named | held):
        for row in (yield from rows("whole_conversation", conversation=conversation)):
            _, length, created_at, updated_at, run, request = row
            mine = run in members
            told["conversations"].append(
                [conversation, length, created_at, updated_at, run if mine else None, request if mine else None]
            )
            said = yield from rows("said", conversation=conversation, first=0, end=length)
            told["messages"] += [[conversation, *message] for message in said]


def _in_order(members: list[RunRow]) -> list[RunRow]:
    """Sort runs so that each comes behind the one that started it."""
    below: dict[str | None, list[RunRow]] = defaultdict(list)
    for row in sorted(members, key=lambda row: (row.created_at, row.id)):
        below[row.parent_id].append(row)
    ordered = list(below[None])
    for row in ordered:
        ordered += below[row.id]
    return ordered


def _named_blobs(told: Mapping[str, Sequence[Sequence[Any]]]) -> set[str]:
    """Find the digests of all large values that these rows name."""
    found = {row[6] for section in ("events", "bases") for row in told[section] if row[6] is not None}
    columns = (("runs", "input"), ("runs", "result"), ("events", "value"), ("bases", "value"), ("signals", "value"),
               ("messages", "value"), ("archived", "input"),
               ("approvals", "shown"), ("approvals", "data"))  # fmt: skip
    for section, column in columns:
        place = list(SECTIONS[section]).index(column)
        for row in told[section]:
            if row[place] is not None and '"$blob"' in row[place]:
                found.update(NAMED_BLOB.findall(row[place]))
    return found


# Checking


def checked(told: Mapping[str, list[list[Any]]], content: bytes, manifest: Manifest) -> Belongings:
    """Hold the rows of a bundle against their columns and against each other; `BadBundle` says what does not fit."""
    for section, columns in SECTIONS.items():
        _check_columns(section, columns, told[section])
    found = Belongings({name: told[name] for name in SECTIONS}, {}, manifest.source)
    try:
        _check_whole(found, content, manifest)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise BadBundle(f"its rows do not say what rows of bundles say ({type(error).__name__})") from error
    return found


def _check_whole(found: Belongings, content: bytes, manifest: Manifest) -> None:
    """Check rows of which each fits its columns."""
    _check_facts(found)
    _check_runs(found, manifest)
    _check_journals(found)
    _check_inboxes(found)
    _check_blobs(found, content)
    _check_questions(found)
    _check_talks(found)
    _check_streams(found)
    _check_parts(found)


def _refuse(section: str, place: int, why: str) -> BadBundle:
    return BadBundle(f"row {place + 1} of its section {section!r} cannot be: {why}")


def _check_columns(section: str, columns: dict[str, Fits], rows: list[list[Any]]) -> None:
    checks = list(columns.values())
    for place, row in enumerate(rows):
        if len(row) != len(checks):
            raise _refuse(section, place, f"it has {len(row)} columns instead of {len(checks)}")
        for fits, value in zip(checks, row, strict=True):
            if not fits(value):
                name = list(columns)[
                    next(n for n, (fits, each) in enumerate(zip(checks, row, strict=True)) if not fits(each))
                ]
                raise _refuse(section, place, f"{name!r} is not what it should be")


def _check_facts(found: Belongings) -> None:
    """Check what events and signals say: the engine that goes on with them believes it."""
    for section in ("events", "bases"):
        for place, (_, _, kind, _, data, *_) in enumerate(found.rows[section]):
            wrong = misfit(kind, json.loads(data or "{}"))
            if wrong is not None:
                raise _refuse(section, place, f"{wrong!r} of its data is not what {kind} says")
    for place, (_, position, _, kind, topic, value, data, at) in enumerate(found.rows["signals"]):
        told = json.loads(data or "{}")
        becomes = Signal(position, kind, topic, value, told, at).recorded()
        if becomes is None:
            continue
        wrong = signal_misfit(told) if kind == "run.resumed" else misfit(kind, becomes)
        if wrong is not None:
            raise _refuse("signals", place, f"{wrong!r} of its data is not what {kind} says")


def _check_runs(found: Belongings, manifest: Manifest) -> None:
    known: set[str] = set()
    allowed = MOVABLE if manifest.kind == "move" else _COPYABLE
    runs = found.runs
    if not runs:
        raise BadBundle("it holds no run")
    root = runs[0].id
    for place, row in enumerate(runs):
        why = None
        if row.id in known:
            why = f"run {row.id!r} comes twice"
        elif row.root_id != root:
            why = "it belongs to another run"
        elif (row.parent_id is None) is not (place == 0) or (row.parent_id is not None and row.parent_id not in known):
            why = "it comes before the run that started it, or nobody did"
        elif (row.parent_id is None) is not (row.parent_key is None):
            why = "it has a parent and no key, or a key and no parent"
        elif row.status not in allowed:
            why = f"a run that is {row.status} cannot be in a {manifest.kind}"
        elif (row.finished_at is not None) is not (row.status in FINISHED):
            why = "it has ended and says not when, or has not and says when"
        elif row.inbox_seen > row.inbox_count or row.steps > row.next_seq:
            why = "its counts contradict each other"
        elif (row.status == "completed") is not (row.result is not None):
            why = "a run has a result exactly if it completed"
        elif (row.status == "failed") is not (row.error is not None):
            why = "a run has an error exactly if it failed"
        if why is not None:
            raise _refuse("runs", place, why)
        known.add(row.id)
    if manifest.kind == "move" and runs[0].status in ("completed", "cancelled"):
        raise _refuse("runs", 0, "a run that has ended is not moved")
    for section in ("events", "signals", "askers", "spending", "waiting", "chunks", "uses", "forks", "lineage"):
        at = list(SECTIONS[section]).index("run")
        for place, told in enumerate(found.rows[section]):
            if told[at] not in known:
                raise _refuse(section, place, f"there is no run {told[at]!r} in the bundle")
    _check_unique(found, "askers", "approval", "run")
    _check_unique(found, "spending", "run", "what")
    _check_unique(found, "agents", "name")
    _check_unique(found, "forks", "run")
    _check_unique(found, "lineage", "run", "part", "base", "first")
    _check_unique(found, "bases", "base", "seq")
    _check_unique(found, "archived", "base")
    _check_former(found)


def _check_former(found: Belongings) -> None:
    """Check that the bundle has every event that a fork shares, and no event that no fork shares."""
    ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
    forks = {row[0] for row in found.rows["forks"]} | {row[0] for row in found.rows["events"] if row[2] == "run.forked"}
    for place, (run, _, base, first, until, _, _) in enumerate(found.rows["lineage"]):
        if first > until or run not in forks:
            raise _refuse("lineage", place, "it ends before it begins, or is of a run that is no fork")
        ranges[base].append((first, until))
    for place, (base, seq, *_) in enumerate(found.rows["bases"]):
        if not any(first <= seq < until for first, until in ranges[base]):
            raise _refuse("bases", place, "no fork counts it")
    below = {base for _, part, base, *_ in found.rows["lineage"] if part == "below"}
    for place, (base, _, data) in enumerate(found.rows["archived"]):
        told = json.loads(data)
        if base not in below or told.keys() != set(SHOWN) or not all(_RUN_COLUMNS[name](told[name]) for name in SHOWN):
            raise _refuse("archived", place, "no fork counts it, or it does not say what rows of runs say")


def _check_unique(found: Belongings, section: str, *columns: str) -> None:
    places = [list(SECTIONS[section]).index(column) for column in columns]
    seen = Counter(tuple(row[at] for at in places) for row in found.rows[section])
    for twice, times in seen.items():
        if times > 1:
            raise BadBundle(f"its section {section!r} has {', '.join(map(str, twice))} {times} times")


def _check_journals(found: Belongings) -> None:
    """Check the history of each run: in order and whole, each call with one outcome, and an end that fits the run's state."""
    by_run: dict[str, list[tuple[int, list[Any]]]] = defaultdict(list)
    for place, row in enumerate(found.rows["events"]):
        by_run[row[0]].append((place, row))
    children = {(row.parent_id, row.id): row.parent_key for row in found.runs}
    for run in found.runs:
        history = by_run[run.id]
        _check_order(run, history)
        closed: set[str] = set()
        checkpoint = ended = None
        retries = {row[1] for _, row in history if row[2] == "run.retried"}
        forked = max((row[1] for _, row in history if row[2] == "run.forked"), default=-1)
        heard = {_child(row) for _, row in history if row[2] == "child.ended"}
        for place, row in history:
            _, seq, kind, key, _, value, blob, _, _, dropped = row
            if value is not None and blob is not None:
                raise _refuse("events", place, "it has a value and a large value")
            # What a fork has from another run may have been dropped there by a retry that the fork does not share.
            elsewhere = seq < forked <= (dropped or 0)
            if dropped is not None and (dropped <= seq or not (dropped in retries or elsewhere)):
                raise _refuse("events", place, "no retry took it out of the history")
            if dropped is not None:
                continue
            if KINDS[kind].closes:
                if key is None or key in closed:
                    raise _refuse("events", place, f"the call {key!r} has two outcomes, or an outcome has no call")
                closed.add(key)
            if kind in OUTCOMES and KINDS[kind].arrives and key is not None:
                raise _refuse("events", place, "what arrives belongs to no call")
            if kind == "checkpoint":
                checkpoint = seq
            if kind in _ENDS:
                if ended is not None:
                    raise _refuse("events", place, "a run ends once")
                ended = _ENDS[kind]
            if kind in _BEGINS:
                child = _child(row)
                here = (run.id, child) in children
                needed = child not in heard and run.finished_at is None and seq > forked  # a fork starts its own
                if (here and children[run.id, child] != key) or (not here and needed):
                    raise _refuse(
                        "events", place, f"the child {child!r} that it started is not in the bundle, or is another's"
                    )
        if ended != (run.status if run.status in FINISHED else None):
            raise BadBundle(f"run {run.id!r} is {run.status}, and its history says that it is {ended or 'not over'}")
        if checkpoint != run.checkpoint_seq:
            raise BadBundle(f"the last checkpoint of run {run.id!r} is not where the run says")


def _check_order(run: RunRow, history: list[tuple[int, list[Any]]]) -> None:
    expected = epoch = 0
    for place, row in history:
        if row[1] != expected:
            raise _refuse("events", place, f"it is number {row[1]} of run {run.id!r}, and {expected} comes next")
        forked = (
            row[2] == "run.forked"
        )  # it has the epoch of the first claim to come; until then the store writes with the last
        if not epoch <= row[8] <= run.lease_epoch + forked:
            raise _refuse("events", place, "it was written before the one before it, or after the last")
        expected, epoch = row[1] + 1, epoch if forked else row[8]
    if expected != run.next_seq:
        raise BadBundle(f"run {run.id!r} has {run.next_seq} events, and {expected} are in the bundle")


def _child(row: list[Any]) -> Any:
    return json.loads(row[4] or "{}").get("child")


def _check_inboxes(found: Belongings) -> None:
    _check_unique(found, "signals", "run", "signal_id")
    forks = {row[0] for row in found.rows["events"] if row[2] == "run.forked"}  # their inboxes begin where others ended
    last: dict[str, int] = {run.id: 0 for run in found.runs if run.id not in forks}
    for place, row in enumerate(found.rows["signals"]):
        if row[1] != last.get(row[0], row[1] - 1) + 1:
            raise _refuse("signals", place, f"it lies at {row[1]}, and {last[row[0]] + 1} comes next")
        last[row[0]] = row[1]
    came = Counter(row[0] for row in found.rows["signals"])
    for run in found.runs:
        if last.get(run.id, run.inbox_count) != run.inbox_count or run.inbox_count - came[run.id] > run.inbox_seen:
            raise BadBundle(
                f"{run.inbox_count} signals came to run {run.id!r}, and not all that it has not seen are in the bundle"
            )


def _check_questions(found: Belongings) -> None:
    _check_unique(found, "approvals", "id")
    runs, questions = {row.id: row for row in found.runs}, found.questions
    events: dict[str, list[list[Any]]] = defaultdict(list)
    for row in found.rows["events"]:
        if row[2] == "approval.asked":
            events[json.loads(row[4])["approval"]].append(row)
    for place, asked in enumerate(questions):
        decided = asked.status == "decided"
        if asked.run_id not in runs or asked.root_id != found.root:
            raise _refuse("approvals", place, "its run is not in the bundle")
        if decided is not (asked.decision is not None) or decided is not (asked.decided_by is not None):
            raise _refuse("approvals", place, "it was decided and says not how, or was not and says how")
        if (asked.status == "open") is (asked.decided_at is not None):
            raise _refuse("approvals", place, "it is open and says when it ended, or ended and says not when")
        if asked.status == "open" and runs[asked.run_id].status in FINISHED:
            raise _refuse("approvals", place, "its run has ended, and asks nobody any more")
        if asked.status == "open" and not any(_asks(found, asked, event) for event in events[asked.id]):
            raise _refuse("approvals", place, "no run asks that: its history says otherwise")
    known = {asked.id for asked in questions}
    for place, (asked_for, _) in enumerate(found.rows["askers"]):
        if asked_for not in known:
            raise _refuse("askers", place, "there is no such question in the bundle")


def _asks(found: Belongings, asked: ApprovalRow, event: list[Any]) -> bool:
    """Is this the event that asks an open question? People decide what the row shows, and the agent acts on what the event says."""
    _, _, _, _, data, value, blob, *_ = event
    told = json.loads(data)
    shown = value if blob is None else f'{{"$blob":"{blob}"}}'
    texts = [asked.shown, asked.data]
    spilt = [
        text if text is None or not text.startswith(_SPILLED) else found.blobs[text[10:74]].decode() for text in texts
    ]
    digests = {
        told.get("digest"),
        *(codec.digest(text) for text in spilt if text is not None),
    }  # of old: that of the value
    return (
        (told["kind"] if told["kind"] in _KINDS_ASKED else "approve") == asked.kind
        and told["question"] == asked.question[:_ASKED]
        and told["to"] == json.loads(asked.recipients)
        and (not told.get("not_by") or asked.not_by is not None)
        and (told["kind"] not in _SHOWS or shown == asked.shown)
        and asked.digest in digests
    )


def _check_talks(found: Belongings) -> None:
    _check_unique(found, "conversations", "id")
    _check_unique(found, "waiting", "conversation", "run")
    unfinished = {row.id for row in found.runs if row.finished_at is None}
    lengths: Counter[str] = Counter()
    known = {row[0]: row for row in found.rows["conversations"]}
    for place, (conversation, position, *_) in enumerate(found.rows["messages"]):
        if conversation not in known or position != lengths[conversation]:
            raise _refuse("messages", place, "it is of no conversation in the bundle, or not the next one of it")
        lengths[conversation] += 1
    for place, (conversation, length, _, _, run, request) in enumerate(found.rows["conversations"]):
        if length != lengths[conversation]:
            raise _refuse(
                "conversations", place, f"it has {length} messages, and {lengths[conversation]} are in the bundle"
            )
        if (run is None) is not (request is None) or (run is not None and run not in unfinished):
            raise _refuse("conversations", place, "the run that has it is not in the bundle, or has ended")
    for place, (conversation, run, *_) in enumerate(found.rows["waiting"]):
        if conversation not in known or run not in unfinished or known[conversation][4] == run:
            raise _refuse("waiting", place, "it waits for what is not in the bundle, for what it has, or not at all")


def _check_streams(found: Belongings) -> None:
    ends: Counter[tuple[str, str]] = Counter()
    for place, (run, stream, position, kind, data, *_) in enumerate(found.rows["chunks"]):
        try:
            text = base64.b64decode(data).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise _refuse("chunks", place, "its text is no UTF-8") from None
        began: int = found.rows["chunks"][place][7]
        if position <= ends[run, stream] or began > position or (kind == "data" and len(text) > position):
            raise _refuse("chunks", place, "it stands before what comes before it")
        ends[run, stream] = position


def _check_parts(found: Belongings) -> None:
    _check_unique(found, "parts", "digest")
    _check_unique(found, "uses", "run", "part")
    for place, (digest, text) in enumerate(found.rows["parts"]):
        if digest_of(text) != digest:
            raise _refuse("parts", place, "it is not the part that it names")
    known, used = {row[0] for row in found.rows["parts"]}, {row[1] for row in found.rows["uses"]}
    texts = [row[1] for row in found.rows["parts"]] + [row[4] for row in found.rows["events"] if row[4] is not None]
    named = {part for text in texts if '"$part"' in text for part in _NAMED_PART.findall(text)}
    if known != used or not named <= known:
        raise BadBundle("a part of an input that it names is missing, or one is in it that no run uses")


def _is_text_of_value(content: bytes) -> bool:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    return not is_modest(content) or _json(text)


def _check_blobs(found: Belongings, content: bytes) -> None:
    _check_unique(found, "blobs", "digest")
    start = 0
    for place, (digest, size) in enumerate(found.rows["blobs"]):
        value = content[start : start + size]
        start += size
        if len(value) != size or hashlib.sha256(value).hexdigest() != digest:
            raise _refuse("blobs", place, "the large value is not the one that it names")
        if not _is_text_of_value(value):
            raise _refuse("blobs", place, "the large value is no JSON")
        found.blobs[digest] = value
    if start != len(content):
        raise BadBundle("more large values are in it than it lists")
    named = _named_blobs(found.rows)
    if named != found.blobs.keys():
        raise BadBundle("a large value that it names is missing, or one is in it that nothing names")


# Going and coming


class Bundles(Feature):
    """Families of runs, taken out of the store and put into it."""

    async def belongings(self, root: str) -> Belongings:
        """Read all that belongs to a run and those below it, as it is at one moment; `UnknownRun` if it is no root run."""
        return await self._snapshot(belongings, root)

    async def members(self, root: str) -> list[RunRow]:
        """Read a root run and all below it."""
        return [RunRow(*row) for row in await self._read(rows, "members", root=root)]

    async def note_copy(self, root: str, told: dict[str, Any], *, by: str, via: str) -> None:
        """Note that a copy of a run is about to leave the store."""
        await self._submit(lambda tx: audit.note(tx, root, by, via, "export", told), journal=False)

    async def halt_forsaken(self, root: str, data: dict[str, Any]) -> None:
        """Pause the runs of a family whose owner is gone, and that nobody takes over: whatever it was doing is in doubt."""
        await self._submit(lambda tx: _halt_forsaken(tx, root, data))

    async def call_off_move(self, root: str, request: str, *, by: str) -> None:
        """Let runs go on that were paused for a move, or asked to pause, which comes to nothing."""
        await self._submit(lambda tx: _call_off(tx, root, request, by))

    async def move(self, move: Move) -> None:
        """Make the runs 'moved', and keep the file; `Changed` if they are not as they were read."""
        await self._submit(move)

    async def moved(self, root: str) -> Moved | None:
        """Find where a run went, if it went anywhere and has not come back."""
        found = await self._read(rows, "export", run=root)
        return Moved(*found[0]) if found else None

    async def moved_content(self, bundle: str) -> bytes | None:
        """Read the file of a move again; None when its destination has confirmed it."""
        found = await self._read(rows, "export_content", bundle=bundle)
        return bytes(found[0][0]) if found and found[0][0] is not None else None

    async def take_back(self, work: TakeBack) -> None:
        """Make what was moved this store's again."""
        await self._submit(work)

    async def confirm(self, root: str, bundle: str, told: dict[str, Any], *, by: str, via: str) -> None:
        """Note that the destination has what was moved: the file is kept no longer. `RunActive` if it was taken back.

        `told` says for the audit how that is known.
        """
        await self._submit(lambda tx: _confirm(tx, root, bundle, told, by, via))

    async def import_bundle(self, work: Import) -> tuple[str, ...]:
        """Put a family into the store, whole or not at all; returns the questions that are open. `Unchanged` of a dry run."""
        return await self._submit(work)

    async def imported(self, bundle: str) -> int | None:
        """Tell when a bundle was imported here; None if it was not."""
        found = await self._read(rows, "imported", bundle=bundle)
        return found[0][1] if found else None

    async def came(self, run: str) -> Came | None:
        """Find the last move by which a run came here, whether it is still here or not."""
        found = await self._read(rows, "came", run=run)
        return Came(*found[0]) if found else None

    async def imported_from(self, run: str) -> str | None:
        """Name the store that a run was imported from; None if it began here."""
        found = await self._read(rows, "imported_from", run=run)
        return found[0][0] if found else None

    def check_takes(self, root: str) -> None:
        """Refuse a move of this run to a store that takes no bundle at all: `Unsupported` says which one does."""

    async def store_id(self) -> str:
        """Read the name of this store, which no other one has."""
        ((own, *_),) = await self._read(rows, "identity")
        return public_id(own)


class Moved(NamedTuple):
    """A move, as its source keeps it."""

    bundle: str
    run: str
    destination: str
    made_at: int
    confirmed_at: int | None
    undone_at: int | None


class Came(NamedTuple):
    """A move, as its destination remembers it."""

    bundle: str
    source: str
    at: int


def check_movable(root: RunRow) -> None:
    """Refuse to move a run that has ended, or that another export moved: no store would take it."""
    if is_shadow(root):
        raise RunFinished(f"run {root.id!r} cannot be exported from here{where_it_went(root)}")
    if root.status == "moved":
        raise RunFinished(
            f"run {root.id!r} was {root.reason} by another export meanwhile; export it again, and the bundle of that is written "
            "again"
        )
    if root.status in ("completed", "cancelled"):
        raise RunFinished(
            f"run {root.id!r} is {root.status}: it has ended, and there is nothing to move; copy it instead"
        )


def _call_off(tx: Transaction, root: str, request: str, by: str) -> Asking[None]:
    members = [row[0] for row in (yield from tx.rows("members", root=root))]
    for run in members:
        yield from tx.rows("hold_run", run=run)
    yield from let_go(tx, members, request, by)
    for run in members:
        row = yield from existing(tx, run)
        if row.status in ("ready", "running", "waiting"):
            yield from call_off(tx, row, {request}, by, f"{run}:{request}")


def _held_by(run: str) -> Asking[str | None]:
    """Find the request that holds a paused run; None if there is none, or the engine paused it."""
    found = yield from rows("run", run=run)
    paused = (yield from rows("paused_by", run=run, seq=RunRow(*found[0]).next_seq - 1)) if found else ()
    return json.loads(paused[0][0] or "{}").get("request") if paused else None


def _halt_forsaken(tx: Transaction, root: str, data: dict[str, Any]) -> Asking[None]:
    for row in (yield from tx.rows("members", root=root)):
        member = RunRow(*row)
        if member.status == "running" and member.due_at is not None and member.due_at <= tx.now:
            yield from halt(tx, member, "paused", "run.paused", data)


@dataclass(frozen=True, slots=True)
class Move:
    """Give a family up: from this commit on only the store that the bundle names may go on with it."""

    bundle: str
    root: str
    destination: str
    marks: dict[str, Mark]
    pause: str
    content: bytes
    reason: str
    by: str
    via: str

    def __call__(self, tx: Transaction) -> Asking[None]:
        for member in sorted(self.marks):
            yield from tx.rows("hold_run", run=member)
        if tx.again and (yield from tx.row("export_content", bundle=self.bundle)) is not None:
            return  # our own, whose commit was unknown
        members = [RunRow(*row) for row in (yield from tx.rows("members", root=self.root))]
        for row in members:
            if row.id == self.root:
                check_movable(row)
        now = {row.id: Mark.of(row) for row in members}
        if now != self.marks:
            raise Changed
        gone = [row.id for row in members if row.status not in ("completed", "cancelled")]
        ids = to_json(gone)
        state = [[getattr(row, name) for name in _STATE] for row in members if row.id in gone]
        talks = [[*row] for row in (yield from tx.rows("holding", ids=ids))]
        talks += [[*row, "waits"] for row in (yield from tx.rows("waiting_for", ids=ids))]
        yield from tx.rows("make_moved", ids=ids, reason=self.reason)
        closed = [question for (question,) in (yield from tx.rows("close_questions", ids=ids, note=self.reason))]
        yield from leave_all(tx, gone)
        before = {"pause": self.pause, "runs": state, "questions": closed, "talks": talks}
        yield from tx.rows("insert_export", bundle=self.bundle, run=self.root, destination=self.destination,
                           content=self.content, data=to_json(before))  # fmt: skip
        told = {"bundle": self.bundle, "to": self.destination, "runs": len(members)}
        yield from audit.note(tx, self.root, self.by, self.via, "move", told)
        for member in gone:
            tx.changed(member, News.STOPPED)


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Undo a move from the side of its source, whatever its destination did or does."""

    root: str
    by: str
    via: str

    def __call__(self, tx: Transaction) -> Asking[None]:
        for row in (yield from tx.rows("members", root=self.root)):
            yield from tx.rows("hold_run", run=row[0])
        moved = yield from tx.row("export", run=self.root)
        root = yield from existing(tx, self.root)
        # Runs below one that has ended here are taken back too: no store takes a bundle of these.
        away = any(RunRow(*row).status == "moved" for row in (yield from tx.rows("members", root=self.root)))
        if tx.again and not away:
            return  # our own, whose commit was unknown
        if moved is None or not away:
            raise RunActive(f"run {self.root!r} is {root.status}: it was not moved, and there is nothing to take back")
        if moved[4] is not None:
            raise RunFinished(f"run {self.root!r} was {root.reason}, and it came there: move it back from there")
        before = json.loads((yield from tx.row("export_content", bundle=moved[0]))[1])
        for state in before["runs"]:
            yield from tx.rows("take_back", **dict(zip(_STATE, state, strict=True)))
            tx.changed(state[0], News.DUE)
        yield from tx.rows("reopen_questions", ids=to_json(before["questions"]))
        for conversation, run, request, key, *waits in before["talks"]:
            owner = (yield from tx.row("hold_conversation", conversation=conversation))[2]
            if key is None and not waits and owner is not None:
                raise ConversationBusy(
                    f"run {run!r} had conversation {conversation!r}, which run {owner!r} has now; cancel that one, or wait for it",
                    conversation=conversation, run=owner,
                )  # fmt: skip
            yield from enter(tx, run, Enter(conversation, request, key, wait=True))
        yield from tx.rows("undo_export", bundle=moved[0])
        yield from let_go(tx, [state[0] for state in before["runs"]], MOVES, self.by)
        yield from audit.note(tx, self.root, self.by, self.via, "take_back", {"bundle": moved[0], "to": moved[2]})


def let_go(tx: Transaction, runs: Iterable[str], request: str, by: str) -> Asking[None]:
    """Let those of these runs go on that were paused for a move: by this request, or, with `MOVES`, by any.

    The export that paused a run may have died, or come too late: another one has moved it then.
    """
    for run in runs:
        row = yield from existing(tx, run)
        held = (yield from _held_by(run)) if row.status == "paused" else None
        if held is not None and held.startswith(request):
            yield from go_on(tx, row, by)


def _confirm(tx: Transaction, root: str, bundle: str, told: dict[str, Any], by: str, via: str) -> Asking[None]:
    yield from tx.rows("hold_run", run=root)  # first: a person who takes it back locks the run too
    row = yield from existing(tx, root)
    last = yield from tx.row("export", run=root)
    if row.status != "moved" or last is None or last[0] != bundle or last[5] is not None:
        raise RunActive(f"run {root!r} is {row.status}: that move was taken back, and there is nothing to confirm")
    yield from tx.rows("confirm_export", bundle=bundle)
    yield from audit.note(tx, root, by, via, "confirm_move", {"bundle": bundle, **told})


class Offline(NamedTuple):
    """A decision that was written into a bundle: its place there, and what it says."""

    place: int
    question: str
    ballot: Ballot
    blobs: dict[str, bytes]
    at: int


def refused_decision(place: int, by: str, why: str) -> str:
    """Say that a decision in a bundle does not count, and how to go on without it."""
    return (
        f"decision {place} in it, by {by!r}, does not count: {why}. Nothing was imported; without=[{place}] leaves it out, and its "
        "question stays open"
    )


def imported_before(run: str) -> BadBundle:
    """An error about a move that came before."""
    return BadBundle(
        f"this bundle was imported here before, as run {run!r}: a run is moved once. `holdfast receipt {run}` gives its receipt"
    )


def way_back(run: str) -> str:
    """Say how a run that its destination refuses becomes a run of its source again."""
    return f"Its source gave the run up. To have it back there: `holdfast export {run} --undo --force`"


def membership(asked: ApprovalRow, by: str, error: Exception) -> str:
    """Say how a person is made one of a group that a question is for, if that alone is missing."""
    groups = [name.removeprefix(GROUP) for name in json.loads(asked.recipients)]
    if not isinstance(error, NotAllowed) or not groups:
        return ""
    try:
        check_allowed(asked, Actor(by, groups))
    except NotAllowed:
        return ""
    return f". Whoever is in {groups[0]!r} is made known so, where it is imported: `holdfast key trust LINE --group {groups[0]}`"


@dataclass(frozen=True, slots=True)
class Import:
    """Put a family into this store. `ballots`: what people decided in the file; `without`: places of ballots left out.

    Locks nothing that another transaction could wait for it with: all rows are new, except what is left of a run that comes back.
    """

    manifest: Manifest
    found: Belongings
    ballots: Sequence[Offline]
    by: str
    via: str
    without: Sequence[int] = ()
    copy: NewFork | None = None  # of a copy: the run that it becomes here
    look: bool = False  # the store is one to look at the bundle in: nothing goes on
    dry_run: bool = False  # do everything, and then nothing of it: `Unchanged`
    started_by: str | None = None  # the starter of the run, as its source says

    def __call__(self, tx: Transaction) -> Asking[tuple[str, ...]]:
        manifest, found = self.manifest, self.found
        ((identity, *_),) = yield from tx.rows("identity")
        own = public_id(identity)
        before = yield from tx.row("imported", bundle=manifest.id)
        if before is not None and tx.again:
            return (yield from self._open_questions(tx))  # our own, whose commit was unknown
        if manifest.kind == "move" and before is not None:
            raise imported_before(before[0])
        if manifest.kind == "move" and manifest.destination != own and not self.look:
            raise BadBundle(
                f"this bundle is for the store {manifest.destination}, and this is {own}; import it there. If it was to come here, "
                f"take the move back in its source, `holdfast export {found.root} --undo --force`, and move it here: --move {own}"
            )
        yield from self._make_room(tx)
        yield from insert_blobs(tx, found.blobs)
        yield from self._insert_runs(tx)
        yield from self._insert_histories(tx)
        yield from self._insert_former(tx)
        if self.copy is not None:
            yield from self._insert_talks(tx, alone=True)
            yield from self._become_fork(tx, self.copy)
        else:
            yield from self._insert_questions(tx)
            yield from self._insert_talks(tx)
        if not self.look and self.copy is None:
            for row in found.runs:
                if row.status not in OVER:
                    yield from resubscribe(tx, row.id)
            yield from let_go(tx, [row.id for row in found.runs], MOVES, self.by)
        for place, question, ballot, blobs, at in self.ballots:
            try:
                yield from Decide(question, ballot, blobs, at=at)(tx)
            except _REFUSALS as error:
                (asked,) = [each for each in found.questions if each.id == question]
                why = str(error) + membership(asked, ballot.by.name, error)
                raise type(error)(refused_decision(place, ballot.by.name, why)) from None
        told = {"bundle": manifest.id, "from": manifest.source, "kind": manifest.kind, "runs": len(found.rows["runs"])}
        if self.without:
            told["without"] = list(self.without)
        if self.started_by is not None:
            told["started_by"] = self.started_by
        came = found.root if self.copy is None else self.copy.id
        yield from tx.rows("insert_import", bundle=manifest.id, run=came, kind=manifest.kind, source=manifest.source)
        yield from audit.note(tx, came, self.by, self.via, "import", told)
        still_open = yield from self._open_questions(tx)
        if self.dry_run:
            raise Unchanged(still_open)
        return still_open

    def _open_questions(self, tx: Transaction) -> Asking[tuple[str, ...]]:
        found = []
        for question in sorted(each.id for each in self.found.questions if self.copy is None and each.status == "open"):
            row = yield from tx.row("approval", approval=question)
            if row is not None and ApprovalRow(*row).status == "open":
                found.append(question)
        return tuple(found)

    def _make_room(self, tx: Transaction) -> Asking[None]:
        """Delete what is left of a run that comes back; refuse to take the place of any other."""
        found = self.found
        old = {row.id: row for row in [RunRow(*row) for row in (yield from tx.rows("members", root=found.root))]}
        comes_back = (
            found.root in old
            and old[found.root].status == "moved"
            and old[found.root].uid == found.runs[0].uid
            and self.manifest.kind == "move"
        )
        if comes_back:
            yield from delete_runs(tx, sorted(old))
            yield from tx.rows("settle_exports", run=found.root)
        if self.copy is not None and (yield from tx.row("fence", run=self.copy.id)) is not None:
            raise RunExists(f"there is a run {self.copy.id!r} here already; give the copy another id")
        for row in found.runs:
            there = yield from tx.row("fence", run=row.id)
            if there is not None:
                instead = f". It is itself here: fork it, `holdfast fork {found.root}`" if self.copy is not None else ""
                raise RunExists(
                    f"there is a run {row.id!r} here already, which is {there[0]}; nothing was imported{instead}"
                )
        for question in found.questions if self.copy is None else ():
            if (yield from tx.row("approval", approval=question.id)) is not None:
                raise RunExists(f"there is a question {question.id!r} here already; nothing was imported")

    def _insert_runs(self, tx: Transaction) -> Asking[None]:
        for row in self.found.runs:
            if self.copy is not None:
                row.singleton_key = None  # its fork has none either
            if row.singleton_key is not None and row.status not in FINISHED:
                other = yield from tx.row("singleton", key=row.singleton_key)
                if other is not None:
                    raise RunActive(
                        f"run {row.id!r} cannot come here while {other[0]!r}, of the same singleton, has not ended"
                    )
            values = {name: value for name, value in asdict(row).items() if name not in _OWN}
            values["epoch"] = values.pop("lease_epoch") + 1  # no owner from before can write here
            yield from tx.rows("import_run", **values)
            tx.changed(row.id, News.DUE)
        yield from _many("spend", self.found.rows["spending"])

    def _insert_histories(self, tx: Transaction) -> Asking[None]:
        told = self.found.rows
        events = [
            [run, seq, kind, key, data, value, blob, epoch, at]
            for run, seq, kind, key, data, value, blob, at, epoch, _ in told["events"]
        ]
        yield from _many("record", events)
        for run, seq, *_, dropped in told["events"]:
            if dropped is not None:
                yield from tx.rows("drop_event", run=run, seq=seq, dropped=dropped)
        for run in sorted({run for run, _, kind, *_ in told["events"] if kind == "run.interrupted"}):
            yield from tx.rows("count_interruptions", run=run)
        texts, uses = dict(told["parts"]), defaultdict[str, dict[str, str]](dict)
        for run, part in told["uses"]:
            uses[run][part] = texts[part]
        if uses:
            yield from keep_parts(tx, sorted(uses.items()))
        chunks = [
            [run, stream, position, kind, base64.b64decode(data), key, attempt, began, reason, epoch, at]
            for run, stream, position, kind, data, key, attempt, began, reason, epoch, at in told["chunks"]
        ]
        yield from _many("insert_chunk", chunks)
        for run, position, signal_id, kind, topic, value, data, sent_at in told["signals"]:
            yield from tx.rows("insert_signal", run=run, position=position, signal_id=signal_id, kind=kind, topic=topic,
                               value=value, data=data, now=sent_at)  # fmt: skip

    def _insert_questions(self, tx: Transaction) -> Asking[None]:
        for row in self.found.questions:
            yield from tx.rows("import_approval", **_renamed(asdict(row)))
        for approval, run in self.found.rows["askers"]:
            yield from tx.rows("join_question", approval=approval, run=run)

    def _insert_talks(self, tx: Transaction, *, alone: bool = False) -> Asking[None]:
        """Bring conversations along. One that is here already must be the same one, as far as both go. `alone`: nobody has them."""
        said: dict[str, list[list[Any]]] = defaultdict(list)
        for conversation, *message in self.found.rows["messages"]:
            said[conversation].append(message)
        for conversation, length, created_at, updated_at, run, request in self.found.rows["conversations"]:
            yield from tx.rows("import_conversation", conversation=conversation, since=created_at, now=updated_at)
            _, here, owner = yield from tx.row("hold_conversation", conversation=conversation)
            there = yield from tx.rows("said", conversation=conversation, first=0, end=min(here, length))
            if [row[1] for row in there] != [message[1] for message in said[conversation][: len(there)]]:
                raise BadArguments(f"conversation {conversation!r} is another one here; nothing was imported")
            has = run is not None and not alone
            if has and (owner is not None or here > length):
                raise ConversationBusy(
                    f"run {run!r} has conversation {conversation!r}, which another run has here, or added to; nothing was imported",
                    conversation=conversation, run=owner or "",
                )  # fmt: skip
            if here < length:
                new = [[conversation, *message] for message in said[conversation][here:]]
                yield from _many("insert_message", new)
                yield from tx.rows("extend_conversation", conversation=conversation, end=length)
            if has:
                yield from tx.rows("pass_on", conversation=conversation, run=run, request=request)
        for conversation, run, request, key in () if alone else self.found.rows["waiting"]:
            yield from enter(tx, run, Enter(conversation, request, key, wait=True))

    def _insert_former(self, tx: Transaction) -> Asking[None]:
        """Keep what forks know of other runs, under names that no run has."""
        told, mark = self.found.rows, self.manifest.id[:8]

        def kept(base: str) -> str:
            return f"#{base.removeprefix('#')[:280]}#{mark}"

        events = [
            [kept(base), seq, kind, key, data, value, blob, epoch, at]
            for base, seq, kind, key, data, value, blob, at, epoch, _ in told["bases"]
        ]
        yield from _many("record", events)
        for base, seq, *_, dropped in told["bases"]:
            if dropped is not None:
                yield from tx.rows("drop_event", run=kept(base), seq=seq, dropped=dropped)
        for run, part, base, first, until, seen, name in told["lineage"]:
            segment = {"part": part, "base": kept(base), "first": first, "until": until, "seen": seen, "name": name}
            yield from tx.rows("insert_segment", run=run, **segment)
        for base, text, data in told["archived"]:
            yield from tx.rows("archive_run", name=kept(base), input=text, data=data)
        for run, base, name, at, starters in told["forks"]:
            yield from tx.rows("import_fork", run=run, base=kept(base), name=name, seq=at, names=starters)

    def _become_fork(self, tx: Transaction, copy: NewFork) -> Asking[None]:
        """Make of the family one run that goes on from where it stood; of the family itself only what that run needs is kept."""
        yield from Fork(copy)(tx)
        yield from delete_runs(tx, [row.id for row in self.found.runs])


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    """Name the columns of a question as statements name them."""
    row["run"], row["root"], row["by"] = row.pop("run_id"), row.pop("root_id"), row.pop("decided_by")
    return row


def _many(query: str, rows: list[list[Any]]) -> Asking[None]:
    for start in range(0, len(rows), _AT_ONCE):
        yield Count(query, rows[start : start + _AT_ONCE])


def sections_of(found: Belongings) -> Iterable[tuple[str, list[list[Any]]]]:
    """Give the rows in the order in which they stand in a bundle."""
    return [(name, found.rows[name]) for name in SECTIONS]
