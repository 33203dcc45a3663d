"""The ground under the engine: what an attempt at a run needs of the worker it runs in. Another ground can stand here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from holdfast.engine.slots import Freed
from holdfast.engine.turns import Reservation
from holdfast.runtime import AgentSpec, Resources, StepContext, StepSpec
from holdfast.store.contract import EngineStore
from holdfast.values.signature import Bound
from holdfast.words.clock import Clock
from holdfast.words.model import Event
from holdfast.words.overrides import Override
from holdfast.words.spent import Spent

T = TypeVar("T")


@dataclass(slots=True)
class Ended:
    """The end of an attempt. `doubt`: the body may or may not have had its effect. `final`: whatever `retry` says."""

    value: Any = None  # or `Stored`
    error: Exception | None = None
    doubt: bool = False
    final: bool = False
    pauses: str | None = None  # the rate that nobody has a turn of now, because of this failure
    crashed: bool = False  # in doubt because whatever ran the body is gone
    wait_s: float | None = None  # what `retry` says of the failure, if only the performer could ask it


@dataclass(frozen=True, slots=True)
class Stored:
    """A result that was made a text where the body ran, because that is not here."""

    text: str


RUN_IT: Final = Ended()
EARLY_MS: Final = 8  # a host brings a run back into memory so long before its time; it does not leave if it is so near


class Threads(Protocol):
    """Runs plain functions in threads."""

    async def in_thread(
        self, body: Callable[[], Any], wanted: Callable[[], bool], limit_s: float | None, *, may_repeat: bool
    ) -> asyncio.Future[Any] | None:
        """Call it as soon as a thread is free; None if it has not returned in time, and may run again."""
        ...


@dataclass(slots=True)
class Work:
    """One body of a step that is to run now, or its probe."""

    spec: StepSpec
    fn: Callable[..., Any]
    threaded: bool
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    context: StepContext  # where it is: its key, its attempt, its idempotency key
    limit_s: float | None
    wanted: Callable[[], bool]  # False once nobody waits for it any more
    threads: Threads
    bound: Bound  # the arguments as they are stored, for a body that runs somewhere else
    target: object  # of a method: its object, which is the first of `args` too
    digest: str  # of the arguments, by which the call is known
    failures: int  # attempts that failed before this one
    rate: Reservation | None = None  # the turn that the performer of the body waits for first


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
    def inputs(self) -> str | None:
        """Say how inputs are kept of steps that do not say it, nor do their agents: 'full' or 'digest'."""
        ...

    @property
    def slots(self) -> Freed:
        """The slots of limits that bodies here leave, and the calls that wait to hear of it."""
        ...

    @property
    def ahead_ms(self) -> int:
        """Tell how long before its turn at a rate a body goes to its performer, which waits for it; 0: the run waits."""
        ...

    def park_grace_s(self, run: str) -> float | None:
        """Seconds that a run which waits stays in memory; None: the host takes runs out of memory by itself."""
        ...

    def serve(self, spec: AgentSpec) -> None:
        """A run calls this agent: make sure this worker serves it."""
        ...

    def perform(self, work: Work) -> Coroutine[Any, Any, Ended]:
        """Run a body or a probe; returns how it ended, and raises only what stops this attempt at the run."""
        ...

    def new_task(self, make: Callable[[], T]) -> T:
        """Make a task of a run."""
        ...

    def patched(self, patch: str) -> bool | None:
        """Has the run passed the line of this patch before? None: its journal tells."""
        ...

    def spec_of(self, agent: str) -> AgentSpec | None: ...
    def replacement(self, spec: StepSpec) -> Callable[..., Any] | None:
        """The function that a test runs instead of the step's body."""
        ...

    def overrides(self, root: str) -> Iterable[Override]:
        """Replacements by which a test overrides parts of agents, in the runs of this root."""
        ...

    @property
    def recorded(self) -> Callable[[Event], None] | None:
        """The observer of every event that is durable, if there is one."""
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
