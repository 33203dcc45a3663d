"""Turns of rates: how one call reserves its own, and finds out whether it can be used.

Look here when a body begins too early or too late; `limits.py` has the way through rates and limits as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from holdfast.store.contract import EngineStore
from holdfast.store.limits import Turn, in_milliseconds
from holdfast.words.clock import Clock
from holdfast.words.limits import Lane, interval_us, latest_us, slack_us

Late = Callable[[EngineStore, str, Turn, int, int], asyncio.Future[None]]  # writes down that a turn is used late
_COMMIT_MS: Final = 40  # for so long a late turn may be on its way to the store, and twice as long the next time
_AFTER_A_PAUSE_MS: Final = 60_000  # for so long turns of a rate without a number are so far apart:
_AFTER_A_PAUSE_US: Final = 50_000


class Reservation:
    """The turn of one call at a rate: reserved, looked at before it is used, and written down if it is used late.

    A body waits for it where it runs: in the process that has its run, or, on grounds where a word with the store takes long, in
    that which performs it.
    """

    def __init__(self, lane: Lane, turn: Turn | None, store: EngineStore, clock: Clock, late: Late) -> None:
        self.lane, self.turn = lane, turn  # the turn that the journal knows
        self._store, self._clock, self._late = store, clock, late
        self._at = 0  # when it can be used, if that is later
        self.look = True  # what is known of the rate is old
        self._noted = 0  # the store knows that the turn is used late, at this time at the latest
        self._allowance_ms = _COMMIT_MS

    @property
    def due(self) -> int:
        assert self.turn is not None
        return max(self.turn.at, self._at)

    async def reserve(self) -> Turn:
        """Reserve the next turn, which may be now."""
        lane, clock = self.lane, self._clock
        assert lane.rate_key is not None
        self.turn = await self._next(lane.rate_key, interval_us(lane.rate_n or 0, lane.rate_ms or 0), clock)
        self._at, self.look = self.turn.usable_at(lane.rate_ms or 0), False
        return self.turn

    async def _next(self, key: str, interval: int, clock: Clock) -> Turn:
        lane = self.lane
        if not (interval or lane.tokens_us):
            # Nothing is counted, so nothing is written. But bodies that were refused, or waited for the end of a pause,
            # come one after the other: all at once most of them would be refused again.
            closed = await self._store.closed(key)
            if closed.paused + _AFTER_A_PAUSE_MS <= clock.now():
                return Turn(clock.now() * 1000)
            interval = _AFTER_A_PAUSE_US
        return await self._store.take_turn(key, interval, lane.tokens_us, lane.rate_ms or 0)

    async def usable(self) -> bool:
        """Has the turn come, and can it be used? It is lost if it comes much too late, or if the rate was closed meanwhile.

        If it is merely late, that is written down before the body begins.
        """
        lane, turn = self.lane, self.turn
        if lane.rate_key is None or turn is None:
            return True
        every_ms = lane.rate_ms or 0
        if self.look:
            closed, now = await self._store.closed(lane.rate_key, turn, every_ms), self._clock.now()
            self.look, self._at = False, in_milliseconds(closed.late) + every_ms if closed.late else 0
            # A bill that is paid soon is left to turns that are reserved later: with each one all waiters would be put off.
            if closed.paused > now or closed.owed > now + latest_us(lane.tokens_ms) // 1000:
                self.turn = None
                return False
        now = self._clock.now()
        if now * 1000 - turn.place > latest_us(every_ms):
            self.turn = None
            return False
        return self.due <= now

    async def tell_if_late(self) -> bool:
        """Have the store note the use of a late turn before its body begins; False if that took too long.

        A turn is late if it was longer ago than the rate allows for. The body that has the turn a window behind looks
        then or later. So it either finds this one, or this one is much too late by the time that the store knows, and
        lost: however slow the machine is, both cannot begin.
        """
        every_ms, now = self.lane.rate_ms or 0, self._clock.now()
        if not self._is_late(now):
            return True
        until = now + max(self._allowance_ms, slack_us(every_ms) // 1000)
        await self._note(until)
        self._noted, self._allowance_ms = until, self._allowance_ms * 2
        return self._clock.now() <= until

    def begins(self, now: int) -> None:
        """The body begins. What delayed it since it had its turn, such as the write of its intent, others hear of too."""
        if now > self._noted and self._is_late(now):
            _ = self._note(now)

    def _is_late(self, now: int) -> bool:
        turn, every_ms = self.turn, self.lane.rate_ms or 0
        return turn is not None and every_ms > 0 and now * 1000 - turn.place > slack_us(every_ms)

    def _note(self, at: int) -> asyncio.Future[None]:
        turn, key = self.turn, self.lane.rate_key
        assert turn is not None
        assert key is not None
        return self._late(self._store, key, turn, self.lane.rate_ms or 0, at)
