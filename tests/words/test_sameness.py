"""Sameness: what `==` takes for equal and is not, and what it does not and is."""

from __future__ import annotations

import collections
import dataclasses
import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from tests.words.values import BERLIN, exactly, relaxed, values

from holdfast.values.sameness import difference


@dataclasses.dataclass(eq=False)
class Box:
    content: Any


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (True, 1),
        (1, True),
        (1.0, 1),
        (0.0, -0.0),
        (2**70 + 1, float(2**70)),
        (Decimal("1.0"), Decimal("1.00")),
        ([1], (1,)),
        ([1], [1, 2]),
        ([1, 2], [1]),
        ({"a": 1}, {"a": True}),
        ({1: "x"}, {True: "x"}),
        ({"a": 1, "b": 2}, {"b": 2}),
        ({"b": 2}, {"b": 2, "a": 1}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 3}),
        ({1}, {True}),
        ({1, 2}, {1}),
        ({1}, {1, 2}),
        ({1: 0}, collections.OrderedDict({1: 0})),
        (datetime(2024, 1, 1, 12, tzinfo=UTC), datetime(2024, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))),
        (datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN), datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1)),
        (datetime(2024, 6, 1, tzinfo=UTC), datetime(2024, 6, 1, tzinfo=UTC, fold=1)),
        (datetime(2024, 6, 1, tzinfo=BERLIN), datetime(2024, 6, 1, tzinfo=ZoneInfo("Europe/Rome"))),
        (datetime(2024, 6, 1, tzinfo=BERLIN), datetime(2024, 6, 1, tzinfo=timezone(timedelta(hours=2)))),
        (datetime(2024, 6, 1, tzinfo=BERLIN).timetz(), datetime(2024, 6, 1, tzinfo=ZoneInfo("Europe/Rome")).timetz()),
        (datetime(2024, 6, 1, tzinfo=timezone(timedelta(0), "Z")), datetime(2024, 6, 1, tzinfo=UTC)),
        (datetime(2024, 6, 1, tzinfo=UTC).time(), datetime(2024, 6, 1, tzinfo=UTC).timetz()),
        (Box([1]), Box([2])),
        (collections.deque([1], 2), collections.deque([1], 3)),
    ],
)
def test_what_is_not_the_same_is_told_apart(before: Any, after: Any) -> None:
    """Types, signs, zones, folds and lengths count, wherever they lie."""
    assert difference(before, after) is not None
    found = difference({"k": [before]}, {"k": [after]})
    assert found is not None
    assert found.path[:2] == (".k", "[0]")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (3, 3.0),
        (3, complex(3)),
        (math.nan, float("nan")),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({float("nan"): 1}, {float("nan"): 1}),
        ({float("nan"), 1}, {1, float("nan")}),
        (Box([object]), Box([object])),
    ],
)
def test_what_is_the_same_is_not_told_apart(before: Any, after: Any) -> None:
    """An int may widen, a nan is a nan, and the order of keys is no difference."""
    assert difference(before, after) is None


@relaxed
@given(values, values)
def test_sameness_agrees_with_a_comparison_that_is_not_ours(one: Any, other: Any) -> None:
    """Two plain values are the same exactly when their pictures are, but for the order of keys and wider numbers."""
    if exactly(one) == exactly(other):
        assert difference(one, other) is None
    elif difference(one, other) is None:
        assert one == other or "nan" in repr(one)
