"""Gatherings: deliveries of a trigger that become one: the last of several, or a list of them.

A mapping returns `Gather` to have its delivery wait for others. That it waits and that the delivery is done are one transaction.
When enough have come, or the time is over, the gathering becomes a delivery of the same trigger, in one transaction with its end;
from there on it is mapped, tried again and seen like any other. So each delivery is in one gathering, and each gathering is one
delivery, whatever dies. Its key has the position of the first, because an id may come again when it was forgotten.

Where the last one alone is kept, one that was tried again may be gathered after a later one has started its run. The agent would
hear of it last, although it is older. So the position that was started last is noted, and what is older starts nothing.

Clocks. A clock that was ahead has written times that are far away once it is right again. What is due later than its trigger waits
for others, as that is declared now, is due now.

Lock order: the row of the gathering, which all that add to it take first. Crash points: each work is one transaction.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from holdfast.store.announcements import NEWS
from holdfast.store.triggers import NewDelivery, keep
from holdfast.store.work import Asking, Feature, Transaction
from holdfast.words.announcements import GATHERED, KIND, gathering_ms, joined
from holdfast.words.triggers import Gather

_AT_ONCE: Final = 100
_LARGEST: Final = 4 * 1024 * 1024  # characters: a gathering of so much is complete
_AHEAD_MS: Final = 10_000  # by which clocks may differ
_FOREVER_MS: Final = 1_000_000_000_000


@dataclass(frozen=True, slots=True)
class GatherAct:
    """Let a delivery wait for others."""

    gather: Gather
    run: None = None

    def __call__(self, tx: Transaction) -> Asking[dict[str, Any]]:
        new = self.gather
        where = {"trigger": new.trigger, "bucket": new.bucket}
        waits = [wait for wait in (new.quiet_ms, new.within_ms) if wait is not None]
        count, size = yield from tx.row(
            "gather", key=f"{new.key}-{new.position}-all", due_at=tx.now + min(waits, default=_FOREVER_MS),
            size=len(new.value), most=new.most, quiet=new.quiet_ms, within=new.within_ms, **where,
        )  # fmt: skip
        yield from tx.rows("put_gathered", position=new.position, value=new.value, **where)
        if not new.most:
            yield from tx.rows("keep_last", **where)
        elif count >= new.most or size >= _LARGEST:
            yield from _end(tx, new.trigger, new.bucket)
        tx.changed(NEWS)
        return {"gather": new.trigger}


class Gatherings(Feature):
    """Gatherings whose time is over."""

    async def end_gatherings(self) -> int:
        """Make deliveries of the gatherings that are due; returns how many."""
        return await self._submit(_end_due, journal=False)

    async def recall_gatherings(self) -> int:
        """Make gatherings due that are due later than their trigger waits for others; returns how many."""
        return await self._submit(_recall, journal=False)


def _recall(tx: Transaction) -> Asking[int]:
    count = 0
    for trigger, config in (yield from tx.rows("gathering_triggers", kind=KIND)):
        wait = gathering_ms(json.loads(config))
        if wait is not None:
            found = yield from tx.rows("recall_gatherings", trigger=trigger, until=tx.now + wait + _AHEAD_MS)
            count += len(found)
    if count:
        tx.changed(NEWS)
    return count


def _end_due(tx: Transaction) -> Asking[int]:
    due = yield from tx.rows("due_gatherings", limit=_AT_ONCE)
    for trigger, bucket in due:
        yield from _end(tx, trigger, bucket)
    return len(due)


def _end(tx: Transaction, trigger: str, bucket: str) -> Asking[None]:
    where = {"trigger": trigger, "bucket": bucket}
    gathered = yield from tx.rows("gathered", **where)
    key, most = yield from tx.row("end_gathering", **where)
    yield from tx.rows("delete_gathered", **where)
    if not most and (yield from tx.row("note_debounced", position=gathered[-1][1], **where)) is None:
        return  # a later one was started before
    values = [value for value, _ in gathered]
    yield from keep(tx, NewDelivery(trigger, key, KIND, {GATHERED: str(len(values))}, joined(values).encode()))
