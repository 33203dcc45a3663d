"""Hangs: a loop that does not turn is noticed, and the run whose code keeps it is named.

A thread asks the loop for a sign twice a second, while there are runs on it. With none for a second it looks at what the
loop's thread is doing: the task that is being stepped says which run it is, the frames say where. This costs the engine
nothing per step. Code that also keeps Python's own lock (a long regular expression, say) stops this thread too; it is
told of when it lets go.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Final

from holdfast.engine.carried import Carried
from holdfast.engine.loop import RunTask, frame_location
from holdfast.runtime import RunFacts, StepContext, _here
from holdfast.words.harmless import logger
from holdfast.words.model import RunRow
from holdfast.worker.measures import Measures
from holdfast.worker.settings import Settings

_log = logger("holdfast")
_LOOK_S: Final = 0.5
_NOTICE_S: Final = 1.0


class Hangs:
    """Watches one loop from `start` to `stop`."""

    def __init__(self, settings: Settings, measures: Measures, attempts: dict[str, Carried]) -> None:
        self._settings, self._measures, self._attempts = settings, measures, attempts
        self._asked_at = self._turned_at = 0.0  # the first is set in the thread only, the second on the loop only
        self._told, self._counted_s, self._gave_up = "", 0.0, False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._main, name="holdfast-hangs", daemon=True)

    def start(self) -> None:
        """Begin; on the loop to be watched."""
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def hung_s(self) -> float:
        """Return for how long the loop has owed a sign."""
        return 0.0 if self._turned_at >= self._asked_at else time.monotonic() - self._asked_at

    def _turned(self) -> None:
        self._turned_at = time.monotonic()

    # In its thread

    def _main(self) -> None:
        while not (self._stopped.wait(_LOOK_S) or self._loop.is_closed()):
            if self._turned_at < self._asked_at:
                self._look(time.monotonic() - self._asked_at)
                continue
            if self._told:
                self._count(self._turned_at - self._asked_at)
                _log.warning("the loop turns again after %.1f s; %s", self._counted_s, self._told)
                self._told, self._gave_up = "", False
            self._counted_s = 0.0
            if self._attempts:
                self._asked_at = time.monotonic()
                try:
                    self._loop.call_soon_threadsafe(self._turned)
                except RuntimeError:  # it is closed
                    return

    def _count(self, hung_s: float) -> None:
        self._measures.hang(hung_s - self._counted_s)
        self._counted_s = hung_s

    def _look(self, hung_s: float) -> None:
        if hung_s < _NOTICE_S:
            return
        self._count(hung_s)
        if not self._told:
            frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - there is no other way to know
            name, where = self._stepped(), frame_location(frame)
            self._told = f"{name} kept it at {where or 'a line of asyncio or Holdfast'}"
            _log.warning(
                "the loop has not turned for %.1f s: %s. All runs here wait for it; their leases are kept for %g s. Put "
                "what takes long into a step that is a plain function, which runs in a thread, or await it",
                hung_s, self._told.replace(" kept it", " keeps it", 1), self._settings.hang_limit_s,
            )  # fmt: skip
        if hung_s > self._settings.hang_limit_s and not self._gave_up:
            self._gave_up = True
            _log.error(
                "the loop has not turned for %.0f s: %s. The leases of all %d runs here are not prolonged any more, so "
                "that other workers take them over", hung_s, self._told, len(self._attempts),
            )  # fmt: skip

    def _stepped(self) -> str:
        """Name the run whose code runs: that of the task which the loop is stepping."""
        task = asyncio.current_task(self._loop)
        if isinstance(task, RunTask):
            return _named(task.scope.tasks.life.run)
        for attempt in self._attempts.copy().values():
            if attempt.drives(task):
                return f"a step of {_named(attempt.run)}"
        context = getattr(task, "get_context", None)  # since Python 3.12: so tasks that a body started are known too
        place = None if context is None else context().get(_here)
        if isinstance(place, StepContext) and place.run is not None:
            return f"a step of {_named(place.run)}"
        return "something outside of all runs" if task is None else f"task {task.get_name()!r}, which is of no run,"


def _named(run: RunRow | RunFacts) -> str:
    return f"run {run.id!r} (agent {run.agent!r})"
