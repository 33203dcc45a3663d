"""The worker as the fleet sees it: how much it does now, and what it did in each minute.

Nothing is counted here: the numbers are those of `measures.py`, looked at once a second and told with what is written anyway. What
was done in the minute in which a process is killed is lost with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from holdfast.errors import StoreUnavailable
from holdfast.store.contract import WorkerStore
from holdfast.words.harmless import logger
from holdfast.worker.measures import Measures
from holdfast.worker.settings import Settings

_log = logger("holdfast")
_EVERY_S: Final = 1.0
_MINUTE_S, _MINUTE_MS = 60.0, 60_000
_LAST_WORDS_S: Final = 1.0


class Done(NamedTuple):
    """Sums since the worker began."""

    steps: int
    ended: int
    failed: int


class Member:
    """One worker of the fleet. `attempts` is the worker's own and changes under way."""

    def __init__(
        self,
        store: WorkerStore,
        settings: Settings,
        measures: Measures,
        attempts: Mapping[str, object],
        draining: Callable[[], bool],
    ) -> None:
        self._store, self._settings, self._measures = store, settings, measures
        self._attempts, self._draining = attempts, draining
        self._lately: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        self._minute, self._before = self._now(), Done(0, 0, 0)

    def load(self) -> dict[str, Any]:
        """Say how much the worker does now; in any thread."""
        done = self._done()
        return {
            "running": len(self._attempts), "limit": self._settings.concurrency, "draining": self._draining(),
            "steps_1m": done.steps - self._lately[0][1], "released": self._measures.left["released"],
            "beats_ms": round(self._settings.lease_ttl_s * 1000),
        }  # fmt: skip

    async def keep(self) -> None:
        """Look at the numbers for ever; the last minute is told when the worker stops."""
        try:
            while True:
                await asyncio.sleep(_EVERY_S)
                try:
                    await self._look()
                except StoreUnavailable as problem:
                    _log.debug("the numbers of a minute could not be told; trying again: %s", problem)
                except Exception:
                    _log.exception("the numbers of a minute could not be told; trying again")
        except asyncio.CancelledError:
            with contextlib.suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(_LAST_WORDS_S):
                    await self._tell()
            raise

    async def _look(self) -> None:
        now, lately = time.monotonic(), self._lately
        lately.append((now, self._done().steps))
        while len(lately) > 1 and lately[1][0] <= now - _MINUTE_S:
            lately.popleft()
        if self._now() != self._minute:
            await self._tell()

    async def _tell(self) -> None:
        done, minute = self._done(), self._now()
        if done != self._before:
            new = Done(*(now - before for now, before in zip(done, self._before, strict=True)))
            await self._store.count_minute(self._minute, *new)
        self._minute, self._before = minute, done

    def _now(self) -> int:
        return self._store.clock.now() // _MINUTE_MS * _MINUTE_MS

    def _done(self) -> Done:
        measures = self._measures
        steps = measures.steps.get("completed")
        ends = dict(measures.finished)
        failed = sum(count for (_, status), count in ends.items() if status == "failed")
        return Done(0 if steps is None else steps.count, sum(ends.values()), failed)
