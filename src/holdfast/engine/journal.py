"""The history of one run, as its owner sees it. No I/O and no loop: events in, answers out.

Outcomes have one order, that of their numbers: outcomes recorded before come first, then outcomes that become durable in
this life (`land`). `next` is the one to be delivered next, and `move_on` passes it, on replay and live alike. What was only
begun (a timer, a child, an attempt) is kept by key, for the call that will ask for it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.values.text import short
from holdfast.words.model import KINDS, OUTCOMES, Event

# Arrivals that end a call, and by which of their data the call names what it waits for.
_ENDS: Final = {
    "child.ended": "child",
    "approval.decided": "approval",
    "approval.expired": "approval",
    "conversation.entered": "request",
    "conversation.refused": "request",
}
_PAUSES = ("run.pausing", "run.paused", "run.resumed", "run.retried")


@dataclass(slots=True)
class Journal:
    """All that was recorded since the last checkpoint."""

    checkpoint: Event | None = None
    restored: bool = False  # the agent goes on from the checkpoint
    outcomes: Sequence[Event] = ()
    closed: dict[str, Event] = field(default_factory=dict)
    begun: dict[str, list[Event]] = field(default_factory=dict)
    # Of these only the keys count. They are no sets because the garbage collector leaves a dict of strings alone.
    patched: dict[str, None] = field(default_factory=dict)
    unclaimed: dict[str, None] = field(default_factory=dict)  # begun, or a patch, and the code has not asked for it
    unasked: dict[str, None] = field(default_factory=dict)  # it has an outcome, and the code has not asked for it
    foreign: dict[str, None] = field(default_factory=dict)  # where the code was seen to wait for what is not recorded
    effects: dict[str, None] = field(default_factory=dict)  # where it was seen to do what is not recorded
    pausing: Event | None = None  # a request to pause that was not carried out
    stopped: dict[int, int] = field(default_factory=dict)  # by epoch: where its owner was told to pause and end bodies
    crashed: frozenset[int] = frozenset()  # epochs whose owner died or lost the run in the middle of it
    retried: int = -1  # where a failed run was told to go on, or a fork began, last
    winds: tuple[Event, ...] = ()  # where the run went back to an earlier point: forks, some retries
    left: dict[str, list[Event]] = field(default_factory=dict)  # what was open where a fork began: it begins anew
    turn: int = 0  # of the recorded outcomes, the one that is next
    ready: deque[Event] | None = None  # those of this life that wait for their turn
    delivered: int = 0  # outcomes that the agent has seen, over all eras
    time: int = 0  # of the last of them: what time it is to the agent

    @classmethod
    def of(cls, events: Sequence[Event], created_at: int) -> Journal:
        """Sort events into what replay needs; a checkpoint makes everything before it history."""
        if not events:
            return cls(time=created_at)  # as every new run
        outcomes: list[Event] = []
        journal = cls(outcomes=outcomes, time=created_at)
        for event in events:
            if event.kind == "checkpoint":
                outcomes = []
                journal = cls(event, outcomes=outcomes, time=created_at)
            elif event.kind in OUTCOMES:
                outcomes.append(event)
                if KINDS[event.kind].closes and event.key is not None:
                    journal.closed[event.key] = event
                    journal.unasked[event.key] = None
                elif event.kind == "run.cancelling":
                    journal.pausing = None
                elif event.kind == "run.forked":
                    journal._fork(event)
            elif event.kind == "patched":
                journal.patched[event.data["patch"]] = None
                journal.unclaimed[_marker(event.data["patch"])] = None
            elif event.kind in _PAUSES:
                journal.pausing = event if event.kind == "run.pausing" else None
                if event.kind == "run.pausing" and event.data.get("now"):
                    journal.stopped[event.epoch] = event.seq
                if event.kind == "run.retried":
                    journal.retried = event.seq
                    if "effects" in event.data:
                        journal.winds += (event,)
            elif event.kind == "run.interrupted":
                journal.crashed |= {event.epoch - 1}
            elif event.kind == "foreign":
                marks = journal.effects if event.data.get("effect") else journal.foreign
                marks[f"{event.data['task']} {event.data['line']}"] = None
            elif event.key is not None:
                journal.begun.setdefault(event.key, []).append(event)
                journal.unclaimed[event.key] = None
        return journal

    def _fork(self, forked: Event) -> None:
        """Leave behind what was open where a fork begins: bodies, timers, questions and children of the run it comes from."""
        if all(wind.kind != "run.forked" for wind in self.winds):
            self.time = forked.data["began"]  # when the run began that the first of these events are of
        self.winds += (forked,)
        self.pausing, self.retried = None, forked.seq
        over = {event.data[_ENDS[event.kind]] for event in self.outcomes if event.kind in _ENDS}
        for key in [key for key, begun in self.begun.items() if key not in self.closed and not _is_over(begun, over)]:
            self.left[key] = self.begun.pop(key)
            self.unclaimed.pop(key, None)

    def begin_era(self, checkpoint: Event) -> None:
        """The agent goes on from a checkpoint that it has just taken: what was recorded before is history."""
        Journal.__init__(self, checkpoint, restored=True, ready=self.ready, delivered=self.delivered, time=self.time)

    def restore(self) -> Event:
        """The agent goes on from the checkpoint that the journal begins with."""
        assert self.checkpoint is not None
        self.restored = True
        self.delivered, self.time = self.checkpoint.data["delivered"], max(self.time, self.checkpoint.at)
        return self.checkpoint

    @property
    def awaits_restore(self) -> bool:
        """Is there a checkpoint that the agent has not gone on from yet?"""
        return self.checkpoint is not None and not self.restored

    @property
    def numbered(self) -> int:
        """Count the outcomes that have a number, over all eras."""
        return len(self.outcomes) + (self.checkpoint.data["delivered"] if self.checkpoint else 0)

    @property
    def exhausted(self) -> bool:
        """Has every recorded outcome been delivered?"""
        return self.turn >= len(self.outcomes)

    def next(self) -> Event | None:
        """The outcome to be delivered next: on replay in the order of the first time."""
        if self.turn < len(self.outcomes):
            return self.outcomes[self.turn]
        return self.ready[0] if self.ready else None

    def land(self, event: Event) -> None:
        """Queue an outcome that is durable, and waits for its turn."""
        if self.ready is None:
            self.ready = deque()
        self.ready.append(event)

    def move_on(self) -> None:
        """Pass the next outcome, which was delivered."""
        if self.turn < len(self.outcomes):
            self.turn += 1
        else:
            assert self.ready is not None
            self.ready.popleft()

    def saw(self, event: Event) -> None:
        """The agent sees an outcome now."""
        self.delivered += 1
        self.time = max(self.time, event.at)

    def passes(self, key: str) -> None:
        """Note that the code goes on from the outcome of this call without making it."""
        self.unclaimed.pop(key, None)
        self.unasked.pop(key, None)

    def may_have_begun(self, asked: int, epoch: int) -> bool:
        """Can an earlier owner have begun a body of which nothing is recorded, because it died or was stopped?

        It can if the last outcome that the agent had seen when it asked was recorded by an earlier owner: that one may
        have come to this call as well.
        """
        before = 0 if self.checkpoint is None else self.checkpoint.data["delivered"]
        place = min(asked - before, len(self.outcomes))
        seen = self.outcomes[place - 1] if place > 0 else self.checkpoint
        return epoch > 1 and (seen is None or seen.epoch < epoch)

    def claim(self, key: str, name: str, digest: str, of: str) -> Divergence | None:
        """The code asks for this call; a record of it of another kind, or with another name or input, is a divergence."""
        self.unclaimed.pop(key, None)
        self.unasked.pop(key, None)
        begun = self.begun.get(key)
        event = self.closed.get(key) or (begun[0] if begun else None)
        if event is None:
            return None
        same = _family(event) == of and event.data.get("name", name) == name
        if same and event.data.get("digest", digest) == digest:
            return None
        return Divergence.of(event)

    def claim_patch(self, patch: str) -> bool:
        """Is the patch in the journal?"""
        self.unclaimed.pop(_marker(patch), None)
        return patch in self.patched

    def left_over(self) -> Divergence | None:
        """Find a record that the code has not asked for, if there is any: an outcome first, then what was begun."""
        if self.checkpoint is not None and not self.restored:
            return Divergence.of(self.checkpoint)
        for event in self.outcomes[self.turn :]:
            if not KINDS[event.kind].arrives:
                return Divergence.of(event)
        for key in sorted(self.unclaimed):
            if key in self.begun:
                return Divergence.of(self.begun[key][0])
            return Divergence(key, "patched", key.removeprefix("patched:"), "", "")
        return None


def _family(event: Event) -> str:
    family: str = event.data.get("of", event.kind.partition(".")[0])  # a question may be part of a step
    return family


def _is_over(begun: Sequence[Event], over: Container[str]) -> bool:
    """Has a call ended by an arrival, or was it given up, as far as these events of it tell?"""
    last = begun[-1]
    if _family(begun[0]) == "step":
        return False  # a question of it may have its answer, but the body has no outcome
    return last.kind.endswith(".withdrawn") or any(
        last.data.get(name) in over for name in ("child", "approval", "request")
    )


def _marker(patch: str) -> str:
    return f"patched:{patch}"


@dataclass(frozen=True, slots=True)
class Divergence:
    """One recorded thing that does not fit the code, told as people need it."""

    key: str
    kind: str
    name: str
    input: str
    digest: str
    whole: str = ""  # the digest of the input with all that was at its default
    lean: str = ""  # and with as little as possible of that
    family: str = ""  # of the calls that it may be a record of
    question: str = ""

    @classmethod
    def of(cls, event: Event) -> Divergence:
        data = event.data
        name, given, digest = (data.get(each, "") for each in ("name", "input", "digest"))
        whole, lean = (data.get(each, digest) for each in ("whole_digest", "lean_digest"))
        question = str(data.get("question", ""))
        return cls(event.key or "", event.kind, name, given, digest, whole, lean, _family(event), question)

    def found(self, name: str, preview: str, family: str, question: str = "") -> str:
        """Say what the code calls now, and in what it differs from the record if the two look alike."""
        if name == self.name and question != self.question:
            return f"the code now asks {short(question)} there, and not {short(self.question)}"
        if (name, preview) != (self.name, self.input):
            return f"the code now calls {name}({preview}) there"
        if family != self.family:
            return f"the code now calls a {family} of that name there"
        return (
            "the code now calls it with another input, though it reads the same here: either a part differs that is not shown, "
            "or a default was changed to or from what the code gives (bring the old default back)"
        )

    @property
    def recorded(self) -> str:
        """The record in a few words."""
        if self.kind == "checkpoint":
            return "a checkpoint, which only restore() reads"
        return f"{self.kind} of {self.name}({self.input})" if self.name else self.kind

    def told(self, run: str, found: str) -> str:
        """The whole reason: what was recorded, what was found, why it may be and what to do."""
        comma = "," if self.kind == "checkpoint" else ""
        return (
            f"run {run!r}: the journal has {self.recorded}{comma} under the key {self.key!r}, but {found}. "
            "The code changed since this was recorded, or it depends on something that is not recorded: a clock (use "
            "holdfast.now()), random numbers (holdfast.rng()), a UUID (holdfast.uuid4()), the order of a set, the "
            "environment, raw I/O, another Python minor version. Nothing was done and nothing was written. Go on with the "
            "code that wrote the journal, or guard the change with holdfast.patched('name'), then resume the run"
        )


def arrives(event: Event) -> bool:
    """Does it come by itself, whether or not a call waits? What ends the agent must find its task waiting."""
    return KINDS[event.kind].arrives and event.kind != "run.unwinding"


def first_of(events: Sequence[Event] | None, kind: str) -> Event | None:
    """The first event of a kind, if there is one."""
    return next((event for event in events or () if event.kind == kind), None)
