"""Type hints of functions: resolving them, and the mark `Local[T]`."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin

from holdfast.errors import BadArguments
from holdfast.values.text import annotation_name

if sys.version_info >= (3, 14):
    import annotationlib

T = TypeVar("T")


class _Mark:
    def __repr__(self) -> str:
        return "Local"


_LOCAL: Final = _Mark()
Local = Annotated[T, _LOCAL]
"""Marks a step's parameter that cannot be stored, such as a client: `client: Local[httpx.AsyncClient]`. It is passed as it is."""


def is_local(hint: Any) -> bool:
    """Is this `Local[T]` or `Local[T] | None`?"""
    if get_origin(hint) is Annotated:
        return any(mark is _LOCAL for mark in hint.__metadata__)
    return type(None) in get_args(hint) and any(is_local(member) for member in get_args(hint))


def local_name(hint: Any) -> str:
    """`Local[httpx.AsyncClient]`, as it was written."""
    inner = next((get_args(each)[0] for each in (hint, *get_args(hint)) if get_origin(each) is Annotated), Any)
    return f"Local[{annotation_name(inner)}]"


def is_unpacked(hint: Any) -> bool:
    """Is this `*args: *Ts` or `**kwargs: Unpack[Options]`, which says nothing of a single value?"""
    return get_origin(hint) is typing.Unpack


def base_of(annotation: Any) -> Any:
    """`str` of `Annotated[str, ...]`, `str | None` and `NewType("Name", str)`; other unions stay what they are."""
    while True:
        rest = [member for member in get_args(annotation) if member is not type(None)]
        if isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif get_origin(annotation) is Annotated or (len(rest) == 1 and type(None) in get_args(annotation)):
            annotation = rest[0]
        else:
            return annotation


def resolved(fn: Callable[..., Any], what: str) -> dict[str, Any]:
    """The type hints of a function, by parameter name and "return". `BadArguments` names what cannot be resolved."""
    target: Any = fn
    while isinstance(target, functools.partial):
        target = target.func
    target = inspect.unwrap(target)
    if not inspect.isroutine(target):
        target = type(target).__call__  # a callable object
    target = getattr(target, "__func__", target)
    captured = _captured(target)
    try:
        return typing.get_type_hints(target, localns=captured or None, include_extras=True)
    except Exception:  # noqa: BLE001 - evaluating an annotation can raise anything
        return {name: _one(target, captured, name, raw, what) for name, raw in _annotations(target).items()}


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function, whether or not its annotations can be resolved."""
    if sys.version_info >= (3, 14):  # where annotations are evaluated when asked for
        return inspect.signature(fn, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(fn)


def _annotations(target: Any) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        return annotationlib.get_annotations(target, format=annotationlib.Format.STRING)
    return dict(target.__annotations__)


def _captured(target: Any) -> dict[str, Any]:
    """Names that a nested function has captured are in no module, but they are at hand."""
    found: dict[str, Any] = {}
    for name, cell in zip(target.__code__.co_freevars, target.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            found[name] = cell.cell_contents
    return found


def _one(target: Any, captured: dict[str, Any], name: str, raw: Any, what: str) -> Any:
    def alone() -> None: ...

    alone.__annotations__ = {name: raw}
    try:
        return typing.get_type_hints(alone, target.__globals__, captured or None, include_extras=True)[name]
    except Exception as error:
        if isinstance(raw, str) and re.match(r"(\w+\.)*Local\[", raw):
            return Annotated[Any, _LOCAL]  # imported for type checkers only: nothing else of it is needed
        whose = "its result" if name == "return" else f"its parameter {name!r}"
        raise BadArguments(
            f"{what}: the annotation {raw!r} of {whose} cannot be resolved ({type(error).__name__}: {error}); "
            "import or define it at the top of the module, not only under TYPE_CHECKING or inside a function"
        ) from error
