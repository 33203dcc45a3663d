"""The database's time without asking for it each time: all workers of a database share one clock.

An answer was made between the moment we asked and the moment we heard it, so each question tells a range in which the
database's clock lies: `least` if the answer came at once and only the question took time, `most` if it was the other way
round. We count from `least`: our time may be late by what the answer took to come, and is never early. Of many measures the
one that says most counts, which is that of the shortest way back. Because clocks drift apart, what an old measure says
loses a little with time; if a new one contradicts it, a clock was set, and the new one alone counts.
"""

from __future__ import annotations

import time
from typing import Final

from holdfast.store.postgres.connection import Connection
from holdfast.store.postgres.execute import ask
from holdfast.words.clock import SystemClock

_DRIFT: Final = 2e-4  # by so much two clocks may run apart; those of computers do by a tenth of it
_GOOD_MS: Final = 5.0  # a first measure that leaves more open than this is made again,
_TRIES: Final = 5  # so many times in all


class DatabaseClock(SystemClock):
    """Our steady clock, and how far the database's is ahead of it at least: measured at connecting and every second."""

    def __init__(self) -> None:
        self._ahead_ms = time.time() * 1000 - time.monotonic() * 1000  # until it is measured
        self._measured_s: float | None = None

    def now(self) -> int:
        return int(time.monotonic() * 1000 + self._ahead_ms)

    async def begin(self, connection: Connection) -> None:
        """Measure until it is known well: a timer counts from what we take for now."""
        for _ in range(_TRIES):
            if await self.measure(connection) <= _GOOD_MS:
                return

    async def measure(self, connection: Connection) -> float:
        """Ask what time it is; returns how many milliseconds the answer leaves open."""
        asked_s = time.monotonic()
        ((told,),) = await ask(connection, "time")
        return self.learn(asked_s, told, time.monotonic())

    def learn(self, asked_s: float, told: int, answered_s: float) -> float:
        """Take note of an answer, which is cut off to whole milliseconds; returns how many milliseconds it leaves open."""
        least, most = told - answered_s * 1000, told + 1 - asked_s * 1000
        if self._measured_s is not None:
            known = self._ahead_ms - (answered_s - self._measured_s) * 1000 * _DRIFT
            if known <= most:
                least = max(least, known)
        self._ahead_ms, self._measured_s = least, answered_s
        return most - least
