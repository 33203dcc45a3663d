"""Models that are put in place of an agent's own: by `run(model=...)`, by `agent.override(...)`, inside a run and around it."""

import openai
import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.models import override_allow_model_requests
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
from tests.integrations.scripted_model import calls, says

import holdfast
import holdfast.testing
from holdfast.integrations.pydantic_ai import HoldfastDurability, Summarise

paid = []


async def real(messages, info):
    paid.append(holdfast.this_run().id)
    return says("real")


REAL = FunctionModel(real, model_name="real")
clerk = Agent(REAL, name="clerk", deps_type=str, capabilities=[HoldfastDurability()])
careful = Agent(
    REAL,
    name="careful",
    capabilities=[HoldfastDurability(models={"other": FunctionModel(real)}, fallback=["default", "other"])],
)


@clerk.instructions
def about(ctx: RunContext[str]) -> str:
    return f"deps: {ctx.deps}"


@pytest.fixture(autouse=True)
def nothing_paid():
    paid.clear()
    yield
    assert not paid


def stand_in():
    return TestModel(custom_output_text="test", call_tools=[])


@holdfast.agent
async def answer() -> str:
    return (await clerk.run("go", deps="own")).output


@holdfast.agent
async def parent() -> list[str]:
    child = await holdfast.spawn(answer)
    return [await answer(), await child]


@holdfast.agent
async def answer_carefully() -> str:
    return (await careful.run("go")).output


@holdfast.agent
async def overriding(how: str, who: str) -> str:
    agent = clerk if who == "clerk" else careful
    match how:
        case "block":
            with agent.override(model=stand_in()):
                return (await agent.run("go")).output
        case "named":
            with agent.override(model="test"):
                return (await agent.run("go")).output
        case _:
            return (await agent.run("go", model=stand_in())).output


@pytest.mark.by_day("block-careful", "given-clerk", "named-careful")
@pytest.mark.parametrize("who", ["clerk", "careful"])
@pytest.mark.parametrize("how", ["block", "given", "named"])
async def test_a_model_that_agent_code_puts_in_place_is_asked_in_every_life(how, who):
    """The model that the code gives is asked alone, whichever models there are to fall back on."""
    async for hf in holdfast.testing.crash_everywhere(agents=[overriding]):
        assert await hf.run(overriding, how, who) == ("test" if how != "named" else "success (no tool calls)")


@pytest.mark.parametrize("agent", [answer, parent, answer_carefully])
async def test_the_testing_kit_carries_an_override_into_runs(agent):
    """Pydantic AI's way to test: what is overridden where a run is started holds in it, its children and all their lives."""
    async for hf in holdfast.testing.crash_everywhere(agents=[agent]):
        with clerk.override(model=stand_in()), careful.override(model=stand_in()):
            run = await hf.start(agent)
        assert await run.result() == (["test", "test"] if agent is parent else "test")


async def test_each_run_has_the_override_under_which_it_was_started():
    """Two at once do not disturb each other; one that is started without has the agent's own model."""
    async with holdfast.testing.open(agents=[answer]) as hf:
        runs = []
        for text in ("one", "two"):
            with clerk.override(model=TestModel(custom_output_text=text)):
                runs.append(await hf.start(answer))
        runs.append(await hf.start(answer, id="own"))
        returned = [await run.result() for run in runs]
    assert returned == ["one", "two", "real"]
    assert paid == ["own"]
    paid.clear()


async def test_what_else_is_overridden_is_carried_too():
    """Dependencies, instructions and tools, as with the model."""
    seen = []

    async def look(messages, info):
        seen.append((messages[-1].instructions, [tool.name for tool in info.function_tools]))
        return says("seen")

    async with holdfast.testing.open(agents=[answer]) as hf:
        with clerk.override(model=FunctionModel(look), deps="theirs"):
            await hf.run(answer)
        with clerk.override(model=FunctionModel(look), instructions="be brief"):
            await hf.run(answer)
    assert seen == [("deps: theirs", []), ("be brief", [])]


async def test_elsewhere_an_override_around_a_start_is_refused(store_url):
    """Another process may carry the run, and would ask the real model: nothing is started, and the error says what to do."""
    async with holdfast.open(store_url, agents=[answer]) as hf, holdfast.open(store_url) as other:
        for client in (hf, other):
            with (
                clerk.override(model=stand_in(), deps="theirs"),
                pytest.raises(holdfast.BadArguments, match=r"the deps and the model of agent 'clerk'.*testing\.open"),
            ):
                await client.start(answer if client is hf else "answer")
        assert not await hf.runs()
    with clerk.override(model=stand_in()):  # the worker is in it too
        async with holdfast.open(store_url, agents=[answer]) as hf:
            returned = await hf.run(answer)
    assert returned == "test"


@holdfast.agent
async def handing_on(spawns: bool) -> str:
    with clerk.override(model=stand_in()):
        if spawns:
            return await (await holdfast.spawn(answer))
        return await answer()


@pytest.mark.parametrize("spawns", [False, True])
async def test_an_override_around_a_child_is_refused(spawns):
    """A child is a run of its own, which does not see what its parent has overridden."""
    async with holdfast.testing.open(agents=[handing_on]) as hf:
        with pytest.raises(holdfast.RunFailed, match="the model of agent 'clerk' is overridden here"):
            await hf.run(handing_on, spawns)
        assert len(await hf.runs()) == 1


async def test_a_summary_is_not_paid_under_an_override():
    """The model that sums up is not asked either: the one in place of all is."""
    summing = Agent(
        REAL,
        name="summing",
        capabilities=[HoldfastDurability(compact=Summarise(model=FunctionModel(real), above_tokens=1, keep=1))],
    )

    @summing.tool_plain
    async def look() -> str:
        return "seen"

    turns = iter([calls(("look", {}))] * 4)

    async def words(messages, info):
        return next(turns, says("done")) if info.function_tools else says("a summary")

    @holdfast.agent
    async def job() -> str:
        return (await summing.run("go")).output

    async with holdfast.testing.open(agents=[job]) as hf:
        with summing.override(model=FunctionModel(words)):
            run = await hf.start(job)
        await run.result()
        returned = [event.key for event in await hf.store.journal(run.id) if event.kind == "step.completed"]
    assert any("compact" in key for key in returned)


async def test_a_request_that_is_not_allowed_fails_at_once():
    """`ALLOW_MODEL_REQUESTS = False` is no trouble that passes: it is not tried again, and nothing is sent."""
    model = OpenAIChatModel(
        "gpt-5-mini", provider=OpenAIProvider(openai_client=openai.AsyncOpenAI(api_key="x", base_url="http://[::1]:9"))
    )
    strict = Agent(model, name="strict", capabilities=[HoldfastDurability()])

    @holdfast.agent
    async def job() -> str:
        return (await strict.run("go")).output

    with override_allow_model_requests(False):
        async with holdfast.testing.open(agents=[job]) as hf:
            run = await hf.start(job)
            with pytest.raises(holdfast.RunFailed, match="ALLOW_MODEL_REQUESTS"):
                await run.result()
            kinds = [event.kind for event in await hf.store.journal(run.id)]
            assert "step.retrying" not in kinds
            with strict.override(model=stand_in()):
                returned = await hf.run(job)
    assert returned == "test"


async def test_tools_that_are_put_in_place_are_refused_by_name():
    """They were not there when the agent was made, so they are no steps; nothing is asked before the error says so."""
    extra = FunctionToolset(id="extra")

    @extra.tool_plain
    async def look() -> str:
        return "extra"

    async with holdfast.testing.open(agents=[answer]) as hf:
        with clerk.override(model=TestModel(), toolsets=[extra]), pytest.raises(holdfast.RunFailed, match="extra"):
            await hf.run(answer)
