"""Raw I/O and threads in agent code: nothing records them, so they are reported with task and line, never passed over.

Waits are noticed by the loop, effects that do not wait by an audit hook (`effects.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.engine.loop import GateFuture, RunTask, waiting_location
from holdfast.words.harmless import logger

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution
    from holdfast.engine.identity import Scope

_log = logger("holdfast")


def report(execution: Execution, scope: Scope, what: str, line: str, *, waits: bool = True) -> None:
    """Tell once per place: in the log of each life, and in the run's history once it is live."""
    path, line = scope.path or "root", line or scope.made_at
    if execution.closing or (not line and execution.foreign):  # asyncio's own doing, for something that was told
        return
    line = line or "unknown line"
    mark = f"{path} {line}"
    if mark in execution.foreign or mark in execution.effects:
        return
    if waits:
        execution.foreign[mark] = {"task": path, "what": what, "line": line}
    else:
        execution.effects[mark] = {"task": path, "what": what, "line": line, "effect": True}
    _log.warning(
        "run %r: task %r %s something that is not recorded (%s) at %s; it will be done again on every resume. "
        "Put it into a step", execution.run.id, path, "waits for" if waits else "does", what, line,
    )  # fmt: skip
    if execution.live:
        write(execution)


def write(execution: Execution) -> None:
    """Have what was told in the run's history, each place once."""
    journal = execution.journal
    for known, found in ((journal.foreign, execution.foreign), (journal.effects, execution.effects)):
        for mark, told in found.items():
            if mark not in known and not execution.holding:
                known[mark] = None
                execution.record("foreign", None, told)


def outstanding(execution: Execution) -> bool:
    """Does the run perhaps wait for something that would be lost if it left memory?"""
    return bool(execution.foreign) and bool(unaccounted(execution))


def stirred(execution: Execution, scope: Scope, coro: Any) -> None:
    """A task of a settled run moved and the gate did not cause it."""
    execution.resting = execution.settled = False
    execution.ticked_s = max(execution.ticked_s, execution.clock.now() / 1000)  # or a loop that polls would never end
    report(execution, scope, "raw I/O, a thread or a timer of another loop", waiting_location(coro))
    execution.gate.kick()


def report_stall(execution: Execution, seen: int) -> None:
    """Nothing durable is pending and the run does not end: say where its tasks are."""
    execution.park_timer = None
    if execution.closing or execution.gate.activity != seen or execution.bodies or execution.unacked:
        return
    for task in unaccounted(execution):
        report(execution, task.scope, "nothing durable is pending", waiting_location(task.get_coro()))


def unaccounted(execution: Execution) -> list[RunTask]:
    """Live tasks that wait for something other than the gate or another task of the run."""
    return [task for task in execution.tasks if not _accounted(execution, getattr(task, "_fut_waiter", None))]


def _accounted(execution: Execution, waiter: Any) -> bool:
    if isinstance(waiter, GateFuture):
        return True
    if isinstance(waiter, RunTask):
        return waiter in execution.tasks
    children: list[Any] = getattr(waiter, "_children", None) or []  # gather
    return bool(children) and all(_accounted(execution, child) or child.done() for child in children)


def where(execution: Execution) -> str:
    """The lines at which the run's tasks wait, for a message."""
    places = [place(task) for task in execution.tasks]
    return f"; the run waits in {', '.join(places[:3])}" if places else ""


def place(task: RunTask) -> str:
    """A task and the line at which it waits, for a message."""
    return f"{task.scope.path or 'root'} at {waiting_location(task.get_coro()) or task.scope.made_at or 'unknown line'}"
