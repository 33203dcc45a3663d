"""Time as a parameter: what the store and the engine ask instead of the operating system.

`now()` is the durable time (milliseconds since 1970) that timers and records use; `call_at` wakes a callback on the
loop at such a time. `after` is for graces, which are real time even where a test makes durable time jump.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

_LONGEST_NAP_S = 60.0  # look at the wall clock again this often: it may be set while we sleep
_LOOP_LATE_S = 0.001  # by so much the loop's own timers may be late: the last moment is spent turning the loop


class Timer(Protocol):
    """A wake-up that can be taken back."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Durable time."""

    def now(self) -> int:
        """Milliseconds since 1970."""
        ...

    def call_at(self, when: int, callback: Callable[[], object]) -> Timer:
        """Call back on the running loop once `now() >= when`; never earlier."""
        ...

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Call back on the running loop after this long, whatever the wall clock does meanwhile."""
        ...

    def after(self, grace_s: float, callback: Callable[[], object]) -> Timer:
        """Call back on the running loop after a grace: real time, of which nothing is recorded."""
        ...


class SystemClock:
    """The computer's own clock."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def call_at(self, when: int, callback: Callable[[], object]) -> Timer:
        return Nap(self.now, when, callback)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback)

    after = call_later


class Nap:
    """Sleeps in bounded naps and looks at the clock after each, so that a changed wall clock is noticed."""

    def __init__(self, now: Callable[[], int], when: int, callback: Callable[[], object]) -> None:
        self._now, self._when, self._callback = now, when, callback
        self._loop = asyncio.get_running_loop()
        self._nap()

    def _nap(self) -> None:
        left_s = (self._when - self._now()) / 1000
        if left_s <= 0:
            self._handle: asyncio.Handle = self._loop.call_soon(self._callback)
        elif left_s <= _LOOP_LATE_S:
            self._handle = self._loop.call_soon(self._nap)
        else:
            self._handle = self._loop.call_later(min(left_s - _LOOP_LATE_S, _LONGEST_NAP_S), self._nap)

    def cancel(self) -> None:
        self._handle.cancel()
