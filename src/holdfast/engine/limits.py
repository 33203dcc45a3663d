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
import math
import random
from collections.abc import Callable
from typing import Any, Final

from holdfast.engine.attempt import Call
from holdfast.engine.parking import Wait
from holdfast.store.limits import Turn, in_milliseconds
from holdfast.values.text import cut
from holdfast.words.limits import SHARED, Lane, interval_us, latest_us, slack_us
from holdfast.words.people import writable
from holdfast.words.retry import pause_s

_BECAUSE: Final = 200  # characters of an error that are kept with a pause
_FIRST_LOOK_MS: Final = 100
_LAST_LOOK_MS: Final = 10_000
_COMMIT_MS: Final = 40  # for so long a late turn may be on its way to the store, and twice as long the next time
_AFTER_A_PAUSE_MS: Final = 60_000  # for so long turns of a rate without a number are so far apart:
_AFTER_A_PAUSE_US: Final = 50_000


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
        self._call, self._lane = call, lane
        self._turn = None if place is None else Turn(place)  # the turn that the journal knows
        self._at = 0  # when it can be used, if that is later
        self._look = True  # what is known of the rate is old
        self._noted = 0  # the store knows that the turn is used late, at this time at the latest
        self._allowance_ms = _COMMIT_MS
        self._inside = False

    async def enter(self, held: Callable[[Turn], object]) -> None:
        """Wait for a turn and a slot; `held` records a turn that must be waited for."""
        while True:
            await self._until_turn(held)
            self._look = await self._into_slot() or self._look
            if await self._usable() and await self._tell_if_late():
                return
            self.leave()

    async def _until_turn(self, held: Callable[[Turn], object]) -> None:
        clock = self._call.attempt.host.clock
        while self._lane.rate_key is not None:
            if self._turn is None:
                self._turn = await self._reserve(self._lane.rate_key)
                self._at, self._look = self._turn.usable_at(self._lane.rate_ms or 0), False
                if self._at > clock.now():
                    held(self._turn)
            if max(self._turn.at, self._at) > clock.now():
                await doze(self._call, "rate", max(self._turn.at, self._at))
                self._look = True
            if await self._usable():
                return

    async def _reserve(self, key: str) -> Turn:
        lane, attempt = self._lane, self._call.attempt
        interval = interval_us(lane.rate_n or 0, lane.rate_ms or 0)
        if not (interval or lane.tokens_us):
            # Nothing is counted, so nothing is written. But those who were refused, or waited for the end of a pause, come
            # one after the other: all at once most of them would be refused again.
            closed = await attempt.host.store.closed(key)
            if closed.paused + _AFTER_A_PAUSE_MS <= attempt.host.clock.now():
                return Turn(attempt.host.clock.now() * 1000)
            interval = _AFTER_A_PAUSE_US
        return await attempt.host.store.take_turn(key, interval, lane.tokens_us, lane.rate_ms or 0)

    async def _usable(self) -> bool:
        """Has the turn come, and can it be used? It is lost if it comes much too late, or if the rate was closed meanwhile.

        If it is merely late, that is written down before the body begins.
        """
        lane, attempt, turn = self._lane, self._call.attempt, self._turn
        if lane.rate_key is None or turn is None:
            return True
        every_ms = lane.rate_ms or 0
        if self._look:
            closed, now = await attempt.host.store.closed(lane.rate_key, turn, every_ms), attempt.host.clock.now()
            self._look, self._at = False, in_milliseconds(closed.late) + every_ms if closed.late else 0
            # A bill that is paid soon is left to turns that are reserved later: with each one all who wait would be put off.
            if closed.paused > now or closed.owed > now + latest_us(lane.tokens_ms) // 1000:
                self._turn = None
                return False
        now = attempt.host.clock.now()
        if now * 1000 - turn.place > latest_us(every_ms):
            self._turn = None
            return False
        return max(turn.at, self._at) <= now

    async def _tell_if_late(self) -> bool:
        """If the turn was longer ago than the rate allows for, wait until the store knows that it is used now; tells whether it is.

        Whoever has the turn a window behind looks then or later. So it either finds this one, or this one is much too late by
        the time that the store knows, and lost: however slow the machine is, both cannot begin.
        """
        every_ms, now = self._lane.rate_ms or 0, self._call.attempt.host.clock.now()
        if not self._is_late(now):
            return True
        until = now + max(self._allowance_ms, slack_us(every_ms) // 1000)
        await self._note(until)
        self._noted, self._allowance_ms = until, self._allowance_ms * 2
        return self._call.attempt.host.clock.now() <= until

    def begins(self, now: int) -> None:
        """The body begins. What delayed it since it had its turn, such as the write of its intent, others hear of too."""
        if now > self._noted and self._is_late(now):
            _ = self._note(now)

    def _is_late(self, now: int) -> bool:
        turn, every_ms = self._turn, self._lane.rate_ms or 0
        return turn is not None and every_ms > 0 and now * 1000 - turn.place > slack_us(every_ms)

    def _note(self, at: int) -> asyncio.Future[None]:
        attempt, turn, key = self._call.attempt, self._turn, self._lane.rate_key
        assert turn is not None
        assert key is not None
        host = attempt.host
        return host.slots.late.note(host.store, host.keep, key, turn, self._lane.rate_ms or 0, at)

    def told(self, turn: Turn) -> dict[str, Any]:
        """Data for the journal of a turn that must be waited for: when, and of which rate if others share it."""
        key = self._lane.rate_key or ""
        shared = {"rate": key.removeprefix(SHARED)} if key.startswith(SHARED) else {}
        return {"at": turn.at, "place": turn.place, **shared, **({"paused": True} if turn.paused else {})}

    async def learn(self, error: Exception | None, tokens: int = 0) -> str | None:
        """Tell all who share the rate how the body ended; returns the rate's name if that pauses it."""
        lane, store = self._lane, self._call.attempt.host.store
        if lane.rate_key is None:
            return None
        if tokens and lane.tokens_us:
            since = self._call.attempt.host.clock.now() if self._turn is None else self._turn.at
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
        """The body has ended: its slot is free once the store knows. If we die before, it is free all the same."""
        attempt, key = self._call.attempt, self._lane.limit_key
        if not self._inside or key is None or attempt.life.closing:
            return
        self._inside = False

        async def leave() -> None:
            await attempt.host.store.leave_slot(attempt.run.id, self._call.key, attempt.run.lease_epoch)
            attempt.host.slots.tell(key)

        _ = attempt.bodies.start(leave)
