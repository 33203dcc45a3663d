"""The inbox: signals, by which a run hears from outside, and how its owner takes them.

A sender never writes the journal. It puts a signal into the run's inbox and wakes the run if it waits for that signal; the
owner takes it into the journal. Once a checkpoint is behind a message it leaves the inbox (remnants.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from holdfast.errors import RunFinished, UnknownRun
from holdfast.store import audit
from holdfast.store.blobs import insert_blobs
from holdfast.store.changes import News
from holdfast.store.remnants import Left, has_no_key, packed, unpacked
from holdfast.store.work import Asking, Count, Feature, Transaction, rows, to_json
from holdfast.words.model import Event, Signal

MOST: Final = 10  # signals that are taken at once; an owner that has more to read reads it
_BY_FAMILY: Final = ("child", "approval", "conversation")


class Taken(NamedTuple):
    """The events that were taken into the journal, and whether the owner must look for more: of another kind, large, or many."""

    events: list[Event]
    more: bool


class Inbox(Feature):
    """Signals, sent, and taken by their run's owner."""

    async def send(
        self,
        run: str,
        signal_id: str,
        kind: str,
        topic: str,
        value: str | None,
        data: dict[str, Any],
        blobs: Mapping[str, bytes] | None = None,
        *,
        by: str = "",
        via: str = "",
    ) -> int:
        """Put a signal into the run's inbox; the same signal_id twice is one signal. Returns its position.

        `UnknownRun`, or `RunFinished` when the run has ended.
        """
        work = Send(run, signal_id, kind, topic, value, data, blobs or {}, by, via)
        return await self._submit(work, small=not blobs, runs=[run])

    async def inbox(self, run: str, after: int, limit: int = 1000) -> list[Signal]:
        """Read the signals that came to a run after a position, in the order in which they came."""
        return await self._read(inbox, run, after, limit)

    async def last_messages(self, run: str, limit: int) -> list[Signal]:
        """Read the last messages that were sent to a run, the newest first."""
        return [signal_of(row) for row in await self._glance(rows, "last_messages", run=run, limit=limit)]

    async def count_messages(self, run: str) -> int:
        """Count the messages that were ever sent to a run."""
        ((count,),) = await self._glance(rows, "count_messages", run=run)
        return int(count)

    async def whole_inbox(self, run: str) -> list[Signal]:
        """Read all that ever came to a run, in order; messages that have left its inbox are without their texts."""
        return [signal_of((position, *rest)) for position, _, *rest in await self._read(whole_inbox, run)]

    def take(self, run: str, epoch: int, expected_seq: int, seen: int) -> asyncio.Future[Taken] | None:
        """Begin to take signals after `seen`, at this place of the journal; None where to read and append is as quick.

        Until the owner knows what was taken, it must not append. If its fence does not hold, nothing is taken.
        """
        return None  # there is no way to the database that could be spared


def inbox(run: str, after: int, limit: int) -> Asking[list[Signal]]:
    """Read the signals of a run after a position."""
    found = yield from rows("inbox", run=run, position=after, limit=limit)
    return [signal_of(row) for row in found]


def whole_inbox(run: str) -> Asking[list[tuple[Any, ...]]]:
    """Read the rows of all that ever came to a run, as they were before messages left its inbox, without their texts."""
    found = yield from rows("whole_inbox", run=run)
    left = unpacked((yield from rows("remnants", run=run)))
    there = {position for position, *_ in found}
    gone = [
        (one.position, one.signal_id, "message.received", one.topic, None, None, one.sent_at)
        for one in left
        if one.position not in there
    ]
    return sorted([*map(tuple, found), *gone], key=lambda row: row[0])


def signal_of(row: Any) -> Signal:
    """Read a row of the inbox."""
    position, kind, topic, value, data, sent_at = row
    return Signal(position, kind, topic, value, json.loads(data) if data else {}, sent_at)


@dataclass(frozen=True, slots=True)
class Send:
    """Put a signal into the inbox, once per signal id."""

    run: str
    signal_id: str
    kind: str
    topic: str
    value: str | None
    data: dict[str, Any]
    blobs: Mapping[str, bytes]
    by: str = ""
    via: str = ""

    def __call__(self, tx: Transaction) -> Asking[int]:
        run = self.run
        before = yield from tx.row("signal_position", run=run, signal_id=self.signal_id)
        if before is not None:
            return int(before[0])
        in_doubt = tx.again and has_no_key(self.signal_id)
        if in_doubt:
            left = unpacked((yield from tx.rows("remnants", run=run)))
            found = next((one.position for one in left if one.signal_id == self.signal_id), None)
            if found is not None:
                return found
        position = yield from put_signal(tx, run, self.signal_id, self.kind, self.topic, self.value, self.data)
        if position is None:
            row = yield from tx.row("fence", run=run)
            if row is None:
                raise UnknownRun(f"there is no run {run!r}")
            raise RunFinished(f"run {run!r} is {row[0]} and takes no more messages")
        if self.blobs:
            yield from insert_blobs(tx, self.blobs)
        if in_doubt:
            yield Count("insert_remnant", packed(run, [Left(position, self.signal_id, self.topic, tx.now)]))
        yield from audit.note(tx, run, self.by, self.via, "send", {"topic": self.topic, "position": position})
        return position


@dataclass(frozen=True, slots=True)
class Take:
    """Take the signals of a run under this epoch, at this place of its journal: read and appended in one piece of work.

    To read first and to append then is right as well, and shares its commit with others; but when nothing else is written at
    that moment, it is one round trip more between a person's decision and the agent that waits for it. The fence is that of
    an append, and the place up to which the inbox was read as well. What is taken gets the next numbers of the journal, which
    the owner learns only from the answer: meanwhile it numbers nothing.

    PostgreSQL does it by one statement. This is what is left where that was not possible or its answer was lost: then
    what it wrote is there, because no other process writes here.
    """

    run: str
    epoch: int
    seq: int
    seen: int

    def __call__(self, tx: Transaction) -> Asking[Taken]:
        written: list[Any] = []
        if tx.again:
            written = yield from tx.rows("written", run=self.run, first=self.seq, end=self.seq + MOST, epoch=self.epoch)
        return Taken([self.event(row[0], row[1], row[3], row[4], row[6]) for row in written], more=True)

    def event(self, seq: int, kind: str, data: str | None, value: str | None, at: int) -> Event:
        return Event(seq, kind, None, json.loads(data or "{}"), value, None, at, self.epoch, self.run)


def release(tx: Transaction, run: str, after: int, until: int) -> Asking[None]:
    """Let messages leave the inbox that came after a position, up to another: the journal has them, and a checkpoint is behind."""
    gone = yield from tx.rows("release_messages", run=run, position=after, end=until)
    if gone:
        yield Count("insert_remnant", packed(run, [Left(*row) for row in gone]))
    if len(gone) < until - after:
        yield from tx.rows("empty_messages", run=run, position=after, end=until)


def wake_token(kind: str, topic: str) -> str:
    """Name what `Transition.awaits` must contain for a signal to wake a parked run.

    A message's token is its topic; a child's end is `child:<child id>`, a decision `approval:<approval id>`, the answer to a
    run that asked for a conversation `conversation:<request>`.
    """
    family = kind.partition(".")[0]
    return f"{family}:{topic}" if family in _BY_FAMILY else topic


def put_signal(tx: Transaction, run: str, signal_id: str, kind: str, topic: str, value: str | None,
               data: dict[str, Any]) -> Asking[int | None]:  # fmt: skip
    """Put a signal into an inbox and wake the run if it waits for it; None when the run has ended or is not there."""
    notified = yield from tx.row("notify", run=run, token=wake_token(kind, topic))
    if notified is None:
        return None
    position: int = notified[0]
    yield from tx.rows("insert_signal", run=run, position=position, signal_id=signal_id, kind=kind, topic=topic, value=value,
            data=to_json(data) if data else None)  # fmt: skip
    tx.changed(run, News.DUE)  # its owner should look too, if it has one
    return position
