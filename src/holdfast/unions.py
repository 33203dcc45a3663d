"""Members of unions that are alike: which they are, and how the one that was recorded is read again.

pydantic reads data of an untagged union as the member that it fits best, and as the first of several that it fits as well. So
a field that is added to one type may turn recorded data of another into it. Where that can be, the name of the type is noted
with the data, and if the data is read as another member, it is read once more by a validator that goes by the names. A field
with a `Literal` of its own in each member tells them apart for good: there is nothing to note then.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from holdfast.tagged import Notes

_VALUES: Final = frozenset({"metadata", "default", "expected", "config", "serialization"})  # what is no schema


class _Member(NamedTuple):
    kind: type
    literals: dict[str, frozenset[Any]]  # the values that a field may have


def parts_of(schema: Any) -> Iterator[dict[str, Any]]:
    """The parts of a schema of pydantic's core: all objects in it."""
    parts, seen = [schema], set[int]()
    while parts:
        part = parts.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, list | tuple):
            parts += part
        elif isinstance(part, dict):
            yield part
            parts += [each for name, each in part.items() if name != "metadata"]


def alike(parts: list[dict[str, Any]]) -> frozenset[type]:
    """The models and dataclasses that are in a union with another one from which no `Literal` tells them apart."""
    named = {part["ref"]: part for part in parts if isinstance(part.get("ref"), str)}
    found = set[type]()
    for part in parts:
        if part.get("type") == "union" and isinstance(part.get("choices"), list):
            for one, other in itertools.combinations(_members(part["choices"], named).values(), 2):
                found |= set() if _apart(one, other) else {one.kind, other.kind}
    return frozenset(found)


def telling(parts: list[dict[str, Any]]) -> frozenset[str]:
    """The names of the fields by which members of unions are told apart: those with a `Literal` of its own in each."""
    named = {part["ref"]: part for part in parts if isinstance(part.get("ref"), str)}
    found = set[str]()
    for part in parts:
        if part.get("type") == "tagged-union" and isinstance(part.get("discriminator"), str):
            found.add(part["discriminator"])
        elif part.get("type") == "union" and isinstance(part.get("choices"), list):
            for one, other in itertools.combinations(_members(part["choices"], named).values(), 2):
                found |= _apart(one, other)
    return frozenset(found)


def _apart(one: _Member, other: _Member) -> set[str]:
    both = one.literals.keys() & other.literals.keys()
    return {name for name in both if one.literals[name].isdisjoint(other.literals[name])}


def _members(choices: list[Any], named: dict[str, Any]) -> dict[int, _Member]:
    """The choices of a union that are models or dataclasses, by their place; none of two that have one name."""
    found = {at: _member(choice, named) for at, choice in enumerate(choices)}
    members = {at: member for at, member in found.items() if member is not None}
    count = Counter(member.kind.__name__ for member in members.values())
    return {at: member for at, member in members.items() if count[member.kind.__name__] == 1}


def _member(choice: Any, named: dict[str, Any]) -> _Member | None:
    schema = _inside(choice[0] if isinstance(choice, tuple) else choice, named, ("model", "dataclass"))
    if schema is None or schema.get("root_model"):
        return None
    fields = (_inside(schema["schema"], named, ("model-fields", "dataclass-args")) or {}).get("fields", {})
    literals = {}
    for name, field in fields.items() if isinstance(fields, dict) else [(field["name"], field) for field in fields]:
        literal = _inside(field, named, ("literal",))
        if literal is not None:
            literals[name] = frozenset(literal["expected"])
    return _Member(schema["cls"], literals)


def _inside(schema: Any, named: dict[str, Any], wanted: tuple[str, ...]) -> Any:
    """The first schema of a wanted type in what is put around it: validators, defaults, names of definitions."""
    while isinstance(schema, dict) and schema.get("type") not in wanted:
        schema = named.get(schema["schema_ref"]) if schema.get("type") == "definition-ref" else schema.get("schema")
    return schema


def by_names(schema: Any, make: Callable[..., Any]) -> Callable[..., Any]:
    """A way to read plain data in which types are noted: `make` makes a validator of a schema."""
    named = {part["ref"]: part for part in parts_of(schema) if isinstance(part.get("ref"), str)}
    known: Notes = {}  # of all data that is being read now, by several threads perhaps: no two have one id

    def noted(data: Any) -> str | None:
        return known[id(data)].kind if id(data) in known else None

    changed = _changed(schema, named, noted)
    try:
        validator = make(changed, _use_prebuilt=False)  # those of models that are inside know nothing of this
    except TypeError:
        validator = make(changed)

    def read(plain: Any, notes: Notes, **options: Any) -> Any:
        known.update(notes)
        try:
            return validator.validate_python(plain, **options)
        finally:
            for each in notes:
                del known[each]

    return read


def _changed(schema: Any, named: dict[str, Any], noted: Callable[[Any], str | None]) -> Any:
    """The schema with unions that first look whether a member is noted, and then are as they were."""
    if isinstance(schema, list | tuple):
        return type(schema)(_changed(each, named, noted) for each in schema)
    if not isinstance(schema, dict):
        return schema
    made = {name: each if name in _VALUES else _changed(each, named, noted) for name, each in schema.items()}
    if made.get("type") == "union" and isinstance(made.get("choices"), list):
        choices = made["choices"]
        members = {
            member.kind.__name__: choices[at][0] if isinstance(choices[at], tuple) else choices[at]
            for at, member in _members(schema["choices"], named).items()
        }
        if members:
            as_noted = {"type": "tagged-union", "discriminator": noted, "choices": members}
            own = {name: made.pop(name) for name in ("ref", "metadata", "serialization") if name in made}
            return {"type": "union", "mode": "left_to_right", "choices": [as_noted, made], **own}
    return made
