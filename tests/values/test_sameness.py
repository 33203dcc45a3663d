"""Sameness: what `==` takes for equal and is not, and what it does not and is."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from tests.values.samples import BERLIN, exactly, relaxed, values

from holdfast.values.sameness import difference, lost


@dataclasses.dataclass(eq=False)
class Box:
    content: Any


class Place(NamedTuple):
    x: float
    y: int


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


KEPT = list[float]()


def nan() -> float:
    """A nan of a new address, which is its hash: so sets that have one are in another order each time."""
    KEPT.append(float("nan"))
    return KEPT[-1]


def nested() -> frozenset[Any]:
    return frozenset({frozenset({nan(), 1.0}), frozenset({nan(), 2.0, -0.0}), frozenset({nan()}), frozenset({3.0})})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda: {nested(), frozenset({frozenset({nan(), 5.0})})},) * 2,
        (lambda: {nested(): 1, frozenset({nested(), nan()}): 2},) * 2,
        (lambda: {frozenset({Place(nan(), 2), Place(nan(), 7)}), frozenset({Place(1.0, 3), Place(nan(), 2)})},) * 2,
        (lambda: {frozenset({Decimal("NaN"), Decimal(1)}), frozenset({Decimal("NaN"), Decimal("1.50")})},) * 2,
        (lambda: {frozenset({complex(nan(), 1), 1j}), frozenset({complex(nan(), 2), complex(1, nan())})},) * 2,
        (lambda: {(10**5000, nan()), (10**5001, nan())},) * 2,
        (lambda: {(10**20, nan()), (15, nan())}, lambda: {(1e20, nan()), (15.0, nan())}),
        (lambda: {(10**20, nan()), (15.5, nan())}, lambda: {(complex(1e20), nan()), (complex(15.5), nan())}),
        (lambda: {"a": 1, nested(): 2, nan(): 3}, lambda: {nan(): 3, nested(): 2, "a": 1}),
    ],
)
def test_what_has_a_nan_inside_finds_its_fellow(before: Callable[[], Any], after: Callable[[], Any]) -> None:
    """Whatever the hash of a nan is this time: sets have their members in another order then."""
    for _ in range(30):
        assert difference(before(), after()) is None
        assert lost(before(), after(), lambda *_: False) is None


def test_what_has_a_nan_inside_is_told_from_others() -> None:
    """A fellow that has something else beside its nan, or that another has taken already, is none."""
    for before, after in (
        ({(nan(), 1)}, {(nan(), 2)}),
        ({(nan(), 0.0)}, {(nan(), -0.0)}),
        ({frozenset({nan(), 1}), 5}, {frozenset({nan(), True}), 5}),
        ({(nan(), 1), (nan(), 1)}, {(nan(), 1)}),
        ({nan(): 1}, {nan(): 2}),
        ({nan(): 1, "a": 1}, {"a": 1, nan(): 2}),
        ({nan(): 1, "a": 1}, {"a": 1}),
        ({"a": 1}, {"a": 1, nan(): 1}),
    ):
        assert difference(before, after) is not None
    found = difference({1}, {1, 2})
    assert found == (("[2]",), "nothing", "2", False)


@pytest.mark.slow
@relaxed
@given(values, values)
def test_sameness_agrees_with_a_comparison_that_is_not_ours(one: Any, other: Any) -> None:
    """Two plain values are the same exactly when their pictures are, but for the order of keys and wider numbers."""
    if exactly(one) == exactly(other):
        assert difference(one, other) is None
    elif difference(one, other) is None:
        assert one == other or "nan" in repr(one)
