"""Answers of Pydantic AI agents in streams of their runs, and what is left of one that a crash cut off."""

import asyncio

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

import holdfast
import holdfast.testing
from holdfast.integrations.pydantic_ai import HoldfastDurability, Streamed

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")


def told(salvage):
    """A process that is gone in the middle of an answer: what the next one makes of it, what was asked and what was read."""
    asked, gate = [], asyncio.Event()

    async def words(messages, _info):
        asked.append([type(message).__name__ for message in messages])
        if len(asked) == 1:
            yield "Otters "
            yield "hold "
            await gate.wait()
        elif len(messages) == 3:
            yield "hands."
        else:
            for word in ("Otters ", "hold ", "hands."):
                yield word

    clerk = Agent(
        FunctionModel(stream_function=words),
        name="clerk",
        capabilities=[HoldfastDurability(stream=Streamed(salvage=salvage))],
    )

    @holdfast.agent
    async def job() -> list:
        result = await clerk.run("go")
        return [result.output, (result.response.metadata or {}).get("holdfast")]

    async def main():
        async with holdfast.testing.open(agents=[job]) as hf:
            run = await hf.start(job, id="r")
            seen = ""
            async for chunk in run.stream("answer"):
                seen += chunk.data
                if seen == "Otters hold ":
                    break
            await hf.crash()
            output = await hf.get("r").result(timeout=20)
            read = [(chunk.kind, chunk.data) async for chunk in hf.get("r").stream("answer", chunk.offset)]
            return output, read, [event.kind for event in await hf.store.journal("r")]

    return *asyncio.run(main()), asked


def test_an_answer_that_was_cut_off_is_asked_for_anew():
    """A reader that comes back is told that the text begins again, and reads all of it."""
    output, read, kinds, asked = told("restart")
    assert output == ["Otters hold hands.", None] and len(asked) == 2
    assert read[0][0] == "restart" and read[-1][0] == "end"
    assert "".join(text for kind, text in read if kind == "data") == "Otters hold hands."
    assert kinds.count("step.completed") == 1


def test_an_answer_that_was_cut_off_is_continued():
    """The model is given what it had said, and a reader sees every word once."""
    output, read, _, asked = told("continue")
    assert output == ["Otters hold hands.", None]
    assert asked == [["ModelRequest"], ["ModelRequest", "ModelResponse", "ModelRequest"]]
    assert [kind for kind, _ in read] == ["data", "end"] and read[0][1] == "hands."


def test_an_answer_that_was_cut_off_is_handed_on_as_what_it_is():
    """Nothing more is paid for; the answer says that it is not whole."""
    output, read, _, asked = told("hand on")
    assert output == ["Otters hold ", {"partial": "crashed"}] and len(asked) == 1
    assert [kind for kind, _ in read] == ["end"]


async def test_a_model_that_falls_silent_is_asked_again():
    """After the longest silence the request has failed; what it had said is salvage like any other."""
    asked = []

    async def words(messages, _info):
        asked.append(len(messages))
        yield "Otters hold " if len(asked) == 1 else "hands."
        if len(asked) == 1:
            await asyncio.sleep(3600)

    once = HoldfastDurability(
        stream=Streamed(salvage="continue", idle=0.2), model={"retry": holdfast.Retry(2, first=0)}
    )
    clerk = Agent(FunctionModel(stream_function=words), name="clerk", capabilities=[once])

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    async with holdfast.testing.open(agents=[job]) as hf:
        assert await hf.run(job, id="r") == "Otters hold hands."
        (failed,) = [event for event in await hf.store.journal("r") if event.kind == "step.retrying"]
        assert "nothing came for 0.2 s" in failed.data["error"]["message"]
    assert asked == [1, 3]


@pytest.mark.parametrize("first", ["", "Let me look. "], ids=["silent", "aloud"])
def test_readers_hear_the_answer_behind_a_tool_call(first):
    """A request that says nothing leaves nothing; behind a text comes its end, and readers go on to the next answer."""
    called, gate = asyncio.Event(), asyncio.Event()

    async def words(messages, _info):
        if len(messages) > 1:
            yield "At sea."
            return
        if first:
            yield first
        yield {1: DeltaToolCall("look_up", "{}", tool_call_id="c")}

    clerk = Agent(
        FunctionModel(stream_function=words), name="clerk", capabilities=[HoldfastDurability(stream="answer")]
    )

    @clerk.tool_plain
    async def look_up() -> str:
        called.set()
        await gate.wait()
        return "at sea"

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    async def read(run, **options):
        return [chunk.data or chunk.kind async for chunk in run.stream("answer", **options)]

    async def main():
        async with asyncio.timeout(20), holdfast.testing.open(agents=[job]) as hf:
            run = await hf.start(job)
            reader = asyncio.create_task(read(run))
            await called.wait()
            before = await read(run, follow=False)
            gate.set()
            assert await run.result() == "At sea."
            return before, await reader

    before = [first, "end"] if first else []
    assert asyncio.run(main()) == (before, [*before, "At sea.", "end"])


def test_what_to_do_with_a_cut_off_answer_is_checked():
    """A word that says nothing is refused."""
    with pytest.raises(holdfast.BadArguments, match="'restart', 'continue' or 'hand on'"):
        Streamed(salvage="maybe")
    with pytest.raises(holdfast.BadArguments, match="longest silence"):
        Streamed(idle=0)
