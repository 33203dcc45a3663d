"""Triggers in a worker: it declares triggers whose code it has, maps their deliveries, and has the actions applied.

Look here when a delivery stays new, or is tried again and again.

Each delivery is mapped by itself, so one that takes long holds up no other; nor do many of one trigger hold up another's, because
no trigger has more than half of the room, what is left is shared, and deliveries that take long do not count there. The
mapping is the user's code: it may raise, hang (mappings.py) or return nonsense. Then the delivery is tried again as its
trigger says, and is dead at last, for a person to look at.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from holdfast.errors import (
    AlreadyDecided,
    Expired,
    LeaseLost,
    NotAllowed,
    RunExists,
    RunFinished,
    Stale,
    StoreUnavailable,
)
from holdfast.store.contract import WorkerStore
from holdfast.store.triggers import NEWS, RETENTION_MS, DeclaredTrigger, DeliveryRow, TriggerRow
from holdfast.values.codec import hashed
from holdfast.values.text import cut, type_name
from holdfast.words.announcements import KIND
from holdfast.words.durations import moment
from holdfast.words.harmless import logger
from holdfast.words.triggers import OUTGOING, Action, Delivery, TriggerSpec, actions
from holdfast.worker.agents import Served
from holdfast.worker.mappings import Mapper, text_of, told_of, trace_of
from holdfast.worker.measures import Measures
from holdfast.worker.rounds import AT_ONCE, Round

_log = logger("holdfast")
_DECLARE_EVERY_S: Final = 30.0
_RECALL_EVERY_S: Final = 30.0
_PRUNE_EVERY_S: Final = 3600.0
_AT_ONCE: Final = 50  # deliveries that are mapped at a time
_LONG_S: Final = 2.0  # after which one that is mapped leaves its room to other triggers
_LONGEST_ASKED_S: Final = 3600.0  # that an error may ask to wait, unless the trigger itself waits longer
TTL_MS: Final = 120_000  # for which a worker has a delivery; a dead one is found sooner
_GRACE_S: Final = 2.0  # for mappings when the worker stops; a worker that comes later maps the others
LOOK: Final = "holdfast triggers"  # shows what is dead
# What will not be otherwise at the next attempt.
_FOR_GOOD: Final = (AlreadyDecided, Expired, NotAllowed, RunExists, RunFinished, Stale)


class Apply(Protocol):
    """Applies what was returned for a delivery, and ends it with that. Without a row a broker keeps it, and it has a key alone."""

    async def __call__(
        self, spec: TriggerSpec, row: DeliveryRow | None, actions: list[Action], key: str = ""
    ) -> list[dict[str, Any]]: ...


def failure(
    spec: TriggerSpec,
    key: str,
    failures: int,
    error: Exception,
    told: str,
    *,
    look: str = LOOK,
    traces: bool = True,
    asked_s: float = _LONGEST_ASKED_S,
) -> tuple[str, float | None]:
    """Tell why a delivery failed, and after how many seconds it is tried again; None: it is dead. Says so in the log."""
    wait_s: float | None = None
    if not isinstance(error, _FOR_GOOD):
        try:
            wait_s = spec.retry.delay_s(failures, error, f"{spec.name}@{key}")
            wait_s = None if wait_s is None else min(wait_s, max(spec.retry.max_s, asked_s))
        except BaseException as problem:
            told += f" (and retry= raised {type_name(type(problem))}: {cut(text_of(problem), 200)})"
    look = shlex.join([*look.split(), spec.name.removeprefix(OUTGOING)])
    how = f"it is dead: `{look}` shows it" if wait_s is None else f"the next attempt is in {wait_s:.1f} s"
    if spec.name.startswith(OUTGOING):
        what = f"message {key!r} of notification {spec.name.removeprefix(OUTGOING)!r} did not go out"
    else:
        what = f"delivery {key!r} of trigger {spec.name!r} failed"
    _log.warning("%s, attempt %d; %s: %s", what, failures, how, told, exc_info=trace_of(error) if traces else None)
    return told, wait_s


def declared_by(spec: TriggerSpec) -> DeclaredTrigger:
    """Write down what a trigger declares."""
    config = json.dumps(spec.config, sort_keys=True)
    return DeclaredTrigger(spec.name, spec.kind, config, hashed(f"{spec.kind} {config}"))


class _Begun(NamedTuple):
    """A delivery that is being mapped: of which trigger, and since when in the time of time.monotonic()."""

    trigger: str
    at: float


class Deliveries(Round):
    """One worker's part in what comes from outside. Without triggers it asks the store nothing."""

    what, news = "deliveries", NEWS
    look: ClassVar[str] = LOOK  # shows what is dead
    traces: ClassVar[bool] = True  # the log tells where a mapping failed
    longest_asked_s: ClassVar[float] = _LONGEST_ASKED_S

    def __init__(self, store: WorkerStore, measures: Measures, mapper: Mapper, apply: Apply) -> None:
        super().__init__(store.clock)
        self._store, self._measures, self._mapper, self._apply = store, measures, mapper, apply
        self._triggers: dict[str, TriggerSpec] = {}
        self._busy: dict[asyncio.Task[None], _Begun] = {}  # what is being mapped
        self._begun: dict[str, float] = {}  # when one of a trigger was begun last
        self._told: set[tuple[str, str]] = set()  # names that others have taken, by kind
        self._declare_at = self._prune_at = self._recall_at = 0.0  # in the time of time.monotonic()

    def serve(self, served: Served) -> None:
        """Map what comes for these triggers from now on."""
        self._triggers, self._declare_at = {spec.name: spec for spec in served.triggers}, 0.0
        self.wake()

    @property
    def asleep(self) -> bool:
        """Is nothing due that is known here, and nothing being mapped?"""
        return super().asleep and not self._busy

    async def keep(self) -> None:
        """Take turns for ever. At the end mappings on their way may end; the store gives back what is left."""
        try:
            await super().keep()
        finally:
            try:
                if self._busy:
                    await asyncio.wait(self._busy, timeout=_GRACE_S)
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Drop what is being mapped, as a killed process would."""
        for each in self._busy:
            each.cancel()

    async def turn(self) -> int | None:
        """Begin to map what is due, as far as there is room."""
        triggers = self._triggers  # others may be served before this has ended
        if not triggers:
            return None
        await self._tend()
        long_ago = time.monotonic() - _LONG_S
        room = _AT_ONCE - sum(each.at > long_ago for each in self._busy.values())
        names = self._with_room(triggers)
        if room <= 0 or not names:
            return self._store.clock.now() + round(_LONG_S * 1000)  # and each that ends wakes this
        kinds = {name: triggers[name].kind for name in names}
        due = await self._store.next_delivery(kinds)
        if due is None or due > self._store.clock.now():
            return due
        taken = await self._store.claim_deliveries(kinds, room, TTL_MS)
        for row, body in taken:
            self._begin(triggers[row.trigger], row, body)
        return AT_ONCE if taken else due

    def _with_room(self, triggers: Collection[str]) -> list[str]:
        """Name the triggers of which more may be mapped now, those with the least under way first, and they in turn."""
        most = _AT_ONCE if len(triggers) == 1 else _AT_ONCE // 2
        busy = self._on_their_way()
        free = (name for name in triggers if busy[name] < most and not self._mapper.hangs(name))
        return sorted(free, key=lambda name: (busy[name], self._begun.get(name, 0.0)))

    def _on_their_way(self) -> Counter[str]:
        """Count what is being mapped by trigger."""
        return Counter(each.trigger for each in self._busy.values())

    def _begin(self, spec: TriggerSpec, row: DeliveryRow, body: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self._handle(spec, row, body))
        self._begun[row.trigger] = now = time.monotonic()
        self._busy[task] = _Begun(row.trigger, now)
        task.add_done_callback(self._handled)

    def _handled(self, task: asyncio.Task[None]) -> None:
        self._busy.pop(task, None)
        self.wake()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a delivery could not be ended; it is tried again", exc_info=error)

    async def _tend(self) -> None:
        """Declare the triggers, and delete what is old, now and then."""
        now = time.monotonic()
        if now >= self._declare_at:
            own = [
                declared_by(spec) for spec in self._triggers.values() if spec.kind != KIND
            ]  # announcements.py has those
            if own:
                self._tell(await self._store.declare_triggers(own))
            self._declare_at = now + _DECLARE_EVERY_S
        await self._recall()
        if now >= self._prune_at:
            await self._prune()

    async def _recall(self) -> None:
        """Make due, now and then, what a wrong clock wrote: what is due later than any wait is long."""
        if time.monotonic() >= self._recall_at and self._triggers:
            longest = {
                name: round(max(spec.retry.max_s, self.longest_asked_s) * 1000) for name, spec in self._triggers.items()
            }
            while await self._store.recall_deliveries(longest, TTL_MS):
                pass
            self._recall_at = time.monotonic() + _RECALL_EVERY_S

    def _tell(self, others: Sequence[TriggerRow]) -> None:
        """Say once that a name is taken."""
        for row in others:
            if (row.name, row.kind) not in self._told:
                self._told.add((row.name, row.kind))
                _log.warning(
                    "trigger %r is a %s here, and a %s in other workers that are there: it stays what it is while they are. Give "
                    "one of them another name", row.name, self._triggers[row.name].kind, row.kind,
                )  # fmt: skip

    async def _prune(self) -> None:
        while await self._store.prune_deliveries(self._store.clock.now() - RETENTION_MS):
            pass
        self._prune_at = time.monotonic() + _PRUNE_EVERY_S

    async def _handle(self, spec: TriggerSpec, row: DeliveryRow, body: bytes) -> None:
        delivery = Delivery(body, json.loads(row.headers), row.key, row.trigger, moment(row.received_at))
        try:
            returned = await self._mapper.one(spec, delivery)
        except Exception as error:  # also what the store raises, if the mapping asked one
            await self._failed(spec, row, error)
            return
        try:
            await self._apply(spec, row, actions(returned, spec.name))
        except LeaseLost:
            return  # it took so long that another worker has it
        except StoreUnavailable as problem:
            _log.warning("delivery %r of trigger %r is tried again: %s", row.key, row.trigger, problem)
        except Exception as error:
            await self._failed(spec, row, error)
        else:
            self._measures.deliver(spec.name, "done", (self._store.clock.now() - row.received_at) / 1000)

    def _told_of(self, error: Exception) -> str:
        """Say why an attempt failed, for the store and the log."""
        return told_of(error)

    async def _failed(self, spec: TriggerSpec, row: DeliveryRow, error: Exception) -> None:
        told, wait_s = failure(
            spec,
            row.key,
            row.attempts + 1,
            error,
            self._told_of(error),
            look=self.look,
            traces=self.traces,
            asked_s=self.longest_asked_s,
        )
        try:
            await self._store.fail_delivery(row, told, None if wait_s is None else round(wait_s * 1000))
        except LeaseLost:
            return
        self._measures.deliver(spec.name, "dead" if wait_s is None else "failed", None)
