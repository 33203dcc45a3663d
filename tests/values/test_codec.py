"""Typed values: each comes back as itself, or is refused with its path and the reason."""

from __future__ import annotations

import collections
import dataclasses
import ipaddress
import itertools
import math
import pathlib
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar
from zoneinfo import ZoneInfo

import pydantic
import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import core_schema
from tests.values.samples import BERLIN, Cat, Color, Holder, Level, Point, Ticket, exactly, refusal, relaxed, values

import holdfast
from holdfast.errors import NotStorable
from holdfast.values import codec, tagged
from holdfast.values.codec import UNTYPED, shape_of

T = TypeVar("T")


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


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    lives: int = 1


@dataclasses.dataclass
class Left:
    x: int


@dataclasses.dataclass
class Right:
    x: int


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


class State(TypedDict, total=False):
    messages: list[str]
    count: int


class Nested(TypedDict):
    inner: list[Nested]


class Order(typing_extensions.TypedDict):
    first: Ticket
    second: int


class Opaque:
    """Knows pydantic, equals only itself."""

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return core_schema.no_info_plain_validator_function(
            cls, serialization=core_schema.plain_serializer_function_ser_schema(lambda each: each.text)
        )


class Shifty(Opaque):
    """Its text is longer each time it is written."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return core_schema.no_info_plain_validator_function(
            cls, serialization=core_schema.plain_serializer_function_ser_schema(lambda each: each.text + "!")
        )


class Quarrelsome(Opaque):
    """Its `__eq__` has nothing to say."""

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")


UserId = NewType("UserId", int)


def assert_back(annotation: Any, value: Any) -> str:
    shape = shape_of(annotation)
    text, copy = shape.store(value)
    assert text.isascii()
    for back in (copy, shape.load(text)):
        assert type(back) is type(value)
        assert back == value or exactly(back) == exactly(value)  # a nan equals nothing
    assert shape.store(copy)[0] == text
    return text


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
        (Account, Account(name="a", note=({2: b""},)), '{"name":"a","note":{"$tuple":[{"$map":[[2,{"$bytes":""}]]}]}}'),
        (Aliased, Aliased(**{"in": 3, "inner": 5}), '{"inner":3,"other":5}'),
        (Annotated[Cat | Dog, pydantic.Field(discriminator="kind")], Dog(), '{"kind":"dog","lives":1}'),
        (Cat | Dog, Dog(), '{"kind":"dog","lives":1}'),
        (Private, Private(), "{}"),
    ],
)  # fmt: skip
def test_an_annotated_value_comes_back_as_itself(annotation: Any, value: Any, text: str) -> None:
    """Types of every sort go through the one text format; defaults do not identify a value, unless a union needs them."""
    assert_back(annotation, value)
    assert shape_of(annotation).identity(value) == text
    assert shape_of(annotation).load(text) == value or exactly(shape_of(annotation).load(text)) == exactly(value)


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (Ticket, Ticket("x"), '{"title":"x","tags":[],"cost":0.0}'),
        (list[Ticket] | None, [Ticket("x", cost=2.5)], '[{"title":"x","tags":[],"cost":2.5}]'),
        (dict[str, Ticket], {"a": Ticket("x")}, '{"a":{"title":"x","tags":[],"cost":0.0}}'),
        (Order, {"first": Ticket("x"), "second": 1}, '{"first":{"title":"x","tags":[],"cost":0.0},"second":1}'),
        (Annotated[Cat | Dog, pydantic.Field(discriminator="kind")], Dog(), '{"kind":"dog","lives":1}'),
        (list[int], [1], "[1]"),
        (Account, Account(name="a"), '{"name":"a","note":null}'),  # without the secret, which cannot be stored
    ],
)
def test_a_stored_value_is_whole(annotation: Any, value: Any, text: str) -> None:
    """Fields at their default are stored like others, if the type can be read with them."""
    assert tagged.bare(assert_back(annotation, value)) == text


def test_a_type_without_defaults_has_one_text() -> None:
    """Nothing is encoded twice where that could make no difference."""
    plain = dataclasses.make_dataclass("Plain", [("text", str), ("parts", list[int])])
    shape, grown = shape_of(plain), shape_of(Ticket)
    assert shape.store(plain("x", [1]))[0] == shape.identity(plain("x", [1]))
    assert not shape.has_defaults
    assert grown.store(Ticket("x"))[0] != grown.identity(Ticket("x"))
    assert grown.has_defaults


def test_a_recorded_value_outlives_its_defaults() -> None:
    """A default that changes later changes nothing that was stored."""
    before = dataclasses.make_dataclass("Transfer", [("to", str), ("euros", int, 30)])
    after = dataclasses.make_dataclass("Transfer", [("to", str), ("euros", int, 9999)])
    assert shape_of(after).load(shape_of(before).store(before("bo"))[0]) == after("bo", 30)
    assert shape_of(after).load('{"to":"bo"}') == after(
        "bo", 9999
    )  # one that lacks the field, as they were stored once


def test_a_strict_model_comes_back() -> None:
    """A model that wants exact types in code is read from its text all the same, zone key and fold included."""
    value = Strict(color=Color.PAIR, path=pathlib.Path("a"), when=datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1))
    assert_back(Strict, value)
    back = shape_of(Strict).load(shape_of(Strict).store(value)[0])
    assert (back.when.fold, back.when.tzinfo.key) == (1, "Europe/Berlin")


def test_a_time_zone_that_its_type_replaces_is_refused() -> None:
    """On another day it has another offset."""

    class Moved(pydantic.BaseModel):
        at: Annotated[datetime, pydantic.AfterValidator(lambda at: at.replace(tzinfo=timezone(at.utcoffset())))]

    kept = Moved.model_construct(at=datetime(2024, 6, 1, tzinfo=BERLIN))
    assert (
        "result.at: datetime.datetime(2024, 6, 1, 0, 0, tzinfo=zoneinfo.ZoneInfo(key='Europe/Berlin')) would"
        in refusal(Moved, kept)
    )
    with pytest.raises(NotStorable):
        shape_of(Moved).identity(kept)


def test_a_time_that_pydantic_parsed_can_be_stored() -> None:
    """The zone class of pydantic's own is a fixed offset, and comes back as one."""
    when = pydantic.TypeAdapter(datetime).validate_python("2024-01-01T00:00:00+02:00")
    assert UNTYPED.load(UNTYPED.store(when)[0]) == when
    assert shape_of(datetime).store(when)[1].utcoffset() == timedelta(hours=2)


def test_an_int_where_a_float_is_annotated_is_accepted() -> None:
    """Type checkers take an int for a float, so it is stored; in a dataclass it comes back as the same number."""
    assert shape_of(float).store(3) == ("3", 3)
    text, copy = shape_of(Ticket).store(Ticket("x", cost=3))
    assert text == '{"title":"x","tags":[],"cost":3.0}'
    assert shape_of(Ticket).identity(Ticket("x", cost=3)) == '{"title":"x","cost":3.0}'
    assert type(copy.cost) is float
    assert "would come back" in refusal(Ticket, Ticket("x", cost=2**70 + 1))


def test_keys_take_the_order_of_their_type() -> None:
    """A TypedDict written in another order is the same value, and one text."""
    text, copy = shape_of(Order).store({"second": 1, "first": Ticket("x")})
    assert text == '{"first":{"title":"x","tags":[],"cost":0.0},"second":1}'
    assert copy == {"first": Ticket("x"), "second": 1}
    assert ".third: 3 would come back as nothing" in refusal(Order, {"second": 1, "third": 3, "first": Ticket("x")})


def test_a_value_that_equals_only_itself_is_judged_by_its_text() -> None:
    """Identity is no reason to refuse; a comparison that fails is."""
    text, copy = shape_of(Opaque).store(Opaque("x"))
    assert text == '"x"'
    assert copy.text == "x"
    assert "does not store all of it" in refusal(Quarrelsome, Quarrelsome("x"))
    assert "is written differently each time" in refusal(Shifty, Shifty("x"))


def test_members_of_typed_sets_keep_their_kind() -> None:
    """A set of other members, or of members of another type, is refused; a nan is not."""
    assert exactly(shape_of(Annotated[set[float], "note"]).store({math.nan, 1.5})[1]) == exactly({math.nan, 1.5})
    assert "would come back as" in refusal(Annotated[set[int], "note"], {"1"})
    assert "would come back as" in refusal(Annotated[dict[int, int], "note"], {"1": 1})


class Loose(pydantic.BaseModel):
    text: str = None  # type: ignore[assignment]
    rows: frozenset[frozenset[float]]


@dataclasses.dataclass
class Loosest:
    rows: set[frozenset[frozenset[frozenset[float]]]]
    by_rows: dict[frozenset[frozenset[float]], int]
    models: dict[float, list[Loose]]


def test_a_nan_in_sets_and_keys_is_stored_each_time() -> None:
    """It equals nothing, and sets that have one are in another order each time; nothing is hidden or left out for that."""

    def rows() -> frozenset[frozenset[float]]:
        return frozenset(frozenset({float("nan"), *map(float, range(n))}) for n in range(4))

    shape = shape_of(Loosest)
    for _ in range(20):
        keys = {rows(): 1, frozenset({*rows(), frozenset({5.0})}): 2}
        models = {float("nan"): [Loose(rows=rows())], math.nan: [Loose(text="x", rows=rows())]}
        text, copy = shape.store(Loosest({frozenset(keys), frozenset({rows()})}, keys, models))
        found = shape.load(text)
        assert '"text":null' in text
        assert shape.store(found)[0] == text
        assert shape.identity(copy) == shape.identity(found)
        assert shape.hidden(copy, text) == ""


HALVES = "\ud83d" + "\ude00"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (HALVES, "result"),
        ({"a": [1, HALVES]}, "result.a[1]"),
        ({HALVES: 1, "\U0001f600": 2}, r"result['\ud83d\ude00']"),
        ({HALVES, "\U0001f600"}, "result"),
        ([math.nan, HALVES], "result[1]"),
    ],
)
def test_two_halves_of_a_character_are_refused(value: Any, path: str) -> None:
    """JSON reads them as the character, so that a replay would go on with another text, or with fewer keys."""
    for way in (UNTYPED.store, UNTYPED.text):
        with pytest.raises(NotStorable) as refused:
            way(value)
        assert str(refused.value).startswith(f"{path}: has the two halves of a character")


@pytest.mark.parametrize(
    "value",
    [
        "\U0001f600",
        "\ude00\ud83d",
        ["\U0001f600\ud83d", math.nan],
        ["\U0001f600", Decimal("sNaN")],
        {"\U0001f600": "\ud55c"},
    ],
)
def test_whole_characters_and_one_half_of_one_are_stored(value: Any) -> None:
    text, copy = UNTYPED.store(value)
    assert exactly(copy) == exactly(value) == exactly(UNTYPED.load(text))
    assert UNTYPED.text(value) == text


def test_a_typed_dict_that_holds_itself_gives_an_answer() -> None:
    """No annotation leads to a RecursionError."""
    shape_of(Nested)
    if sys.version_info < (3, 12):
        assert "typing_extensions.TypedDict" in refusal(Nested, {"inner": []})
    else:
        assert_back(Nested, {"inner": [{"inner": []}]})


def test_a_typed_dict_may_hold_types() -> None:
    """Fields that are not plain are left to pydantic, where pydantic takes TypedDict."""

    class Held(typing_extensions.TypedDict):
        ticket: Ticket

    assert_back(Held, {"ticket": Ticket("x")})


def test_a_default_that_only_equals_the_value_is_not_used_for_it() -> None:
    """`True` is not left out because the default is `1`."""
    Loose = pydantic.create_model("Loose", x=(Any, 1))  # noqa: N806
    text, copy = shape_of(Loose).store(Loose(x=True))
    assert text == '{"x":true}'
    assert copy.x is True


def test_a_new_field_with_a_default_changes_no_identity_and_reads_old_texts() -> None:
    """A type may grow by a field with a default."""
    old = dataclasses.make_dataclass("Note", [("text", str)])
    new = dataclasses.make_dataclass("Note", [("text", str), ("stars", int, 0)])
    text = shape_of(old).store(old("x"))[0]
    assert shape_of(new).load(text) == new("x")
    assert shape_of(new).identity(new("x")) == text


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
        (tuple[int, str], (1,), "result[1]: found nothing where tuple[int, str] is annotated"),
        (tuple[int, str], (1, "a", 2), "result: returned tuple where tuple[int, str] is annotated"),
        (datetime, "2024-01-01", "result: returned str '2024-01-01' where datetime.datetime is annotated"),
        (Ticket, {"title": "x"}, "result: returned dict where"),
        (Base, Sub(), "Sub where"),
        (list[Base], [Base(), Sub()], "result[1]: "),
        (Left | Right, Right(1), ".Left; a field with a Literal as its type tells"),
        (Account, Account(name="a", password=pydantic.SecretStr("x")), "password: pydantic.types.SecretStr is a "),
        (Account, Account(name="a", note=Ticket("x")), "result.note: "),
        (Account, Account(name="a", note=Level.LOW), "result.note: "),
        (Account, Account.model_construct(name=3), "result.name: found int 3"),
        (Account, Account.model_construct(), "result.name: found nothing"),
        (Positive, Positive.model_construct(total=-1), "total must not be negative"),
        (re.Pattern[str], re.compile("a", re.IGNORECASE), "result"),
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
    """Secrets, subclasses, coerced types, private attributes, odd serializers: each is refused by path and reason."""
    if value == "hidden":
        value = Private()
        value._hidden = 7
    assert message in refusal(annotation, value)


@pytest.mark.parametrize(
    "annotation", [sqlite3.Connection, list[sqlite3.Connection], Iterator[int], "Missing", Exception]
)
def test_an_annotation_that_cannot_be_stored_is_named(annotation: Any) -> None:
    """An arbitrary class as annotation is refused with the ways out, storing, reading and publishing alike."""
    assert "annotated" in refusal(annotation, 1)
    with pytest.raises(NotStorable, match=r"Local\["):  # a way for parameters, not for results
        shape_of(annotation).store(1, "client", argument=True)
    with pytest.raises(NotStorable):
        shape_of(annotation).load("1")
    with pytest.raises(NotStorable):
        shape_of(annotation).schema()


def test_a_stored_value_that_no_longer_fits_is_refused_with_its_path() -> None:
    """When code changed under a stored value, the message says where it does not fit."""
    with pytest.raises(NotStorable, match=r"value\[1\]\.title: found nothing"):
        shape_of(list[Ticket]).load('[{"title":"x"},{}]')


@pytest.mark.slow
@relaxed
@given(st.lists(st.builds(Ticket, st.text(), st.lists(st.text(), max_size=2), st.floats()), max_size=3))
def test_any_dataclass_comes_back(tickets: list[Ticket]) -> None:
    """Typed values keep every part, nan and surrogates included."""
    text, copy = shape_of(list[Ticket]).store(tickets)
    assert [exactly(dataclasses.astuple(one)) for one in copy] == [exactly(dataclasses.astuple(one)) for one in tickets]
    assert shape_of(list[Ticket]).store(shape_of(list[Ticket]).load(text))[0] == text


@pytest.mark.slow
@relaxed
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
        "p.__path__ = [sys.argv[1] + '/holdfast']; sys.modules['holdfast'] = p; "  # not the whole package
        "from holdfast.values.codec import *; from holdfast.values.signature import Signature; import holdfast.values.failures\n"
        "def f(a: str, b: list[int], c: dict[str, float] = {}) -> list[str]: ...\n"
        "s = Signature(f); b = s.bind(('x', [1]), {}); b.digest, b.preview, b.args; s.load(b.text)\n"
        "s.returns.store(['x'])\n"
        "UNTYPED.store({'a': (1,)}); assert 'pydantic' not in sys.modules, 'imported'"
    )
    subprocess.run([sys.executable, "-c", code, str(Path(holdfast.__file__).parents[1])], check=True)


class Sloppy(pydantic.BaseModel):
    who: str
    note: str = None  # type: ignore[assignment]  # its own type does not take it, as people write it nevertheless
    token: pydantic.SecretStr = pydantic.SecretStr("")
    days: int = 30
    inner: list[Sloppy] = []


@dataclasses.dataclass
class SloppyToo:
    who: str
    note: str = None  # type: ignore[assignment]
    days: int = 30


@pytest.mark.parametrize("kind", [Sloppy, SloppyToo])
def test_a_default_that_cannot_be_stored_costs_no_other_field(kind):
    text, copy = shape_of(kind).store(kind(who="ana"))
    assert '"days":30' in text
    assert '"token"' not in text
    assert (shape_of(kind).hidden(copy, text) == "token") == (kind is Sloppy)
    assert copy == kind(who="ana")


def test_so_it_is_inside_of_others():
    value = Sloppy(who="ana", inner=[Sloppy(who="bo"), Sloppy(who="cy", days=5)])
    text, copy = shape_of(Sloppy).store(value)
    assert text.count('"days":30') == 2
    assert copy == value
    assert shape_of(Sloppy).identity(value) == '{"who":"ana","inner":[{"who":"bo"},{"who":"cy","days":5}]}'


def test_many_such_defaults_take_no_longer_each():
    """Reading and writing grow with their number, however they are changed by `migrate`."""
    took = []
    for count in (100, 1000):
        began = time.process_time()
        text, copy = shape_of(list[SloppyToo]).store([SloppyToo(str(n)) for n in range(count)])
        wanting = dataclasses.make_dataclass(
            "SloppyToo", [("who", str), ("tag", int), ("note", str, None), ("days", int, 30)]
        )
        shape_of(list[wanting]).load(text, migrate=lambda old: [{**each, "tag": 1} for each in old])
        took.append(time.process_time() - began)
        assert text.count('"$default":[["note"]') == count == len(copy)
    assert took[1] < 40 * took[0] + 1


# An annotation, a default of it that it does not read as it is, another one, and what is read of the first one by then.
DECLARED: list[tuple[Any, Any, Any, Any]] = [
    (Decimal, 0, 5000, Decimal(0)),
    (str, None, "usd", None),
    (Annotated[int, pydantic.Field(gt=0)], 0, 5000, None),
    (timedelta, 30, 60, timedelta(seconds=30)),
    (Path, "x", "y", Path("x")),
    (Color, "red", "blue", Color("red")),
    (bool, 0, 1, False),
    (set[int], [], [5], set()),
    (datetime, "2024-01-01T00:00Z", "2025-01-01T00:00Z", datetime(2024, 1, 1, tzinfo=UTC)),
    (list[str], None, ["boss"], None),
]


@pytest.mark.parametrize("make", [pydantic.create_model, dataclasses.make_dataclass])
@pytest.mark.parametrize(("annotation", "default", "later", "read"), DECLARED)
def test_a_default_that_is_not_of_its_type_is_stored_too(make, annotation, default, later, read):
    """As long as it is the default it is left to the type; another one never takes its place."""

    def declared(each: Any, **more: Any) -> Any:
        if make is pydantic.create_model:
            return make(
                "T", to=(str, ...), v=(annotation, each), **{name: (int, value) for name, value in more.items()}
            )
        field = dataclasses.field(default_factory=lambda: each) if type(each) is list else each
        return make("T", [("to", str), ("v", annotation, field), *((name, int, each) for name, each in more.items())])

    before, added, after = declared(default), declared(default, more=1), declared(later)
    value = before(to="bo")
    shape = shape_of(list[before])
    text, (copy,) = shape.store([value])
    assert tagged.read(text) == [{"to": "bo", "v": default}]
    assert shape.identity([value]) == '[{"to":"bo"}]'
    for kind, (again,) in ((before, [copy]), (before, shape.load(text)), (added, shape_of(list[added]).load(text))):
        assert (type(again), type(again.v), again.v) == (kind, type(default), default)
        assert getattr(again, "model_fields_set", {"to"}) == {"to"}
    if read is None:
        with pytest.raises(NotStorable, match=r"value\[0\].v: found "):
            shape_of(list[after]).load(text)
    else:
        assert shape_of(list[after]).load(text)[0].v == read


@pytest.mark.parametrize("make", [lambda kind: kind, pydantic.dataclasses.dataclass])
def test_a_field_that_a_dataclass_makes_itself_is_not_made_into_another(make) -> None:
    """It is in the record, and its type takes it from nobody: a default that has changed since would take its place."""
    before, after = (
        make(
            dataclasses.make_dataclass("C", [("a", int), ("at", date, dataclasses.field(init=False, default=default))])
        )
        for default in (date(2024, 1, 1), date(2025, 1, 1))
    )
    text, copy = shape_of(list[before]).store([before(1)])
    assert copy == shape_of(list[before]).load(text) == [before(1)]
    assert shape_of(list[before]).revive([{"a": 1, "at": "2024-01-01"}]) == [before(1)]
    told = r"value.at: .*C takes it from nobody \(init=False\) and makes .*2025-01-01 of it, not .*2024-01-01"
    with pytest.raises(NotStorable, match=told):
        shape_of(list[after]).load(text)
    assert shape_of(list[after]).load(text, migrate=lambda old: [{"a": each["a"]} for each in old]) == [after(1)]


class Patch(pydantic.BaseModel):
    name: str
    email: str | None = None
    parts: list[Patch] = []


class Fixed(pydantic.BaseModel, frozen=True):
    patch: Patch = Patch(name="y", email="e")
    size: int = 1


class Open(pydantic.BaseModel, extra="allow"):
    __pydantic_extra__: dict[str, Patch]
    size: int = pydantic.Field(1, alias="Size")


class Patches(pydantic.RootModel[dict[int, Patch]]):
    pass


class Box(pydantic.BaseModel, Generic[T]):
    held: T
    count: int = 1


class Pair(NamedTuple):
    one: Patch
    other: Patch


@dataclasses.dataclass
class Letter:
    patch: Patch
    stamps: int = 0


class Shouted(pydantic.BaseModel):
    """Stored as one text, by its own serializer: what was set in it cannot be known."""

    name: str = "x"
    size: int = 1

    @pydantic.model_serializer
    def short(self) -> str:
        return f"{self.name} {self.size}"

    @pydantic.model_validator(mode="before")
    @classmethod
    def long(cls, given: Any) -> Any:
        return given if isinstance(given, dict) else dict(zip(("name", "size"), given.split(), strict=True))


class Touched(pydantic.BaseModel):
    """Its validator sets a field each other time."""

    name: str = "x"
    size: int = 1
    turns: ClassVar[Iterator[bool]] = itertools.cycle([True, False])

    @pydantic.model_validator(mode="after")
    def touch(self) -> Touched:
        self.__pydantic_fields_set__.symmetric_difference_update({"size"} if next(self.turns) else ())
        return self


def given_fields(value: Any) -> Any:
    """What was given to the models in a value."""
    if isinstance(value, pydantic.RootModel):
        return given_fields(value.root)
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(exclude_unset=True, round_trip=True, by_alias=False), value.model_fields_set
    if isinstance(value, dict):
        return {key: given_fields(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [given_fields(item) for item in value]
    return given_fields(value.patch) if isinstance(value, Letter) else value


SPARSE, CLEARING = Patch(name="x"), Patch(name="x", email=None)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Patch, SPARSE),
        (Patch, CLEARING),
        (Patch, Patch(name="x", parts=[SPARSE, CLEARING, Patch(name="z", email="e", parts=[])])),
        (list[Patch] | None, [SPARSE, CLEARING]),
        (dict[Color, Patch], {Color.RED: SPARSE, Color.PAIR: CLEARING}),
        (tuple[Patch, ...], (SPARSE, CLEARING)),
        (collections.OrderedDict[str, Patch], collections.OrderedDict(a=SPARSE, b=CLEARING)),
        (Order | Patch, SPARSE),
        (Letter, Letter(SPARSE)),
        (Fixed, Fixed(patch=SPARSE)),
        (Fixed, Fixed(size=1)),
        (Open, Open(Size=1, more=SPARSE)),
        (Open, Open(more=CLEARING)),
        (Patches, Patches({1: SPARSE, 2: CLEARING})),
        (Box[Box[Patch]], Box[Box[Patch]](held=Box[Patch](held=SPARSE, count=1))),
        (Pair, Pair(SPARSE, CLEARING)),
        (Annotated[Cat | Dog, pydantic.Field(discriminator="kind")], Dog(lives=1)),
        (Account, Account(name="a", note=None)),
    ],
)
def test_a_model_knows_what_was_given_to_it(annotation: Any, value: Any) -> None:
    """`model_fields_set` comes back, live and from the record. Nobody else sees that it is kept."""
    shape, seen = shape_of(annotation), given_fields(value)
    text, copy = shape.store(value)
    assert (given_fields(copy), given_fields(shape.load(text)), given_fields(value)) == (seen, seen, seen)
    shown = tagged.bare(text)
    assert UNTYPED.load(text) == UNTYPED.load(shown)
    assert codec.digest(text) == codec.digest(shown)
    assert codec.preview(text) == codec.preview(shown)
    assert "$unset" not in shape.identity(value) + shown
    assert shape.load(shown) == value  # as it was stored once


@pytest.mark.parametrize("value", [Shouted(size=2), Touched(), Touched(name="y")])
def test_a_type_of_which_that_cannot_be_known_is_stored_all_the_same(value: Any) -> None:
    text, copy = shape_of(type(value)).store(value)
    assert copy == shape_of(type(value)).load(text) == value


def test_a_default_that_changes_leaves_what_was_not_set_as_it_was() -> None:
    """What nobody set is still in the record, and is read from there; a field that was renamed is known by its old name."""
    text = shape_of(Patch).store(Patch(name="x", email=None))[0]
    after = pydantic.create_model(
        "Patch",
        name=(str, ...),
        mail=(str | None, pydantic.Field("new", alias="email")),
        parts=(list[Patch] | None, None),
    )
    copy = shape_of(after).load(text)
    assert (copy.mail, copy.parts, copy.model_fields_set) == (None, [], {"name", "mail"})
    copy = shape_of(after).load(shape_of(Patch).store(SPARSE)[0])
    assert (copy.mail, copy.model_fields_set) == (None, {"name"})


def test_a_field_that_is_unknown_is_refused_behind_a_key_that_became_a_number():
    with pytest.raises(NotStorable, match="amuont"):
        shape_of(dict[int, SloppyToo]).revive({"1": {"who": "ana", "amuont": 99}})


def test_a_deep_model_is_stored_as_ever() -> None:
    deep = Patch(name="x")
    for _ in range(90):  # each is two levels
        deep = Patch(name="x", parts=[deep])
    text, copy = shape_of(Patch).store(deep)
    assert copy == shape_of(Patch).load(text) == deep
    assert copy.model_fields_set == {"name", "parts"}


def bills(*more: Any, tagged: bool = False, dataclass: bool = False) -> Any:
    """Two types that are alike, and what holds them, as one deploy has them: `more` is added to the first."""
    kinds = {"kind": (Literal["paid"], "paid")}, {"kind": (Literal["due"], "due")}
    paid, due = ({"euros": (int, ...), **dict(more)}, {"euros": (int, ...), "days": (int, 30)})
    if dataclass:
        rows = [
            [(key, *hint) if hint[1] is not ... else (key, hint[0]) for key, hint in own.items()] for own in (paid, due)
        ]
        made = [dataclasses.make_dataclass(name, row) for name, row in zip(("Paid", "Due"), rows, strict=True)]
    else:
        fields = [{**own, **kind} if tagged else own for own, kind in zip((paid, due), kinds, strict=True)]
        made = [pydantic.create_model(name, **own) for name, own in zip(("Paid", "Due"), fields, strict=True)]
    either: Any = made[0] | made[1]
    return (
        *made,
        either,
        pydantic.create_model("Ledger", bills=(dict[str, list[either]], ...), last=(either | None, None)),
    )


DAYS, NOTE = ("days", (int, 5)), ("note", (str, ""))


@pytest.mark.parametrize("dataclass", [False, True])
@pytest.mark.parametrize("added", [(DAYS,), (DAYS, NOTE)])
def test_a_member_of_a_union_stays_what_it_was_when_another_becomes_like_it(added: Any, dataclass: bool) -> None:
    """Pydantic takes the first of several that fit as well, so what was recorded says which one it is of."""
    Paid, Due, either, Ledger = bills(dataclass=dataclass)  # noqa: N806 - types
    Paid2, Due2, either2, Ledger2 = bills(*added, dataclass=dataclass)  # noqa: N806 - types
    assert type(shape_of(either2).load('{"euros":7,"days":30}')) is Paid2  # as it was stored once
    text = shape_of(either).store(Due(euros=7))[0]
    assert shape_of(either2).load(text) == Due2(euros=7, days=30)
    assert shape_of(either2).load(shape_of(either).store(Paid(euros=7))[0]) == Paid2(euros=7)
    value = Ledger(bills={"a": [Due(euros=1), Paid(euros=2)], "b": [Due(euros=3, days=4)]}, last=Due(euros=5))
    text, copy = shape_of(Ledger).store(value)
    assert copy == value
    found = shape_of(Ledger2).load(text)
    assert [type(each) for row in found.bills.values() for each in row] == [Due2, Paid2, Due2]
    assert type(found.last) is Due2
    assert found.model_fields_set == {"bills", "last"}
    assert "$of" not in shape_of(Ledger).identity(value)


IN_OTHERS: dict[str, tuple[Any, Any]] = {  # unions in which the two types are, and values, of one of the second
    "list": (lambda paid, due: list[paid] | list[due] | None, lambda each: [each]),
    "dict": (lambda paid, due: dict[str, list[paid]] | dict[str, list[due]], lambda each: {"a": [each]}),
    "tuple": (lambda paid, due: tuple[paid, int] | tuple[due, int], lambda each: (each, 1)),
    "mapping": (lambda paid, due: Mapping[str, paid] | Mapping[str, due], lambda each: {"a": each}),
    "union": (lambda paid, due: Annotated[paid | int, pydantic.Field(title="x")] | due, lambda each: each),
    "dict beside": (lambda paid, due: paid | due | dict[str, str], lambda each: each),
}


@pytest.mark.parametrize("name", IN_OTHERS)
@pytest.mark.parametrize("dataclass", [False, True])
def test_so_it_does_in_what_the_members_of_a_union_hold(name, dataclass) -> None:
    hint, make = IN_OTHERS[name]
    (Paid, Due), (Paid2, Due2) = (bills(*more, dataclass=dataclass)[:2] for more in ((), (DAYS,)))  # noqa: N806 - types
    text, copy = shape_of(hint(Paid, Due)).store(make(Due(euros=7)))
    assert copy == make(Due(euros=7))
    assert shape_of(hint(Paid2, Due2)).load(text) == make(Due2(euros=7, days=30))
    assert "$of" not in shape_of(hint(Paid, Due)).identity(make(Due(euros=7)))


def test_named_tuples_are_members_too() -> None:
    one, other = NamedTuple("One", [("x", int)]), NamedTuple("Other", [("x", int), ("y", int)])  # type: ignore[misc]
    grown: Any = collections.namedtuple("One", "x y", defaults=(0,))  # noqa: PYI024
    grown.__annotations__ = {"x": int, "y": int}
    text, copy = shape_of(list[one | other]).store([other(1, 2), one(3)])
    assert (copy, type(copy[0])) == ([other(1, 2), one(3)], other)
    found = shape_of(list[grown | other]).load(text)
    assert (found, [type(each) for each in found]) == ([other(1, 2), grown(3, 0)], [other, grown])
    assert codec.digest(text) == codec.digest(tagged.bare(text))


@pytest.mark.parametrize(
    ("hint", "make"),
    [
        (lambda paid: paid | dict[str, Any], lambda each: each),
        (lambda paid: paid | Any, lambda each: each),
        (lambda paid: list[paid] | Any, lambda each: [each]),
    ],
)
def test_a_member_that_its_type_does_not_take_any_more_is_no_dict(hint, make) -> None:
    """Though a dict is a member as well, and takes anything. A field that was renamed by an alias is found."""
    before, after, renamed = (
        pydantic.create_model("Paid", euros=(int, ...), **more)
        for more in ({"note": (str, "")}, {}, {"memo": (str, pydantic.Field("", alias="note"))})
    )
    text = shape_of(hint(before)).store(make(before(euros=7)))[0]
    with pytest.raises(NotStorable, match="was recorded as 'Paid'"):
        shape_of(hint(after)).load(text)
    assert shape_of(hint(before)).load(text) == make(before(euros=7))
    assert shape_of(hint(renamed)).load(text) == make(renamed(euros=7))


def test_a_literal_tells_the_members_of_a_union_apart_for_good() -> None:
    Due, either = bills(tagged=True)[1:3]  # noqa: N806 - a type
    text = shape_of(either).store(Due(euros=7))[0]
    assert "$of" not in text
    Due2, either2 = bills(DAYS, tagged=True)[1:3]  # noqa: N806 - a type
    assert type(shape_of(either2).load(text)) is Due2


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (Annotated[Cat | Dog, pydantic.Field(discriminator="kind")], Dog(), '{"kind":"dog"}'),
        (list[Cat | Dog], [Dog(), Cat(), Dog(lives=2)], '[{"kind":"dog"},{"kind":"cat"},{"kind":"dog","lives":2}]'),
        (dict[str, Dog], {"a": Dog()}, '{"a":{}}'),
    ],
)
def test_an_identity_can_do_with_the_fields_that_tell_members_of_a_union_apart(annotation, value, text) -> None:
    """It is beside the identity, which has all fields at their default where it cannot be read without these."""
    shape = shape_of(annotation)
    assert codec.digest(shape.lean(value)) == codec.digest(text)
    assert shape.identity(value) == (tagged.bare(shape.store(value)[0]) if shape.telling else text)


def test_an_identity_can_do_with_the_name_of_a_member_that_no_field_tells_apart() -> None:
    """So fields can be added to it. A dict that looks like it is something else."""
    leans = []
    for added in ((), (NOTE,)):
        fields = {"euros": (int, ...), "days": (int, 30), **dict(added)}
        Due = pydantic.create_model("Due", **fields)  # noqa: N806 - a type
        shape = shape_of(list[bills()[0] | Due | dict[str, Any]])
        leans.append(codec.digest(shape.lean([Due(euros=7)])))
        others = (
            [Due(euros=8)],
            [Due(euros=7, days=31)],
            [{"$member": ["Due", {"euros": 7}]}],
            [{"$of": ["Due", {"euros": 7}]}],
        )
        assert leans[0] not in [codec.digest(shape.lean(each)) for each in others]
    assert leans[0] == leans[1]


@pytest.mark.parametrize(("kind", "data"), [("Gone", '{"euros":7,"days":30}'), ("Paid", '{"euros":7,"days":30}')])
def test_a_member_is_never_read_as_another_one(kind, data) -> None:
    """Its type was renamed, or does not take it any more. What it has become is not guessed."""
    text = f'[{{"$of":["{kind}",{data}]}}]'
    Due, either = bills()[1:3]  # noqa: N806 - a type
    with pytest.raises(NotStorable, match=f"was recorded as '{kind}', and .* say by migrate= what it has become"):
        shape_of(list[either]).load(text)
    assert shape_of(list[either]).load(text, migrate=lambda old: old) == [Due(euros=7, days=30)]


def test_a_long_name_of_a_member_is_told_in_short() -> None:
    text = f'[{{"$of":["{"x" * 9000}",{{"euros":7,"days":30}}]}}]'
    with pytest.raises(NotStorable, match="was recorded as 'xxx") as refused:
        shape_of(list[bills()[2]]).load(text)
    assert len(str(refused.value)) < 1000


class Rent(pydantic.BaseModel):
    days: int = 30
    note: str = None  # type: ignore[assignment]


def test_the_members_of_a_named_tuple_are_read_by_their_names():
    """In whatever order they are by now. One that has gone is not dropped; one that was added has its default."""
    before: Any = NamedTuple("Price", [("euros", int), ("cents", int), ("rent", Rent)])
    turned: Any = NamedTuple("Price", [("rent", Rent), ("cents", int), ("euros", int)])
    gone: Any = NamedTuple("Price", [("euros", int), ("rent", Rent)])
    added: Any = collections.namedtuple("Price", "euros cents rent tip", defaults=(7,))  # noqa: PYI024
    added.__annotations__ = {"euros": int, "cents": int, "rent": Rent, "tip": int}
    value = [before(5, 99, Rent()), before(1, 2, Rent(days=3))]
    text, copy = shape_of(list[before]).store(value)
    assert copy == value
    assert [each.rent.model_fields_set for each in copy] == [set(), {"days"}]
    assert tagged.read(text)[0] == (5, 99, {"days": 30, "note": None})
    assert shape_of(list[before]).identity(value) == '[{"$tuple":[5,99,{}]},{"$tuple":[1,2,{"days":3}]}]'
    assert codec.digest(text) == codec.digest(tagged.bare(text))
    found = shape_of(list[turned]).load(text)
    assert found == [turned(Rent(), 99, 5), turned(Rent(days=3), 2, 1)]
    assert found[1].rent.model_fields_set == {"days"}
    assert shape_of(list[added]).load(text)[0] == added(5, 99, Rent(), 7)
    with pytest.raises(NotStorable, match="cents"):
        shape_of(list[gone]).load(text)
    assert shape_of(list[gone]).load(text, migrate=lambda old: [each[::2] for each in old])[0] == gone(5, Rent())


class Crossed(pydantic.BaseModel):
    a: int = pydantic.Field(1, alias="b")
    b: int = pydantic.Field(2, alias="a")


def test_an_alias_that_is_another_fields_name_is_not_taken_for_it():
    text, copy = shape_of(Crossed).store(Crossed(a=5))
    for each in (copy, shape_of(Crossed).load(text)):
        assert (each, each.model_fields_set) == (Crossed(a=5), {"b"})
