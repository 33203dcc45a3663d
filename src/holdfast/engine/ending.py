"""How a run ends: the agent returned or raised, and everything it started is over."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from holdfast.engine import approvals, conversations, unrecorded
from holdfast.engine.divergence import asks_instead, diverge
from holdfast.engine.journal import Divergence
from holdfast.errors import HoldfastError, NotStorable
from holdfast.runtime import Placed
from holdfast.store.appends import Transition
from holdfast.values import failures
from holdfast.words.model import KINDS

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution

STALL_GRACE_S = 0.5  # how long a replay that waits for something unrecorded may take before it counts as diverged,
FOREIGN_GRACE_S = 300.0  # and how long when it is known to wait for such things: raw I/O takes its time again


def go_live(execution: Execution) -> None:
    """Everything recorded is through: what was found out on the way is written first."""
    execution.live = True
    execution.patches.write()
    unrecorded.write(execution)
    approvals.withdraw_forsaken(execution)
    conversations.go_live(execution)
    execution.outflow.soon()


def conclude(execution: Execution) -> None:
    """Record the end, unless the journal holds something the code has not asked for."""
    root = execution.root
    assert root is not None
    if not execution.live:
        _pass_over(execution)
        left_over = execution.journal.left_over()
        if left_over is not None:
            diverge(execution, left_over, "the agent ended without asking for it" + asks_instead(execution))
            return
        go_live(execution)
    if execution.holding or execution.sees_off():
        return  # it is being released, and the next worker will end it; or it is not the time yet
    if root.cancelled() and execution.cancelling is not None:
        execution.unawaited.clear()
        finish(execution, "cancelled", None, None)
        return
    error: BaseException | None
    error = asyncio.CancelledError("the agent was cancelled from inside") if root.cancelled() else root.exception()
    if error is None and execution.unawaited:
        names = sorted({call.__name__ for call in execution.unawaited.values()})
        error = HoldfastError(
            f"the agent called {', '.join(names)} without awaiting it, so it did not happen; write `await {names[0]}(...)`"
        )
    execution.unawaited.clear()
    if error is None:
        try:
            text, _ = execution.stored(execution.spec.signature.returns, root.result(), "result")
        except NotStorable as problem:
            error = problem
        else:
            finish(execution, "completed", text, None)
            return
    finish(execution, "failed", None, error_record(error))


def said(request: dict[str, Any], what: str) -> str:
    """A request in words: what was done, by whom and why."""
    return f"{what} by {request['by']}" + (f": {request['reason']}" if request["reason"] else "")


def _pass_over(execution: Execution) -> None:
    """The agent has ended: recorded outcomes that nobody waited for any more the first time are through as well."""
    while (event := execution.journal.next()) is not None:
        call = execution.calls.get(event.key or "")
        if not KINDS[event.kind].arrives and (call is None or not call.withdrawn):
            return
        execution._deliver(event)
        execution.journal.turn += 1


def finish(execution: Execution, status: str, text: str | None, error: dict[str, Any] | None) -> None:
    """Record how the run ended; it leaves memory once that is durable."""
    if execution.finishing:
        return
    execution.finishing = True
    transition = execution.left = Transition(status, result=text, error=None if error is None else json.dumps(error))
    if execution.cancelling is not None:
        transition.ends_below = execution.cancelling["reason"]
    data: dict[str, Any] = {} if error is None else {"error": error}
    if status == "cancelled" and execution.cancelling is not None:
        data = {"by": execution.cancelling["by"], "reason": execution.cancelling["reason"]}
        transition.reason = said(data, "cancelled")
    execution.may_begin.clear()
    execution.record(f"run.{status}", None, data, transition=transition, then=lambda _: execution.close("ended"))


def error_record(error: BaseException) -> dict[str, Any]:
    """An agent's exception as a record, with the outcomes it came from: where a retry would cut."""
    record = failures.record(error, ())
    sources: list[dict[str, Any]] = []
    _sources(error, sources, set())
    record["from"] = sources
    return record


def _sources(error: BaseException | None, found: list[dict[str, Any]], seen: set[int]) -> None:
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    mark = getattr(error, "__holdfast__", None)
    if mark is not None:
        found.append(mark)
        return
    for inner in getattr(error, "exceptions", ()):
        _sources(inner, found, seen)
    _sources(error.__cause__, found, seen)
    _sources(error.__context__, found, seen)  # also behind `from None`, which hides it from people only


def stalled(execution: Execution, missing: Divergence) -> None:
    """Replay waits for a call that the code does not make: a divergence, or raw I/O that is still on its way."""
    execution.resting = execution.settled = True
    if execution.root is not None and execution.root.done() and not execution.tasks:
        conclude(execution)
    elif not unrecorded.unaccounted(execution):
        _stalled_for_good(execution, missing, execution.gate.activity)
    else:
        grace_s = FOREIGN_GRACE_S if execution.foreign or execution.journal.foreign else STALL_GRACE_S
        with Placed(None):
            seen = execution.gate.activity
            execution.loop.call_later(grace_s, _stalled_for_good, execution, missing, seen)


def _stalled_for_good(execution: Execution, missing: Divergence, seen: int) -> None:
    if execution.gate.activity == seen and not execution.closing:
        diverge(
            execution, missing, "the code did not ask for it" + asks_instead(execution) + unrecorded.where(execution)
        )
