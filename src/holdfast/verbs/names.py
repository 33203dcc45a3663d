"""Names in code: the agents, steps and other objects that a function can be seen to use.

Look here when an agent or a step is not found that some code uses. Globals are followed, closures, and what modules and plain
containers hold, through plain functions and other agents. What code gets in another way, such as an attribute of an object, is not
seen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from holdfast.declare import Agent

_MOST_FUNCTIONS: Final = 1_000
_MOST_VALUES: Final = 100


def reached(fn: Any) -> Iterator[Any]:
    """Yield everything that a function names, and what the agents and plain functions among it name."""
    seen: set[int] = set()
    waiting: list[Any] = [fn]
    while waiting and len(seen) < _MOST_FUNCTIONS:
        function = waiting.pop()
        if id(function) in seen or not isinstance(function, FunctionType) or _names_nobody(function):
            continue
        seen.add(id(function))
        for value in _used(function):
            yield value
            if isinstance(value, Agent):
                waiting.append(value.fn)
            elif isinstance(value, FunctionType):
                waiting.append(value)


def _names_nobody(function: FunctionType) -> bool:
    """Is it a function of the standard library, or one of ours that was given nothing of a user's?"""
    module = (function.__module__ or "").partition(".")[0]
    return module in sys.stdlib_module_names or (module == "holdfast" and not function.__closure__)


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
