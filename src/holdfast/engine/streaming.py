"""Streams in agent code: to open one and to close it are outcomes like any other; what is written between is not recorded.

It need not be: agent code is replayed, and writes the same text again. What the store has of it already is passed over, and
compared: another text is a divergence. Of a block that was closed the journal has the digest. A write never waits, for the
order in which two tasks go on would be chance.

After a retry of the run the code may be another one, and what it wrote behind the failure is not in its history any more.
There another text is no divergence: it begins anew, behind a `restart` mark.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from holdfast.engine.calls import Call, tagged
from holdfast.engine.divergence import diverge
from holdfast.engine.journal import Divergence
from holdfast.engine.loop import RunTask
from holdfast.engine.streams import busy, closed
from holdfast.errors import NotInRun, Suspended
from holdfast.runtime import Durable
from holdfast.values.codec import digest, preview
from holdfast.words.model import Event
from holdfast.words.salvage import Reason, Salvaged

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution
    from holdfast.engine.identity import Scope
    from holdfast.engine.streams import Tail


async def recall(execution: Execution) -> None:
    """What replay needs of the streams: texts of blocks that were open, and those left unfinished that the agent looks at."""
    streams = execution.streams
    for event in execution.journal.outcomes:
        if event.kind == "stream.opened" and "held_by" not in event.data:
            key = event.key or ""
            if _closing(key) not in execution.journal.closed:
                await streams.know()
                tail, position = streams.tail(event.data["name"]), event.data["position"]
                if tail.key == key and tail.position > position:
                    began = max(position, tail.began)  # before a restart all is void
                    streams.written[key] = await streams.text(tail.name, began, tail.position)
        for name, (began, end, _, _) in event.data.get("partial", {}).items():
            streams.texts[name, began, end] = await streams.text(name, began, end)


def _closing(key: str) -> str:
    return f"{key}:end"


class OpenCall(Call):
    """Begins a block of a stream: has it for this call, or finds that somebody else has it."""

    of = "stream"
    __slots__ = ("_outlet",)

    def prepare(self, outlet: AgentOutlet) -> None:
        self._outlet = outlet

    def begin(self) -> None:
        if self.execution.streams.known:
            self._open()
        else:
            _ = self.execution.start_driver(self._learn)

    async def _learn(self) -> None:
        await self.execution.streams.know()
        if not self.withdrawn:
            self._open()

    def _open(self) -> None:
        self.numbered = True
        streams = self.execution.streams
        other = streams.holder(self.name)
        found = {"position": streams.hold(self.name, self.key).position} if other is None else {"held_by": other}
        self.execution.record("stream.opened", self.key, self.facts(**found))

    def read(self, event: Event) -> None:
        if "held_by" in event.data:
            raise tagged(busy(self.name, event.data["held_by"]), self.key, event.seq)
        self._outlet.opened(event.seq)


class CloseCall(Call):
    """Ends a block of a stream. Its input is the text, by digest."""

    of = "stream"
    __slots__ = ("_reason",)

    def prepare(self, reason: Reason | None) -> None:
        self._reason = reason

    def begin(self) -> None:
        self.numbered = True
        self.execution.record("stream.closed", self.key, self.facts(reason=self._reason))


class UnfinishedCall(Call):
    """Looks at what was left in a stream."""

    of = "stream"
    __slots__ = ()

    def begin(self) -> None:
        _ = self.execution.start_driver(self._look)

    async def _look(self) -> None:
        found = await self.execution.streams.unfinished(self.name)
        if not self.withdrawn:
            self.numbered = True
            data = self.facts() if found is None else self.facts(partial={self.name: found})
            self.execution.record("stream.read", self.key, data)

    def read(self, event: Event) -> Salvaged | None:
        return self.execution.streams.partial(event.data.get("partial", {})).get(self.name)


class AgentOutlet:
    """A stream that agent code writes to. There is nothing to salvage: its text is replayed."""

    salvaged: Salvaged | None = None

    def __init__(self, scope: Scope, name: str) -> None:
        self._execution: Execution = scope.execution
        self._name, self._key = name, scope.key(f":stream.{name}")
        self._digest = hashlib.sha256()
        self._tail: Tail | None = None
        self._stored, self._passed = "", 0  # what the store has of this block already; how much of it came again
        self._opened_at, self._is_open = 0, False
        self._only_counts = False  # the block was closed in an earlier life
        self._begun = False

    def open(self) -> Durable[None]:
        call = OpenCall(self._execution, self._key, self._name, digest(self._name), self._name)
        call.prepare(self)
        return self._execution.offered("stream", call.wait)

    def opened(self, seq: int) -> None:
        """The block has begun, now or in an earlier life."""
        self._opened_at = seq
        streams = self._execution.streams
        self._only_counts = _closing(self._key) in self._execution.journal.closed
        streams.open_here[self._name] = self._key
        self._is_open = True
        if not self._only_counts:
            self._tail = streams.hold(self._name, self._key)
            self._stored = streams.written.pop(self._key, "")
            self._begun = bool(self._stored)

    def keep(self) -> None:
        """There is nothing to keep."""

    def write(self, text: str) -> None:
        self._check()
        self._digest.update(text.encode("utf-8", "surrogatepass"))
        if self._only_counts:
            return
        if self._passed < len(self._stored):
            text = self._pass_over(text)
        if text:
            self._execution.streams.grow(self._begin(), text)

    def _check(self) -> None:
        if self._execution.closing:
            raise Suspended
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        if not isinstance(task, RunTask) or task.scope.execution is not self._execution:
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
            self._execution.streams.begin(
                tail, self._key, tail.attempt + 1 if again else 1, "failed" if again else None
            )
            tail.parts = None  # nobody will ask for it
        return tail

    def _pass_over(self, text: str) -> str:
        """What of this text is not stored yet."""
        known = self._stored[self._passed : self._passed + len(text)]
        if text.startswith(known):
            self._passed += len(known)
            return text[len(known) :]
        if not self._retried:
            self._differs(f"the text {preview(text)}")
        return self._anew() + text

    @property
    def _retried(self) -> bool:
        return self._execution.journal.retried > self._opened_at

    def _anew(self) -> str:
        """The text that is stored is void; returns how far it was right."""
        right, self._stored = self._stored[: self._passed], ""
        self._begun = False
        return right

    def _differs(self, found: str) -> None:
        recorded = Divergence(self._key, "stream", self._name, preview(self._stored[self._passed :]), "")
        diverge(self._execution, recorded, f"the code now writes {found} there")
        raise Suspended

    def close(self, reason: Reason | None) -> Durable[None]:
        execution = self._execution
        self._check()
        if self._passed < len(self._stored) and not self._only_counts:
            if not self._retried:
                self._differs("nothing more")
            right = self._anew()
            execution.streams.grow(self._begin(), right) if right else self._begin()
        call = CloseCall(execution, _closing(self._key), self._name, self._digest.hexdigest()[:32], self._name)
        call.prepare(reason)
        return execution.offered("stream", lambda: self._closed(call, reason))

    def _closed(self, call: CloseCall, reason: Reason | None) -> Generator[Any, Any, None]:
        streams, tail = self._execution.streams, self._tail
        if tail is not None:
            if tail.key == self._key and tail.kind != "end":  # what a retry took out of the history is void
                self._begin()
            streams.over(self._key, well=reason is None, reason=reason)
        self._is_open = False
        streams.open_here.pop(self._name, None)
        yield from call.wait()
