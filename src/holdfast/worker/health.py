"""Is a worker alive, does it take work, and what are its numbers? Asked from another thread than the worker's.

A loop that hangs cannot say so itself. So whoever asks is outside of it, and what only the loop can do (reading the store)
is handed to it and waited for a little. Alive means that a new process would do no better; ready means that it claims.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from holdfast.errors import HoldfastError
from holdfast.store.contract import Census, QuestionAges
from holdfast.worker.worker import Worker

T = TypeVar("T")
PATIENCE_S: Final = 2.0  # a loop that takes longer for one turn hangs, and a store that takes longer cannot be reached
LATE_MS: Final = 60_000  # a run that nobody has taken for so long is stuck
_CENSUS_S: Final = 5.0  # the counts of the store are not taken more often


@dataclass(frozen=True, slots=True)
class Verdict:
    """Yes, or no with the reason."""

    reason: str = ""

    @property
    def good(self) -> bool:
        return not self.reason


class Health:
    """What can be said of a worker from outside. Until it watches one, that is: it starts."""

    def __init__(self) -> None:
        self.worker: Worker | None = None
        self.census: list[Census] | None = None  # None: the store did not tell
        self.questions: QuestionAges | None = None
        self._counted_at = 0.0
        self._turn: concurrent.futures.Future[None] | None = None  # set by the loop's next turn
        self._turn_asked_at = 0.0

    def watch(self, worker: Worker) -> None:
        """Look at this worker from now on; called on its loop."""
        self._loop = asyncio.get_running_loop()
        self.worker = worker

    async def alive(self) -> Verdict:
        """Does the loop turn, and can the store be written as far as this process goes?"""
        if self.worker is None:
            return Verdict()
        ailment = self.worker.store.ailment()
        if (
            ailment is not None and ailment.lasting and not self.worker.draining
        ):  # a store is closed at the end of a drain
            return Verdict(ailment.reason)
        return await self._turns()

    async def ready(self) -> Verdict:
        """Is new work taken?"""
        if self.worker is None:
            return Verdict("the worker starts")
        if self.worker.draining:
            return Verdict("the worker drains: it takes no new runs")
        ailment = self.worker.store.ailment()
        if ailment is not None:
            return Verdict(ailment.reason)
        turns = await self._turns()
        if not turns.good:
            return turns
        store = self.worker.store
        try:
            await self._on_loop(lambda: store.run(""))  # no run is called that: the quickest question there is
        except HoldfastError as problem:
            return Verdict(f"the store cannot be reached: {problem}")
        except TimeoutError:
            return Verdict(f"the store did not answer within {PATIENCE_S:g} s")
        return Verdict()

    async def count(self) -> None:
        """Take the counts of the store, unless they are fresh."""
        if self.worker is None or time.monotonic() < self._counted_at + _CENSUS_S:
            return
        try:
            store = self.worker.store
            self.census = await self._on_loop(lambda: store.census(LATE_MS))
            self.questions = await self._on_loop(store.question_ages)
            self._counted_at = time.monotonic()
        except (HoldfastError, TimeoutError):
            self.census = self.questions = None

    async def _turns(self) -> Verdict:
        """One question at a time: a loop that hangs for an hour must not find an hour's questions."""
        if self._turn is None or self._turn.done():
            self._turn, self._turn_asked_at = concurrent.futures.Future(), time.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._turn.set_result, None)
            except RuntimeError:
                return Verdict("the event loop of the worker is closed")
        done, _ = await asyncio.wait([asyncio.wrap_future(self._turn)], timeout=PATIENCE_S)
        if done:
            return Verdict()
        return Verdict(f"the event loop has not turned for {time.monotonic() - self._turn_asked_at:.1f} s")

    async def _on_loop(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        asked = asyncio.run_coroutine_threadsafe(ask(), self._loop)
        return await asyncio.wait_for(asyncio.wrap_future(asked), PATIENCE_S)
