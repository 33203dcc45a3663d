"""Small calls: timers, messages, notes. Each knows how to begin when live, and what to do with its outcome."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Generator
from typing import Any, Final

from holdfast.engine.attempt import Attempt, Call, Site, tagged
from holdfast.engine.journal import first_of
from holdfast.engine.parking import Wait
from holdfast.errors import BadArguments, NotStorable
from holdfast.runtime import CALLERS, Look, Note, Plan, Progress, Receive, Sleep
from holdfast.values.codec import UNTYPED, Shape, digest, preview
from holdfast.words.clock import Timer
from holdfast.words.model import Event


class TimerCall(Call):
    """A durable wait: `timer.set` when it begins, `timer.fired` when it is over. Counted from the store's own time."""

    of = "timer"
    __slots__ = ("_callback", "_delay_ms", "_fired", "_timer", "_until_ms")

    def __init__(self, site: Site, request: Sleep, label: str = ":sleep") -> None:
        delay_ms, until_ms = self._delay_ms, self._until_ms = request.delay_ms, request.until_ms
        text = f'{{"ms": {delay_ms}}}' if until_ms is None else f'{{"until": {until_ms}}}'
        super().__init__(site.attempt, site.key(label), label, digest(text), text)
        self._timer: Timer | None = None
        self._callback: Callable[[], None] | None = None
        self._fired = 0

    def calls_back(self, callback: Callable[[], None]) -> None:
        """Call this instead of being awaited."""
        self._callback = callback
        self.attempt.asks(self)

    def begin(self) -> None:
        set_before = first_of(self.past(), "timer.set")
        if set_before is not None:
            self._arm(set_before)
        else:
            data = self.facts(ms=self._delay_ms, until=self._until_ms)
            self.attempt.pen.record("timer.set", self.key, data, then=self._arm)

    def needs_turn(self) -> bool:
        return not self.past()  # one that was set is waited for already

    def _arm(self, was_set: Event) -> None:
        if self.withdrawn:
            return
        due = self._until_ms if self._until_ms is not None else was_set.at + (self._delay_ms or 0)
        self.attempt.parking.waits[self.key] = Wait("timer", due)
        self._timer = self.attempt.arm(due, self._fire)

    def _fire(self) -> None:
        if not self.withdrawn and not self.numbered:
            self.numbered = True
            self.attempt.parking.waits.pop(self.key, None)
            self.attempt.pen.record("timer.fired", self.key, self.facts())

    def settle(self, event: Event) -> None:
        if self._callback is None:
            super().settle(event)
        elif not self.withdrawn:
            self._fired = event.seq
            self._callback()

    def abandon(self) -> None:
        self.attempt.parking.waits.pop(self.key, None)
        self.let_go()

    def let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def cancel(self) -> None:
        """Take a deadline back."""
        self.attempt.withdraw(self)

    def blame(self, error: Exception) -> Exception:
        """A retry of a run that failed with this exception sets the deadline anew."""
        return tagged(error, self.key, self._fired)


class Tick(Call):
    """A plain asyncio timer of agent code, recorded when it fires. To asyncio it is a `TimerHandle`."""

    of = "tick"
    __slots__ = ("_args", "_callback", "_cancelled", "_context", "_delay_s", "_timer", "_when")

    def __init__(
        self, site: Site, delay_s: float, when: float, callback: Callable[..., Any], args: tuple[Any, ...], context: Any
    ) -> None:
        super().__init__(site.attempt, site.key(":tick"), ":tick", "", "")
        self._delay_s, self._when, self._callback, self._args = delay_s, when, callback, args
        self._context: contextvars.Context = context if context is not None else contextvars.copy_context()
        self._timer: Timer | None = None
        self._cancelled = False
        self.attempt.asks(self)

    def begin(self) -> None:
        self.attempt.parking.tick(1)
        self._timer = self.attempt.host.clock.call_later(max(self._delay_s, 0), self._fire)

    def _fire(self) -> None:
        if not self.withdrawn:
            self.numbered = True
            self.attempt.parking.tick(-1)
            self.attempt.pen.record("tick", self.key, {"asked": self.asked})

    def settle(self, event: Event) -> None:
        self.attempt.tasks.tick(self._when)
        if not self.withdrawn:
            try:
                self._context.run(self._callback, *self._args)
            except Exception as error:
                message = f"an asyncio timer of run {self.attempt.run.id!r} raised"
                self.attempt.life.loop.call_exception_handler({"message": message, "exception": error})

    def abandon(self) -> None:
        if self._timer is not None:
            self.attempt.parking.tick(-1)
            self._timer.cancel()

    def let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def cancel(self) -> None:
        self._cancelled = True
        self.attempt.withdraw(self)

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when


CALLERS.add(Tick.settle.__code__)


PASSED_OVER: Final = object()  # returned instead of a message that is not for the call


class ReceiveCall(Call):
    """Waits for the next message of a topic. Taking it needs no record: its arrival is one."""

    __slots__ = ("_shape", "_timer", "_topic")

    def __init__(self, site: Site, request: Receive) -> None:
        self._topic, self._shape, timeout_ms = request.topic, request.shape, request.timeout_ms
        label = f":receive.{digest(self._topic)[:8]}"
        super().__init__(site.attempt, site.key(label), label, "", self._topic)
        self._timer = None if timeout_ms is None else TimerCall(site, Sleep(timeout_ms, None), ":receive.timeout")

    def wait(self) -> Generator[Any, Any, Any]:
        attempt, mailbox = self.attempt, self.attempt.inbox.mailbox
        yield from attempt.enter(self)
        timed = False
        try:
            while True:
                late = self.future.done()  # while one was passed over
                event = None if late else mailbox.take(self._topic)
                if event is None:
                    if not late:
                        mailbox.wait("message", self._topic, self.future)
                    attempt.parking.waits[self.key] = Wait("message", None, self._topic)
                    if self._timer is not None and not timed:
                        timed = True
                        self._timer.calls_back(self._timed_out)
                    try:
                        event = yield from attempt.rest(self)
                    except asyncio.CancelledError:
                        mailbox.forget("message", self._topic, self.future)
                        raise
                    finally:
                        attempt.parking.waits.pop(self.key, None)
                value = yield from self.open(event)
                if value is not PASSED_OVER:
                    return value
        finally:
            if self._timer is not None and timed:
                self._timer.cancel()

    def open(self, event: Event) -> Generator[Any, Any, Any]:
        """Turn a message into the value that the agent gets, or pass it over. A sent message is read as it came."""
        return opened(self.attempt, self._topic, self._shape, event)
        yield

    @property
    def late(self) -> str:
        """The reason why it is waited for no more."""
        return f"no message came on the topic {self._topic!r} in time"

    def _timed_out(self) -> None:
        if not self.future.done():
            self.attempt.inbox.mailbox.forget("message", self._topic, self.future)
            assert self._timer is not None
            self.future.set_exception(self._timer.blame(TimeoutError(self.late)))


class LookCall:
    """Looks ahead in the journal. Nothing is recorded."""

    __slots__ = ("_attempt", "_key")

    def __init__(self, site: Site, request: Look) -> None:
        self._attempt, self._key = site.attempt, site.attempt.identity.coming(site.path, request.label)

    def wait(self) -> Generator[Any, Any, tuple[bool, bool, int]]:
        attempt = self._attempt
        yield from attempt.enter(None)
        waiting = attempt.inbox.mailbox.count() + len(attempt.pen.undelivered)
        return attempt.life.live, self._key in attempt.journal.closed, waiting


class NoteCall(Call):
    """A line in the history."""

    of = "note"
    __slots__ = ("_data", "_stored")

    def __init__(self, site: Site, request: Note) -> None:
        text, _ = UNTYPED.store({"text": request.text, "data": request.data}, "note")
        self._stored: str | None = text
        self._data: dict[str, Any] = {"text": request.text[:2000]}
        super().__init__(site.attempt, site.key(":note"), ":note", digest(text), preview(text))

    def begin(self) -> None:
        self.numbered = True
        self.attempt.pen.record(self.of, self.key, self.facts(**self._data), self._stored)


class ProgressCall(NoteCall):
    """A record of how far the run has come."""

    of = "progress"
    __slots__ = ()

    def __init__(self, site: Site, request: Progress) -> None:
        self._mark(site, request.data)

    def _mark(self, site: Site, data: dict[str, Any]) -> None:
        text, _ = UNTYPED.store(data, self.of)
        self._stored, self._data = None, data
        label = f":{self.of}"
        Call.__init__(self, site.attempt, site.key(label), label, digest(text), preview(text))


class PlanCall(ProgressCall):
    """A plan: what the run means to do, and what of it is done. The last one is kept over checkpoints."""

    of = "plan"
    __slots__ = ()

    def __init__(self, site: Site, request: Plan) -> None:
        self._mark(site, {"items": request.items})

    def settle(self, event: Event) -> None:
        self.attempt.kept.plans(event.data["items"])
        super().settle(event)


def opened(attempt: Attempt, topic: str, shape: Shape, letter: Event) -> Any:
    """The value of a message; `BadArguments` if it is not of the type."""
    try:
        return contents(attempt, shape, letter)
    except NotStorable as error:
        raise BadArguments(f"a message on the topic {topic!r} has another form than expected: {error}") from None


def contents(attempt: Attempt, shape: Shape, letter: Event) -> Any:
    """The value of a message. Runs of versions that dropped what a type had no field for go on so."""
    return shape.load(attempt.pen.text_of(letter), drop=attempt.life.run.identity is None)
