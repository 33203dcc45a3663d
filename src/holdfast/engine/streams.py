"""The streams of a run: where each stands, who writes to it, and what steps do with them.

Only the owner of a run writes, so where a stream stands is read once in a life and known from then on. One call at a time
holds a stream: a step from its first word until it has closed the stream or has an outcome, over all its attempts; agent code
while its block is open. Others may go on behind it, so an `end` is the end of a text; the stream is over when the run is. A
block in which nothing is written leaves no mark.

Attempts. When a step runs again, what it wrote last in the stream is its salvage. If it keeps it, it goes on behind it. If
not, a `restart` mark says to readers that the text since the step began is void, and it begins anew behind the mark. An
attempt that fails and is tried again leaves a `break` with the reason, which readers do not see; one that crashed leaves
nothing, and that is how it is known.

Crash points. Text that waits in memory is lost, as if it had not been written. An outcome is never there without the text
before it (outflow.py).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import BadArguments, HoldfastError, StepTimeout, StoreUnavailable, Suspended
from holdfast.store.streams import Piece
from holdfast.words.model import Claimed
from holdfast.words.salvage import Reason, Salvaged

if TYPE_CHECKING:
    from holdfast.engine.leaving import Leaving
    from holdfast.engine.steps import StepCall

Written = list[Any]  # a text in the journal: where it begins and ends in its stream, of which attempt, why it broke off


@dataclass(slots=True)
class Tail:
    """Where a stream stands: its last row, and the text that this belongs to."""

    name: str
    position: int = 0
    kind: str = "end"
    key: str = ""
    attempt: int = 0
    began: int = 0
    reason: Reason | None = None
    holder: str | None = None  # the call that has it now
    parts: list[str] | None = field(default_factory=list)  # the text since `began`; None: it is in the store only


class Streams:
    """What one life of a run knows of its streams."""

    __slots__ = ("_execution", "_known", "_of_call", "_reasons", "_tails", "open_here", "texts", "written")

    def __init__(self, execution: Leaving) -> None:
        self._execution = execution
        self._tails: dict[str, Tail] = {}
        run = execution.run
        self._known = run.lease_epoch <= 1 or (isinstance(run, Claimed) and run.silent)  # nobody has written before
        self._of_call: dict[str, set[str]] = {}  # streams that a call has opened, until it has an outcome
        self._reasons: dict[str, Reason] = {}  # why the last attempt of a call ended
        self.texts: dict[tuple[str, int, int], str] = {}  # what was left unfinished, that the agent may look at
        self.written: dict[str, str] = {}  # what the store has of blocks in agent code that are open
        self.open_here: dict[str, str] = {}  # those that agent code has open, and the keys of that

    # Where they stand

    async def know(self) -> None:
        """Learn where the streams stand that earlier lives wrote."""
        if self._known:
            return
        for last in await self._execution.store.streams(self._execution.run.id):
            if last.stream not in self._tails:  # else somebody was quicker, and has written since
                tail = Tail(last.stream, last.position, last.kind, last.key, last.attempt, last.began, last.reason)
                tail.parts = None
                self._tails[last.stream] = tail
                self._of_call.setdefault(last.key, set()).add(last.stream)
        self._known = True

    @property
    def known(self) -> bool:
        return self._known

    def tail(self, name: str) -> Tail:
        """Where this stream stands; one that is new is empty."""
        assert self._known
        return self._tails.setdefault(name, Tail(name))

    async def text(self, name: str, began: int, end: int) -> str:
        """What was written there, as it is in the store."""
        parts: list[str] = []
        after, store, run = began, self._execution.store, self._execution.run.id
        while after < end and (page := await store.pieces(run, name, after)):
            parts += [one.text for one in page if one.position <= end]
            after = page[-1].position
        return "".join(parts)

    # Writing

    def holder(self, name: str) -> str | None:
        """The call that has this stream; perhaps it broke off in an earlier life, and will run again."""
        tail = self.tail(name)
        broke_off = tail.kind != "end" and tail.key in self._execution.calls
        return tail.holder or (tail.key if broke_off else None)

    def hold(self, name: str, key: str) -> Tail:
        """Have this stream for a call, unless another one has it."""
        holder = self.holder(name)
        if holder is not None and holder != key:
            raise busy(name, holder)
        tail = self.tail(name)
        tail.holder = key
        self._of_call.setdefault(key, set()).add(name)
        return tail

    def begin(self, tail: Tail, key: str, attempt: int, void: Reason | None) -> None:
        """A text begins here; `void` says why the one before it is void, if it is."""
        tail.began, tail.key, tail.attempt, tail.parts = tail.position, key, attempt, []
        if void is not None:
            self.mark(tail, "restart", void)

    def grow(self, tail: Tail, text: str) -> None:
        """More text."""
        if tail.parts is not None:
            tail.parts.append(text)
        tail.position += len(text)
        tail.kind, tail.reason = "data", None
        self._execution.outflow.add(self._last(tail), text)

    def mark(self, tail: Tail, kind: str, reason: Reason | None) -> None:
        """A mark, which counts as one character."""
        tail.position += 1
        tail.kind, tail.reason = kind, reason
        self._execution.outflow.add(self._last(tail))

    def _last(self, tail: Tail) -> Piece:
        return Piece(tail.name, tail.position, tail.kind, tail.key, tail.attempt, tail.began, tail.reason)

    def end(self, tail: Tail) -> None:
        """The text is whole; readers hear so at once, unless they have heard it."""
        if tail.kind != "end" or tail.reason is not None:
            self.mark(tail, "end", None)
            self._execution.outflow.flush()

    # Attempts of steps

    async def salvage(self, tail: Tail, key: str) -> Salvaged | None:
        """What this call had written last, if nobody has written since."""
        if tail.key != key:
            return None
        if tail.parts is None:
            tail.parts = [await self.text(tail.name, tail.began, tail.position)]
        text = "".join(tail.parts)
        return Salvaged(text, self._reason(tail), tail.attempt) if text else None

    def _reason(self, tail: Tail) -> Reason:
        if tail.kind in ("break", "end"):
            return tail.reason or "failed"  # who had ended it well failed later
        return self._reasons.get(tail.key, "crashed")

    def attempt_failed(self, key: str, error: Exception) -> None:
        """A body has ended, and not well."""
        self._reasons[key] = "timeout" if isinstance(error, StepTimeout) else "failed"

    def broke_off(self, key: str) -> None:
        """Another attempt comes later, perhaps in another life: it should know why."""
        for tail in self._of(key):
            if tail.kind not in ("break", "end"):
                self.mark(tail, "break", self._reason(tail))

    async def recall(self, key: str) -> None:
        """A call is about to fail: what it wrote in earlier lives is needed now."""
        for tail in self._of(key):
            await self.salvage(tail, key)

    def failed(self, key: str) -> dict[str, Written]:
        """A call has failed for good: where its last texts are, for the journal."""
        partial: dict[str, Written] = {}
        for tail in self._of(key):
            if tail.parts:
                partial[tail.name] = [tail.began, tail.position, tail.attempt, self._reason(tail)]
                self.texts[tail.name, tail.began, tail.position] = "".join(tail.parts)
        self.over(key, well=False)
        return partial

    def over(self, key: str, *, well: bool = True, reason: Reason | None = None) -> None:
        """A call has an outcome: its streams end, and others may have them."""
        names = self._of_call.pop(key, None)
        if names is None:
            return
        for name in sorted(names):
            tail = self._tails[name]
            if tail.key == key:
                if tail.kind != "end":
                    self.mark(tail, "end", None if well else reason or self._reason(tail))
                if tail.reason is None:
                    tail.parts = None  # nobody will ask for it
            if tail.holder == key:
                tail.holder = None
        self._reasons.pop(key, None)

    async def unfinished(self, name: str) -> Written | None:
        """The last text of a stream, if it did not come to its end and nobody is at it: where it is, for the journal."""
        await self.know()
        tail = self._tails.get(name)
        if tail is None or tail.reason is None or self.holder(name) is not None:
            return None
        salvaged = await self.salvage(tail, tail.key)
        if salvaged is None:
            return None
        self.texts[tail.name, tail.began, tail.position] = salvaged.text
        return [tail.began, tail.position, tail.attempt, salvaged.reason]

    def _of(self, key: str) -> list[Tail]:
        names = self._of_call.get(key)
        return [] if names is None else [self._tails[name] for name in sorted(names) if self._tails[name].key == key]

    def partial(self, recorded: dict[str, Written]) -> dict[str, Salvaged]:
        """What a failed step had written, as its record says where."""
        return {
            name: Salvaged(self.texts[name, began, end], reason, attempt)
            for name, (began, end, attempt, reason) in recorded.items()
        }


_NONE: Final[frozenset[str]] = frozenset()


class Attempt:
    """One attempt of a step, as its body opens streams in it."""

    __slots__ = ("call", "ended", "number", "open_now", "opened")

    def __init__(self, call: StepCall) -> None:
        self.call, self.number = call, call.so_far.attempt
        self.opened = self.open_now = _NONE
        self.ended = False

    def __call__(self, name: str) -> StepOutlet:
        return StepOutlet(self, name)

    @property
    def over(self) -> bool:
        """Is it too late to write? A body may swallow that it was stopped, or leave a task behind."""
        return self.ended or self.call.withdrawn or self.call.execution.closing is not None

    def end(self, error: Exception | None) -> None:
        """The body has ended."""
        self.ended = True
        if self.opened and error is not None:
            self.call.execution.streams.attempt_failed(self.call.key, error)


class StepOutlet:
    """A stream that the body of a step writes to."""

    def __init__(self, attempt: Attempt, name: str) -> None:
        self._attempt, self._name, self._key, self._number = attempt, name, attempt.call.key, attempt.number
        self._execution = attempt.call.execution
        self.salvaged: Salvaged | None = None
        self._tail: Tail | None = None
        self._begun = False

    async def open(self) -> None:
        if asyncio.get_running_loop() is not self._execution.loop:
            raise BadArguments(
                f"the stream {self._name!r} was opened in a thread with a loop of its own; write the step with `async def`"
            )
        try:
            await self._open()
        except StoreUnavailable:
            self._execution.close("lost")  # no fault of the body's: the run is begun anew
            raise Suspended from None

    async def _open(self) -> None:
        streams = self._execution.streams
        await streams.know()
        if self._name in self._attempt.open_now:
            raise busy(self._name, self._key)
        if self._attempt.over:
            raise closed(self._name)
        tail = streams.hold(self._name, self._key)
        self._attempt.open_now |= {self._name}
        if self._name not in self._attempt.opened:
            self.salvaged = await streams.salvage(tail, self._key)
            self._number = max(self._number, tail.attempt + 1 if tail.key == self._key else 0)
        else:  # this very body wrote to it before, and goes on
            self._number, self._begun = tail.attempt, tail.key == self._key
        self._attempt.opened |= {self._name}
        self._tail = tail

    def keep(self) -> None:
        if self.salvaged is None:
            return
        if self._begun:
            raise HoldfastError(f"keep() of the stream {self._name!r} came after a write; call it before the first one")
        self._begun = True
        assert self._tail is not None
        self._tail.attempt = self._number

    def write(self, text: str) -> Any:
        self._check()
        if text:
            self._execution.streams.grow(self._begin(), text)
            if self._execution.outflow.full:
                return self._execution.outflow.room()
        return None

    def _check(self) -> None:
        if self._tail is None or self._attempt.over:
            raise closed(self._name)

    def _begin(self) -> Tail:
        """The first text of this block."""
        tail = self._tail
        assert tail is not None
        if not self._begun:
            self._begun = True
            void = None if self.salvaged is None else self.salvaged.reason
            self._execution.streams.begin(tail, self._key, self._number, void)
        return tail

    def close(self, reason: Reason | None) -> None:
        if reason is None and not self._attempt.over and self._tail is not None:
            if self._begun or self.salvaged is not None:  # else nothing was written, and nothing is left of this block
                self._execution.streams.end(self._begin())
            self._tail.holder = None
        self._attempt.open_now -= {self._name}
        # Who raised may be tried again: the outcome of the step, or the next attempt, says what it was.
        self._tail = None


def closed(name: str) -> HoldfastError:
    """It is too late to write, or too early."""
    return HoldfastError(f"the stream {name!r} is not open; write inside `async with stream(...)`")


def busy(name: str, holder: str) -> HoldfastError:
    """Somebody else has the stream."""
    return HoldfastError(
        f"the stream {name!r} is being written by {holder!r}; two at once would mix up their texts. Give each a name of its "
        "own, or begin when the other has ended"
    )
