"""Outcomes: what the bodies in one process come to, and how a cluster that may be away meanwhile hears of it.

Temporal's own worker tries to report an outcome for ten seconds; then what a body did is forgotten, and the next
attempt does it again or has to ask. Here it is reported until the server takes it, or says that no workflow waits for
it: the server has given up that attempt, because it heard nothing of it for too long. Then the outcome stays here for a
while, and so does a body that still runs: the attempt that follows is given it, if it comes to this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

from temporalio import activity
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from holdfast.backends.temporal.address import is_missing

_SOON_S, _LATER_S = 0.1, 2.0  # between two attempts to report an outcome
_LOOK_S: Final = 1.0
_STAYS_S: Final = 30.0  # for so long an outcome stays that nobody waits for; pollers are back by then
_PASSES: Final = frozenset({
    RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.UNKNOWN, RPCStatusCode.CANCELLED,
    RPCStatusCode.ABORTED, RPCStatusCode.INTERNAL, RPCStatusCode.RESOURCE_EXHAUSTED,
})  # fmt: skip


@dataclass(slots=True)
class _Outcome:
    """A body that runs or has ended, and how many attempts wait for it: the server may have given up all but one."""

    body: asyncio.Task[dict[str, Any]]
    waiting: int = 0


class Outcomes:
    """Bodies of one process whose outcomes the cluster has not taken yet, by their activities."""

    def __init__(self) -> None:
        self._found: dict[str, _Outcome] = {}
        self._staying: set[asyncio.Task[None]] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def begin(self, name: str, body: Coroutine[Any, Any, dict[str, Any]]) -> None:
        """Run this body, under the name of its activity."""
        task = asyncio.create_task(body)
        task.add_done_callback(lambda late: None if late.cancelled() else late.exception())
        self._found[name] = _Outcome(task)

    async def report(self, name: str, *, same: bool) -> None:
        """Wait for the outcome of a body, and tell the server, as the activity that asks for it.

        `same`: if the server gives this attempt up, another one of the same activity follows.
        """
        outcome = self._found[name]
        outcome.waiting += 1
        given_up = True
        try:
            await self._end(outcome.body)
            if outcome.body.cancelled():
                given_up = False
                raise asyncio.CancelledError
            given_up = not await _tell(outcome.body)
        except _GivenUp:
            pass
        except BaseException:
            given_up = _is_given_up()
            if not given_up:
                outcome.body.cancel()
                raise
        finally:
            outcome.waiting -= 1
            if not given_up:
                self._drop(name, outcome)
            elif not outcome.waiting:
                self._stay(name, outcome, same=same)

    async def _end(self, body: asyncio.Task[Any]) -> None:
        """Wait until it has ended. A cancelled activity ends its body, unless the server has given the attempt up."""
        try:
            await asyncio.wait([body])
        except asyncio.CancelledError:
            if _is_given_up():
                raise _GivenUp from None
            body.cancel()
            await asyncio.wait([body])

    def _drop(self, name: str, outcome: _Outcome) -> None:
        if self._found.get(name) is outcome:
            del self._found[name]

    def _stay(self, name: str, outcome: _Outcome, *, same: bool) -> None:
        task = asyncio.create_task(self._until_unwanted(name, outcome, activity.info(), activity.client(), same))
        self._staying.add(task)
        task.add_done_callback(self._staying.discard)

    async def _until_unwanted(
        self, name: str, outcome: _Outcome, info: activity.Info, client: Client, same: bool
    ) -> None:
        """Let an outcome stay until the attempt that follows has come for it, or cannot come here any more."""
        end = None
        while not outcome.waiting and self._found.get(name) is outcome:
            try:
                wanted = await _is_wanted(client, info, same=same)
                end = end or time.monotonic() + _STAYS_S  # counted from when the server is back
            except RPCError:
                wanted = True
            if outcome.waiting:
                return
            if not wanted or (end is not None and time.monotonic() > end):
                outcome.body.cancel()
                self._drop(name, outcome)
                return
            await asyncio.sleep(_LOOK_S)

    async def close(self) -> None:
        """End what stays: the process ends."""
        for outcome in self._found.values():
            outcome.body.cancel()
        for task in [*self._staying]:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._found.clear()


class _GivenUp(Exception):
    """The server does not wait for this attempt any more."""


def _is_given_up() -> bool:
    details = activity.cancellation_details()
    return details is not None and (details.not_found or details.timed_out)


async def _tell(body: asyncio.Task[dict[str, Any]]) -> bool:
    """Report an outcome until the server takes it; False: it does not wait for this attempt any more."""
    handle = activity.client().get_async_activity_handle(task_token=activity.info().task_token)
    error, wait_s = body.exception(), _SOON_S
    while True:
        try:
            await (handle.complete(body.result()) if error is None else handle.fail(error))  # type: ignore[arg-type]
            return True
        except RPCError as problem:
            if is_missing(problem):
                return False
            if problem.status not in (*_PASSES, RPCStatusCode.NOT_FOUND):  # of the namespace, while the server starts
                raise
        await asyncio.sleep(wait_s)
        wait_s = min(wait_s * 2, _LATER_S)


async def _is_wanted(client: Client, info: activity.Info, *, same: bool) -> bool:
    """Can an attempt come here that follows this one? One of another activity can, as long as the run goes on."""
    try:
        handle = client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        described = await handle.describe()
    except RPCError as error:
        if is_missing(error):
            return False
        raise
    if described.status != WorkflowExecutionStatus.RUNNING:
        return False
    taken = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    pending = described.raw_description.pending_activities
    return not same or any(
        each.activity_id == info.activity_id and (each.state != taken or each.attempt == info.attempt)
        for each in pending
    )
