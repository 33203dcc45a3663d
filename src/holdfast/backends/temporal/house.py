"""A process on Temporal: the agents and steps whose code it has, and what the runs and bodies in it share."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from holdfast.backends.temporal.address import Address
from holdfast.backends.temporal.feed import Feed
from holdfast.backends.temporal.outcomes import Outcomes
from holdfast.declare import Step
from holdfast.engine.host import Work
from holdfast.engine.slots import LateTurns
from holdfast.resources import OpenResources
from holdfast.runtime import AgentSpec, StepSpec
from holdfast.store.store import Store
from holdfast.verbs.names import reached
from holdfast.words.harmless import logger
from holdfast.words.model import Event
from holdfast.words.overrides import Override
from holdfast.worker.agents import Served
from holdfast.worker.settings import Settings

_log = logger("holdfast")


@dataclass(slots=True)
class Body:
    """A body that cannot travel, as the process that has the run keeps it."""

    work: Work
    context: contextvars.Context


class House:
    """A process that carries runs, as they and their bodies see it."""

    def __init__(
        self, address: Address, served: Served, settings: Settings, queue: str, side: Store | None = None
    ) -> None:
        self.side = side  # a database beside the cluster
        self.feed: Feed | None = None  # in that database
        self.address, self.settings, self.queue = address, settings, queue
        self._served, self._turned_away = served, False
        self.value_limit_bytes = min(settings.value_limit_bytes, address.value_limit_bytes)
        self.inputs = settings.inputs or address.inputs
        self.task_timeout = timedelta(seconds=min(10.0, max(settings.lease_ttl_s, 1.0)))
        self.resources = OpenResources(settings.replace)
        self.threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="holdfast-step")
        self.bodies: dict[str, Body] = {}  # that cannot travel, by the name of their activities
        self.outcomes = Outcomes()
        self._notes: set[asyncio.Task[None]] = set()  # that turns were used late
        self.late = functools.partial(LateTurns().note, self._keep_note)
        self.instances: weakref.WeakSet[Any] = weakref.WeakSet()  # workflows in memory
        self.strays: list[Any] = []  # tasks of workflows that left memory and did not end
        self.more: Callable[[AgentSpec], None] = lambda _: None
        steps = {key: value for key, value in settings.replace.items() if isinstance(key, Step)}
        self._replace = {key.spec: value.fn if isinstance(value, Step) else value for key, value in steps.items()}
        self._steps: dict[str, dict[tuple[str, str], StepSpec]] = {}
        observer = settings.observer
        self.recorded: Callable[[Event], None] | None = None if observer is None else observer.recorded

    def _keep_note(self, task: asyncio.Task[None]) -> None:
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    @staticmethod
    def now() -> int:
        """Milliseconds since 1970, for bodies."""
        return time.time_ns() // 1_000_000

    def turns_away(self, run: str) -> bool:
        """Is this a run with a database beside the cluster that this process does not name? Called for such runs; said once."""
        if self.side is not None:
            return False
        if not self._turned_away:
            self._turned_away = True
            _log.error(
                "run %r uses a database beside the cluster, and this worker names none: it carries on no such run. End it, and "
                "start it with ?side= in its URL, as the others have it",
                run,
            )
        return True

    def spec_of(self, agent: str, version: str | None = None) -> AgentSpec | None:
        return self._served.spec_of(agent, version)

    def serve(self, spec: AgentSpec) -> None:
        """A run calls this agent: serve it too."""
        if self._served.add(spec):
            self.more(spec)

    def step(self, agent: str, name: str, place: str) -> StepSpec | None:
        """A step that the code of an agent can be seen to use."""
        known = self._steps.get(agent)
        if known is None:
            spec = self._served.spec_of(agent)
            if spec is None:
                return None
            found = [value.spec for value in reached(spec.fn) if isinstance(value, Step)]
            known = self._steps[agent] = {(step.name, place_of(step)): step for step in found}
        return known.get((name, place))

    def replacement(self, spec: StepSpec) -> Callable[..., Any] | None:
        return self._replace.get(spec)

    def overrides(self, root: str) -> Iterable[Override]:
        return () if self.settings.overrides is None else self.settings.overrides(root)

    def runs(self, spec: StepSpec, key: str) -> None:
        """A body is about to run here."""
        if self.settings.observe is not None:
            self.settings.observe(spec, key)


def place_of(spec: StepSpec) -> str:
    """Return where the function of a step is written: two steps of one name are told apart by it."""
    return f"{spec.fn.__module__}:{spec.fn.__qualname__}"
