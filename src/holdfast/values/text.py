"""Names of types, places and values in messages and previews: short, in one line, without running user code."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

ATOMS: Final = frozenset(
    {str, int, bool, float, type(None), bytes, complex, datetime, date, time, timedelta, Decimal, UUID}
)  # immutable and without parts: a copy of one is the value itself

MOST: Final = 2**53  # of anything that is counted
_NAME_LIMIT: Final = 100
_NAMES_LIMIT: Final = 1000


def type_name(kind: type) -> str:
    """`sqlite3.Connection`, `list`, `Ticket` (of the main module)."""
    if kind is type(None):
        return "None"
    bare = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if bare else f"{kind.__module__}.{kind.__qualname__}"


def annotation_name(annotation: Any) -> str:
    """An annotation as it is written in code: `list[str]`, `int | None`, `research.Ticket`."""
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return type_name(annotation)
    return cut(re.sub(r"\b(typing|collections\.abc|__main__)\.", "", str(annotation)), 120)


def segment(key: object) -> str:
    """One piece of a path: `.items`, `[3]`, `['odd key']`."""
    if type(key) is str and key.isidentifier():
        return f".{cut(key, 60)}"
    return f"[{short(key)}]"


def spell(where: str, path: Iterable[str]) -> str:
    """The path to a value, outermost first; a very long one loses its middle."""
    pieces = list(path)
    if len(pieces) > 12:
        pieces = [*pieces[:6], "…", *pieces[-4:]]
    return (where + "".join(pieces)).removeprefix(".")


def cut(text: str, limit: int) -> str:
    """The text, or its beginning and a sign that more was there."""
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def short(value: object) -> str:
    """A few characters that tell which value this is; only the type for anything that has code of its own."""
    return cut(show(value, 60), 60) if type(value) in ATOMS else type_name(type(value))


def show(value: Any, room: int) -> str:
    """A value of the plain kinds as people write it; parts that find no room are not even looked at."""
    kind = type(value)
    if kind is str or kind is bytes or kind is bytearray:
        return repr(value[: room + 1])
    if kind is int:
        return str(value) if value.bit_length() < 1000 else hex(value)  # Python refuses to print very long decimals
    if kind is dict:
        return "{" + _join((f"{show(key, room)}: {show(item, room)}" for key, item in value.items()), room) + "}"
    if kind is list:
        return "[" + _join((show(item, room) for item in value), room) + "]"
    if kind is tuple:
        return "(" + _join((show(item, room) for item in value), room) + (",)" if len(value) == 1 else ")")
    if kind is set or kind is frozenset:
        return "{" + _join(sorted(show(item, room) for item in value), room) + "}" if value else f"{kind.__name__}()"
    return str(value) if kind in ATOMS else type_name(kind)


def key_text(key: Any) -> str:
    """A key as text: itself, or as people write it."""
    return key if type(key) is str else str(key) if type(key) in ATOMS and type(key) is not int else show(key, 200)


def near(name: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """The name that was meant, perhaps. What is compared is bounded: the time grows with all of its characters."""
    if len(name) > _NAME_LIMIT:
        return None
    some = itertools.islice((each for each in known if len(each) <= _NAME_LIMIT), _NAMES_LIMIT)
    return next(iter(difflib.get_close_matches(name, list(some), 1, least)), None)


def _join(parts: Iterable[str], room: int) -> str:
    out: list[str] = []
    for part in parts:
        out.append(part)
        room -= len(part) + 2
        if room < 0:
            break
    return ", ".join(out)


def is_whole(value: object, least: int, most: int = MOST) -> bool:
    """Is this a whole number in these bounds? Anything that is a number of ours is: databases keep it, floats hold it."""
    return type(value) is int and least <= value <= most


def size(count: int) -> str:
    """A number of bytes for people: `16 MiB`, `1.5 KiB`, `12 bytes`."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}".replace(".0 ", " ")
    return f"{count} bytes"
