"""Deltas: a state, told by what changed in it since it was stored before. Pure: texts in, texts out.

Look here for what stands in a checkpoint that names others (`chain`). The first of a chain has the state itself, as the codec wrote
it; each one after it has the change from the one before. A change is a list, whose first element says what it does:

    ["=", value]                              another value
    ["{", {name: change}, [name, ..]]         a dict: of these names; and these are gone. New names come last, in order
    ["[", at, [change, ..]]                   a list: of the elements from this one on
    ["+", from, until, [value, ..]]           a list: the first elements of it, new ones, and its last elements, from `until` on

A dict keeps the order of its names, because code may depend on it: one whose order changed is another value. Values are compared
by their text, because to Python 1, 1.0 and True are equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from holdfast.errors import NotStorable

LEAST: Final = 2_000  # characters of a state that is worth it
_LONGEST: Final = 64  # changes in a chain
_DEPTH: Final = 50

_encode: Final = json.JSONEncoder(ensure_ascii=True, check_circular=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Chain:
    """A state, put together, and what it is made of in the store.

    A chain ends when its changes together are as long as the state, or after so many: what is stored then grows with what changes,
    and what must be read with the state.
    """

    text: str
    events: list[int]  # the one that has the state whole, then the ones that have changes
    size: int  # of these changes

    def told(self, text: str) -> str | None:
        """Tell the next state by what changed; None if it is better stored whole."""
        return delta(self.text, text) if self.size < len(self.text) and len(self.events) <= _LONGEST else None


def delta(old: str, new: str) -> str | None:
    """Tell a state by what changed in it; None if that is not much shorter than the state.

    Example:
        ```python
        old = json.dumps({"total": 1, "lines": ["a line of some order"] * 100})
        new = json.dumps({"total": 2, "lines": ["a line of some order"] * 101})
        assert len(delta(old, new)) < 100
        assert json.loads(whole([old, delta(old, new)])) == json.loads(new)
        ```
    """
    if len(new) < LEAST:
        return None
    made = _encode(_change(json.loads(old), json.loads(new), 0))
    return made if 2 * len(made) < len(new) else None


def whole(texts: Iterable[str]) -> str:
    """Put a state together: its text when it was stored whole, then each delta since. `NotStorable` if they do not fit."""
    first, *deltas = texts
    if not deltas:
        return first
    tree = json.loads(first)
    for each in deltas:
        try:
            tree = _changed(tree, json.loads(each))
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise NotStorable(
                f"a stored state cannot be put together from what changed in it: {type(error).__name__}: {error}"
            ) from None
    return _encode(tree)


def ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Write numbers that count up as ranges: the first and the last of each unbroken row.

    Example:
        ```python
        assert ranges([3, 4, 5, 9]) == [[3, 5], [9, 9]]
        ```
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and _encode(one) == _encode(other)


def _change(old: Any, new: Any, depth: int) -> list[Any]:
    if depth < _DEPTH and type(old) is dict and type(new) is dict:
        kept = [name for name in old if name in new]
        if kept == list(new)[: len(kept)]:
            changes = {
                name: _change(old[name], value, depth + 1) if name in old else ["=", value]
                for name, value in new.items()
                if name not in old or not _same(old[name], value)
            }
            return ["{", changes, [name for name in old if name not in new]]
    if depth < _DEPTH and type(old) is list and type(new) is list:
        return _change_of_list(old, new, depth)
    return ["=", new]


def _change_of_list(old: list[Any], new: list[Any], depth: int) -> list[Any]:
    least, first, last = min(len(old), len(new)), 0, 0
    while first < least and _same(old[first], new[first]):
        first += 1
    while last < least - first and _same(old[-1 - last], new[-1 - last]):
        last += 1
    if len(old) == len(new):
        until = len(old) - last
        return ["[", first, [_change(old[at], new[at], depth + 1) for at in range(first, until)]]
    return ["+", first, len(old) - last, new[first : len(new) - last]]


def _changed(old: Any, change: Any) -> Any:
    match change:
        case ["=", value]:
            return value
        case ["{", dict(changes), list(gone)]:
            left = {name: value for name, value in old.items() if name not in gone}
            return left | {name: _changed(left.get(name), each) for name, each in changes.items()}
        case ["[", int(at), list(changes)] if 0 <= at <= at + len(changes) <= len(old):
            return [*old[:at], *map(_changed, old[at:], changes), *old[at + len(changes) :]]
        case ["+", int(first), int(until), list(values)] if 0 <= first <= until <= len(old):
            return [*old[:first], *values, *old[until:]]
        case _:
            raise ValueError("no such change")
