"""Slots and turns as all runs of one worker share them: calls that wait for a slot, and turns of rates that were used late."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable

from holdfast.engine.loop import task_of_ours
from holdfast.errors import StoreUnavailable
from holdfast.store.contract import EngineStore
from holdfast.store.limits import Turn
from holdfast.words.harmless import logger
from holdfast.words.limits import stretch_us

_log = logger("holdfast")


class LateTurns:
    """Turns that were used late in this worker, until that is in the store.

    What comes late while one commit is on its way is written with the next.
    """

    def __init__(self) -> None:
        # Of a key and a window: stretches and times, and a future that is done when they are written.
        self._waiting: dict[tuple[str, int], tuple[dict[int, int], asyncio.Future[None]]] = {}
        self._writing: set[tuple[str, int]] = set()

    def note(
        self,
        keep: Callable[[asyncio.Task[None]], None],
        store: EngineStore,
        key: str,
        turn: Turn,
        every_ms: int,
        at: int,
    ) -> asyncio.Future[None]:
        """Note the use of a turn at this time; the future is done once it is written. `keep` holds the writing task."""
        loop, which, stretch = asyncio.get_running_loop(), (key, every_ms), stretch_us(turn.place, every_ms)
        began, written = self._waiting.setdefault(which, ({}, loop.create_future()))
        began[stretch] = max(began.get(stretch, 0), at * 1000)
        if which not in self._writing:
            self._writing.add(which)
            keep(task_of_ours(loop, self._write(store, which), contextvars.Context()))
        return asyncio.shield(written)

    async def _write(self, store: EngineStore, which: tuple[str, int]) -> None:
        key, every_ms = which
        try:
            while waiting := self._waiting.pop(which, None):
                began, written = waiting
                try:
                    await store.use_late(key, began, every_ms)
                except StoreUnavailable:
                    _log.debug("turns of %r were late, and the store is closed", key)
                finally:
                    if not written.done():
                        written.set_result(None)
        finally:
            self._writing.discard(which)


class Freed:
    """Waiters for a slot in this worker: told when one is free. Waiters in other workers look by themselves."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self.late = LateTurns()

    def wait(self, key: str) -> asyncio.Future[None]:
        """Return a future that is done once a slot of this key is left and no other waiter has waited longer."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(over)
        return over

    def forget(self, key: str, over: asyncio.Future[None]) -> None:
        """Forget a future that nobody awaits any more."""
        waiting = self._waiting.get(key)
        if waiting is not None and over in waiting:
            waiting.remove(over)
            if not waiting:
                del self._waiting[key]

    def tell(self, key: str) -> None:
        """Tell the first waiter that a slot of this key was left."""
        for over in self._waiting.get(key, ()):
            if not over.done():
                over.set_result(None)
                return
