"""Members of unions that are alike: which they are, and how the one that was recorded is read again.

pydantic reads data of an untagged union as the member that it fits best, and as the first of several that it fits as well. So
a field that is added to one type may turn recorded data of another into it, also if they are in lists or dicts that are the
members (`list[Paid] | list[Due]`). Where that can be, the name of the type is noted with the data, and if the data is read as
something else, it is read once more by a validator in which each type refuses what is noted as another. A field with a `Literal`
of its own in each member tells them apart for good: there is nothing to note then.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from holdfast.values.tagged import Notes
from holdfast.values.text import cut

_VALUES: Final = frozenset({"metadata", "default", "expected", "config", "serialization"})  # what is no schema
_STRUCTURES: Final = (
    "model",
    "dataclass",
    "named-tuple",
    "call",
)  # the last makes named tuples in older releases of pydantic
_EARLY: Final = ("function-before", "function-wrap")  # validators that may make other data of it
_ROWS: Final = ("list", "tuple", "set", "frozenset")
_Path = tuple[str, ...]


class _Member(NamedTuple):
    kind: type | None  # None for what takes other data as well: a dict, or `Any`
    literals: dict[str, frozenset[Any]]  # the values that a field may have
    anything: bool = False  # also lists of such, and whatever they hold


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
    """The models, dataclasses and named tuples that are in a union with another one from which no `Literal` tells them apart."""
    return frozenset(each.kind for pair in _pairs(parts) if not _apart(*pair) for each in pair if each.kind is not None)


def telling(parts: list[dict[str, Any]]) -> frozenset[str]:
    """The names of the fields by which members of unions are told apart: those with a `Literal` of its own in each."""
    found = set[str]().union(*(_apart(*pair) for pair in _pairs(parts)))
    for part in parts:
        if part.get("type") == "tagged-union" and isinstance(part.get("discriminator"), str):
            found.add(part["discriminator"])
    return frozenset(found)


def _apart(one: _Member, other: _Member) -> set[str]:
    both = one.literals.keys() & other.literals.keys()
    return {name for name in both if one.literals[name].isdisjoint(other.literals[name])}


def _pairs(parts: list[dict[str, Any]]) -> Iterator[tuple[_Member, _Member]]:
    """The types in different choices of a union that stand at the same place there. None of two that have one name."""
    named = _named(parts)
    for part in parts:
        if part.get("type") != "union" or not isinstance(part.get("choices"), list):
            continue
        choices = [list(_places(choice, named)) for choice in part["choices"]]
        kinds = defaultdict[str, set[type]](set)
        for _, member in itertools.chain(*choices):
            if member.kind is not None:
                kinds[member.kind.__name__].add(member.kind)
        for one, other in itertools.combinations(choices, 2):
            for (path, first), (place, second) in itertools.product(one, other):
                known = [each.kind for each in (first, second) if each.kind is not None]
                meet = path == place or (first.anything and place[: len(path)] == path)
                meet = meet or (second.anything and path[: len(place)] == place)
                if meet and first.kind is not second.kind and all(len(kinds[kind.__name__]) == 1 for kind in known):
                    yield first, second


def _named(parts: Any) -> dict[str, Any]:
    return {part["ref"]: part for part in parts if isinstance(part.get("ref"), str)}


def _places(
    schema: Any, named: dict[str, Any], path: _Path = (), seen: frozenset[str] = frozenset()
) -> Iterator[tuple[_Path, _Member]]:
    """The types in a choice of a union, each with the lists and dicts that it is in. What is in other types is not looked at."""
    schema = schema[0] if isinstance(schema, tuple) else schema
    if not isinstance(schema, dict):
        return
    kind, inside = schema.get("type"), list[Any]()
    if kind == "definition-ref":
        ref = schema["schema_ref"]
        inside, seen = [] if ref in seen else [named.get(ref)], seen | {ref}
    elif kind in _STRUCTURES:
        member = _member(schema, named)
        if member is not None:
            yield path, member
    elif kind in _ROWS:
        items = schema.get("items_schema")
        inside, path = items if isinstance(items, list) else [items], (*path, "[]")
    elif kind in ("dict", "typed-dict", "any"):
        yield path, _Member(None, {}, kind == "any")
        inside, path = [schema.get("values_schema")], (*path, "{}")
    elif kind in ("union", "tagged-union"):
        choices = schema["choices"]
        inside = list(choices.values() if isinstance(choices, dict) else choices)
    else:
        inside = [schema.get(name) for name in ("schema", "lax_schema", "python_schema")]
    for each in inside:
        yield from _places(each, named, path, seen)


def _member(schema: Any, named: dict[str, Any]) -> _Member | None:
    schema = _inside(schema, named, _STRUCTURES)
    if schema is None or schema.get("root_model"):
        return None
    if schema["type"] in ("named-tuple", "call"):
        kind = schema.get("cls", schema.get("function"))
        return _Member(kind, {}) if isinstance(kind, type) and hasattr(kind, "_fields") else None
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
    known: Notes = {}  # of all data that is being read now, by several threads perhaps: no two have one id

    def check(name: str) -> Callable[[Any], Any]:
        def checked(data: Any) -> Any:
            noted = known[id(data)].kind if id(data) in known else ""
            if noted not in ("", name):
                raise ValueError(f"was recorded as {cut(noted, 200)!r}")
            return data

        return checked

    changed = _changed(schema, _named(parts_of(schema)), check)
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


def _changed(schema: Any, named: dict[str, Any], check: Callable[[str], Callable[[Any], Any]]) -> Any:
    """The schema with types that refuse what is noted as another, before any validator of theirs sees it."""
    if isinstance(schema, list | tuple):
        return type(schema)(_changed(each, named, check) for each in schema)
    if not isinstance(schema, dict):
        return schema
    made = {name: each if name in _VALUES else _changed(each, named, check) for name, each in schema.items()}
    member = _member(schema, named) if made.get("type") in (*_STRUCTURES, *_EARLY) else None
    if member is None or member.kind is None:
        return made
    own = {"ref": made.pop("ref")} if "ref" in made else {}
    function = {"type": "no-info", "function": check(member.kind.__name__)}
    return {"type": "function-before", "function": function, "schema": made, **own}
