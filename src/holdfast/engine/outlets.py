"""Streams as code writes to them: agent code, and bodies of steps.

In agent code, to open a stream and to close it are outcomes like any other; what is written between is not recorded.

It need not be: agent code is replayed, and writes the same text again. What the store has of it already is passed over, and
compared: another text is a divergence. Of a block that was closed the journal has the digest. A write never waits, because the
order in which two tasks go on would be chance.

After a retry of the run the code may be another one, and what it wrote behind the failure is not in its history any more.
There another text is no divergence: it begins anew, behind a `restart` mark.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Generator
from typing import Any, Final

from holdfast.engine.attempt import Attempt, Call, Site, tagged
from holdfast.engine.journal import Divergence
from holdfast.engine.loop import RunTask
from holdfast.engine.streams import Tail, busy, closed
from holdfast.errors import BadArguments, HoldfastError, NotInRun, StoreUnavailable, Suspended
from holdfast.runtime import Durable, Unfinished
from holdfast.values.codec import digest, preview
from holdfast.words.model import Event
from holdfast.words.salvage import Reason, Salvaged


async def recall(attempt: Attempt) -> None:
    """Read what replay needs of the streams: texts of blocks that were open, and those left unfinished that the agent looks at."""
    for event in attempt.journal.outcomes:
        if event.kind == "stream.opened" and "held_by" not in event.data:
            key = event.key or ""
            if _closing(key) not in attempt.journal.closed:
                streams = attempt.streams
                await streams.know()
                tail, position = streams.tail(event.data["name"]), event.data["position"]
                if tail.key == key and tail.position > position:
                    began = max(position, tail.began)  # before a restart all is void
                    streams.written[key] = await streams.text(tail.name, began, tail.position)
        for name, (began, end, _, _) in event.data.get("partial", {}).items():
            attempt.streams.texts[name, began, end] = await attempt.streams.text(name, began, end)


def _closing(key: str) -> str:
    return f"{key}:end"


class OpenCall(Call):
    """Begins a block of a stream: has it for this call, or finds that another call has it."""

    of = "stream"
    __slots__ = ("_outlet",)

    def __init__(self, attempt: Attempt, key: str, name: str, outlet: AgentOutlet) -> None:
        super().__init__(attempt, key, name, digest(name), name)
        self._outlet = outlet

    def begin(self) -> None:
        if self.attempt.streams.known:
            self._open()
        else:
            _ = self.attempt.bodies.start(self._learn)

    async def _learn(self) -> None:
        await self.attempt.streams.know()
        if not self.withdrawn:
            self._open()

    def _open(self) -> None:
        self.numbered = True
        streams = self.attempt.streams
        other = streams.holder(self.name)
        found = {"position": streams.hold(self.name, self.key).position} if other is None else {"held_by": other}
        self.attempt.pen.record("stream.opened", self.key, self.facts(**found))

    def read(self, event: Event) -> None:
        if "held_by" in event.data:
            raise tagged(busy(self.name, event.data["held_by"]), self.key, event.seq)
        self._outlet.opened(event.seq)


class CloseCall(Call):
    """Ends a block of a stream. Its input is the text, by digest."""

    of = "stream"
    __slots__ = ("_reason",)

    def __init__(self, attempt: Attempt, key: str, name: str, text: str, reason: Reason | None) -> None:
        super().__init__(attempt, key, name, text, name)
        self._reason = reason

    def begin(self) -> None:
        self.numbered = True
        self.attempt.pen.record("stream.closed", self.key, self.facts(reason=self._reason))


class UnfinishedCall(Call):
    """Looks at what was left in a stream."""

    of = "stream"
    __slots__ = ()

    def __init__(self, site: Site, request: Unfinished) -> None:
        name = request.stream
        super().__init__(site.attempt, site.key(f":unfinished.{name}"), name, digest(name), name)

    def begin(self) -> None:
        _ = self.attempt.bodies.start(self._look)

    async def _look(self) -> None:
        found = await self.attempt.streams.unfinished(self.name)
        if not self.withdrawn:
            self.numbered = True
            data = self.facts() if found is None else self.facts(partial={self.name: found})
            self.attempt.pen.record("stream.read", self.key, data)

    def read(self, event: Event) -> Salvaged | None:
        return self.attempt.streams.partial(event.data.get("partial", {})).get(self.name)


class AgentOutlet:
    """A stream that agent code writes to. There is nothing to salvage: its text is replayed."""

    salvaged: Salvaged | None = None

    def __init__(self, attempt: Attempt, key: str, name: str) -> None:
        self._attempt, self._name, self._key = attempt, name, key
        self._digest = hashlib.sha256()
        self._tail: Tail | None = None
        self._stored, self._passed = "", 0  # what the store has of this block already; how much of it came again
        self._opened_at, self._is_open = 0, False
        self._only_counts = False  # the block was closed in an earlier life
        self._begun = False

    def open(self) -> Durable[None]:
        call = OpenCall(self._attempt, self._key, self._name, self)
        return self._attempt.offered("stream", call.wait)

    def opened(self, seq: int) -> None:
        """The block has begun, now or in an earlier life."""
        self._opened_at = seq
        streams = self._attempt.streams
        self._only_counts = _closing(self._key) in self._attempt.journal.closed
        streams.open_here[self._name] = self._key
        self._is_open = True
        if not self._only_counts:
            self._tail = streams.hold(self._name, self._key)
            self._stored = streams.written.pop(self._key, "")
            self._begun = bool(self._stored)

    def keep(self) -> None:
        """Do nothing: there is nothing to keep."""

    def write(self, text: str) -> None:
        self._check()
        self._digest.update(text.encode("utf-8", "surrogatepass"))
        if self._only_counts:
            return
        if self._passed < len(self._stored):
            text = self._pass_over(text)
        if text:
            self._attempt.streams.grow(self._begin(), text)

    def _check(self) -> None:
        if self._attempt.life.closing:
            raise Suspended
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        if not isinstance(task, RunTask) or task.scope.tasks is not self._attempt.tasks:
            raise NotInRun(
                f"the stream {self._name!r} was written outside the agent's own tasks, where order is chance"
            )
        if not self._is_open:
            raise closed(self._name)

    def _begin(self) -> Tail:
        """The first text of this block."""
        tail = self._tail
        assert tail is not None
        if not self._begun:
            self._begun = True
            again = tail.key == self._key  # a block of the same place that a retry took out of the history
            self._attempt.streams.begin(tail, self._key, tail.attempt + 1 if again else 1, "failed" if again else None)
            self._attempt.streams.forget(tail)
        return tail

    def _pass_over(self, text: str) -> str:
        """Leave out what is stored already of this text."""
        known = self._stored[self._passed : self._passed + len(text)]
        if text.startswith(known):
            self._passed += len(known)
            return text[len(known) :]
        if not self._retried:
            self._differs(f"the text {preview(text)}")
        return self._anew() + text

    @property
    def _retried(self) -> bool:
        return self._attempt.journal.retried > self._opened_at

    def _anew(self) -> str:
        """The text that is stored is void; returns how far it was right."""
        right, self._stored = self._stored[: self._passed], ""
        self._begun = False
        return right

    def _differs(self, found: str) -> None:
        recorded = Divergence(self._key, "stream", self._name, preview(self._stored[self._passed :]), "")
        self._attempt.diverge(recorded, f"the code now writes {found} there")
        raise Suspended

    def close(self, reason: Reason | None) -> Durable[None]:
        attempt = self._attempt
        self._check()
        if self._passed < len(self._stored) and not self._only_counts:
            if not self._retried:
                self._differs("nothing more")
            right = self._anew()
            attempt.streams.grow(self._begin(), right) if right else self._begin()
        call = CloseCall(attempt, _closing(self._key), self._name, self._digest.hexdigest()[:32], reason)
        return attempt.offered("stream", lambda: self._closed(call, reason))

    def _closed(self, call: CloseCall, reason: Reason | None) -> Generator[Any, Any, None]:
        streams, tail = self._attempt.streams, self._tail
        if tail is not None:
            if tail.key == self._key and tail.kind != "end":  # what a retry took out of the history is void
                self._begin()
            streams.over(self._key, well=reason is None, reason=reason)
        self._is_open = False
        streams.open_here.pop(self._name, None)
        yield from call.wait()


# In the body of a step


_NONE: Final[frozenset[str]] = frozenset()


class BodyStreams:
    """The streams that the body of a step opens, in one attempt of the step."""

    __slots__ = ("call", "ended", "number", "open_now", "opened")

    def __init__(self, call: Call, number: int) -> None:
        self.call, self.number = call, number
        self.opened = self.open_now = _NONE
        self.ended = False

    def __call__(self, name: str) -> StepOutlet:
        return StepOutlet(self, name)

    @property
    def over(self) -> bool:
        """Is it too late to write? A body may swallow that it was stopped, or leave a task behind."""
        return self.ended or self.call.withdrawn or self.call.attempt.life.closing is not None

    def end(self, error: Exception | None) -> None:
        """The body has ended."""
        self.ended = True
        if self.opened and error is not None:
            self.call.attempt.streams.attempt_failed(self.call.key, error)


class StepOutlet:
    """A stream that the body of a step writes to."""

    def __init__(self, body: BodyStreams, name: str) -> None:
        self._body, self._name, self._key, self._number = body, name, body.call.key, body.number
        self._attempt = body.call.attempt
        self.salvaged: Salvaged | None = None
        self._tail: Tail | None = None
        self._begun = False

    async def open(self) -> None:
        if asyncio.get_running_loop() is not self._attempt.life.loop:
            raise BadArguments(
                f"the stream {self._name!r} was opened in a thread with a loop of its own; write the step with `async def`"
            )
        try:
            await self._open()
        except StoreUnavailable:
            self._attempt.life.close("lost")  # no fault of the body's: the run is begun anew
            raise Suspended from None

    async def _open(self) -> None:
        streams = self._attempt.streams
        await streams.know()
        if self._name in self._body.open_now:
            raise busy(self._name, self._key)
        if self._body.over:
            raise closed(self._name)
        tail = streams.hold(self._name, self._key)
        self._body.open_now |= {self._name}
        if self._name not in self._body.opened:
            self.salvaged = await streams.salvage(tail, self._key)
            self._number = max(self._number, tail.attempt + 1 if tail.key == self._key else 0)
        else:  # this very body wrote to it before, and goes on
            self._number, self._begun = tail.attempt, tail.key == self._key
        self._body.opened |= {self._name}
        self._tail = tail

    def keep(self) -> None:
        if self.salvaged is None:
            return
        if self._begun:
            raise HoldfastError(f"keep() of the stream {self._name!r} came after a write; call it before the first one")
        self._begun = True
        assert self._tail is not None
        self._attempt.streams.keep(self._tail, self._number)

    def write(self, text: str) -> Any:
        self._check()
        if text:
            self._attempt.streams.grow(self._begin(), text)
            if self._attempt.pen.outflow.full:
                return self._attempt.pen.outflow.room()
        return None

    def _check(self) -> None:
        if self._tail is None or self._body.over:
            raise closed(self._name)

    def _begin(self) -> Tail:
        """The first text of this block."""
        tail = self._tail
        assert tail is not None
        if not self._begun:
            self._begun = True
            void = None if self.salvaged is None else self.salvaged.reason
            self._attempt.streams.begin(tail, self._key, self._number, void)
        return tail

    def close(self, reason: Reason | None) -> None:
        if reason is None and not self._body.over and self._tail is not None:
            if self._begun or self.salvaged is not None:  # else nothing was written, and nothing is left of this block
                self._attempt.streams.end(self._begin())
            self._attempt.streams.release(self._tail)
        self._body.open_now -= {self._name}
        # A body that raised may be tried again: the outcome of the step, or the next attempt, says what it was.
        self._tail = None
