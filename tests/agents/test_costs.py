"""`spend`: what steps say they have cost is recorded with them, and summed for their run and all above it."""

import asyncio
import math

import pytest
from tests.agents.runs import finish, history

import holdfast
import holdfast.testing
from holdfast import Spent


@holdfast.step
async def think(words: int) -> int:
    holdfast.spend(0.25, input_tokens=words, output_tokens=2, model="made-up")
    return words


@holdfast.step
def in_a_thread() -> None:
    holdfast.spend(0.1)
    holdfast.spend(0.2)


def spent_of(events):
    """What the events say, by their kinds."""
    return [(event.kind, event.data["spent"]) for event in events if "spent" in event.data]


async def test_steps_are_counted_for_all_below_whatever_budgets_are_there():
    """A run without a budget counts the steps that completed, also those of a child that has one; that one counts bodies."""

    @holdfast.agent(budget=holdfast.Budget(steps=10))
    async def child() -> None:
        await think(1)

    @holdfast.agent
    async def parent() -> None:
        await think(1)
        await in_a_thread()
        await child()

    async with holdfast.testing.open(agents=[parent, child]) as hf:
        run = await hf.start(parent, id="r")
        await run.result()
        assert {info.agent: info.spent.steps for info in await hf.runs()} == {"parent": 3, "child": 1}
        assert (await run.info()).spent.steps == 3


async def test_it_is_in_the_event_that_ends_the_attempt():
    """A step's spending is part of its outcome, and no event of its own; sums of money are exact."""

    @holdfast.agent
    async def spender() -> None:
        await think(10)
        await in_a_thread()

    async with holdfast.testing.open(agents=[spender]) as hf:
        run = await hf.start(spender, id="r")
        await run.result()
        events = await history(hf, "r")
        assert [event.kind for event in events] == ["step.completed", "step.completed", "run.completed"]
        think_cost = {"usd": 0.25, "input_tokens": 10, "output_tokens": 2, "model_calls": 1, "models": ["made-up"]}
        assert spent_of(events) == [("step.completed", think_cost), ("step.completed", {"usd": 0.3})]
        info = await run.info()
        assert info.spent == Spent(usd=0.55, input_tokens=10, output_tokens=2, model_calls=1, steps=2)


async def test_failed_and_stopped_attempts_have_cost_too():
    """A retry, a failure and a cancelled body each say what they had spent until then, once."""

    @holdfast.step(retry=2)
    async def fails() -> None:
        holdfast.spend(1)
        raise ConnectionError("gone")

    @holdfast.step
    async def hangs() -> None:
        holdfast.spend(3)
        await asyncio.Event().wait()

    @holdfast.agent
    async def spender() -> None:
        with pytest.raises(ConnectionError):
            await fails()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await hangs()

    async with holdfast.testing.open(agents=[spender]) as hf:
        run = await hf.start(spender, id="r")
        await run.result()
        kinds = ["step.retrying", "step.failed", "step.cancelled"]
        assert spent_of(await history(hf, "r")) == list(
            zip(kinds, [{"usd": 1.0}, {"usd": 1.0}, {"usd": 3.0}], strict=True)
        )
        assert (await run.info()).spent == Spent(usd=5)


@pytest.mark.slow
async def test_replayed_steps_cost_nothing():
    """However often a run is resumed, what its recorded steps cost is counted once, with what its children cost."""

    @holdfast.agent
    async def child(n: int) -> int:
        return await think(n)

    @holdfast.agent
    async def parent() -> int:
        total = 0
        for n in range(2):
            total += await think(n) + await child(n)
        return total

    async for hf in holdfast.testing.crash_everywhere(agents=[parent]):
        run = await hf.start(parent, id="r")
        assert await run.result() == 2
        assert (await run.info()).spent == Spent(usd=1.0, input_tokens=2, output_tokens=8, model_calls=4, steps=4)
        (first, *_) = await hf.runs(agent="child")
        assert first.spent.usd == 0.25


async def test_a_transaction_says_what_it_has_spent_with_its_record(tmp_path):
    """What a transactional step spends is committed with it, and an attempt that was rolled back has cost as well."""
    failures = ["first"]

    @holdfast.step(transaction=True, retry=2)
    async def keep() -> None:
        holdfast.spend(2)
        if failures:
            raise ConnectionError(failures.pop())

    @holdfast.agent
    async def keeper() -> None:
        await keep()

    async with holdfast.testing.open(agents=[keeper]) as hf:
        run = await hf.start(keeper)
        await run.result()
        assert (await run.info()).spent == Spent(usd=4, steps=1)


async def test_prices_are_looked_up_by_model():
    """Without usd= the price is that of genai-prices; of a model nobody knows it stays unknown, and that can be seen."""

    @holdfast.step
    async def call(model: str) -> None:
        holdfast.spend(input_tokens=1_000_000, output_tokens=1_000_000, model=model, provider="openai")

    @holdfast.agent
    async def caller(model: str) -> None:
        await call(model)

    async with holdfast.testing.open(agents=[caller]) as hf:
        known = await hf.start(caller, "gpt-4o")
        unknown = await hf.start(caller, "no-such-model")
        await known.result()
        await unknown.result()
        assert (await known.info()).spent == Spent(12.5, 1_000_000, 1_000_000, 1, steps=1)
        assert (await unknown.info()).spent == Spent(0, 1_000_000, 1_000_000, 1, unpriced=1, steps=1)
        assert str((await unknown.info()).spent) == "2,000,000 tokens, 1 model call of unknown price"


@pytest.mark.parametrize(
    "wrong",
    [{"usd": -1}, {"usd": math.nan}, {"usd": math.inf}, {"usd": True}, {"input_tokens": -1}, {"output_tokens": 1.5}],
    ids=str,
)
def test_what_cannot_be_spent_is_refused(wrong):
    """Amounts are numbers from zero on."""
    with pytest.raises(holdfast.BadArguments, match=next(iter(wrong))):
        holdfast.spend(**wrong)


def test_in_agent_code_it_says_where_to_call_it():
    """Agent code is replayed, so spending there would count again: it is refused. Outside a run it does nothing."""

    @holdfast.agent
    async def spender() -> str:
        try:
            holdfast.spend(1)
        except holdfast.NotInRun as error:
            return str(error)
        return "nothing"

    assert "Call it in the step that had the cost" in finish(spender)
    holdfast.spend(1, input_tokens=5, model="any")
    assert asyncio.run(think(5)) == 5


@holdfast.step
async def plain(number: int) -> int:
    return number


@holdfast.agent
async def counts_below() -> int:
    return await plain(1) + await plain(2)


@holdfast.agent
async def counts() -> int:
    return await plain(0) + await counts_below()


async def test_steps_are_counted_without_a_budget():
    """Those of the run and of all below it."""
    async with holdfast.testing.open(agents=[counts, counts_below]) as hf:
        run = await hf.start(counts, id="r")
        assert await run.result() == 3
        assert (await run.info()).spent.steps == 3
        assert {info.agent: info.spent.steps for info in await hf.runs()} == {"counts": 3, "counts_below": 2}
