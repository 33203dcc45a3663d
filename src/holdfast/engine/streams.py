"""The streams of a run: where each stands, the call that writes to it, and what steps do with them.

Only the owner of a run writes, so where a stream stands is read once in a life and known from then on. One call at a time
holds a stream: a step from its first word until it has closed the stream or has an outcome, over all its attempts; agent code
while its block is open. Others may go on behind it, so an `end` is the end of a text; the stream is over when the run is. A
block in which nothing is written leaves no mark.

Attempts. When a step runs again, what it wrote last in the stream is its salvage. If it keeps it, it goes on behind it. If
not, a `restart` mark says to readers that the text since the step began is void, and it begins anew behind the mark. An
attempt that fails and is tried again leaves a `break` with the reason, which readers do not see; one that crashed leaves
nothing, and that is how it is known.

Crash points. Text that waits in memory is lost, as if it had not been written. An outcome is never there without the text
before it (recorder.py).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

from holdfast.engine.host import Host
from holdfast.engine.recorder import Outflow
from holdfast.errors import HoldfastError, StepTimeout
from holdfast.store.streams import Piece
from holdfast.words.model import Claimed, RunRow
from holdfast.words.salvage import Reason, Salvaged

Written = list[Any]  # a text in the journal: where it begins and ends in its stream, of which attempt, why it broke off


@dataclass(slots=True)
class Tail:
    """The end of a stream: its last row, and the text to which that row belongs."""

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
    """The streams of one run, as far as this life of it knows them."""

    __slots__ = (
        "_calls", "_known", "_of_call", "_outflow", "_reasons", "_run", "_store", "_tails", "open_here", "texts", "written",
    )  # fmt: skip

    def __init__(self, run: RunRow, host: Host, outflow: Outflow, calls: Container[str]) -> None:
        self._run, self._store, self._outflow, self._calls = run.id, host.store, outflow, calls
        self._tails: dict[str, Tail] = {}
        self._known = run.lease_epoch <= 1 or (isinstance(run, Claimed) and run.silent)  # nobody has written before
        self._of_call: dict[str, set[str]] = {}  # streams that a call has opened, until it has an outcome
        self._reasons: dict[str, Reason] = {}  # why the last attempt of a call ended
        self.texts: dict[tuple[str, int, int], str] = {}  # what was left unfinished, that the agent may look at
        self.written: dict[str, str] = {}  # what the store has of blocks in agent code that are open
        self.open_here: dict[str, str] = {}  # the streams that agent code has open, and the keys of its calls

    # Where they stand

    async def know(self) -> None:
        """Learn where the streams stand that earlier lives wrote."""
        if self._known:
            return
        for last in await self._store.streams(self._run):
            if last.stream not in self._tails:  # else somebody was quicker, and has written since
                self.learn(last)
        self._known = True

    def learn(self, last: Piece) -> None:
        """Note where a stream stands that an earlier life wrote, or a body that runs elsewhere."""
        tail = Tail(last.stream, last.position, last.kind, last.key, last.attempt, last.began, last.reason)
        tail.parts = None
        self._tails[last.stream] = tail
        self._of_call.setdefault(last.key, set()).add(last.stream)

    @property
    def known(self) -> bool:
        return self._known

    def tail(self, name: str) -> Tail:
        """Return the end of this stream; a new stream is empty."""
        assert self._known
        return self._tails.setdefault(name, Tail(name))

    async def text(self, name: str, began: int, end: int) -> str:
        """Read what was written there from the store."""
        parts: list[str] = []
        after, store, run = began, self._store, self._run
        while after < end and (page := await store.pieces(run, name, after)):
            parts += [one.text for one in page if one.position <= end]
            after = page[-1].position
        return "".join(parts)

    # Writing

    def holder(self, name: str) -> str | None:
        """The call that has this stream; perhaps it broke off in an earlier life, and will run again."""
        tail = self.tail(name)
        broke_off = tail.kind != "end" and tail.key in self._calls
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
        """Begin a text here; `void` says why the one before it is void, if it is."""
        tail.began, tail.key, tail.attempt, tail.parts = tail.position, key, attempt, []
        if void is not None:
            self.mark(tail, "restart", void)

    def keep(self, tail: Tail, attempt: int) -> None:
        """Note that another attempt goes on behind what was written."""
        tail.attempt = attempt

    def forget(self, tail: Tail) -> None:
        """Forget the text from here on: agent code is replayed, so it will not be asked for."""
        tail.parts = None

    def release(self, tail: Tail) -> None:
        """Free a stream that its call has closed."""
        tail.holder = None

    def grow(self, tail: Tail, text: str) -> None:
        """Add text to a stream."""
        if tail.parts is not None:
            tail.parts.append(text)
        tail.position += len(text)
        tail.kind, tail.reason = "data", None
        self._outflow.add(self._last(tail), text)

    def mark(self, tail: Tail, kind: str, reason: Reason | None) -> None:
        """A mark, which counts as one character."""
        tail.position += 1
        tail.kind, tail.reason = kind, reason
        self._outflow.add(self._last(tail))

    def _last(self, tail: Tail) -> Piece:
        return Piece(tail.name, tail.position, tail.kind, tail.key, tail.attempt, tail.began, tail.reason)

    def end(self, tail: Tail) -> None:
        """End a text that is whole; readers hear so at once, unless they have heard it."""
        if tail.kind != "end" or tail.reason is not None:
            self.mark(tail, "end", None)
            self._outflow.flush()

    # Attempts of steps

    async def salvage(self, tail: Tail, key: str) -> Salvaged | None:
        """Salvage what this call had written last, if nobody has written since."""
        if tail.key != key:
            return None
        if tail.parts is None:
            tail.parts = [await self.text(tail.name, tail.began, tail.position)]
        text = "".join(tail.parts)
        return Salvaged(text, self._reason(tail), tail.attempt) if text else None

    def _reason(self, tail: Tail) -> Reason:
        if tail.kind in ("break", "end"):
            return tail.reason or "failed"  # the body that had ended it well failed later
        return self._reasons.get(tail.key, "crashed")

    def attempt_failed(self, key: str, error: Exception) -> None:
        """Note that a body has failed, and why."""
        self._reasons[key] = "timeout" if isinstance(error, StepTimeout) else "failed"

    def broke_off(self, key: str) -> None:
        """Mark where the streams broke off, and why: another attempt comes later, perhaps in another life."""
        for tail in self._of(key):
            if tail.kind not in ("break", "end"):
                self.mark(tail, "break", self._reason(tail))

    async def recall(self, key: str) -> None:
        """Read what a call wrote in earlier lives: it is needed because the call is about to fail."""
        for tail in self._of(key):
            await self.salvage(tail, key)

    def failed(self, key: str) -> dict[str, Written]:
        """Return where the last texts of a call are that has failed for good, for the journal."""
        partial: dict[str, Written] = {}
        for tail in self._of(key):
            if tail.parts:
                partial[tail.name] = [tail.began, tail.position, tail.attempt, self._reason(tail)]
                self.texts[tail.name, tail.began, tail.position] = "".join(tail.parts)
        self.over(key, well=False)
        return partial

    def over(self, key: str, *, well: bool = True, reason: Reason | None = None) -> None:
        """End the streams of a call that has an outcome; other calls may have them."""
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
        """Texts that a failed step had written, from the places that its record names."""
        return {
            name: Salvaged(self.texts[name, began, end], reason, attempt)
            for name, (began, end, attempt, reason) in recorded.items()
        }


def closed(name: str) -> HoldfastError:
    """The error for a write that comes too late, or too early."""
    return HoldfastError(f"the stream {name!r} is not open; write inside `async with stream(...)`")


def busy(name: str, holder: str) -> HoldfastError:
    """The error for a stream that another writer has."""
    return HoldfastError(
        f"the stream {name!r} is being written by {holder!r}; two at once would mix up their texts. Give each a name of its "
        "own, or begin when the other has ended"
    )
