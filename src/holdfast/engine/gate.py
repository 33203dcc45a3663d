"""The gate: one outcome at a time, live and on replay.

Theory of operation. Everything that reaches agent code from outside - a step's result, a timer, a message, a child's
end - is an outcome, and the run sees outcomes one after the other: deliver one, let the run settle, deliver the next.
Delivery order is journal order, so whatever the agent does in between (races, queues, locks) it does again on replay.

A run has settled when none of its tasks was stepped for QUIET_TURNS turns of the loop. asyncio needs several turns to
carry one result through nested gathers, groups and shields; each turn that steps any task of the run starts the count
again, so the number bounds the longest chain of callbacks without a task in it, not the depth of nesting.

The gate only counts. What is delivered, and what happens when nothing is left to deliver, is `advance`'s business.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import Context

QUIET_TURNS = 32
UNSETTLED_LIMIT_S = 10.0


class Gate:
    """Calls `advance` whenever the run has settled, for as long as that delivers something."""

    __slots__ = ("_advance", "_last", "_loop", "_outside", "_quiet", "_restless", "_since", "activity", "pumping")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        outside: Context,
        advance: Callable[[], bool],
        restless: Callable[[], None],
    ) -> None:
        self._loop, self._outside, self._advance, self._restless = loop, outside, advance, restless
        self.activity = 0  # every step of any task of the run adds one
        self.pumping = False
        self._quiet = self._last = 0
        self._since = 0.0

    def kick(self) -> None:
        """Something happened: find out when the run has settled."""
        if not self.pumping:
            self.pumping, self._quiet, self._last = True, 0, self.activity
            self._since = time.monotonic()
            self._loop.call_soon(self._turn, context=self._outside)

    def awaited(self) -> None:
        """An outcome waits to be delivered: from now on it matters that the run settles."""
        self._since = time.monotonic()

    def _turn(self) -> None:
        if self.activity != self._last:
            self._quiet, self._last = 0, self.activity
            if time.monotonic() - self._since > UNSETTLED_LIMIT_S:
                self.pumping = False
                self._restless()
                return
        self._quiet += 1
        if self._quiet >= QUIET_TURNS:
            if not self._advance():
                self.pumping = False
                return
            self._quiet, self._last, self._since = 0, self.activity, time.monotonic()
        self._loop.call_soon(self._turn, context=self._outside)
