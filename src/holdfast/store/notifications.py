"""Notifications: which receivers are told of which events, and the messages that are to go out for them.

A notification has a place in the feed. One transaction reads the feed behind it, writes a delivery for each message, and moves the
place: so an event is told once, whatever dies. The feed has no gaps (journal.py): it ends before the oldest transaction that is
open, so a place that was passed gets no event later.

Messages are deliveries (triggers.py) that go the other way: under the name `to NAME`, which no trigger can have. A worker
takes one, sends it, and ends it; what fails is due again later, then dead. The row has the message as it was written first, and
its key is the id that a receiver knows it by. That a run is stuck is no event: workers look now and then, and the key of the
message says which stop of the run it is, so that it is told once.

Lock order: rows of notifications in the order of their names, then rows of deliveries. Crash points: each work is one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.errors import UnknownNotification
from holdfast.store import audit
from holdfast.store.journal import feed
from holdfast.store.triggers import NewDelivery, keep
from holdfast.store.work import Asking, Feature, Transaction, rows, to_json
from holdfast.words.model import RunRow
from holdfast.words.notifications import Message, Target, messages
from holdfast.words.triggers import OUTGOING

NEWS: Final = " notifications"  # under this name listeners hear of a change; no run has it
KIND: Final = "notify"  # of deliveries that go out
STATES: Final = ("active", "paused")
_EVENTS_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class NotificationRow:
    """A notification as the store keeps it."""

    name: str
    config: str
    state: str
    position: int
    made_by: str
    created_at: int
    updated_at: int


def outgoing(name: str) -> str:
    """Name the deliveries of a notification."""
    return OUTGOING + name


class Notifications(Feature):
    """Notifications: made, steered, read; and messages for them, written."""

    async def make_notification(self, name: str, config: str, *, by: str, via: str) -> NotificationRow:
        """Make a notification, which is told of what happens from now on; or change one, which keeps its place and its state."""
        return await self._submit(lambda tx: _make(tx, name, config, by, via), journal=False)

    async def steer_notification(self, name: str, state: str, *, by: str, via: str) -> NotificationRow:
        """Pause a notification, or have it told of what happens from now on."""
        return await self._submit(lambda tx: _steer(tx, name, state, by, via), journal=False)

    async def delete_notification(self, name: str, *, by: str, via: str) -> None:
        """Delete a notification, and the messages that have not gone out, dead ones too."""
        await self._submit(lambda tx: _delete(tx, name, by, via), journal=False)

    async def notification(self, name: str) -> NotificationRow:
        """Read one; `UnknownNotification` if there is none."""
        found = await self._glance(rows, "notification", name=name)
        if not found:
            raise _unknown(name)
        return NotificationRow(*found[0])

    async def notifications(self) -> list[NotificationRow]:
        """Read all, in the order of their names."""
        return [NotificationRow(*row) for row in await self._glance(rows, "notifications")]

    async def tell_events(self) -> bool:
        """Write messages for the events behind the places of the active notifications, and move these. True: there may be more."""
        return await self._submit(_tell_events, journal=False)

    async def tell(self, told: Sequence[tuple[str, Message]]) -> int:
        """Write these messages, each for a notification, unless they are there or it is not active; returns how many."""
        return await self._submit(lambda tx: _tell(tx, told), journal=False)


def _unknown(name: str) -> UnknownNotification:
    return UnknownNotification(f"there is no notification {name!r}; `holdfast notify` lists them")


def _locked(tx: Transaction, name: str) -> Asking[NotificationRow]:
    row = yield from tx.row("lock_notification", name=name)
    if row is None:
        raise _unknown(name)
    return NotificationRow(*row)


def _reach(tx: Transaction) -> Asking[int]:
    """Tell the last place in the feed behind which nothing can come any more."""
    sure, _ = yield from tx.row("feed_reach")
    return int(sure) - 1


def _make(tx: Transaction, name: str, config: str, by: str, via: str) -> Asking[NotificationRow]:
    place = yield from _reach(tx)
    row = yield from tx.row("put_notification", name=name, config=config, position=place, made_by=by)
    yield from audit.note(tx, "", by, via, "notify", {"notification": name})
    tx.changed(NEWS)
    return NotificationRow(*row)


def _steer(tx: Transaction, name: str, state: str, by: str, via: str) -> Asking[NotificationRow]:
    row = yield from _locked(tx, name)
    if row.state == state:
        return row
    place = yield from _reach(tx)
    made = yield from tx.row("steer_notification", name=name, state=state, position=max(place, row.position))
    action = "pause_notification" if state == "paused" else "resume_notification"
    yield from audit.note(tx, "", by, via, action, {"notification": name})
    tx.changed(NEWS)
    return NotificationRow(*made)


def _delete(tx: Transaction, name: str, by: str, via: str) -> Asking[None]:
    yield from _locked(tx, name)
    yield from tx.rows("delete_notification", name=name)
    yield from tx.rows("drop_deliveries", trigger=outgoing(name))
    yield from audit.note(tx, "", by, via, "delete_notification", {"notification": name})
    tx.changed(NEWS)


def _tell_events(tx: Transaction) -> Asking[bool]:
    found = [NotificationRow(*row) for row in (yield from tx.rows("lock_notifications"))]
    if not found:
        return False
    targets = [(row, Target.loaded(row.config)) for row in found]
    kinds = sorted({kind for _, target in targets for kind in target.sources()})
    end = yield from _reach(tx)  # first: all that is before this is seen by the read that follows
    events = (yield from feed(min(row.position for row in found), kinds, _EVENTS_AT_ONCE)) if kinds else []
    more = len(events) == _EVENTS_AT_ONCE
    if events:
        end = events[-1].position if more else max(end, events[-1].position)
    ids = to_json(sorted({event.run for event in events}))
    runs = {row[0]: RunRow(*row) for row in (yield from tx.rows("runs_named", ids=ids))} if events else {}
    for event in events:
        run = runs.get(event.run)
        for row, target in targets:
            if run is not None and event.position > row.position and event.kind in target.sources():
                for message in messages(row.name, target, event, run):
                    yield from _write(tx, row.name, message)
    yield from tx.rows("move_notifications", position=end)
    return more


def _tell(tx: Transaction, told: Sequence[tuple[str, Message]]) -> Asking[int]:
    active = {row[0] for row in (yield from tx.rows("lock_notifications"))}
    written = 0
    for name, message in told:
        if name in active:
            written += yield from _write(tx, name, message)
    return written


def _write(tx: Transaction, name: str, message: Message) -> Asking[bool]:
    kind = {"type": str(message.document["type"])}
    return (yield from keep(tx, NewDelivery(outgoing(name), message.id, KIND, kind, message.body())))
