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

    A body that comes late does not wait for the commit: those that must know of it come a window later. What comes late while one
    commit is on its way is written with the next.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, int], dict[int, int]] = {}  # of a key and a window: stretches and times
        self._writing: set[tuple[str, int]] = set()

    def note(
        self,
        store: EngineStore,
        keep: Callable[[asyncio.Task[None]], None],
        key: str,
        turn: Turn,
        every_ms: int,
        now: int,
    ) -> None:
        """A turn is used now. `keep` holds on to the task that writes it."""
        which, stretch = (key, every_ms), stretch_us(turn.place, every_ms)
        self._waiting.setdefault(which, {})[stretch] = now * 1000
        if which not in self._writing:
            self._writing.add(which)
            keep(task_of_ours(asyncio.get_running_loop(), self._write(store, which), contextvars.Context()))

    async def _write(self, store: EngineStore, which: tuple[str, int]) -> None:
        key, every_ms = which
        try:
            while began := self._waiting.pop(which, None):
                await store.use_late(key, began, every_ms)
        except StoreUnavailable:
            _log.debug("turns of %r were late, and the store is closed", key)
        finally:
            self._writing.discard(which)


class Freed:
    """Tells those who wait in this worker that a slot is free; in other workers they look by themselves."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self.late = LateTurns()

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
