"""`fold`: a reducer's function over events, each folded twice, to find what is not pure.

The first time it is watched which functions of Python it calls that know the time or chance, however deep and through whatever
object. The second time it has another clock and other random numbers, and must come to the same. What is called by a function that
is itself written in C is not seen by the watch, but by the comparison, if the outcome tells the difference.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from holdfast.errors import BadArguments
from holdfast.runtime import NO_DEFAULT
from holdfast.values.codec import shape_of
from holdfast.values.failures import is_users
from holdfast.values.text import short
from holdfast.verbs.reducers import Command, Outcome, Reducer

S = TypeVar("S")
_CLOCKS: Final = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
_OTHERS: Final = (
    "process_time",
    "process_time_ns",
    "thread_time",
    "thread_time_ns",
    "clock_gettime",
    "clock_gettime_ns",
)
_KNOW: Final = {"time": {*_CLOCKS, *_OTHERS}, "posix": {"urandom", "getrandom"}, "nt": {"urandom"}}
_CHANCE: Final = random.random.__self__  # type: ignore[attr-defined] # of the functions of the module
_LATER: Final = 86_400 * 400
_SEED: Final = 20_261_116
_OWN: Final = object()


class Folded(NamedTuple, Generic[S]):
    """The end of `holdfast.testing.fold`.

    Attributes:
        state: The last state.
        commands: All commands, in order.

    Example:
        ```python
        state, commands = holdfast.testing.fold(revenue, [Ordered(5)])
        ```
    """

    state: S
    commands: list[Command]


def fold(reducer: Reducer[S, Any], events: Iterable[Any], *, state: Any = _OWN) -> Folded[S]:
    """Fold events with a reducer's function, without a run, each one twice: the second time with another clock and seed.

    The first time it is watched for a call that reads a clock or draws a random number.

    Args:
        reducer: The reducer.
        events: Its events, outcomes of commands too.
        state: The state to begin with; `State()` unless given.

    Raises:
        AssertionError: The function is not pure: it reads a clock or draws a random number, came to something else the second time,
            or changed the state or the event that it was given.
        BadArguments: It is no reducer, or needs a state to begin with.

    Example:
        ```python
        state, commands = holdfast.testing.fold(revenue, [Ordered(5), Ordered(7)])
        assert state == 12
        ```
    """
    if not isinstance(reducer, Reducer):
        raise BadArguments(f"fold takes a reducer (a function with @holdfast.reducer), not {short(reducer)}")
    folding = reducer.spec.folding
    assert folding is not None
    shape, commands = folding.state, list[Command]()
    state = folding.first if state is _OWN else state
    if state is NO_DEFAULT:
        raise BadArguments(f"fold({reducer.name}, ..., state=...): say with which {shape.name} it begins")
    for nth, event in enumerate(events):
        where, text, told = f"event {nth}, {short(event)}", shape.text(state, "state"), _text(event)
        given = shape.load(text)
        with _watched(where):
            made = folding.fn(given, event)
        state, asked = _parts(made)
        if shape.text(given, "state") != text or _text(event) != told:
            raise AssertionError(
                f"{where}: the function changed what it was given; return a new state (dataclasses.replace)"
            )
        with _elsewhere():
            other, others = _parts(folding.fn(shape.load(text), event))
        for what, one, two in (("state", state, other), ("commands", asked, others)):
            if one != two:
                raise AssertionError(
                    f"{where}: not pure, the {what} came out as {short(one)}, then as {short(two)}. Look for a clock, chance, or "
                    "the order of a set; give it the time or a number in an event, and sort sets"
                )
        commands += asked
    return Folded(state, commands)


def _parts(made: Any) -> tuple[Any, list[Command]]:
    state, commands = made if type(made) is tuple and len(made) == 2 else (made, [])
    return state, list(commands)


def _text(event: Any) -> str:
    return repr(event) if isinstance(event, Outcome) else shape_of(type(event)).text(event, "event")


@contextlib.contextmanager
def _watched(where: str) -> Iterator[None]:
    """Raise `AssertionError` at the end if a clock was read meanwhile, or chance asked. Logging may: nothing comes of it."""
    found: list[str] = []

    def watch(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and not found and (used := _impure(function)) and not _logs(frame):
            found.append(f"{used}() is called{_place(frame)}")

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(before)
    if found:
        raise AssertionError(f"{where}: not pure, {found[0]}; give it the time or a number in an event")


def _impure(function: Any) -> str:
    """Name a function of Python that knows the time or chance; empty if it is another one."""
    name, owner = getattr(function, "__name__", ""), getattr(function, "__self__", None)
    if isinstance(owner, ModuleType) and name in _KNOW.get(owner.__name__, ()):
        return f"{owner.__name__.replace('posix', 'os')}.{name}"
    if isinstance(owner, type) and issubclass(owner, date) and name in ("now", "utcnow", "today"):
        return f"{owner.__name__}.{name}"
    return f"random.{name}" if owner is _CHANCE and name in ("random", "getrandbits") else ""


def _logs(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == "logging":
            return True
        frame = frame.f_back
    return False


def _place(frame: FrameType | None) -> str:
    """Say on which line of the user's."""
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return f" at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    """Another day, and other random numbers."""
    clocks = {name: getattr(time, name) for name in _CLOCKS}
    chance = random.getstate()

    def later(name: str) -> Any:
        more = _LATER * 10**9 if name.endswith("_ns") else _LATER
        return lambda: clocks[name]() + more

    for name in _CLOCKS:
        setattr(time, name, later(name))
    random.seed(_SEED)
    try:
        yield
    finally:
        random.setstate(chance)
        for name, clock in clocks.items():
            setattr(time, name, clock)
