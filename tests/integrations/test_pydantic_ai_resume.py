"""A long conversation is resumed from its records; whatever code may have kept in memory is replayed."""

import asyncio
import json

import pytest
from pydantic_ai import Agent, ModelRetry, RunContext
from tests.integrations.scripted_model import Script, calls, says, turn_of

import holdfast
import holdfast.testing
from holdfast.integrations.pydantic_ai import HoldfastDurability

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
TURNS = 12


class Bench:
    """An agent that looks twelve times, two things at once; its process is gone in the last request, if it is to be."""

    def __init__(self, *, inline_at=None, retried_at=None):
        self.instructed, self.seen, self.retried_at = 0, [], retried_at
        self.script = Script(self.answer)
        self.clerk = clerk = Agent(self.script.model, name="clerk", deps_type=list, capabilities=[HoldfastDurability()])

        @clerk.instructions
        def manner() -> str:
            self.instructed += 1
            return "Be kind."

        @clerk.tool_plain
        async def look(n: int) -> dict[str, int]:
            if n == self.retried_at:
                raise ModelRetry("not there")
            return {"saw": n}

        @clerk.tool(metadata={"holdfast": False})
        async def keep(ctx: RunContext[list], n: int) -> str:
            ctx.deps.append(n)
            return "kept"

        self.inline_at = inline_at

    def answer(self, _turn, messages):
        n = turn_of(messages)
        if n == TURNS:
            return says("done")
        return calls(("keep" if n == self.inline_at else "look", {"n": n}), ("look", {"n": -n}))

    def told(self, *, crash):
        """What the agent's run came to, with or without a crash between its last turn and the end."""

        @holdfast.agent
        async def job() -> dict:
            kept = []
            result = await self.clerk.run("go", deps=kept)
            await holdfast.receive("go on")
            self.seen.append(list(kept))
            usage = result.usage
            counted = [usage.requests, usage.tool_calls, usage.input_tokens, usage.output_tokens]
            messages = json.loads(result.all_messages_json())
            return {"usage": counted, "kept": kept, "messages": [tidied(each) for each in messages]}

        async def main():
            async with holdfast.testing.open(agents=[job]) as hf:
                run = await hf.start(job, id="r")
                await run.wait("waiting")
                self.instructed = 0
                if crash:
                    await hf.crash()
                await hf.get("r").send("go on", 1)
                told = await hf.get("r").result(timeout=20)
                return told, [event.key for event in await hf.store.journal("r")]

        return asyncio.run(main())


def tidied(message):
    """Without what is different in every run: its times and its mark."""
    message = {key: value for key, value in message.items() if key not in ("timestamp", "run_id", "conversation_id")}
    return message | {"parts": [{k: v for k, v in part.items() if k != "timestamp"} for part in message["parts"]]}


def test_a_resumed_conversation_is_the_same_and_its_turns_are_not_replayed():
    """Messages, usage and keys are those of a run without a crash; the framework makes one request again, not thirteen."""
    bench = Bench()
    whole, resumed = bench.told(crash=False), bench.told(crash=True)
    assert resumed == whole
    assert len(whole[0]["messages"]) == 2 * (TURNS + 1) and whole[0]["usage"][:2] == [TURNS + 1, 2 * TURNS]
    assert 1 <= bench.instructed <= 2


def test_a_tool_that_ran_in_the_agent_is_run_again():
    """What it has put into memory is there after a crash: its turn is replayed, and those around it are not."""
    bench = Bench(inline_at=5)
    whole, resumed = bench.told(crash=False), bench.told(crash=True)
    assert resumed == whole and whole[0]["kept"] == [5]
    assert bench.instructed <= 6


def test_a_turn_that_went_wrong_is_replayed():
    """A tool that asked the model to try again is part of the same conversation after a crash."""
    bench = Bench(retried_at=7)
    resumed = bench.told(crash=True)
    assert bench.script.again == []
    assert resumed == bench.told(crash=False)


async def test_nodes_that_the_code_sees_are_seen_again():
    """`iter` shows every node after a crash too, for its loop may keep what it sees."""
    bench = Bench()

    @holdfast.agent
    async def job() -> int:
        async with bench.clerk.iter("go", deps=[]) as run:
            nodes = [node async for node in run]
        await holdfast.receive("go on")
        return len(nodes)

    async with holdfast.testing.open(agents=[job]) as hf:
        run = await hf.start(job, id="r")
        await run.wait("waiting")
        await hf.crash()
        await hf.get("r").send("go on", 1)
        returned = await hf.get("r").result(timeout=20)
    assert returned == 2 * (TURNS + 1) + 2


async def test_what_follows_has_the_keys_it_would_have_had():
    """Steps and random numbers of later requests are those of a run that was not resumed, in any number of lives."""
    script = Script(lambda _turn, messages: calls(("look", {})) if turn_of(messages) < 5 else says("done"))
    clerk = Agent(script.model, name="clerk", capabilities=[HoldfastDurability()])
    drawn = []

    @holdfast.step
    async def fetch() -> str:
        return "It is late."

    @clerk.instructions
    async def manner(ctx: RunContext) -> str:
        turn = turn_of(ctx.messages)
        if turn == 4:
            drawn.append(holdfast.uuid4().hex)
            return await fetch()
        return "It is early."

    @clerk.tool_plain
    async def look() -> str:
        return "seen"

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    keys = set()
    async for hf in holdfast.testing.crash_everywhere(agents=[job]):
        drawn.clear()
        assert await hf.run(job, id="r") == "done"
        assert len(set(drawn)) == 1
        keys.add(tuple(event.key for event in await hf.store.journal("r") if event.kind == "step.completed"))
    returned = keys
    assert len(returned) == 1


async def test_it_is_the_same_after_a_checkpoint_and_inside_a_tool():
    """In a new era, and in the scope of a tool that runs in the agent, turns are put together too."""
    instructed = []

    def three(name):
        script = Script(lambda _turn, messages: calls(("look", {})) if turn_of(messages) < 3 else says(f"{name} done"))
        agent = Agent(script.model, name=name, capabilities=[HoldfastDurability()])

        @agent.instructions
        def manner() -> str:
            instructed.append(name)
            return "Be kind."

        @agent.tool_plain
        async def look() -> str:
            return "seen"

        return agent

    inner = three("inner")
    script = Script(lambda _turn, messages: says("done") if turn_of(messages) else calls(("delegate", {})))
    outer = Agent(script.model, name="outer", capabilities=[HoldfastDurability()])

    @outer.tool_plain(metadata={"holdfast": False})
    async def delegate() -> str:
        output = (await inner.run("go")).output
        await holdfast.receive("go on")
        return output

    @holdfast.agent
    async def job() -> str:
        state = await holdfast.restore(0)
        if state == 0:
            await inner.run("first")
            state = await holdfast.checkpoint(1)
        return (await outer.run("go")).output

    async with holdfast.testing.open(agents=[job]) as hf:
        run = await hf.start(job, id="r")
        await run.wait("waiting")
        await hf.crash()
        instructed.clear()
        await hf.get("r").send("go on", 1)
        returned = await hf.get("r").result(timeout=20)
    assert returned == "done"
    assert 1 <= len(instructed) <= 2
