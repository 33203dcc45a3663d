"""A conversation as the message history of a Pydantic AI agent."""

from dataclasses import replace

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from tests.integrations.scripted_model import Script, calls, returned, says

import holdfast
import holdfast.testing
from holdfast.integrations.pydantic_ai import HoldfastDurability, valid_history
from holdfast.integrations.pydantic_ai.history import NEVER_RAN

# A task that a crash ends before its first step never awaits what it was to await.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")


def prompts(messages):
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    return [part.content for part in parts if isinstance(part, UserPromptPart)]


def answer(turn, messages):
    """Look up the last prompt with a tool, then say what was asked so far."""
    found = returned(messages)
    return (
        says(f"{found['find']} after {prompts(messages)[:-1]}")
        if found
        else calls(("find", {"what": prompts(messages)[-1]}))
    )


script = Script(answer)
clerk = Agent(script.model, name="clerk", capabilities=[HoldfastDurability()])


@clerk.tool_plain
async def find(what: str) -> str:
    return what.upper()


@holdfast.agent
async def reply(customer: str, prompt: str) -> str:
    async with holdfast.conversation(customer, ModelMessage) as talk:
        result = await clerk.run(prompt, message_history=await talk.messages())
        await talk.add(*result.new_messages())
        return result.output


async def test_message_history():
    """Each run sends the model what the runs before it said, also after a crash anywhere; messages are stored once."""
    passes = 0
    async for hf in holdfast.testing.crash_everywhere(agents=[reply], park=False):
        script.forget()
        assert await hf.run(reply, "user-42", "price", id="one") == "PRICE after []"
        assert await hf.run(reply, "user-42", "size", id="two") == "SIZE after ['price']"
        messages = [each.value for each in await hf.conversation("user-42", ModelMessage).messages()]
        assert prompts(messages) == ["price", "size"]
        assert [type(each) for each in messages] == [ModelRequest, ModelResponse] * 4
        assert not script.again
        passes += 1
    assert passes > 20


def test_what_is_known_of_a_call_stays():
    """What a run says of a call that was cut off is what every later run of the conversation reads."""
    asked = ModelResponse(parts=[ToolCallPart("pay", {}, tool_call_id="c1")], run_id="r")
    cut_off = [ModelRequest(parts=[UserPromptPart("pay")]), asked, ModelRequest(parts=[UserPromptPart("stop")])]
    known = valid_history(cut_off)
    (part,) = [part for part in known[2].parts if isinstance(part, ToolReturnPart)]
    told = [
        replace(each, parts=[replace(part, content=NEVER_RAN), *each.parts[1:]]) if each is known[2] else each
        for each in known
    ]
    assert valid_history(told) == told
