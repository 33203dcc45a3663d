"""Bodies: the work beside the agent on behalf of its calls, such as bodies of steps, probes and reads of the inbox.

Look here when a body does not begin, or is not stopped.

A driver is no task of the run: it does not stir it and has no keys. It ends when the run leaves memory.

Nothing begins while a reason holds it back: the run is being parked, paused, released or ended, or the store is putting what
came for it into its journal. A body needs more: the lease must surely be this worker's.

Two reasons are of another kind, because they may last for days, so the run may leave memory meanwhile. `TURN`: a run that was
retried waits until it has its conversations again; what needs no turn begins (`Call.needs_turn`). `STOP`: the run is to stop, all
below it are seen off, and then the agent is told; nothing that it asks for in between begins.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from holdfast.engine.host import Host
from holdfast.engine.life import Life
from holdfast.engine.loop import Tasks, task_of_ours
from holdfast.engine.recorder import Recorder
from holdfast.errors import LeaseLost, StoreUnavailable, Suspended
from holdfast.runtime import _here, call_plainly
from holdfast.words.flag import Flag
from holdfast.words.harmless import logger

_log = logger("holdfast")
TURN: Final = "turn"
STOP: Final = "stop"
_LASTING: Final = {TURN, STOP}


class NotBegun(Exception):
    """A body waited for a thread, and when there was one it was not to run any more, or not yet."""


class Failing(Protocol):
    """The call on whose behalf work goes on."""

    def fail(self, error: Exception) -> None:
        """The work met an unexpected error."""


class Asking(Protocol):
    """The owner of bodies: one attempt at a run, whose agent asks for them."""

    def begin_asked(self) -> None:
        """Begin what was asked for while it was held back."""

    def all_begun(self) -> bool:
        """Has every call begun, except calls that wait for a conversation?"""
        ...


class Bodies:
    """The work in progress of one attempt, and whether more may begin."""

    __slots__ = (
        "_held_back", "_host", "_lease_until", "_life", "_owner", "_pen", "_tasks", "_turn", "asleep", "drivers", "may_begin",
        "running", "unstoppable",
    )  # fmt: skip

    def __init__(self, life: Life, host: Host, pen: Recorder, tasks: Tasks, owner: Asking) -> None:
        self._life, self._host, self._pen, self._tasks, self._owner = life, host, pen, tasks, owner
        self.drivers: set[asyncio.Task[None]] = set()
        self.running = 0
        self.unstoppable = 0  # bodies in threads, of which it must be known how they ended before they may run again
        self.asleep = 0  # drivers that wait for a time or a person; the run may leave memory meanwhile
        # Of time.monotonic(): of its claim, or of the last heartbeat. One that did not find it leaves 0: a write will tell.
        self._lease_until = 0.0
        self.may_begin = Flag(up=True)  # down while there is a reason why nothing new may begin:
        self._held_back: dict[str, None] = {}  # no set: the garbage collector leaves this alone
        self._turn: asyncio.Lock | None = None

    @property
    def turn(self) -> asyncio.Lock:
        """The lock for the one transaction that a run may have open."""
        if self._turn is None:
            self._turn = asyncio.Lock()
        return self._turn

    # May something begin?

    def hold(self, reason: str) -> None:
        """Let nothing new begin, for this reason."""
        self._held_back[reason] = None
        self.may_begin.clear()

    def allow(self, reason: str) -> None:
        """Drop a reason that is over; if no other is left, calls that were made meanwhile begin."""
        self._held_back.pop(reason, None)
        self.resume()

    def resume(self) -> None:
        """Begin what was asked and has not begun, unless something holds it back."""
        if not self._held_back:
            self.may_begin.set()
        if not self.holding:
            self._owner.begin_asked()

    @property
    def holding(self) -> bool:
        """Is everything new held back, for a reason that is over soon?"""
        return not self.may_begin.up and not _LASTING.issuperset(self._held_back)

    @property
    def out_of_turn(self) -> bool:
        """Does the run wait until it has its conversations again?"""
        return TURN in self._held_back

    @property
    def stopping(self) -> bool:
        """Is the run to stop, and the agent not told of it yet?"""
        return STOP in self._held_back

    async def permission(self) -> None:
        """Begin no effect unless the lease is surely ours and nothing holds it back."""
        while not self.permitted:
            await (self._host.trust() if self.may_begin.up else self.may_begin.wait())

    @property
    def permitted(self) -> bool:
        """May an effect begin now?"""
        return self.may_begin.up and self._host.trusted(self._lease_until)

    async def assurance(self) -> None:
        """Wait until the lease is surely ours: for a body whose start is recorded, which ends although the run is released."""
        while not self._host.trusted(self._lease_until):
            await self._host.trust()

    def leased(self, until: float | None) -> None:
        """The claim, or a heartbeat, found the run's lease; None: a heartbeat did not."""
        self._lease_until = 0.0 if until is None else max(self._lease_until, until)

    # Drivers

    @property
    def driving(self) -> bool:
        """Is there work in progress that would be lost if the run left memory now?"""
        return len(self.drivers) > self.asleep

    def start(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        call: Failing | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[None]:
        """Run work of ours beside the agent's tasks; an unexpected error in it becomes the call's failure."""
        context = context or contextvars.copy_context()
        context.run(_here.set, None)
        task = task_of_ours(self._life.loop, self._guard(work, call), context)
        self.drivers.add(task)
        return task

    async def _guard(self, work: Callable[[], Coroutine[Any, Any, None]], call: Failing | None) -> None:
        task = asyncio.current_task(self._life.loop)
        assert task is not None
        try:
            await work()
        except (Suspended, LeaseLost):
            pass  # it is leaving: somebody else goes on
        except StoreUnavailable:
            self._life.close("lost")  # without what it wanted to read it would wait for ever; it is begun anew
        except Exception as error:
            _log.exception("run %r: unexpected error", self._life.run.id)
            if call is not None:
                call.fail(error)
        finally:
            self._driver_done(task)

    def stop(self, task: asyncio.Task[None]) -> None:
        """Cancel it. One that has not begun ends without having run, so it is asyncio that must say so."""
        task.add_done_callback(self._driver_done, context=self._life.outside)
        task.cancel()

    def stop_all(self) -> None:
        """The run leaves memory."""
        for driver in list(self.drivers):
            self.stop(driver)

    def _driver_done(self, task: asyncio.Task[None]) -> None:
        self.drivers.discard(task)
        self.rested()

    def rested(self) -> None:
        """Check whether the run has come to rest: something that may have kept it from that is over."""
        if self._tasks.resting and not (self._life.closing or self._pen.unacked or self.driving):
            self._tasks.gate.kick()  # it has left nothing that would: perhaps the run only waits now

    def doze(self, by: int) -> None:
        """A driver waits for a time or a person (1), or goes on (-1)."""
        self.asleep += by

    # Bodies

    def begun(self) -> None:
        """A body, or a probe, is about to run: the run is not given back before it has ended."""
        self.running += 1

    def ended(self) -> None:
        """A body, or a probe, has ended."""
        self.running -= 1
        if not self._pen.progress.up:
            self._pen.progress.set()

    async def in_thread(
        self, body: Callable[[], Any], wanted: Callable[[], bool], limit_s: float | None, *, may_repeat: bool
    ) -> asyncio.Future[Any] | None:
        """Call it as soon as a thread is free, if it is still wanted then and the lease still surely ours.

        Nothing can stop a thread, so what it did is known only when it returns. None if it has not returned in time, and may
        run again; a body that may not is waited for.
        """

        def begin() -> Any:
            if self._life.closing or not wanted() or not self._host.trusted(self._lease_until):
                raise NotBegun
            return call_plainly(body)

        context = contextvars.copy_context()
        running = self._life.loop.run_in_executor(self._host.threads, context.run, begin)
        running.add_done_callback(lambda late: None if late.cancelled() else late.exception())  # nobody may be left
        self.unstoppable += not may_repeat
        try:
            done, _ = await asyncio.wait([running], timeout=limit_s)
            if not done:
                if may_repeat:
                    return None
                await asyncio.wait([running])
            return running
        finally:
            self.unstoppable -= not may_repeat
