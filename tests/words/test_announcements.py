"""Announcements as words: names, values, ids, and what is compared."""

import pytest

import holdfast
from holdfast import Announcement, BadArguments, Batch, On
from holdfast.verbs.messages import checked_topic
from holdfast.words.announcements import (
    LONGEST_VALUE,
    bucket,
    checked_event,
    checked_key,
    checked_match,
    checked_value,
    event_of,
    fields_of,
    joined,
    keyed_id,
    nth_id,
    parted,
    stored,
    topic_of,
    wanted,
)


@pytest.mark.parametrize("name", ["", "a b", ".x", "-x", "ü", "a" * 101, None, 7, "a\0", "holdfast/x"])
def test_a_bad_name_is_refused_and_told_how_one_looks(name):
    with pytest.raises(BadArguments, match=r"cannot name an announcement; use 1 to 100 letters"):
        checked_event(name)


def test_names_that_are_used():
    assert [checked_event(name) for name in ("order.paid", "a", "A:b_c-d.9")] == ["order.paid", "a", "A:b_c-d.9"]


@pytest.mark.parametrize(
    "match",
    [[], "order", {7: 1}, {"": 1}, {"a": [1]}, {"a": {}}, {"a": float("nan")}, {"a": "x" * 3000}, {"a\0": 1}, {"a": 10**4300},
     {str(n): n for n in range(21)}],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(match):
    with pytest.raises(BadArguments):
        checked_match(match)


@pytest.mark.parametrize(
    ("match", "value", "fits"),
    [
        ({"order": 7}, {"order": 7, "more": [1]}, True),
        ({"order": 7}, {"order": 7.0}, True),
        ({"order": 7.0}, {"order": 7}, True),
        ({"order": 7}, {"order": "7"}, False),
        ({"order": 1}, {"order": True}, False),
        ({"order": None}, {"order": None}, True),
        ({"order": None}, {}, False),
        ({"order": 7}, {"order": [7]}, False),
        ({"order": 7}, [7], False),
        ({"order": 7}, None, False),
        ({"b": "x", "a": 1}, {"a": 1, "b": "x", "c": 2}, True),
        ({"b": "x", "a": 1}, {"a": "x", "b": 1}, False),
        ({}, {"anything": 1}, True),
        ({"n": 2**70}, {"n": 2**70}, True),
        ({"n": 1e300}, {"n": 1e300}, True),
        ({"n": 7}, {"n": 10**4300}, False),
    ],
)
def test_fields_are_compared_by_their_values(match, value, fits):
    fields = fields_of(checked_match(match))
    found = wanted(fields, value)
    assert (found is not None and found == wanted(fields, match)) is fits


def test_each_value_is_gathered_somewhere():
    """Also what Python does not write: a number of thousands of digits, keys without an order."""
    values = [7, "7", [7], 10**4300, 10**4301, {1: 1, "a": 2}]
    assert len({bucket("n", {"n": value}) for value in values}) == len(values)
    assert bucket("n", {"n": 10**4300}) == bucket("n", {"n": 10**4300})


@pytest.mark.parametrize("values", [[], ["1"], ['"a,]"', '{"a": [1, "}"]}', "null", "1" * 5000, "1e400"]])
def test_a_list_is_parted_into_what_it_was_joined_of(values):
    assert parted(joined(values)) == values


def test_a_topic_tells_its_announcements():
    plain, matched = topic_of("order.paid", {}), topic_of("order.paid", {"order": 7})
    assert plain != matched and len(topic_of("a" * 100, {"x": "y" * 2000})) <= 200
    assert (event_of(plain), event_of(matched), event_of("order.paid")) == ("order.paid", "order.paid", None)
    with pytest.raises(BadArguments, match="Holdfast's own"):
        checked_topic(plain)


def test_ids_are_those_of_the_call_or_of_the_key():
    assert nth_id("call", 0) == nth_id("call", 0) != nth_id("call", 1)
    assert keyed_id("a", "k") != keyed_id("b", "k")
    assert keyed_id("a", "bc") != keyed_id("ab", "c")
    for bad in ("", "x" * 201, "a\0"):
        with pytest.raises(BadArguments):
            checked_key(bad)


def test_buckets():
    assert bucket(None, {"a": 1}) == ""
    assert bucket("a", {"a": 1}) == bucket("a", {"a": 1.0}) != bucket("a", {"a": 2})
    assert bucket("a", {}) == bucket("a", [1]) == bucket("a", {"a": None})
    assert bucket("a", {"a": [1, {"b": 2}]}) != bucket("a", {"a": [1]})


def test_a_large_value_is_refused_with_what_to_do():
    assert checked_value("x" * LONGEST_VALUE, "n")
    with pytest.raises(holdfast.NotStorable, match="publish its address"):
        checked_value("x" * (LONGEST_VALUE + 1), "n")


async def asynchronous(event):
    return True


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: On("a b"), "cannot name an announcement"),
        (lambda: On("a", if_=3), "plain function"),
        (lambda: On("a", if_=asynchronous), "plain function"),
        (lambda: On("a", batch=3), "give a Batch"),
        (lambda: On("a", debounce="soon"), "soon"),
        (lambda: On("a", by="x"), "goes with debounce"),
        (lambda: On("a", debounce=1, by=""), "name a field"),
        (lambda: Batch(0, "1s"), "from 1 to 1,000"),
        (lambda: Batch(1001, "1s"), "from 1 to 1,000"),
        (lambda: Batch(True, "1s"), "from 1 to 1,000"),
        (lambda: Batch(2, "never"), "never"),
        (lambda: holdfast.agent(on="order.paid")(asynchronous), r"on=On\('order.paid'\)"),
    ],
)
def test_bad_options_are_refused(make, match):
    with pytest.raises(BadArguments, match=match):
        make()


async def nothing() -> None: ...
async def two(a: int, b: int) -> None: ...
async def named(*, a: int) -> None: ...


@pytest.mark.parametrize("fn", [nothing, two, named])
def test_an_agent_that_takes_no_value_cannot_be_started(fn):
    with pytest.raises(BadArguments, match="with the value of the announcement alone"):
        holdfast.agent(on=On("a"))(fn)
    with pytest.raises(BadArguments, match="not the name of a trigger"):
        holdfast.agent(on=On("a"), name="a:b")(asynchronous)


def test_an_announcement_is_a_plain_value():
    assert Announcement("a", 1) == Announcement("a", 1)
    assert stored(On("a")) == {"event": "a", "if": False, "debounce_ms": None, "by": None, "batch": None}
    assert stored(On("a", batch=Batch(2, "1s"), debounce="0.5s"))["batch"] == [2, 1000]
