"""Any client makes a model call in a step: the blocks of the guide with the real packages, against loopback servers."""

from __future__ import annotations

import asyncio

import openai
import pydantic_ai
import pytest
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from tests.agents.anthropic_server import Refusal, claude
from tests.agents.runs import history
from tests.docs.pages import module

import holdfast
import holdfast.testing
from holdfast import Rate
from holdfast.integrations.pydantic_ai import HoldfastDurability
from holdfast.testing.provider import Overloaded, RateLimited, provider

PAGE = "docs/guide"


def run(guide, env, monkeypatch):
    """The agent of a block: its result, its events, and what its run has spent."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    async def main():
        async with holdfast.testing.open(agents=[guide.about]) as hf:
            result = await hf.run(guide.about, "otters", id="r")
            return result, await history(hf, "r"), (await hf.get("r").info()).spent

    return asyncio.run(main())


def waits(events):
    return [event.data["wait_ms"] / 1000 for event in events if event.kind == "step.retrying"]


def test_openai(monkeypatch):
    """A refusal is waited out and holds for the key; what the answer cost is the run's."""
    guide = module(PAGE, "guide: openai")
    with provider([RateLimited("30s"), "They sleep."]) as fake:
        result, events, spent = run(guide, fake.env, monkeypatch)
    assert result == "They sleep."
    assert waits(events) == [30]
    assert [event.data["pauses"] for event in events if event.kind == "step.retrying"] == ["openai"]
    assert (fake.asked, fake.paid) == (2, 1)
    assert (spent.input_tokens, spent.output_tokens, spent.model_calls) == (4, 2, 1)


@pytest.mark.slow
def test_anthropic(monkeypatch):
    """The same of another client: 429 and 529 with their times, 500, then a stream of tokens; a 400 is not repeated."""
    guide = module(PAGE, "guide: anthropic")
    script = [Refusal(429, "rate_limit_error", 40), Refusal(529, "overloaded_error", 7), Refusal(500, "api_error"),
              "They sleep."]  # fmt: skip
    with claude(script) as fake:
        result, events, spent = run(guide, fake.env, monkeypatch)
    assert result == "They sleep."
    first, second, third = waits(events)
    assert (first, second) == (40, 7)
    assert 6 <= third <= 8
    pauses = [event.data.get("pauses") for event in events if event.kind == "step.retrying"]
    assert pauses == ["anthropic", "anthropic", None]
    assert len(fake.requests) == 4
    assert (spent.input_tokens, spent.output_tokens, spent.model_calls) == (4, 2, 1)
    with claude([Refusal(400, "invalid_request_error")]) as fake, pytest.raises(holdfast.RunFailed, match="BadRequest"):
        run(guide, fake.env, monkeypatch)
    assert len(fake.requests) == 1


def test_a_framework_over_a_client():
    """Pydantic AI wraps the client's error in its own: the key is paused all the same."""

    async def main():
        async with (
            provider([RateLimited("30s"), Overloaded("7s"), "They sleep."]) as fake,
            openai.AsyncOpenAI(base_url=fake.url, api_key="any", max_retries=0) as client,
        ):
            model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
            durably = HoldfastDurability(model={"rate": Rate(name="openai")})
            bot = pydantic_ai.Agent(model, name="bot", capabilities=[durably])

            @holdfast.agent
            async def asks() -> str:
                return (await bot.run("What do otters do?")).output

            async with holdfast.testing.open(agents=[asks]) as hf:
                assert await hf.run(asks, id="r") == "They sleep."
                return fake, await history(hf, "r")

    fake, events = asyncio.run(main())
    refused = [event for event in events if event.kind == "step.retrying"]
    assert waits(events) == [30, 7]
    assert [event.data["pauses"] for event in refused] == ["openai", "openai"]
    assert (fake.asked, fake.paid) == (3, 1)
