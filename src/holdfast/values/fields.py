"""Fields of plain data that a type does not know: found when it has become a value, so that nothing is dropped silently.

pydantic ignores what a dataclass, model or TypedDict has no field for, unless it is told otherwise. Here the plain data is
held against the value that was made of it, part by part. A type may say that other keys are fine: by an `extra=` in its
config, or by a validator that sees the data before the fields do (`mode="before"`, `"wrap"`), which may rename them.

And the other way round: fields of a model that it was not given (`model_fields_set`). Its plain data has all of them, so
which those are is noted beside it when it is stored, and restored when it has become a model again. So is the type that it is
of, if it is a member of a union of types that may become alike.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from holdfast.values.tagged import Note, Notes
from holdfast.values.text import near, segment, type_name

_EARLY = ("before", "wrap", "plain")  # validators that see a value before its type does
_EARLY_KINDS = ("BeforeValidator", "WrapValidator", "PlainValidator")
_ROWS = (list, tuple, deque)
_NESTED = (dict, *_ROWS)


class Stranger(NamedTuple):
    """A key for which there is no field: where it is, the fields that there are, and whose, if that type has a name."""

    path: tuple[str, ...]
    key: str
    known: tuple[str, ...]
    owner: str = ""


class Fields(NamedTuple):
    """The fields of a type: what it says of the keys of its plain data."""

    attributes: Mapping[str, str]  # the attribute under which the value of a key is found
    closed: bool  # are there no others?
    opaque: frozenset[str]  # attributes that a validator of their own makes


def stranger(plain: Any, value: Any, *, aliases: bool = False) -> Stranger | None:
    """The first key of plain data that is not in the value made of it. `aliases`: fields may go by their aliases."""
    return _stranger(plain, value, aliases, ())


def _stranger(plain: Any, value: Any, aliases: bool, path: tuple[str, ...]) -> Stranger | None:
    if isinstance(plain, dict):
        fields = fields_of(_kind(value))
        if fields is None:
            return (
                _in_mapping(plain, value, aliases, path)
                if isinstance(value, dict)
                else _root(plain, value, aliases, path)
            )
        known = {**fields.attributes, **(_aliases(_kind(value)) if aliases else {})}
        for key, item in plain.items():
            attribute = known.get(key)
            if attribute is None:
                if fields.closed:
                    return Stranger(path, str(key), tuple(fields.attributes), type_name(type(value)))
            elif attribute not in fields.opaque:
                found = _stranger(item, getattr(value, attribute, None), aliases, (*path, segment(key)))
                if found is not None:
                    return found
        return None
    if isinstance(plain, list | tuple):
        if isinstance(value, list | tuple | deque) and len(value) == len(plain):
            for at, (item, made) in enumerate(zip(plain, value, strict=True)):
                found = _stranger(item, made, aliases, (*path, f"[{at}]"))
                if found is not None:
                    return found
            return None
        return _root(plain, value, aliases, path)
    return None


def left_over(places: Iterable[tuple[Any, ...]], value: Any, *, aliases: bool = False) -> Stranger | None:
    """The first of the places at which pydantic found no field for a key that is in a type which takes no others."""
    for *way, key in places:
        made, path = value, tuple[str, ...]()
        for step in way:  # names of union members and validators are among them, which lead nowhere
            made = made.root if getattr(type(made), "__pydantic_root_model__", False) else made
            fields = fields_of(_kind(made))
            if fields is not None and step in fields.attributes:
                made = getattr(made, step, None)
            elif not isinstance(made, _NESTED) or step not in (made if isinstance(made, dict) else range(len(made))):
                continue
            else:
                made = made[step]
            path = (*path, segment(step))
        fields = fields_of(_kind(made))
        known = () if fields is None else (*fields.attributes, *(_aliases(_kind(made)) if aliases else ()))
        if fields is not None and fields.closed and key not in known:
            return Stranger(path, str(key), tuple(fields.attributes), type_name(type(made)))
    return None


def is_renamed(plain: Any, value: Any) -> bool:
    """Is there a key in plain data that is an alias of a field which it lacks by its name? A type that takes any keys drops it."""
    for data, made in structures(plain, value):
        if isinstance(data, dict) and any(
            key in data and name not in data for key, name in _aliases(_kind(made)).items()
        ):
            return True
    return False


def _kind(value: Any) -> Any:
    return type(value)


def _root(plain: Any, value: Any, aliases: bool, path: tuple[str, ...]) -> Stranger | None:
    """A model that is but one value."""
    return (
        _stranger(plain, value.root, aliases, path) if getattr(type(value), "__pydantic_root_model__", False) else None
    )


def _in_mapping(plain: dict[Any, Any], value: dict[Any, Any], aliases: bool, path: tuple[str, ...]) -> Stranger | None:
    # Keys may be made into others (text into numbers); but if there are fewer of them, a TypedDict has dropped one.
    gone = next((key for key in plain if key not in value), None) if len(value) < len(plain) else None
    if gone is not None:
        return Stranger(path, str(gone), tuple(map(str, value)))
    in_order = list(value.values()) if len(value) == len(plain) else []  # validation keeps the order of keys
    for at, (key, item) in enumerate(plain.items()):
        made = value[key] if key in value else in_order[at] if in_order else None
        found = _stranger(item, made, aliases, (*path, segment(key)))
        if found is not None:
            return found
    return None


@functools.lru_cache(maxsize=4096)
def fields_of(kind: Any) -> Fields | None:
    """The fields of a dataclass or model; None for other types."""
    if getattr(kind, "__pydantic_root_model__", False):
        return None
    if dataclasses.is_dataclass(kind):
        names: Iterable[str] = kind.__dataclass_fields__  # also what only `__post_init__` is given
        config = getattr(kind, "__pydantic_config__", None) or {}
        hints = _hints(kind)
    elif hasattr(kind, "__pydantic_private__"):
        names, config = kind.model_fields, kind.model_config
        hints = {name: (field.annotation, *field.metadata) for name, field in kind.model_fields.items()}
    else:
        return None
    early, opaque = _validators(kind)
    opaque |= {name for name in names if has_own_validator(hints.get(name))}
    own_schema = "__get_pydantic_core_schema__" in vars(kind)
    return Fields({name: name for name in names}, not (early or own_schema or config.get("extra")), frozenset(opaque))


@functools.lru_cache(maxsize=4096)
def made_fields(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass that it makes itself (`init=False`), with their types."""
    if not dataclasses.is_dataclass(kind):
        return {}
    hints = _hints(kind)
    return {field.name: hints.get(field.name, Any) for field in dataclasses.fields(kind) if not field.init}


def _hints(kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        return {}


def _validators(kind: Any) -> tuple[bool, set[str]]:
    """Does a validator see the data of this type before its fields do, and which fields have such a one?"""
    found = getattr(kind, "__pydantic_decorators__", None)
    if found is None:
        return False, set()
    early = any(each.info.mode in ("before", "wrap") for each in found.model_validators.values())
    early = early or any(each.info.mode == "before" for each in found.root_validators.values())
    fields = {
        field
        for each in (*found.field_validators.values(), *found.validators.values())
        if each.info.mode in _EARLY
        for field in each.info.fields
    }
    return early, set(getattr(kind, "model_fields", ())) if "*" in fields else fields


def has_own_validator(annotation: Any) -> bool:
    """Is there a validator in the annotation that sees the value before its type does?"""
    if type(annotation).__name__ in _EARLY_KINDS:
        return True
    parts = (
        annotation
        if type(annotation) is tuple
        else (*typing.get_args(annotation), *getattr(annotation, "__metadata__", ()))
    )
    return any(has_own_validator(part) for part in parts)


@functools.lru_cache(maxsize=4096)
def _aliases(kind: Any) -> dict[str, str]:
    """Map the other names under which fields may be given to the fields."""
    found: dict[str, str] = {}
    fields = getattr(kind, "model_fields", None) or getattr(kind, "__pydantic_fields__", None) or {}
    for name, field in fields.items():
        for alias in (field.alias, field.validation_alias):
            for each in getattr(alias, "choices", [alias]):
                path = getattr(each, "path", [each])
                if isinstance(path[0], str) and path[0] not in fields:
                    found[path[0]] = name
    return found


def notes_of(plain: Any, value: Any, kinds: Collection[type]) -> Notes:
    """Note of the plain data of a value the fields of models that nobody set, and its types that are among `kinds`."""
    notes: Notes = {}
    for data, made in structures(plain, value):
        kind, given = type(made), getattr(made, "__pydantic_fields_set__", None)
        if not isinstance(data, dict):
            notes[id(data)] = Note(data, kind=kind.__name__ if kind in kinds else "", names=kind._fields)
            continue
        if given is not None and not given >= data.keys():
            known = kind.model_fields
            names = [name for name in data if name not in given and name in known]
            if names:
                notes[id(data)] = Note(data, names)
        if kind in kinds:
            notes[id(data)] = notes.get(id(data), Note(data))._replace(kind=kind.__name__)
    return notes


def restore_notes(plain: Any, value: Any, notes: Notes) -> str:
    """Let the models in a value that was made of plain data know which fields nobody set. The name of a type that it is not of."""
    other = ""
    for data, made in _pairs(plain, value):
        note = notes.get(id(data))
        if note is None:
            continue
        # What a validator of the type's own has made of it, a number perhaps, is not looked into.
        if note.kind and (type(made) is dict or is_structure(type(made))) and note.kind != type(made).__name__:
            other = other or note.kind
        if (note.unset or note.default) and hasattr(made, "__pydantic_fields_set__"):
            aliases, known = _aliases(_kind(made)), type(made).model_fields
            given = made.__pydantic_fields_set__.union(name for name in note.default if name in known)
            given = given.difference(note.unset, [aliases.get(name, name) for name in note.unset])
            object.__setattr__(made, "__pydantic_fields_set__", given)  # so that a frozen one takes it too
    return other


def structures(plain: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """The models, dataclasses and named tuples in a value, each with its plain data, as far as the one is made like the other."""
    return (pair for pair in _pairs(plain, value) if is_structure(type(pair[1])))


def is_structure(kind: Any) -> bool:
    """Is this type a model, a dataclass or a named tuple?"""
    return any(hasattr(kind, each) for each in ("__pydantic_fields_set__", "__dataclass_fields__", "_fields"))


def _pairs(plain: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """The dicts and tuples in plain data, each with what was made of it."""
    pairs = [(plain, value)]
    while pairs:
        data, made = pairs.pop()
        kind = type(made)
        if getattr(kind, "__pydantic_root_model__", False):
            pairs.append((data, made.root))
        elif isinstance(data, dict):
            yield data, made
            nested = [(key, item) for key, item in data.items() if isinstance(item, _NESTED)]
            if nested:
                parts = _parts(data, made)
                pairs += [(item, parts[key]) for key, item in nested if key in parts]
        elif isinstance(data, _ROWS) and isinstance(made, _ROWS) and len(data) == len(made):
            if data and type(data) is tuple:
                yield data, made
            pairs += [(item, other) for item, other in zip(data, made, strict=True) if isinstance(item, _NESTED)]


def left_away(plain: Any, value: Any) -> str:
    """The first field of a model or dataclass that its plain data does not have, though it has no other name there; "" if none.

    Its type leaves it out: `Field(exclude=True)`, a serializer of its own.
    """
    for data, made in structures(plain, value):
        if isinstance(data, dict) and fields_of(_kind(made)) is not None:
            names = getattr(type(made), "model_fields", None) or [field.name for field in dataclasses.fields(made)]
            gone: list[str] = [name for name in names if name not in data]
            if len(gone) > sum(key not in names for key in data if key not in (_extra(made) or ())):
                return gone[0]
    return ""


def _extra(made: Any) -> Mapping[str, Any] | None:
    return getattr(made, "__pydantic_extra__", None)


def _parts(data: dict[Any, Any], made: Any) -> Mapping[Any, Any]:
    """The parts of what was made of a dict, by its keys."""
    if isinstance(made, dict):  # keys may have been made into others, but their order is kept
        return (
            made
            if made.keys() >= data.keys() or len(made) != len(data)
            else dict(zip(data, made.values(), strict=True))
        )
    if isinstance(made, tuple) and hasattr(made, "_asdict"):
        return dict(made._asdict())
    if dataclasses.is_dataclass(made):
        return {name: getattr(made, name, None) for name in data if name in made.__dataclass_fields__}
    own: dict[str, Any] = getattr(made, "__dict__", {})
    more, aliases = getattr(made, "__pydantic_extra__", None) or {}, _aliases(_kind(made))
    return {**{alias: own.get(name) for alias, name in aliases.items()}, **more, **own} if more or aliases else own


def advice(key: str, known: Iterable[str]) -> str:
    """Guess the key that was meant by a key that does not exist."""
    names = list(known)
    found = near(key, names)
    told = f"the fields are: {', '.join(names)}" if names else "there are no fields"
    return f"did you mean {found!r}? ({told})" if found else told
