"""What agents of Pydantic AI spend, and what they are told of it."""

import asyncio
from decimal import Decimal

from pydantic_ai import Agent
from pydantic_ai.usage import RequestUsage
from tests.integrations.scripted import Script, calls, says

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


def test_what_requests_cost_is_spent_by_the_run():
    """Tokens and money of each response are in the run's account, once, whatever crashed and was replayed."""
    clerk = spender(lambda turn, _m: calls(("look", {})) if turn < 2 else says("done"))

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    async def main():
        async with holdfast.testing.open(agents=[job]) as hf:
            run = await hf.start(job, id="r")
            await run.result(timeout=20)
            await hf.crash()
            return (await hf.get("r").info()).spent

    spent = asyncio.run(main())
    assert (spent.tokens, spent.model_calls, round(spent.usd, 6)) == (300, 3, 0.03)
