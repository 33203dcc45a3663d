"""Slices: a long journal that is replayed in several activations, because none of them may compute for two seconds.

Temporal takes a longer one for a deadlock. So the turns of the loop are counted while the engine replays what an execution began
with, and after so many everything that wants to be called waits, in order, for a timer of a millisecond. The count depends on
nothing but the code and the journal, so it is the same on every replay.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, ClassVar


class Slices:
    """Cuts the turns of one workflow's loop into slices."""

    TURNS: ClassVar = 4_000

    def __init__(
        self, loop: Any, later: Callable[..., Any], outside: contextvars.Context, replaying: Callable[[], bool]
    ) -> None:
        self._loop, self._later, self._outside, self._replaying = loop, later, outside, replaying
        self._soon: Callable[..., asyncio.Handle] = loop.call_soon
        self._waiting: list[asyncio.Handle] | None = None  # for the next slice
        self._turns = 0
        self._cuts = False
        loop.call_soon = self._call  # before the loop knows of runs: what counts callbacks is around this

    def begin(self, events: int) -> None:
        """Cut from now on, until the run is live, if so many events are long."""
        self._cuts, self._turns = events > self.TURNS // 2, 0

    def end(self) -> None:
        """Cut no more, and let go on what waits."""
        self._cuts = False
        self._go_on()

    def _call(self, callback: Any, *args: Any, context: contextvars.Context | None = None) -> asyncio.Handle:
        if not self._cuts:
            return self._soon(callback, *args, context=context)
        if not self._replaying():
            self._cuts = False
            self._go_on()
            return self._soon(callback, *args, context=context)
        self._turns += 1
        if self._waiting is None and self._turns > self.TURNS:
            self._turns, self._waiting = 0, []
            self._later(0.001, self._go_on, context=self._outside)
        if self._waiting is None:
            return self._soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self._loop, context)
        self._waiting.append(handle)
        return handle

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting:
            self._loop._ready.extend(waiting)
