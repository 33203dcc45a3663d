"""Leaving memory: one sticky state, whatever the reason.

From `close` on nothing is recorded, results and exceptions are ignored, every task is unwound and every verb refuses. Code
that swallows the refusals and goes on is put to sleep for ever: it must not spin the loop.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Generator
from typing import Any

from holdfast.engine.bodies import Drivers
from holdfast.engine.calls import Call
from holdfast.engine.host import Host
from holdfast.engine.loop import REFUSALS, RunTask, never
from holdfast.engine.streams import Streams
from holdfast.errors import Suspended
from holdfast.runtime import Durable
from holdfast.store.appends import Transition
from holdfast.words.clock import Timer
from holdfast.words.model import RunRow

_UNWIND_S = 1.0


class Leaving(Drivers):
    """What is open in one attempt, and how all of it is let go."""

    __slots__ = (
        "calls", "cancelling", "childless", "closing", "ended", "ends_now", "failed", "finishing", "given_up",
        "grace_timer", "left", "never_settles", "park_timer", "pausing", "postponed", "refusals", "releasing", "sees_off_now",
        "stopping", "streams", "tasks", "unfit", "unwinding",
    )  # fmt: skip

    def __init__(self, host: Host, run: RunRow) -> None:
        super().__init__(host, run)
        self.tasks: dict[RunTask, None] = {}
        self.failed: weakref.WeakSet[RunTask] | None = None  # tasks, as long as the agent holds them
        self.calls: dict[str, Call] = {}
        self.streams = Streams(self)
        self.park_timer: Timer | None = None
        self.closing: str | None = None
        self.unfit = ""  # why its records do not fit this code
        self.finishing = self.releasing = False
        self.pausing: dict[str, Any] | None = None  # who asked the run to pause, and why
        self.stopping = False  # it was asked to stop, although the agent's code may not have come so far yet
        self.cancelling: dict[str, Any] | None = None  # who asked the run to stop, why, and until when it may tidy up
        # Asked to stop: all below it have ended, or are being seen off; the agent was told; asked for twice.
        self.childless = self.sees_off_now = self.unwinding = self.ends_now = False
        self.postponed = False  # the agent has asked for a child that begins when it was told, if it still wants it
        self.never_settles = False  # its tasks go on without waiting for anything
        self.grace_timer: Timer | None = None
        self.left: Transition | None = None  # how it was parked, paused or ended
        self.refusals = 0
        self.given_up = False  # what has not ended by now never will
        self.ended: asyncio.Future[str] = self.loop.create_future()

    def close(self, outcome: str) -> None:
        """Leave memory, for good: 'ended', 'parked', 'released', 'paused', 'unfit' or 'lost'."""
        if self.closing:
            return
        self.closing = outcome
        for timer in (self.park_timer, self.grace_timer):
            if timer is not None:
                timer.cancel()
        for call in self.calls.values():
            timer = getattr(call, "_timer", None)
            if timer is not None:
                timer.cancel()
        for driver in list(self.drivers):
            self.stop_driver(driver)
        for task in list(self.tasks):
            task.cancel()
        if outcome != "ended":
            for task in self.failed or ():
                task.exception()  # no loss to be reported: the agent meets the failure in its next life
        if not self.ended.done():
            self.ended.set_result(outcome)

    async def unwound(self) -> None:
        """Wait a little for the tasks to unwind; what does not end is kept, never left to the garbage collector."""
        until = self.loop.time() + _UNWIND_S
        while self.loop.time() < until:
            awake = {*(task for task in self.tasks if not task.stirring.asleep), *self.drivers}
            if not awake:
                break
            await asyncio.wait(awake, timeout=_UNWIND_S / 20)
        for stray in (*self.tasks, *self.drivers):
            self.host.keep(stray)

    def refused(self, verb: str) -> Durable[Any]:
        """What a verb gives while the run leaves memory."""
        self.refusals += 1
        if self.refusals <= REFUSALS:
            raise Suspended
        return Durable(verb, self.refusal)

    def refusal(self) -> Generator[Any, Any, Any]:
        """What a call that is awaited meanwhile comes to: it was asked too late, or it diverged."""
        self.refusals += 1
        if self.refusals <= REFUSALS:
            raise Suspended
        while True:
            yield never(self.loop)
