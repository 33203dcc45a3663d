"""The agents that a worker serves: by name, and of each name the versions it has.

A run that was started with a version is carried on only by code of that version; a run without one by the newest, which is
the one that was named last. So two versions of an agent can be served by one process: two functions with the same `name=`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from holdfast.declare import Agent, Step
from holdfast.errors import BadArguments
from holdfast.runtime import AgentSpec
from holdfast.store.contract import WorkerStore
from holdfast.values.codec import Shape
from holdfast.verbs.announcements import subscribed
from holdfast.verbs.names import reached
from holdfast.verbs.triggers import Trigger
from holdfast.words.limits import default_texts
from holdfast.words.triggers import TriggerSpec

# Which agents an agent may call, as far as its code tells: a worker that serves it serves them too.
#
# A worker learns of a child's code when it runs the parent's call. After a restart it would learn of it too late: the
# parent waits for the child, or has ended, and the child for a worker that knows its code. So the names in the agent's
# code are followed: globals, closures, what modules and plain containers hold, through plain functions and other agents.
# An agent that is found in no such way must be named in `agents=`.


def called_by(spec: AgentSpec | TriggerSpec) -> list[AgentSpec]:
    """List every other agent that this one's code can be seen to use."""
    found: dict[str, AgentSpec] = {}
    for value in reached(spec.fn):
        if isinstance(value, Agent):
            found.setdefault(value.name, value.spec)
    return [other for other in found.values() if other is not spec]


def results_of(spec: AgentSpec, name: str) -> list[Shape]:
    """List the result types of steps and agents of this name that this agent's code can be seen to use."""
    return [
        value.spec.signature.returns
        for value in reached(spec.fn)
        if isinstance(value, Agent | Step) and value.name == name
    ]


Given = Agent[..., Any] | Trigger[..., Any] | ModuleType  # to a worker, to be served


class Code(NamedTuple):
    """The code that a worker serves."""

    specs: list[AgentSpec]
    triggers: list[TriggerSpec]

    def with_more(self, more: Code) -> Code:
        """Add code; an agent or trigger that is here under its name and version gives way."""
        specs = {(spec.name, spec.version): spec for spec in (*self.specs, *more.specs)}
        triggers = {spec.name: spec for spec in (*self.triggers, *more.triggers)}
        return Code(list(specs.values()), list(triggers.values()))


def code_of(agents: Iterable[Given]) -> Code:
    """The agents and triggers named, and all of the modules named."""
    given = agents if isinstance(agents, Agent | Trigger | ModuleType) else list(agents)
    return Code(specs_of(given), triggers_of(given))


def _found(agents: Iterable[Given]) -> Iterator[Agent[..., Any] | Trigger[..., Any]]:
    """Yield the agents and triggers named, and all of the modules named."""
    if isinstance(agents, Agent | Trigger | ModuleType):
        raise BadArguments(f"agents= takes a list: agents=[{getattr(agents, '__name__', agents)}]")
    for entry in agents:
        if isinstance(entry, ModuleType):
            yield from [value for value in vars(entry).values() if isinstance(value, Agent | Trigger)]
        elif isinstance(entry, Agent | Trigger):
            yield entry
        else:
            raise BadArguments(
                f"agents= takes agents (functions with @holdfast.agent), triggers and modules, not {entry!r}"
            )


def triggers_of(agents: Iterable[Given]) -> list[TriggerSpec]:
    """The triggers named, and all triggers of the modules named."""
    specs: dict[str, TriggerSpec] = {}
    for each in _found(agents):
        if isinstance(each, Trigger) and specs.setdefault(each.name, each.spec) is not each.spec:
            raise BadArguments(f"two triggers are named {each.name!r}; give one another name")
    return list(specs.values())


def specs_of(agents: Iterable[Given]) -> list[AgentSpec]:
    """The agents named, and all agents of the modules named."""
    specs: dict[tuple[str, str | None], AgentSpec] = {}
    for agent in _found(agents):
        if isinstance(agent, Agent):
            known = specs.setdefault((agent.name, agent.spec.version), agent.spec)
            if known is not agent.spec:
                raise BadArguments(
                    f"two agents are named {agent.name!r}; give one another name with @agent(name=...), or another version"
                )
    return list(specs.values())


# What a worker publishes of its agents, so that others can start them by name and have arguments checked at once.


def schema_of(spec: AgentSpec) -> str:
    """The agent's parameters as JSON Schema, how its runs are let through, and what they may spend."""
    flow = spec.flow.published(default_texts(spec.signature, spec.flow))
    budget = {} if spec.budget is None else {"x-budget": spec.budget.published()}
    return json.dumps(spec.signature.schema() | {"x-flow": flow} | budget)


class Served:
    """The code that belongs to each run and each trigger. What is new here waits to be published."""

    def __init__(self, specs: Iterable[AgentSpec], triggers: Iterable[TriggerSpec] = ()) -> None:
        self._triggers = {spec.name: spec for spec in triggers}  # of functions; agents with `on=` are triggers too
        self._published = False
        self._newest: dict[str, AgentSpec] = {}
        self._exact: dict[tuple[str, str | None], AgentSpec] = {}
        self._names: list[str] = []
        self._unpublished: list[AgentSpec] = []
        for spec in specs:
            self._put(spec)
            self._newest[spec.name] = spec
        for each in [*self._exact.values()]:
            self._reach(each)
        for trigger in self._triggers.values():
            self._reach(trigger)

    def add(self, spec: AgentSpec) -> bool:
        """Serve this agent, and all that it calls, from now on; False if it is served already."""
        known = self._exact.get((spec.name, spec.version))
        if known is None:
            self._put(spec)
            self._reach(spec)
            return True
        if known.fn is not spec.fn:
            version = "" if spec.version is None else f", version {spec.version!r},"
            raise BadArguments(
                f"two agents are named {spec.name!r}{version}: {known.fn.__module__}.{known.fn.__qualname__} and "
                f"{spec.fn.__module__}.{spec.fn.__qualname__}; give one another name with @agent(name=...), or another "
                "version with @agent(version=...)"
            )
        return False

    def replace(self, spec: AgentSpec) -> None:
        """Serve this agent, and all that it calls, instead of the one that has its name and version."""
        known = self._exact.pop((spec.name, spec.version), None)
        if known in self._unpublished:
            self._unpublished.remove(known)
        self._put(spec)
        self._newest[spec.name] = spec
        self._reach(spec)

    def trigger(self, triggers: Iterable[TriggerSpec]) -> None:
        """Map deliveries for these triggers, which replace triggers of the same names."""
        for spec in triggers:
            self._triggers[spec.name] = spec
            self._reach(spec)

    def _put(self, spec: AgentSpec) -> None:
        key = (spec.name, spec.version)
        if key in self._exact:
            self.add(spec)
            return
        self._exact[key] = spec
        self._newest.setdefault(spec.name, spec)
        self._unpublished.append(spec)
        names = [spec.name] if spec.version is None else [spec.name, f"{spec.name} {spec.version}"]
        self._names += [name for name in names if name not in self._names]

    def _reach(self, spec: AgentSpec | TriggerSpec) -> None:
        for each in called_by(spec):
            if (each.name, each.version) not in self._exact:
                self._put(each)

    @property
    def newest(self) -> Iterable[AgentSpec]:
        """The agents that runs without a version get, one of each name."""
        return self._newest.values()

    @property
    def triggers(self) -> Iterable[TriggerSpec]:
        """The triggers whose code is here; `BadArguments` if a function and an agent that is one have the same name."""
        agents = [spec for spec in self.newest if spec.on is not None]
        for spec in agents:
            if spec.name in self._triggers:
                raise BadArguments(
                    f"a trigger and an agent with on= are both named {spec.name!r}; give one of them another name"
                )
        return [*self._triggers.values(), *(subscribed(spec) for spec in agents)]

    @property
    def names(self) -> list[str]:
        """Everything that is served, as the store knows it: names, and names with a version after a space."""
        return self._names

    def spec_of(self, agent: str, version: str | None = None) -> AgentSpec | None:
        """The code of a run."""
        return self._newest.get(agent) if version is None else self._exact.get((agent, version))

    async def publish(self, store: WorkerStore) -> None:
        """Tell the store of the agents that were added since, the newest version of a name last."""
        if not self._unpublished and self._published:
            return
        found, self._unpublished = self._unpublished, []
        found.sort(key=lambda spec: self._newest[spec.name] is spec)
        try:
            await store.publish([(spec.name, spec.version, schema_of(spec)) for spec in found])
            self._published = True
        except BaseException:
            self._unpublished = found + self._unpublished
            raise
