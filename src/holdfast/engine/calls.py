"""Durable calls other than steps: each knows how to begin when live, and what to do with its outcome.

The life of a call: asked (its key is claimed in the journal) -> begun (only once every recorded outcome is through) ->
numbered (its outcome has a place in the journal) -> durable -> settled (delivered through the gate). A waiter that is
cancelled withdraws the call; once numbered, the outcome is delivered to nobody and nothing more is recorded.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from holdfast.engine.divergence import unfit
from holdfast.engine.journal import Divergence, first_of
from holdfast.engine.loop import GateFuture
from holdfast.errors import BadArguments, NotStorable, Suspended
from holdfast.runtime import CALLERS
from holdfast.values.codec import Migrate, Shape
from holdfast.words.model import Event

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution
    from holdfast.words.clock import Timer


class Wait(NamedTuple):
    """Why a call waits: for what, until when, and which arrival would end it."""

    waits_for: str
    due: int | None = None
    token: str | None = None


class Call:
    """One durable call. Subclasses say how it begins and what its outcome means."""

    of: ClassVar[str] = ""  # which kinds of events are its own: those that begin with this word
    __slots__ = (
        "asked", "begun", "digest", "execution", "future", "key", "lean", "name", "numbered", "preview", "settled", "whole",
        "withdrawn",
    )  # fmt: skip

    def __init__(self, execution: Execution, key: str, name: str, digest: str, preview: str) -> None:
        self.execution, self.key, self.name, self.digest, self.preview = execution, key, name, digest, preview
        self.whole = ""  # the digest of the input with all that is at its default, if it is another
        self.lean = ""  # and of that which has less of it than the digest needs
        self.asked = 0  # how many outcomes the run had seen when this was asked
        self.begun = self.numbered = self.settled = self.withdrawn = False
        self.future: asyncio.Future[Any] = GateFuture(loop=execution.loop)

    def ask(self) -> None:
        """The agent waits for this. The run may leave now, because the call diverged: whoever asks looks whether it does."""
        self.execution.asks(self)

    def wait(self) -> Generator[Any, Any, Any]:
        """Ask, and wait for the outcome."""
        execution = self.execution
        self.ask()
        if execution.closing:
            yield from execution.refusal()
        try:
            event = yield from execution.rest(self)
        except asyncio.CancelledError:
            execution.withdraw(self)
            raise
        return self.read(event)

    def begin(self) -> None:
        """Start, now that the run is live."""
        raise NotImplementedError

    def settle(self, event: Event) -> None:
        """Take the outcome."""
        if not self.future.done():
            self.future.set_result(event)

    def read(self, event: Event) -> Any:
        """What the agent gets for the outcome."""

    def abandon(self) -> None:
        """The waiter is gone and there is no outcome yet: stop what was begun."""

    def forsake(self) -> None:
        """The same while the run is replayed: nothing was begun in this life, but perhaps in an earlier one."""

    def facts(self, **more: Any) -> dict[str, Any]:
        """The data of an event: what identifies the call, and more."""
        data = {"name": self.name, "digest": self.digest, "input": self.preview, "asked": self.asked, **more}
        if self.whole:
            data["whole_digest"] = self.whole
        if self.lean:
            data["lean_digest"] = self.lean
        return data

    def weigh(self) -> str:
        """The digest of the input with all that is at its default."""
        return self.digest

    def thin(self) -> str:
        """The digest of the input with as little as possible of that."""
        return self.digest

    def is_of(self, record: Divergence) -> bool:
        """Is this the call of a record that has another digest? It is if the input is the same with all that is at its default.

        Then a default has become what the code gives, or what it gives was the default. It also is if the input is the same
        with nothing of it but what tells members of unions apart: then a field was added to one. The call keeps the digest that
        it is known by, for its idempotency key is made of that.
        """
        if (record.family, record.name) != (self.of, self.name):
            return False
        if record.whole != self.weigh() and record.lean != self.thin():
            return False
        self.digest, self.whole = record.digest, "" if record.whole == record.digest else record.whole
        self.lean = "" if record.lean == record.digest else record.lean
        return True

    def past(self) -> Sequence[Event]:
        """What the journal says was begun under this key."""
        return self.execution.journal.begun.get(self.key, ())


class TimerCall(Call):
    """A durable wait: `timer.set` when it begins, `timer.fired` when it is over. Counted from the store's own time."""

    of = "timer"
    __slots__ = ("_callback", "_delay_ms", "_fired", "_timer", "_until_ms")

    def prepare(self, delay_ms: int | None, until_ms: int | None) -> None:
        self._delay_ms, self._until_ms = delay_ms, until_ms
        self._timer: Timer | None = None
        self._callback: Callable[[], None] | None = None
        self._fired = 0

    def calls_back(self, callback: Callable[[], None]) -> None:
        """Call this instead of being awaited."""
        self._callback = callback
        self.execution.asks(self)

    def begin(self) -> None:
        set_before = first_of(self.past(), "timer.set")
        if set_before is not None:
            self._arm(set_before)
        else:
            data = self.facts(ms=self._delay_ms, until=self._until_ms)
            self.execution.record("timer.set", self.key, data, then=self._arm)

    def _arm(self, was_set: Event) -> None:
        if self.withdrawn:
            return
        due = self._until_ms if self._until_ms is not None else was_set.at + (self._delay_ms or 0)
        self.execution.waits[self.key] = Wait("timer", due)
        self._timer = self.execution.arm(due, self._fire)

    def _fire(self) -> None:
        if not self.withdrawn and not self.numbered:
            self.numbered = True
            self.execution.waits.pop(self.key, None)
            self.execution.record("timer.fired", self.key, self.facts())

    def settle(self, event: Event) -> None:
        if self._callback is None:
            super().settle(event)
        elif not self.withdrawn:
            self._fired = event.seq
            self._callback()

    def abandon(self) -> None:
        self.execution.waits.pop(self.key, None)
        if self._timer is not None:
            self._timer.cancel()

    def cancel(self) -> None:
        """Take a deadline back."""
        self.execution.withdraw(self)

    def blame(self, error: Exception) -> Exception:
        """A retry of a run that failed with this exception sets the deadline anew."""
        return tagged(error, self.key, self._fired)


class Tick(Call):
    """A plain asyncio timer of agent code, recorded when it fires. To asyncio it is a `TimerHandle`."""

    of = "tick"
    __slots__ = ("_args", "_callback", "_cancelled", "_context", "_delay_s", "_timer", "_when")

    def prepare(
        self, delay_s: float, when: float, callback: Callable[..., Any], args: tuple[Any, ...], context: Any
    ) -> None:
        self._delay_s, self._when, self._callback, self._args = delay_s, when, callback, args
        self._context: contextvars.Context = context if context is not None else contextvars.copy_context()
        self._timer: Timer | None = None
        self._cancelled = False
        self.execution.asks(self)

    def begin(self) -> None:
        self.execution.ticks += 1
        self._timer = self.execution.clock.call_later(max(self._delay_s, 0), self._fire)

    def _fire(self) -> None:
        if not self.withdrawn:
            self.numbered = True
            self.execution.ticks -= 1
            self.execution.record("tick", self.key, {"asked": self.asked})

    def settle(self, event: Event) -> None:
        self.execution.ticked_s = max(self.execution.ticked_s, self._when)
        if not self.withdrawn:
            try:
                self._context.run(self._callback, *self._args)
            except Exception as error:
                message = f"an asyncio timer of run {self.execution.run.id!r} raised"
                self.execution.loop.call_exception_handler({"message": message, "exception": error})

    def abandon(self) -> None:
        if self._timer is not None:
            self.execution.ticks -= 1
            self._timer.cancel()

    def cancel(self) -> None:
        self._cancelled = True
        self.execution.withdraw(self)

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when


CALLERS.add(Tick.settle.__code__)


class ReceiveCall(Call):
    """Waits for the next message of a topic. Taking it needs no record: its arrival is one."""

    __slots__ = ("_shape", "_timer", "_topic")

    def prepare(self, topic: str, shape: Shape, timer: TimerCall | None) -> None:
        self._topic, self._shape, self._timer = topic, shape, timer

    def wait(self) -> Generator[Any, Any, Any]:
        execution, mailbox = self.execution, self.execution.mailbox
        yield from execution.enter(self)
        event = mailbox.take(self._topic)
        if event is None:
            mailbox.wait("message", self._topic, self.future)
            execution.waits[self.key] = Wait("message", None, self._topic)
            if self._timer is not None:
                self._timer.calls_back(self._timed_out)
            try:
                event = yield from execution.rest(self)
            except asyncio.CancelledError:
                mailbox.forget("message", self._topic, self.future)
                raise
            finally:
                execution.waits.pop(self.key, None)
                if self._timer is not None:
                    self._timer.cancel()
        return opened(execution, self._topic, self._shape, event)

    def _timed_out(self) -> None:
        if not self.future.done():
            self.execution.mailbox.forget("message", self._topic, self.future)
            assert self._timer is not None
            late = TimeoutError(f"no message came on the topic {self._topic!r} in time")
            self.future.set_exception(self._timer.blame(late))


class NoteCall(Call):
    """A line in the history."""

    of = "note"
    __slots__ = ("_data", "_stored")

    def prepare(self, stored: str | None, data: dict[str, Any]) -> None:
        self._stored, self._data = stored, data

    def begin(self) -> None:
        self.numbered = True
        self.execution.record(self.of, self.key, self.facts(**self._data), self._stored)


class ProgressCall(NoteCall):
    """How far the run has come."""

    of = "progress"
    __slots__ = ()


class PlanCall(NoteCall):
    """What the run means to do, and what of it is done. The last one is kept over checkpoints."""

    of = "plan"
    __slots__ = ()

    def settle(self, event: Event) -> None:
        self.execution.plan = event.data["items"]
        super().settle(event)


def loaded(execution: Execution, shape: Shape, event: Event, what: str, migrate: Migrate | None = None) -> Any:
    """A recorded value. One that does not fit the code is no exception to be caught and acted upon: the run leaves."""
    try:
        return shape.load(execution.text_of(event), migrate=migrate)
    except NotStorable as error:
        unfit(
            execution,
            f"NondeterminismError: run {execution.run.id!r}: what the journal has under the key {event.key or ''!r}, "
            f"{what}, does not fit its type: {error}. Nothing was done and nothing was written. Bring the "
            "old type back, give new fields a default, or say what became of renamed ones (migrate=), then resume the run",
        )
        raise Suspended from None


def opened(execution: Execution, topic: str, shape: Shape, letter: Event) -> Any:
    """What a message says. Runs of versions that dropped what a type had no field for go on so."""
    try:
        return shape.load(execution.text_of(letter), drop=execution.run.identity is None)
    except NotStorable as error:
        raise BadArguments(f"a message on the topic {topic!r} has another form than expected: {error}") from None


def tagged(error: Exception, key: str, seq: int, child: str | None = None) -> Exception:
    """Remember which outcome an exception came from, so that a retry of the run knows where to cut."""
    error.__holdfast__ = {"key": key, "seq": seq, "child": child}  # type: ignore[attr-defined]
    return error
