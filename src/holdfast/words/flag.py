"""A flag that tasks can wait for: an `asyncio.Event` that costs nothing until a task waits.

A run has several, and nearly always nobody waits for any of them.
"""

from __future__ import annotations

import asyncio


class Flag:
    """Up or down."""

    __slots__ = ("_waiters", "up")

    def __init__(self, *, up: bool = False) -> None:
        self.up = up
        self._waiters: list[asyncio.Future[None]] | None = None

    def set(self) -> None:
        """Put it up, and wake all waiters."""
        self.up = True
        if self._waiters:
            waiters, self._waiters = self._waiters, None
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def clear(self) -> None:
        self.up = False

    async def wait(self) -> None:
        """Wait until it is put up; it may be down again by then."""
        if self.up:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters = [*(self._waiters or ()), waiter]
        try:
            await waiter
        finally:
            if self._waiters and waiter in self._waiters:
                self._waiters.remove(waiter)
