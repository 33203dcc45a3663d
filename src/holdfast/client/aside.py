"""Work on large values, done aside: in a thread of its own, so that the loop goes on and others are served meanwhile.

One thread for all of them: however many large values come at once, one at a time is worked on, and the loop has its turn
every few milliseconds.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

_LARGE: Final = 5_000  # parts: a few milliseconds of work
_TEXT: Final = 200  # so many characters count as one more
P = ParamSpec("P")
T = TypeVar("T")


def is_large(*values: Any, most: int = _LARGE) -> bool:
    """Do these values have more than so many parts? Only so many are looked at."""
    ahead, seen = list(values), 0
    while ahead:
        value = ahead.pop()
        if isinstance(value, str | bytes | bytearray):
            seen += len(value) // _TEXT
        parts: Any = ()
        if isinstance(value, dict):
            parts = (*value.keys(), *value.values()) if len(value) <= most else value
        elif isinstance(value, list | tuple | set | frozenset):
            parts = value
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            parts = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
        seen += len(parts)
        if seen > most:
            return True
        ahead += parts
    return False


async def aside(about: Any, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Do this work at once if what it is about is small, else in the thread for it."""
    if not is_large(about):
        return work(*args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_thread(), functools.partial(work, *args, **kwargs))


@functools.cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "holdfast-aside")
