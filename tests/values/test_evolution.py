"""Random types that change: what was recorded with the old ones is read as it was with the new ones."""

from __future__ import annotations

import dataclasses
import enum
import random
from collections import namedtuple
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, Union

import pydantic
import pytest

from holdfast.values import codec, tagged
from holdfast.values.codec import shape_of
from holdfast.values.sameness import difference


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


ATOMS: dict[Any, list[Any]] = {
    int: [0, 7, 2**70],
    str: ["", "$unset", '{"$of":["S1",{}]}'],
    bool: [True, False],
    Decimal: [Decimal("1.50"), Decimal(0)],
    bytes: [b"\xff"],
    datetime: [datetime(2024, 1, 1, tzinfo=UTC)],
    Color: list(Color),
    Literal["a", "b"]: ["a", "b"],
    Any: [None, {"$unset": [["a"], {"a": 1}]}, {"$names": [["x"], [1]]}, {1: (2,)}, {"a": {"$tuple": []}}],
}


@dataclasses.dataclass
class Struct:
    """A type of the user's as one deploy has it. A field is its name, its type, its default if it has one, and its old name."""

    kind: str
    fields: list[tuple[str, Any, Any, str | None]]


NONE = object()


class Types:
    """Random types and values: both are plain descriptions, so that each deploy can make its own classes of them."""

    def __init__(self, seed: int) -> None:
        self.random, self.structs = random.Random(seed), list[Struct]()

    def hint(self, depth: int) -> Any:
        choice = self.random.choice
        kind = choice(["atom", "list", "dict", "optional", "union", "struct", "struct"]) if depth else "atom"
        if kind == "atom":
            return kind, choice(list(ATOMS))
        if kind == "struct":
            return self.struct(depth - 1)
        if kind == "union":
            return kind, *(self.struct(depth - 1) for _ in range(2))
        return kind, self.hint(depth - 1)

    def struct(self, depth: int) -> Any:
        fields = []
        for name in self.random.sample("abcd", self.random.randint(1, 3)):
            hint = self.hint(depth)
            fields.append((name, hint, self.value(hint) if self.random.random() < 0.6 else NONE, None))
        kind = self.random.choice(["model", "model", "dataclass", "named tuple"])
        self.structs.append(Struct(kind, sorted(fields, key=lambda field: field[2] is not NONE)))
        return "struct", len(self.structs) - 1

    def value(self, hint: Any) -> Any:
        kind, *parts = hint
        if kind == "atom":
            return "atom", self.random.choice(ATOMS[parts[0]])
        if kind == "list":
            return kind, [self.value(parts[0]) for _ in range(self.random.randint(0, 2))]
        if kind == "dict":
            return kind, {
                key: self.value(parts[0]) for key in self.random.sample(["x", "$of"], self.random.randint(0, 2))
            }
        if kind == "optional":
            return self.random.choice([("atom", None), self.value(parts[0])])
        if kind == "union":
            return self.value(self.random.choice(parts))
        fields = self.structs[parts[0]].fields
        given = [field for field in fields if field[2] is NONE or self.random.random() < 0.5]
        return kind, parts[0], {name: self.value(part) for name, part, _, _ in given}

    def changed(self) -> list[Struct]:
        """The structs of the next deploy: each has a new field, another order, another default, or another name for one."""
        made = []
        for struct in self.structs:
            fields = list(struct.fields)
            how = self.random.choice(["add", "order", "default", "name"])
            at = self.random.randrange(len(fields))
            name, hint, default, _ = fields[at]
            if how == "add":
                fields.append(("added", ("atom", int), ("atom", 5), None))
            elif how == "order":
                fields.reverse()
                fields.sort(key=lambda field: field[2] is not NONE)
            elif how == "default" and default is not NONE:
                fields[at] = name, hint, self.value(hint), None
            elif how == "name" and struct.kind == "model":
                fields[at] = f"new_{name}", hint, default, name
            made.append(Struct(struct.kind, fields))
        return made


class Deploy:
    """The classes of one deploy."""

    def __init__(self, structs: list[Struct]) -> None:
        self.structs, self.made = structs, dict[int, Any]()

    def hint(self, hint: Any) -> Any:
        kind, *parts = hint
        if kind == "atom":
            return parts[0]
        if kind == "struct":
            return self.made.get(parts[0]) or self.struct(parts[0])
        inner = [self.hint(part) for part in parts]
        return {"list": lambda: list[inner[0]], "dict": lambda: dict[str, inner[0]], "optional": lambda: inner[0] | None,
                "union": lambda: Union[tuple(inner)]}[kind]()  # fmt: skip  # noqa: UP007

    def struct(self, number: int) -> Any:
        struct, name = self.structs[number], f"S{number}"
        rows = [(field, self.hint(hint), default, old) for field, hint, default, old in struct.fields]
        if struct.kind == "model":
            fields = {
                field: (hint, pydantic.Field(... if default is NONE else self.value(default), alias=old))
                for field, hint, default, old in rows
            }
            made = pydantic.create_model(name, __config__=pydantic.ConfigDict(populate_by_name=True), **fields)
        elif struct.kind == "dataclass":
            made = dataclasses.make_dataclass(name, [
                (field, hint) if default is NONE
                else (field, hint, dataclasses.field(default_factory=lambda default=default: self.value(default)))
                for field, hint, default, _ in rows
            ])  # fmt: skip
        else:
            defaults = [self.value(default) for _, _, default, _ in rows if default is not NONE]
            made = namedtuple(name, [row[0] for row in rows], defaults=defaults)  # type: ignore[misc]  # noqa: PYI024
            made.__annotations__ = {field: hint for field, hint, _, _ in rows}
        self.made[number] = made
        return made

    def value(self, value: Any, whole: list[Struct] | None = None) -> Any:
        """The value itself; with the structs of an earlier deploy as it was then, under today's names."""
        kind, *parts = value
        if kind == "atom":
            return parts[0]
        if kind == "list":
            return [self.value(each, whole) for each in parts[0]]
        if kind == "dict":
            return {key: self.value(each, whole) for key, each in parts[0].items()}
        number, given = parts
        if whole is not None:
            left = {name: default for name, _, default, _ in whole[number].fields if default is not NONE}
            names = {old or name: name for name, _, _, old in self.structs[number].fields}
            given = {names[name]: each for name, each in {**left, **given}.items()}
        return self.hint(("struct", number))(**{name: self.value(each, whole) for name, each in given.items()})


def given_fields(value: Any) -> Any:
    """What was given to the models in a value."""
    if isinstance(value, pydantic.BaseModel):
        names = type(value).model_fields
        return {name.removeprefix("new_") for name in value.model_fields_set}, [
            given_fields(getattr(value, name)) for name in names
        ]
    if dataclasses.is_dataclass(value):
        return [given_fields(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, dict | list | tuple):
        return [given_fields(each) for each in (value.values() if isinstance(value, dict) else value)]
    return None


@pytest.mark.slow
@pytest.mark.by_day("0", "1", "2", "3")
@pytest.mark.parametrize("seeds", range(10))
def test_what_was_recorded_is_read_as_it_was(seeds):
    """With a field added, another order, another default or another name; or it was refused when it was stored."""
    stored = 0
    for seed in range(seeds * 40, seeds * 40 + 40):
        types = Types(seed)
        hint = types.struct(3)
        value, before, after = types.value(hint), Deploy(types.structs), Deploy(types.changed())
        shape, live = shape_of(before.hint(hint)), before.value(value)
        try:
            text, copy = shape.store(live)
        except codec.NotStorable:  # the second of two types that take the same data
            continue
        stored += 1
        for again in (copy, shape.load(text)):
            assert difference(live, again) is None, seed
            assert given_fields(live) == given_fields(again), seed
        assert codec.digest(text) == codec.digest(tagged.bare(text)), seed
        assert shape.hidden(live, text) == "", seed
        found = shape_of(after.hint(hint)).load(text)
        assert difference(after.value(value, types.structs), found) is None, seed
    assert stored > 15
