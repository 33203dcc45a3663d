"""`restore` and `checkpoint`: snapshots. A resumed run starts from the last one and replays only later events."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, get_type_hints, overload

from holdfast.runtime import Called, Checkpoint, Restore, current
from holdfast.values.codec import UNTYPED, Shape, shape_of

T = TypeVar("T")
_PLAIN = (dict, list, tuple, set, frozenset, str, int, float, bool, bytes, type(None))


@overload
def restore(
    first: Callable[[], Coroutine[Any, Any, T]], /, *, migrate: Callable[[Any], T | Any] | None = None
) -> Called[T]: ...
@overload
def restore(first: T, /, *, migrate: Callable[[Any], T | Any] | None = None) -> Called[T]: ...
def restore(first: Any, /, *, migrate: Callable[[Any], Any] | None = None) -> Any:
    """Return the state of the last checkpoint; before there is one, `first` itself or what that async function builds, once.

    Args:
        first: The state to begin with, or an async function that builds it.
        migrate: Called with the plain data of a state that no longer fits its type. It returns plain data, or a state, that
            does.

    Raises:
        NotStorable: The state cannot be stored.

    Example:
        ```python
        state = await holdfast.restore({"page": 0})
        ```
    """
    runtime = current("restore")
    if inspect.iscoroutinefunction(first):
        hints = get_type_hints(getattr(first, "fn", first), include_extras=True)
        shape = shape_of(hints["return"]) if "return" in hints else UNTYPED
        return runtime.call(Restore(None, shape, first, migrate))
    return runtime.call(Restore(first, _shape_of_value(first), None, migrate))


def checkpoint(state: T, /) -> Called[T]:
    """Store the state and start a new segment of the journal; returns the stored copy.

    It can be taken only in the agent's main task, with nothing open.

    Raises:
        HoldfastError: Something is open: a task, a conversation, a stream. The text names it.
        NotStorable: The state cannot be stored.

    Example:
        ```python
        state = await holdfast.restore({"page": 0})
        state["page"] += 1
        state = await holdfast.checkpoint(state)
        ```
    """
    return current("checkpoint").call(Checkpoint(state))


def _shape_of_value(value: object) -> Shape:
    return UNTYPED if type(value) in _PLAIN else shape_of(type(value))
