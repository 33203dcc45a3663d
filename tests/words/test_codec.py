"""Values: what is stored comes back the same, or is refused with its path and the reason."""

from __future__ import annotations

import collections
import dataclasses
import enum
import ipaddress
import json
import math
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.codec import (
    BLOB_BYTES,
    DEFAULT_LIMIT_BYTES,
    DEPTH_LIMIT,
    UNTYPED,
    checked_size,
    digest,
    preview,
    shape_of,
)
from holdfast.errors import NotStorable

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


zones = st.sampled_from([None, UTC, timezone(timedelta(hours=-3, seconds=7)), timezone(timedelta(hours=1), "CET"), BERLIN])
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters()), st.text(alphabet=["$", "a", "\ud800"]),
    st.binary(max_size=20), st.decimals(allow_nan=True), st.uuids(), st.complex_numbers(), st.timedeltas(), st.dates(),
    st.builds(lambda moment, zone, fold: moment.replace(tzinfo=zone, fold=fold), st.datetimes(), zones, st.integers(0, 1)),
    st.builds(lambda moment, zone, fold: moment.replace(tzinfo=zone, fold=fold), st.times(), zones, st.integers(0, 1)),
).filter(lambda value: not (isinstance(value, Decimal) and value.is_snan()))  # fmt: skip
hashable = st.recursive(scalars, lambda part: st.one_of(st.lists(part, max_size=3).map(tuple), st.frozensets(part, max_size=3)), max_leaves=4)
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


@dataclasses.dataclass(frozen=True)
class Key:
    number: int


class Account(pydantic.BaseModel):
    name: str
    password: pydantic.SecretStr = pydantic.SecretStr("")
    note: Any = None


class Base(pydantic.BaseModel):
    a: int = 1


class Sub(Base):
    b: int = 2


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    lives: int = 1


@dataclasses.dataclass
class Left:
    x: int


@dataclasses.dataclass
class Right:
    x: int


class Holder(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    items: list[Any] = []
    conn: sqlite3.Connection | None = None


class Aliased(pydantic.BaseModel):
    inner: int = pydantic.Field(validation_alias="in", serialization_alias="out")
    other: int = pydantic.Field(alias="inner", default=4)

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return self.inner * 2


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")
    color: Color
    path: pathlib.Path
    when: datetime


class Private(pydantic.BaseModel):
    x: int = 1
    _hidden: int = pydantic.PrivateAttr(default=0)


class Positive(pydantic.BaseModel):
    total: int

    @pydantic.field_validator("total")
    @classmethod
    def check(cls, total: int) -> int:
        if total < 0:
            raise ValueError("total must not be negative")
        return total


class Restless(pydantic.BaseModel):
    x: int

    @pydantic.field_serializer("x")
    def more(self, x: int) -> int:
        return x + 1


class Tree(pydantic.BaseModel):
    child: Tree | None = None


class Point(NamedTuple):
    x: int
    label: str = "p"


class State(TypedDict, total=False):
    messages: list[str]
    count: int


UserId = NewType("UserId", int)


def assert_back(annotation: Any, value: Any) -> str:
    shape = shape_of(annotation)
    text, copy = shape.store(value)
    assert text.isascii() and json.loads(text) is not NotImplemented
    for back in (copy, shape.load(text)):
        assert type(back) is type(value)
        assert back == value or value != value
    assert shape.store(copy)[0] == text
    return text


def refusal(annotation: Any, value: Any) -> str:
    with pytest.raises(NotStorable) as caught:
        shape_of(annotation).store(value)
    assert type(caught.value) is NotStorable  # its name is what users see in records
    return str(caught.value)


# --- plain values ---


@given(values)
def test_any_plain_value_comes_back_exactly(value: Any) -> None:
    """Whatever is nested in whatever, type, order, sign, zone and fold come back, and the text is stable."""
    text, copy = UNTYPED.store(value)
    assert text.isascii()
    assert exactly(UNTYPED.load(text)) == exactly(value) == exactly(copy)
    assert UNTYPED.store(copy)[0] == text
    assert digest(text) == digest(UNTYPED.store(copy)[0])
    assert "\n" not in preview(text) and len(preview(text)) <= 120


@given(values, values)
def test_different_values_have_different_texts(one: Any, other: Any) -> None:
    """No two values share a text, so no value can be read as another."""
    assert (UNTYPED.store(one)[0] == UNTYPED.store(other)[0]) == (exactly(one) == exactly(other))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [None, True, 1.5]}, '{"b":1,"a":[null,true,1.5]}'),
        ((1, "é"), '{"$tuple":[1,"\\u00e9"]}'),
        ({"b", "a"}, '{"$set":["a","b"]}'),
        ("\ud800", '"\\ud800"'),
        (-0.0, "-0.0"),
        (math.nan, '{"$float":"nan"}'),
        (-math.inf, '{"$float":"-inf"}'),
        (2**63 - 1, "9223372036854775807"),
        (2**63, '{"$int":"0x8000000000000000"}'),
        (-(2**63) - 1, '{"$int":"-0x8000000000000001"}'),
        (b"\xff", '{"$bytes":"/w=="}'),
        ({1: "x", "1": "y"}, '{"$map":[[1,"x"],["1","y"]]}'),
        (timedelta(days=-1, microseconds=3), '{"$timedelta":[-1,0,3]}'),
        (datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1), '{"$datetime":{"at":"2024-10-27T02:30:00","zone":"Europe/Berlin","fold":1}}'),
        (datetime(2024, 1, 1, tzinfo=UTC), '{"$datetime":"2024-01-01T00:00:00+00:00"}'),
        (date(2024, 1, 2), '{"$date":"2024-01-02"}'),
        (Decimal("1.10"), '{"$decimal":"1.10"}'),
        (complex(0, math.inf), '{"$complex":[0.0,{"$float":"inf"}]}'),
        (Decimal("sNaN"), '{"$decimal":"sNaN"}'),
    ],
)  # fmt: skip
def test_the_text_of_each_kind_is_fixed(value: Any, text: str) -> None:
    """The format is a promise to stores and other readers: these texts never change."""
    assert UNTYPED.store(value)[0] == text
    assert exactly(UNTYPED.load(text)) == exactly(value)


@pytest.mark.parametrize("key", ["$tuple", "$map", "$anything", "$"])
def test_a_dict_of_the_users_is_never_taken_for_a_tag(key: str) -> None:
    """A dict that looks like a tag, even one read from JSON, is stored as the dict it is."""
    forged = json.loads(json.dumps({key: [[1, 2]]}))
    assert UNTYPED.load(UNTYPED.store(forged)[0]) == forged
    assert UNTYPED.load(UNTYPED.store([{"x": forged}])[0]) == [{"x": forged}]


def test_a_long_int_is_beyond_no_limit_of_python() -> None:
    """An int of more digits than Python will print is stored, read and previewed."""
    value = 7**20_000
    assert UNTYPED.load(UNTYPED.store(value)[0]) == value
    assert preview(UNTYPED.store(value)[0]).startswith("0x")


def test_two_nans_as_keys_stay_two() -> None:
    """Keys that equal nothing are not merged."""
    assert len(UNTYPED.load(UNTYPED.store({math.nan: 1, float("nan"): 2})[0])) == 2


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[1,]", "nope", "NaN", "Infinity", '"\n"', "[1] 2", '{"$unknown":1}', '{"$tuple":"ab"}', '{"$tuple":{"$set":[]}}',
        '{"$set":[[]]}', '{"$set":[1,1]}', '{"$map":[[1]]}', '{"$map":[["a",1],["a",2]]}', '{"$map":{"a":1}}', '{"$map":["ab"]}',
        '{"$int":"12"}', '{"$int":"0x_1"}', '{"$int":3}', '{"$float":"1.0"}', '{"$float":3}', '{"$bytes":"%%"}', '{"$bytes":7}',
        '{"$decimal":"x"}', '{"$uuid":"x"}', '{"$date":"x"}', '{"$date":7}', '{"$timedelta":[1,2]}', '{"$timedelta":[1,2,true]}',
        '{"$timedelta":[9999999999,0,0]}', '{"$complex":[1,2]}', '{"$datetime":{"at":"2024-01-01T00:00:00","zone":"../etc/passwd"}}',
        '{"$datetime":{"at":"2024-01-01T00:00:00","zone":"Nowhere/City"}}', '{"$datetime":{"at":"2024-01-01T00:00:00","run":"x"}}',
        '{"$datetime":{"at":"2024-01-01T00:00:00","zone":"Europe"}}', '{"\\u0024nope":1}', '{"$time":{"zone":"UTC"}}', "1" * 5000,
        "[" * 100_000, '{"$tuple":[' * 50_000, "[" * 300 + "]" * 300, '{"a":' * 300 + "1" + "}" * 300,
        '{"$tuple":[' * 250 + "]}" * 250, '{"$frozenset":[' * 250 + "]}" * 250,
    ],
)  # fmt: skip
def test_text_that_nothing_wrote_is_refused(text: str) -> None:
    """Malformed, unknown, duplicate, hostile or bottomless text is `NotStorable`, never another error."""
    with pytest.raises(NotStorable):
        UNTYPED.load(text)
    assert len(digest(text)) == 32 and len(preview(text)) <= 120


def test_a_tag_cannot_be_hidden_behind_an_escape() -> None:
    """The quick path for text without tags sees a tag that is spelled with an escape."""
    assert UNTYPED.load('{"\\u0024tuple":[1]}') == (1,)


def test_reading_never_runs_code() -> None:
    """Nothing that text can say imports a module, calls a function or unpickles."""
    before = set(sys.modules)
    for text in ('{"$import":"os.system"}', '{"$py/reduce":["os.system",["true"]]}', '{"__reduce__":["os.system"]}', '{"$bytes":"gASVBg=="}'):
        try:
            assert isinstance(UNTYPED.load(text), dict | bytes)
        except NotStorable:
            pass
    assert set(sys.modules) == before


# --- refusals of plain values ---


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_the_depth_limit_is_exact() -> None:
    """A value as deep as the limit is stored and read, one deeper is refused with a shortened path."""
    assert UNTYPED.load(UNTYPED.store(nested(DEPTH_LIMIT))[0]) == nested(DEPTH_LIMIT)
    message = refusal(Any, nested(DEPTH_LIMIT + 1))
    assert message.startswith("result[0][0]") and "…" in message and len(message) < 200


@pytest.mark.parametrize("make", [lambda: nested(100_000), lambda: {"k": nested(5_000)}])
def test_a_bottomless_value_is_refused(make: Callable[[], Any]) -> None:
    """No depth leads to a RecursionError."""
    assert "deep" in refusal(Any, make())
    assert "deep" in refusal(list[Any], [make()])


def test_a_value_that_contains_itself_is_refused() -> None:
    """Cycles are found, in plain values and in models."""
    ring: list[Any] = []
    ring.append({"again": ring})
    assert "contains itself" in refusal(Any, ring)
    tree = Tree()
    tree.child = tree
    assert "contains itself" in refusal(Tree, tree)


def test_a_small_value_that_would_be_a_huge_text_is_refused() -> None:
    """Thirty lists that each hold the one before twice do not fill the memory."""
    value: list[Any] = ["x"]
    for _ in range(30):
        value = [value, value]
    assert "more than" in refusal(Any, value)


def test_the_refusal_names_path_and_advice() -> None:
    """The message is the one the contract promises."""
    value = {"items": [1, 2, 3, {"conn": sqlite3.connect(":memory:")}]}
    expected = "result.items[3].conn: sqlite3.Connection cannot be stored; return plain data, a dataclass or a pydantic type"
    assert refusal(Any, value) == expected
    assert refusal(Holder, Holder(items=[1, 2, 3, {"conn": value["items"][3]["conn"]}])) == expected  # type: ignore[index]
    assert refusal(Any, {"odd key": {2: object()}}).startswith("result['odd key'][2]: object cannot")


@pytest.mark.parametrize("value", [Ticket("x"), Cat(), Color.RED, Level.LOW])
def test_a_typed_value_without_its_annotation_is_refused_with_advice(value: Any) -> None:
    """Dataclasses, models and enums do not silently become dicts and strings."""
    for annotation in (Any, list, dict[str, Any], object):
        nest = [value] if annotation is list else {"k": value}
        assert "annotate the step's return type" in refusal(annotation, nest)


@pytest.mark.parametrize("value", [collections.OrderedDict(a=1), collections.Counter("a"), Point(1), pathlib.Path("x"), range(3), iter([1]), Ticket, len])
def test_subclasses_and_strangers_are_refused(value: Any) -> None:
    """Nothing loses its class in silence."""
    assert refusal(Any, {"k": value}).startswith("result.k: ")


def test_a_foreign_time_zone_is_refused() -> None:
    """A zone class that cannot be rebuilt is named, with what to use."""

    class Zone(timezone.__base__):  # type: ignore[name-defined, misc]
        def utcoffset(self, _: Any) -> timedelta:
            return timedelta(0)

    assert "use zoneinfo.ZoneInfo" in refusal(Any, datetime(2024, 1, 1, tzinfo=Zone()))


# --- typed values ---


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (str, "x", '"x"'),
        (int, True, "true"),
        (float, 3, "3"),
        (None, None, "null"),
        (list[str], ["a"], '["a"]'),
        (dict[str, int | None], {"a": None}, '{"a":null}'),
        (dict[int, str], {1: "a"}, '{"$map":[[1,"a"]]}'),
        (tuple[int, ...], (1, 2), '{"$tuple":[1,2]}'),
        (tuple[int, str], (1, "a"), '{"$tuple":[1,"a"]}'),
        (tuple[()], (), '{"$tuple":[]}'),
        (tuple, (1, "a"), '{"$tuple":[1,"a"]}'),
        (set[int], {2, 1}, '{"$set":[1,2]}'),
        (Sequence[str], ("a",), '{"$tuple":["a"]}'),
        (Iterable[str], ["a"], '["a"]'),
        (Collection[int], {1}, '{"$set":[1]}'),
        (Iterable[Ticket], [Ticket("x")], '[{"title":"x"}]'),
        (Mapping[str, Ticket], {"a": Ticket("x")}, '{"a":{"title":"x"}}'),
        (Literal["a", 1], 1, "1"),
        (UserId, 3, "3"),
        (State, {"count": 1}, '{"count":1}'),
        (bytearray, bytearray(b"a"), '{"$bytearray":"YQ=="}'),
        (Decimal, Decimal("NaN"), '{"$decimal":"NaN"}'),
        (bytes, b"\xff\xfe", '{"$bytes":"//4="}'),
        (Ticket, Ticket("x"), '{"title":"x"}'),
        (Ticket, Ticket("x", ["a"], 1.5), '{"title":"x","tags":["a"],"cost":1.5}'),
        (list[Ticket] | None, [Ticket("x", cost=math.inf)], '[{"title":"x","cost":{"$float":"inf"}}]'),
        (Color, Color.RED, '"red"'),
        (Color, Color.PAIR, '{"$tuple":[1,2]}'),
        (dict[Color, int], {Color.RED: 1}, '{"$map":[["red",1]]}'),
        (set[Color], {Color.RED}, '{"$set":["red"]}'),
        (pathlib.Path, pathlib.Path("/x"), '"/x"'),
        (pydantic.HttpUrl, pydantic.HttpUrl("https://a.b/"), '"https://a.b/"'),
        (ipaddress.IPv4Address, ipaddress.IPv4Address("1.2.3.4"), '"1.2.3.4"'),
        (ZoneInfo, BERLIN, '"Europe/Berlin"'),
        (Point, Point(1), '{"$tuple":[1,"p"]}'),
        (collections.Counter[str], collections.Counter("aab"), '{"a":2,"b":1}'),
        (collections.OrderedDict[str, int], collections.OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
        (collections.deque[int], collections.deque([1]), "[1]"),
        (Account, Account(name="a", note=(1, {2: b"\xff"})), '{"name":"a","note":{"$tuple":[1,{"$map":[[2,{"$bytes":"/w=="}]]}]}}'),
        (Aliased, Aliased(**{"in": 3, "inner": 5}), '{"inner":3,"other":5}'),
        (Annotated[Cat | Dog, pydantic.Field(discriminator="kind")], Dog(), '{"kind":"dog","lives":1}'),
        (Cat | Dog, Dog(), '{"kind":"dog","lives":1}'),
        (Private, Private(), "{}"),
    ],
)  # fmt: skip
def test_an_annotated_value_comes_back_as_itself(annotation: Any, value: Any, text: str) -> None:
    """Types of every sort go through the one text format; defaults are left out unless a union needs them."""
    assert assert_back(annotation, value) == text


def test_a_strict_model_comes_back() -> None:
    """A model that wants exact types in code is read from its text all the same, zone key and fold included."""
    value = Strict(color=Color.PAIR, path=pathlib.Path("a"), when=datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1))
    assert_back(Strict, value)
    back = shape_of(Strict).load(shape_of(Strict).store(value)[0])
    assert (back.when.fold, back.when.tzinfo.key) == (1, "Europe/Berlin")


def test_a_time_that_pydantic_parsed_can_be_stored() -> None:
    """pydantic's own zone class is a fixed offset, and comes back as one."""
    when = pydantic.TypeAdapter(datetime).validate_python("2024-01-01T00:00:00+02:00")
    assert UNTYPED.load(UNTYPED.store(when)[0]) == when
    assert shape_of(datetime).store(when)[1].utcoffset() == timedelta(hours=2)


def test_an_int_where_a_float_is_annotated_is_accepted() -> None:
    """Type checkers take an int for a float, so it is stored; in a dataclass it comes back as the same number."""
    assert shape_of(float).store(3) == ("3", 3)
    text, copy = shape_of(Ticket).store(Ticket("x", cost=3))
    assert text == '{"title":"x","cost":3.0}' and type(copy.cost) is float
    assert "would come back" in refusal(Ticket, Ticket("x", cost=2**70 + 1))


def test_a_default_that_only_equals_the_value_is_not_used_for_it() -> None:
    """`True` is not left out because the default is `1`."""
    Loose = pydantic.create_model("Loose", x=(Any, 1))  # noqa: N806
    text, copy = shape_of(Loose).store(Loose(x=True))
    assert text == '{"x":true}' and copy.x is True


def test_a_new_field_with_a_default_changes_no_text_and_reads_old_ones() -> None:
    """A type may grow by a field with a default."""
    old = dataclasses.make_dataclass("Note", [("text", str)])
    new = dataclasses.make_dataclass("Note", [("text", str), ("stars", int, 0)])
    text = shape_of(old).store(old("x"))[0]
    assert shape_of(new).load(text) == new("x")
    assert shape_of(new).store(new("x"))[0] == text


def test_live_code_gets_a_copy() -> None:
    """What a step keeps and changes later is not what the agent was given."""
    value = {"a": [1]}
    _, copy = UNTYPED.store(value)
    value["a"].append(2)
    assert copy == {"a": [1]}


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (list[str], ("a",), "result: returned tuple where list[str] is annotated"),
        (int, "3", "result: returned str '3' where int is annotated"),
        (str, None, "result: returned None where str is annotated"),
        (list[int], [1, True, "x"], "result[2]: found str 'x' where list[int] is annotated"),
        (list[int], [1, "2"], "result[1]: str would come back as int"),
        (bool, 1, "result: returned int 1 where bool is annotated"),
        (datetime, "2024-01-01", "result: returned str '2024-01-01' where datetime.datetime is annotated"),
        (Ticket, {"title": "x"}, "result: returned dict where"),
        (Base, Sub(), "Sub where"),
        (list[Base], [Base(), Sub()], "result[1]: "),
        (Left | Right, Right(1), "Right would come back as tests.words.test_codec.Left; a field with a Literal"),
        (Account, Account(name="a", password=pydantic.SecretStr("x")), "result.password: pydantic.types.SecretStr is a secret"),
        (Account, Account(name="a", note=Ticket("x")), "result.note: "),
        (Account, Account(name="a", note=Level.LOW), "result.note: "),
        (Account, Account.model_construct(name=3), "result.name: found int 3"),
        (Account, Account.model_construct(), "result.name: found nothing"),
        (Positive, Positive.model_construct(total=-1), "total must not be negative"),
        (re.Pattern[str], re.compile("a", re.I), "result"),
        (Private, "hidden", "result._hidden: 7 would come back as 0"),
        (Restless, Restless(x=1), "result.x: 1 would come back as 2"),
        (set[Key], {Key(1)}, "use a list"),
        (dict[Key, int], {Key(1): 2}, "use a list"),
        (State, {"count": 1, "extra": 2}, "result"),
        (bytearray, b"a", "result: returned bytes b'a' where bytearray is annotated"),
        (Callable[[int], int], len, "result: builtin_function_or_method cannot be stored"),
        (collections.deque[int], collections.deque([1], maxlen=3), "result.maxlen: int would come back as None"),
        (Generator[int, None, None], (n for n in [1]), "result"),
    ],
)  # fmt: skip
def test_what_would_not_come_back_is_refused(annotation: Any, value: Any, message: str) -> None:
    """Secrets, subclasses, coerced types, private attributes, broken serializers: each is refused with path and reason."""
    if value == "hidden":
        value = Private()
        value._hidden = 7
    assert message in refusal(annotation, value)


@pytest.mark.parametrize("annotation", [sqlite3.Connection, list[sqlite3.Connection], Iterator[int], "Missing", Exception])
def test_an_annotation_that_cannot_be_stored_is_named(annotation: Any) -> None:
    """An arbitrary class as annotation is refused with both ways out, storing, reading and publishing alike."""
    message = refusal(annotation, 1)
    assert "Local[" in message and "annotated" in message
    with pytest.raises(NotStorable):
        shape_of(annotation).load("1")
    with pytest.raises(NotStorable):
        shape_of(annotation).schema()


def test_a_stored_value_that_no_longer_fits_is_refused_with_its_path() -> None:
    """When code changed under a stored value, the message says where it does not fit."""
    with pytest.raises(NotStorable, match=r"value\[1\]\.title: found nothing"):
        shape_of(list[Ticket]).load('[{"title":"x"},{}]')


@given(st.lists(st.builds(Ticket, st.text(), st.lists(st.text(), max_size=2), st.floats()), max_size=3))
def test_any_dataclass_comes_back(tickets: list[Ticket]) -> None:
    """Typed values keep every part, nan and surrogates included."""
    text, copy = shape_of(list[Ticket]).store(tickets)
    assert [exactly(dataclasses.astuple(one)) for one in copy] == [exactly(dataclasses.astuple(one)) for one in tickets]
    assert shape_of(list[Ticket]).store(shape_of(list[Ticket]).load(text))[0] == text


@given(values)
def test_any_plain_value_comes_back_from_a_model(value: Any) -> None:
    """A field of type Any is as exact as no annotation at all."""
    text, copy = shape_of(Holder).store(Holder(items=[value]))
    assert exactly(copy.items) == exactly([value])
    assert exactly(shape_of(Holder).load(text).items) == exactly([value])


# --- shapes ---


def test_the_order_of_a_union_is_part_of_its_shape() -> None:
    """`A | B` and `B | A` are equal to Python, but not to validation."""
    assert shape_of(Left | Right).load('{"x":1}') == Left(1)
    assert shape_of(Right | Left).load('{"x":1}') == Right(1)


def test_shapes_are_cached_and_take_unhashable_annotations() -> None:
    """The same annotation is resolved once; one that cannot be hashed still works."""
    assert shape_of(list[Ticket]) is shape_of(list[Ticket])
    assert shape_of(Any) is UNTYPED
    assert shape_of(Annotated[int, []]).store(3) == ("3", 3)


def test_schemas() -> None:
    """A shape gives its JSON schema, by field name; anything goes where nothing is annotated."""
    assert UNTYPED.schema() == {}
    assert shape_of(int).schema() == {"type": "integer"}
    assert "inner" in shape_of(Aliased).schema()["properties"]
    assert shape_of(list[Ticket]).schema()["$defs"]["Ticket"]["required"] == ["title"]
    assert shape_of(bytearray).schema() == {}


def test_plain_values_need_no_pydantic() -> None:
    """Storing plain and plainly annotated values does not import pydantic, which is slow to import."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import types; p = types.ModuleType('holdfast'); "
        "p.__path__ = [sys.argv[1] + '/holdfast']; sys.modules['holdfast'] = p; "  # the codec alone, not the whole package
        "from holdfast.codec import *; from holdfast.signature import Signature; import holdfast.failures\n"
        "def f(a: str, b: list[int], c: dict[str, float] = {}) -> list[str]: ...\n"
        "s = Signature(f); b = s.bind(('x', [1]), {}); b.digest, b.preview, b.args; s.load(b.text); s.returns.store(['x'])\n"
        "UNTYPED.store({'a': (1,)}); assert 'pydantic' not in sys.modules, 'imported'"
    )
    subprocess.run([sys.executable, "-c", code, str(Path(holdfast.__file__).parents[1])], check=True)


# --- digests, previews, sizes ---


def test_a_digest_ignores_the_order_of_keys_and_nothing_else() -> None:
    """Equal dicts have one digest; other values, other digests."""
    def of(value: Any) -> str:
        return digest(UNTYPED.store(value)[0])

    assert of({"a": 1, "b": {"d": 1, "c": 2}}) == of({"b": {"c": 2, "d": 1}, "a": 1})
    assert of({1: 2, (3,): {"x": 1, "y": 2}}) == of({(3,): {"y": 2, "x": 1}, 1: 2})
    assert len({of(each) for each in (1, 1.0, True, "1", [1], (1,), {1}, None, {"a": 1}, {"a": True}, {"1": 1}, {1: 1})}) == 12


def test_digests_are_the_same_in_another_process() -> None:
    """Another hash seed changes the order of sets, but no text and no digest."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from holdfast.codec import UNTYPED, digest\n"
        "value = {'s': {str(n) for n in range(50)}, 'f': frozenset({('a', n) for n in range(20)}), 'm': {('k', 1): {b'x', 'y'}}}\n"
        "text = UNTYPED.store(value)[0]; print(text, digest(text))"
    )
    source = str(Path(holdfast.__file__).parents[1])
    seen = {
        subprocess.run(
            [sys.executable, "-c", code, source], env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(seen) == 1 and len(seen.pop()) > 500


def test_the_digest_is_fixed() -> None:
    """Digests lie in journals: this one never changes."""
    assert digest('{"topic":"otters","depth":3}') == "29143c2d76d5dd23a606efdce3c85af8"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"a": (1,), "b": {2}, "c": [None, True]}, "{'a': (1,), 'b': {2}, 'c': [None, True]}"),
        ("line\nline\x1b[31m\u202e", r"'line\nline\x1b[31m\u202e'"),
        (datetime(2024, 1, 1, tzinfo=UTC), "2024-01-01 00:00:00+00:00"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (set(), "set()"),
    ],
)
def test_previews_are_for_people(value: Any, shown: str) -> None:
    """A preview is one line in Python's manner, without control characters."""
    assert preview(UNTYPED.store(value)[0]) == shown


def test_a_preview_is_short_and_quick_whatever_the_value() -> None:
    """Large values are cut; very large ones are not even parsed."""
    for value in ("x" * 10_000_000, list(range(100_000)), ["y" * 200] * 3, {"k" * 300: 1}):
        shown = preview(UNTYPED.store(value)[0])
        assert len(shown) == 120 and shown.endswith("…")
    assert len(preview(UNTYPED.store("x" * 500)[0], limit=20)) == 20


def test_sizes_are_checked_in_readable_units() -> None:
    """A text that is too large is refused with size, limit and what to do."""
    assert checked_size("x" * 10, 10, "result") == "x" * 10
    with pytest.raises(NotStorable, match=r"^result: 1.5 KiB is more than the limit of 1 KiB; put it into a file"):
        checked_size("x" * 1536, 1024, "result")
    assert (BLOB_BYTES, DEFAULT_LIMIT_BYTES) == (65_536, 16_777_216)
