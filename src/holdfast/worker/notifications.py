"""Notifications in a worker: it follows the feed for those there are, writes the messages, and sends what is due.

Look here when people are not told of something, or late.

Following is a look that changes nothing, and a transaction only if there is something to tell. A worker remembers how far it
has looked, and moves the places of the notifications on now and then, so that another one need not look at everything again.
On PostgreSQL the feed ends before the oldest open transaction; what is behind it is looked at again soon.

Sending is the work of `Deliveries`: a message is taken, tried, ended, tried again or dead. A notification is a trigger to it whose
mapping sends, and has no actions. A receiver that hangs holds up its own messages and no others.

A worker that cannot send somewhere, whatever the receiver does, leaves these messages to others: with no attempt counted, and with
the reason in the message. It lacks a package or a variable, or may not reach the network.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from typing import Final

from holdfast.errors import BadArguments, LeaseLost, Permanent
from holdfast.store.changes import Changes
from holdfast.store.contract import WorkerStore
from holdfast.store.notifications import KIND, NEWS, NotificationRow, outgoing
from holdfast.store.triggers import RETENTION_MS, DeliveryRow
from holdfast.words.harmless import logger
from holdfast.words.model import RunRow
from holdfast.words.notifications import LATE_MS, STUCK, Target, as_slack, scheme, signatures, stuck
from holdfast.words.triggers import OUTGOING, Delivery, TriggerSpec
from holdfast.words.webhooks import secret_bytes
from holdfast.worker import senders
from holdfast.worker.agents import Served
from holdfast.worker.mappings import Mapper
from holdfast.worker.measures import Measures
from holdfast.worker.rounds import AT_ONCE
from holdfast.worker.triggers import TTL_MS, Apply, Deliveries

_log = logger("holdfast")
_AT_ONCE: Final = 8  # messages of one notification that are on their way from here
_LOOK_EVERY_S: Final = 0.05  # at most, however much is committed
_MOVE_EVERY_S: Final = 30.0  # places of notifications behind which nothing was told
_STUCK_EVERY_MS: Final = 10_000
_STUCK_AT_ONCE: Final = 1_000  # runs that are looked at together
_WRITTEN_AT_ONCE: Final = 100
_MOST_TOLD: Final = 100_000
_LEFT_S: Final = 300.0  # for which messages are left to others that could not go out from here


class Notifications(Deliveries):
    """One worker's part in telling others. It asks the store which notifications there are, and without any nothing else."""

    what, news, look, listens = "notifications", NEWS, "holdfast notify", True
    traces = False  # a receiver that is down is nothing to look for in code
    longest_asked_s = senders.LONGEST_WAIT_S

    def __init__(self, store: WorkerStore, measures: Measures, mapper: Mapper, apply: Apply) -> None:
        super().__init__(store, measures, mapper, apply)
        self._rows: list[NotificationRow] = []
        self._looked = 0  # the place in the feed up to which all is written that is to be told
        self._looked_at = self._moved_at = 0.0  # in the time of time.monotonic()
        self._full = False  # is more due of a notification than may be on its way?
        self._stuck_at = 0  # when runs were looked at that may be stuck, by the store's clock
        self._written: set[str] = set()  # messages about stuck runs that are written
        self._targets: dict[str, Target] = {}
        self._lacking: set[tuple[str, str]] = set()
        self._left: dict[
            str, float
        ] = {}  # notifications that are left to others, until when in the time of time.monotonic()

    def serve(self, served: Served) -> None:
        """Take no notice: a worker sends whatever code it has."""

    def concerned(self, changes: Changes) -> bool:
        """Wake this at any commit, if there are notifications: it may hold an event that is to be told."""
        return bool(self._rows)

    async def turn(self) -> int | None:
        """Write what is to be told, then send what is due, as far as there is room."""
        rows = [row for row in await self._store.notifications() if row.state == "active"]
        if [(row.name, row.config) for row in rows] != [(row.name, row.config) for row in self._rows]:
            self._looked = self._stuck_at = 0
            self._written.clear()
            self._left.clear()
            self._targets = {row.name: Target.loaded(row.config) for row in rows}
        self._rows = rows
        able = [(outgoing(row.name), target) for row in rows if self._able(row, target := self._targets[row.name])]
        self._triggers = {
            name: TriggerSpec(name, KIND, functools.partial(_send, target), {}, target.retry()) for name, target in able
        }
        if not rows or await self._store.held():
            return None
        left_s = self._looked_at + _LOOK_EVERY_S - time.monotonic()  # a store may have thousands of commits a second
        if left_s > 0 and self._full:  # there is enough to send meanwhile
            dues = [self._store.clock.now() + round(left_s * 1000), await self._take()]
        else:
            await asyncio.sleep(max(left_s, 0))
            self._looked_at = time.monotonic()
            await self._tend()
            dues = [await self._tell_events(), await self._tell_stuck(), await self._take()]
        return min((due for due in dues if due is not None), default=None)

    def _able(self, row: NotificationRow, target: Target) -> bool:
        """Should this process try to send there? One that cannot says so, in the first message too, and leaves them to others."""
        if (lacks := _lacks(target)) is not None:
            self._tell_left(row.name, lacks)
        return time.monotonic() >= self._left.get(outgoing(row.name), 0.0)

    def _tell_left(self, name: str, why: str) -> None:
        """Say once why messages are left to others."""
        if (name, why) not in self._lacking:
            self._lacking.add((name, why))
            _log.warning("this worker leaves the messages of notification %r to others: %s", name, why)

    async def _failed(self, spec: TriggerSpec, row: DeliveryRow, error: Exception) -> None:
        """Count an attempt, unless none could be made from here."""
        if not isinstance(error, senders.NotFromHere):
            await super()._failed(spec, row, error)
            return
        self._left[spec.name] = time.monotonic() + _LEFT_S
        why = f"{error} ({error.aside})" if error.aside else str(error)
        self._tell_left(spec.name.removeprefix(OUTGOING), why)
        with contextlib.suppress(LeaseLost):
            await self._store.leave_delivery(row, f"left to another worker: {error}")

    def _told_of(self, error: Exception) -> str:
        """Say why a message did not go out; what the senders say is for people."""
        return str(error) if isinstance(error, senders.Undelivered | Permanent) else super()._told_of(error)

    async def _tend(self) -> None:
        """Give up messages that nobody could send for a month, and delete what is old, now and then."""
        await self._recall()
        if time.monotonic() >= self._prune_at:
            while await self._store.give_up_messages(self._store.clock.now() - RETENTION_MS):
                pass
            await self._prune()

    # What is to be told

    async def _tell_events(self) -> int | None:
        """Write messages for events; returns when to look again, if that is soon."""
        kinds = {kind for target in self._targets.values() for kind in target.sources()}
        place = max(self._looked, min(row.position for row in self._rows))
        sure, all_now = await self._store.feed_reach()
        if (kinds and await self._store.feed(place, kinds, 1)) or time.monotonic() >= self._moved_at + _MOVE_EVERY_S:
            if await self._store.tell_events():
                return AT_ONCE
            self._moved_at = time.monotonic()
        self._looked = max(place, sure - 1)
        return self._soon(sure, all_now) if kinds else None

    def _soon(self, sure: int, all_now: int) -> int | None:
        """Tell when to look again if there may be events that the feed does not show yet."""
        return None if sure >= all_now else self._store.clock.now() + round(_LOOK_EVERY_S * 1000)

    async def _tell_stuck(self) -> int | None:
        """Write messages for runs that do not go on, now and then; returns when to look again."""
        wanting = [(name, target) for name, target in self._targets.items() if STUCK in target.kinds]
        if not wanting:
            return None
        now = self._store.clock.now()
        if not 0 <= now - self._stuck_at < _STUCK_EVERY_MS:
            self._stuck_at = now
            if len(self._written) > _MOST_TOLD:
                self._written.clear()  # what is written already is not written again
            runs = await self._store.halted(LATE_MS, _STUCK_AT_ONCE)
            while runs:
                await self._write_stuck(runs, wanting, now)
                more = len(runs) == _STUCK_AT_ONCE
                runs = await self._store.halted(LATE_MS, _STUCK_AT_ONCE, runs[-1]) if more else []
        return self._stuck_at + _STUCK_EVERY_MS

    async def _write_stuck(self, runs: list[RunRow], wanting: list[tuple[str, Target]], now: int) -> None:
        found = [
            (name, message)
            for run in runs
            for name, target in wanting
            if (message := stuck(name, target, run, now)) is not None and message.id not in self._written
        ]
        for first in range(0, len(found), _WRITTEN_AT_ONCE):
            await self._store.tell(found[first : first + _WRITTEN_AT_ONCE])
        self._written.update(message.id for _, message in found)

    # Messages

    async def _take(self) -> int | None:
        """Begin to send what is due, of each notification as much as there is room for; returns when more is."""
        on_their_way = self._on_their_way()
        rooms = {name: room for name in self._triggers if (room := _AT_ONCE - on_their_way[name]) > 0}
        if not rooms:
            return None  # each that ends wakes this
        self._full, due = False, await self._store.next_delivery(list(rooms))
        if due is None or due > self._store.clock.now():
            return due
        for name, room in rooms.items():
            taken = await self._store.claim_deliveries([name], room, TTL_MS)
            self._full = self._full or len(taken) == room
            for row, body in taken:
                self._begin(self._triggers[name], row, body)
        return AT_ONCE if self._full else due


def _lacks(target: Target) -> str | None:
    """Say what this process lacks to send there, and what to do."""
    found = senders.lacking(target.format, (target.url, *target.secrets))
    return None if found is None else f"it lacks {found}. Mend that, and start it again"


async def _send(target: Target, delivery: Delivery) -> None:
    """Send a message, as the mapping of its notification."""
    if (lacks := _lacks(target)) is not None:
        raise senders.NotFromHere(lacks)
    document = delivery.json()
    url = senders.from_environment(target.url) if target.url.startswith("env:") else target.url
    if target.format == "mail":
        to = url.removeprefix("mailto:")
        await senders.mail(delivery.id, document, to)
        return
    headers = [("user-agent", "holdfast"), ("content-type", "application/json")]
    body = delivery.body if target.format == "json" else as_slack(document)
    if target.secrets:
        at = str(int(time.time()))  # real time: the receiver compares it with its own clock
        signed = signatures([_secret(place) for place in target.secrets], delivery.id, at, body)
        headers += [("webhook-id", delivery.id), ("webhook-timestamp", at), ("webhook-signature", signed)]
    await senders.post(url, body, headers)


def _secret(place: str) -> bytes:
    try:
        return secret_bytes(scheme(), senders.from_environment(place))
    except BadArguments as problem:
        raise senders.NotFromHere(f"{place.removeprefix('env:')} of this worker cannot be used: {problem}") from None
