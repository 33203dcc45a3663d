"""The blocks of docs/models.md, run as they stand there, against the fake provider."""

import asyncio
import difflib
import os

import openai
import pytest
from tests.docs.pages import ROOT, block, module

import holdfast
import holdfast.testing
from holdfast.testing.provider import Failure, Half, RateLimited, Tool, provider

PAGE = "docs/models.md"


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch):
    """Whatever is asked by mistake is asked of nobody."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def told(name, script, *args, act=None):
    """Run the agent of a block (the last one in it) against a script: its result, the provider, its events and its info."""

    async def main():
        with provider(script) as fake:
            os.environ.update(fake.env)  # a client may be made when the block is run
            page = module(PAGE, f"models: {name}")
            agent = [each for each in vars(page).values() if isinstance(each, holdfast.Agent)][-1]
            async with holdfast.testing.open(agents=[agent]) as hf:
                run = await hf.start(agent, *args, id="r")
                if act is not None:
                    await act(hf, run)
                result, info = await run.result(timeout=30), await run.info()
                events = [event async for event in run.events(follow=False)]
            if isinstance(getattr(page, "client", None), openai.AsyncOpenAI):
                await page.client.close()
            return result, fake, events, info

    return asyncio.run(main())


def test_three_lines_make_it_durable():
    """The durable agent is the plain one and three more lines, and nothing else is changed."""
    plain, durable = (block(PAGE, f"models: {name}").splitlines() for name in ("plain", "durable"))
    changes = [line for line in difflib.ndiff(plain, durable) if line[0] in "+-"]
    assert len(changes) == 3 and all(line.startswith("+ ") for line in changes)


def test_an_override_holds_in_a_run_of_the_testing_kit():
    """As the section on tests says; no provider is asked."""
    page = module(PAGE, "models: durable")
    with provider(["not this"]) as fake:
        os.environ.update(fake.env)
        asyncio.run(module(PAGE, "models: override").check(page.clerk, page.answer))
        assert fake.paid == 0


async def test_the_plain_agent_and_the_durable_one_answer_alike():
    """And the durable one through a crash at every point, as the section on tests says."""
    script = [Tool("look_up", animal="otters"), "Otters sleep at sea."]
    durable, check = module(PAGE, "models: durable"), module(PAGE, "models: testing").check

    with provider(script) as fake:
        os.environ.update(fake.env)
        plain = module(PAGE, "models: plain")  # whose client is made at once
        assert await plain.answer("Where do otters sleep?") == script[-1]
        await plain.clerk.model.client.close()
    await check(durable.answer)


def test_each_request_and_each_tool_call_is_one_step():
    """The history has one event for each of them, and the end; the run has counted what the requests cost."""
    script = [Tool("look_up", animal="otters"), Tool("look_up", animal="seals"), "At sea."]
    _, _, events, info = told("durable", script, "Where?")
    done = [event.data["name"] for event in events if event.kind == "step.completed"]
    assert done == ["clerk.model", "look_up", "clerk.model", "look_up", "clerk.model"]
    assert [event.kind for event in events if event.kind != "step.completed"] == ["run.completed"]
    assert info.spent.model_calls == 3 and info.spent.tokens > 0


def test_a_client_is_a_step():
    """Two requests, what they cost in the run's account, and one of them again after a 500."""
    result, fake, _, info = told("client", ["Facts.", Failure(500), "Explained."], "otters")
    assert (result, fake.asked, fake.paid) == ("Explained.", 3, 2)
    assert info.spent.model_calls == 2
    assert info.spent.tokens == fake.total.input_tokens + fake.total.output_tokens


def test_tools_are_steps_questions_and_agents_as_their_metadata_says():
    """A tool that needs approval waits in the inbox; one that is inline runs another agent, whose request is a step."""
    scripts = {
        "To Oslo": [Tool("advise", wish="north"), Tool("book", place="Oslo"), Tool("pay", euros=5), "Booked."],
        "north": ["Go to Oslo."],
    }

    async def decide(hf, run):
        await run.wait("waiting")
        (question,) = await hf.approvals()
        assert (question.to, question.shown) == (("office",), {"place": "Oslo"})
        await hf.approve(question, by=holdfast.Actor("ana", ["office"]), data={"place": "Bergen"})

    def script(request):
        return scripts[request.prompt][request.turn]

    result, fake, events, _ = told("tools", script, "To Oslo", act=decide)
    assert result == "Booked."
    assert [request.results for request in fake.requests][-2:] == [["booked Bergen"], ["paid 5"]]
    names = [event.data["name"] for event in events if event.kind == "step.completed"]
    assert names == ["booker.model", "guide.model", "booker.model", "book", "booker.model", "pay", "booker.model"]
    assert "step.started" in {event.kind for event in events if event.key and "pay" in event.key}


def test_a_governed_agent_waits_as_long_as_it_is_told():
    """A 429 with Retry-After is waited for, and then the request is made once."""
    result, fake, events, _ = told("governed", [RateLimited("90s"), "Short."], "a long text")
    assert (result, fake.asked, fake.paid) == ("Short.", 2, 1)
    assert "step.retrying" in {event.kind for event in events}


def test_another_model_answers_and_stays():
    """The first model refuses, the second answers, and which one it was is on record."""

    def script(request):
        return Failure(404) if request.model == "gpt-5" else "Short."

    result, fake, _, _ = told("governed", script, "a long text")
    assert (result, fake.asked, fake.paid) == ("Short.", 2, 1)
    assert [request.model for request in fake.requests] == ["gpt-5", "gpt-5-mini"]


def granting(words, **data):
    """A person who is asked once, in these words, and says yes."""

    async def act(hf, run):
        await run.wait("waiting")
        (question,) = await hf.approvals()
        assert words in question.question
        await hf.approve(question, by=holdfast.Actor("ana", ["office"]), **data)

    return act


def test_a_budget_asks_for_more():
    """The model is told when most of it is spent; at the limit a person is asked, and the run goes on with what is granted."""
    answers = [*(Tool("search", words=f"word {n}") for n in range(11)), "I give up."]
    result, fake, _, info = told("budget", answers, "the yeti", act=granting("budget", data={"model_calls": 5}))
    assert (result, fake.paid, info.spent.model_calls) == ("I give up.", 12, 12)
    hints = [index for index, request in enumerate(fake.requests) if "[Budget:" in str(request.messages[-1])]
    assert hints[0] == 8


def test_a_loop_asks_before_it_goes_on():
    """The sixth call with the outcome of five is made when a person has said so, and not before."""
    answers = [*(Tool("search", words="yeti") for n in range(6)), "I give up."]
    result, fake, _, _ = told("budget", answers, "the yeti", act=granting("goes round in circles"))
    assert (result, fake.paid) == ("I give up.", 7)


@pytest.mark.parametrize("name", ["streamed", "stream"])
def test_a_stream_goes_on_where_it_broke_off(name):
    """Half a stream, and the rest: a reader sees each word once, and the model is asked to go on."""
    heard = []

    async def listen(hf, run):
        heard.extend([chunk async for chunk in run.stream("answer")])

    result, fake, _, _ = told(name, [Half("Otters hold "), "hands."], "otters", act=listen)
    assert result == "Otters hold hands."
    assert "".join(chunk.data for chunk in heard) == "Otters hold hands."
    assert [chunk.kind for chunk in heard if chunk.kind != "data"] == ["end"]
    assert fake.requests[1].messages[-2]["content"] == "Otters hold "


async def test_a_conversation_is_remembered_by_the_next_run():
    """The second message is answered with the first one in sight, also over a crash."""
    page = module(PAGE, "models: conversation")

    with provider(lambda request: f"You said {len(request.messages) // 2 + 1} things.") as fake:
        os.environ.update(fake.env)
        async with holdfast.testing.open(agents=[page.reply]) as hf:
            assert await hf.run(page.reply, "ana", "Hello") == "You said 1 things."
            await hf.crash()
            assert await hf.run(page.reply, "ana", "And hello again") == "You said 2 things."
        assert fake.paid == 2


def test_the_page_is_linked():
    """The README and the guide lead to it, and its links lead somewhere."""
    assert "docs/models.md" in (ROOT / "README.md").read_text()
    assert "(models.md)" in (ROOT / "docs" / "guide.md").read_text()
