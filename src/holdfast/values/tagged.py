"""The one text in which values are stored: tagged JSON.

It is JSON in plain ASCII, so any tool reads it and a lone surrogate survives as its escape. What JSON has no word for
is an object with a single key that starts with "$":

    {"$tuple": [..]}   {"$set": [..]}   {"$frozenset": [..]}            sets lie sorted by the text of their members
    {"$map": [[key, value], ..]}                                        a dict whose keys are not all strings
    {"$int": "0x.."}   {"$float": "nan"}   {"$complex": [re, im]}       ints of more than 64 bits; nan, inf, -inf
    {"$bytes": base64}   {"$bytearray": base64}   {"$decimal": text}   {"$uuid": text}
    {"$datetime": iso}   {"$date": iso}   {"$time": iso}   {"$timedelta": [days, seconds, microseconds]}
    {"$datetime": {"at": iso, "zone": "Europe/Berlin", "fold": 1}}      also "name", for a named fixed offset
    {"$unset": [[name, ..], {..}]}                                      a model's fields, and which of them nobody set
    {"$default": [[name, ..], {..}]}                                    which are defaults that their type does not read
    {"$of": [name, {..}]}                                               which member of a union the fields (or names) are of
    {"$names": [[name, ..], {"$tuple": [..]}]}                          what the members of a named tuple are called

The last four are the dict or tuple itself to digests and to all readers except the ones that make a value of its type
again (`read_noting`).

Nothing can be mistaken for a tag: a dict of the user's whose only key starts with "$" is written as a "$map". Kinds are
told apart by their exact type and each has its own form, so reading gives back the value that was written, by
construction. Subclasses are refused: they would come back as their base. Reading builds these kinds and nothing else;
it imports nothing and calls no code of the user's.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from holdfast.errors import NotStorable
from holdfast.values.text import cut, segment, type_name

BLOB_BYTES: Final = 64 * 1024
DEPTH_LIMIT: Final = 200
_NOTED_DEPTH: Final = 50  # a note takes levels of its own, and what is deep must not become too deep by it
AROUND: Final = 2  # levels that we put around the values of a call: arguments by name, and the rest as a list
DEFAULT_LIMIT_BYTES: Final = 16 * 1024 * 1024
# Shared parts are written once for each place they are in: thirty lists that each hold the one before twice would be
# a text of gigabytes. So values are counted, and it is over within a second, long before a text is made.
COUNT_LIMIT: Final = 10_000_000
_CONTAINER_COUNT: Final = 16  # what a list or dict counts beside its members: it takes that much longer to write

quote: Final = encode_basestring_ascii  # a string as JSON text
_TOO_DEEP: Final = f"it is nested more than {DEPTH_LIMIT} levels deep"
_EXPONENT: Final = 999_999  # the largest exponent of Python's own contexts
_DECIMAL_LENGTH: Final = 100_000  # characters
# Of all large exponents in one value together. A type that also takes integers makes one of each decimal, with all its digits.
_EXPONENTS: Final = 1_000_000
_LARGE_EXPONENT: Final = 1_000
_DECIMALS: Final = re.compile(r'\{"\$decimal":"[^"]*E[+-](\d+)"\}')  # as they are written
_LARGE: Final = re.compile(r"[eE][-+_\d]{4,}")  # in a text: an exponent that may be large, as Python reads them
DECIMAL: Final = "a decimal with an exponent up to 999,999 and at most 100,000 characters"
_OF_ONE_HASH: Final = 100
_HEAVY: Final = "its decimals have more of large exponents together than is taken; store their texts"
_COLLIDE: Final = "more than a hundred members were made to have one hash"
_AS_IT_IS: Final = frozenset({str, bool, type(None)})


class Note(NamedTuple):
    """A note on the plain data of a model, dataclass or named tuple."""

    data: Any  # the data itself: while it is kept, its `id` is no other's
    unset: Sequence[str] = ()  # the fields that nobody set
    kind: str = ""  # the name of its type, where that is one of several that are alike
    default: Sequence[
        str
    ] = ()  # the fields at a default that is not of their own type: it reads them as something else
    names: Sequence[str] = ()  # what the members of a named tuple are called


Notes = dict[int, Note]  # by the `id` of the data
_NOTES: Final = {
    "$unset": "unset",
    "$default": "default",
    "$of": "kind",
    "$names": "names",
}  # the part of a note that each tag has
_NOTE_TAGS: Final = tuple(f'"{tag}"' for tag in _NOTES)


class Refused(Exception):
    """Private to encoding: why a value is refused. Each container it passes on its way up adds a piece of the path."""

    def __init__(self, reason: str, *, advise: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.advise = reason, advise
        self.path: list[str] = []  # innermost first


# --- writing ---


def _is_offset(zone: Any) -> bool:
    # What pydantic parses from text has a zone class of its own, which is a fixed offset and nothing more.
    kind = type(zone)
    return kind is timezone or (kind.__name__ == "TzInfo" and kind.__module__.startswith("pydantic_core."))


def _moment(value: datetime | time) -> Any:
    """ISO text, with zone key, zone name and fold beside it where ISO has no place for them."""
    zone: Any = value.tzinfo
    beside: dict[str, Any] = {}
    if type(zone) is ZoneInfo and zone.key:
        beside["zone"] = zone.key
        text = value.replace(tzinfo=None, fold=0).isoformat()
    elif zone is None or _is_offset(zone):
        text = value.replace(fold=0).isoformat()
        if type(zone) is timezone and zone.tzname(None) != timezone(zone.utcoffset(None)).tzname(None):
            beside["name"] = zone.tzname(None)
    else:
        raise Refused(
            f"its time zone is a {type_name(type(zone))}, which cannot be stored; "
            "use zoneinfo.ZoneInfo or datetime.timezone"
        )
    if value.fold:
        beside["fold"] = 1
    return {"at": text, **beside} if beside else text


def _number(value: float) -> Any:
    return value if math.isfinite(value) else {"$float": repr(value)}


def _decimal(value: Decimal) -> Any:
    text = str(value)
    if _is_beyond(value, text):
        raise Refused("is a decimal with an exponent or digits that Python's arithmetic does not have; store its text")
    return {"$decimal": text}


def _is_beyond(value: Decimal, text: str) -> bool:
    """Is this more than any computation gives? What makes an integer of it would never end."""
    return len(text) > _DECIMAL_LENGTH or (value.is_finite() and abs(value.adjusted()) > _EXPONENT)


def decimal_of(text: str) -> Decimal | None:
    """Read the text of a decimal; None for one that no arithmetic gives. `ArithmeticError` if it is none at all."""
    found = Decimal(text) if len(text) <= _DECIMAL_LENGTH else None
    return None if found is None or _is_beyond(found, text) else found


class Weights:
    """Weighs the decimals of one value, however they came into it."""

    def __init__(self) -> None:
        self._left = _EXPONENTS

    def take(self, value: Decimal) -> bool:
        """Tell whether this one may stand beside the others."""
        self._left -= _weight(str(value).partition("E")[2])
        return self._left >= 0


def check_decimals(plain: Any, made: Callable[[], Any], where: str) -> None:
    """Raise `NotStorable` if texts in plain data became decimals that are never written; `made` gives what came of them.

    Most data has no such text, and is then looked at once.
    """
    if not any(map(_is_large, _atoms(plain))):
        return
    weights = Weights()
    for value in _atoms(made()):
        if type(value) is Decimal and (_is_beyond(value, str(value)) or not weights.take(value)):
            raise NotStorable(
                f"{where}: found a decimal that no arithmetic gives, or too many large ones; expected {DECIMAL}"
            )


def _is_large(value: Any) -> bool:
    """Could this text or number become a decimal that is never written?"""
    if type(value) is str:
        return len(value) > _DECIMAL_LENGTH or _LARGE.search(value) is not None
    return type(value) is int and value.bit_length() > 3 * _DECIMAL_LENGTH


def _atoms(value: Any) -> Iterator[Any]:
    """All that is in plain data, keys too, without the containers."""
    rest = [value]
    while rest:
        found = rest.pop()
        if isinstance(found, dict):
            rest += [*found, *found.values()]
        elif isinstance(found, list | tuple | set | frozenset):
            rest += found
        else:
            yield found


def _is_heavy(text: str) -> bool:
    """Has a text that we wrote too much of large exponents?"""
    return '"$decimal"' in text and sum(map(_weight, _DECIMALS.findall(text))) > _EXPONENTS


def _weight(exponent: str) -> int:
    return size if (size := abs(int(exponent or 0))) > _LARGE_EXPONENT else 0


def check_joined(text: str) -> None:
    """Raise `NotStorable` if a text that was put together from those of values could not be read."""
    if _is_heavy(text):
        raise NotStorable(_HEAVY)


def collides(values: Collection[Any]) -> bool:
    """Were these made so that a set or the keys of a dict take for ever? Then many have one hash."""
    if len(values) <= _OF_ONE_HASH:
        return False
    try:
        return max(Counter(map(hash, values)).values()) > _OF_ONE_HASH
    except TypeError:  # nothing that a set could hold
        return False


def _base64(value: bytes | bytearray) -> str:
    return base64.b64encode(value).decode("ascii")


_ATOM_FORMS: Final[dict[type, Callable[[Any], Any]]] = {
    float: _number,
    int: lambda value: value if -(2**63) <= value < 2**63 else {"$int": hex(value)},
    complex: lambda value: {"$complex": [_number(value.real), _number(value.imag)]},
    bytes: lambda value: {"$bytes": _base64(value)},
    bytearray: lambda value: {"$bytearray": _base64(value)},
    datetime: lambda value: {"$datetime": _moment(value)},
    time: lambda value: {"$time": _moment(value)},
    date: lambda value: {"$date": value.isoformat()},
    timedelta: lambda value: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    Decimal: _decimal,
    UUID: lambda value: {"$uuid": str(value)},
}

_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, check_circular=False, separators=(",", ":")).encode
in_order = json.JSONEncoder(
    ensure_ascii=True, allow_nan=False, check_circular=False, separators=(",", ":"), sort_keys=True
).encode


class _Writer:
    """Turns a value into the tree that JSON writes. `other` turns a value of no plain kind into one, or refuses it."""

    __slots__ = ("left", "other")

    def __init__(self, other: Callable[[Any], Any]) -> None:
        self.other, self.left = other, COUNT_LIMIT

    def tree(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in _AS_IT_IS:
            return value
        form = _ATOM_FORMS.get(kind)
        if form is not None:
            return form(value)
        if kind not in _CONTAINERS:
            plain = self.other(value)
            return plain if type(plain) in _AS_IT_IS else self.tree(plain, depth + 1)
        self.left -= len(value) + _CONTAINER_COUNT
        if depth >= DEPTH_LIMIT:
            raise Refused(f"is nested more than {DEPTH_LIMIT} levels deep or contains itself; store a flatter value")
        if self.left < 0:
            raise Refused("holds millions of values, each counted wherever it is; store it elsewhere, keep its address")
        if kind is dict:
            return self.mapping(value, depth + 1)
        if kind is list:
            return self.row(value, depth + 1)
        if kind is tuple:
            return {"$tuple": self.row(value, depth + 1)}
        if collides(value):
            raise Refused(_COLLIDE)
        # The order of a set differs from process to process; the order of the texts does not.
        return {"$set" if kind is set else "$frozenset": sorted(self.row(value, depth + 1), key=_encode)}

    def row(self, values: Iterable[Any], depth: int) -> list[Any]:
        out: list[Any] = []
        tree = self.tree
        try:
            for item in values:  # one by one: when a member is refused, the length of `out` is its index
                out.append(item if type(item) in _AS_IT_IS else tree(item, depth))  # noqa: PERF401
        except Refused as refused:
            refused.path.append(f"[{len(out)}]")
            raise
        return out

    def mapping(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        out: dict[Any, Any] = {}
        tree, plain, key = self.tree, True, None
        try:
            for key, item in value.items():
                if type(key) is not str:
                    plain = False
                    break
                out[key] = item if type(item) in _AS_IT_IS else tree(item, depth)
            if plain and (len(out) != 1 or not key or key[0] != "$"):
                return out
            if collides(value):
                raise Refused(_COLLIDE)
            pairs = []
            for key, item in value.items():
                pairs.append([tree(key, depth), tree(item, depth)])
        except Refused as refused:
            refused.path.append(segment(key))
            raise
        return {"$map": pairs}


_CONTAINERS: Final = frozenset({dict, list, tuple, set, frozenset})
_NOTED: Final = frozenset({dict, list, tuple})  # what may be noted, or hold what is


class _Noting(_Writer):
    """Writes notes as well."""

    __slots__ = ("notes",)

    def __init__(self, other: Callable[[Any], Any], notes: Notes) -> None:
        super().__init__(other)
        self.notes = notes

    def tree(self, value: Any, depth: int) -> Any:
        made = super().tree(value, depth)
        note = self.notes.get(id(value)) if type(value) is tuple and depth < _NOTED_DEPTH else None
        if note is not None:
            made = {"$names": [note.names, made]}
            made = {"$of": [note.kind, made]} if note.kind else made
        return made

    def mapping(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        made = super().mapping(value, depth)
        note = self.notes.get(id(value))
        if note is not None and depth <= _NOTED_DEPTH:
            made = {"$default": [note.default, made]} if note.default else made
            made = {"$unset": [note.unset, made]} if note.unset else made
            made = {"$of": [note.kind, made]} if note.kind else made
        return made


def refuse(value: Any) -> Any:
    """Refuse a value of no plain kind where no type is annotated."""
    kind = type(value)
    is_dataclass = dataclasses.is_dataclass(kind)  # of the type: the class itself is no instance
    if isinstance(value, enum.Enum) or is_dataclass or hasattr(kind, "__pydantic_core_schema__"):
        raise Refused(
            f"{type_name(kind)} is stored only where its type is annotated; "
            "annotate the step's return type (or the parameter) with it"
        )
    plain = plain_kind(value)
    if plain is not None:
        raise Refused(f"{type_name(kind)} would come back as {plain.__name__}; {remedy(value)}")
    raise refusal(value)


def refusal(value: Any) -> Refused:
    """A value of no kind that can be stored, with what to do about it."""
    told = remedy(value)
    return Refused(f"{type_name(type(value))} cannot be stored" + (f"; {told}" if told else ""), advise=not told)


def plain_kind(value: Any) -> type | None:
    """The plain kind that a value is a subclass of, if it is one."""
    return next((plain for plain in (*_ATOM_FORMS, *_CONTAINERS, str) if isinstance(value, plain)), None)


def remedy(value: Any) -> str:
    """Advise how a value that cannot be stored becomes one that can, if that is known."""
    plain = plain_kind(value)
    if plain is not None:
        return f"convert it to a plain {plain.__name__}: {plain.__name__}(...)"
    if callable(getattr(value, "item", None)) and getattr(value, "ndim", 0) == 0:
        return "convert it with its .item()"
    way = next((name for name in ("tolist", "to_dict") if callable(getattr(value, name, None))), None)
    return "" if way is None else f"convert it with its .{way}()"


def plainest(value: Any, depth: int = 0) -> Any:
    """A value that cannot be stored, as plain data that can be: what is left of it when its types are taken off."""
    kind = type(value)
    if kind in _AS_IT_IS or kind in _ATOM_FORMS:
        return value
    if depth > DEPTH_LIMIT:
        raise Refused(_TOO_DEEP)
    if isinstance(value, dict):
        return {plainest(key, depth + 1): plainest(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        parts = [plainest(item, depth + 1) for item in value]
        return parts if isinstance(value, list) else tuple(parts) if isinstance(value, tuple) else frozenset(parts)
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plainest(getattr(value, name, None), depth + 1) for name in names}
    if isinstance(value, enum.Enum):
        return plainest(value.value, depth + 1)
    plain = plain_kind(value)
    if plain is not None:
        return plain(value)
    for way in ("item", "tolist", "to_dict", "model_dump"):
        if callable(getattr(value, way, None)) and (way != "item" or getattr(value, "ndim", 0) == 0):
            made = getattr(value, way)()
            if type(made) is not kind:
                return plainest(made, depth + 1)
    raise Refused(f"{type_name(kind)} cannot be stored")


def write(value: Any, other: Callable[[Any], Any] = refuse, notes: Notes | None = None, *, around: int = 0) -> str:
    """The value as text; raises `Refused`, or `RecursionError` where the caller's own stack leaves no room.

    Its first `around` levels are ours, and do not count as those of a value.
    """
    kind = type(value)
    if kind is str:
        return quote(value)
    if kind is int and -(2**63) <= value < 2**63:
        return repr(value)  # as JSON has it, without the price of an encoder
    text = _encode((_Noting(other, notes) if notes else _Writer(other)).tree(value, -around))
    if _is_heavy(text):
        raise Refused(_HEAVY)
    return text


# --- reading ---


def _malformed(what: object) -> NotStorable:
    return NotStorable(f"the stored text is not what Holdfast writes: {cut(str(what), 300)}")


def _row(payload: Any) -> list[Any]:
    if type(payload) is not list:
        raise TypeError("a list is expected")
    return payload


def _text(payload: Any) -> str:
    if type(payload) is not str:
        raise TypeError("a text is expected")
    return payload


def _members(kind: Any, payload: Any) -> Any:
    row = _row(payload)
    keys = [key for key, _ in map(_row, row)] if kind is dict else row
    if collides(keys):
        raise ValueError(_COLLIDE)
    made = kind(row)
    if len(made) != len(row):
        raise ValueError("something comes twice")
    return made


def _read_decimal(payload: Any) -> Decimal:
    if len(_text(payload)) > _DECIMAL_LENGTH or _is_beyond(found := Decimal(payload), payload):
        raise ValueError("no arithmetic gives such a decimal")
    return found


def _wide_int(payload: Any) -> int:
    if not re.fullmatch(r"-?0x[0-9a-f]+", _text(payload)):  # int() itself would also take spaces and underscores
        raise ValueError("a hexadecimal number is expected")
    return int(payload, 16)


def _special_float(payload: Any) -> float:
    if payload not in ("nan", "inf", "-inf"):
        raise ValueError("nan, inf or -inf is expected")
    return float(payload)  # a new nan each time: as keys of one dict two nans stay two


def _read_complex(payload: Any) -> complex:
    real, imaginary = _row(payload)
    if type(real) is not float or type(imaginary) is not float:
        raise TypeError("two floats are expected")
    return complex(real, imaginary)


def _read_timedelta(payload: Any) -> timedelta:
    if [type(part) for part in _row(payload)] != [int, int, int]:
        raise TypeError("three whole numbers are expected")
    return timedelta(*payload)


def _read_map(payload: Any) -> Any:
    return _members(dict, payload)


def _read_named(payload: Any) -> tuple[list[str], dict[Any, Any]]:
    names, data = _row(payload)
    if type(data) is not dict or not all(type(name) is str and name in data for name in _row(names)):
        raise TypeError("names of fields and an object with them are expected")
    return names, data


def _read_of(payload: Any) -> tuple[str, Any]:
    name, data = _row(payload)
    if type(data) is not dict and type(data) is not tuple:
        raise TypeError("a name and an object or tuple are expected")
    return _text(name), data


def _read_names(payload: Any) -> tuple[list[str], tuple[Any, ...]]:
    names, data = _row(payload)
    if type(data) is not tuple or len(set(map(_text, _row(names)))) != len(data) or len(names) != len(data):
        raise TypeError("names and a tuple of as many members are expected")
    return names, data


def by_name(value: Any, notes: Notes) -> Any:
    """Give the members of named tuples in this data their names."""
    if type(value) is dict or type(value) is list:
        for key, each in list(value.items() if type(value) is dict else enumerate(value)):
            if type(each) in _CONTAINERS:
                value[key] = by_name(each, notes)
    elif type(value) is tuple:
        parts = [by_name(each, notes) for each in value]
        note = notes.get(id(value))
        if note is None or not note.names:
            return tuple(parts)
        named = dict(zip(note.names, parts, strict=True))
        notes[id(named)] = Note(named, kind=note.kind)
        return named
    return value


def within(value: Any, notes: Notes) -> Notes:
    """Return the notes on data in this value."""
    found: Notes = {}
    parts = [value] if notes and type(value) in _NOTED else []
    while parts:
        part = parts.pop()
        if id(part) in notes:
            found[id(part)] = notes[id(part)]
        nested = part.values() if type(part) is dict else part
        parts += [each for each in nested if type(each) in _NOTED]
    return found


def _read_moment(kind: Any, payload: Any) -> Any:
    if type(payload) is not dict:
        return kind.fromisoformat(_text(payload))
    if not payload.keys() <= {"at", "zone", "name", "fold"}:
        raise ValueError("unknown parts")
    value = kind.fromisoformat(_text(payload["at"]))
    if "zone" in payload:
        value = value.replace(tzinfo=ZoneInfo(_text(payload["zone"])))
    elif "name" in payload:
        value = value.replace(tzinfo=timezone(value.utcoffset(), _text(payload["name"])))
    return value.replace(fold=payload.get("fold", 0))


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "$tuple": lambda payload: tuple(_row(payload)),
    "$set": lambda payload: _members(set, payload),
    "$frozenset": lambda payload: _members(frozenset, payload),
    "$map": _read_map,
    "$int": _wide_int,
    "$float": _special_float,
    "$complex": _read_complex,
    "$bytes": lambda payload: base64.b64decode(_text(payload), validate=True),
    "$bytearray": lambda payload: bytearray(base64.b64decode(_text(payload), validate=True)),
    "$decimal": _read_decimal,
    "$uuid": lambda payload: UUID(_text(payload)),
    "$datetime": lambda payload: _read_moment(datetime, payload),
    "$time": lambda payload: _read_moment(time, payload),
    "$date": lambda payload: date.fromisoformat(_text(payload)),
    "$timedelta": _read_timedelta,
    "$unset": lambda payload: _read_named(payload)[1],
    "$default": lambda payload: _read_named(payload)[1],
    "$of": lambda payload: _read_of(payload)[1],
    "$names": lambda payload: _read_names(payload)[1],
}


def _untag(found: dict[str, Any]) -> Any:
    if len(found) != 1:
        return found
    ((tag, payload),) = found.items()
    if not tag.startswith("$"):
        return found
    reader = _READERS.get(tag)
    if reader is None:
        raise _malformed(f"unknown tag {tag[:40]!r} (a newer Holdfast may have written it)")
    try:
        return reader(payload)
    except (ValueError, TypeError, ArithmeticError, KeyError, OSError) as error:
        raise _malformed(f"{tag}: {error}") from error


def _no_constant(name: str) -> Any:
    raise _malformed(f"{name} is not JSON")


def _weighed(untag: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    """Bound `untag` for one text: the decimals in it may not be too large together."""
    left = _EXPONENTS

    def untagged(found: dict[str, Any]) -> Any:
        nonlocal left
        value = untag(found)
        if type(value) is Decimal:
            left -= _weight(str(value).partition("E")[2])
            if left < 0:
                raise _malformed(_HEAVY)
        return value

    return untagged


_plain_decoder = json.JSONDecoder(parse_constant=_no_constant)
_tag_decoder = json.JSONDecoder(parse_constant=_no_constant, object_hook=_untag)


def _decode(text: str, decoder: json.JSONDecoder) -> Any:
    try:
        return decoder.decode(text)
    except RecursionError:
        raise _malformed(_TOO_DEEP) from None
    except (ValueError, TypeError) as error:
        if isinstance(error, NotStorable):
            raise
        raise _malformed(error) from error


def read(text: str) -> Any:
    """The value that was written; `NotStorable` for text that nothing wrote. Never runs code, whatever the text."""
    # Without a "$" (or its escape, which only a forger would write) there is no tag, and no callback is needed.
    if "$" not in text and "\\u0024" not in text:
        return _read(text, _plain_decoder)
    if "$decimal" not in text and "\\u" not in text:
        return _read(text, _tag_decoder)
    return _read(text, json.JSONDecoder(parse_constant=_no_constant, object_hook=_weighed(_untag)))


def read_noting(text: str) -> tuple[Any, Notes]:
    """Read a text, and what is noted in it."""
    notes: Notes = {}
    if not _is_noted(text):
        return read(text), notes

    def untag(found: dict[str, Any]) -> Any:
        if len(found) != 1:
            return found
        value = _untag(found)
        for tag, part in _NOTES.items():
            if tag in found:
                notes[id(value)] = notes.get(id(value), Note(value))._replace(**{part: found[tag][0]})
        return value

    return _read(text, json.JSONDecoder(parse_constant=_no_constant, object_hook=_weighed(untag))), notes


def _read(text: str, decoder: json.JSONDecoder) -> Any:
    value = _decode(text, decoder)
    if text.count("[") + text.count("{") > DEPTH_LIMIT + AROUND:
        _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    """Level by level, without recursion: what is deeper than anything ever written was made to hurt."""
    level = [value]
    for _ in range(DEPTH_LIMIT + AROUND):
        parts: list[Any] = []
        for item in level:
            if type(item) is dict:
                parts.extend(item.keys())
                parts.extend(item.values())
            else:
                parts.extend(item if type(item) in _CONTAINERS else ())
        level = [part for part in parts if type(part) in _CONTAINERS]
        if not level:
            return
    raise _malformed(_TOO_DEEP)


def canonical(text: str) -> str:
    """Order the keys of dicts, as the members of sets are already: equal values have equal texts."""
    if "{" not in text:
        return text
    try:
        return in_order(_decode(text, _order_decoder if '"$map"' in text or _is_noted(text) else _plain_decoder))
    except RecursionError:
        raise _malformed(_TOO_DEEP) from None
    except ValueError as error:  # of 1e999, which nothing writes
        raise _malformed(error) from None


def bare(text: str) -> str:
    """The text of the same value, without notes."""
    try:
        return _encode(_decode(text, _bare_decoder)) if _is_noted(text) else text
    except ValueError as error:  # as above
        raise _malformed(error) from None


def _is_noted(text: str) -> bool:
    return '"$' in text and any(tag in text for tag in _NOTE_TAGS)


def _bared(found: dict[str, Any]) -> Any:
    if len(found) != 1:
        return found
    ((tag, noted),) = found.items()
    return noted[1] if tag in _NOTES and type(noted) is list and len(noted) == 2 else found


def _ordered(found: dict[str, Any]) -> Any:
    if len(found) == 1 and type(found.get("$map")) is list:
        found["$map"].sort(key=in_order)
    return _bared(found)


_bare_decoder = json.JSONDecoder(parse_constant=_no_constant, object_hook=_bared)
_order_decoder = json.JSONDecoder(parse_constant=_no_constant, object_hook=_ordered)
