"""Raw I/O and threads in agent code: nothing records them, so they are reported with task and line, never passed over.

Waits are noticed by the loop, effects that do not wait by an audit hook (`effects.py`).
"""

from __future__ import annotations

from typing import Any

from holdfast.engine.bodies import Bodies
from holdfast.engine.host import Host
from holdfast.engine.journal import Journal
from holdfast.engine.life import Life
from holdfast.engine.loop import GateFuture, Place, RunTask, Tasks, waiting_location
from holdfast.engine.recorder import Recorder
from holdfast.words.harmless import logger

_log = logger("holdfast")


class Unrecorded:
    """Waits and effects of one attempt's code that no journal records."""

    __slots__ = ("_bodies", "_clock", "_journal", "_life", "_pen", "_tasks", "effects", "foreign")

    def __init__(self, life: Life, host: Host, journal: Journal, pen: Recorder, bodies: Bodies, tasks: Tasks) -> None:
        self._life, self._clock, self._journal, self._pen, self._bodies, self._tasks = (
            life, host.clock, journal, pen, bodies, tasks,
        )  # fmt: skip
        self.foreign: dict[str, dict[str, Any]] = {}  # waits: told, by task and line
        self.effects: dict[str, dict[str, Any]] = {}  # what it did without waiting

    def report(self, scope: Place, what: str, line: str, *, waits: bool = True) -> None:
        """Tell once per place: in the log of each life, and in the run's history once it is live."""
        path, line = scope.path or "root", line or scope.made_at
        if self._life.closing or (not line and self.foreign):  # asyncio's own doing, for something that was told
            return
        line = line or "unknown line"
        mark = f"{path} {line}"
        if mark in self.foreign or mark in self.effects:
            return
        if waits:
            self.foreign[mark] = {"task": path, "what": what, "line": line}
        else:
            self.effects[mark] = {"task": path, "what": what, "line": line, "effect": True}
        _log.warning(
            "run %r: task %r %s something that is not recorded (%s) at %s; it will be done again on every resume. "
            "Put it into a step", self._life.run.id, path, "waits for" if waits else "does", what, line,
        )  # fmt: skip
        if self._life.live:
            self.write()

    def write(self) -> None:
        """Have what was told in the run's history, each place once."""
        for known, found in ((self._journal.foreign, self.foreign), (self._journal.effects, self.effects)):
            for mark, told in found.items():
                if mark not in known and not self._bodies.holding:
                    known[mark] = None
                    self._pen.record("foreign", None, told)

    def stirred(self, scope: Place, coro: Any) -> None:
        """A task of a settled run moved and the gate did not cause it."""
        self._tasks.stray(self._clock.now() / 1000)
        self.report(scope, "raw I/O, a thread or a timer of another loop", waiting_location(coro))
        self._tasks.gate.kick()

    def report_stall(self, seen: int) -> None:
        """Report where the tasks are of a run that does not end although nothing durable is pending."""
        if self._life.closing or self._tasks.activity != seen or self._bodies.running or self._pen.unacked:
            return
        for task in self.unaccounted():
            self.report(task.scope, "nothing durable is pending", waiting_location(task.get_coro()))

    @property
    def known(self) -> bool:
        """Is the code known to wait for such things, in this life or an earlier one?"""
        return bool(self.foreign or self._journal.foreign)

    @property
    def outstanding(self) -> bool:
        """Does the run perhaps wait for something that would be lost if it left memory?"""
        return bool(self.foreign) and bool(self.unaccounted())

    def unaccounted(self) -> list[RunTask]:
        """Live tasks that wait for something other than the gate or another task of the run."""
        return [task for task in self._tasks.alive if not self._accounted(getattr(task, "_fut_waiter", None))]

    def _accounted(self, waiter: Any) -> bool:
        if isinstance(waiter, GateFuture):
            return True
        if isinstance(waiter, RunTask):
            return waiter in self._tasks.alive
        children: list[Any] = getattr(waiter, "_children", None) or []  # gather
        return bool(children) and all(self._accounted(child) or child.done() for child in children)

    def where(self) -> str:
        """Say at which lines the run's tasks wait, for a message."""
        places = self.places()
        return f"; the run waits in {', '.join(places)}" if places else ""

    def places(self) -> list[str]:
        """List some tasks, each with the line at which it waits, for a message."""
        return [_place(task) for task in list(self._tasks.alive)[:3]]


def _place(task: RunTask) -> str:
    return f"{task.scope.path or 'root'} at {waiting_location(task.get_coro()) or task.scope.made_at or 'unknown line'}"
