"""A clock that stands still until it is told, or until everyone waits for it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable

from holdfast.words.clock import Timer


class JumpClock:
    """Durable time for tests. It passes with real time, and jumps ahead by `advance`.

    Example:
        ```python
        from holdfast.testing import JumpClock

        clock = JumpClock()
        before = clock.now()
        clock.jump_to(before + 60_000)
        assert clock.now() >= before + 60_000
        ```
    """

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._timers: list[tuple[int, int, _Timer]] = []
        self._count = itertools.count()

    def now(self) -> int:
        """Tell the time, in milliseconds."""
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def call_at(self, when: int, callback: Callable[[], object]) -> _Timer:
        """Call back at a time, in milliseconds; returns a timer that can be cancelled."""
        timer = _Timer(callback)
        heapq.heappush(self._timers, (when, next(self._count), timer))
        return timer

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> _Timer:
        """Call back after so many seconds; returns a timer that can be cancelled."""
        return self.call_at(self.now() + round(delay_s * 1000), callback)

    def after(self, grace_s: float, callback: Callable[[], object]) -> Timer:
        """A grace is real time."""
        return asyncio.get_running_loop().call_later(grace_s, callback)

    def next_timer(self) -> int | None:
        """Tell when the earliest timer is due."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def jump_to(self, when: int) -> None:
        """Move time ahead; never back."""
        self._ahead_ms += max(0, when - self.now())
        self.fire()

    def fire(self) -> None:
        """Call what is due, in order."""
        while (due := self.next_timer()) is not None and due <= self.now():
            _, _, timer = heapq.heappop(self._timers)
            timer.callback()


class _Timer:
    __slots__ = ("callback", "cancelled")

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback, self.cancelled = callback, False

    def cancel(self) -> None:
        self.cancelled = True
