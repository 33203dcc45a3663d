"""Writing the journal: every event gets its number here, in the order in which things happened.

An append is queued at once and acknowledged later; the store commits the appends of a run in order. A refused write means
that another worker owns the run: it is lost. Once the run is leaving nothing is recorded any more.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
from collections.abc import Callable
from typing import Any

from holdfast.codec import BLOB_BYTES, Shape, checked_size
from holdfast.engine.host import Host
from holdfast.errors import LeaseLost, StoreUnavailable, Suspended
from holdfast.model import OUTCOMES, Event, RunRow
from holdfast.store.base import Append, NewApproval, NewRun, Transition, settle, spilled

_log = logging.getLogger("holdfast")


class Recorder:
    """The owner's pen: one per attempt at a run."""

    closing: str | None
    loop: asyncio.AbstractEventLoop
    outside: contextvars.Context

    def __init__(self, host: Host, run: RunRow) -> None:
        self.host, self.run, self.store = host, run, host.store
        self._heard = host.recorded
        self.next_seq = run.next_seq
        self.unacked = 0
        self.numbered = 0  # outcomes that have a place in the journal, over all eras
        self.undelivered: dict[int, Event] = {}  # those of them that the agent has not seen yet
        self.texts: dict[str, str] = {}  # large values, by the digest of their blob
        self.progress = asyncio.Event()  # set whenever a write is acknowledged or a body ends

    def became_durable(self, event: Event) -> None:
        """An event is in the store."""
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
        children: list[NewRun] | None = None,
        approvals: list[NewApproval] | None = None,
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
        event = Event(self.next_seq, kind, key, data, text, None, 0, self.run.lease_epoch, self.run.id)
        self.next_seq += 1
        if kind in OUTCOMES:
            self.numbered += 1
            self.undelivered[event.seq] = event
        blobs: dict[str, bytes] = {}
        if text is not None and len(text) > BLOB_BYTES:
            content = text.encode()
            event.blob, event.value = hashlib.sha256(content).hexdigest(), None
            blobs[event.blob], self.texts[event.blob] = content, text
        for child in children or ():
            child.input, more = spilled(child.input)
            blobs.update(more)
        if transition is not None and transition.result is not None:
            transition.result, more = spilled(transition.result)
            blobs.update(more)
        append = Append(self.run.id, self.run.lease_epoch, event.seq, [event], blobs, children or [], approvals or [])
        append.inbox_seen, append.transition = inbox_seen, transition
        append.checkpoint_seq = event.seq if checkpoint else None
        self.write(append, lambda at: self._written(event, at, then), alone=alone)

    def _written(self, event: Event, at: int, then: Callable[[Event], None] | None) -> None:
        event.at = at
        if self._heard is not None:
            self._heard(event)
        if not self.closing:
            if then is not None:
                then(event)
            self.became_durable(event)

    def write(self, append: Append, acknowledged: Callable[[int], None], *, alone: bool = False) -> None:
        """Queue an append; what is refused ends this attempt."""
        self.unacked += 1
        try:
            self.store.post(
                append, lambda at, error: self.outside.run(self._told, acknowledged, at, error), alone=alone
            )
        except StoreUnavailable:
            self.unacked -= 1
            self.close("lost")

    def _told(self, acknowledged: Callable[[int], None], at: int, error: BaseException | None) -> None:
        self.unacked -= 1
        self.progress.set()
        if error is None:
            acknowledged(at)
            return
        if not isinstance(error, LeaseLost | StoreUnavailable):
            _log.error("run %r: its journal could not be written: %r", self.run.id, error)
        self.close("lost")

    async def durably(self, kind: str, key: str, data: dict[str, Any], **more: Any) -> Event:
        """Record, and go on once it is durable. One that leaves memory meanwhile is cancelled."""
        written: asyncio.Future[Event] = self.loop.create_future()
        self.record(kind, key, data, then=lambda event: settle(written, event, None), **more)
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
