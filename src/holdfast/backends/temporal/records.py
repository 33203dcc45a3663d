"""Records: what of a run travels to and from the cluster, as text. Look here for what a history of Temporal's says of a journal.

A run starts with a `Start`. What its engine records goes into the history as pieces, in order: an event of the journal, a
question as it is now ("?"), or parts of inputs ("#"). A piece that is too large for a payload is cut ("+"). The result of a step
lies there already, as that of its activity: its event names the activity instead. When a run goes on in another execution, that
begins with a `State`: all that the engine needs to go on.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from holdfast.store.runs import NewRun
from holdfast.store.work import to_json
from holdfast.words.model import ApprovalRow, Event, RunRow, Signal

_STILL: Final = (
    "id", "uid", "agent", "input", "version", "queue", "parent_id", "parent_key", "root_id", "labels", "created_at", "priority",
    "identity", "budget",
)  # fmt: skip
LISTED: Final = _STILL  # what a list shows of that; arguments if they are short
# What a memo tells of a run besides what it was started with.
_MOVING: Final = (
    "status", "due_at", "waits_for", "reason", "error", "next_seq", "steps", "lease_epoch", "inbox_count", "inbox_seen",
    "started_at", "finished_at", "updated_at", "checkpoint_seq",
)  # fmt: skip
_ERROR_LENGTH: Final = 4_000
_SLICE: Final = 1_000_000  # bytes that are compressed at once
_PART: Final = 900_000  # characters of a part of a piece, which travel as twice as many at most
Piece = list[Any]
Held = list[Any]  # a run that has a budget, that budget, and since when it holds
Came = list[Any]  # the place of a signal, its kind, its topic and when it came


@dataclass(slots=True)
class Start:
    """Beginning of a run: what never changes of its row, the agents from the root down, and the starter of the root."""

    row: RunRow
    path: list[str]
    starters: list[str]
    longest: int  # events of one execution; the same for as long as the run lives, or replay would go on elsewhere
    above: list[str] = field(default_factory=list)  # the runs from the root down to the one that started it
    side: bool = False  # there is a database beside the cluster; it stays so, as `longest` does
    budgets: list[Held] = field(default_factory=list)  # those of runs above that hold for it

    @classmethod
    def of(
        cls, new: NewRun, path: list[str], starters: list[str], longest: int, now: int, above: Iterable[str] = (), *,
        side: bool = False, budgets: Iterable[Held] = (),
    ) -> Start:  # fmt: skip
        """Make the beginning of a run that is to be created."""
        row = RunRow(
            new.id, new.uid, new.agent, "ready", new.input, new.version, new.queue, now + new.delay_ms, labels=new.labels,
            parent_id=new.parent_id, parent_key=new.parent_key, root_id=new.root_id or new.id, created_at=now,
            updated_at=now, identity=new.identity, priority=new.lane.priority, budget=new.budget,
        )  # fmt: skip
        return cls(row, [*path, new.agent], starters, longest, [*above], side, [*budgets])

    def line(self) -> list[list[Any]]:
        """The runs from the root down to this one: each with its agent, its budget if it has one, and since when that holds."""
        held = {run: (budget, began) for run, budget, began in self.held()}
        runs = zip([*self.above, self.row.id], self.path, strict=True)
        return [[run, agent, *held.get(run, (None, None))] for run, agent in runs]

    def held(self) -> list[Held]:
        """The budgets that hold for runs below this one: those above it, and its own."""
        row = self.row
        own: list[Held] = [] if row.budget in (None, "{}") else [[row.id, row.budget, row.started_at]]
        return [*self.budgets, *own]

    def text(self) -> str:
        row = {name: getattr(self.row, name) for name in _STILL}
        said = {"row": row, "path": self.path, "starters": self.starters, "longest": self.longest, "above": self.above}
        said |= {"budgets": self.budgets} if self.budgets else {}
        return to_json(said | ({"side": True} if self.side else {}))

    @classmethod
    def read(cls, text: str) -> Start:
        said = json.loads(text)
        row = RunRow(status="ready", **said["row"])
        budgets = said.get("budgets", [])
        return cls(row, said["path"], said["starters"], said["longest"], said["above"], "side" in said, budgets)


@dataclass(slots=True)
class State:
    """All that a run goes on with in another execution."""

    events: list[Event] = field(default_factory=list)  # since the last checkpoint, and the events that it names
    row: dict[str, Any] = field(default_factory=dict)
    questions: dict[str, ApprovalRow] = field(default_factory=dict)
    children: dict[str, dict[str, Any] | None] = field(default_factory=dict)  # how each ended, or None
    signals: list[Signal] = field(default_factory=list)  # that the engine has not taken yet
    known: dict[str, Came] = field(default_factory=dict)  # signals that came lately, by their ids
    pauses: list[str] = field(default_factory=list)  # requests to pause that hold, or are to
    held: bool = False  # the run is paused
    cut: int = 0  # executions before this one
    parts: dict[str, str] = field(default_factory=dict)  # of inputs that events name, by their digests
    dropped: list[Event] = field(default_factory=list)  # that a retry took out of the journal
    unborn: bool = False  # it came with a run that is not here yet, and waits for that
    frees: list[str] = field(default_factory=list)  # runs that came with this one, and wait for it
    over: dict[str, Any] | None = None  # how it had ended when it came
    called_off: list[str] = field(default_factory=list)  # requests to pause that were undone before they came

    def pack(self) -> bytes:
        return b"".join(self._packed())

    def pack_within(self, limit: int, may_have_more: Callable[[], bool]) -> bytes | None:
        """Pack it into so many bytes, or into more, if it may: that is asked once, as soon as it has more; None if it may not."""
        taken, size, is_within = list[bytes](), 0, True
        for piece in self._packed():
            taken.append(piece)
            size += len(piece)
            if is_within and size > limit:
                if not may_have_more():
                    return None
                is_within = False
        return b"".join(taken)

    def _packed(self) -> Iterator[bytes]:
        said = {
            "events": [listed(event) for event in self.events], "row": self.row,
            "questions": [asdict(row) for row in self.questions.values()], "children": self.children,
            "signals": [[s.position, s.kind, s.topic, s.value, s.data, s.sent_at] for s in self.signals],
            "known": self.known, "pauses": self.pauses, "held": self.held, "cut": self.cut, "parts": self.parts,
            "dropped": [[*listed(event), event.dropped] for event in self.dropped], "unborn": self.unborn, "frees": self.frees,
            "over": self.over, "called_off": self.called_off,
        }  # fmt: skip
        text, packer = to_json(said).encode(), zlib.compressobj(1)
        for first in range(0, len(text), _SLICE):
            yield packer.compress(text[first : first + _SLICE])
        yield packer.flush()

    @classmethod
    def unpack(cls, content: bytes) -> State:
        said = json.loads(zlib.decompress(content))
        return cls(
            [event_of(each) for each in said["events"]], said["row"],
            {each["id"]: ApprovalRow(**each) for each in said["questions"]}, said["children"],
            [Signal(*each) for each in said["signals"]], said["known"], said["pauses"], said["held"], said["cut"], said["parts"],
            [_dropped(each) for each in said["dropped"]], said["unborn"], said["frees"], said["over"],
            said.get("called_off", []),
        )  # fmt: skip


def listed(event: Event, activity: str | None = None) -> Piece:
    """An event as a list; of one whose value is the result of an activity only the name of that."""
    value = event.value if activity is None else None
    made = [event.seq, event.kind, event.key, event.data, value, event.at, event.epoch]
    return made if activity is None else [*made, activity]


def cut(piece: Piece, name: int) -> list[Piece]:
    """Cut a piece that is too large for a payload. Each part has the name of the piece, its place, and how many there are."""
    text = json.dumps(piece, separators=(",", ":"))
    parts = [text[first : first + _PART] for first in range(0, len(text), _PART)]
    return [["+", name, nth, len(parts), part] for nth, part in enumerate(parts)]


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Join what was cut in one execution. A piece of which a part is missing is left out."""
    found, parts = list[Piece](), dict[int, dict[int, str]]()
    for piece in pieces:
        if piece[0] != "+":
            found.append(piece)
            continue
        _, name, nth, many, part = piece
        (known := parts.setdefault(name, {}))[nth] = part
        if len(known) == many:
            found.append(json.loads("".join(known[nth] for nth in range(many))))
    return found


def event_of(piece: Piece, results: Mapping[str, str] | None = None) -> Event:
    """An event from such a list, and the results of activities by their names."""
    seq, kind, key, data, value, at, epoch = piece[:7]
    if len(piece) > 7:
        value = (results or {}).get(piece[7])
    return Event(seq, kind, key, data, value, None, at, epoch)


def _dropped(piece: Piece) -> Event:
    event = event_of(piece[:7])
    event.dropped = piece[7]
    return event


def moving(row: RunRow) -> dict[str, Any]:
    """Write what a memo tells of a run."""
    told = {name: getattr(row, name) for name in _MOVING}
    if told["error"] is not None and len(told["error"]) > _ERROR_LENGTH:
        error = json.loads(told["error"])
        told["error"] = to_json({"type": error.get("type", ""), "message": str(error.get("message", ""))[:1000]})
    return {name: value for name, value in told.items() if value is not None}


def moved(row: RunRow, told: Mapping[str, Any]) -> RunRow:
    """Put into a row what a memo tells of it."""
    for name in _MOVING:
        setattr(row, name, told.get(name, 0 if name in _COUNTS else None))
    return row


_COUNTS: Final = frozenset(each.name for each in fields(RunRow) if each.name in _MOVING and each.default == 0)
