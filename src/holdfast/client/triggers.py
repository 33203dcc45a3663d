"""Triggers, from outside: declarations, deliveries and their ends; and how the actions of a delivery are applied."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from holdfast.client.base import Base
from holdfast.client.refusals import Refusals, Try
from holdfast.client.run import message
from holdfast.errors import BadArguments, NotAllowed, Stale, UnknownTrigger
from holdfast.store.gatherings import GatherAct
from holdfast.store.triggers import (
    STATUSES,
    Absence,
    Act,
    DeliveryRow,
    NewDelivery,
    SendAct,
    Tally,
    TriggerRow,
    outcome_of,
)
from holdfast.values.text import short
from holdfast.words.durations import moment
from holdfast.words.model import checked_limit, checked_run_id
from holdfast.words.people import Author
from holdfast.words.triggers import (
    OUTGOING,
    Action,
    Decide,
    Delivery,
    Gather,
    Send,
    Start,
    TriggerSpec,
    action_key,
    checked_trigger,
    delivery_key,
)

_LOOK: Final = "`holdfast triggers` shows what there is"


@dataclass(frozen=True, slots=True)
class TriggerInfo:
    """A trigger as it is now.

    Attributes:
        name: Its name.
        kind: "webhook", say.
        config: What is declared of it; secrets are named by where they are.
        workers: How many workers have its code.
        waiting: Deliveries that are not done yet.
        dead: Deliveries that a person must look at.
        done: Deliveries whose actions were applied, of the last 30 days.
        last_at: When the last one came.
        lag_s: For how long the first waiting delivery has waited, in seconds.
        messages: Messages of a queue that were applied: they are deliveries only if they fail. Messages with actions are
            counted with these, once, whatever dies; of messages without any a worker that dies forgets its last seconds.
        lag_messages: Messages that waited with the broker when a worker last asked; None if it is not known, because the broker is
            away, say, or if it is no queue.
        away_workers: How many workers cannot reach the broker of the queue now.
        away_since: Since when the first of them cannot.
        away_error: What one of them was told when it tried last, without credentials.

    Example:
        ```python
        for info in await hf.triggers():
            print(info.name, info.waiting, info.dead)
        ```
    """

    name: str
    kind: str
    config: dict[str, Any]
    workers: int
    waiting: int
    dead: int
    done: int
    last_at: datetime | None
    lag_s: float
    messages: int = 0
    lag_messages: int | None = None
    away_workers: int = 0
    away_since: datetime | None = None
    away_error: str | None = None


@dataclass(frozen=True, slots=True)
class DeliveryInfo:
    """A delivery as it is now; `hf.delivery` has its body.

    Attributes:
        trigger: The trigger it came for.
        id: Its id.
        status: "new", "done" or "dead".
        attempts: How often it failed.
        received_at: When it came.
        due_at: When it is tried next, while it is new.
        error: Why the last attempt failed.
        outcome: What was done: the runs that were started, the messages sent, the questions decided.
        size: Bytes of its body.

    Example:
        ```python
        for info in await hf.deliveries(status="dead"):
            print(info.trigger, info.id, info.error)
        ```
    """

    trigger: str
    id: str
    status: str
    attempts: int
    received_at: datetime
    due_at: datetime | None
    error: str | None
    outcome: tuple[dict[str, Any], ...]
    size: int

    @classmethod
    def of(cls, row: DeliveryRow) -> DeliveryInfo:
        """Tell of a row."""
        due = None if row.due_at is None else moment(row.due_at)
        return cls(
            row.trigger, row.key, row.status, row.attempts, moment(row.received_at), due, row.error, tuple(outcome_of(row)),
            row.size,
        )  # fmt: skip


def is_dismissed(info: DeliveryInfo) -> bool:
    """Was a delivery that failed let be? What was applied has no error any more."""
    return info.status == "done" and info.error is not None


class Triggers(Base):
    """The part of a client that has to do with triggers."""

    _refusals: Refusals

    async def triggers(self) -> list[TriggerInfo]:
        """List the triggers that workers have declared, in the order of their names.

        Example:
            ```python
            assert [info.name for info in await hf.triggers() if info.dead] == []
            ```
        """
        tallies: dict[tuple[str, str], Tally] = {
            (tally.trigger, tally.status): tally for tally in await self.store.tally_deliveries()
        }
        now, away, taken = self.store.clock.now(), await self.store.absences(), await self.store.taken()
        found = [
            (replace(row, taken=row.taken + taken.get(row.name, 0)), workers)
            for row, workers in await self.store.triggers()
        ]
        return [_info(row, workers, tallies, now, away.get(row.name)) for row, workers in found]

    async def deliveries(
        self, *, trigger: str | None = None, status: str | None = None, limit: int = 100
    ) -> list[DeliveryInfo]:
        """List deliveries, the latest first.

        Args:
            trigger: Deliveries of this trigger.
            status: "new", "done" or "dead".
            limit: How many at most.

        Raises:
            BadArguments: A filter cannot be used.

        Example:
            ```python
            dead = await hf.deliveries(trigger="github", status="dead")
            ```
        """
        if status is not None and status not in STATUSES:
            raise BadArguments(f"status={short(status)}: choose one of {', '.join(STATUSES)}")
        most = checked_limit(limit)
        states = STATUSES if status is None else (status,)
        places = [(trigger, state) for state in states if trigger is not None]
        if trigger is None:
            places = [(tally.trigger, tally.status) for tally in await self.store.tally_deliveries(states)]
        found: list[DeliveryRow] = []
        for name, state in places:
            if trigger is not None or not name.startswith(OUTGOING):
                found += await self.store.deliveries(name, state, limit=most)
        found.sort(key=lambda row: (row.received_at, row.trigger, row.key), reverse=True)
        return [DeliveryInfo.of(row) for row in found[:most]]

    async def delivery(self, trigger: str, id: str) -> Delivery:
        """Read a delivery as its mapping gets it: `github(await hf.delivery("github", "72d3162e"))` tells what that returns.

        Raises:
            UnknownTrigger: There is no such delivery.

        Example:
            ```python
            for info in await hf.deliveries(status="dead"):
                print((await hf.delivery(info.trigger, info.id)).body)
            ```
        """
        return (await self._delivery(trigger, id))[1]

    async def replay_delivery(self, trigger: str, id: str) -> DeliveryInfo:
        """Try a dead delivery again from the beginning, when what it failed for is mended. One that is done stays done.

        Raises:
            UnknownTrigger: There is no such delivery.

        Example:
            ```python
            for info in await hf.deliveries(status="dead"):
                await hf.replay_delivery(info.trigger, info.id)
            ```
        """
        write = self.store.replay_delivery(trigger, delivery_key(id), **self._author())
        return DeliveryInfo.of(await self._written(write, _LOOK))

    async def replay_dead(self, trigger: str) -> int:
        """Try all dead deliveries of a trigger again from the beginning; returns how many there were.

        Raises:
            UnknownTrigger: There is no such trigger, and nothing came for one.

        Example:
            ```python
            for info in await hf.triggers():
                await hf.replay_dead(info.name)
            ```
        """
        until, count = self.store.clock.now(), 0
        while some := await self._written(self.store.replay_dead(trigger, until, **self._author()), _LOOK):
            count += some
        if (
            not count
            and not await self.deliveries(trigger=trigger, limit=1)
            and await self.store.trigger(trigger) is None
        ):
            raise UnknownTrigger(f"there is no trigger {trigger!r}; {_LOOK}")
        return count

    async def dismiss_delivery(self, trigger: str, id: str) -> DeliveryInfo:
        """Let a dead delivery be: it counts as done, and nothing is done about it. Its error and its body stay to be seen.

        Raises:
            UnknownTrigger: There is no such delivery.

        Example:
            ```python
            for info in await hf.deliveries(status="dead"):
                await hf.dismiss_delivery(info.trigger, info.id)
            ```
        """
        write = self.store.dismiss_delivery(trigger, delivery_key(id), **self._author())
        return DeliveryInfo.of(await self._written(write, _LOOK))

    async def delete_trigger(self, name: str) -> None:
        """Forget a trigger whose code is gone. Its deliveries stay for 30 days; if a worker declares it, it comes back.

        Raises:
            UnknownTrigger: There is no such trigger.

        Example:
            ```python
            for info in await hf.triggers():
                if not info.workers:
                    await hf.delete_trigger(info.name)
            ```
        """
        await self._written(self.store.delete_trigger(checked_trigger(name), **self._author()), _LOOK)

    # For edges and workers

    async def _delivery(self, trigger: str, id: str) -> tuple[DeliveryInfo, Delivery]:
        """Read a delivery: its state and its content."""
        row, body = await self.store.delivery(trigger, delivery_key(id))
        whole = Delivery(body, json.loads(row.headers), row.key, row.trigger, moment(row.received_at))
        return DeliveryInfo.of(row), whole

    async def _receive(self, trigger: str, kind: str, id: str, headers: Mapping[str, str], body: bytes) -> bool:
        """Keep a delivery that an edge has taken; False if it came before."""
        new = NewDelivery(trigger, delivery_key(id), kind, headers, body)
        return await self._written(self.store.receive(new), _LOOK)

    async def _apply(
        self, spec: TriggerSpec, row: DeliveryRow | None, actions: Sequence[Action], key: str = ""
    ) -> list[dict[str, Any]]:
        """Apply what a mapping returned, all or nothing, and with it end the delivery; returns what was done.

        Without a row there is only the key of a delivery, which its broker keeps until this has returned.
        """
        author: Author = {"by": spec.kind, "via": f"{spec.kind}:{spec.name}"}
        acts = [
            await self._act(action, action_key(spec.name, key if row is None else row.key, nth), author)
            for nth, action in enumerate(actions)
        ]
        try:
            return await self.store.apply(acts, row, counted=spec.name if row is None else "")
        except (NotAllowed, Stale) as refused:
            code = "stale" if isinstance(refused, Stale) else "not_allowed"
            for action in actions:
                if isinstance(action, Decide):
                    by = action.by if isinstance(action.by, str) else action.by.name
                    self._refusals.note(Try(action.decision, code, by, author["via"]))
            raise

    async def _act(self, action: Action, key: str, author: Author) -> Act:
        if isinstance(action, Start):
            return await self._start_act(action, key, author)
        if isinstance(action, Send):
            own = key if action.key is None else action.key
            return SendAct(await message(self, checked_run_id(action.run), action.topic, action.value, own, author))
        if isinstance(action, Gather):
            return GatherAct(action)
        return await self._decide_act(action, key, author["via"])


def _info(
    row: TriggerRow, workers: int, tallies: Mapping[tuple[str, str], Tally], now: int, away: Absence | None
) -> TriggerInfo:
    of = {status: tallies.get((row.name, status)) for status in STATUSES}
    counts = {status: 0 if tally is None else tally.count for status, tally in of.items()}
    lasts = [row.taken_at, *(tally.last_at for tally in of.values() if tally is not None)]
    last = max((each for each in lasts if each is not None), default=None)
    waits = of["new"]
    return TriggerInfo(
        row.name, row.kind, json.loads(row.config), workers, counts["new"], counts["dead"], counts["done"],
        None if last is None else moment(last), 0.0 if waits is None else max(now - waits.first_at, 0) / 1000,
        row.taken, row.lag if away is None or away.workers < workers else None,
        0 if away is None else away.workers, None if away is None else moment(away.since),
        None if away is None else away.error,
    )  # fmt: skip
