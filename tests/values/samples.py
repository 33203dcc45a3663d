"""What the tests of values share: values of every plain kind, some types, and a comparison that is not ours."""

from __future__ import annotations

import dataclasses
import enum
import sqlite3
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from holdfast.errors import NotStorable
from holdfast.values.codec import shape_of

relaxed = settings(deadline=None)  # the first value of a type builds its validator, which takes its time

BERLIN = ZoneInfo("Europe/Berlin")


def exactly(value: Any) -> Any:
    """A picture of a value that differs whenever type, order or any part of it differs; no code of ours is in it."""
    kind = type(value).__name__
    if isinstance(value, dict):
        return kind, [(exactly(key), exactly(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return kind, [exactly(item) for item in value]
    if isinstance(value, set | frozenset):
        return kind, sorted((exactly(item) for item in value), key=repr)
    if isinstance(value, datetime | time):
        return kind, repr(value.replace(tzinfo=None)), value.fold, str(value.tzinfo), str(value.utcoffset())
    return kind, repr(value)


zones = st.sampled_from(
    [None, UTC, timezone(timedelta(hours=-3, seconds=7)), timezone(timedelta(hours=1), "CET"), BERLIN]
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters()), st.text(alphabet="$a\ud800"),
    st.binary(max_size=20), st.decimals(allow_nan=True), st.uuids(), st.complex_numbers(), st.timedeltas(), st.dates(),
    st.builds(lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), st.datetimes(), zones, st.integers(0, 1)),
    st.builds(lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), st.times(), zones, st.integers(0, 1)),
).filter(lambda value: not (isinstance(value, Decimal) and value.is_snan()))  # fmt: skip
hashable = st.recursive(
    scalars,
    lambda part: st.one_of(st.lists(part, max_size=3).map(tuple), st.frozensets(part, max_size=3)),
    max_leaves=4,
)
values = st.recursive(
    st.one_of(scalars, st.sets(hashable, max_size=4), st.binary(max_size=8).map(bytearray)),
    lambda part: st.one_of(
        st.lists(part, max_size=4),
        st.lists(part, max_size=3).map(tuple),
        st.dictionaries(st.text(alphabet=["$", "a", "é"], max_size=3), part, max_size=3),
        st.dictionaries(hashable, part, max_size=3),
    ),
    max_leaves=12,
)


class Color(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Ticket:
    title: str
    tags: list[str] = dataclasses.field(default_factory=list)
    cost: float = 0.0


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Tree(pydantic.BaseModel):
    child: Tree | None = None


class Holder(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    items: list[Any] = []
    conn: sqlite3.Connection | None = None


class Point(NamedTuple):
    x: int
    label: str = "p"


def refusal(annotation: Any, value: Any) -> str:
    with pytest.raises(NotStorable) as caught:
        shape_of(annotation).store(value)
    assert type(caught.value) is NotStorable  # its name is what users see in records
    return str(caught.value)
