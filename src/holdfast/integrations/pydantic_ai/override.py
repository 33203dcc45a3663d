"""Models instead of an agent's own: `run(model=...)` and `agent.override(...)`.

A step runs in the process and the context of its agent code, which gives a model instance again in every life: so an instance
needs no name that another process could find it by. What is overridden around the start of a run is told to `overrides.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.models import Model

from holdfast.words import overrides
from holdfast.words.overrides import Override

_PREFIX = "_override_"  # of the context variables in which an agent keeps what is overridden
_agents: list[weakref.ref[AbstractAgent[Any, Any]]] = []


def watch(agent: AbstractAgent[Any, Any]) -> None:
    """Tell from now on what is overridden of this agent."""
    _agents.append(weakref.ref(agent, _agents.remove))


def _found() -> Iterator[Override]:
    for each in _agents:
        agent = each()
        if agent is None:
            continue
        for name, variable in sorted(vars(agent).items()):
            if name.startswith(_PREFIX) and isinstance(variable, ContextVar) and variable.get(None) is not None:
                part = name.removeprefix(_PREFIX).replace("_", " ")
                yield Override(part, agent.name or "agent", variable, variable.get())


overrides.find_with(_found)


def _made(part: str, name: str | None, value: Any) -> Iterator[Override]:
    for each in _agents:
        agent = each()
        if agent is not None and name in (None, agent.name):
            with agent.override(**{part: value}):
                variable: ContextVar[Any] = getattr(agent, f"{_PREFIX}{part}")
                yield Override(part, agent.name or "agent", variable, variable.get())


def _named() -> Iterator[str]:
    for each in _agents:
        agent = each()
        if agent is not None and agent.name:
            yield agent.name


overrides.make_with(_made, _named)


def model_in_place(agent: AbstractAgent[Any, Any] | None) -> Model | str | None:
    """Return the model that overrides all others of this agent here."""
    variable = getattr(agent, f"{_PREFIX}model", None)
    some = variable.get(None) if isinstance(variable, ContextVar) else None
    found: Model | str | None = None if some is None else some.value
    return found


class Instances:
    """Model instances that agent code has given, by the name under which a request finds them."""

    def __init__(self) -> None:
        self._by_name: weakref.WeakValueDictionary[str, Model] = weakref.WeakValueDictionary()

    def name(self, model: Model) -> str:
        name = f"holdfast:{id(model)}"
        self._by_name[name] = model
        return name

    def named(self, model: Model) -> str | None:
        """The name of an instance that has one."""
        name = f"holdfast:{id(model)}"
        return name if self._by_name.get(name) is model else None

    def get(self, name: str) -> Model | None:
        return self._by_name.get(name)
