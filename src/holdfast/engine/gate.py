"""The gate: one outcome at a time, live and on replay.

Theory of operation. Everything that reaches agent code from outside - a step's result, a timer, a message, a child's
end - is an outcome, and the run sees outcomes one after the other: deliver one, let the run settle, deliver the next.
Delivery order is journal order, so whatever the agent does in between (races, queues, locks) it does again on replay.

A run has settled when none of its tasks was stepped, and nothing of it asked the loop to call anything, for QUIET_TURNS turns
of the loop. asyncio needs several turns to carry one result through nested gathers, groups and shields; each turn that steps
any task of the run starts the count again, and so does each callback that was asked for on the way (`loop._install_order`),
so no chain is too long. A callback that is asked for in one turn runs in the next: a turn or two would do, and the number
leaves room for what no count can see (code that schedules without `call_soon`). On a loop that has nothing to do but to turn
gates no such chain can be under way, and the count is cut short. That is the common case of one run at a time, and of every
run that waits while others wait.

The gate only counts. What is delivered, and what happens when nothing is left to deliver, is the run's business.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sized
from contextvars import Context
from typing import Protocol
from weakref import WeakKeyDictionary

QUIET_TURNS = 32
UNSETTLED_LIMIT_S = 10.0
UNSETTLED_TURNS = 1000  # that it moved in: code that takes long, or a process that was stopped, is not restless


class Settling(Protocol):
    """The owner of a gate: one attempt at a run."""

    def advance(self) -> bool:
        """The run has settled: deliver the next outcome. False when there is none."""

    def restless(self) -> None:
        """The run has not settled for UNSETTLED_LIMIT_S and UNSETTLED_TURNS."""

    def hopped_far(self) -> None:
        """A chain of callbacks has gone on for QUIET_TURNS turns without a task."""


class Moving(Protocol):
    """The tasks of a run, as a gate looks at them."""

    activity: int  # every step of any of them adds one, and every callback they ask the loop for
    hops: int  # how many of these were callbacks


class _Counting:
    """A count of the gates of one loop that count turns just now."""

    __slots__ = ("gates",)

    def __init__(self) -> None:
        self.gates = 0


_on_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Counting] = WeakKeyDictionary()


class Gate:
    """Calls `advance` whenever the run has settled, for as long as that delivers something."""

    __slots__ = (
        "_ceased", "_chain", "_counting", "_hops", "_last", "_outside", "_quiet", "_ready", "_run", "_since", "_soon", "_stirs",
        "_tasks", "pumping",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, outside: Context, run: Settling, tasks: Moving) -> None:
        self._soon, self._outside, self._run = getattr(loop.call_soon, "uncounted", loop.call_soon), outside, run
        self._tasks = tasks
        self.pumping = self._ceased = False
        self._quiet = self._last = self._hops = self._chain = self._stirs = 0
        self._since = 0.0
        self._counting = _on_loop.setdefault(loop, _Counting())
        self._ready: Sized | None = getattr(loop, "_ready", None)  # what asyncio's own loops are about to call

    def kick(self) -> None:
        """Begin to find out when the run has settled: something happened."""
        self._ceased = False
        if not self.pumping:
            self.pumping, self._quiet, self._last = True, 0, self._tasks.activity
            self._hops, self._chain = self._tasks.hops, 0
            self._counting.gates += 1
            self._since, self._stirs = time.monotonic(), 0
            self._soon(self._turn, context=self._outside)

    def cease(self) -> None:
        """The run waits for what will kick again by itself: there is nothing to find out until then."""
        self._ceased = True

    def awaited(self) -> None:
        """An outcome waits to be delivered: from now on it matters that the run settles."""
        self._since, self._stirs = time.monotonic(), 0

    def _turn(self) -> None:
        if self._ceased:
            self._stop()
            return
        if self._tasks.activity != self._last:
            only_hops = self._tasks.activity - self._last == self._tasks.hops - self._hops
            self._chain = self._chain + 1 if only_hops else 0
            self._quiet, self._last, self._hops = 0, self._tasks.activity, self._tasks.hops
            if self._chain == QUIET_TURNS:
                self._run.hopped_far()
            self._stirs += 1
            if self._stirs > UNSETTLED_TURNS and time.monotonic() - self._since > UNSETTLED_LIMIT_S:
                self._stop()
                self._run.restless()
                return
        self._quiet += 1
        if self._quiet >= QUIET_TURNS or (self._quiet > 1 and self._all_still()):
            if not self._run.advance():
                self._stop()
                return
            self._quiet, self._last, self._since = 0, self._tasks.activity, time.monotonic()
            self._hops, self._chain, self._stirs = self._tasks.hops, 0, 0
        self._soon(self._turn, context=self._outside)

    def _stop(self) -> None:
        self.pumping = False
        self._counting.gates -= 1

    def _all_still(self) -> bool:
        """Is nothing to be called but the other gates? Each that counts has one call in line; ours is this one."""
        return self._ready is not None and len(self._ready) < self._counting.gates
