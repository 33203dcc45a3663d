"""Before the body of a step that has a rate or a limit: it waits for its turn and for a slot, shared by all workers.

A turn is reserved in the store. If it is not now, that is recorded (`step.held`), and the wait is durable like that for
another attempt: the run may leave memory, and after a crash the turn is known. A turn that was not taken in time is lost,
and another one is reserved; so is one that comes when the rate is paused.

A rate is paused by a body that was told to come again later (`Passage.learn`). That is in the store before the failure
itself is in the journal, so that nobody, in any worker, asks in between, whatever becomes of this one.

A slot is a row that counts while this run has its lease, so a crash frees it. Who finds none looks again after a while,
longer each time, or at once when a body in this worker leaves one.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.calls import Call, Wait
from holdfast.flow import SHARED, Lane, interval_us, slack_ms
from holdfast.retry import pause_s
from holdfast.store.rates import Closed, Turn

if TYPE_CHECKING:
    from collections.abc import Callable

_FIRST_LOOK_MS: Final = 100
_LAST_LOOK_MS: Final = 10_000
_AFTER_A_PAUSE_MS: Final = 60_000  # for so long turns of a rate without a number are so far apart:
_AFTER_A_PAUSE_US: Final = 50_000


class Freed:
    """Tells those who wait in this worker that a slot is free; in other workers they look by themselves."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def wait(self, key: str) -> asyncio.Future[None]:
        """A future that is done when a slot of this key was left, for the one that has waited longest."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(over)
        return over

    def forget(self, key: str, over: asyncio.Future[None]) -> None:
        """Nobody waits for this one any more."""
        waiting = self._waiting.get(key)
        if waiting is not None and over in waiting:
            waiting.remove(over)
            if not waiting:
                del self._waiting[key]

    def tell(self, key: str) -> None:
        """A slot of this key was left."""
        for over in self._waiting.get(key, ()):
            if not over.done():
                over.set_result(None)
                return


async def doze(call: Call, waits_for: str, due: int, over: asyncio.Future[None] | None = None) -> None:
    """Wait until a time, or until `over` is done: the run may leave memory meanwhile."""
    execution = call.execution
    over = execution.loop.create_future() if over is None else over
    execution.waits[call.key] = Wait(waits_for, due)
    timer = execution.clock.call_at(due, lambda: None if over.done() else over.set_result(None))
    execution.asleep += 1
    execution.gate.kick()
    try:
        await over
    finally:
        execution.asleep -= 1
        timer.cancel()
        execution.waits.pop(call.key, None)


class Passage:
    """How the bodies of one call are let through."""

    def __init__(self, call: Call, lane: Lane, turn: int | None) -> None:
        self._call, self._lane, self._turn = call, lane, turn  # the turn that the journal knows
        self._inside = False

    async def enter(self, held: Callable[[Turn], object]) -> None:
        """Wait for a turn and a slot; `held` records a turn that must be waited for."""
        while True:
            await self._until_turn(held)
            waited = await self._into_slot()
            if await self._still_ours(waited):
                return
            self.leave()

    async def _until_turn(self, held: Callable[[Turn], object]) -> None:
        clock = self._call.execution.clock
        while self._lane.rate_key is not None:
            if self._turn is None:
                turn = await self._reserve(self._lane.rate_key)
                self._turn = turn.at
                waits = turn.at > clock.now()
                if waits:
                    held(turn)
            else:
                waits = True  # it was in the life before this one, if not in this one
            if self._turn > clock.now():
                await doze(self._call, "rate", self._turn)
            if await self._still_ours(waits):
                return

    async def _reserve(self, key: str) -> Turn:
        lane, execution = self._lane, self._call.execution
        interval = interval_us(lane.rate_n or 0, lane.rate_ms or 0)
        if not (interval or lane.tokens_us):
            # Nothing is counted, so nothing is written. But those who were refused, or waited for the end of a pause, come
            # one after the other: all at once most of them would be refused again.
            closed = await execution.store.closed(key)
            if closed.paused + _AFTER_A_PAUSE_MS <= execution.clock.now():
                return Turn(execution.clock.now(), paused=False)
            interval = _AFTER_A_PAUSE_US
        return await execution.store.take_turn(key, interval, lane.tokens_us)

    async def _still_ours(self, waited: bool) -> bool:
        """Can the turn be used? It is lost if it comes too late, or if the rate was closed while we `waited`."""
        lane, execution = self._lane, self._call.execution
        if lane.rate_key is None or self._turn is None:
            return True
        closed = await execution.store.closed(lane.rate_key) if waited else Closed(0, 0)
        now = execution.clock.now()
        late = now > self._turn + slack_ms(lane.rate_ms or 0)
        # A bill that is paid soon is left to turns that are reserved later: with each one all who wait would be put off.
        if late or closed.paused > now or closed.owed > now + slack_ms(lane.tokens_ms):
            self._turn = None
            return False
        return True

    def told(self, turn: Turn) -> dict[str, Any]:
        """What the journal keeps of a turn that must be waited for: when, and of whom if others share it."""
        key = self._lane.rate_key or ""
        shared = {"rate": key.removeprefix(SHARED)} if key.startswith(SHARED) else {}
        return {"at": turn.at, **shared, **({"paused": True} if turn.paused else {})}

    async def learn(self, error: Exception | None, tokens: int = 0) -> str | None:
        """What the end of the body means for all who share the rate; its name if it is paused now."""
        lane, store = self._lane, self._call.execution.store
        if lane.rate_key is None:
            return None
        if tokens and lane.tokens_us:
            since = self._call.execution.clock.now() if self._turn is None else self._turn
            await store.charge(lane.rate_key, tokens, lane.tokens_us, since)
        wait_s = None if error is None else pause_s(error)
        if wait_s is None:
            return None
        await store.pause_rate(lane.rate_key, math.ceil(wait_s * 1000) + 1)  # of this millisecond a part is over
        return lane.rate_key.removeprefix(SHARED)

    async def _into_slot(self) -> bool:
        """Take a slot, if there must be one; tells whether it had to be waited for."""
        lane, execution = self._lane, self._call.execution
        if lane.limit_key is None or lane.limit_n is None:
            return False
        run, slots, wait_ms = execution.run, execution.host.slots, float(_FIRST_LOOK_MS)
        waited = False
        while True:
            over = slots.wait(lane.limit_key)
            try:
                taken = await execution.store.take_slot(
                    lane.limit_key, lane.limit_n, run.id, self._call.key, run.lease_epoch
                )
                if taken:
                    self._inside = True
                    if over.done():  # it was told of another one
                        slots.tell(lane.limit_key)
                    return waited
                waited = True
                due = execution.clock.now() + round(wait_ms * random.uniform(0.75, 1.25))
                await doze(self._call, "slot", due, over)
            finally:
                slots.forget(lane.limit_key, over)
            wait_ms = min(wait_ms * 1.5, _LAST_LOOK_MS)

    def leave(self) -> None:
        """The body has ended: its slot is free once the store knows. If we die before, it is free all the same."""
        execution, key = self._call.execution, self._lane.limit_key
        if not self._inside or key is None or execution.closing:
            return
        self._inside = False

        async def leave() -> None:
            await execution.store.leave_slot(execution.run.id, self._call.key, execution.run.lease_epoch)
            execution.host.slots.tell(key)

        _ = execution.start_driver(leave)
