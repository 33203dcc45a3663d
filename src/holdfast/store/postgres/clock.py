"""The database's time without asking for it each time: all workers of a database share one clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from holdfast.clock import Nap, Timer
from holdfast.store.postgres.asking import ask
from holdfast.store.postgres.connection import Connection


class DatabaseClock:
    """Our steady clock and how far the database's is ahead of it: measured at connecting and at each heartbeat."""

    def __init__(self) -> None:
        self._ahead_ms = time.time() * 1000 - time.monotonic() * 1000  # until it is measured

    def now(self) -> int:
        return int(time.monotonic() * 1000 + self._ahead_ms)

    def call_at(self, when: int, callback: Callable[[], object]) -> Timer:
        return Nap(self.now, when, callback)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback)

    async def measure(self, connection: Connection) -> None:
        """Ask what time it is; the answer was right half a round trip ago."""
        asked = time.monotonic()
        ((told,),) = await ask(connection, "time")
        answered = time.monotonic()
        if answered - asked < _USELESS_S:
            self._ahead_ms = told - (asked + answered) * 500


_USELESS_S: Final = 1.0  # a round trip that took longer says less than the last measure
