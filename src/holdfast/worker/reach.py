"""Which agents an agent may call, as far as its code tells: whoever serves it serves them too.

A worker learns of a child's code when it runs the parent's call. After a restart it would learn of it too late: the
parent waits for the child, or has ended, and the child for a worker that knows its code. So the names in the agent's
code are followed: globals, closures, what modules and plain containers hold, through plain functions and other agents.
An agent that is found in no such way must be named in `agents=`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from holdfast.declare import Agent
from holdfast.runtime import AgentSpec

_MOST_FUNCTIONS = 1_000
_MOST_VALUES = 100


def called_by(spec: AgentSpec) -> list[AgentSpec]:
    """Every other agent that this one's code can be seen to use."""
    found: dict[str, AgentSpec] = {}
    seen: set[int] = set()
    waiting: list[Any] = [spec.fn]
    while waiting and len(seen) < _MOST_FUNCTIONS:
        function = waiting.pop()
        if id(function) in seen or not isinstance(function, FunctionType) or _is_standard(function):
            continue
        seen.add(id(function))
        for value in _used(function):
            if isinstance(value, Agent):
                found.setdefault(value.name, value.spec)
                waiting.append(value.fn)
            elif isinstance(value, FunctionType):
                waiting.append(value)
    return [other for other in found.values() if other is not spec]


def _is_standard(function: FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] in sys.stdlib_module_names


def _used(function: FunctionType) -> Iterator[Any]:
    names = set(_names(function.__code__))
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:
            continue  # not filled yet
    for value in values:
        yield value
        if isinstance(value, ModuleType):
            yield from [vars(value)[name] for name in names if name in vars(value)]
        elif isinstance(value, dict):
            yield from list(value.values())[:_MOST_VALUES]
        elif isinstance(value, list | tuple | set | frozenset):
            yield from list(value)[:_MOST_VALUES]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
