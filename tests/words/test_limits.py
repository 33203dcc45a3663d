"""Flow control as data: what a declaration may say, and which keys it gives."""

from __future__ import annotations

import itertools

import pytest

import holdfast
from holdfast import BadArguments, Limit, Local, Rate
from holdfast.words.limits import Flow, default_texts, interval_us, lane_of, latest_us, slack_us


async def mail(customer: str = "nobody", count: int = 1) -> None: ...


def lane(*, arguments='{"customer":"ana"}', child=False, **flow):
    agent = holdfast.agent(**flow)(mail)
    return lane_of(agent.spec.flow, agent.spec.signature, arguments, child=child)


@pytest.mark.parametrize(
    ("flow", "says"),
    [
        ({"limit": 0}, "from 1 to 1,000,000, not 0"),
        ({"limit": True}, "not True"),
        ({"limit": "3"}, "not '3'"),
        ({"rate": "60"}, "'60' is not a rate; write it as '5/s', '60/m'"),
        ({"rate": "60/y"}, "'60/y' is not a rate"),
        ({"rate": 60}, "rate=60: write '60/m'"),
        ({"priority": 10}, "from 0 to 9, higher goes first"),
        ({"priority": "high"}, "priority='high'"),
        ({"queue": "two words"}, "queue='two words'"),
        ({"singleton": ""}, "name a parameter, or use True"),
        ({"singleton": "client"}, "there is no parameter 'client' to count by; its parameters are: customer, count"),
        ({"limit": Limit(2, per="client")}, "no parameter 'client'"),
        ({"rate": Rate("2/s", per="client")}, "no parameter 'client'"),
        ({"version": 2}, "version=2"),
    ],
)
def test_a_wrong_declaration_says_what_is_right(flow, says):
    """Each mistake is found when the agent is declared, and named with what would do."""
    with pytest.raises(BadArguments) as raised:
        holdfast.agent(**flow)(mail)
    assert says in str(raised.value)


@pytest.mark.parametrize("wrong", [lambda: Rate(3), lambda: Rate(3, every=0), lambda: Rate("3/m", every="1m")])
def test_a_rate_needs_a_time(wrong):
    """A rate is a number in a time, said once."""
    with pytest.raises(BadArguments, match=r"every|rate"):
        wrong()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (Rate, "a rate needs a number, as in Rate('60/m'), or a name to share"),
        (lambda: Rate(per="x"), "or a name to share"),
        (lambda: Rate(every="1m", name="x"), "a rate needs a number"),
        (lambda: Rate(name="two words"), "name='two words'"),
        (lambda: Rate("5/s", tokens="many"), "'many' is not a rate"),
        (lambda: Rate("5/s", tokens="20000000000/m"), "from 1 to 10,000,000,000"),
        (lambda: holdfast.agent(rate=Rate(tokens="9/m"))(mail), "tokens= belongs to the rate of a step"),
    ],
)
def test_a_shared_rate_has_a_name_or_a_number(wrong, says):
    """What is missing or wrong is named, with what would do."""
    with pytest.raises(BadArguments) as raised:
        wrong()
    assert says in str(raised.value)


def test_a_name_makes_the_key():
    """Steps and agents that name a rate have one key for it, and with `per` one for each value."""

    @holdfast.step(rate=Rate(name="openai", tokens="200000/m", per="customer"))
    async def other(customer: str) -> None: ...

    named = lane(rate=Rate("60/m", name="openai"))
    assert (named.rate_key, named.rate_n, named.tokens_us) == ("rate:openai", 60, 0)
    found = lane_of(other.spec.flow, other.spec.signature, '{"customer":"bo"}')
    assert (found.rate_key, found.rate_n, found.tokens_us) == ('rate:openai customer="bo"', 0, 300_000)
    assert interval_us(0, 0) == 0


def test_a_shared_rate_is_published():
    """Those who start the agent without its code make the same lane."""
    for rate in (Rate("60/m", name="openai"), Rate(name="openai"), Rate("3/h", per="customer")):
        flow = holdfast.agent(rate=rate)(mail).spec.flow
        assert Flow.from_published(flow.published({})) == (flow, {})


def test_a_rate_is_written_in_two_ways():
    """`60/m` is sixty in a minute."""
    assert Rate("60/m") == Rate(60, every="1m")
    assert Rate("5/s", per="x") == Rate(5, every=1, per="x")


def test_keys_are_of_the_agent_or_of_a_value():
    """Without `per` all runs of the agent share a key; with it those with the same stored value do."""
    assert lane(limit=3).limit_key == "agent:mail"
    assert lane(limit=Limit(3, per="customer")).limit_key == 'agent:mail customer="ana"'
    assert lane(rate=Rate("1/s", per="count")).rate_key == "agent:mail count=1"  # as nothing else was given
    assert lane(arguments="{}", limit=Limit(3, per="customer")).limit_key == 'agent:mail customer="nobody"'
    long = lane(arguments='{"customer":"%s"}' % ("x" * 500), limit=Limit(3, per="customer")).limit_key
    assert len(long) < 100


def test_equal_values_have_one_key():
    """The order of a dict's keys is no part of a value."""

    async def mail(customer: dict[str, int]) -> None: ...

    agent = holdfast.agent(limit=Limit(1, per="customer"))(mail)
    one, other = ['{"customer":{"a":1,"b":2}}', '{"customer":{"b":2,"a":1}}']
    lanes = [lane_of(agent.spec.flow, agent.spec.signature, text) for text in (one, other)]
    assert lanes[0] == lanes[1]


def test_a_singleton_is_one_run_and_as_a_child_one_at_a_time():
    """A started run has the key of its singleton; a child, which is its parent's, has a limit of one instead."""
    started, child = [lane(singleton="customer", child=child) for child in (False, True)]
    assert started.singleton_key == child.limit_key == started.limit_key
    assert (child.singleton_key, child.limit_n) == (None, 1)
    assert lane(singleton=True).singleton_key == "agent:mail alone"


def test_what_cannot_be_stored_cannot_be_counted_by():
    """A `Local` parameter has no value that others could know."""

    @holdfast.agent(limit=Limit(1, per="client"))
    async def uses(client: Local[object] = None) -> None: ...

    with pytest.raises(BadArguments, match="client is Local"):
        lane_of(uses.spec.flow, uses.spec.signature, "{}")


def test_flow_is_published_whole():
    """Who has not the code gives a run the same lane, defaults included."""
    flow = {"queue": "q", "priority": 7, "limit": Limit(3, per="customer"), "rate": Rate("9/h", per="count")}
    agent = holdfast.agent(**flow, singleton="customer")(mail)
    spec = agent.spec
    known, defaults = Flow.from_published(spec.flow.published(default_texts(spec.signature, spec.flow)))
    assert known == spec.flow
    for arguments in ("{}", '{"customer":"ana"}', '{"count":4}'):
        assert known.lane(arguments, lambda: defaults) == lane_of(spec.flow, spec.signature, arguments)


@pytest.mark.parametrize(("n", "every_ms"), [(1, 1000), (7, 1000), (60, 60_000), (1000, 1000), (3, 86_400_000)])
def test_turns_are_far_enough_apart(n, every_ms):
    """However late each turn is taken within the slack, no window has more than `n` of them."""
    step, slack = interval_us(n, every_ms), slack_us(every_ms)
    turns = [number * step for number in range(3 * n + 3)]
    for first, last in itertools.pairwise(range(0, len(turns) + n, n)):
        if last < len(turns):
            # The n-th after a turn that was taken as late as can be, taken at once, is not in the same window.
            assert turns[last] - (turns[first] + slack) >= every_ms * 1000
    assert n * every_ms * 1000 / (step * n) >= 0.97 * n, "at least 97 % of what is declared"
    assert slack <= latest_us(every_ms) < every_ms * 1000
