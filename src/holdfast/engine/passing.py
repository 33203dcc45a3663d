"""Before the body of a step that has a rate or a limit: it waits for its turn and for a slot, shared by all workers.

A turn is reserved in the store. If it is not now, that is recorded (`step.held`), and the wait is durable like that for
another attempt: the run may leave memory, and after a crash the turn is known. A turn that was not taken in time is lost,
and another one is reserved. A slot is a row that counts while this run has its lease, so a crash frees it. Who finds none
looks again after a while, longer each time, or at once when a body in this worker leaves one.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import TYPE_CHECKING, Final

from holdfast.engine.calls import Call, Wait
from holdfast.flow import Lane, slack_ms

if TYPE_CHECKING:
    from collections.abc import Callable

_FIRST_LOOK_MS: Final = 100
_LAST_LOOK_MS: Final = 10_000


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

    async def enter(self, held: Callable[[int], object]) -> None:
        """Wait for a turn and a slot; `held` records a turn that must be waited for."""
        lane, clock = self._lane, self._call.execution.clock
        while True:
            await self._until_turn(held)
            await self._into_slot()
            if lane.rate_ms is None or self._turn is None or clock.now() <= self._turn + slack_ms(lane.rate_ms):
                self._turn = None
                return
            self._turn = None  # while it waited for a slot
            self.leave()

    async def _until_turn(self, held: Callable[[int], object]) -> None:
        lane, execution = self._lane, self._call.execution
        if lane.rate_key is None or lane.rate_n is None or lane.rate_ms is None:
            return
        while True:
            if self._turn is None:
                self._turn = await execution.store.take_turn(lane.rate_key, lane.rate_n, lane.rate_ms)
                if self._turn > execution.clock.now():
                    held(self._turn)
            if self._turn > execution.clock.now():
                await doze(self._call, "rate", self._turn)
            if execution.clock.now() <= self._turn + slack_ms(lane.rate_ms):
                return
            self._turn = None

    async def _into_slot(self) -> None:
        lane, execution = self._lane, self._call.execution
        if lane.limit_key is None or lane.limit_n is None:
            return
        run, slots, wait_ms = execution.run, execution.host.slots, float(_FIRST_LOOK_MS)
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
                    return
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
