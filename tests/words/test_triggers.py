"""Actions, deliveries and their keys, as tables of cases."""

import pytest

import holdfast
from holdfast import BadArguments, Decide, Delivery, Send, Start, Verify
from holdfast.words.model import checked_run_id
from holdfast.words.triggers import action_key, actions, checked_trigger, delivery_key


@holdfast.agent
async def some(text: str) -> str:
    return text


def test_a_mapping_returns_one_action_several_or_none():
    start, send = Start(some, "x"), Send("r", "t")
    assert actions(None, "t") == []
    assert actions(start, "t") == [start]
    assert actions([start, send], "t") == actions((start, send), "t") == [start, send]


@pytest.mark.parametrize("returned", ["x", 5, {"start": 1}, [Start(some), "x"], [None], some, Start, iter([])])
def test_what_a_mapping_returns_else_is_refused_with_what_to_return(returned):
    with pytest.raises(BadArguments, match=r"trigger 't' returned .*; return Start\(\.\.\.\), Send"):
        actions(returned, "t")


def test_a_delivery_has_so_many_actions():
    with pytest.raises(BadArguments, match="1,001 actions, and 1,000 are the most"):
        actions([Send("r", "t")] * 1001, "t")


def test_the_keys_of_actions_are_ids_of_runs_and_never_meet():
    deliveries = [
        "a",
        "a.2",
        "a-2",
        "sha256:a",
        "ä",
        " ",
        "a b",
        "x" * 64,
        "x" * 65,
        "x" * 200,
        "../..",
        "@",
        "a@b",
        "",
    ]
    keys = [action_key(name, each, nth) for name in ("t", "t.a", "t-a") for each in deliveries for nth in (0, 1, 10)]
    assert len(set(keys)) == len(keys)
    assert all(checked_run_id(key) for key in keys)
    assert action_key("github", "72d3", 0) == "github@72d3"
    assert action_key("github", "72d3", 1) == "github@72d3.2"


def test_a_long_or_odd_id_is_known_by_its_digest():
    assert delivery_key("72d3") == "72d3"
    odd = ["", "x" * 201, "a\0b", "\ud800"]
    keys = [delivery_key(id) for id in odd]
    assert len(set(keys)) == len(odd)
    assert all(key.startswith("sha256:") and len(key) == 71 for key in keys)


@pytest.mark.parametrize("name", ["", "-x", ".", "..", "a b", "a/b", "ä", "x" * 101, 5, None, "a\n", "a@b"])
def test_names_that_are_none(name):
    with pytest.raises(BadArguments, match="is not the name of a trigger"):
        checked_trigger(name)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Decide("q", "maybe", by="ana"), "choose one of approve, deny, answer"),
        (lambda: Decide("q", "approve"), "say who decides"),
        (lambda: Decide("q", "answer", by="ana"), "give the answer"),
        (lambda: Decide("q", "deny", 5, by="ana"), "a no has no value"),
    ],
)
def test_decisions_that_are_none(make, says):
    with pytest.raises(BadArguments, match=says):
        make()


def test_none_is_an_answer():
    assert Decide("q", "answer", None, by="ana").has_value
    assert not Decide("q", "approve", by="ana").has_value


def test_bodies():
    assert Delivery(b'{"a": 1}').json() == {"a": 1}
    assert Delivery(b"user=ana&user=bob&text=a%20b&none=").form() == {"user": "ana", "text": "a b", "none": ""}
    assert Delivery("ä".encode()).text() == "ä"
    assert Delivery(b"\xff").text() == "\ufffd"
    for body in (b"", b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(BadArguments, match=r"the body \(.* bytes\) is not JSON"):
            Delivery(body).json()
    with pytest.raises(BadArguments, match="more than 1,000 fields"):
        Delivery(b"&".join(b"a%d=1" % n for n in range(1001))).form()


BEARER = Verify.bearer("env:T")


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda: holdfast.on.webhook("a b", verify=BEARER)(lambda _: None), "is not the name of a trigger"),
        (lambda: holdfast.on.webhook("x", verify="env:T"), "say how the sender is known"),
        (lambda: holdfast.on.webhook("x", verify=BEARER, max_bytes=0), "a number of bytes"),
        (lambda: holdfast.on.webhook("x", verify=BEARER, max_bytes=10**9), "a number of bytes"),
        (lambda: holdfast.on.webhook("x", verify=BEARER, max_bytes=True), "a number of bytes"),
        (lambda: holdfast.on.webhook("x", verify=BEARER, retry=0)(lambda _: None), "retry attempts"),
        (lambda: holdfast.on.webhook("x", verify=BEARER)(5), "belongs on a function"),
        (lambda: holdfast.on.webhook("x", verify=BEARER)(lambda: None), "called with the delivery alone"),
        (lambda: holdfast.on.webhook("x", verify=BEARER)(lambda _, __: None), "called with the delivery alone"),
    ],
)
def test_declarations_that_are_none(declare, says):
    with pytest.raises(BadArguments, match=says):
        declare()


def test_a_generator_is_no_mapping():
    def several(delivery):
        yield Send("r", "t")

    with pytest.raises(BadArguments, match="belongs on a function"):
        holdfast.on.webhook("x", verify=BEARER)(several)


def test_a_trigger_is_called_like_its_function():
    @holdfast.on.webhook("x", verify=BEARER)
    def x(delivery):
        """Say what to do."""
        return Start(some, delivery.text())

    assert x(Delivery(b"otters")) == Start(some, "otters") == x.fn(Delivery(b"otters"))
    assert (x.name, x.__name__, x.__doc__, repr(x)) == ("x", "x", "Say what to do.", "<trigger x>")
