"""The workflow that is a run, whatever its agent; and how Temporal's loop is told of it at each activation."""

from __future__ import annotations

import asyncio
import functools
import sys
from typing import Any

import pydantic.dataclasses  # noqa: F401 - else loaded at the first value of a dataclass, in the middle of an activation
from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from holdfast.backends.temporal.address import ARRIVE, DECIDE, LEAVE, NOT_ASIDE, RUN, TELL
from holdfast.backends.temporal.ground import Ground
from holdfast.backends.temporal.house import House

_UNWIND = 10_000
_OVER = tuple(f"{how}_workflow_execution" for how in ("complete", "continue_as_new", "fail", "cancel"))


@workflow.defn(name=RUN)
class RunWorkflow:
    """A run. No query is registered: it could show, and leave, a state that no workflow task has recorded."""

    @workflow.init
    def __init__(self, start: str, state: bytes | None) -> None:
        loop: Any = asyncio.get_running_loop()
        self._ground = loop.holdfast_ground = Ground(loop.holdfast_house, start, state)

    @workflow.run
    async def run(self, start: str, state: bytes | None) -> str:
        """Carry it to its end, or to the next execution."""
        return await self._ground.carry()

    @workflow.signal(name=ARRIVE)
    def arrive(self, said: dict[str, Any]) -> None:
        """Take a signal from outside."""
        self._ground.arrive(said)

    @workflow.update(name=DECIDE)
    async def decide(self, said: dict[str, Any]) -> dict[str, Any]:
        """Take what a person says to a question, of this run or of a budget for which it waits."""
        return await self._ground.ask_beside(said) if said.get("beside") else self._ground.decide(said)

    @workflow.update(name=TELL)
    def tell(self) -> bytes:
        """Return all that the run is made of: the process that moves the run reads this."""
        return self._ground.tell()

    @workflow.update(name=LEAVE)
    async def leave(self, said: dict[str, Any]) -> bool:
        """Let the run leave with the process that moves it; False if it has changed, or does more than wait."""
        return await self._ground.leave(said)

    @decide.validator
    def _is_well_formed(self, said: dict[str, Any]) -> None:
        """Check the shape alone: signals of the same workflow task are not known here yet, so nothing else can be judged."""
        if not isinstance(said.get("question"), str) or not isinstance(said.get("ballot"), dict):
            raise ApplicationError(
                "a decision names a question and has a ballot", type="BadArguments", non_retryable=True
            )
        if not self._ground.has_value(said):
            raise ApplicationError("the value of the decision has not come", type=NOT_ASIDE, non_retryable=True)


class Runner(UnsandboxedWorkflowRunner):
    """Makes workflows that know the process they are in."""

    def __init__(self, house: House) -> None:
        self._house = house

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance: Any = super().create_instance(det)
        instance.holdfast_house, instance.holdfast_ground = self._house, None
        self._house.instances.add(instance)
        instance.activate = functools.partial(_activate, instance, instance.activate)
        return instance  # type: ignore[no-any-return]


def let_go(instance: Any) -> None:
    """Unwind a workflow that a worker had in memory when it stopped: nobody will activate it any more."""
    ground: Ground | None = instance.holdfast_ground
    if ground is None or ground.evicted:
        return
    ground.evict()
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(instance)
    try:
        ground.abandon()
        turns = 0
        while instance._ready and turns < _UNWIND:
            instance._ready.popleft()._run()
            turns += 1
    finally:
        asyncio._set_running_loop(running)


def _activate(instance: Any, activate: Any, activation: Any) -> Any:
    """Let a workflow go on, and then put what it has recorded into its history."""
    ground: Ground | None = instance.holdfast_ground
    if ground is not None and any(job.HasField("remove_from_cache") for job in activation.jobs):
        ground.evict()
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=None, finalizer=None)  # of the loop that this thread ran before
    try:
        completion = activate(activation)
        ground = instance.holdfast_ground
        if ground is not None and ground.turned_away and not ground.evicted:
            completion.failed.failure.message = "this worker names no database beside the cluster"
            return completion
        if ground is not None and completion.HasField("successful") and not ground.evicted:
            commands = completion.successful.commands
            if not any(command.HasField(over) for command in commands for over in _OVER):
                running = asyncio._get_running_loop()
                asyncio._set_running_loop(instance)
                try:
                    ground.flush()
                finally:
                    asyncio._set_running_loop(running)
        return completion
    finally:
        sys.set_asyncgen_hooks(*hooks)
