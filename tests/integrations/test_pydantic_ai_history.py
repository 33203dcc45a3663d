"""Histories of Pydantic AI agents: always valid to send, and not longer than wanted."""

import asyncio
import json

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai import Agent, capture_run_messages
from pydantic_ai.exceptions import ModelHTTPError, UserError
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage
from tests.integrations.scripted_model import Script, calls, returned, says, turn_of

import holdfast
import holdfast.testing
from holdfast.integrations.pydantic_ai import HoldfastDurability, Summarise, Trim, valid_history
from holdfast.testing.provider import Tool, provider

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")


def asking(client):
    return OpenAIChatModel("fake", provider=OpenAIProvider(openai_client=client))


def problems(messages):
    """What a provider would refuse: calls without a result right behind them, and results without a call."""
    found, waited_for = [], []
    for message in messages:
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, ToolReturnPart):
                    if part.tool_call_id in waited_for:
                        waited_for.remove(part.tool_call_id)
                    else:
                        found.append(f"result of {part.tool_call_id} without a call")
        if isinstance(message, ModelResponse) or message is messages[-1]:
            found += [f"{call} has no result" for call in waited_for]
            waited_for = []
        if isinstance(message, ModelResponse):
            waited_for = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
    return found + [f"{call} has no result" for call in waited_for]


def conversation(turns):
    """A prompt, then for each turn an answer with so many calls, and their results."""
    messages = [ModelRequest(parts=[UserPromptPart("go")])]
    for turn, width in enumerate(turns):
        ids = [f"t{turn}c{n}" for n in range(width)]
        said = [ToolCallPart("look", {}, each) for each in ids] or [TextPart("hm")]
        results = [ToolReturnPart("look", "seen", each) for each in ids] or [UserPromptPart("and?")]
        messages += [ModelResponse(parts=said), ModelRequest(parts=results)]
    return messages


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_cut_of_a_history_becomes_valid(data):
    """Whatever messages and parts are missing from a history, no call is without a result and no result without a call."""
    messages = conversation(data.draw(st.lists(st.integers(0, 3), max_size=6)))
    for message in messages:
        message.parts = [part for part in message.parts if data.draw(st.integers(0, 4))]
    kept = [message for message in messages if message.parts and data.draw(st.integers(0, 4))]
    repaired = valid_history(kept)
    assert problems(repaired) == []
    assert problems(valid_history(repaired)) == [] and valid_history(repaired) == repaired
    said = [part for message in kept for part in message.parts if isinstance(part, ToolCallPart | TextPart)]
    assert [p for m in repaired for p in m.parts if isinstance(p, ToolCallPart | TextPart)] == said


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=12), st.integers(1, 4), st.integers(1, 6))
def test_trimming_keeps_calls_with_their_results(turns, first, keep):
    """What is left of a valid history is valid, begins as it began and ends as it ended."""
    from holdfast.integrations.pydantic_ai.history import middle, shortened

    messages = conversation(turns)
    cut = middle(messages, Trim(first=first, keep=keep))
    if cut is None:
        return
    left = shortened(messages, *cut, "[cut]")
    assert problems(left) == []
    assert left[:first] == messages[:first] and left[-keep:] == messages[-keep:] and len(left) < len(messages)


def test_a_conversation_that_was_cut_off_goes_on():
    """A run that is cancelled in the middle of its calls is followed by another; the model is told what is known of each."""

    def answer(request):
        if request.prompt == "go":
            return [Tool("slow"), Tool("pay", usd=5)]
        return "|".join(request.messages[n]["content"] for n in (2, 3))

    with provider(answer) as fake:

        async def main():
            async with openai.AsyncOpenAI(base_url=fake.url, api_key="any") as client:
                clerk = Agent(asking(client), name="clerk", capabilities=[HoldfastDurability()])

                @clerk.tool_plain
                async def slow() -> str:
                    await asyncio.Event().wait()

                @clerk.tool_plain(requires_approval=True)
                async def pay(usd: int) -> str: ...

                @holdfast.agent
                async def job() -> str:
                    with capture_run_messages() as messages:
                        try:
                            async with asyncio.timeout(1):  # the model must have answered by then
                                await clerk.run("go")
                        except TimeoutError:
                            pass
                    return (await clerk.run("what now?", message_history=messages)).output

                async with holdfast.testing.open(agents=[job]) as hf:
                    return await hf.run(job)

        told = asyncio.run(main())
        assert told == (
            "Stopped while it ran: it may or may not have happened. Look before you do it again."
            "|Cancelled before it ran: nothing was done."
        )
        assert [request.status for request in fake.requests] == [200, 200]


def test_a_strict_provider_refuses_what_is_repaired():
    """The fake provider refuses a call without a result, as real ones do; with `valid_history` the same messages pass."""
    messages = conversation([2, 1])
    del messages[2]
    with provider("fine") as fake:

        async def main():
            async with openai.AsyncOpenAI(base_url=fake.url, api_key="any") as client:
                with pytest.raises(ModelHTTPError, match="t0c0, t0c1"):
                    await asking(client).request(messages, None, ModelRequestParameters())
                answer = await asking(client).request(valid_history(messages), None, ModelRequestParameters())
                return answer.parts[0].content

        assert asyncio.run(main()) == "fine"


# Making it shorter


def looker(script, compact):
    clerk = Agent(script.model, name="clerk", capabilities=[HoldfastDurability(compact=compact)])

    @clerk.tool_plain
    async def look(n: int) -> str:
        return f"saw {n}"

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("count")).output

    return job


def latest(messages):
    found = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    return int(found[0].content.split()[1]) + 1 if found else 0


async def test_a_long_history_is_trimmed_in_a_recorded_step():
    """With `Trim` no request has more than so many messages; a crash at each commit changes nothing of it."""
    lengths = []

    def answer(_turn, messages):
        lengths.append(len(messages))
        assert problems(messages) == []
        n = latest(messages)
        return calls(("look", {"n": n})) if n < 6 else says(f"done {messages[0].parts[0].content}")

    job = looker(Script(answer), Trim(keep=2, above=6))

    passes = 0
    async for hf in holdfast.testing.crash_everywhere(agents=[job]):
        run = await hf.start(job, id="r")
        assert await run.result(timeout=20) == "done count"
        journal = await hf.store.journal("r")
        cuts = [json.loads(event.value)["cut"] for event in journal if "clerk.compact" in (event.key or "")]
        assert len(cuts) == 2 and max(lengths) <= 6
        results = [event for event in journal if event.key and "/look#" in event.key]
        assert len(results) == 6  # the originals
        passes += 1
    returned = passes
    assert returned > 10


async def test_a_long_history_is_summarised_by_a_model():
    """Once a request takes too many tokens a model sums up the middle, once; what it said stands in every later request."""
    summaries, seen = [], []

    def sum_up(messages, _info):
        summaries.append(messages[0].parts[0].content)
        return says(f"looked {len(summaries)} times")

    def answer(_turn, messages):
        assert problems(messages) == []
        seen.append(str(messages))
        n = latest(messages)
        said = calls(("look", {"n": n})) if n < 8 else says("done")
        said.usage = RequestUsage(input_tokens=100 * len(messages), output_tokens=1)
        return said

    job = looker(Script(answer), Summarise(model=FunctionModel(sum_up), above_tokens=1000, keep=4))

    async with holdfast.testing.open(agents=[job]) as hf:
        assert await hf.run(job, id="r") == "done"
        await hf.crash()
        keys = [event.key for event in await hf.store.journal("r") if "compact" in (event.key or "")]
    assert len(keys) == len(summaries) >= 1 and keys[0] == "clerk-0:compact/clerk.compact#0"
    assert 'look({"n":0})' in summaries[0] and "look returned: saw 0" in summaries[0]
    assert "looked 1 times" in seen[-1] or "looked 2 times" in seen[-1]
    assert "saw 0" not in seen[-1] and "saw 7" in seen[-1]


def test_histories_that_would_be_emptied_are_refused():
    """Keeping nothing is no compaction."""
    with pytest.raises(holdfast.BadArguments, match="keep at least one message"):
        Trim(keep=0)


# Trying again


async def test_requests_and_tools_are_tried_again_by_default():
    """A provider that is overloaded and a tool that stumbles are asked again; a mistake in using the framework is not."""
    stumbles = []

    def answer(turn, messages):
        stumbles.append("model")
        if stumbles.count("model") == 1:
            raise ModelHTTPError(503, "scripted")
        if messages[0].parts[0].content == "wrong":
            raise UserError("no")
        return calls(("look", {})) if turn_of(messages) == 0 else says(str(returned(messages)))

    clerk = Agent(Script(answer).model, name="clerk", capabilities=[HoldfastDurability()])

    @clerk.tool_plain
    async def look() -> str:
        stumbles.append("tool")
        if stumbles.count("tool") < 3:
            raise ConnectionError("again")
        return "seen"

    @holdfast.agent
    async def job(prompt: str) -> str:
        return (await clerk.run(prompt)).output

    async with holdfast.testing.open(agents=[job]) as hf:
        assert await hf.run(job, "go") == "{'look': 'seen'}"
        assert (stumbles.count("model"), stumbles.count("tool")) == (3, 3)
        with pytest.raises(holdfast.RunFailed, match="no"):
            await hf.run(job, "wrong")
        assert stumbles.count("model") == 4


async def test_a_model_that_is_given_to_one_run_is_asked():
    """By its name in `models=`, or as it is: agent code gives it again in every life."""
    clerk = Agent(Script(lambda *_: says("default")).model, name="clerk", capabilities=[HoldfastDurability()])
    other = FunctionModel(lambda *_: says("other"), model_name="other")
    known = Agent(
        Script(lambda *_: says("default")).model,
        name="known",
        capabilities=[HoldfastDurability(models={"other": other})],
    )

    @holdfast.agent
    async def job() -> list[str]:
        runs = [(known, other), (known, "other"), (clerk, other), (clerk, None)]
        return [(await agent.run("go", model=model)).output for agent, model in runs]

    async with holdfast.testing.open(agents=[job]) as hf:
        returned = await hf.run(job)
    assert returned == ["other", "other", "other", "default"]
