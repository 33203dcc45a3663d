"""An agent of Pydantic AI whose model looks two things up before it answers, and costs very little."""

from decimal import Decimal

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

import holdfast
from holdfast.integrations.pydantic_ai import HoldfastDurability

ANSWERS = [
    [ToolCallPart("find_order", {"id": 7}), ToolCallPart("find_customer", {"name": "bo"})],
    [TextPart("Let me ask the store."), ToolCallPart("find_order", {"id": 8})],
    [TextPart("It comes tomorrow.")],
]


async def model(messages, info):
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    return ModelResponse(
        parts=ANSWERS[turn], usage=RequestUsage(input_tokens=100, output_tokens=20, cost=Decimal("0.00003"))
    )


clerk = Agent(FunctionModel(model, model_name="small"), name="clerk", capabilities=[HoldfastDurability()])


@clerk.tool_plain
async def find_order(id: int) -> str:
    return f"order {id}"


@clerk.tool_plain
async def find_customer(name: str) -> str:
    return f"customer {name}"


@holdfast.agent
async def support(question: str) -> str:
    first = (await clerk.run(question)).output
    return f"{first} {(await clerk.run('Is that so?')).output}"
