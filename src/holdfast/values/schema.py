"""Published schemas: starting an agent by name only, in a process that does not have its code.

A worker publishes the JSON schema of each agent's arguments (`Signature.schema`). Here arguments are put under their
names by it, written, and checked at once, so that a wrong start fails where it is made and not in the worker. Only what
pydantic produces is understood; a keyword that is not known says nothing, because the worker validates once more.

What is checked may come from anybody. Each part of a value is held against each part of the schema at most once, whatever
unions there are, and patterns are looked for by an engine that needs time in proportion to the text.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from holdfast.errors import BadArguments, NotStorable
from holdfast.values import tagged
from holdfast.values.codec import LIMITS, UNTYPED, arguments_text, shape_of
from holdfast.values.sameness import difference
from holdfast.values.tagged import Note, Notes
from holdfast.values.text import ATOMS, cut, key_text, near, segment, short, show, spell, type_name

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
    "array": (list,), "object": (dict,),
}  # fmt: skip
_LIMITS: dict[str, Any] = {
    "minimum": lambda value, limit: value >= limit,
    "maximum": lambda value, limit: value <= limit,
    "exclusiveMinimum": lambda value, limit: value > limit,
    "exclusiveMaximum": lambda value, limit: value < limit,
}
_SIZES: dict[str, tuple[Any, Any]] = {
    "minLength": (str, lambda count, limit: count >= limit),
    "maxLength": (str, lambda count, limit: count <= limit),
    "minItems": (list, lambda count, limit: count >= limit),
    "maxItems": (list, lambda count, limit: count <= limit),
    "minProperties": (dict, lambda count, limit: count >= limit),
    "maxProperties": (dict, lambda count, limit: count <= limit),
}

_NONE: Any = object()
_DEFAULT = {"default", "x-default", "x-declared"}
_FLOAT_DIGITS = 15  # of a decimal that are the same when a float is made of it
_INTEGERS = 2**53
_IN_QUOTES = "a text with all of them, in quotes"
_IN_DIGITS = "an integer with all of them, without a point and without an exponent"
_A_FLOAT = "a number that a float holds exactly"
_FINITE = "a finite number"
_TOLD = 10  # so many of the fields that are left out are named
_FORMATS: dict[str, type] = {"date-time": datetime, "date": date, "time": time, "uuid": UUID, "duration": timedelta}
_LIMITED = {"decimal": "decimal", "date-time": "datetime", "date": "date", "time": "time", "duration": "timedelta"}


class _Wrong(Exception):
    """A part that does not fit: where, what was found, what was expected, and whether it is of the right type at least."""

    def __init__(self, path: tuple[str, ...], found: str, expected: str, *, of_type: bool = False) -> None:
        super().__init__(path)
        self.path, self.found, self.expected, self.of_type = path, found, expected, of_type

    def below(self, key: object) -> _Wrong:
        """Lead the path from the container that holds this part."""
        return _Wrong((segment(key), *self.path), self.found, self.expected)


def check_against(schema: dict[str, Any], arguments: dict[str, Any], agent_name: str) -> None:
    """Raise `BadArguments` with path, found and expected if the arguments do not fit the published schema."""
    check_value(schema, arguments, f"agent {agent_name!r}")


def check_value(
    schema: dict[str, Any], value: Any, what: str, notes: Notes | None = None, *, entered: bool = False
) -> None:
    """Raise `BadArguments` if a value does not fit its schema. A field that is noted as a default need not fit its own.

    A number that a person has `entered` must have every digit, which a long number of JSON has no more, and a float has not.
    """
    try:
        wrong = _Form(schema, notes, entered).wrong(schema, value)
    except RecursionError:
        raise _too_deep(what) from None
    if wrong is not None:
        where = f"{spell('', wrong.path)}: " if wrong.path else ""
        told = f"{what}: {where}found {wrong.found}, expected {wrong.expected}"
        raise BadArguments(told, details=_place(wrong.path))


def _place(path: Iterable[str]) -> dict[str, Any]:
    """Tell programs where in a value something is wrong: the names and numbers that lead there."""
    return {"of": "value", "path": [part[1:] if part.startswith(".") else _index(part[1:-1]) for part in path]}


def _index(part: str) -> int | str:
    return int(part) if part.isascii() and part.isdigit() else part


def _too_deep(what: str) -> BadArguments:
    return BadArguments(f"{what}: the value or the schema is nested too deeply")


def arguments_from_published(
    schema: dict[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any], agent_name: str
) -> tuple[dict[str, Any], str]:
    """The arguments by name, and the text that tells them from others, as `Signature.bind` makes it for plain values."""
    properties: dict[str, Any] = schema.get("properties", {})
    positional: list[str] = schema.get("x-positional", list(properties))
    rest = schema.get("x-rest")
    named: dict[str, Any] = dict(zip(positional, args, strict=False))
    if len(args) > len(positional):
        if rest is None:
            takes = f"takes ({', '.join(properties)})"
            raise BadArguments(f"agent {agent_name!r} {takes}; got {len(args)} arguments by position")
        named[rest] = list(args[len(positional) :])
    for name, value in kwargs.items():
        if name in named:
            raise BadArguments(f"agent {agent_name!r}: {name!r} was given twice, by position and by name")
        named[name] = value
    order = [*(name for name in properties if name in named), *(name for name in named if name not in properties)]
    ordered = {name: named[name] for name in order}
    recorded = {}
    for name, value in ordered.items():
        own = properties.get(name)
        text = UNTYPED.text(value, name, argument=True)
        default = own.get("x-identity", own.get("default", _NONE)) if isinstance(own, dict) else _NONE
        if default is _NONE or text != tagged.write(default):
            recorded[name] = value
    return ordered, arguments_text(recorded, agent_name)


def filled(
    schema: dict[str, Any], value: Any, what: str = "the value", notes: Notes | None = None
) -> tuple[Any, Notes]:
    """Return a value that the schema has checked, with the schema's defaults for the fields that it leaves out.

    The notes then say which fields these are, because nobody set them. A default that is made anew each time (a
    factory) is in no schema: it is filled in when the value is read. Where that may be too late, see `check_whole`.
    """
    form = _Form(schema, notes)
    try:
        return form.filled(schema, value), form.notes
    except RecursionError:
        raise _too_deep(what) from None


def check_whole(schema: dict[str, Any], value: Any, what: str, shown: Any = _NONE) -> None:
    """Raise `BadArguments` if a value that fits leaves out what is `shown`, or what no schema can fill in."""
    try:
        found = _Form(schema).left_out(schema, value, shown)
    except RecursionError:
        raise _too_deep(what) from None
    seen = [(path, now) for path, now in found if now is not _NONE]
    if not found:
        return
    names = " and ".join(spell("", path) for path, _ in seen or found)
    it, is_ = ("it", "it is") if len(seen or found) == 1 else ("them", "they are")
    if not seen:
        told = f"{what} leaves out {names}. The form does not tell what {is_} then; give {it} too"
        raise BadArguments(told, details=_place(found[0][0]))
    now = " and ".join(_told(each) for _, each in seen)
    told = f"{what} leaves out {names}. What is approved is whole; give {it} too (now {is_} {now})"
    raise BadArguments(told, details=_place(seen[0][0]))


def entered(schema: dict[str, Any], text: str, what: str, shown: str | None = None) -> str:
    """Return the text of a value that a person entered: checked, and whole, with today's defaults where it has none.

    An edit leaves out nothing of what is `shown`: nobody expects a default there instead.
    """
    given, notes = tagged.read_noting(text)
    before = _NONE
    if shown is not None:
        before, notes_before = tagged.read_noting(shown)
        notes |= _untouched(given, before, notes_before)
    check_value(schema, given, what, notes, entered=True)
    check_whole(schema, given, what, before)
    whole, notes = filled(schema, given, what, notes)
    return tagged.write(whole, notes=notes)


def _untouched(given: Any, shown: Any, notes: Notes) -> Notes:
    """Keep the notes of fields that are as they were shown: that nobody has set them, that they are defaults."""
    found: Notes = {}
    pairs = [(given, shown)] if notes else []
    while pairs:
        now, before = pairs.pop()
        if type(now) is dict and type(before) is dict:
            note = notes.get(id(before), Note(before))
            same = [name for name in now if name in before and difference(now[name], before[name]) is None]
            unset, declared = ([name for name in names if name in same] for names in (note.unset, note.default))
            if unset or declared:
                found[id(now)] = Note(now, unset, default=declared)
            pairs += [(item, before[name]) for name, item in now.items() if name in before]
        elif type(now) is list and type(before) is list:
            pairs += zip(now, before, strict=False)
    return found


def _told(value: Any) -> str:
    try:
        return cut(json.dumps(value, ensure_ascii=False, default=str), 200)
    except (ValueError, TypeError):  # of no kind that JSON has
        return cut(show(value, 200), 200)


_LeftOut = tuple[tuple[tuple[str, ...], Any], ...]  # the path of each field that is left out, and what is shown there


class _Form:
    """A schema, and what was found with it so far: no part of a value is held against a part of the schema twice."""

    def __init__(self, schema: dict[str, Any], notes: Notes | None = None, entered: bool = False) -> None:
        self._entered, self._weights = entered, tagged.Weights()
        self._whole: set[int] = set()  # schemas of numbers that become decimals
        self._definitions: dict[str, Any] = schema.get("$defs", {})
        self.notes: Notes = dict(notes or {})  # of what is filled in, and of the values before that
        # By identity. The values are kept, so that no other one gets the id of one that is gone.
        self._wrongs: dict[tuple[int, int], tuple[Any, _Wrong | None]] = {}
        self._lacks: dict[tuple[int, int, int], tuple[Any, Any, _LeftOut]] = {}

    def wrong(self, schema: Any, value: Any) -> _Wrong | None:
        """Find the first part that does not fit."""
        schema = self._target(schema)
        if not isinstance(schema, dict):
            return _Wrong((), _spoken(value), "nothing here") if schema is False else None
        if type(value) not in _PARTED:
            return self._wrong(schema, value)
        key = id(schema), id(value)
        if key not in self._wrongs:
            self._wrongs[key] = value, self._wrong(schema, value)
        return self._wrongs[key][1]

    def _wrong(self, schema: dict[str, Any], value: Any) -> _Wrong | None:
        # Few calls for each level: the depth of what can be checked is bounded by them.
        seen = _as_json(value)
        found = _misfit(schema, seen)
        if self._entered and type(value) in (int, float):
            found = found or self._inexact(schema, value)
        if found is None and type(seen) is str and schema.get("format") == "decimal":
            found = self._no_decimal(seen, type(value) is not str or "x-infinite" in schema)
        for part in schema.get("allOf", ()):
            found = found or self.wrong(part, value)
        for union in ("anyOf", "oneOf"):
            wrongs: list[_Wrong] = []
            for branch in schema.get(union, ()) if found is None else ():
                wrong = self.wrong(branch, value)
                if (
                    wrong is None
                ):  # for `oneOf` too: pydantic writes it for tagged unions, where the tag picks the branch
                    break
                wrongs.append(wrong)
            else:
                found = found or self._wrong_in_all(schema.get(union, ()), wrongs, seen)
        found = found or _beyond_limits(schema, seen)
        for own, item, key in self._parts(schema, seen) if found is None else ():
            if key is _NONE:
                assert isinstance(item, _Wrong)
                return item
            wrong = self.wrong(own, item)
            if wrong is not None:
                return wrong.below(key)
        return found

    def _inexact(self, schema: dict[str, Any], value: float) -> _Wrong | None:
        """Refuse a number that a person entered where the type would make another of it, or JSON has done so before."""
        wanted = schema.get("type")
        if _is_decimal(schema):
            self._whole |= {id(branch) for branch in schema["anyOf"]}  # a decimal has every digit of an integer
            lost, expected = type(value) is float and _digits(value) > _FLOAT_DIGITS, _IN_QUOTES
        elif type(value) is float:  # from 2**53 on, not every integer is a float
            lost, expected = wanted == "integer" and abs(value) >= _INTEGERS, _IN_DIGITS
        else:
            lost, expected = (
                wanted == "number" and id(schema) not in self._whole and not _is_float(int(value)),
                _A_FLOAT,
            )
        told = f"the number {short(value)}, of which digits may be lost"
        return _Wrong((), told, expected, of_type=True) if lost else None

    def _no_decimal(self, text: str, may_be_infinite: bool) -> _Wrong | None:
        """Hold a text against what a decimal may be, and what all decimals of a value may be together."""
        try:
            decimal = tagged.decimal_of(text)
        except ArithmeticError:
            return _Wrong((), _spoken(text), "a number")
        if decimal is not None and not (may_be_infinite or decimal.is_finite()):
            return _Wrong((), _spoken(text), _FINITE, of_type=True)
        fits = decimal is not None and self._weights.take(decimal)
        return None if fits else _Wrong((), _spoken(text), tagged.DECIMAL, of_type=True)

    def _wrong_in_all(self, branches: Sequence[Any], wrongs: list[_Wrong], seen: Any) -> _Wrong | None:
        deep = [wrong for wrong in wrongs if wrong.path]
        beyond = next((wrong for wrong in wrongs if wrong.of_type), None)
        if beyond is not None:  # it says more than of which types the value is not
            return beyond
        if len(deep) == 1:  # only one branch is of the right type at all, so its complaint is the useful one
            return deep[0]
        names = dict.fromkeys(_describe(self._target(branch)) for branch in branches)
        return _Wrong((), _spoken(seen), " or ".join(names)) if wrongs else None

    def _parts(self, schema: dict[str, Any], value: Any) -> Iterator[tuple[Any, Any, Any]]:
        """The parts of a value: the schema of each, itself, and its key. Without a key: what is wrong with the keys."""
        if type(value) is list:
            first, rest = schema.get("prefixItems", ()), schema.get("items", True)
            for at, item in enumerate(value):
                yield first[at] if at < len(first) else rest, item, at
        if type(value) is not dict:
            return
        properties = schema.get("properties", {})
        # What has fields has no others, unless it says so: some schemas leave out what nobody checked.
        others = schema.get("additionalProperties", not properties)
        for name in value if others is False else ():  # first: what is missing may have been misspelled
            if name not in properties:
                told = _Wrong((segment(name),), "a name that is not known", _one_of(name, properties))
                yield None, told, _NONE
        for name in schema.get("required", ()):
            if name not in value:
                told = _Wrong((segment(name),), "nothing", _describe(self._target(properties.get(name, {}))))
                yield None, told, _NONE
        note = self.notes.get(id(value))
        for name, item in value.items():
            if note is None or name not in note.default:
                yield properties.get(name, others), item, name

    def left_out(self, schema: Any, value: Any, shown: Any) -> _LeftOut:
        """The fields that are left out and cannot be filled in, the first of them, with what is shown there."""
        schema = self._target(schema)
        if not isinstance(schema, dict) or type(value) not in _PARTED:
            return ()
        key = id(schema), id(value), id(shown)
        if key not in self._lacks:
            self._lacks[key] = value, shown, tuple(self._left_out(schema, value, shown))[:_TOLD]
        return self._lacks[key][2]

    def _left_out(self, schema: dict[str, Any], value: Any, shown: Any) -> list[tuple[tuple[str, ...], Any]]:
        made: list[tuple[tuple[str, ...], Any]] = []
        for union in ("anyOf", "oneOf"):
            fitting: list[_LeftOut] = [
                self.left_out(branch, value, shown)
                for branch in schema.get(union, ())
                if self.wrong(branch, value) is None
            ]
            if fitting and (shown is not _NONE or all(fitting)):  # a new value may be of any type that it is whole for
                most: _LeftOut = max(fitting, key=len)
                made += most
        for part in schema.get("allOf", ()):
            made += self.left_out(part, value, shown)
        parts: list[tuple[object, Any, Any, Any]] = []  # its key, its schema, itself, what is shown in its place
        if type(value) is list:
            first, rest = schema.get("prefixItems", ()), schema.get("items", True)
            beside = shown if type(shown) is list else []
            for at, item in enumerate(value):
                own = first[at] if at < len(first) else rest
                parts.append((at, own, item, beside[at] if at < len(beside) else _NONE))
        elif type(value) is dict:
            properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
            fields = shown if type(shown) is dict else {}
            for name, own in properties.items():
                if name not in value and (name in fields or (isinstance(own, dict) and "x-untold" in own)):
                    made.append(((segment(name),), fields.get(name, _NONE)))
            parts += [
                (name, properties.get(name, others), item, fields.get(name, _NONE)) for name, item in value.items()
            ]
        for name, own, item, now in parts:
            made += [((segment(name), *path), told) for path, told in self.left_out(own, item, now)]
            if len(made) > _TOLD:
                break
        return made

    def filled(self, schema: Any, value: Any) -> Any:
        """The value with the defaults that the schema tells."""
        schema = self._target(schema)
        if not isinstance(schema, dict) or type(value) not in _PARTED:
            return value
        for union in ("anyOf", "oneOf"):
            fitting = [branch for branch in schema.get(union, ()) if self.wrong(branch, value) is None]
            if len(fitting) == 1:  # of several nobody but the type itself knows which one it takes
                value = self.filled(fitting[0], value)
        for part in schema.get("allOf", ()):
            value = self.filled(part, value)
        if type(value) is list:
            first, rest = schema.get("prefixItems", ()), schema.get("items", True)
            return [self.filled(first[at] if at < len(first) else rest, item) for at, item in enumerate(value)]
        if type(value) is not dict:
            return value
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        # What the type alone can read, perhaps by an old name, stays as it is.
        told = properties.items() if others is not True or all(name in properties for name in value) else ()
        whole = {name: self._default(own) for name, own in told if isinstance(own, dict) and _DEFAULT & own.keys()}
        whole = {
            name: whole[name] if name not in value else value[name]
            for name in properties
            if name in whole or name in value
        }
        whole |= {name: item for name, item in value.items() if name not in whole}
        made = {
            # What is declared as a default is left as it is: only so the type knows it again.
            name: item
            if name not in value and "x-declared" in properties[name]
            else self.filled(properties.get(name, others), item)
            for name, item in whole.items()
        }
        before = self.notes.get(id(value), Note(value))
        unset = [name for name in made if name in before.unset or name not in value]
        if unset or before.kind or before.default:
            declared = [
                name
                for name in made
                if name in before.default or (name not in value and self._is_declared(properties[name], made[name]))
            ]
            self.notes[id(made)] = Note(made, unset, before.kind, declared)
        return made

    def _is_declared(self, schema: dict[str, Any], default: Any) -> bool:
        """Is this a default that its own type does not read as it is?"""
        return "x-declared" in schema or self.wrong(schema, default) is not None

    def _default(self, schema: dict[str, Any]) -> Any:
        stored = schema.get("x-declared", schema.get("x-default", _NONE))
        if stored is _NONE:
            return schema["default"]
        default, notes = tagged.read_noting(json.dumps(stored))
        self.notes |= notes
        return default

    def _target(self, schema: Any) -> Any:
        for _ in range(len(self._definitions) + 2):  # no way from one to the next is longer
            if not isinstance(schema, dict) or "$ref" not in schema:
                return schema
            schema = self._definitions.get(str(schema["$ref"]).rpartition("/")[2], {})
        raise RecursionError("a schema that is nothing but itself")


_PARTED = frozenset({dict, list, tuple, set, frozenset})


def _as_json(value: Any) -> Any:
    """Show a value of a kind JSON does not have as a schema sees it: this is checked, the value itself is stored.

    Its parts stay what they are: they are looked at in their turn.
    """
    kind = type(value)
    if kind is dict:
        return value if all(type(key) is str for key in value) else {key_text(key): value[key] for key in value}
    if kind in _PARTED:
        return list(value)
    return str(value) if kind in ATOMS and kind not in (str, int, float, bool, type(None)) else value


def _is_decimal(schema: dict[str, Any]) -> bool:
    return any(isinstance(each, dict) and each.get("format") == "decimal" for each in schema.get("anyOf", ()))


def _digits(value: float) -> int:
    return len(repr(value).lower().partition("e")[0].replace(".", "").strip("-0"))


def _is_float(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _numbers(keys: Mapping[str, Any]) -> list[int]:
    """The keys that a type may make numbers of."""
    return [int(key) for key in keys if len(key) <= 100 and key.isascii() and key.isdecimal()]


def _misfit(schema: dict[str, Any], value: Any) -> _Wrong | None:
    enum, const = schema.get("enum"), schema.get("const", _NONE)
    if (
        not _is_of_type(schema, value)
        or (enum is not None and not any(_same(value, option) for option in enum))
        or (const is not _NONE and not _same(value, const))
    ):
        return _Wrong((), _spoken(value), _describe(schema))
    return None


def _beyond_limits(schema: dict[str, Any], value: Any) -> _Wrong | None:
    if type(value) in (int, float):
        for word, fits in _LIMITS.items():
            if word in schema and not fits(value, schema[word]):
                return _Wrong((), _spoken(value), f"{word} {schema[word]}", of_type=True)
    for word, (kind, fits) in _SIZES.items():
        if word in schema and type(value) is kind and not fits(len(value), schema[word]):
            return _Wrong((), f"{_spoken(value)} of length {len(value)}", f"{word} {schema[word]}")
    if (type(value) is list and schema.get("uniqueItems") and tagged.collides(value)) or (
        type(value) is dict and tagged.collides(_numbers(value))
    ):
        return _Wrong((), "members that were made to have one hash", "others")
    made = value
    if type(value) is str and schema.get("format") in _FORMATS:
        try:
            made = shape_of(_FORMATS[schema["format"]]).revive(value, "value")
        except NotStorable:
            return _Wrong((), _spoken(value), _describe(schema))
    if type(value) is str and "pattern" in schema and not _matches(schema["pattern"], value):
        return _Wrong((), _spoken(value), f"text that matches {cut(schema['pattern'], 200)!r}")
    for kind, limits in _limits(schema, value):
        wrong = _limiting(kind, json.dumps(limits))(made)
        if wrong is not None:
            return _Wrong((), _spoken(value), cut(wrong, 200), of_type=True)
    return None


def _limits(schema: dict[str, Any], value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The limits of a value that only its type holds to the last digit, and the type."""
    is_number = type(value) in (int, float)
    if is_number and "multipleOf" in schema:
        yield "int" if schema.get("type") == "integer" else "float", {"multiple_of": schema["multipleOf"]}
    # Pydantic writes the limits of a union under its own names.
    limits = schema.get("x-limits") or {name: schema[name] for name in LIMITS if name in schema}
    kind = _LIMITED.get(schema.get("format", "decimal"))
    if limits and kind and (is_number or (type(value) is str and ("x-limits" in schema or _is_decimal(schema)))):
        yield kind, {**limits, "allow_inf_nan": True} if "x-infinite" in schema else limits


@functools.lru_cache(maxsize=1024)
def _limiting(kind: str, limits: str) -> Callable[[Any], str | None]:
    """Tells what a type with these limits expected in place of a value."""
    from pydantic_core import SchemaError, SchemaValidator, ValidationError  # noqa: PLC0415 - slow to import

    known: Any = {name: limit for name, limit in json.loads(limits).items() if name in (*LIMITS, "allow_inf_nan")}
    try:
        validator = SchemaValidator({"type": kind, **known})
    except SchemaError:
        return lambda _: None  # no type has such limits; the worker will check

    def expected(value: Any) -> str | None:
        try:
            validator.validate_python(value)
        except ValidationError as error:
            return re.sub("^.*? should (be|have) ", "", error.errors()[0]["msg"])
        return None

    return expected


@functools.lru_cache(maxsize=1024)
def _searching(pattern: str) -> Any:
    """Looks for a pattern as pydantic does where nothing else is said: in time that grows with the text alone."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema  # noqa: PLC0415 - slow to import

    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python
    except SchemaError:
        return None  # it needs another engine, whose time nobody knows; the worker will check this one


def _matches(pattern: str, text: str) -> bool:
    search = _searching(pattern)
    return search is None or search(text)


def _one_of(name: str, known: Mapping[str, Any]) -> str:
    found = near(name, known)
    told = f"one of: {', '.join(known)}" if known else "none"
    return f"{found!r}, perhaps ({told})" if found else told


def _is_of_type(schema: dict[str, Any], value: Any) -> bool:
    wanted = schema.get("type")
    if wanted is None:
        return True
    for name in [wanted] if isinstance(wanted, str) else wanted:
        if type(value) in _TYPES.get(name, (type(value),)):
            return True
        if name == "integer" and type(value) is float and value.is_integer():
            return True
    return False


def _same(value: Any, option: Any) -> bool:
    return value == option and isinstance(value, bool) == isinstance(option, bool)


def _describe(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "anything"
    if "const" in schema:
        return short(schema["const"])
    if "enum" in schema:
        return "one of " + cut(", ".join(short(option) for option in schema["enum"]), 200)
    wanted = schema.get("type")
    if wanted == "object" and "title" in schema:
        return f"an object ({schema['title']})"
    if isinstance(wanted, list):
        return " or ".join(map(str, wanted))
    detail = f" ({schema['format']})" if "format" in schema else ""
    return f"{wanted}{detail}" if wanted else str(schema.get("title", "another value"))


def _spoken(value: Any) -> str:
    return f"{type_name(type(value))} {short(value)}" if type(value) in ATOMS and value is not None else short(value)
