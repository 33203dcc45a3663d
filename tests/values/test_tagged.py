"""Plain values: the text of each kind, that it comes back exactly, and that no text can do harm."""

from __future__ import annotations

import collections
import contextlib
import json
import math
import os
import pathlib
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from tests.values.samples import (
    BERLIN,
    Cat,
    Color,
    Holder,
    Level,
    Point,
    Ticket,
    Tree,
    exactly,
    refusal,
    relaxed,
    values,
)

import holdfast
from holdfast.errors import NotStorable
from holdfast.values.codec import BLOB_BYTES, DEFAULT_LIMIT_BYTES, DEPTH_LIMIT, UNTYPED, checked_size, digest, preview
from holdfast.values.tagged import AROUND

# --- plain values ---


@relaxed
@given(values)
def test_any_plain_value_comes_back_exactly(value: Any) -> None:
    """Whatever is nested in whatever, type, order, sign, zone and fold come back, and the text is stable."""
    text, copy = UNTYPED.store(value)
    assert text.isascii()
    assert exactly(UNTYPED.load(text)) == exactly(value) == exactly(copy)
    assert UNTYPED.store(copy)[0] == text
    assert digest(text) == digest(UNTYPED.store(copy)[0])
    assert "\n" not in preview(text)
    assert len(preview(text)) <= 120


@pytest.mark.slow
@relaxed
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
        (
            datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
            '{"$datetime":{"at":"2024-10-27T02:30:00","zone":"Europe/Berlin","fold":1}}',
        ),
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


@pytest.mark.parametrize("key", ["$tuple", "$map", "$unset", "$of", "$default", "$names", "$anything", "$"])
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
        "",
        "{",
        "[1,]",
        "nope",
        "NaN",
        "Infinity",
        '"\n"',
        "[1] 2",
        '{"$unknown":1}',
        '{"$tuple":"ab"}',
        '{"$tuple":{"$set":[]}}',
        '{"$set":[[]]}',
        '{"$set":[1,1]}',
        '{"$map":[[1]]}',
        '{"$map":[[],[]]}',
        '{"$map":[["a",1],["a",2]]}',
        '{"$map":{"a":1}}',
        '{"$map":["ab"]}',
        '{"$int":"12"}',
        '{"$int":"0x_1"}',
        '{"$int":3}',
        '{"$float":"1.0"}',
        '{"$float":3}',
        '{"$bytes":"%%"}',
        '{"$bytes":7}',
        '{"$decimal":"x"}',
        '{"$uuid":"x"}',
        '{"$date":"x"}',
        '{"$date":7}',
        '{"$datetime":"%s"}' % ("2026-01-01T00:00:00" * 500),
        '{"$timedelta":[1,2]}',
        '{"$timedelta":[1,2,true]}',
        '{"$timedelta":[9999999999,0,0]}',
        '{"$complex":[1,2]}',
        '{"$datetime":{"at":"2024-01-01T00:00:00","zone":"../etc/passwd"}}',
        '{"$datetime":{"at":"2024-01-01T00:00:00","zone":"Nowhere/City"}}',
        '{"$datetime":{"at":"2024-01-01T00:00:00","run":"x"}}',
        '{"$datetime":{"at":"2024-01-01T00:00:00","zone":"Europe"}}',
        '{"\\u0024nope":1}',
        '{"$time":{"zone":"UTC"}}',
        '{"$unset":[]}',
        '{"$unset":[["a"],{}]}',
        '{"$unset":[[1],{"a":1}]}',
        '{"$unset":[["a"],["a"]]}',
        '{"$of":[{}]}',
        '{"$names":[["a"],[1]]}',
        '{"$names":[["a","a"],{"$tuple":[1,2]}]}',
        '{"$names":[["a"],{"$tuple":[1,2]}]}',
        '{"$default":[["a"],{}]}',
        '{"$of":[1,{"a":1}]}',
        '{"$of":["A",["a"]]}',
        "1" * 5000,
        "[" * 100_000,
        '{"$tuple":[' * 50_000,
        "[" * 300 + "]" * 300,
        '{"a":' * 300 + "1" + "}" * 300,
        '{"$tuple":[' * 250 + "]}" * 250,
        '{"$frozenset":[' * 250 + "]}" * 250,
    ],
)
def test_text_that_nothing_wrote_is_refused(text: str) -> None:
    """Malformed, unknown, duplicate, hostile or bottomless text is `NotStorable`, never another error."""
    with pytest.raises(NotStorable) as refused:
        UNTYPED.load(text)
    assert len(str(refused.value)) < 500
    assert len(digest(text)) == 32
    assert len(preview(text)) <= 120


def test_a_tag_cannot_be_hidden_behind_an_escape() -> None:
    """The quick path for text without tags sees a tag that is spelled with an escape."""
    assert UNTYPED.load('{"\\u0024tuple":[1]}') == (1,)


def test_reading_never_runs_code() -> None:
    """Nothing that text can say imports a module, calls a function or unpickles."""
    before = set(sys.modules)
    for text in (
        '{"$import":"os.system"}',
        '{"$py/reduce":["os.system",["true"]]}',
        '{"__reduce__":["os.system"]}',
        '{"$bytes":"gASVBg=="}',
    ):
        with contextlib.suppress(NotStorable):
            assert isinstance(UNTYPED.load(text), dict | bytes)
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
    UNTYPED.load(json.dumps([nested(DEPTH_LIMIT + AROUND - 1), []]))  # more brackets than levels
    with pytest.raises(NotStorable):
        UNTYPED.load(json.dumps([nested(DEPTH_LIMIT + AROUND), []]))
    message = refusal(Any, nested(DEPTH_LIMIT + 1))
    assert message.startswith("result[0][0]")
    assert "…" in message
    assert len(message) < 200


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


@pytest.mark.slow
def test_a_small_value_that_would_be_a_huge_text_is_refused() -> None:
    """Thirty lists that each hold the one before twice do not fill the memory."""
    value: list[Any] = ["x"]
    for _ in range(30):
        value = [value, value]
    assert "holds millions of values" in refusal(Any, value)
    assert len(UNTYPED.text([0] * 1_000_000)) == 2_000_001  # while what is merely long is a matter of its size


def test_the_refusal_names_path_and_advice() -> None:
    """The message is the one the contract promises."""
    expected = (
        "result.items[3].conn: sqlite3.Connection cannot be stored; return plain data, a dataclass or a pydantic type"
    )
    with contextlib.closing(sqlite3.connect(":memory:")) as conn:
        assert refusal(Any, {"items": [1, 2, 3, {"conn": conn}]}) == expected
        assert refusal(Holder, Holder(items=[1, 2, 3, {"conn": conn}])) == expected
        assert refusal(Holder, Holder(conn=conn)).startswith("result.conn: sqlite3.Connection cannot be stored")
    assert refusal(Any, {"odd key": {2: object()}}).startswith("result['odd key'][2]: object cannot")


@pytest.mark.parametrize("value", [Ticket("x"), Cat(), Color.RED, Level.LOW])
def test_a_typed_value_without_its_annotation_is_refused_with_advice(value: Any) -> None:
    """Dataclasses, models and enums do not silently become dicts and strings."""
    for annotation in (Any, list, dict[str, Any], object):
        nest = [value] if annotation is list else {"k": value}
        assert "annotate the step's return type" in refusal(annotation, nest)


@pytest.mark.parametrize(
    "value",
    [
        collections.OrderedDict(a=1),
        collections.Counter("a"),
        Point(1),
        pathlib.Path("x"),
        range(3),
        iter([1]),
        Ticket,
        len,
    ],
)
def test_subclasses_and_strangers_are_refused(value: Any) -> None:
    """Nothing loses its class in silence."""
    assert refusal(Any, {"k": value}).startswith("result.k: ")


def test_a_foreign_time_zone_is_refused() -> None:
    """A zone class that cannot be rebuilt is named, with what to use."""

    class Zone(timezone.__base__):  # type: ignore[name-defined, misc]
        def utcoffset(self, _: Any) -> timedelta:
            return timedelta(0)

    assert "use zoneinfo.ZoneInfo" in refusal(Any, datetime(2024, 1, 1, tzinfo=Zone()))


# --- digests, previews, sizes ---


def test_a_digest_ignores_the_order_of_keys_and_nothing_else() -> None:
    """Equal dicts have one digest; other values, other digests."""

    def of(value: Any) -> str:
        return digest(UNTYPED.store(value)[0])

    assert of({"a": 1, "b": {"d": 1, "c": 2}}) == of({"b": {"c": 2, "d": 1}, "a": 1})
    assert of({1: 2, (3,): {"x": 1, "y": 2}}) == of({(3,): {"y": 2, "x": 1}, 1: 2})
    assert (
        len({of(each) for each in (1, 1.0, True, "1", [1], (1,), {1}, None, {"a": 1}, {"a": True}, {"1": 1}, {1: 1})})
        == 12
    )


def test_digests_are_the_same_in_another_process() -> None:
    """Another hash seed changes the order of sets, but no text and no digest."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from holdfast.values.codec import UNTYPED, digest\n"
        "value = {'s': {str(n) for n in range(50)}, 'f': frozenset({('a', n) for n in range(20)})}\n"
        "value['m'] = {('k', 1): {b'x', 'y'}}\n"
        "text = UNTYPED.store(value)[0]; print(text, digest(text))"
    )
    source = str(Path(holdfast.__file__).parents[1])
    seen = {
        subprocess.run(
            [sys.executable, "-c", code, source],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(seen) == 1
    assert len(seen.pop()) > 500


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
        assert len(shown) == 120
        assert shown.endswith("…")
    assert len(preview(UNTYPED.store("x" * 500)[0], limit=20)) == 20


def test_sizes_are_checked_in_readable_units() -> None:
    """A text that is too large is refused with size, limit and what to do."""
    assert checked_size("x" * 10, 10, "result") == "x" * 10
    with pytest.raises(NotStorable, match=r"^result: 1.5 KiB is more than the limit of 1 KiB; put it into a file"):
        checked_size("x" * 1536, 1024, "result")
    assert (BLOB_BYTES, DEFAULT_LIMIT_BYTES) == (65_536, 16_777_216)
