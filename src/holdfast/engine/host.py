"""What an execution needs of the worker it runs in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from holdfast.engine.limits import Freed
from holdfast.runtime import AgentSpec, Resources, StepSpec
from holdfast.store.contract import EngineStore
from holdfast.words.clock import Clock
from holdfast.words.model import Event
from holdfast.words.overrides import Override
from holdfast.words.spent import Spent


class Host(Protocol):
    """A worker, seen from one of its runs."""

    @property
    def store(self) -> EngineStore: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def resources(self) -> Resources: ...
    @property
    def threads(self) -> Executor: ...
    @property
    def value_limit_bytes(self) -> int: ...
    @property
    def slots(self) -> Freed:
        """Who hears that a body here left a slot of its step's limit."""
        ...

    def park_grace_s(self, run: str) -> float:
        """How long a run that waits stays in memory."""
        ...

    def serve(self, spec: AgentSpec) -> None:
        """A run calls this agent: make sure this worker serves it."""
        ...

    def spec_of(self, agent: str) -> AgentSpec | None: ...
    def replacement(self, spec: StepSpec) -> Callable[..., Any] | None:
        """What runs instead of the step's body, in tests."""
        ...

    def overrides(self, root: str) -> Iterable[Override]:
        """What is put in place of parts of agents in the runs of this root, in tests."""
        ...

    @property
    def recorded(self) -> Callable[[Event], None] | None:
        """Who hears of every event that is durable, if anybody does."""
        ...

    def body_runs(self, spec: StepSpec, key: str) -> None:
        """A body is about to run."""
        ...

    def body_ended(self, how: str, seconds: float) -> None:
        """A body ran for so long, and ended: completed, failed, in_doubt or stopped."""
        ...

    def spent(self, agent: str, spendings: Sequence[Spent]) -> None:
        """A body of a run of this agent said what it spent."""
        ...

    def trusted(self, lease_until: float) -> bool:
        """Is a lease claimed until then surely ours? Past that no effect may begin until a heartbeat has told."""
        ...

    async def trust(self) -> None:
        """Wait until it is."""
        ...

    def keep(self, stray: asyncio.Task[Any]) -> None:
        """Hold on to a task that has not ended though its run has left memory."""
        ...
