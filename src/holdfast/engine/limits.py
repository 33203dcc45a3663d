"""The way through rates and limits: a body waits for its turn and for a slot, which all workers share.

Look here when a step is held (`step.held`), or begins too early or too late.

A turn is reserved in the store. If it is not now, that is recorded (`step.held`), and the wait is durable like that for
another attempt: the run may leave memory, and after a crash the turn is known. A turn that is used late delays
the one a window behind it, of whichever worker; one that is much too late is lost and another one is reserved, and so is one
that comes when the rate is paused.

A rate is paused by a body that was told to come again later (`Passage.learn`). That is in the store before the failure
itself is in the journal, so that nobody, in any worker, asks in between, whatever becomes of this one.

A slot is a row that counts while this run has its lease, so a crash frees it. A call that finds none looks again after a while,
longer each time, or at once when a body in this worker leaves one.
"""

from __future__ import annotations

import asyncio
import functools
import math
import random
from collections.abc import Callable
from typing import Any, Final

from holdfast.engine.attempt import Call
from holdfast.engine.parking import Wait
from holdfast.engine.turns import Reservation
from holdfast.store.limits import Turn
from holdfast.values.text import cut
from holdfast.words.limits import SHARED, Lane
from holdfast.words.people import writable
from holdfast.words.retry import pause_s

_BECAUSE: Final = 200  # characters of an error that are kept with a pause
_FIRST_LOOK_MS: Final = 100
_LAST_LOOK_MS: Final = 10_000


async def doze(call: Call, waits_for: str, due: int, over: asyncio.Future[None] | None = None) -> None:
    """Wait until a time, or until `over` is done: the run may leave memory meanwhile."""
    attempt = call.attempt
    over = attempt.life.loop.create_future() if over is None else over
    timer = attempt.host.clock.call_at(due, lambda: None if over.done() else over.set_result(None))
    try:
        with attempt.parking.asleep(call.key, Wait(waits_for, due)):
            await over
    finally:
        timer.cancel()


class Passage:
    """The way of one call's bodies through the limit and the rate of its step."""

    def __init__(self, call: Call, lane: Lane, place: int | None) -> None:
        self._call, self._lane, host = call, lane, call.attempt.host
        turn = None if place is None else Turn(place)  # the turn that the journal knows
        late = functools.partial(host.slots.late.note, host.keep)
        self.reservation = Reservation(lane, turn, host.store, host.clock, late)
        self._inside = False

    async def enter(self, held: Callable[[Turn], object]) -> None:
        """Wait for a turn and a slot; `held` records a turn that must be waited for."""
        ahead_ms, rate = self._call.attempt.host.ahead_ms, self.reservation
        if ahead_ms:
            await self._until_soon(held, ahead_ms)
            return
        while True:
            await self._until_turn(held)
            rate.look = await self._into_slot() or rate.look
            if await rate.usable() and await rate.tell_if_late():
                return
            self.leave()

    async def _until_turn(self, held: Callable[[Turn], object]) -> None:
        clock, rate = self._call.attempt.host.clock, self.reservation
        while self._lane.rate_key is not None:
            if rate.turn is None:
                await self._reserve(held)
            if rate.due > clock.now():
                await doze(self._call, "rate", rate.due)
                rate.look = True
            if await rate.usable():
                return

    async def _until_soon(self, held: Callable[[Turn], object], ahead_ms: int) -> None:
        """Wait until a little before the turn: the performer of the body waits for the rest of it."""
        clock, rate = self._call.attempt.host.clock, self.reservation
        if self._lane.rate_key is not None:
            if rate.turn is None:
                await self._reserve(held)
            if rate.due - ahead_ms > clock.now():
                await doze(self._call, "rate", rate.due - ahead_ms)

    async def _reserve(self, held: Callable[[Turn], object]) -> None:
        turn = await self.reservation.reserve()
        if self.reservation.due > self._call.attempt.host.clock.now():
            held(turn)

    def begins(self, now: int) -> None:
        """The body begins; where it waits for its turn itself, it knows better when."""
        if not self._call.attempt.host.ahead_ms:
            self.reservation.begins(now)

    def told(self, turn: Turn) -> dict[str, Any]:
        """Data for the journal of a turn that must be waited for: when, and of which rate if others share it."""
        key = self._lane.rate_key or ""
        shared = {"rate": key.removeprefix(SHARED)} if key.startswith(SHARED) else {}
        return {"at": turn.at, "place": turn.place, **shared, **({"paused": True} if turn.paused else {})}

    async def learn(self, error: Exception | None, tokens: int = 0) -> str | None:
        """Tell all sharers of the rate how the body ended; returns the rate's name if that pauses it."""
        lane, store, turn = self._lane, self._call.attempt.host.store, self.reservation.turn
        if lane.rate_key is None:
            return None
        if tokens and lane.tokens_us:
            since = self._call.attempt.host.clock.now() if turn is None else turn.at
            await store.charge(lane.rate_key, tokens, lane.tokens_us, since)
        wait_s = None if error is None else pause_s(error)
        if wait_s is None:
            return None
        because = f"{self._call.name}: {cut(writable(str(error)), _BECAUSE)}"
        await store.pause_rate(
            lane.rate_key, math.ceil(wait_s * 1000) + 1, because
        )  # of this millisecond a part is over
        return lane.rate_key.removeprefix(SHARED)

    async def _into_slot(self) -> bool:
        """Take a slot, if there must be one; tells whether it had to be waited for."""
        lane, attempt = self._lane, self._call.attempt
        if lane.limit_key is None or lane.limit_n is None:
            return False
        run, slots, wait_ms = attempt.run, attempt.host.slots, float(_FIRST_LOOK_MS)
        waited = False
        while True:
            over = slots.wait(lane.limit_key)
            try:
                taken = await attempt.host.store.take_slot(
                    lane.limit_key, lane.limit_n, run.id, self._call.key, run.lease_epoch
                )
                if taken:
                    self._inside = True
                    if over.done():  # it was told of another one
                        slots.tell(lane.limit_key)
                    return waited
                waited = True
                due = attempt.host.clock.now() + round(wait_ms * random.uniform(0.75, 1.25))
                await doze(self._call, "slot", due, over)
            finally:
                slots.forget(lane.limit_key, over)
            wait_ms = min(wait_ms * 1.5, _LAST_LOOK_MS)

    def leave(self) -> None:
        """Free the slot of a body that has ended, once the store knows. If we die before, it is free all the same."""
        attempt, key = self._call.attempt, self._lane.limit_key
        if not self._inside or key is None or attempt.life.closing:
            return
        self._inside = False

        async def leave() -> None:
            await attempt.host.store.leave_slot(attempt.run.id, self._call.key, attempt.run.lease_epoch)
            attempt.host.slots.tell(key)

        _ = attempt.bodies.start(leave)
