"""Sameness: is a value that was stored and read back the value it was?

`==` does not answer that: `True == 1 == 1.0`, a nan is not equal to itself, `Sub() == Base()` if a class says so, and
many objects are equal only to themselves. So values are compared part by part, and types must be the same. One
difference is allowed because Python's own typing allows it: an int where a float is annotated (or either where a
complex is) may come back as the wider kind, if it is the same number.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Collection, Iterator
from datetime import datetime, time, timezone
from decimal import Decimal
from itertools import zip_longest
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from holdfast.values.text import ATOMS, cut, segment, short, type_name

_NOTHING = object()
_Part = tuple[str, Any, Any]
Added = Callable[[dict[Any, Any], Any], bool]  # is this key of plain data a field that its type may have got since?


class Difference(NamedTuple):
    """A place where two values differ, and what stood there before and after: type names if `kinds`, or the values."""

    path: tuple[str, ...]
    before: str
    after: str
    kinds: bool


def difference(before: Any, after: Any, path: tuple[str, ...] = (), *, zones: bool = True) -> Difference | None:
    """The first difference, or None.

    Objects that only equal themselves count as the same if they are of one type; the caller compares their texts too.
    Without `zones`, time zones of one offset are the same.
    """
    if before is after:
        return None
    kind = type(before)
    if kind is not type(after):
        if kind in (int, float) and type(after) in (float, complex) and before == after:
            return None
        kinds = _NOTHING is not before and _NOTHING is not after
        return Difference(path, _spoken(before, kinds), _spoken(after, kinds), kinds)
    if kind in ATOMS:
        return None if _same_atom(before, after, zones) else _differ(path, before, after)
    parts = _parts(before, after)
    if parts is None:
        return None if _equal(before, after) else _differ(path, before, after)
    for name, one, other in parts:
        found = difference(one, other, (*path, name), zones=zones)
        if found:
            return found
    return None


def lost(before: Any, after: Any, added: Added, path: tuple[str, ...] = ()) -> Difference | None:
    """The first part of plain data that is not in other plain data as it was, or that only the other has.

    Unless that was `added` to its type since.
    """
    if type(before) is dict and type(after) is dict:
        own = twins(before, after)
        pairs = [(segment(key), item, after[own[key]] if key in own else _NOTHING) for key, item in before.items()]
        known = set(own.values())
        more = (key for key in after if key not in known and not added(after, key))
        pairs += [(segment(key), _NOTHING, after[key]) for key in more]
    elif type(before) is type(after) and type(before) in (list, tuple) and len(before) == len(after):
        pairs = [(f"[{at}]", one, other) for at, (one, other) in enumerate(zip(before, after, strict=True))]
    else:
        return difference(before, after, path)
    found = (lost(one, other, added, (*path, name)) for name, one, other in pairs)
    return next(filter(None, found), None)


def _spoken(value: Any, kind_only: bool) -> str:
    if value is _NOTHING:
        return "nothing"
    return type_name(type(value)) if kind_only else short(value)


def _differ(path: tuple[str, ...], before: Any, after: Any) -> Difference:
    one, other = _spoken(before, False), _spoken(after, False)
    if one == other:  # zones of one offset, for example
        one, other = cut(repr(before), 200), cut(repr(after), 200)
    return Difference(path, one, other, False)


def _same_atom(before: Any, after: Any, zones: bool) -> bool:
    if isinstance(before, float | complex | Decimal):
        return repr(before) == repr(after)  # tells -0.0 from 0.0 and 1.0 from 1.00, and takes nan for nan
    if isinstance(before, datetime | time):
        # One moment in another zone is equal to Python, but not the same to code that shows or formats it.
        wall = before.replace(tzinfo=None) == after.replace(tzinfo=None) and before.fold == after.fold
        same = wall and before.utcoffset() == after.utcoffset()
        return bool(same and not (zones and _zone(before) != _zone(after)))
    return bool(before == after)


def _zone(value: datetime | time) -> Any:
    """The mark that tells a zone from others of the same offset now: it may differ on another day, or in its name."""
    zone = value.tzinfo
    if type(zone) is ZoneInfo:
        return zone.key or id(zone)
    if type(zone) is timezone and zone.tzname(None) != timezone(zone.utcoffset(None)).tzname(None):
        return zone.tzname(None)
    return None


def _equal(before: Any, after: Any) -> bool:
    kind: Any = type(before)
    if kind.__eq__ is object.__eq__:
        return True
    try:
        return bool(before == after)
    except Exception:  # noqa: BLE001 - the user's own __eq__: whatever it raises, it has not said "equal"
        return False


def _parts(before: Any, after: Any) -> Iterator[_Part] | None:
    """Pairs of parts of two values of one type; None for what has no parts to compare."""
    if isinstance(before, list | tuple | deque):
        return _row_parts(before, after)
    if isinstance(before, dict):
        return _mapping_parts(before, after)
    if isinstance(before, set | frozenset):
        return _set_parts(before, after)
    if dataclasses.is_dataclass(before):
        names = [field.name for field in dataclasses.fields(before)]
        return ((f".{name}", getattr(before, name, _NOTHING), getattr(after, name, _NOTHING)) for name in names)
    if hasattr(type(before), "__pydantic_private__"):
        return _model_parts(before, after)
    return None


def _row_parts(before: Any, after: Any) -> Iterator[_Part]:
    if isinstance(before, deque):
        yield ".maxlen", before.maxlen, after.maxlen
    for at, (one, other) in enumerate(zip_longest(before, after, fillvalue=_NOTHING)):
        yield f"[{at}]", one, other


def _mapping_parts(before: dict[Any, Any], after: dict[Any, Any]) -> Iterator[_Part]:
    if len(before) == len(after) and all(difference(*keys) is None for keys in zip(before, after, strict=True)):
        # In order, the usual case, and the only one in which a nan finds its fellow.
        for key, (one, other) in zip(before, zip(before.values(), after.values(), strict=True), strict=True):
            yield segment(key), one, other
        return
    own = twins(before, after)
    for key, value in before.items():
        if key in own:
            yield f"{segment(key)} (the key)", key, own[key]
        yield segment(key), value, after[own[key]] if key in own else _NOTHING
    known = set(own.values())
    for key in after:
        if key not in known:
            yield segment(key), _NOTHING, key


def _set_parts(before: Any, after: Any) -> Iterator[_Part]:
    own = twins(before, after)
    for member, other in own.items():
        yield segment(member), member, other
    known = set(own.values())
    alone = sorted((member for member in before if member not in own), key=_looks)
    rest = sorted((member for member in after if member not in known), key=_looks)
    for one, other in zip_longest(alone, rest, fillvalue=_NOTHING):
        yield segment(other if one is _NOTHING else one), one, other


def twins(members: Collection[Any], others: Collection[Any]) -> dict[Any, Any]:
    """Map each member of a set (or key of a dict) to the same one of another set, if it is there.

    A member that has a nan inside equals no other, so it is found by its looks.
    """
    own = {other: other for other in others}
    found = {member: own[member] for member in members if member in own}
    if len(found) < len(members) and len(found) < len(own):
        rest: dict[str, deque[Any]] = {}
        for other in own:
            if other not in members:
                rest.setdefault(_looks(other), deque()).append(other)
        for member in members:
            if member not in own and (same := rest.get(_looks(member))):
                found[member] = same.popleft()  # in order: keys that look the same have values that do not
    return found


def _looks(value: Any) -> str:
    """A text that is the same for members that differ by nothing but their nans: whatever the order of a set, or of its hashes."""
    if isinstance(value, set | frozenset):
        return "{" + ",".join(sorted(map(_looks, value))) + "}"
    if isinstance(value, tuple):
        return "(" + ",".join(map(_looks, value)) + ")"
    if type(value) is float:
        return repr(complex(value))
    if type(value) is int:  # which may come back as a wider kind
        wide = complex(value) if value.bit_length() < 1000 else None
        return repr(wide) if wide == value else hex(value)
    return repr(value)


def _model_parts(before: Any, after: Any) -> Iterator[_Part]:
    for name in type(before).model_fields:  # not all of __dict__: cached properties lie there too
        yield f".{name}", before.__dict__.get(name, _NOTHING), after.__dict__.get(name, _NOTHING)
    for aside in ("__pydantic_extra__", "__pydantic_private__"):
        one, other = getattr(before, aside, None) or {}, getattr(after, aside, None) or {}
        for name in {**one, **other}:
            yield f".{name}", one.get(name, _NOTHING), other.get(name, _NOTHING)
