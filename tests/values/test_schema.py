"""Starting by name only: arguments are named, written and checked by the schema a worker published."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import annotated_types
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.values.samples import relaxed

from holdfast.errors import BadArguments, NotStorable
from holdfast.values.codec import UNTYPED, shape_of
from holdfast.values.schema import arguments_from_published, check_against, check_value, entered
from holdfast.values.signature import Signature


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Ticket:
    title: str
    stars: Annotated[int, annotated_types.Ge(0)] = 0
    parent: Ticket | None = None


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    kind: Literal["dog"]


def agent(
    topic: str,
    depth: int = 3,
    tickets: list[Ticket] = [],  # noqa: B006
    pair: tuple[int, str] | None = None,
    color: Color | None = None,
    pet: Annotated[Cat | Dog, pydantic.Field(discriminator="kind")] | None = None,
    ratio: Annotated[float, pydantic.Field(gt=0, lt=1)] = 0.5,
    code: Annotated[str, pydantic.Field(pattern="^[a-z]+$", min_length=2, max_length=4)] = "ab",
    names: Annotated[list[str], pydantic.Field(min_length=1, max_length=2)] = ["x"],  # noqa: B006
    when: datetime | None = None,
    price: Decimal = Decimal(0),
    scores: dict[str, int] = {},  # noqa: B006
    anything: Any = None,
) -> None: ...


def rest(first: str, *more: int, flag: bool = False, **extra: Any) -> None: ...


def plain(text: str, count: int = 1, tags: list[str] = [], *, data: Any = None) -> None: ...  # noqa: B006


def published(fn: Callable[..., Any]) -> dict[str, Any]:
    """As it comes out of a store."""
    found: dict[str, Any] = json.loads(json.dumps(Signature(fn).schema()))
    return found


SCHEMA = published(agent)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"depth": 5.0},
        {"tickets": [{"title": "x", "parent": {"title": "y", "stars": 2}}]},
        {"pair": [1, "a"]},
        {"pair": (1, "a")},
        {"color": "blue"},
        {"pet": {"kind": "cat", "lives": 9}},
        {"pet": {"kind": "dog"}},
        {"ratio": 0.25},
        {"code": "abc"},
        {"names": ["a", "b"]},
        {"when": "2024-01-01T00:00:00Z"},
        {"when": datetime(2024, 1, 1, tzinfo=UTC)},
        {"price": Decimal("1.5")},
        {"price": "1.5"},
        {"scores": {"a": 1}},
        {"anything": {"x": [None, {1: (2,)}]}},
    ],
)
def test_what_fits_is_accepted_here_and_by_the_agent(more: dict[str, Any]) -> None:
    """Arguments that pass the schema are also taken by the worker that has the code."""
    arguments, text = arguments_from_published(SCHEMA, ["otters"], more, "a")
    check_against(SCHEMA, arguments, "a")
    Signature(agent).load(text)


def test_a_schema_that_is_only_true_or_false_says_nothing_of_a_default() -> None:
    schema = {"type": "object", "properties": {"a": True, "b": False}}
    assert arguments_from_published(schema, [1, 2], {}, "a")[0] == {"a": 1, "b": 2}
    with pytest.raises(BadArguments):
        check_against(schema, {"a": 1, "b": 2}, "a")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"topic": 3}, "agent 'a': topic: found int 3, expected string"),
        ({"depth": "x"}, "agent 'a': depth: found str 'x', expected integer"),
        ({"depth": True}, "agent 'a': depth: found bool True, expected integer"),
        ({"depth": 1.5}, "agent 'a': depth: found float 1.5, expected integer"),
        ({"depth": None}, "agent 'a': depth: found None, expected integer"),
        ({"nope": 1}, "agent 'a': nope: found a name that is not known, expected one of: topic, depth"),
        ({"tickets": {}}, "agent 'a': tickets: found dict, expected array"),
        ({"tickets": [{"title": "x"}, {"stars": 1}]}, "agent 'a': tickets[1].title: found nothing, expected string"),
        ({"tickets": [{"title": "x", "stars": -1}]}, "agent 'a': tickets[0].stars: found int -1, expected minimum 0"),
        ({"tickets": [{"title": "", "parent": {"title": 1}}]}, "tickets[0].parent.title: found int 1, expected string"),
        ({"pair": [1, 2]}, "agent 'a': pair[1]: found int 2, expected string"),
        ({"pair": [1]}, "agent 'a': pair: found list"),
        ({"color": "green"}, "agent 'a': color: found str 'green', expected one of 'red', 'blue' or null"),
        ({"pet": {"kind": "fish"}}, "agent 'a': pet"),
        ({"pet": {"kind": "dog", "lives": 1}}, "agent 'a': pet"),
        ({"ratio": 1}, "agent 'a': ratio: found int 1, expected exclusiveMaximum 1"),
        ({"ratio": 0}, "agent 'a': ratio: found int 0, expected exclusiveMinimum 0"),
        ({"code": "AB"}, "agent 'a': code: found str 'AB', expected text that matches '^[a-z]+$'"),
        ({"code": "a"}, "agent 'a': code: found str 'a' of length 1, expected minLength 2"),
        ({"code": "abcde"}, "expected maxLength 4"),
        ({"names": []}, "expected minItems 1"),
        ({"names": ["a", "b", "c"]}, "expected maxItems 2"),
        ({"when": 3}, "agent 'a': when: found int 3, expected string (date-time) or null"),
        ({"scores": {"a": "x"}}, "agent 'a': scores.a: found str 'x', expected integer"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_path_found_and_expected(more: dict[str, Any], message: str) -> None:
    """Each keyword that pydantic writes is checked."""
    with pytest.raises(BadArguments) as caught:
        check_against(SCHEMA, {"topic": "otters", **more}, "a")
    assert message in str(caught.value)


def test_a_missing_argument_is_named() -> None:
    """What is required is asked for by name and type."""
    with pytest.raises(BadArguments, match="agent 'a': topic: found nothing, expected string"):
        check_against(SCHEMA, {}, "a")


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"const": 1}, 1, True),
        ({"enum": [1, "a"]}, "a", True),
        ({"type": ["string", "null"]}, None, 1),
        ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, 2, 4),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, "x", 1),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, ["a", 1, 2], ["a", "b"]),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": False}, ["a"], ["a", 1]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": "x"}),
        ({"type": "object", "minProperties": 1, "maxProperties": 1}, {"a": 1}, {}),
        ({"type": "number"}, 1, True),
        ({"type": "string", "pattern": "(?P<"}, "anything", 1),
        ({"type": "string", "format": "email"}, "not checked here", 1),
        ({"type": "string", "format": "uuid"}, "12345678123456781234567812345678", "no uuid"),
        ({"type": "string", "format": "date-time"}, "2026-01-02T12:00:00Z", "noon"),
        ({"type": "string", "format": "date"}, "2026-01-02", "2026-13-02"),
        ({"type": "string", "format": "time"}, "12:00", "late"),
    ],
)
def test_each_keyword(schema: dict[str, Any], good: Any, bad: Any) -> None:
    """A keyword accepts what it should and refuses what it should."""
    wrapped = {"type": "object", "properties": {"x": schema}}
    check_against(wrapped, {"x": good}, "a")
    with pytest.raises(BadArguments, match="agent 'a': x"):
        check_against(wrapped, {"x": bad}, "a")


def test_values_json_does_not_have_are_checked_as_they_would_look() -> None:
    """A date, a UUID, bytes, a set: a schema that wants text or a list is content."""

    def fn(day: date, key: UUID, raw: bytes, members: set[int]) -> None: ...

    check_against(published(fn), {"day": date(2024, 1, 1), "key": UUID(int=1), "raw": b"x", "members": {1}}, "a")


def test_endless_references_are_refused() -> None:
    """A schema that only points at itself is an error of its own, not a crash."""
    endless = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}
    with pytest.raises(BadArguments, match="nested too deeply"):
        check_against(endless, {}, "a")


# --- naming and writing ---


json_values = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(),
    lambda part: st.lists(part, max_size=2) | st.dictionaries(st.text(alphabet=["$", "a"]), part, max_size=2),
)


@pytest.mark.slow
@relaxed
@given(st.text(), st.integers(0, 3) | st.booleans(), st.lists(st.text(), max_size=2), json_values)
def test_the_text_is_what_the_agent_itself_would_write(text: str, count: int, tags: list[str], data: Any) -> None:
    """For plain values a start by name and a start with the function record the same."""
    made = Signature(plain).bind((text, count), {"tags": tags, "data": data}).identity
    assert arguments_from_published(published(plain), (text, count), {"data": data, "tags": tags}, "a")[1] == made


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("a",), {}),
        (("a", 1, 2), {"flag": True, "x": 1}),
        ((), {"first": "a", "z": (1,), "b": {2}}),
        (("a",), {"flag": False}),
    ],
)
def test_rest_and_extra_arguments_find_their_places(args: Any, kwargs: Any) -> None:
    """What goes beyond the positions is `*rest`; keyword-only parameters take no position."""
    made = Signature(rest).bind(args, kwargs).identity
    arguments, text = arguments_from_published(published(rest), args, kwargs, "a")
    assert text == made
    check_against(published(rest), arguments, "a")


def test_too_many_and_doubled_arguments_are_refused() -> None:
    """Positions are counted and names are used once."""
    schema = published(plain)
    with pytest.raises(BadArguments, match=r"agent 'a' takes \(text, count, tags, data\); got 4 arguments by position"):
        arguments_from_published(schema, ("x", 1, [], 2), {}, "a")
    with pytest.raises(BadArguments, match="'text' was given twice"):
        arguments_from_published(schema, ("x",), {"text": "y"}, "a")


def test_an_argument_that_cannot_be_stored_is_refused_here() -> None:
    """A start by name takes plain data only, and says so by path."""
    with pytest.raises(NotStorable, match=r"^data\.t: .*Ticket is stored only where its type is annotated"):
        arguments_from_published(published(plain), ("x",), {"data": {"t": Ticket("x")}}, "a")


def test_a_nan_is_a_number() -> None:
    """Floats that JSON cannot write are numbers to a schema."""
    check_against({"properties": {"x": {"type": "number"}}}, {"x": math.nan}, "a")


D = Decimal


@pytest.mark.parametrize(
    ("kind", "limits", "good", "bad"),
    [
        (D, {"ge": 0}, ["0", 5, "1e300", D(1)], ["-5", -5, "-1e-22", D(-5)]),
        (D, {"ge": D("0.1")}, ["0.1", 0.1, "0.10"], ["0.09999999999999999999"]),
        (D, {"le": D("99999999999999999999.99")}, ["99999999999999999999.99"], ["100000000000000000000"]),
        (D, {"gt": 0, "lt": 10, "allow_inf_nan": True}, ["9.99"], ["0", "10", "Infinity", "NaN"]),
        (D, {"gt": 0, "allow_inf_nan": True}, ["Infinity"], ["-Infinity"]),
        (D, {"max_digits": 5, "decimal_places": 2}, ["123.45", 1.5], ["1.999", 1.999, "12345"]),
        (D, {"multiple_of": D("0.25")}, ["0.75", 0.75], ["0.3", 0.3, "1e300"]),
        (D, {"multiple_of": D("0.005"), "decimal_places": 2}, ["0.25", 0.25], ["0.125", 0.125]),
        (D | None, {"ge": 0}, ["5", None], ["-5", -5]),
        (D | int, {"ge": 0}, ["5", 5], ["-5", -5]),
        (int | float, {"ge": 0}, [5, 0.5], [-5, -0.5]),
        (int, {"multiple_of": 5}, [10, 10.0, 10**400], [7]),
        (float, {"multiple_of": 0.1}, [0.3, 7], [0.35]),
        (date, {"ge": date(2020, 1, 1)}, ["2020-01-01", date(2021, 1, 1)], ["2019-12-31", date(2019, 1, 1)]),
        (datetime, {"lt": datetime(2020, 1, 1, tzinfo=UTC)}, ["2019-01-01T00:00:00Z"], ["2019-12-31T23:59:00-01:00"]),
        (time, {"le": time(8)}, ["08:00"], ["08:00:01", time(9)]),
        (timedelta, {"gt": timedelta()}, ["PT1S", timedelta(1)], ["PT0S", timedelta(-1)]),
    ],
)
def test_limits_are_held_as_the_type_holds_them(kind, limits, good, bad):
    """What the type would refuse in the worker is refused here, whether it is a number, a text or a value of Python."""
    shape = shape_of(list[Annotated[kind, pydantic.Field(**limits)]])
    schema = json.loads(json.dumps(shape.schema()))
    for value in good:
        check_value(schema, [value], "data")
        shape.load(UNTYPED.text([value], "data"))
    for value in bad:
        with pytest.raises(NotStorable):
            shape.load(UNTYPED.text([value], "data"))
        with pytest.raises(BadArguments, match=r"data: \[0\]: found "):
            check_value(schema, [value], "data")


def test_limits_that_no_type_has_say_nothing():
    """A schema may come from anybody."""
    for limits in ({"ge": "x"}, {"multiple_of": 0}, {"max_digits": -1}, {"pattern": "(a+)+$", "type": "str"}):
        check_value({"type": "string", "format": "decimal", "x-limits": limits}, "5", "data")
    check_value({"type": "integer", "multipleOf": 0}, 5, "data")


def test_a_decimal_that_a_person_enters_has_every_digit():
    """A long number of JSON is a float that has lost some: it is refused, and its text is taken."""
    schema = shape_of(dict[str, Decimal]).schema()
    for text in ('{"a": 99.5}', '{"a": 123456789012}', '{"a": "1234567890123456.17"}', '{"a": -0.000120}'):
        assert json.loads(entered(schema, text, "data")) == json.loads(text)
    with pytest.raises(BadArguments, match=r"a: found the number 1234567890123456\.2, of which digits may be lost"):
        entered(schema, '{"a": 1234567890123456.17}', "data")
    with pytest.raises(BadArguments, match="EUR"):
        entered(schema, '{"a": "99.5 EUR"}', "data")
    assert entered(shape_of(float | str).schema(), "1234567890123456.17", "data") == "1234567890123456.2"
