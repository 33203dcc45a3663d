"""The nouns: run, event, signal, approval; and the two tables that say which states and events there are.

Nothing here does I/O. Times are milliseconds since 1970, by the store's clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from holdfast.errors import BadArguments
from holdfast.values.text import is_whole, short

Status = Literal["ready", "running", "waiting", "paused", "completed", "failed", "cancelled", "moved"]
WaitsFor = Literal["timer", "person", "message", "child", "worker", "retry", "slot", "rate", "conversation", "group"]

# Which states can follow which: the picture and the table in docs/design.md are made from this.
TRANSITIONS: Final[dict[str, tuple[str, ...]]] = {
    "ready": ("running", "paused", "cancelled"),
    "running": ("ready", "waiting", "paused", "completed", "failed", "cancelled"),
    "waiting": ("running", "ready", "paused", "cancelled", "moved"),
    "paused": ("ready", "cancelled", "moved"),
    "completed": (),
    "failed": ("ready", "moved"),
    "cancelled": (),
    "moved": ("waiting", "paused", "failed"),
}
FINISHED: Final = frozenset({"completed", "failed", "cancelled", "moved"})  # here: a moved one goes on in another store
ON_TEMPORAL: Final = "it is on Temporal"  # why the row of such a run in the database beside the cluster is 'moved'
UNFINISHED: Final = ("ready", "running", "waiting", "paused")
CRASHES_APART: Final = 2  # without any progress in between: then a run is carried apart from others
CRASHES_PAUSED: Final = 5  # the same, and alone in the end: then a run is stopped, and only a person lets it go on
CRASHES_AT_MOST: Final = 12  # the same, with whatever company


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of event, and its meaning to replay.

    `closes`: it is the outcome of a call, so a key has at most one. `arrives`: it comes from the inbox and needs no call
    to ask for it. Both are delivered through the gate in journal order; all other kinds only say what was begun.
    `stays`: a retry that cuts the history before it keeps it all the same, if its call was made before the cut.
    """

    meaning: str
    closes: bool = False
    arrives: bool = False
    stays: bool = False


KINDS: Final[dict[str, Kind]] = {
    "run.interrupted": Kind("a worker took the run over from one that died or lost its lease"),
    "run.pausing": Kind("somebody asked the run to pause"),
    "run.paused": Kind("the run stopped at a safe point and waits to be resumed"),
    "run.resumed": Kind("the run was told to go on"),
    "run.retried": Kind("a failed run goes on from its failure"),
    "run.forked": Kind("the run has its past from another one; from here on it is one of its own", arrives=True),
    "run.cancelling": Kind("somebody asked the run to stop", arrives=True),
    "run.unwinding": Kind("the agent was told to stop, after its children had ended", arrives=True),
    "run.completed": Kind("the agent returned"),
    "run.failed": Kind("the agent raised"),
    "run.cancelled": Kind("the run was cancelled"),
    "step.started": Kind("a body is about to run (written only where a crash must be noticed)", stays=True),
    "step.held": Kind("a body waits for its turn: its step has a rate", stays=True),
    "step.progress": Kind("the body of a step said how far it has come", stays=True),
    "step.retrying": Kind("an attempt failed; the next one comes later", stays=True),
    "step.completed": Kind("a step returned", closes=True, stays=True),
    "step.failed": Kind("a step failed for good", closes=True),
    "step.cancelled": Kind("the agent stopped waiting for a step", closes=True),
    "timer.set": Kind("a durable wait began", stays=True),
    "timer.fired": Kind("a durable wait is over", closes=True, stays=True),
    "tick": Kind("a plain asyncio timer of the agent fired", closes=True, stays=True),
    "message.received": Kind("a message arrived", arrives=True),
    "child.started": Kind("a child run was started by calling an agent", stays=True),
    "child.spawned": Kind("a child run was started by spawn", closes=True, stays=True),
    "child.ended": Kind("a child run ended", arrives=True),
    "approval.asked": Kind("a person was asked", stays=True),
    "approval.reminded": Kind("the person was reminded", stays=True),
    "approval.delegated": Kind("the question was passed on to somebody else", arrives=True),
    "approval.voted": Kind("one of several people agreed, or changed what is shown", arrives=True),
    "approval.decided": Kind("a person decided", arrives=True),
    "approval.expired": Kind("nobody decided in time", arrives=True),
    "approval.withdrawn": Kind("the agent stopped waiting for the person", stays=True),
    "budget.low": Kind("most of a budget is spent: its soft limit was passed"),
    "conversation.asked": Kind("the agent asked for a conversation", stays=True),
    "conversation.entered": Kind("the conversation is this run's until it leaves it or ends", arrives=True),
    "conversation.refused": Kind("another run has the conversation, and this one did not wait", arrives=True),
    "conversation.withdrawn": Kind("the agent stopped waiting for the conversation", stays=True),
    "conversation.read": Kind("the agent read a part of the conversation", closes=True, stays=True),
    "conversation.added": Kind("the agent added messages to the conversation", closes=True, stays=True),
    "conversation.left": Kind("the agent left the conversation; the next run may have it", closes=True, stays=True),
    "announcement.published": Kind("the agent published an announcement", closes=True, stays=True),
    "announcement.awaited": Kind("the run hears of announcements from here on", closes=True, stays=True),
    "patched": Kind("the run took the new side of a patched line"),
    "note": Kind("the agent wrote a line into its history", closes=True, stays=True),
    "progress": Kind("the agent said how far it has come", closes=True),
    "plan": Kind("the agent said what it means to do, and what of it is done", closes=True),
    "checkpoint": Kind("the agent's state was stored; replay starts here", closes=True),
    "stream.opened": Kind("the agent began to write to a stream", closes=True),
    "stream.closed": Kind("the agent ended what it wrote to a stream", closes=True),
    "stream.read": Kind("the agent looked at what was left in a stream", closes=True),
    "foreign": Kind("agent code did, or waited for, something that is not recorded (raw I/O, a thread)"),
}
OUTCOMES: Final = frozenset(name for name, kind in KINDS.items() if kind.closes or kind.arrives)
CLOSING: Final = frozenset(name for name, kind in KINDS.items() if kind.closes)


@dataclass(slots=True)
class Event:
    """One line of a run's journal. `value` is an encoded payload; a large one lies in `blobs` under the digest `blob`."""

    seq: int
    kind: str
    key: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    value: str | None = None
    blob: str | None = None
    at: int = 0
    epoch: int = 0
    run: str = ""
    position: int = 0  # where it stands in the order of all events of the store
    dropped: int | None = None  # the seq of the retry that took it out of the history


@dataclass(frozen=True, slots=True)
class Recorded:
    """A completed step that the journal holds and the code has not asked for yet."""

    key: str
    where: str  # the key from the name of its scope on, without what was looked for
    name: str
    asked: int  # how many outcomes the run had seen when it was asked for
    place: int  # how many came before it
    text: str  # its result


@dataclass(slots=True)
class RunRow:
    """A run as the store keeps it."""

    id: str
    uid: str
    agent: str
    status: str
    input: str
    version: str | None = None
    queue: str = "default"
    due_at: int | None = None
    lease_owner: str | None = None
    lease_epoch: int = 0
    next_seq: int = 0
    checkpoint_seq: int | None = None
    inbox_count: int = 0
    inbox_seen: int = 0
    awaits: str | None = None  # JSON list of the topics that may wake it; None: any
    waits_for: str | None = None
    crash_count: int = 0
    parent_id: str | None = None
    parent_key: str | None = None
    root_id: str = ""
    labels: str = "{}"
    result: str | None = None
    error: str | None = None  # JSON error record
    reason: str | None = None
    steps: int = 0  # steps completed, for lists
    created_at: int = 0
    started_at: int | None = None
    finished_at: int | None = None
    updated_at: int = 0
    priority: int = 5
    limit_key: str | None = None
    limit_n: int | None = None
    rate_key: str | None = None
    rate_n: int | None = None
    rate_ms: int | None = None
    singleton_key: str | None = None
    budget: str | None = None  # JSON; an empty object: one above it has one
    identity: str | None = None  # the digest of its input; None: begun when inputs were kept without their defaults
    company: int | None = (
        None  # how many may be carried with it, after two crashes; 0: it was alone when its process died
    )
    life: str | None = None  # what it did so far (`words/life.py`); None: nothing yet, or it is not known
    life_at: int | None = None  # when the piece of it that lasts began
    worked_ms: int = 0  # for so long its owners had it, up to there
    interruptions: int = 0  # that there ever were


# Agents by name: the newest version, the schema of its arguments as JSON, and the versions that live workers serve ('' is
# among them if there are any: a run without a version is served by all).
Published = dict[str, tuple[str | None, str, frozenset[str]]]


def is_served(row: RunRow, published: Published) -> bool:
    """Does a live worker have the code for this run?"""
    return (row.version or "") in published.get(row.agent, (None, "", frozenset[str]()))[2]


_TOPICS: Final = {  # kinds of signals whose topic is part of what their event says, under this name
    "child.ended": "child",
    "approval.decided": "approval",
    "message.received": "topic",
    "conversation.entered": "request",
    "conversation.refused": "request",
}


_VOIDED: Final = (
    "run.pausing",
    "child.ended",
    "conversation.entered",
)  # kinds that may be taken back before they are seen


@dataclass(slots=True)
class Signal:
    """Something that came to a run from outside: a message, a child's end, a person's decision."""

    position: int
    kind: str  # the kind of the event it becomes
    topic: str
    value: str | None
    data: dict[str, Any]
    sent_at: int

    def recorded(self) -> dict[str, Any] | None:
        """Data for its event; None if there will be none.

        A pause was called off, a child that was retried ends again, or a turn in a conversation was over before it was seen.
        """
        if self.kind in _VOIDED and not self.data:
            return None
        name = _TOPICS.get(self.kind)
        return self.data if name is None else {**self.data, name: self.topic}


@dataclass(slots=True)
class Claimed(RunRow):
    """A run that was just claimed, with its journal since the last checkpoint, if that is short; else None."""

    journal: list[Event] | None = None
    silent: bool = False  # it is known that it never wrote to a stream


@dataclass(slots=True)
class ApprovalRow:
    """A question to a person, and its answer once there is one."""

    id: str
    run_id: str
    root_id: str
    path: str  # JSON list of the agents from the root run down to this one
    key: str
    kind: str  # 'approve', 'ask' or 'in_doubt'
    question: str
    shown: str | None  # the value as it was shown, exactly
    digest: str  # names the value as it is now, by its own digest once it was edited: a decision is for that
    schema: str | None  # of what may be edited or answered; null: nothing
    recipients: str  # JSON list of people and groups; empty: anybody
    needs: str  # JSON: how many must agree, or how many for the value with a digest
    votes: str  # JSON list: by, yes, note, at, digest
    delegations: str  # JSON list: by, to, note, at
    expires_at: int | None
    fallback: str | None  # what holds when it expires
    remind_ms: int | None
    status: str  # 'open', 'decided', 'expired', 'withdrawn'
    asked_at: int
    data: str | None = None  # the value as last edited, or the answer
    decided_at: int | None = None
    decided_by: str | None = None
    decision: str | None = None  # 'approved', 'denied', 'answered'
    note: str | None = None
    not_by: str | None = None  # JSON list of people who may not decide it; null: nobody is left out


_RUN_ID = re.compile(r"[\w.:@-]{1,200}", re.ASCII)


def checked_conversation_id(conversation: str) -> str:
    """The id itself, or `BadArguments` that says what an id looks like."""
    if not isinstance(conversation, str) or not _RUN_ID.fullmatch(conversation):
        raise BadArguments(
            f"{short(conversation)} cannot name a conversation; use 1 to 200 letters, digits or any of '_ . : @ -', for example "
            "'user-42'"
        )
    return conversation


def plain_id(name: str) -> str:
    """A name as the beginning of a run id: what an id cannot have becomes an underscore."""
    if _RUN_ID.fullmatch(name):
        return name  # as nearly always; a second pattern would be compiled when the first run of a process starts
    return re.sub(r"[^\w.:@-]", "_", name, flags=re.ASCII)


def checked_statuses(states: str | Iterable[str]) -> list[str]:
    """The states of runs, or `BadArguments` that says which there are."""
    found = [states] if isinstance(states, str) else list(states)
    for state in found:
        if state not in TRANSITIONS:
            raise BadArguments(f"{state!r} is no state of a run; there are: {', '.join(TRANSITIONS)}")
    return found


def checked_kinds(kinds: str | Iterable[str]) -> list[str]:
    """The kinds of events that these words mean, or `BadArguments`: 'approval' alone is all that happens to questions."""
    found: list[str] = []
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        family = [kind] if kind in KINDS else [each for each in KINDS if each.partition(".")[0] == kind]
        if not family:
            raise BadArguments(f"{kind!r} is no kind of event; there are: {', '.join(KINDS)}")
        found += family
    return found


def checked_limit(limit: int) -> int:
    """Check how many are listed at most; else `BadArguments`."""
    if not is_whole(limit, 0):
        raise BadArguments(f"limit={short(limit)}: give a whole number from 0 on")
    return limit


def checked_place(place: int, name: str = "after") -> int:
    """The place of an event or a deed in an order, or `BadArguments`."""
    if not is_whole(place, -1):
        raise BadArguments(f"{name}={short(place)}: give the place of the last one seen, or 0")
    return place


def is_shadow(row: RunRow) -> bool:
    """Is this a row of a run that is on a Temporal cluster, in the database beside that?"""
    return row.status == "moved" and row.reason == ON_TEMPORAL


def where_it_went(row: RunRow) -> str:
    """Say where a run that was moved goes on, and how to get it back: the end of an error; empty for any other run."""
    if row.status != "moved":
        return ""
    if is_shadow(row):
        return f": {row.reason}, and this database stands beside the cluster; do this with the URL of the cluster"
    return (
        f": it was {row.reason}, and goes on there; do this there. If its bundle was lost, `holdfast export {row.root_id} --to "
        f"FILE` writes it again; if nobody has imported it, `holdfast export {row.root_id} --undo --force` takes it back"
    )


def is_run_id(text: str) -> bool:
    """Could a run, a question or a conversation have this id?"""
    return _RUN_ID.fullmatch(text) is not None


def checked_run_id(run_id: str) -> str:
    """The id itself, or `BadArguments` that says what an id looks like."""
    if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
        raise BadArguments(
            f"{short(run_id)} is not a run id; use 1 to 200 letters, digits or any of '_ . : @ -', for example 'invoice-42'"
        )
    return run_id


def is_awkward(run_id: str) -> bool:
    """Would a shell or a URL take this id for an option or a folder? Runs that have such an id keep it; new ones get none."""
    return run_id in (".", "..") or run_id.startswith("-")
