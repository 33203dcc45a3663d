"""What runs beside the agent on behalf of its calls: bodies of steps, probes, reads of the inbox.

Drivers are no tasks of the run: they do not stir it and have no keys. They end when the run leaves memory.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from holdfast.engine.gate import Gate
from holdfast.engine.host import Host
from holdfast.engine.loop import task_of_ours
from holdfast.engine.recorder import Recorder
from holdfast.errors import LeaseLost, StoreUnavailable, Suspended
from holdfast.runtime import _here, call_plainly
from holdfast.words.flag import Flag
from holdfast.words.harmless import logger
from holdfast.words.model import RunRow

if TYPE_CHECKING:
    from holdfast.engine.budgets import Meter
    from holdfast.engine.loops import Watch

_log = logger("holdfast")


class NotBegun(Exception):
    """A body waited for a thread, and when there was one it was not to run any more, or not yet."""


class Drivers(Recorder):
    """The work in progress of one attempt, and whether more may begin."""

    __slots__ = (
        "_turn", "asleep", "bodies", "clock", "drivers", "lease_until", "loop", "may_begin", "means", "meter",
        "unstoppable", "unsure", "watch",
    )  # fmt: skip

    gate: Gate
    resting: bool

    def __init__(self, host: Host, run: RunRow) -> None:
        super().__init__(host, run)
        self.clock, self.loop = host.clock, asyncio.get_running_loop()
        self.drivers: set[asyncio.Task[None]] = set()
        self.bodies = 0
        self.unstoppable = 0  # bodies in threads, of which it must be known how they ended before they may run again
        self.asleep = 0  # drivers that wait for a time or a person; the run may leave memory meanwhile
        self.unsure = False  # the last heartbeat did not find its lease; a write on its way will tell
        self.lease_until = 0.0  # of time.monotonic(): of its claim, or of the last heartbeat that found it
        self.may_begin = Flag(up=True)  # down while the run is being given back: nothing new begins
        self._turn: asyncio.Lock | None = None
        self.means: dict[str, Any] = {}  # what is left of the budgets that hold, as the agent knows it
        self.meter: Meter | None = None
        self.watch: Watch | None = None

    @property
    def turn(self) -> asyncio.Lock:
        """Of the one transaction a run may have open."""
        if self._turn is None:
            self._turn = asyncio.Lock()
        return self._turn

    @property
    def holding(self) -> bool:
        """Is the run being given back?"""
        return not self.may_begin.up

    @property
    def driving(self) -> bool:
        """Is there work in progress that would be lost if the run left memory now?"""
        return len(self.drivers) > self.asleep

    def start_driver(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        failed: Callable[[Exception], None] | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[None]:
        """Run work of ours beside the agent's tasks; an unexpected error in it becomes the call's failure."""
        context = context or contextvars.copy_context()
        context.run(_here.set, None)
        task = task_of_ours(self.loop, self._guard(work, failed), context)
        self.drivers.add(task)
        return task

    async def _guard(
        self, work: Callable[[], Coroutine[Any, Any, None]], failed: Callable[[Exception], None] | None
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await work()
        except (Suspended, LeaseLost):
            pass  # it is leaving: somebody else goes on
        except StoreUnavailable:
            self.close("lost")  # without what it wanted to read it would wait for ever; it is begun anew
        except Exception as error:
            _log.exception("run %r: unexpected error", self.run.id)
            if failed is not None:
                failed(error)
        finally:
            self._driver_done(task)

    def stop_driver(self, task: asyncio.Task[None]) -> None:
        """Cancel it. One that has not begun ends without having run, so it is asyncio that must say so."""
        task.add_done_callback(self._driver_done, context=self.outside)
        task.cancel()

    def _driver_done(self, task: asyncio.Task[None]) -> None:
        self.drivers.discard(task)
        self.rested()

    def rested(self) -> None:
        if self.resting and not (self.closing or self.unacked or self.driving):
            self.gate.kick()  # it has left nothing that would: perhaps the run only waits now

    def body_ended(self) -> None:
        self.bodies -= 1
        self.progress.set()

    async def permission(self) -> None:
        """Begin no effect unless the lease is surely ours and the run is not being released."""
        while not self.permitted:
            await (self.may_begin.wait() if self.holding else self.host.trust())

    @property
    def permitted(self) -> bool:
        """May an effect begin now?"""
        return self.may_begin.up and self._trusted()

    async def assurance(self) -> None:
        """The same for what has begun already, and may end although the run is being released."""
        while not self._trusted():
            await self.host.trust()

    def _trusted(self) -> bool:
        return not self.unsure and self.host.trusted(self.lease_until)

    def run_in_thread(self, body: Callable[[], Any], wanted: Callable[[], bool]) -> asyncio.Future[Any]:
        """Call it as soon as a thread is free, if it is still wanted then and the lease still surely ours."""

        def begin() -> Any:
            if self.closing or not wanted() or not self._trusted():
                raise NotBegun
            return call_plainly(body)

        context = contextvars.copy_context()
        running = self.loop.run_in_executor(self.host.threads, context.run, begin)
        running.add_done_callback(lambda late: None if late.cancelled() else late.exception())  # nobody may be left
        return running
