"""A support chat: it knows what was said before, asks a person before it pays, and listens while it works."""

import asyncio
import json
import urllib.request
from dataclasses import dataclass
from typing import Any

from pydantic_ai import Agent, RunContext, capture_run_messages
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from shop import at_hand

import holdfast
from holdfast.integrations.pydantic_ai import HoldfastDurability, valid_history

SHOP_URL, MODEL_URL = at_hand()  # those of the environment, or scripted ones
REMEMBERED = 8  # messages of earlier turns: the small model has a short memory

clerk = Agent(
    OpenAIChatModel("smollm2", provider=OpenAIProvider(base_url=MODEL_URL, api_key="none")),
    name="clerk",
    deps_type=str,
    instructions="You are the support of a small shop. Answer in one sentence. Look an order up before you speak of it.",
    capabilities=[HoldfastDurability()],
    model_settings={"max_tokens": 80, "temperature": 0},
)


def shop(path: str, key: str = "", **wanted: Any) -> Any:
    content = json.dumps(wanted).encode() if wanted else None
    request = urllib.request.Request(f"{SHOP_URL}/{path}", content, {"Idempotency-Key": key})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


@clerk.tool_plain
def find_order(number: int) -> dict[str, Any] | str:
    """What an order is of, its price and where it is."""
    return shop(f"orders/{number}") or "There is no such order."


@clerk.tool(requires_approval=True, metadata={"holdfast": {"retry": 5, "to": "supervisors"}})
def refund(ctx: RunContext[str], number: int, amount: int) -> str:
    """Pay the customer back. A supervisor has to agree, and may change the amount."""
    # Run again after a crash, it does nothing: the till knows the key.
    shop("refunds", holdfast.idempotency_key(), number=number, amount=amount)
    return f"{amount} paid back to {ctx.deps}"


@dataclass
class Said:
    """Something the customer said. The key is the customer's: said twice, it is heard once."""

    key: str
    text: str


@dataclass
class Reply:
    """The answer, and what of the customer's it is the answer to."""

    text: str
    heard: list[str]


@holdfast.agent
async def support(customer: str, first: Said) -> Reply:
    """One turn of a conversation. What the customer says before it is over becomes part of it."""
    heard = [first]
    async with holdfast.conversation(customer, ModelMessage) as talk:
        history = valid_history(await talk.messages(last=REMEMBERED))
        before = len(history)
        while True:
            work = asyncio.create_task(answer(customer, heard[-1].text, history))
            more = asyncio.create_task(holdfast.receive("said", Said))
            await asyncio.wait([work, more], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                more.cancel()
                break
            work.cancel()  # a question to the supervisors is withdrawn, and a step that runs is stopped
            await asyncio.wait([work])
            heard.append(more.result())
        await talk.add(*history[before:])
    return Reply(work.result(), [said.key for said in heard])


async def answer(customer: str, text: str, history: list[ModelMessage]) -> str:
    """What the clerk says. The history grows by what happened, also if the clerk is stopped."""
    with capture_run_messages() as messages:
        try:
            return (await clerk.run(text, deps=customer, message_history=history)).output
        finally:
            history[:] = valid_history(messages)
