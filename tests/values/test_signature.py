"""Arguments: recorded by name, copied for the call, and checked against what the function says it takes."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import json
import math
import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from time import process_time
from typing import TYPE_CHECKING, Any, TypedDict, Unpack
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.values.samples import relaxed

from holdfast.errors import BadArguments, NotStorable
from holdfast.values.codec import UNTYPED, digest, shape_of
from holdfast.values.signature import Bound, Local, Signature

if TYPE_CHECKING:
    from nowhere import Client, Thing

SENTINEL = object()
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Ticket:
    title: str
    stars: int = 0


@dataclasses.dataclass
class Plan:
    at: datetime = datetime(2024, 6, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    daily: time = time(9, tzinfo=ZoneInfo("Europe/Berlin"))
    named: datetime = datetime(2024, 6, 1, tzinfo=timezone(timedelta(hours=2)))
    share: int | float = 1.0
    order: dict[str, int] = dataclasses.field(default_factory=lambda: {"a": 1, "b": 2})


class Order(pydantic.BaseModel):
    lines: list[Ticket] = []


class Options(TypedDict, total=False):
    fast: bool


def research(topic: str, depth: int = 3, *, tags: list[str] = [], note: str | None = None) -> list[str]: ...  # noqa: B006
def mixed(first: int, /, second: str = "s", *rest: float, flag: bool = False, **extra: Any) -> None: ...
def untyped(a, b=2): ...
def with_local(url: str, client: Local[sqlite3.Connection], log: Local[Callable[[str], None]] | None = None) -> str: ...
def plans(plan: Plan) -> None: ...
def typed(ticket: Ticket, when: datetime, order: Order | None = None) -> Ticket: ...


class Service:
    async def fetch(self, url: str, retries: int = 1) -> bytes: ...


def bind(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Bound:
    return Signature(fn).bind(args, kwargs)


# --- what is recorded ---


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (bind(research, "otters"), '{"topic":"otters"}'),
        (bind(research, "otters", 5), '{"topic":"otters","depth":5}'),
        (bind(research, depth=5, topic="otters"), '{"topic":"otters","depth":5}'),
        (bind(research, "otters", 3, tags=[], note=None), '{"topic":"otters"}'),
        (bind(research, "otters", tags=["a"], note="n"), '{"topic":"otters","tags":["a"],"note":"n"}'),
        (bind(mixed, 1), '{"first":1}'),
        (bind(mixed, 1, "s", 1.5, 2.5, flag=True, x=[1]), '{"first":1,"rest":[1.5,2.5],"flag":true,"x":[1]}'),
        (bind(untyped, (1,), b={2}), '{"a":{"$tuple":[1]},"b":{"$set":[2]}}'),
        (bind(typed, Ticket("x"), NOON), '{"ticket":{"title":"x"},"when":{"$datetime":"2024-01-01T12:00:00+00:00"}}'),
    ],
)  # fmt: skip
def test_arguments_are_identified_by_name_without_defaults(bound: Bound, text: str) -> None:
    """However a call is written, its identity is the same; what equals its default is left out."""
    assert bound.identity == text
    assert bound.digest == digest(text)


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (bind(research, "otters"), '{"topic":"otters","depth":3,"tags":[],"note":null}'),
        (bind(research, note="n", topic="otters"), '{"topic":"otters","depth":3,"tags":[],"note":"n"}'),
        (bind(mixed, 1), '{"first":1,"second":"s","flag":false}'),
        (bind(mixed, 1, "t", 1.5, x=[1]), '{"first":1,"second":"t","rest":[1.5],"flag":false,"x":[1]}'),
        (bind(typed, Ticket("x"), NOON),
         '{"ticket":{"title":"x","stars":0},"when":{"$datetime":"2024-01-01T12:00:00+00:00"},"order":null}'),
    ],
)  # fmt: skip
def test_arguments_are_recorded_whole(bound: Bound, text: str) -> None:
    """The record has all arguments in the order of the parameters, those at their default too."""
    assert bound.text == text


def test_recorded_arguments_outlive_their_defaults() -> None:
    """A default that changes later changes no call that was made; a parameter that is added is filled in."""

    def before(to: str, euros: int = 30) -> None: ...
    def after(to: str, euros: int = 9999, note: str = "n") -> None: ...

    assert Signature(after).load(bind(before, "bo").text) == ((), {"to": "bo", "euros": 30})


def test_adding_a_parameter_with_a_default_changes_no_digest() -> None:
    """Old records stay valid when a function grows."""

    def before(topic: str) -> None: ...
    def after(topic: str, depth: int = 3) -> None: ...

    assert bind(before, "x").digest == bind(after, "x").digest == bind(after, "x", 3).digest
    assert bind(after, "x", 4).digest != bind(after, "x").digest


def test_a_default_is_told_from_what_only_equals_it() -> None:
    """`True` and `1.0` are not the default `1`, and nan is the default nan."""

    def fn(a: Any = 1, b: float = math.nan) -> None: ...

    assert bind(fn, True).identity == '{"a":true}'
    assert bind(fn, 1.0).identity == '{"a":1.0}'
    assert bind(fn, 1, float("nan")).identity == "{}"


def test_the_call_gets_what_was_given_and_not_the_default_that_equals_it() -> None:
    """Zones of one offset, the zone of a time of day, whole numbers, the order of keys: all that `==` does not tell apart."""
    rome, cest = ZoneInfo("Europe/Rome"), timezone(timedelta(hours=2), "CEST")
    given = Plan(
        datetime(2024, 6, 1, tzinfo=rome), time(9, tzinfo=rome), datetime(2024, 6, 1, tzinfo=cest), 1, {"b": 2, "a": 1}
    )
    (got,) = bind(plans, given).args
    assert repr(got) == repr(given)
    assert repr(Signature(plans).load(bind(plans, given).text)[1]["plan"]) == repr(given)


def test_a_default_that_cannot_be_stored_may_be_left_or_passed() -> None:
    """A sentinel, or None without its annotation, is recognised as the default it is; what can be written is recorded."""

    def fn(a: Any = SENTINEL, b: str = None) -> None: ...  # noqa: RUF013 - as people write it

    assert bind(fn, SENTINEL, None).identity == "{}"
    assert bind(fn).text == bind(fn, SENTINEL, None).text == '{"$default":[["b"],{"b":null}]}'
    assert bind(fn).preview == "b=None"
    assert bind(fn, SENTINEL, None).args == (SENTINEL, None)


@dataclasses.dataclass
class Fee:
    cents: int


def test_a_recorded_default_is_not_taken_for_todays():
    """It need not be of its annotation, or have one. What today's code does not take is no reason to take another."""

    def fn(a: str = None, b: Decimal = 0, c=Fee(5), d: set[int] = []) -> None: ...  # noqa: B006, B008, RUF013

    def same(a: str = None, b: Decimal = 0, c=Fee(5), d: set[int] = [], e: int = 1) -> None: ...  # noqa: B006, B008, RUF013

    def takes(a: str | None = "usd", b: Decimal = 5000, c=Fee(500), d: set[int] = [7]) -> None: ...  # noqa: B006, B008

    def refuses(a: str = "usd", b: Decimal = 0, c=Fee(5), d: set[int] = []) -> None: ...  # noqa: B006, B008

    bound = bind(fn)
    assert bound.identity == "{}"
    assert bound.preview == "c={'cents': 5}, d=[], a=None, b=0"
    for known in (fn, same):
        now = inspect.signature(known).parameters
        for got in (Signature(known).load(bound.text)[1], Signature(known).recorded(bound.text, bind(known)).kwargs):
            assert (got["c"], got["d"], got.get("a"), got.get("b", 0)) == (Fee(5), [], None, 0)
            assert got["c"] is not now["c"].default
            assert got["d"] is not now["d"].default
    assert Signature(takes).load(bound.text)[1] == {"a": None, "b": Decimal(0), "c": Fee(5), "d": set()}
    for read in (Signature(refuses).load, lambda text: Signature(refuses).recorded(text, bind(refuses))):
        with pytest.raises((BadArguments, NotStorable), match="a: found None where str is annotated"):
            read(bound.text)


def test_a_default_object_is_copied_and_recorded_as_it_is():
    """A function that changes it changes nothing for others; what a program makes of it before a call is passed and kept."""
    config, rows = Fee(5), [1]

    def fn(a: int = 0, b: list[int] = rows, /, c: Fee = config, *, d: tuple[Fee, ...] = (config,)) -> None: ...

    bound = bind(fn)
    bound.args[1].append(2)
    bound.kwargs["c"].cents = bound.kwargs["d"][0].cents = 6
    assert (bound.args, bound.kwargs) == ((0, [1]), {"c": Fee(5), "d": (Fee(5),)})
    assert (bound.identity, bind(fn, c=config).identity) == ("{}", "{}")
    args, kwargs = Signature(fn).load("{}")
    assert args[1] is not rows
    assert kwargs["c"] is not config
    signature = Signature(fn)
    signature.bind((), {})
    config.cents = 7
    left, passed = signature.bind((), {}), signature.bind((), {"c": config})
    config.cents = 8
    assert left.text == passed.text == '{"a":0,"b":[1],"c":{"cents":7},"d":{"$tuple":[{"cents":7}]}}'
    assert (left.kwargs["c"], passed.kwargs["c"]) == (Fee(7), Fee(7))
    assert (left.identity, passed.identity) == ("{}", '{"c":{"cents":7}}')


@relaxed
@given(st.dictionaries(st.text(alphabet=["$", "a", "\ud800", "é", '"']), st.integers() | st.text(), max_size=3))
def test_any_keywords_come_back(keywords: dict[str, Any]) -> None:
    """Names that look like tags, or need escapes, are names."""

    def fn(**keywords: Any) -> None: ...

    bound = bind(fn, **keywords)
    assert Signature(fn).load(bound.text) == ((), keywords)
    assert bound.kwargs == keywords
    assert bound.digest == digest(bound.text) == bind(fn, **dict(reversed(keywords.items()))).digest


@relaxed
@given(st.text(), st.integers(), st.lists(st.text(), max_size=3))
def test_the_quick_digest_is_the_digest(topic: str, depth: int, tags: list[str]) -> None:
    """What `Bound` computes without parsing is the digest of its identity."""
    bound = bind(research, topic, depth, tags=tags)
    assert bound.digest == digest(bound.identity)
    assert json.loads(bound.text)["topic"] == topic


def test_a_preview_is_one_short_line() -> None:
    """A preview shows the recorded arguments as they were written, then those that were left at their default."""
    assert bind(research, "otters", 5).preview == "topic='otters', depth=5, tags=[], note=None"
    assert bind(mixed, 1, "s", 2.5, x=Decimal(1)).preview == "first=1, second='s', rest[0]=2.5, x=1, flag=False"
    assert bind(typed, Ticket("x"), NOON).preview.startswith("ticket={'title': 'x', 'stars': 0}, when=")
    assert len(bind(research, "x\n" * 100_000).preview) == 120
    assert "\n" not in bind(research, "x\ny").preview


# --- copies ---


def test_the_call_gets_copies_and_each_attempt_its_own() -> None:
    """Neither a later change by the caller nor one by the first attempt reaches the next attempt."""
    tags, ticket = ["a"], Ticket("x")

    def fn(tags: list[str], ticket: Ticket, *more: list[int], **other: Any) -> None: ...

    bound = bind(fn, tags, ticket, [1], deep={"k": [2]})
    tags.append("b")
    ticket.title = "changed"
    first = bound.args
    assert first == (["a"], Ticket("x"), [1])
    first[0].append("c")
    first[2].append(9)
    bound.kwargs["deep"]["k"].append(3)
    assert bound.args == (["a"], Ticket("x"), [1])
    assert bound.kwargs == {"deep": {"k": [2]}}


def test_a_local_argument_is_passed_as_it_is_and_recorded_nowhere() -> None:
    """`Local` ones are the same object in the call, and no part of identity."""
    one, other = object(), object()
    bound = bind(with_local, "u", one, log=print)
    assert bound.args == ("u", one)
    assert bound.kwargs == {"log": print}
    assert bound.text == '{"url":"u"}'
    assert bound.digest == bind(with_local, "u", client=other).digest

    def many(*clients: Local[Any], **named: Local[Any]) -> None: ...

    assert (bind(many, one, x=other).text, bind(many, one, x=other).args) == ("{}", (one,))


def test_a_local_type_may_be_imported_for_type_checkers_only() -> None:
    """An annotation under TYPE_CHECKING that is Local need not exist at run time."""

    def fn(url: str, client: Local[Client]) -> str: ...

    assert bind(fn, "u", SENTINEL).args == ("u", SENTINEL)


def test_self_is_left_aside() -> None:
    """A method is bound without its object, which is neither recorded nor copied."""
    signature = Signature(Service.fetch, skip_self=True)
    assert signature.bind(("u",), {"retries": 2}).text == '{"url":"u","retries":2}'
    assert str(signature) == "(url: str, retries: int = 1)"
    assert str(Signature(mixed)) == "(first: int, /, second: str = 's', *rest: float, flag: bool = False, **extra)"
    assert signature.load('{"url":"u"}') == ((), {"url": "u"})


def test_other_callables_have_signatures_too() -> None:
    """Partials, bound methods, wrapped functions and callable objects resolve their hints."""

    class Caller:
        def __call__(self, ticket: Ticket) -> int: ...

    @functools.wraps(research)
    def wrapped(*args: Any, **kwargs: Any) -> Any: ...

    assert bind(functools.partial(research, depth=4), "x").identity == '{"topic":"x"}'
    assert bind(Service().fetch, "u").identity == '{"url":"u"}'
    assert Signature(Caller()).returns is shape_of(int)
    with pytest.raises(BadArguments):
        bind(wrapped, 3)


# --- refusals ---


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (
            (),
            {},
            "'research' takes (topic: str, depth: int = 3, *, tags: list[str] = [], note: str | None = None); got ()",
        ),
        (("a", 1, 2), {}, "got ('a', 1, 2): too many positional arguments"),
        (("a",), {"topic": "b"}, "got ('a', topic='b'): multiple values for argument 'topic'"),
        (("a",), {"nope": 1}, "got ('a', nope=1): got an unexpected keyword argument 'nope'"),
        ((), {"depth": 1}, "missing a required argument: 'topic'"),
        ((object(),), {"nope": sqlite3}, "got (object, nope=module)"),
    ],
)
def test_a_call_that_does_not_fit_says_what_is_taken_and_what_came(args: Any, kwargs: Any, message: str) -> None:
    """A wrong call is `BadArguments` with the signature, the call and the reason."""
    with pytest.raises(BadArguments) as caught:
        Signature(research).bind(args, kwargs)
    assert message in str(caught.value)


def test_the_name_in_messages_can_be_given() -> None:
    """A message names the agent as its user knows it."""
    with pytest.raises(BadArguments, match=r"^agent 'x' takes \(topic: str"):
        Signature(research, what="agent 'x'").bind((), {})


@pytest.mark.parametrize(
    ("fn", "args", "message"),
    [
        (research, (3,), "'research': topic: found int 3 where str is annotated"),
        (research, ("x", "3"), "'research': depth: found str '3' where int is annotated"),
        (typed, ({"title": "x"}, NOON), "ticket: found dict where"),
        (typed, (Ticket(3), NOON), "ticket.title: found int 3"),
        (typed, (Ticket("x"), "2024-01-01"), "when: found str '2024-01-01' where datetime.datetime is annotated"),
        (mixed, (1, "s", 1.0, "x"), "rest[1]: found str 'x' where float is annotated"),
    ],
)
def test_an_argument_of_the_wrong_type_is_refused(fn: Any, args: Any, message: str) -> None:
    """The path, what was found and what is annotated."""
    with pytest.raises(BadArguments) as caught:
        bind(fn, *args)
    assert message in str(caught.value)


def test_an_argument_that_cannot_be_stored_is_refused_by_its_path() -> None:
    """The path starts with the parameter's name, and Local is offered."""
    with pytest.raises(NotStorable, match=r"^a\[2\]\.x: object cannot be stored; pass plain data.*Local\[...\]$"):
        bind(untyped, [1, 2, {"x": object()}])

    def fn(conn: sqlite3.Connection) -> None: ...

    with pytest.raises(NotStorable, match=r"^conn: sqlite3\.Connection is annotated.*Local\[sqlite3\.Connection\]"):
        bind(fn, object())


def test_a_keyword_may_not_hide_behind_another_parameter() -> None:
    """Arguments are recorded by name, so one name cannot stand for two."""
    for name in ("first", "rest"):
        with pytest.raises(BadArguments, match="rename one"):
            Signature(mixed).bind((1,), {name: 2})


def test_an_annotation_that_cannot_be_resolved_is_named() -> None:
    """The message has the function, the parameter and the annotation; it comes at first use, not when decorated."""

    def fn(thing: Thing) -> None: ...
    def result() -> Thing: ...

    signature = Signature(fn)
    with pytest.raises(BadArguments, match=r"'fn': the annotation 'Thing' of its parameter 'thing' cannot be resolved"):
        signature.bind((1,), {})
    with pytest.raises(BadArguments, match=r"'result': the annotation 'Thing' of its result"):
        _ = Signature(result).returns


def test_a_type_of_the_enclosing_function_is_found_if_the_function_uses_it() -> None:
    """Hints of nested functions resolve against what they have captured."""

    @dataclasses.dataclass
    class Inner:
        x: int

    def fn(inner: Inner) -> Inner:
        return Inner(inner.x)

    assert bind(fn, Inner(1)).args == (Inner(1),)


# --- stored inputs ---


@pytest.mark.parametrize(
    ("fn", "args", "kwargs"),
    [
        (research, ("otters",), {}),
        (research, ("otters", 5), {"tags": ["a"]}),
        (research, (), {"topic": "x", "note": "n"}),
        (mixed, (1,), {"flag": True}),
        (mixed, (1, "t", 2.0, 3.0), {"x": (1,), "flag": True}),
        (mixed, (1,), {"second": "t"}),
        (untyped, (1,), {}),
        (typed, (Ticket("x", 2), NOON), {"order": Order(lines=[Ticket("y")])}),
    ],
)
def test_a_stored_input_calls_the_function_as_it_was_called(fn: Any, args: Any, kwargs: Any) -> None:
    """What `load` gives, bound by Python itself, is what the caller passed."""
    signature = Signature(fn)
    loaded_args, loaded_kwargs = signature.load(signature.bind(args, kwargs).text)
    python = inspect.signature(fn)
    wanted, found = python.bind(*args, **kwargs), python.bind(*loaded_args, **loaded_kwargs)
    wanted.apply_defaults()
    found.apply_defaults()
    assert found.arguments == wanted.arguments


def test_a_call_is_made_again_with_the_arguments_of_a_record() -> None:
    """Passed as the code passes them, with its `Local` ones; what was left at a default is given, and a new one has its own."""
    client = object()

    def old(a: int = 1, b: int = 2, /, c: Any = 3, *rest: Ticket, d: int = 4, **more: Any) -> None: ...
    def new(
        a: int = 0, b: int = 0, /, c: Any = 0, *rest: Ticket, client: Local[object], d: int = 0, e: int = 5, **more: Any
    ) -> None: ...
    def gone(a: int = 0, b: int = 0, /, *, client: Local[object], **more: Any) -> None: ...

    def again(fn: Any, live: Sequence[Any], *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        made = Signature(fn).recorded(bind(old, *args, **kwargs).text, bind(fn, *live, client=client, **kwargs))
        return made.args, made.kwargs

    assert again(new, ()) == ((1, 2), {"c": 3, "client": client, "d": 4})
    assert again(new, (7,), 7, x=[8]) == ((7, 2), {"c": 3, "client": client, "d": 4, "x": [8]})
    tickets = (0, 0, 0, Ticket("x"), Ticket("y"))
    old_tickets = (0, 0, 0, Ticket("x", 3), Ticket("y"))
    assert again(new, tickets, *old_tickets) == (old_tickets, {"client": client, "d": 4})
    with pytest.raises(BadArguments, match="the stored input has 'c' as well"):
        again(gone, ())


def test_a_rest_argument_keeps_its_place_when_defaults_before_it_were_left_out() -> None:
    """`f(1, "s", 2.0)` with "s" the default is not loaded as `f(1, 2.0)`."""
    assert Signature(mixed).load('{"first":1,"rest":[2.0]}') == ((1, "s", 2.0), {})


@pytest.mark.parametrize(
    ("fn", "text", "message"),
    [
        (research, "{}", "'topic' is missing"),
        (research, '{"topic":"x","gone":1}', "the stored input has 'gone' as well"),
        (research, '{"topic":3}', "topic: found int 3"),
        (research, "[1]", "an object of arguments by name"),
        (research, '{"$map":[[1,2]]}', "an object of arguments by name"),
        (mixed, '{"first":1,"rest":"x"}', "rest: found 'x', expected a list"),
        (with_local, '{"url":"u"}', "'client' is Local"),
    ],
)
def test_a_stored_input_that_does_not_fit_is_refused(fn: Any, text: str, message: str) -> None:
    """Code that changed under a stored input gives `BadArguments`, not a TypeError in the middle of a run."""
    with pytest.raises(BadArguments) as caught:
        Signature(fn).load(text)
    assert message in str(caught.value)


def test_plain_json_is_read_by_the_annotations() -> None:
    """An input that came as JSON, by HTTP or by name, gets its types when it is loaded."""
    _, kwargs = Signature(typed).load('{"ticket":{"title":"x"},"when":"2024-01-01T12:00:00Z"}')
    assert kwargs == {"ticket": Ticket("x"), "when": NOON}


# --- results and schemas ---


def test_the_result_has_the_shape_of_the_return_annotation() -> None:
    """`returns` stores and loads results; nothing annotated means anything."""
    assert Signature(research).returns is shape_of(list[str])
    assert Signature(untyped).returns is UNTYPED
    assert Signature(typed).returns.load('{"title":"x"}') == Ticket("x")


def test_the_schema_of_the_parameters() -> None:
    """Properties, required, defaults and definitions; Local ones do not appear."""
    assert Signature(research).schema() == {
        "type": "object",
        "properties": {
            "topic": {"type": "string"},
            "depth": {"type": "integer", "default": 3},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["topic"],
        "additionalProperties": False,
        "x-positional": ["topic", "depth"],
    }
    assert list(Signature(with_local).schema()["properties"]) == ["url"]
    made = Signature(typed).schema()
    assert set(made["$defs"]) == {"Ticket", "Order"}
    assert made["required"] == ["ticket", "when"]
    made = Signature(mixed).schema()
    assert made["additionalProperties"] is True
    assert made["x-rest"] == "rest"
    assert made["properties"]["rest"] == {"type": "array", "items": {"type": "number"}}


def test_a_parameter_without_schema_is_named_when_published() -> None:
    """An agent that could never be started is found when it is published."""

    def fn(conn: sqlite3.Connection) -> None: ...

    with pytest.raises(NotStorable, match=r"^conn: "):
        Signature(fn).schema()


def test_unpacked_hints_say_nothing_of_one_value() -> None:
    """`**options: Unpack[Options]` is taken as it comes."""

    def fn(*args: Any, **options: Unpack[Options]) -> None: ...

    assert bind(fn, fast=True).text == '{"fast":true}'


def test_a_sequence_parameter_takes_lists_and_tuples() -> None:
    """Abstract annotations keep the kind that was passed."""

    def fn(items: Sequence[Ticket]) -> None: ...

    assert bind(fn, (Ticket("x"),)).args == ((Ticket("x"),),)
    assert bind(fn, [Ticket("x")]).args == ([Ticket("x")],)


@pytest.mark.nightly
def test_many_arguments_are_read_in_a_time_that_grows_with_their_number() -> None:
    """Each with what is noted in it, and not in all others."""

    def rest(*orders: Order, **more: Order) -> None: ...

    took = []
    for count in (300, 6000):
        bound = Signature(rest).bind([Order()] * count, {f"k{n}": Order() for n in range(count)})
        began = process_time()
        args, kwargs = Signature(rest).load(bound.text)
        took.append(process_time() - began)
        assert not any(each.model_fields_set for each in (*args, *kwargs.values()))
    assert took[1] < 80 * took[0] + 1
