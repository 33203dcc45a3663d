"""What comes to a run from outside, and above all pause and cancel, as its owner carries them out.

Pause concerns the agent's code not at all: nothing new begins, running bodies end and are recorded, and the run leaves
memory as `paused`. What has arrived is taken in first, so that no request to pause is left for later.

Cancel reaches the code as `asyncio.CancelledError` in its root task, at a fixed place of its history. `run.cancelling` is
the request; the children are told first and end first; `run.unwinding` is the moment the agent is told. It may tidy up
with further steps until the grace is over. Then, or at a second request, the run ends whatever its code does.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine import parking
from holdfast.engine.calls import Wait
from holdfast.engine.ending import finish, said
from holdfast.errors import LeaseLost, RunFinished, StoreUnavailable, UnknownRun
from holdfast.model import FINISHED, Event, Signal
from holdfast.store.base import Append, InboxMoved, Transition

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution

GRACE = "run.cancelling"  # the key under which the end of the grace is waited for


_TOPICS: Final = {"child.ended": "child", "approval.decided": "approval", "message.received": "topic"}


def arrive(execution: Execution, signal: Signal) -> None:
    """A signal becomes an event of the journal, and is seen once that is durable. Only a pause leaves no trace for replay."""
    if signal.kind == "run.pausing":
        pause(execution, signal)
        return
    name = _TOPICS.get(signal.kind)
    data = signal.data if name is None else {**signal.data, name: signal.topic}
    if signal.kind == "message.received":
        data["position"] = signal.position  # so that a receipt finds it
    execution.inbox_seen = max(execution.inbox_seen, signal.position)
    execution.record(signal.kind, None, data, signal.value, inbox_seen=signal.position)


def pause(execution: Execution, signal: Signal) -> None:
    """Somebody wants this run to stop for a while."""
    execution.inbox_seen = max(execution.inbox_seen, signal.position)
    if not execution.pausing:
        execution.pausing = True
        _ = execution.start_driver(lambda: _pause(execution, signal.data))


async def _pause(execution: Execution, request: dict[str, Any]) -> None:
    execution.may_begin.clear()
    reason = said(request, "paused")
    while True:
        await parking.until(execution, lambda: not (execution.bodies or execution.unacked))
        if execution.closing:
            return
        seen, seq = execution.inbox_seen, execution.next_seq
        event = Event(seq, "run.paused", None, {"by": request["by"], "reason": request["reason"]})
        append = Append(execution.run.id, execution.run.lease_epoch, seq, [event], inbox_seen=seen)
        append.transition = Transition("paused", reason=reason, inbox_seen=seen)
        try:
            await execution.store.append(append)
        except InboxMoved:
            parking.notice(execution)
            await parking.until(execution, lambda: not (execution.fetching or execution.noticed))
        except (LeaseLost, StoreUnavailable):
            if execution.next_seq == seq:  # else something was recorded meanwhile, and it is tried again behind that
                execution.close("lost")
                return
        else:
            execution.close("paused")
            return


def deliver(execution: Execution, event: Event) -> None:
    """A request has its place in the history, or the agent is told of it."""
    if event.kind == "run.unwinding":
        execution.unwinding = True
        if execution.root is not None:
            execution.root.cancel()
        return
    if execution.cancelling is None:
        execution.cancelling = event.data
    else:
        execution.ends_now = True
    if execution.live:
        go_on(execution)


def go_on(execution: Execution) -> None:
    """Live, and asked to stop: see to the children and to the end of the grace."""
    if execution.cancelling is None or execution.closing:
        return
    if execution.ends_now:
        end(execution)
        return
    until = execution.cancelling["until"]
    if GRACE not in execution.waits:
        execution.waits[GRACE] = Wait("timer", until)
        execution.grace_timer = execution.clock.call_at(until, lambda: execution.outside.run(end, execution))
        if not execution.unwinding:
            _ = execution.start_driver(lambda: _tell_children(execution))


async def _tell_children(execution: Execution) -> None:
    """Children first; then the agent itself is told."""
    request = execution.cancelling
    assert request is not None
    grace_ms = max(0, request["until"] - execution.clock.now())
    children = await execution.store.runs(parent=execution.run.id, limit=100_000)
    open_ones = {child.id for child in children if child.status not in FINISHED}
    by, name = f"run {execution.run.id}", f"cancel:{execution.run.uid}"
    for child in sorted(open_ones):
        with contextlib.suppress(RunFinished, UnknownRun):
            await execution.store.cancel(child, by=by, reason=request["reason"], grace_ms=grace_ms, request=name)
    for child in sorted(open_ones):
        if child not in execution.mailbox.ended:
            ended = execution.loop.create_future()
            execution.mailbox.wait("child", child, ended)
            await ended
    if not execution.closing and not execution.unwinding:
        execution.record("run.unwinding", None, {"by": request["by"], "reason": request["reason"]})


def end(execution: Execution) -> None:
    """The grace is over, or it was asked for twice: the run ends although its code has not."""
    if not execution.closing and execution.live:
        finish(execution, "cancelled", None, None)


def carried(execution: Execution) -> dict[str, Any] | None:
    """What a checkpoint keeps of it."""
    return None if execution.cancelling is None else {**execution.cancelling, "unwinding": execution.unwinding}


def restored(execution: Execution, kept: dict[str, Any] | None) -> None:
    """What the checkpoint has kept."""
    if kept is not None:
        execution.cancelling, execution.unwinding = kept, kept["unwinding"]
