"""What comes to a run from outside, and above all pause and cancel, as its owner carries them out.

Pause concerns the agent's code not at all: nothing new begins, running bodies end and are recorded, and the run leaves
memory as `paused`. The request is in the journal (`run.pausing`) from the moment it is taken from the inbox, so that it
outlives its owner whatever else arrives; all that has arrived is taken in before the run is paused. If it is to be paused now,
bodies are stopped as when their worker stops, and are in doubt as after a crash. A resume that comes before the run has been
paused is a signal too (`run.resumed`), which calls the request off.

Cancel reaches the code as `asyncio.CancelledError` in its root task, at a fixed place of its history. `run.cancelling` is
the request; the children are told first and end first; `run.unwinding` is the moment the agent is told. It may tidy up
with further steps until the grace is over. Then, or at a second request, the run ends whatever its code does.

Who is asked to stop does not pause any more: a paused run could not tidy up.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from holdfast.engine import parking
from holdfast.engine.calls import Call, Wait
from holdfast.engine.ending import finish, said
from holdfast.errors import LeaseLost, RunFinished, StoreUnavailable, UnknownRun
from holdfast.store.appends import Append, InboxMoved, Transition
from holdfast.words.model import Event, Signal

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution

GRACE = "run.cancelling"  # the key under which the end of the grace is waited for
REQUESTS = ("run.cancelling", "run.unwinding")


def arrive(execution: Execution, signal: Signal) -> None:
    """A signal becomes an event of the journal, and is seen once that is durable. Only a pause leaves no trace for replay."""
    execution.inbox_seen = max(execution.inbox_seen, signal.position)
    if signal.kind == "run.pausing":
        if signal.data and not execution.stopping:  # else it is over: the run was resumed since, or is to stop
            execution.record(signal.kind, None, signal.data, inbox_seen=signal.position)
            pause(execution, signal.data)
        return
    if signal.kind == "run.resumed":
        called_off = signal.data["requests"]
        if execution.pausing is not None and execution.pausing.get("request") in called_off:
            resumed = {"by": signal.data["by"], "cut": None}
            execution.record(signal.kind, None, resumed, inbox_seen=signal.position)
            _stay(execution)
        return
    data = signal.recorded()
    if data is None:
        return
    if signal.kind == "message.received":
        data["position"] = signal.position  # so that a receipt finds it
    # A second request to stop ends the run as soon as it is recorded: code that never waits would not let it through.
    ends = (lambda _: end(execution)) if signal.kind == "run.cancelling" and execution.stopping else None
    execution.record(signal.kind, None, data, signal.value, inbox_seen=signal.position, then=ends)
    if signal.kind == "run.cancelling":
        execution.stopping = True
        if execution.pausing is not None:
            _stay(execution)


def _stay(execution: Execution) -> None:
    """The run is not to be paused any more."""
    execution.pausing = None
    execution.progress.set()
    parking.resume_asking(execution)


def pause(execution: Execution, request: dict[str, Any]) -> None:
    """Somebody wants this run to stop for a while. Of several requests the nearest holds it: its own, then its parent's."""
    before = execution.pausing
    if before is None:
        execution.pausing = request
        execution.may_begin.clear()
        _ = execution.start_driver(lambda: _pause(execution))
        return
    nearest = request if request.get("depth", 0) <= before.get("depth", 0) else before
    execution.pausing = nearest | {"now": before.get("now") or request.get("now")}
    execution.progress.set()


def look_ahead(execution: Execution) -> None:
    """The run goes live: if it is to pause, nothing begins before that."""
    if execution.journal.pausing is not None:
        pause(execution, execution.journal.pausing.data)  # its owner died before it could
    elif any(signal.kind == "run.pausing" and signal.data for signal in execution.signals) and not execution.stopping:
        execution.may_begin.clear()


async def _pause(execution: Execution) -> None:
    def quiet() -> bool:
        if execution.pausing is None or not (execution.bodies or execution.unacked):
            return True
        return bool(execution.pausing.get("now")) and not execution.unstoppable

    while True:
        await parking.until(execution, quiet)
        request = execution.pausing
        if execution.closing or request is None:
            return
        if execution.bodies:
            execution.outflow.flush()  # what they have written to streams stays
            execution.left = _paused(execution, request)
            execution.close("paused")  # and stops them; `put_away` says so in the journal
            return
        seq = execution.next_seq
        append = _pausing(execution, request)
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
            execution.pausing = None  # it is written
            execution.close("paused")
            return


def _paused(execution: Execution, request: dict[str, Any]) -> Transition:
    return Transition("paused", reason=said(request, "paused"), inbox_seen=execution.inbox_seen)


def _pausing(execution: Execution, request: dict[str, Any]) -> Append:
    """The write that pauses a run: the event keeps the name of the request, by which a resume of the family knows it."""
    data = {name: value for name, value in request.items() if name != "now"}
    event = Event(execution.next_seq, "run.paused", None, data)
    seen, run = execution.inbox_seen, execution.run
    execution.left = _paused(execution, request)
    return Append(run.id, run.lease_epoch, event.seq, [event], inbox_seen=seen, transition=execution.left)


async def put_away(execution: Execution) -> None:
    """A run left memory with bodies that were stopped because it is to be paused now: write that, once they have ended.

    If something came in between (it may be a cancel), the run is given back instead: the next owner finds the request in the
    journal, and pauses it when all that came is taken in.
    """
    request = execution.pausing
    if execution.closing != "paused" or request is None or not request.get("now"):
        return
    await execution.unwound()
    await execution.let_through()  # a commit that is on its way
    append = _pausing(execution, request)
    try:
        await execution.store.append(append)
    except InboxMoved:
        run = execution.run
        await execution.store.append(
            Append(run.id, run.lease_epoch, append.expected_seq, transition=Transition("ready"))
        )
    except LeaseLost:
        pass


def deliver(execution: Execution, event: Event) -> None:
    """A request has its place in the history, or the agent is told of it."""
    if event.kind == "run.unwinding":
        execution.unwinding, execution.childless = True, False  # it may start children again, to tidy up
        if execution.root is not None:
            execution.root.cancel()
        return
    execution.stopping = True
    if execution.cancelling is None:
        execution.cancelling = event.data
    else:
        execution.ends_now = True
    if execution.live:
        go_on(execution)


def postpones(execution: Execution, call: Call) -> bool:
    """Between the request and the moment the agent is told no child is started: all there are have been counted.

    A call that is not withdrawn when the agent has been told begins then (`begin_postponed`).
    """
    if execution.cancelling is None or execution.unwinding:
        return False
    call.begun, execution.postponed = False, True
    return True


def begin_postponed(execution: Execution) -> None:
    """The agent was told, and the run has settled since: what it still waits for begins."""
    if execution.unwinding:
        execution.postponed = False
        parking.resume_asking(execution)


def go_on(execution: Execution) -> None:
    """Live, and asked to stop: see to all below it and to the end of the grace."""
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
            _begin_seeing_off(execution)


def sees_off(execution: Execution) -> bool:
    """Asked to stop, the agent has ended: that counts once all below it have ended, also what it has left behind."""
    if execution.cancelling is None or execution.childless:
        return False
    if GRACE not in execution.waits:
        go_on(execution)
        parking.notice(execution)  # a run that ends on replay has not looked
    _begin_seeing_off(execution)
    return True


def _begin_seeing_off(execution: Execution) -> None:
    if not (execution.sees_off_now or execution.closing or execution.finishing):
        execution.sees_off_now = True
        _ = execution.start_driver(lambda: _see_off(execution))


async def _see_off(execution: Execution) -> None:
    """Tell all below the run to stop, and wait for their ends; then the agent is told, or may end."""
    while True:
        await parking.until(execution, lambda: not execution.unacked)  # a child that was just started is in the store
        known = dict(execution.mailbox.ended)
        open_ones = await _pass_on(execution)
        if execution.closing or not open_ones:
            break
        for child in open_ones:
            if execution.mailbox.ended.get(child) is known.get(child):  # else it has ended since it was looked
                await _ended(execution, child)
    execution.sees_off_now = False
    if execution.closing:
        return
    execution.childless = True
    if execution.root is not None and execution.root.done():
        execution.gate.kick()  # it has ended, and that may count now
        return
    assert execution.cancelling is not None
    request = execution.cancelling
    execution.record("run.unwinding", None, {"by": request["by"], "reason": request["reason"]})


async def _pass_on(execution: Execution) -> list[str]:
    """Tell the nearest unfinished runs below what this run was told; returns which these are."""
    request, run = execution.cancelling, execution.run
    assert request is not None
    grace_ms = max(0, request["until"] - execution.clock.now())
    open_ones = await execution.store.open_below(run.id)
    for child in open_ones:
        with contextlib.suppress(RunFinished, UnknownRun):
            await execution.store.cancel(
                child, by=f"run {run.id}", reason=request["reason"], grace_ms=grace_ms, request=f"cancel:{run.uid}",
                insist=False,
            )  # fmt: skip
    return open_ones


async def _ended(execution: Execution, child: str) -> None:
    """Wait for the end of a child; the run may leave memory meanwhile."""
    token, ended = f"child:{child}", execution.loop.create_future()
    execution.mailbox.wait("child", child, ended)
    execution.waits[token] = Wait("child", None, token)
    execution.asleep += 1
    execution.gate.kick()
    try:
        await ended
    finally:
        execution.asleep -= 1
        execution.waits.pop(token, None)


def end(execution: Execution) -> None:
    """The grace is over, or it was asked for twice: the run ends although its code has not, and all below it with it."""
    if not execution.closing and execution.live:
        finish(execution, "cancelled", None, None)


def look_for_owner(execution: Execution) -> None:
    """The run was stopped, perhaps by somebody else: then this process does not have it any more."""

    async def look() -> None:
        row = await execution.store.run(execution.run.id)
        if row is None or row.lease_epoch != execution.run.lease_epoch:
            execution.close("lost")

    if not (execution.closing or execution.finishing):
        _ = execution.start_driver(look)


def carried(execution: Execution) -> dict[str, Any] | None:
    """What a checkpoint keeps of it."""
    return None if execution.cancelling is None else {**execution.cancelling, "unwinding": execution.unwinding}


def restored(execution: Execution, kept: dict[str, Any] | None) -> None:
    """What the checkpoint has kept."""
    if kept is not None:
        execution.cancelling, execution.unwinding, execution.stopping = kept, kept["unwinding"], True
