"""Arguments typed on a command line: strings become what the annotations say."""

from __future__ import annotations

import math
import pathlib
import sqlite3
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

import pydantic
import pytest
from tests.values.samples import Color, Ticket

from holdfast.errors import BadArguments
from holdfast.values.signature import Local, Signature

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def research(topic: str, depth: int = 3, *, tags: list[str] = [], note: str | None = None) -> list[str]: ...  # noqa: B006
def mixed(first: int, /, second: str = "s", *rest: float, flag: bool = False, **extra: Any) -> None: ...
def with_local(url: str, client: Local[sqlite3.Connection]) -> str: ...


@pytest.mark.parametrize(
    ("annotation", "typed_in", "value"),
    [
        (str, "123", "123"),
        (str, '"x"', '"x"'),
        (Annotated[str, pydantic.Field(max_length=3)], "123", "123"),
        (str | None, "123", "123"),
        (int, "3", 3),
        (float, "3", 3.0),
        (float, "nan", math.nan),
        (bool, "yes", True),
        (bool, "false", False),
        (list[str], '["a"]', ["a"]),
        (tuple[int, str], '[1,"a"]', (1, "a")),
        (set[int], "[1,1]", {1}),
        (date, "2024-01-02", date(2024, 1, 2)),
        (datetime, "2024-01-01T12:00:00Z", NOON),
        (Decimal, "1.10", Decimal("1.10")),
        (Decimal | None, "1.10", Decimal("1.10")),
        (pathlib.Path, "a/b", pathlib.Path("a/b")),
        (Color, "red", Color.RED),
        (Literal["1", "2"], "1", "1"),
        (int | str, "7", 7),
        (int | str, "x", "x"),
        (Ticket, '{"title":"x"}', Ticket("x")),
        (Any, "3", 3),
        (Any, "plain words", "plain words"),
        (Any, "NaN", "NaN"),
        (Any, '{"$tuple":[1]}', {"$tuple": [1]}),
        (bytes, "123", b"123"),
    ],
)
def test_what_is_typed_in_gets_the_annotated_type(annotation: Any, typed_in: str, value: Any) -> None:
    """Text for str, JSON or text for the rest; a number for a Decimal loses no digit."""

    def fn(x: Any) -> None: ...

    fn.__annotations__["x"] = annotation
    (found,), _ = Signature(fn).parse([typed_in], {})
    assert type(found) in (type(value), int if annotation is float else type(value))
    assert str(found) == str(value) or found == value  # 1.1 equals 1.10, but is another text
    assert type(value) is not Decimal or str(found) == str(value)
    assert Signature(fn).parse([], {"x": typed_in})[1].keys() == {"x"}


@pytest.mark.parametrize(
    ("strings", "named", "message"),
    [
        (["x", "deep"], {}, "'research': depth: found 'deep', expected int"),
        (["x"], {"tags": "a,b"}, "'research': tags: found 'a,b', expected list[str]"),
        (["x"], {"tags": "[1]"}, "'research': tags: found '[1]', expected list[str]: tags[0]: found int 1"),
        ([], {}, "missing a required argument: 'topic'"),
        (["a", "1", "2"], {}, "too many positional arguments"),
        (["a"], {"nope": "1"}, "unexpected keyword argument 'nope'"),
        (["a"], {"x" * 500: "1"}, "unexpected"),
    ],
)
def test_what_is_typed_in_wrong_is_refused(strings: list[str], named: dict[str, str], message: str) -> None:
    """The message names the parameter, what was found and what is expected."""
    with pytest.raises(BadArguments) as caught:
        Signature(research).parse(strings, named)
    assert message in str(caught.value)


@pytest.mark.parametrize("typed_in", ['{"topic": "sea otters"}', ' {"topic": "sea otters", "depth": 2}'])
def test_an_object_of_arguments_is_not_taken_as_the_text_of_one(typed_in: str) -> None:
    """It is refused with the right spelling, and with that for whoever means the text; other objects are text."""
    with pytest.raises(
        BadArguments, match=r"topic: found .* Give each by its name: --arg 'topic=sea otters'"
    ) as caught:
        Signature(research).parse([typed_in], {})
    assert ("--arg depth=2" in str(caught.value)) == ("depth" in typed_in)
    assert Signature(research).parse([], {"topic": typed_in}) == ((), {"topic": typed_in})
    for text in ('{"title": "x"}', "{topic", "{}", '["topic"]'):
        assert Signature(research).parse([text], {}) == ((text,), {})

    def takes_any(topic: Any) -> None: ...

    assert Signature(takes_any).parse(['{"topic": 1}'], {}) == (({"topic": 1},), {})


def test_names_with_dashes_are_the_parameters_with_underscores() -> None:
    """`--max-items 3` is `max_items=3`."""

    def fn(max_items: int) -> None: ...

    assert Signature(fn).parse([], {"max-items": "3"}) == ((), {"max_items": 3})


def test_a_local_parameter_cannot_be_typed_in() -> None:
    """A client has no text."""
    with pytest.raises(BadArguments, match=r"client is Local\[sqlite3.Connection\]"):
        Signature(with_local).parse(["u", "x"], {})


def test_rest_and_extra_can_be_typed_in() -> None:
    """`*rest` and `**extra` take their own annotations."""
    assert Signature(mixed).parse(["1", "s", "2.5"], {"x": "[1]"}) == ((1, "s", 2.5), {"x": [1]})


def test_a_field_that_the_type_does_not_have_is_named():
    """And the one that was probably meant."""

    def buy(ticket: Ticket) -> None: ...

    with pytest.raises(BadArguments, match=r"ticket: .* has no field 'tag'; did you mean 'tags'\?"):
        Signature(buy).parse(['{"title": "x", "tag": []}'], {})
