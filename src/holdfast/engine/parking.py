"""Parking: a run that waits leaves memory, and then costs a row.

Look here when a run stays in memory, or leaves it, and should not.

A run may be parked when something durable is pending and nothing else is: no body runs, no write is on its way, no asyncio
timer of the agent is set (it would start afresh), and a grace has passed. `busy` is the one place that says what keeps a run in
memory. The store refuses to park a run that has a signal it has not seen, so no wake-up is lost. While the answer is on its way
nothing new begins.

A worker that stops releases its runs: each leaves at its next safe point.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.engine.bodies import Asking, Bodies
from holdfast.engine.host import EARLY_MS, Host
from holdfast.engine.inbox import Inbox
from holdfast.engine.journal import Journal
from holdfast.engine.life import Life
from holdfast.engine.loop import Tasks
from holdfast.engine.recorder import Recorder
from holdfast.engine.unrecorded import Unrecorded
from holdfast.errors import LeaseLost, StoreUnavailable
from holdfast.store.appends import Append, InboxMoved, Transition
from holdfast.words.clock import Timer
from holdfast.words.harmless import logger

_log = logger("holdfast")
_STALL_NOTICE_S = 1.0
_ORDER = (
    "person",
    "message",
    "child",
    "conversation",
    "retry",
    "rate",
    "slot",
    "timer",
)  # what a person would name first


class Wait(NamedTuple):
    """Why a call waits: for what, until when, and which arrival would end it."""

    waits_for: str
    due: int | None = None
    token: str | None = None


class Parking:
    """The waits of one run, and whether it may leave memory meanwhile."""

    __slots__ = (
        "_bodies", "_host", "_inbox", "_journal", "_life", "_owner", "_pen", "_tasks", "_unrecorded", "ticks", "timer", "waits",
    )  # fmt: skip

    def __init__(
        self, life: Life, host: Host, journal: Journal, pen: Recorder, bodies: Bodies, tasks: Tasks, inbox: Inbox,
        unrecorded: Unrecorded, owner: Asking,
    ) -> None:  # fmt: skip
        self._life, self._host, self._journal, self._pen = life, host, journal, pen
        self._bodies, self._tasks, self._inbox, self._unrecorded, self._owner = bodies, tasks, inbox, unrecorded, owner
        self.waits: dict[str, Wait] = {}
        self.ticks = 0  # asyncio timers of the agent that are set
        self.timer: Timer | None = None

    # What is waited for

    def tick(self, by: int) -> None:
        """Count an asyncio timer that the agent has set (1), or that is over (-1)."""
        self.ticks += by

    @contextmanager
    def asleep(self, key: str, wait: Wait) -> Iterator[None]:
        """A driver waits for this: meanwhile the run may leave memory."""
        self.waits[key] = wait
        self._bodies.doze(1)
        self._tasks.gate.kick()
        try:
            yield
        finally:
            self._bodies.doze(-1)
            self.waits.pop(key, None)

    @property
    def busy(self) -> str | None:
        """The reason why the run cannot leave memory now, if it cannot."""
        if self._bodies.driving:
            return "a step runs"
        if self._pen.unacked:
            return "a write is on its way"
        if self.ticks:
            return "an asyncio timer of the agent is set"
        if self._journal.ready:
            return "an outcome waits to be delivered"
        if self._inbox.fetching:
            return "its inbox is being read"
        return None

    @property
    def resting(self) -> Wait | None:
        """Name what a person would name first of what the run waits for, and when the next is due; None if it does more."""
        if self.busy or self._bodies.holding or not self.waits or not self._owner.all_begun():
            return None
        dues = [wait.due for wait in self.waits.values() if wait.due is not None]
        return Wait(self._named(), min(dues, default=None))

    def _named(self) -> str:
        if self._bodies.out_of_turn:
            return "conversation"  # whatever comes first, that is what keeps the run from going on
        return min((wait.waits_for for wait in self.waits.values()), key=_ORDER.index)

    # Parking

    def idle(self) -> None:
        """Park the run after a grace, or tell where it is stuck: it has settled and nothing is left to deliver."""
        if self.busy or self._bodies.holding:
            return
        clock, seen = self._host.clock, self._tasks.activity
        self.disarm()
        if not self.waits or self._unrecorded.outstanding:
            self.timer = clock.after(_STALL_NOTICE_S, lambda: self._stall(seen))
            return
        dues = [wait.due for wait in self.waits.values() if wait.due is not None]
        if dues and min(dues) <= clock.now() + EARLY_MS:
            return
        grace_s = self._host.park_grace_s(self._life.run.id)
        if grace_s is not None:
            self.timer = clock.after(grace_s, lambda: self._park(seen))

    def disarm(self) -> None:
        """Take the timer back."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _stall(self, seen: int) -> None:
        self.timer = None
        self._unrecorded.report_stall(seen)

    def _park(self, seen: int) -> None:
        """Give the run back until a time or an arrival."""
        self.timer = None
        life, gate = self._life, self._tasks.gate
        moved = self._tasks.activity != seen or gate.pumping
        if life.closing or moved or self.busy or self._bodies.holding or not (life.live and self.waits):
            return
        if self._unrecorded.outstanding:
            return
        self._bodies.hold("parking")
        try:
            written = self._host.store.append(self._giving_back())
        except StoreUnavailable:
            life.close("lost")
            return
        written.add_done_callback(self._parked, context=life.outside)

    def _giving_back(self) -> Append:
        waits, life = list(self.waits.values()), self._life
        dues = [wait.due for wait in waits if wait.due is not None]
        tokens = sorted({wait.token for wait in waits if wait.token is not None})
        waiting = life.leaves(Transition("waiting", min(dues, default=None), self._named(), tokens, self._inbox.seen))
        return Append(life.run.id, life.run.lease_epoch, self._pen.next_seq, transition=waiting)

    def _parked(self, future: asyncio.Future[int]) -> None:
        error = None if future.cancelled() else future.exception()
        if error is None:
            self._life.close("parked")
        elif isinstance(error, InboxMoved):
            self._bodies.allow("parking")
            self._inbox.notice()
        else:
            if not isinstance(error, LeaseLost | StoreUnavailable):
                _log.error("run %r: it could not be parked: %s", self._life.run.id, error)
            self._life.close("lost")

    # Releasing

    async def drain(self) -> None:
        """Begin nothing new, and wait until the bodies that run have ended and all is written. The caller says how long."""
        self._bodies.hold("releasing")
        await self._pen.until(lambda: not (self._bodies.running or self._pen.unacked))

    async def release(self, grace_s: float) -> None:
        """Stop at a safe point: running bodies end and are recorded, nothing new begins, and the run is free for any worker.

        After the grace what still runs is stopped, and is then in doubt as after a crash. What cannot be stopped, and must not
        run again unless it is known how it ended, keeps the run here: a body in a thread, with a policy other than 'retry'.
        """
        life, pen, bodies, tasks = self._life, self._pen, self._bodies, self._tasks
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.drain()
        if bodies.unstoppable and not life.closing:
            _log.warning(
                "run %r is not given back yet: a step of it runs in a thread, which nothing can stop, and must not run twice",
                life.run.id,
            )
            await pen.until(lambda: not bodies.unstoppable)
        if life.closing:
            return
        # Only a run that has come to rest waits: one whose agent has an outcome and has not gone on yet would sleep for long.
        rests = life.live and tasks.resting and not tasks.gate.pumping
        append = Append(life.run.id, life.run.lease_epoch, pen.next_seq, transition=Transition("ready"))
        if rests and self.waits and not self.busy and self._owner.all_begun():
            append = self._giving_back()
        pen.outflow.flush()
        life.close("released")
        await pen.let_through()  # a commit that is on its way
        append.expected_seq = pen.next_seq
        try:
            await self._host.store.append(append)
        except InboxMoved:
            append.transition = Transition("ready")
            await self._host.store.append(append)
        except LeaseLost:
            pass
