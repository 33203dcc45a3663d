"""Published schemas: starting an agent by name only, in a process that does not have its code.

A worker publishes the JSON schema of each agent's arguments (`Signature.schema`). Here arguments are put under their
names by it, written, and checked at once, so that a wrong start fails where it is made and not in the worker. Only what
pydantic produces is understood; a keyword that is not known says nothing, for the worker validates once more.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any
from uuid import UUID

from holdfast import tagged
from holdfast.codec import UNTYPED, arguments_text, shape_of
from holdfast.errors import BadArguments, NotStorable
from holdfast.naming import ATOMS, cut, segment, short, type_name

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
_FORMATS: dict[str, type] = {"date-time": datetime, "date": date, "time": time, "uuid": UUID}


class _Wrong(Exception):
    """What does not fit: where, what was found, what was expected."""

    def __init__(self, path: str, found: str, expected: str) -> None:
        super().__init__(path)
        self.path, self.found, self.expected = path, found, expected


def check_against(schema: dict[str, Any], arguments: dict[str, Any], agent_name: str) -> None:
    """Raise `BadArguments` with path, found and expected if the arguments do not fit the published schema."""
    check_value(schema, arguments, f"agent {agent_name!r}")


def check_value(schema: dict[str, Any], value: Any, what: str) -> None:
    """The same for any value of which the schema is known."""
    try:
        _check(schema, _as_json(value), "", schema.get("$defs", {}))
    except _Wrong as wrong:
        where = f"{wrong.path.removeprefix('.')}: " if wrong.path else ""
        raise BadArguments(f"{what}: {where}found {wrong.found}, expected {wrong.expected}") from None
    except RecursionError:
        raise BadArguments(f"{what}: the value or the schema is nested too deeply") from None


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
        own = properties.get(name, {})
        text = UNTYPED.text(value, name, argument=True)
        default = own.get("x-identity", own.get("default", _NONE))
        if default is _NONE or text != tagged.write(default):
            recorded[name] = value
    return ordered, arguments_text(recorded, agent_name)


def filled(schema: dict[str, Any], value: Any) -> Any:
    """A value that was checked by the schema, with the defaults that the schema tells in place of what it leaves out.

    A default that is made anew each time (a factory) is in no schema: it is filled in when the value is read. Where that
    may be too late, see `check_whole`.
    """
    return _filled(schema, value, schema.get("$defs", {}))


def check_whole(schema: dict[str, Any], value: Any, what: str, shown: Any = _NONE) -> None:
    """Raise `BadArguments` if a value that fits leaves out what is `shown`, or what no schema can fill in."""
    found = list(_left_out(schema, value, shown, "", schema.get("$defs", {})))
    seen = [(path, now) for path, now in found if now is not _NONE]
    if not found:
        return
    names = " and ".join(path.removeprefix(".") for path, _ in seen or found)
    it, is_ = ("it", "it is") if len(seen or found) == 1 else ("them", "they are")
    if not seen:
        raise BadArguments(f"{what} leaves out {names}. The form does not tell what {is_} then; give {it} too")
    now = " and ".join(cut(json.dumps(_as_json(each), ensure_ascii=False), 200) for _, each in seen)
    raise BadArguments(f"{what} leaves out {names}. What is approved is whole; give {it} too (now {is_} {now})")


def _left_out(schema: Any, value: Any, shown: Any, path: str, definitions: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The path of each field that is left out and cannot be filled in, with what is shown there."""
    schema = _target(schema, definitions)
    if not isinstance(schema, dict):
        return
    for union in ("anyOf", "oneOf"):
        fitting = [
            list(_left_out(branch, value, shown, path, definitions))
            for branch in schema.get(union, ())
            if _fits(branch, value, definitions)
        ]
        if fitting and (shown is not _NONE or all(fitting)):  # a new value may be of any type that it is whole for
            yield from max(fitting, key=len)
    for part in schema.get("allOf", ()):
        yield from _left_out(part, value, shown, path, definitions)
    if type(value) is list:
        first, rest, beside = (
            schema.get("prefixItems", ()),
            schema.get("items", True),
            shown if type(shown) is list else [],
        )
        for at, item in enumerate(value):
            now = beside[at] if at < len(beside) else _NONE
            yield from _left_out(first[at] if at < len(first) else rest, item, now, f"{path}[{at}]", definitions)
    elif type(value) is dict:
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        fields = shown if type(shown) is dict else {}
        for name, own in properties.items():
            if name not in value and (name in fields or (isinstance(own, dict) and "x-untold" in own)):
                yield path + segment(name), fields.get(name, _NONE)
        for name, item in value.items():
            now = fields.get(name, _NONE)
            yield from _left_out(properties.get(name, others), item, now, path + segment(name), definitions)


def _filled(schema: Any, value: Any, definitions: dict[str, Any]) -> Any:
    schema = _target(schema, definitions)
    if not isinstance(schema, dict):
        return value
    for union in ("anyOf", "oneOf"):
        fitting = [branch for branch in schema.get(union, ()) if _fits(branch, value, definitions)]
        if len(fitting) == 1:  # of several nobody but the type itself knows which one it takes
            value = _filled(fitting[0], value, definitions)
    for part in schema.get("allOf", ()):
        value = _filled(part, value, definitions)
    if type(value) is list:
        first, rest = schema.get("prefixItems", ()), schema.get("items", True)
        return [_filled(first[at] if at < len(first) else rest, item, definitions) for at, item in enumerate(value)]
    if type(value) is not dict:
        return value
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    known = all(
        name in properties for name in value
    )  # what the type alone can read, perhaps by an old name, stays as it is
    told = properties.items() if known or others is not True else ()
    whole = {name: _default(own) for name, own in told if "default" in own or "x-default" in own}
    whole = {
        name: whole[name] if name not in value else value[name] for name in properties if name in {**whole, **value}
    }
    whole |= {name: item for name, item in value.items() if name not in whole}
    return {name: _filled(properties.get(name, others), item, definitions) for name, item in whole.items()}


def _default(schema: dict[str, Any]) -> Any:
    return tagged.read(json.dumps(schema["x-default"])) if "x-default" in schema else schema["default"]


def _fits(schema: Any, value: Any, definitions: dict[str, Any]) -> bool:
    try:
        _check(schema, _as_json(value), "", definitions)
    except _Wrong:
        return False
    return True


def _as_json(value: Any) -> Any:
    """How a value of a kind JSON does not have looks to a schema: this is checked, the value itself is stored."""
    kind = type(value)
    if kind is dict:
        return {key if type(key) is str else str(key): _as_json(item) for key, item in value.items()}
    if kind in (list, tuple, set, frozenset):
        return [_as_json(item) for item in value]
    return str(value) if kind in ATOMS and kind not in (str, int, float, bool, type(None)) else value


def _check(schema: Any, value: Any, path: str, definitions: dict[str, Any]) -> None:
    if not isinstance(schema, dict):
        if schema is False:
            raise _Wrong(path, _spoken(value), "nothing here")
        return
    if "$ref" in schema:
        _check(definitions.get(str(schema["$ref"]).rpartition("/")[2], {}), value, path, definitions)
    if not _is_of_type(schema, value):
        raise _Wrong(path, _spoken(value), _describe(schema))
    if "enum" in schema and not any(_same(value, option) for option in schema["enum"]):
        raise _Wrong(path, _spoken(value), _describe(schema))
    if "const" in schema and not _same(value, schema["const"]):
        raise _Wrong(path, _spoken(value), _describe(schema))
    for part in schema.get("allOf", ()):
        _check(part, value, path, definitions)
    for union in ("anyOf", "oneOf"):
        if union in schema:
            _check_union(schema[union], value, path, definitions)
    _check_limits(schema, value, path)
    if type(value) is dict:
        _check_object(schema, value, path, definitions)
    elif type(value) is list:
        first = schema.get("prefixItems", ())
        for at, item in enumerate(value):
            part = first[at] if at < len(first) else schema.get("items", True)
            _check(part, item, f"{path}[{at}]", definitions)


def _check_union(branches: list[Any], value: Any, path: str, definitions: dict[str, Any]) -> None:
    """One branch must fit. For `oneOf` too: pydantic writes it for tagged unions, where the tag picks the branch."""
    wrongs = []
    for branch in branches:
        try:
            return _check(branch, value, path, definitions)
        except _Wrong as wrong:
            wrongs.append(wrong)
    deep = [wrong for wrong in wrongs if wrong.path != path]
    if len(deep) == 1:  # only one branch is of the right type at all, so its complaint is the useful one
        raise deep[0]
    names = dict.fromkeys(_describe(_target(branch, definitions)) for branch in branches)
    raise _Wrong(path, _spoken(value), " or ".join(names))


def _check_limits(schema: dict[str, Any], value: Any, path: str) -> None:
    if type(value) in (int, float):
        for word, fits in _LIMITS.items():
            if word in schema and not fits(value, schema[word]):
                raise _Wrong(path, _spoken(value), f"{word} {schema[word]}")
    for word, (kind, fits) in _SIZES.items():
        if word in schema and type(value) is kind and not fits(len(value), schema[word]):
            raise _Wrong(path, f"{_spoken(value)} of length {len(value)}", f"{word} {schema[word]}")
    if type(value) is str and schema.get("format") in _FORMATS:
        try:
            shape_of(_FORMATS[schema["format"]]).revive(value, path)
        except NotStorable:
            raise _Wrong(path, _spoken(value), _describe(schema)) from None
    if type(value) is str and "pattern" in schema:
        try:
            found = re.search(schema["pattern"], value)
        except re.error:
            return  # pydantic's patterns are those of another language; the worker will check this one
        if not found:
            raise _Wrong(path, _spoken(value), f"text that matches {schema['pattern']!r}")


def _check_object(schema: dict[str, Any], value: dict[str, Any], path: str, definitions: dict[str, Any]) -> None:
    properties = schema.get("properties", {})
    # What has fields has no others, unless it says so: some schemas leave out what nobody checked.
    others = schema.get("additionalProperties", not properties)
    for name in value:  # first: what is missing may have been misspelled
        if name not in properties and others is False:
            raise _Wrong(path + segment(name), "a name that is not known", _one_of(name, properties))
    for name in schema.get("required", ()):
        if name not in value:
            raise _Wrong(path + segment(name), "nothing", _describe(_target(properties.get(name, {}), definitions)))
    for name, item in value.items():
        _check(properties.get(name, others), item, path + segment(name), definitions)


def _one_of(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.6)
    told = f"one of: {', '.join(known)}" if known else "none"
    return f"{near[0]!r}, perhaps ({told})" if near else told


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


def _target(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, dict) and "$ref" in schema:
        return definitions.get(str(schema["$ref"]).rpartition("/")[2], {})
    return schema


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
