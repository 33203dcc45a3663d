"""Annotations of plain Python that need no library: a check that a value is exactly of the annotated type.

`list[str]`, `dict[str, int | None]`, `tuple[float, ...]`: a value that fits such an annotation to the letter is stored
as any plain value is, and comes back the same. So the common case is quick, and a program that stores nothing but plain
data never imports pydantic. The check is one-sided: what it does not know is left to pydantic.
"""

from __future__ import annotations

import inspect
import typing
from collections import abc
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin
from uuid import UUID

Check = Callable[[Any], bool]
_CheckAll = Callable[[Iterable[Any]], bool]

# As type checkers have it, an int is a fine float and a bool a fine int; being plain, each is stored as what it is.
_SELF = (str, bool, bytes, bytearray, datetime, date, time, timedelta, Decimal, UUID)
_KINDS: dict[Any, frozenset[type]] = {
    **{kind: frozenset({kind}) for kind in _SELF},
    int: frozenset({int, bool}),
    float: frozenset({float, int}),
    complex: frozenset({complex, float, int}),
    None: frozenset({type(None)}),
    type(None): frozenset({type(None)}),
    typing.LiteralString: frozenset({str}),
}
_ROWS: dict[Any, tuple[type, ...]] = {
    list: (list,),
    set: (set,),
    frozenset: (frozenset,),
    abc.Sequence: (list, tuple),
    abc.Set: (set, frozenset),
    abc.Iterable: (list, tuple, set, frozenset),
    abc.Collection: (list, tuple, set, frozenset),
}
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)


def is_untyped(annotation: Any) -> bool:
    """Does the annotation say nothing about the value?"""
    if annotation in (Any, object, inspect.Parameter.empty, typing.Never, typing.NoReturn):
        return True
    return isinstance(annotation, TypeVar) and annotation.__bound__ is None and not annotation.__constraints__


def exact_check(annotation: Any) -> Check | None:
    """The check for an annotation, or None where only pydantic knows."""
    try:
        return _check(annotation)
    except RecursionError:  # a TypedDict that holds itself
        return None


def _check(annotation: Any) -> Check | None:
    while isinstance(annotation, typing.NewType):
        annotation = annotation.__supertype__
    if is_untyped(annotation):
        return lambda _: True
    kinds = _kinds(annotation)
    if kinds is not None:
        return lambda value: type(value) in kinds
    origin, args = get_origin(annotation) or annotation, get_args(annotation)
    if origin is Union or origin is UnionType:
        return _any_of([_check(member) for member in args])
    if origin is Literal:
        options = [(type(option), option) for option in args]
        return (lambda value: (type(value), value) in options) if all(kind in _KINDS for kind, _ in options) else None
    if origin in _ROWS:
        members = _all(args[0] if args else Any)
        rows = _ROWS[origin]
        return members and (lambda value: type(value) in rows and members(value))
    if origin in _MAPPINGS:
        key, item = args or (Any, Any)
        keys, items = _all(key), _all(item)
        if keys and items:
            return lambda value: type(value) is dict and keys(value) and items(value.values())
    if origin is tuple:
        return _tuple(args if args or annotation == tuple[()] else (Any, ...))
    return _typed_dict(annotation) if typing.is_typeddict(annotation) else None


def _kinds(annotation: Any) -> frozenset[type] | None:
    try:
        return _KINDS.get(annotation)
    except TypeError:  # an annotation that cannot be hashed, such as Annotated[int, []]
        return None


def _any_of(checks: list[Check | None]) -> Check | None:
    known = [check for check in checks if check is not None]
    return (lambda value: any(check(value) for check in known)) if len(known) == len(checks) else None


def _all(annotation: Any) -> _CheckAll | None:
    """A check of all members at once; for the simplest annotations it runs at the speed of C."""
    if is_untyped(annotation):
        return lambda _: True
    kinds = _kinds(annotation)
    if kinds is not None:
        return lambda values: kinds.issuperset(map(type, values))
    check = _check(annotation)
    return check and (lambda values: all(map(check, values)))


def _tuple(args: tuple[Any, ...]) -> Check | None:
    if len(args) == 2 and args[1] is ...:
        members = _all(args[0])
        return members and (lambda value: type(value) is tuple and members(value))
    checks = [_check(arg) for arg in args]
    known = [check for check in checks if check is not None]
    if len(known) != len(args):
        return None
    return lambda value: (
        type(value) is tuple
        and len(value) == len(known)
        and all(check(member) for check, member in zip(known, value, strict=True))
    )


def _typed_dict(annotation: Any) -> Check | None:
    """Check a `typing.TypedDict`, as which most states are written, and which pydantic refuses before Python 3.12."""
    try:
        hints = typing.get_type_hints(annotation)  # without include_extras: Required and NotRequired are taken off
    except (NameError, TypeError):
        return None
    checks = {name: _check(hint) for name, hint in hints.items()}
    if None in checks.values():
        return None
    fields: dict[Any, Any] = checks
    required = annotation.__required_keys__
    return lambda value: (
        type(value) is dict
        and required <= value.keys() <= fields.keys()
        and all(fields[name](member) for name, member in value.items())
    )
