"""Checkpoints: the agent's state, stored once, from which a resumed run starts.

A checkpoint opens a new era: counters start again, and keys, seeds and idempotency keys carry its number. It is taken in
the root task with nothing open, for whatever is open would be unknown to the era that follows. What the run has been given
and not used (unread messages, patches) is carried along in the event itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

from holdfast.engine import control
from holdfast.engine.calls import Call, loaded
from holdfast.engine.journal import Journal
from holdfast.engine.loops import watch_of
from holdfast.errors import HoldfastError
from holdfast.values.codec import Migrate, Shape
from holdfast.words.model import Event

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution
    from holdfast.engine.identity import Scope


def restore(
    scope: Scope, first: object, shape: Shape, build: Callable[[], Awaitable[Any]] | None, migrate: Migrate | None
) -> Generator[Any, Any, Any]:
    """The state of the last checkpoint, or the first one."""
    execution = scope.execution
    yield from execution.enter(None)
    if execution.state_shape is not None or (execution.asked_any and not execution.awaits_restore):
        raise HoldfastError("restore must be the first durable call of an agent, and called once; call it at the top")
    execution.state_shape = shape
    if execution.awaits_restore:
        event = resumed(execution)
        return loaded(execution, shape, event, "the state of a checkpoint", migrate)
    if build is not None:
        execution.asked_any = True
        return (yield from build().__await__())
    return shape.store(first, "state")[1]


class CheckpointCall(Call):
    """Stores the state; when it is delivered, a new era begins."""

    of = "checkpoint"
    __slots__ = ("_copy", "_scope", "_state", "_text")

    def prepare(self, scope: Scope, state: object) -> None:
        self._scope, self._state = scope, state
        self._copy: Any = None

    def begin(self) -> None:
        self.numbered = True
        self.execution.record("checkpoint", self.key, carried(self.execution), self._text, checkpoint=True)

    def wait(self) -> Generator[Any, Any, Any]:
        problem = self._problem()
        if problem:
            raise HoldfastError(f"checkpoint: {problem}")
        execution = self.execution
        assert execution.state_shape is not None
        # Before it is asked for: what cannot be stored is the agent's error in every life.
        self._text, self._copy = execution.stored(execution.state_shape, self._state, "state")
        return (yield from super().wait())

    def _problem(self) -> str | None:
        execution = self.execution
        if execution.state_shape is None:
            return "call `state = await restore(...)` first, so that a resumed run knows where its state goes"
        if self._scope.path:
            return f"it can be taken only in the root of the agent, not in the task or scope {self._scope.path!r}"
        if execution.open_scopes:
            return f"the scope {min(execution.open_scopes)!r} is open; leave it first"
        others = [task.scope.path for task in execution.tasks if task.scope.path and not task.done()]
        if others:
            return f"other tasks are alive ({', '.join(sorted(others)[:3])}); wait for them first"
        if execution.streams.open_here:
            return f"the stream {min(execution.streams.open_here)!r} is open; leave its block first"
        open_calls = [key for key, call in execution.calls.items() if not call.withdrawn]
        if open_calls:
            return f"{open_calls[0]!r} is open (a timeout, a timer or a call that was not awaited); end it first"
        if execution.mailbox.talks:
            return f"the conversation {min(execution.mailbox.talks)!r} is open; leave it first"
        if execution.unawaited:
            names = sorted({call.__name__ for call in execution.unawaited.values()})
            return f"{', '.join(names[:3])} was called and is not awaited yet; await it first"
        return None

    def settle(self, event: Event) -> None:
        self.execution.journal = Journal(checkpoint=event, restored=True)  # what was recorded before is history
        enter_era(self.execution, event)
        super().settle(event)

    def read(self, event: Event) -> Any:
        assert self.execution.state_shape is not None
        if self._copy is not None:
            return self._copy
        return self.execution.state_shape.load(self.execution.text_of(event))


def carried(execution: Execution) -> dict[str, Any]:
    """What the next era must know besides the state: also messages that are in the journal and on their way to the agent."""
    coming = [event for event in execution.undelivered.values() if event.kind == "message.received"]
    letters = [*execution.mailbox.unread(), *coming]
    unread = [[event.seq, event.data, execution.text_of(event), event.at] for event in letters]
    patches = execution.patches.answers
    kept = {"era": execution.era + 1, "delivered": execution.numbered + 1, "unread": unread, "patches": patches}
    if execution.plan:
        kept["plan"] = execution.plan
    if execution.choices:
        kept["choices"] = dict(execution.choices)
    if execution.means:
        kept["means"] = execution.means
    return kept if execution.cancelling is None else {**kept, "cancelling": control.carried(execution)}


def resumed(execution: Execution) -> Event:
    """Go on from the checkpoint the journal begins with."""
    event = execution.journal.checkpoint
    assert event is not None
    execution.awaits_restore, execution.journal.restored = False, True
    enter_era(execution, event)
    execution.delivered, execution.time = event.data["delivered"], max(execution.time, event.at)
    control.restored(execution, event.data.get("cancelling"))
    execution.plan = event.data.get("plan", [])
    execution.choices = dict(event.data.get("choices", {}))
    execution.means = event.data.get("means", execution.means)
    for seq, data, text, at in event.data["unread"]:
        execution.mailbox.deliver(Event(seq, "message.received", None, data, text, at=at))
    return event


def enter_era(execution: Execution, event: Event) -> None:
    """Keys and the order of sets start again, live and resumed alike: only the root is there, and no call is open."""
    execution.era = event.data["era"]
    execution.counters.clear()
    execution.watch = watch_of(execution, execution.spec.loops)
    execution.task_count, execution.call_count, execution.ticked_s = 1, 0, 0.0
    if execution.live:  # large values and texts that nobody can ask for any more
        execution.streams.texts.clear()
        kept = {event.blob, *(arrival.blob for arrival in (*execution.mailbox.kept(), *execution.undelivered.values()))}
        execution.texts = {digest: text for digest, text in execution.texts.items() if digest in kept}
