"""Leaving memory while waiting: a parked run costs a row.

A run may be parked when something durable is pending and nothing else is: no body runs, no write is on its way, no asyncio
timer of the agent is set (it would start afresh), and a grace has passed. The store refuses to park a run that has a signal
it has not seen, so no wake-up is lost. While the answer is on its way nothing new begins.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.engine import unrecorded
from holdfast.errors import LeaseLost, StoreUnavailable
from holdfast.runtime import Placed
from holdfast.store.appends import Append, InboxMoved, Transition
from holdfast.store.blobs import unspilled
from holdfast.store.inbox import Taken
from holdfast.words.harmless import logger

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution

_log = logger("holdfast")
_STALL_NOTICE_S = 1.0
EARLY_MS = 8  # a run comes back into memory so long before its time, and does not leave if it would have to come back
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


def idle(execution: Execution) -> None:
    """The run has settled and nothing is left to deliver."""
    if execution.driving or execution.unacked or execution.ticks or execution.holding or execution.fetching:
        return
    with Placed(None):
        if execution.park_timer is not None:
            execution.park_timer.cancel()
        seen = execution.gate.activity
        if not execution.waits or unrecorded.outstanding(execution):
            execution.park_timer = execution.loop.call_later(_STALL_NOTICE_S, unrecorded.report_stall, execution, seen)
            return
        dues = [wait.due for wait in execution.waits.values() if wait.due is not None]
        if dues and min(dues) <= execution.clock.now() + EARLY_MS:
            return
        grace_s = execution.host.park_grace_s(execution.run.id)
        execution.park_timer = execution.loop.call_later(grace_s, park, execution, seen)


def _can_park(execution: Execution, seen: int) -> bool:
    busy = execution.driving or execution.unacked or execution.ticks or execution.ready or execution.fetching
    quiet = execution.gate.activity == seen and not execution.gate.pumping
    if unrecorded.outstanding(execution):
        return False
    return bool(execution.live and quiet and execution.waits and not busy and not execution.holding)


def park(execution: Execution, seen: int) -> None:
    """Give the run back until a time or an arrival."""
    execution.park_timer = None
    if execution.closing or not _can_park(execution, seen):
        return
    execution.may_begin.clear()
    try:
        written = execution.store.append(_giving_back(execution))
    except StoreUnavailable:
        execution.close("lost")
        return
    written.add_done_callback(lambda future: _parked(execution, future), context=execution.outside)


def _giving_back(execution: Execution) -> Append:
    waits = list(execution.waits.values())
    dues = [wait.due for wait in waits if wait.due is not None]
    named = min((wait.waits_for for wait in waits), key=_ORDER.index)
    tokens = sorted({wait.token for wait in waits if wait.token is not None})
    execution.left = Transition("waiting", min(dues, default=None), named, tokens, execution.inbox_seen)
    return Append(execution.run.id, execution.run.lease_epoch, execution.next_seq, transition=execution.left)


def _parked(execution: Execution, future: asyncio.Future[int]) -> None:
    error = None if future.cancelled() else future.exception()
    if error is None:
        execution.close("parked")
    elif isinstance(error, InboxMoved):
        resume_asking(execution)
        notice(execution)
    else:
        if not isinstance(error, LeaseLost | StoreUnavailable):
            _log.error("run %r: it could not be parked: %s", execution.run.id, error)
        execution.close("lost")


def resume_asking(execution: Execution) -> None:
    """The run stays after all: what was asked meanwhile begins. Unless it is to leave for another reason."""
    if execution.releasing or execution.pausing is not None:
        return
    execution.may_begin.set()
    for call in list(execution.calls.values()):
        if execution.live and not call.begun and not call.withdrawn:
            execution._begin(call)
    execution.gate.kick()


def notice(execution: Execution, *, sure: bool = False) -> None:
    """Something may have come into the run's inbox: fetch it now, or once the run is live and the fetch before is over.

    `sure`: something has.
    """
    execution.noticed = True
    if execution.live and not execution.closing and not execution.fetching:
        execution.fetching = True
        if not (sure and _take(execution)):
            _ = execution.start_driver(lambda: _fetch(execution))


def _take(execution: Execution) -> bool:
    """Have the store put it into the journal, if the run only waits. As long as that takes, nothing new begins.

    For it is not known what comes, nor which numbers it gets; a checkpoint would have to tell of it.
    """
    busy = execution.drivers or execution.unacked or execution.ready or execution.pen_held
    if busy or execution.holding or not execution.resting or execution.gate.pumping or execution.stopping:
        return False
    run = execution.run
    try:
        taking = execution.store.take(run.id, run.lease_epoch, execution.next_seq, execution.inbox_seen)
    except StoreUnavailable:
        return False
    if taking is None:
        return False
    execution.noticed = False
    execution.may_begin.clear()
    execution.expect()
    taking.add_done_callback(lambda future: _taken(execution, future), context=execution.outside)
    return True


def _taken(execution: Execution, future: asyncio.Future[Taken]) -> None:
    error = future.exception()
    events, more = future.result() if error is None else Taken([], False)
    execution.make_way(events)
    execution.let_go(lost=error is not None)
    execution.fetching = False
    if error is not None:
        if not isinstance(error, LeaseLost | StoreUnavailable):
            _log.error("run %r: what came to it could not be taken: %r", execution.run.id, error)
        execution.close("lost")
        return
    execution.inbox_seen += len(events)
    for event in events:
        execution.landed(event)
    if execution.closing:
        return
    if not execution.finishing:
        resume_asking(execution)
    if more or execution.noticed:
        notice(execution)


async def _fetch(execution: Execution) -> None:
    try:
        execution.noticed = False
        signals = await execution.store.inbox(execution.run.id, execution.inbox_seen)
        for signal in signals:
            signal.value = await unspilled(execution.store, signal.value)
            if signal.position > execution.inbox_seen:
                execution.arrive(signal)
    finally:
        execution.fetching = False
        if execution.noticed:
            notice(execution)
        execution.progress.set()
        execution.gate.kick()


async def release(execution: Execution, grace_s: float) -> None:
    """Stop at a safe point: running bodies end and are recorded, nothing new begins, and the run is free for any worker.

    After the grace what still runs is stopped, and is then in doubt as after a crash. What cannot be stopped, and must not
    run again unless it is known how it ended, keeps the run here: a body in a thread, with a policy other than 'retry'.
    """
    execution.releasing = True
    execution.may_begin.clear()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(grace_s):
            await until(execution, lambda: not (execution.bodies or execution.unacked))
    if execution.unstoppable and not execution.closing:
        _log.warning(
            "run %r is not given back yet: a step of it runs in a thread, which nothing can stop, and must not run twice",
            execution.run.id,
        )
        await until(execution, lambda: not execution.unstoppable)
    if execution.closing:
        return
    # Only a run that has come to rest waits: one whose agent has an outcome and has not gone on yet would sleep for long.
    waiting = execution.live and execution.waits and execution.resting and not execution.gate.pumping
    busy = execution.driving or execution.unacked or execution.ready or execution.ticks
    append = Append(execution.run.id, execution.run.lease_epoch, execution.next_seq, transition=Transition("ready"))
    if waiting and not busy and all(call.begun for call in execution.calls.values()):
        append = _giving_back(execution)
    execution.outflow.flush()
    execution.close("released")
    await execution.let_through()  # a commit that is on its way
    append.expected_seq = execution.next_seq
    try:
        await execution.store.append(append)
    except InboxMoved:
        append.transition = Transition("ready")
        await execution.store.append(append)
    except LeaseLost:
        pass


async def until(execution: Execution, holds: Callable[[], bool]) -> None:
    """Until it is so, or the run leaves memory for another reason."""
    while not (holds() or execution.closing):
        execution.progress.clear()
        await execution.progress.wait()
