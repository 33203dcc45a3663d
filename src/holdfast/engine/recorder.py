"""The pen of a run: every event of its journal gets its number here, in the order in which things happened.

Look here for how a record becomes durable, and what waits for that.

An append is queued at once and acknowledged later; the store commits the appends of a run in order. A refused write means
that another worker owns the run: it is lost. Once the run is leaving nothing is recorded any more.

Streams. Text collects in the `Outflow`, and one row is made of all that came to a stream in a tenth of a second, or sooner if
there is much of it. Whatever else the run records comes behind what waits, and in the same commit if it can. So no outcome is
ever durable while text that was written before it is not, and the end of a stream costs no commit of its own. Text that waits
counts as a write on its way: meanwhile the run does not leave memory. Before the run is live nothing may be written, and so
nothing leaves.

Transactions. While one that will hold a record of this run is open, the pen is held: what is recorded gets its number and
waits. It is written in that transaction, up to the step's own record, or after it; so the order of numbers is the order of
commits all the same.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from holdfast.engine.host import Host
from holdfast.engine.inputs import Inputs
from holdfast.engine.life import Life
from holdfast.errors import LeaseLost, StoreUnavailable, Suspended
from holdfast.runtime import Placed
from holdfast.store.announcements import Announcing
from holdfast.store.appends import Append, Transition
from holdfast.store.approvals import NewApproval
from holdfast.store.blobs import spilled
from holdfast.store.conversations import Talking
from holdfast.store.runs import NewRun
from holdfast.store.streams import Piece
from holdfast.store.work import settle
from holdfast.values.codec import BLOB_BYTES, Shape, checked_size
from holdfast.words.clock import Clock, Timer
from holdfast.words.flag import Flag
from holdfast.words.harmless import logger
from holdfast.words.model import OUTCOMES, Event

_log = logger("holdfast")
FLUSH_S: Final = 0.1
FLUSH_CHARACTERS: Final = 16_384  # so much in one row, at about the most
MOST_CHARACTERS: Final = 131_072  # not in the store yet: then writers must wait


class Receipt:
    """Callback for a committed append. A small object instead of a closure: every step in flight holds one."""

    __slots__ = ("pen",)

    def __init__(self, pen: Recorder) -> None:
        self.pen = pen

    def __call__(self, at: int, error: BaseException | None) -> None:
        """The store tells what became of it."""
        pen = self.pen
        pen.on_their_way -= 1
        pen.unacked -= 1
        if not pen.progress.up:
            pen.progress.set()
        if error is None:
            self.acknowledged(at)
            return
        if not isinstance(error, LeaseLost | StoreUnavailable):
            _log.error("run %r: its journal could not be written: %r", pen.life.run.id, error)
        pen.life.close("lost")

    def acknowledged(self, at: int) -> None:
        """The append is in the store since then."""


class Written(Receipt):
    """Callback for an append that holds one event."""

    __slots__ = ("event", "then")

    def __init__(self, pen: Recorder, event: Event, then: Callable[[Event], None] | None) -> None:
        self.pen, self.event, self.then = pen, event, then

    def acknowledged(self, at: int) -> None:
        self.event.at = at
        self.pen.landed(self.event, self.then)


class Landed(Receipt):
    """Acknowledges `size` characters of streams."""

    __slots__ = ("_size",)

    def __init__(self, pen: Recorder, size: int) -> None:
        self.pen, self._size = pen, size

    def acknowledged(self, at: int) -> None:
        self.pen.outflow.landed(self._size)


class Recording(Protocol):
    """The owner of a pen: one attempt at a run."""

    def landed(self, event: Event) -> None:
        """An outcome is durable."""

    def rested(self) -> None:
        """Another write is."""


class Recorder:
    """The owner's pen: one per attempt at a run."""

    __slots__ = (
        "_clock", "_heard", "_held", "_outflow", "_store", "_value_limit_bytes", "_worker", "inputs", "life", "new_outcomes",
        "next_seq", "numbered", "on_their_way", "owner", "progress", "texts", "unacked", "undelivered",
    )  # fmt: skip

    def __init__(self, life: Life, host: Host, owner: Recording, numbered: int, inputs: Inputs) -> None:
        self.life, self._store, self._value_limit_bytes = life, host.store, host.value_limit_bytes
        self._clock, self._heard = host.clock, host.recorded
        self.owner = owner
        self.next_seq = life.run.next_seq
        self.unacked = 0
        self.on_their_way = 0  # of these: given to the store
        self._held: list[tuple[Append, Receipt]] | None = None  # and the writes that wait for a transaction
        self.numbered = numbered  # outcomes that have a place in the journal, over all eras
        self.new_outcomes = 0  # of these: written in this attempt
        self.undelivered: dict[int, Event] = {}  # and the outcomes that the agent has not seen yet
        self.texts: dict[str, str] = {}  # large values, by the digest of their blob
        self.inputs = inputs
        self._worker = life.run.lease_owner  # until the first event of this claim has said it
        self._outflow: Outflow | None = None  # until something is written to a stream
        self.progress = Flag()  # put up whenever a write is acknowledged or a body ends

    @property
    def outflow(self) -> Outflow:
        if self._outflow is None:
            self._outflow = Outflow(self, self._clock)
        return self._outflow

    def went_live(self) -> None:
        """Let text leave that was written to streams on the way."""
        if self._outflow is not None:
            self._outflow.soon()

    def record(
        self,
        kind: str,
        key: str | None,
        data: dict[str, Any],
        text: str | None = None,
        *,
        children: Sequence[NewRun] = (),
        approvals: Sequence[NewApproval] = (),
        withdraws: Sequence[str] = (),
        talks: Sequence[Talking] = (),
        announces: Sequence[Announcing] = (),
        checkpoint: bool = False,
        releases: tuple[int, int] | None = None,
        inbox_seen: int | None = None,
        transition: Transition | None = None,
        then: Callable[[Event], None] | None = None,
        alone: bool = False,
    ) -> None:
        """Give an event its place in the journal and have it written; `then` is called once it is durable.

        With `alone` that may be before this returns; the caller says that nothing else can come with it.
        """
        if self.life.closing:
            return
        if self._outflow is not None:
            self._outflow.flush()  # what was written to streams before is durable before, or at the same time
        if self._worker is not None:
            data, self._worker = {**data, "worker": self._worker}, None
        run, seq = self.life.run, self.next_seq
        event = Event(seq, kind, key, data, text, None, 0, run.lease_epoch, run.id)
        self.next_seq = seq + 1
        if kind in OUTCOMES:
            self.numbered += 1
            self.undelivered[seq] = event
        append = Append(
            run.id, run.lease_epoch, seq, (event,), None, children, approvals, withdraws, talks, announces, (), inbox_seen,
            seq if checkpoint else None, releases, transition, self.inputs.taken() if "inputs" in data else None,
        )  # fmt: skip
        if children or transition is not None or (text is not None and len(text) > BLOB_BYTES):
            self._spill(append, event)
        self.write(append, Written(self, event, then), alone=alone)

    def _spill(self, append: Append, event: Event) -> None:
        """Large values are kept once, apart from what refers to them."""
        blobs: dict[str, bytes] = {}
        if event.value is not None and len(event.value) > BLOB_BYTES:
            content = event.value.encode()
            event.blob = hashlib.sha256(content).hexdigest()
            blobs[event.blob], self.texts[event.blob], event.value = content, event.value, None
        for child in append.children:
            child.input, more = spilled(child.input)
            blobs.update(more)
        if append.transition is not None and append.transition.result is not None:
            append.transition.result, more = spilled(append.transition.result)
            blobs.update(more)
        append.blobs = blobs or None

    def claimed(self, event: Event) -> None:
        """Count an event that the claim of this attempt has written."""
        self.new_outcomes += event.kind in OUTCOMES
        if self._heard is not None:
            self._heard(event)

    def landed(self, event: Event, then: Callable[[Event], None] | None = None) -> None:
        """An event is durable."""
        if self._heard is not None:
            self._heard(event)
        if self.life.closing:
            return
        if self.inputs.memory is not None:
            self.inputs.saw(event, self.texts)
        if then is not None:
            then(event)
        if event.kind in OUTCOMES:
            self.new_outcomes += 1
            self.owner.landed(event)
        else:
            self.owner.rested()  # what was begun is begun: perhaps the run only waits now

    def write(self, append: Append, receipt: Receipt, *, alone: bool = False) -> None:
        """Queue an append; what is refused ends this attempt."""
        self.unacked += 1
        if self._held is not None:
            self._held.append((append, receipt))
            return
        self.on_their_way += 1
        try:
            self._store.post(append, receipt, alone=alone)
        except StoreUnavailable:
            self.on_their_way -= 1
            self.unacked -= 1
            self.life.close("lost")

    # What the store itself puts into the journal

    def expect(self) -> None:
        """Leave the next numbers to the store: records wait from now on until it is known how many it took."""
        assert self._held is None
        self._held = []
        self.unacked += 1

    def make_way(self, events: list[Event]) -> None:
        """The store took these numbers: what was recorded meanwhile moves behind them. Nobody has seen any of that."""
        assert self._held is not None
        self.unacked -= 1
        for append, _ in reversed(self._held):
            append.expected_seq += len(events)
            for event in reversed(append.events):
                self._renumber(event, len(events))
        self.next_seq += len(events)
        self.numbered += len(events)
        self.undelivered |= {event.seq: event for event in events}

    def _renumber(self, event: Event, by: int) -> None:
        moved = self.undelivered.pop(event.seq, None)
        event.seq += by
        if moved is not None:
            self.undelivered[event.seq] = moved

    # Writing in somebody's transaction

    @property
    def is_held(self) -> bool:
        return self._held is not None

    async def hold(self) -> None:
        """Keep back what is recorded from now on; returns when all before it is in the store."""
        if self._held is None:
            self._held = []
        while self.on_their_way:
            self.progress.clear()
            await self.progress.wait()

    def held(self) -> list[Append]:
        """Appends that are kept back, in order."""
        return [append for append, _ in self._held or ()]

    def committed(self, count: int, at: int) -> None:
        """So many of them are in the store now, by the transaction."""
        assert self._held is not None
        done, self._held = self._held[:count], self._held[count:]
        for _, receipt in done:
            self.unacked -= 1
            self.life.outside.run(receipt.acknowledged, at)

    def take_back(self, nth: int) -> None:
        """The n-th of them did not happen: it loses its number, and those after it move up. Nobody has seen any of them."""
        assert self._held is not None
        append, _ = self._held.pop(nth)
        self.unacked -= 1
        count = len(append.events)
        for event in append.events:
            self.numbered -= self.undelivered.pop(event.seq, None) is not None
            self._worker = event.data.get("worker", self._worker)
        for later, _ in self._held[nth:]:
            later.expected_seq -= count
            for event in later.events:
                self._renumber(event, -count)
        self.next_seq -= count

    def let_go(self, *, lost: bool = False) -> None:
        """Write what is still kept back: the transaction is over. `lost`: nothing of it may be written."""
        held, self._held = self._held or [], None
        self.unacked -= len(held)
        if not lost:
            for append, receipt in held:
                self.write(append, receipt)
        self.progress.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until it is so, or the run leaves memory; looks whenever a write is acknowledged or a body has ended."""
        while not (holds() or self.life.closing):
            self.progress.clear()
            await self.progress.wait()

    async def let_through(self) -> None:
        """Wait until nothing is kept back."""
        while self._held is not None:
            self.progress.clear()
            await self.progress.wait()

    async def durably(
        self, kind: str, key: str | None, data: dict[str, Any], text: str | None = None, **more: Any
    ) -> Event:
        """Record, and go on once it is durable. One that leaves memory meanwhile is cancelled."""
        written: asyncio.Future[Event] = self.life.loop.create_future()
        self.record(kind, key, data, text, then=lambda event: settle(written, event, None), **more)
        if self.life.closing:
            raise Suspended
        self.unacked += 1  # until the waiter here goes on: in between the run must not look as if nothing moved
        try:
            return await written
        finally:
            self.unacked -= 1
            self.progress.set()

    def keep_only(self, blobs: set[str | None]) -> None:
        """Forget large values that nobody can ask for any more."""
        self.texts = {digest: text for digest, text in self.texts.items() if digest in blobs}

    def stored(self, shape: Shape, value: object, where: str) -> tuple[str, Any]:
        """A value as text, and the copy that live code gets."""
        text, copy = shape.store(value, where)
        checked_size(text, self._value_limit_bytes, where)
        return text, copy

    def text_of(self, event: Event) -> str:
        """The payload of an event, wherever it is kept."""
        if event.value is not None:
            return event.value
        return "null" if event.blob is None else self.texts[event.blob]


class Outflow:
    """The text of one attempt at a run on its way to the store."""

    __slots__ = ("_clock", "_growing", "_pen", "_room", "_size", "_unwritten", "_waiting", "timer")

    def __init__(self, pen: Recorder, clock: Clock) -> None:
        self._pen, self._clock = pen, clock
        self._waiting: list[Piece] = []
        self._growing: dict[str, Piece] = {}  # of those the last one of each stream, if it is text
        self._size = self._unwritten = 0  # characters that wait; and those together with what is being written
        self.timer: Timer | None = None  # set while something waits
        self._room: asyncio.Event | None = None

    def add(self, piece: Piece, text: str = "") -> None:
        """The next piece of a stream: text, which may grow one that waits, or a mark."""
        growing = self._growing.get(piece.stream)
        if text and growing is not None and growing.key == piece.key and growing.attempt == piece.attempt:
            growing.parts.append(text)
            growing.position = piece.position
        else:
            if text:
                piece.parts.append(text)
                self._growing[piece.stream] = piece
            else:
                self._growing.pop(piece.stream, None)
            self._waiting.append(piece)
        self._size += len(text)
        self._unwritten += len(text)
        self.soon()

    def soon(self) -> None:
        """Have what waits written before long, if the run is live."""
        pen = self._pen
        if self.timer is None and self._waiting and pen.life.live and not pen.life.closing:
            pen.unacked += 1
            with Placed(None):  # it is our timer, not the agent's
                self.timer = self._clock.after(FLUSH_S, self.flush)
        if self._size >= FLUSH_CHARACTERS:
            self.flush()

    def flush(self) -> None:
        """Write what waits now."""
        pen, run = self._pen, self._pen.life.run
        if self.timer is None or pen.life.closing:
            return
        self.timer.cancel()
        self.timer = None
        append = Append(run.id, run.lease_epoch, pen.next_seq, pieces=self._waiting)
        size, self._size = self._size, 0
        self._waiting = []
        self._growing.clear()
        pen.unacked -= 1
        pen.write(append, Landed(pen, size))

    def landed(self, size: int) -> None:
        """Count a write that is stored: there is room for more."""
        self._unwritten -= size
        self._pen.owner.rested()
        if self._room is not None and self._unwritten < MOST_CHARACTERS:
            self._room.set()
            self._room = None

    @property
    def full(self) -> bool:
        """Must writers wait?"""
        return self._unwritten >= MOST_CHARACTERS

    async def room(self) -> None:
        """Wait until the store has come after."""
        while self.full:
            if self._room is None:
                self._room = asyncio.Event()
            await self._room.wait()
