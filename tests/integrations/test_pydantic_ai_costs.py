"""What agents of Pydantic AI spend, and what they are told of it."""

from decimal import Decimal

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage
from tests.integrations.scripted_model import Script, calls, says, turn_of

import holdfast
import holdfast.testing
from holdfast.integrations.pydantic_ai import HoldfastDurability


def spender(answer, **options):
    """An agent that looks three times, each request for 100 tokens and a cent."""

    def priced(turn, messages):
        said = answer(turn, messages)
        said.usage = RequestUsage(input_tokens=90, output_tokens=10, cost=Decimal("0.01"))
        return said

    clerk = Agent(Script(priced).model, name="clerk", capabilities=[HoldfastDurability(**options)])

    @clerk.tool_plain
    async def look() -> str:
        return "seen"

    return clerk


async def test_what_requests_cost_is_spent_by_the_run():
    """Tokens and money of each response are in the run's account, once, whatever crashed and was replayed."""
    clerk = spender(lambda turn, _m: calls(("look", {})) if turn < 2 else says("done"))

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    async with holdfast.testing.open(agents=[job]) as hf:
        run = await hf.start(job, id="r")
        await run.result(timeout=20)
        await hf.crash()
        spent = (await hf.get("r").info()).spent
    assert (spent.tokens, spent.model_calls, round(spent.usd, 6)) == (300, 3, 0.03)


async def test_the_soft_limit_is_told_to_the_model_and_not_to_the_history():
    """Past it every request ends with what is left; the messages of the agent do not have it."""
    told = []

    def answer(_turn, messages):
        told.append("Budget:" in str(messages[-1]))
        return calls(("look", {})) if turn_of(messages) < 3 else says("done")

    clerk = spender(answer)

    @holdfast.agent(budget=holdfast.Budget(tokens=450, soft=0.4))
    async def job() -> str:
        return str((await clerk.run("go")).all_messages())

    async with holdfast.testing.open(agents=[job]) as hf:
        returned = await hf.run(job)
    assert "Budget:" not in returned
    assert told == [False, False, True, True]


async def test_an_agent_that_goes_round_in_circles_is_stopped_by_a_person():
    """The same call with the same result again and again is a question to people, before it is made once more."""
    clerk = spender(lambda *_: calls(("look", {})))

    @holdfast.agent
    async def job() -> str:
        try:
            return (await clerk.run("go")).output
        except holdfast.LoopDetected as error:
            return str(error)

    async with holdfast.testing.open(agents=[job]) as hf:
        run = await hf.start(job, id="r")
        await run.wait("waiting")
        await hf.crash()
        assert hf.bodies["look"] == 5
        await hf.deny("r", by="ana", note="enough")
        returned = await hf.get("r").result(timeout=20)
    assert "ana stopped a loop (enough)" in returned


@pytest.mark.parametrize("at_limit", ["raise", "hand on"])
async def test_a_run_that_hits_a_limit_ends_with_the_best_it_has(at_limit):
    """What the agent had said is in the exception, or is its answer; it says that it is not whole."""

    def answer(_turn, messages):
        said = calls(("look", {}))
        return ModelResponse(parts=[TextPart(f"Thought {turn_of(messages)}."), *said.parts])

    clerk = spender(answer, at_limit=at_limit)

    @holdfast.agent(budget=holdfast.Budget(model_calls=3, at_limit="fail"))
    async def job() -> list:
        try:
            result = await clerk.run("go")
        except holdfast.BudgetExceeded as error:
            return ["raised", holdfast.partial(error)["clerk"].text]
        return [result.response.metadata["holdfast"], result.output]

    async with holdfast.testing.open(agents=[job]) as hf:
        returned = await hf.run(job)
    mark, text = returned
    assert text.startswith("Thought 2.")
    assert mark == ("raised" if at_limit == "raise" else {"partial": "limit"})
    assert at_limit == "raise" or "[Not finished: " in text
