"""Requests to models as the history keeps them: each message is written once, although every request has all of them.

Look here when a durable call takes longer the longer its conversation is.

Any code that has a message may change it. So what was written of one counts only for as long as it holds the very same
objects, all the way down: texts, numbers and times cannot change, and everything else in a message is looked into again
before each request, which takes a tenth of the time that writing it takes. A message that holds what cannot be looked
into, such as a model of the user's, is written for each request.
"""

from __future__ import annotations

import functools
from dataclasses import is_dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from pydantic_ai.durable_exec import ModelRequestParams
from pydantic_ai.messages import ModelMessage

from holdfast.integrations.pydantic_ai import records
from holdfast.values.codec import UNTYPED
from holdfast.values.parts import Element, Growing

_FIXED: Final = frozenset({str, int, float, bool, bytes, type(None), datetime, Decimal})
_PLAIN: Final = frozenset({dict, list, tuple})


class Written:
    """The messages of the last request in one run of an agent, as they were written."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[_Held, Element]] = {}  # by the id of the message

    def request(self, params: ModelRequestParams) -> Growing:
        """Say what a model is asked: messages and tools. Which one was asked, and how, is in the record of its answer."""
        tools = records.tools_of(params)
        more = UNTYPED.text({"tools": tools}, "inputs") if tools else "{}"
        before, self._known = self._known, {}
        return Growing("messages", [self._element(message, before) for message in params.messages], more)

    def _element(self, message: ModelMessage, before: dict[int, tuple[_Held, Element]]) -> Element:
        held, element = before.get(id(message), (None, None))
        if held is not None and element is not None and held.is_same():
            element.was_told()
        else:
            element, held = Element(functools.partial(_text, message)), _Held(message)
        self._known[id(message)] = held, element
        return element


class _Held:
    """All that a message holds, and what is in that, at one moment."""

    __slots__ = ("_holders", "_is_known")

    def __init__(self, message: ModelMessage) -> None:
        # Objects, dicts and lists, with what is in each. To hold them keeps their ids from being used again.
        self._holders: list[tuple[Any, type, list[tuple[Any, Any]]]] = []
        self._is_known = True  # can all of it be looked into?
        waiting, seen = list[Any]([message]), set[int]()
        while waiting and self._is_known:
            value = waiting.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            inner = _inside(value)
            if inner is None:
                self._is_known = False
            else:
                self._holders.append((value, type(value), inner))
                waiting += [each for _, each in inner if type(each) not in _FIXED]

    def is_same(self) -> bool:
        """Does it hold the very same now? Equal is not enough: True is equal to 1, and is written otherwise."""
        if not self._is_known:
            return False
        for value, kind, inner in self._holders:
            if type(value) is not kind:
                return False
            found: Any = value if kind in _PLAIN else vars(value)
            if len(found) != len(inner) or (kind is dict and list(found) != [name for name, _ in inner]):
                return False  # the fields of an object are written in their own order, those of a dict in its order
            try:
                for name, before in inner:
                    if found[name] is not before:
                        return False
            except KeyError:
                return False
        return True


def _inside(value: Any) -> list[tuple[Any, Any]] | None:
    """List what is in a value, each with its name; None if nobody can look into it."""
    kind: type = type(value)
    if kind is list or kind is tuple:
        return list(enumerate(value))
    if kind is dict:
        return list(value.items()) if all(type(name) is str for name in value) else None
    return list(vars(value).items()) if _is_of_messages(kind) else None


def _text(message: ModelMessage) -> str:
    """Write a message, as deep as it stands in the input."""
    return UNTYPED.text([[records.message(message)]], "inputs")[2:-2]


@functools.cache
def _is_of_messages(kind: type) -> bool:
    """Is this a type of the framework's, whose instances are what their fields are?"""
    slots = any(vars(base).get("__slots__") for base in kind.__mro__)  # which `vars` does not show
    return is_dataclass(kind) and kind.__module__.startswith("pydantic_ai.") and not slots
