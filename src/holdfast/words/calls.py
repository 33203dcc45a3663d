"""Calls: what a run did, folded from the events of its journal. Events in, calls out; no database and no loop.

Look here for which event belongs to which call, how a call stands, and what it waits for. Lists of steps, snapshots, diffs and
summaries are readings of this one fold.

An event belongs to the call of its key. Arrivals have none: the end of a child names the child, a decision and a conversation
name the key of the call that asked. Calls are in the order of their first events. A retry takes events out of the history and
the same key is called again: what was taken out is a call of its own, marked by the number of that retry (`dropped`).

The journal does not know of everything. A body whose step has the policy "retry" leaves no trace before it ends, and a run that
waits for a message says so in its row alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from holdfast.errors import BadArguments
from holdfast.values.text import short
from holdfast.words.model import CLOSING, Event
from holdfast.words.spent import NOTHING, Spent


class OpenBody(NamedTuple):
    """A call whose body runs now, and may not have left any trace in the journal yet."""

    key: str
    name: str
    input: str  # in short
    attempt: int
    began: int


KeptAs = Literal["full", "digest"]  # how the input of a call is kept: all of it, or a digest and 120 characters
_KEPT: Final[tuple[KeptAs, ...]] = ("full", "digest")
State = Literal["running", "waiting", "completed", "failed", "cancelled"]
Sort = Literal[
    "step", "timer", "child", "question", "conversation", "announcement", "note", "progress", "plan", "checkpoint", "stream",
    "tick",
]  # fmt: skip

BEGUN: Final = frozenset(
    {
        "step.started", "step.held", "step.progress", "step.retrying", "timer.set", "child.started", "approval.asked",
        "conversation.asked",
    }
)  # fmt: skip
# Arrivals that end a call, or tell of it, though they have no key of their own.
ARRIVALS: Final = frozenset(
    {
        "child.ended", "approval.decided", "approval.expired", "approval.voted", "approval.delegated",
        "conversation.entered", "conversation.refused",
    }
)  # fmt: skip
_TOLD: Final = BEGUN | ARRIVALS | CLOSING  # kinds of events that begin a call or end one
_ENDS: Final[dict[str, State]] = {  # of calls of their own; what else closes a call completes it
    "step.failed": "failed",
    "step.cancelled": "cancelled",
    "approval.decided": "completed",
    "approval.expired": "completed",
    "approval.withdrawn": "cancelled",
    "conversation.entered": "completed",
    "conversation.refused": "failed",
    "conversation.withdrawn": "cancelled",
    "child.ended": "completed",
}
_SORTS: Final[dict[str, Sort]] = {"approval": "question"}  # what people call what the journal calls otherwise


@dataclass(slots=True)
class Awaited:
    """A thing that an open call waits for: question, timer, child, rate, retry, conversation or step; `what` names it."""

    sort: str
    what: str
    since: int
    until: int | None = None


@dataclass(slots=True, eq=False)
class Call:
    """One call of a run, with its events in order."""

    key: str
    sort: Sort
    name: str
    seq: int  # of its first event
    dropped: int | None = None  # the seq of the retry that took it out of the history
    events: list[Event] = field(default_factory=list)
    outcome: Event | None = None
    worker: str | None = None  # that wrote the last of its events, if an event said it

    def add(self, event: Event) -> None:
        """Take in the next of its events."""
        self.events.append(event)
        kind = event.kind
        if self.sort == "step":
            closes = kind in CLOSING
        elif kind == "approval.withdrawn" and self.outcome is not None:
            closes = False  # the answer came first
        else:
            closes = kind in CLOSING or kind in _ENDS
        if closes:
            self.outcome = event

    # What was called

    def fact(self, name: str, default: Any = None) -> Any:
        """Read what its events say under a name: the first that has it."""
        return next((event.data[name] for event in self.events if name in event.data), default)

    @property
    def input(self) -> str:
        """Its arguments in a line, cut to 120 characters."""
        return str(self.fact("input", ""))

    @property
    def digest(self) -> str:
        """Names its input: two calls with equal input have one digest."""
        return str(self.fact("digest", ""))

    @property
    def inputs(self) -> Any:
        """Its whole arguments as `holdfast.values.parts` tells them; None if they were not kept."""
        return self.fact("inputs")

    @property
    def asked(self) -> int:
        """Count the outcomes that the agent had seen when it made the call."""
        return int(self.fact("asked", 0))

    @property
    def is_model(self) -> bool:
        """Is it a request to a model, as far as its spending tells?"""
        return any(event.data.get("spent", {}).get("model_calls") for event in self.events)

    # How it stands

    @property
    def state(self) -> State:
        """Tell how it stands, by its events."""
        if self.outcome is not None:
            kind = self.outcome.kind
            if kind == "child.ended":
                status = str(self.outcome.data.get("status"))
                return "cancelled" if status == "cancelled" else "failed" if status == "failed" else "completed"
            return _ENDS.get(kind, "completed")
        return "running" if self.events[-1].kind in ("step.started", "step.progress") else "waiting"

    @property
    def attempts(self) -> int:
        """Count the bodies that ran, or were about to; 1 for what has no body."""
        found = 1
        for event in self.events:
            if event.kind == "step.retrying":
                found = max(found, event.data.get("attempt", 1))
            elif self.sort == "step":
                found = max(found, event.data.get("attempts") or event.data.get("attempt") or 1)
        return found

    @property
    def failures(self) -> list[Event]:
        """The attempts that failed and were tried again, in order."""
        return [event for event in self.events if event.kind == "step.retrying"]

    @property
    def error(self) -> dict[str, Any] | None:
        """The record of the error it failed with."""
        found = None if self.outcome is None else self.outcome.data.get("error")
        return found if isinstance(found, dict) else None

    @property
    def spent(self) -> Spent:
        """Add up the spending of all its attempts."""
        found = NOTHING
        for event in self.events:
            if "spent" in event.data:
                found += Spent.of(event.data["spent"])
        return found

    # When, and where

    @property
    def began(self) -> int:
        """The time at which its last body began, as far as that was recorded; else of its first event."""
        told = None if self.outcome is None else self.outcome.data.get("began")
        started = [event.at for event in self.events if event.kind == "step.started"]
        return int(told or (started[-1] if started else self.events[0].at))

    @property
    def ended(self) -> int | None:
        """The time at which its outcome was recorded."""
        return None if self.outcome is None else self.outcome.at

    @property
    def child(self) -> str | None:
        """The run it started, or waits for."""
        found = self.fact("child")
        return None if found is None else str(found)

    @property
    def pending(self) -> Awaited | None:
        """Name the thing that it waits for; None if it has ended."""
        if self.outcome is not None:
            return None
        last, data = self.events[-1], self.events[-1].data
        asked = next((event for event in reversed(self.events) if event.kind == "approval.asked"), None)
        if asked is not None and (self.sort == "question" or last.kind.startswith("approval.")):
            return Awaited("question", str(asked.data.get("approval", "")), asked.at)
        if last.kind == "timer.set":
            until = data.get("until")
            return Awaited(
                "timer", self.name.lstrip(":"), last.at, last.at + (data.get("ms") or 0) if until is None else until
            )
        if last.kind == "step.held":
            return Awaited("rate", str(data.get("rate") or self.name), last.at, data.get("at"))
        if last.kind == "step.retrying":
            return Awaited("retry", self.name, last.at, last.at + data.get("wait_ms", 0))
        if self.sort == "child":
            return Awaited("child", self.child or "", self.events[0].at)
        if self.sort == "conversation":
            return Awaited("conversation", str(data.get("conversation", "")), self.events[0].at)
        return Awaited("step", self.name, self.began)


class Calls:
    """The fold. `add` takes events in order; `made` are the calls, in the order of their first events."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.made: list[Call] = []
        self.workers: dict[int, str] = {}  # by epoch, as far as the events so far say
        self._by_key: dict[tuple[str, int | None], Call] = {}
        self._by_child: dict[tuple[str, int | None], Call] = {}
        self._by_question: dict[str, Call] = {}  # what is said to one that a retry took out is not taken out with it
        for event in events:
            self.add(event)

    def __iter__(self) -> Iterator[Call]:
        return iter(self.made)

    def add(self, event: Event) -> Call | None:
        """Take in an event; returns the call it belongs to, if it belongs to one that is known."""
        worker = event.data.get("worker")
        if (
            worker is not None
        ):  # the first event of each claim says it; a history may go on in another run, whose epochs begin anew
            self.workers[event.epoch] = str(worker)
        call = self._call_of(event)
        if call is not None:
            call.add(event)
            call.worker = self.workers.get(event.epoch)
        return call

    def find(self, key: str, dropped: int | None = None) -> Call | None:
        """Look a call up by its key."""
        return self._by_key.get((key, dropped))

    def forget(self, calls: Iterable[Call]) -> None:
        """Let go of calls that have ended: a reader of a long history keeps only what is open."""
        for call in calls:
            self._by_key.pop((call.key, call.dropped), None)
            if call.child is not None:
                self._by_child.pop((call.child, call.dropped), None)
            for event in call.events if call.sort in ("question", "step") else ():
                if event.kind == "approval.asked":
                    self._by_question.pop(str(event.data.get("approval")), None)
        gone = {id(call) for call in calls}
        self.made = [call for call in self.made if id(call) not in gone]

    def _call_of(self, event: Event) -> Call | None:
        kind, data = event.kind, event.data
        if kind == "child.ended":
            return self._of_child(str(data.get("child")), event.dropped)
        key = key_of(event)
        if key is None:
            return None
        # A question that belongs to a step, and what is said to it, stands with the other events of the step.
        asked = self._by_question.get(str(data.get("approval"))) if kind in ARRIVALS else None
        call = (
            asked
            or self._by_key.get((key, event.dropped))
            or (self._by_key.get((key, None)) if kind in ARRIVALS or kind == "approval.withdrawn" else None)
        )
        if call is None:
            if kind in ARRIVALS:
                return None
            word = str(data.get("of") or kind.partition(".")[0])
            if kind == "approval.asked" and data.get("kind") in ("in_doubt", "loop"):
                word = "step"
            sort: Any = _SORTS.get(word, word)
            call = Call(key, sort, str(data.get("name") or f":{word}"), event.seq, event.dropped)
            self._by_key[key, event.dropped] = call
            self.made.append(call)
        if "child" in data:
            self._by_child[str(data["child"]), event.dropped] = call
        if kind == "approval.asked" and "approval" in data:
            self._by_question[str(data["approval"])] = call
        return call

    def _of_child(self, child: str, dropped: int | None) -> Call | None:
        call = self._by_child.get((child, dropped)) or self._by_child.get((child, None))
        # A child that was spawned is told to have been started; its end is another matter, and belongs to no call.
        return None if call is None or call.outcome is not None else call


class Passing:
    """The fold of a long history: gives out each call when it ends, and keeps those alone that are open."""

    def __init__(self) -> None:
        self.open = Calls()

    def ended(self, events: Iterable[Event]) -> list[Call]:
        """Take in the next events, which are in order; returns the calls that end with them."""
        found: list[Call] = []
        for event in events:
            key = key_of(event)
            # Whatever is said of a call that has ended says nothing new of it.
            if key is None or event.kind in _TOLD or self.open.find(key) is not None:
                call = self.open.add(event)
                if call is not None and call.outcome is event:
                    found.append(call)
        self.open.forget(found)
        return found


def checked_inputs(inputs: object) -> KeptAs | None:
    """Check how inputs are to be kept; None leaves it to others. `BadArguments` says which ways there are."""
    if inputs is None:
        return None
    for known in _KEPT:
        if inputs == known:
            return known
    raise BadArguments(
        f"inputs={short(inputs)}: use 'full' to keep the whole arguments of steps, or 'digest' for a digest and 120 characters"
    )


def key_of(event: Event) -> str | None:
    """Name the call that an event belongs to; None if it belongs to none, or only a child's id tells."""
    if event.key is not None:
        return event.key
    if event.kind.startswith(("approval.", "conversation.")):
        key = event.data.get("key")
        return None if key is None else str(key)
    return None
