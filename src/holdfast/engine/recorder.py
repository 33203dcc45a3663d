"""Writing the journal: every event gets its number here, in the order in which things happened.

An append is queued at once and acknowledged later; the store commits the appends of a run in order. A refused write means
that another worker owns the run: it is lost. Once the run is leaving nothing is recorded any more.

While a transaction that will hold a record of this run is open, the pen is held: what is recorded gets its number and
waits. It is written in that transaction, up to the step's own record, or after it; so the order of numbers is the order of
commits all the same.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.engine.host import Host
from holdfast.engine.outflow import Outflow
from holdfast.engine.receipts import Receipt, Written
from holdfast.errors import LeaseLost, StoreUnavailable, Suspended
from holdfast.store.appends import Append, Transition
from holdfast.store.approvals import NewApproval
from holdfast.store.blobs import spilled
from holdfast.store.conversations import Talking
from holdfast.store.runs import NewRun
from holdfast.store.work import settle
from holdfast.values.codec import BLOB_BYTES, Shape, checked_size
from holdfast.words.flag import Flag
from holdfast.words.harmless import logger
from holdfast.words.model import OUTCOMES, Event, RunRow

_log = logger("holdfast")


class Recorder:
    """The owner's pen: one per attempt at a run."""

    __slots__ = (
        "_heard", "_held", "_on_their_way", "host", "next_seq", "numbered", "outflow", "progress", "run",
        "store", "texts", "unacked", "undelivered",
    )  # fmt: skip

    closing: str | None
    live: bool
    loop: asyncio.AbstractEventLoop
    outside: contextvars.Context

    def __init__(self, host: Host, run: RunRow) -> None:
        self.host, self.run, self.store = host, run, host.store
        self._heard = host.recorded
        self.next_seq = run.next_seq
        self.unacked = 0
        self._on_their_way = 0  # of these: given to the store
        self._held: list[tuple[Append, Receipt]] | None = None  # and those that wait for a transaction
        self.numbered = 0  # outcomes that have a place in the journal, over all eras
        self.undelivered: dict[int, Event] = {}  # those of them that the agent has not seen yet
        self.texts: dict[str, str] = {}  # large values, by the digest of their blob
        self.outflow = Outflow(self)
        self.progress = Flag()  # put up whenever a write is acknowledged or a body ends

    def became_durable(self, event: Event) -> None:
        """An event is in the store."""
        raise NotImplementedError

    def rested(self) -> None:
        """Something is over that may have kept the run from coming to rest."""
        raise NotImplementedError

    def close(self, outcome: str) -> None:
        raise NotImplementedError

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
        checkpoint: bool = False,
        inbox_seen: int | None = None,
        transition: Transition | None = None,
        then: Callable[[Event], None] | None = None,
        alone: bool = False,
    ) -> None:
        """Give an event its place in the journal and have it written; `then` is called once it is durable.

        With `alone` that may be before this returns; the caller says that nothing else can come with it.
        """
        if self.closing:
            return
        self.outflow.flush()  # what was written to streams before is durable before, or at the same time
        event = Event(self.next_seq, kind, key, data, text, None, 0, self.run.lease_epoch, self.run.id)
        self.next_seq += 1
        if kind in OUTCOMES:
            self.numbered += 1
            self.undelivered[event.seq] = event
        append = Append(
            self.run.id, self.run.lease_epoch, event.seq, (event,), None, children, approvals, withdraws, talks
        )
        append.inbox_seen, append.transition = inbox_seen, transition
        append.checkpoint_seq = event.seq if checkpoint else None
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

    def landed(self, event: Event, then: Callable[[Event], None] | None = None) -> None:
        """It is durable."""
        if self._heard is not None:
            self._heard(event)
        if not self.closing:
            if then is not None:
                then(event)
            self.became_durable(event)

    def write(self, append: Append, receipt: Receipt, *, alone: bool = False) -> None:
        """Queue an append; what is refused ends this attempt."""
        self.unacked += 1
        if self._held is None:
            self._post(append, receipt, alone)
        else:
            self._held.append((append, receipt))

    def _post(self, append: Append, receipt: Receipt, alone: bool = False) -> None:
        self._on_their_way += 1
        try:
            self.store.post(append, receipt, alone=alone)
        except StoreUnavailable:
            self._on_their_way -= 1
            self.unacked -= 1
            self.close("lost")

    def told(self, receipt: Receipt, at: int, error: BaseException | None) -> None:
        self._on_their_way -= 1
        self.unacked -= 1
        self.progress.set()
        if error is None:
            receipt.acknowledged(at)
            return
        if not isinstance(error, LeaseLost | StoreUnavailable):
            _log.error("run %r: its journal could not be written: %r", self.run.id, error)
        self.close("lost")

    # What the store itself puts into the journal

    def expect(self) -> None:
        """The next numbers are the store's: what is recorded from now on waits until it is known how many it took."""
        assert self._held is None
        self._held = []
        self.unacked += 1

    def make_way(self, events: list[Event]) -> None:
        """It took this many: what was recorded meanwhile moves behind them. Nobody has seen any of that."""
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
    def pen_held(self) -> bool:
        return self._held is not None

    async def hold(self) -> None:
        """Keep back what is recorded from now on; returns when all before it is in the store."""
        if self._held is None:
            self._held = []
        while self._on_their_way:
            self.progress.clear()
            await self.progress.wait()

    def held(self) -> list[Append]:
        """What is kept back, in order."""
        return [append for append, _ in self._held or ()]

    def committed(self, count: int, at: int) -> None:
        """So many of them are in the store now, by the transaction."""
        assert self._held is not None
        done, self._held = self._held[:count], self._held[count:]
        for _, receipt in done:
            self.unacked -= 1
            self.outside.run(receipt.acknowledged, at)

    def take_back(self, nth: int) -> None:
        """The n-th of them did not happen: it loses its number, and those after it move up. Nobody has seen any of them."""
        assert self._held is not None
        append, _ = self._held.pop(nth)
        self.unacked -= 1
        count = len(append.events)
        for event in append.events:
            self.numbered -= self.undelivered.pop(event.seq, None) is not None
        for later, _ in self._held[nth:]:
            later.expected_seq -= count
            for event in later.events:
                self._renumber(event, -count)
        self.next_seq -= count

    def let_go(self, *, lost: bool = False) -> None:
        """The transaction is over: what is still kept back is written now. `lost`: nothing of it may be."""
        held, self._held = self._held or [], None
        if lost:
            self.unacked -= len(held)
        else:
            for append, receipt in held:
                self._post(append, receipt)
        self.progress.set()

    async def let_through(self) -> None:
        """Wait until nothing is kept back."""
        while self._held is not None:
            self.progress.clear()
            await self.progress.wait()

    async def durably(
        self, kind: str, key: str | None, data: dict[str, Any], text: str | None = None, **more: Any
    ) -> Event:
        """Record, and go on once it is durable. One that leaves memory meanwhile is cancelled."""
        written: asyncio.Future[Event] = self.loop.create_future()
        self.record(kind, key, data, text, then=lambda event: settle(written, event, None), **more)
        if self.closing:
            raise Suspended
        self.unacked += 1  # until the one who waits here goes on: in between nobody may think that nothing moves
        try:
            return await written
        finally:
            self.unacked -= 1
            self.progress.set()

    def stored(self, shape: Shape, value: object, where: str) -> tuple[str, Any]:
        """A value as text, and the copy that live code gets."""
        text, copy = shape.store(value, where)
        checked_size(text, self.host.value_limit_bytes, where)
        return text, copy

    def text_of(self, event: Event) -> str:
        """The payload of an event, wherever it is kept."""
        if event.value is not None:
            return event.value
        return "null" if event.blob is None else self.texts[event.blob]

    # What only this run has

    def derived(self, label: str) -> str:
        """A hex string that only this run and label have."""
        return hashlib.sha256(f"{self.run.uid}\0{label}".encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def idempotency_key(self, key: str, digest: str) -> str:
        """Of a call: its place and its input. After a retry of the run another call may come to stand in that place."""
        return f"hf_{self.derived(f'{key}:{digest}')}"
