"""Pydantic AI agents in runs: what is a step, under which key, and what is stored."""

import asyncio
import json
import random
import string
import subprocess
import sys

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from tests.integrations.durable_agent import durable, everywhere, keys, running, stored
from tests.integrations.scripted_model import Script, calls, returned, says, turn_of

import holdfast
import holdfast.testing
from holdfast.integrations.pydantic_ai import HoldfastDurability

# A task that a crash ends before its first step never awaits what it was to await.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")


def test_requests_and_tool_calls_are_steps_under_pinned_keys():
    """A request's key is made of the agent's run, a tool's of the call's id: no name of the framework's is in them."""
    script = Script(lambda turn, _m: [calls(("look", {"at": "a"}), ("look", {"at": "b"})), says("done")][turn])
    clerk = durable(script)

    @clerk.tool_plain
    async def look(at: str) -> str:
        return f"saw {at}"

    @holdfast.agent
    async def job(prompt: str) -> str:
        return (await clerk.run(prompt)).output

    result, events, hf = running(job, "go")
    assert result == "done"
    assert sorted(keys(events)) == [
        "clerk-0:c0/look#0", "clerk-0:c1/look#0", "clerk-0:model/clerk.model#0", "clerk-0:model/clerk.model#1",
    ]  # fmt: skip
    assert [event.data["input"] for event in events if event.kind == "step.completed"][:2] == ["prompt='go'", "at='a'"]
    assert hf.bodies["clerk.model"] == 2 and hf.bodies["look"] == 2
    assert not [event for event in events if event.kind == "foreign"]


def test_a_crash_anywhere_costs_at_most_the_request_it_cut_off():
    """Crashed at each commit, the run ends right, and only what was not recorded is asked again."""
    script = Script(lambda turn, m: [calls(("look", {"at": "a"}), ("look", {"at": "b"})), says(str(returned(m)))][turn])
    clerk = durable(script)

    @clerk.tool_plain
    async def look(at: str) -> str:
        return f"saw {at}"

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    def check(result, hf):
        assert result == "{'look': 'saw b'}"
        assert 2 <= sum(script.paid.values()) <= 2 + hf.crashes
        script.forget()

    assert everywhere(job, check=check) > 10


def test_plain_functions_of_the_framework_run_without_threads_in_the_agent_and_in_threads_in_steps():
    """Instructions that are a plain function wait for nothing foreign and may use verbs; a plain tool does not block."""
    import threading

    script = Script(lambda turn, m: [calls(("look", {})), says(m[-1].instructions)][turn])
    clerk, tools = durable(script), []

    @clerk.instructions
    def today() -> str:
        return f"{threading.current_thread() is threading.main_thread()} {holdfast.now().year > 2000}"

    @clerk.tool_plain
    def look() -> str:
        tools.append(threading.current_thread() is threading.main_thread())
        return "seen"

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    result, events, _ = running(job)
    assert result == "True True" and tools == [False]
    assert not [event for event in events if event.kind == "foreign"]


def test_outside_a_run_the_capability_says_so():
    """Run outside a run the agent raises NotInRun with the way to start it, and pays for nothing."""
    script = Script(lambda _turn, _m: says("hello"))
    with pytest.raises(holdfast.NotInRun, match=r"outside a run, where nothing would be durable.*@holdfast\.agent"):
        asyncio.run(durable(script).run("go"))
    assert not script.paid


def test_what_a_request_was_made_with_is_stored_once_and_may_change():
    """Model, settings, instructions and tools are in the journal once; with new ones an old run goes on, and both are there."""
    said = ["Be kind.", "Be quick."]
    script = Script(lambda turn, _m: [calls(("look", {})), calls(("look", {})), says("done")][turn % 3])
    settings = {"temperature": 0.5, "extra_headers": {"Authorization": "secret"}}
    clerk = durable(script, model_settings=settings)

    @clerk.instructions
    def manner() -> str:
        return said[0]

    @clerk.tool_plain(metadata={"holdfast": False})
    async def look() -> str:
        await holdfast.receive("go")
        return "seen"

    @holdfast.agent
    async def job() -> str:
        await clerk.run("once")
        return (await clerk.run("twice")).output

    async def act(hf, run):
        await run.wait("waiting")
        await run.send("go", 1)
        await run.send("go", 2)
        await run.wait("waiting")
        said.pop(0)
        for n in range(3):
            await run.send("go", n)
        assert await run.result(timeout=20) == "done"
        answers = await stored(hf, run, "clerk.model")
        assert len(answers) == 6
        assert [len(answer.get("new", ())) for answer in answers] == [2, 0, 0, 0, 1, 0]
        first, second = answers[0]["new"][answers[0]["version"]], answers[4]["new"][answers[4]["version"]]
        assert first == {
            "model": "scripted", "settings": {"temperature": 0.5, "extra_headers": ["Authorization"]},
            "instructions": "Be kind.", "tools": first["tools"],
        }  # fmt: skip
        assert second == {**first, "instructions": "Be quick."}
        assert [tool["name"] for tool in answers[0]["new"][first["tools"]]] == ["look"]

    running(job, act=act)


def test_streamed_requests_and_event_handlers_are_steps():
    """A handler sees a model's words inside the request's step, and other events in steps of their own, once each."""
    script = Script(lambda turn, _m: [calls(("look", {})), says("all is well")][turn])
    seen = []

    async def handler(ctx, events):
        async for event in events:
            seen.append(event.event_kind)

    clerk = durable(script, capability=HoldfastDurability(event_stream_handler=handler))

    @clerk.tool_plain
    async def look() -> str:
        return "seen"

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    result, events, hf = running(job)
    assert result.strip() == "all is well" and hf.bodies["clerk.model"] == 2
    assert seen.count("part_delta") >= 2 and seen.count("function_tool_call") == seen.count("function_tool_result") == 1
    assert hf.bodies["clerk.events"] == len([key for key in keys(events) if "clerk.events" in key]) >= 2

    def check(result, hf):
        assert result.strip() == "all is well"
        assert hf.bodies["clerk.model"] <= 2 + hf.crashes

    assert everywhere(job, check=check) > 10


def test_run_stream_and_iter_work_in_a_run():
    """Text that is streamed to the agent's code comes from the recorded answer; so do the nodes of `iter`."""
    script = Script(lambda turn, _m: [calls(("look", {})), says("all is well")][turn])
    clerk = durable(script)

    @clerk.tool_plain
    async def look() -> str:
        return "seen"

    @holdfast.agent
    async def job() -> list[str]:
        async with clerk.run_stream("go") as stream:
            words = [text async for text in stream.stream_text(debounce_by=None)]
        async with clerk.iter("again") as run:
            nodes = [type(node).__name__ async for node in run]
        return [words[-1].strip(), nodes[-1], run.result.output]

    def check(result, hf):
        assert result == ["all is well", "End", "all is well"]
        assert hf.bodies["clerk.model"] <= 4 + hf.crashes

    assert everywhere(job, check=check) > 10


def test_errors_of_models_and_tools_come_back_as_themselves():
    """What the framework or the agent's code catches by class is that class, live and when the run is resumed."""
    kinds = []

    def answer(turn, messages):
        raise ModelHTTPError(503, "scripted", {"error": "busy"})

    clerk = durable(Script(answer))

    @holdfast.agent
    async def job() -> str:
        try:
            await clerk.run("go")
        except ModelHTTPError as error:
            kinds.append((error.status_code, error.body))
        await holdfast.sleep("1h")
        return "survived"

    assert running(job)[0] == "survived"
    assert kinds == [(503, {"error": "busy"})] * 2


def test_messages_are_the_same_on_every_replay():
    """A step that is given the whole conversation is recognised after a crash: no time or id in it is another one."""
    script = Script(lambda _turn, m: [calls(("look", {})), says("done")][turn_of(m) % 2])
    clerk = durable(script)

    @clerk.tool_plain
    async def look() -> str:
        return "seen"

    @holdfast.step
    async def keep(messages: bytes) -> int:
        return len(json.loads(messages))

    @holdfast.agent
    async def job() -> int:
        first = await clerk.run("go")
        await keep(first.all_messages_json())
        second = await clerk.run("on", message_history=first.all_messages())
        return await keep(second.all_messages_json())

    def check(result, hf):
        assert result == 8

    assert everywhere(job, check=check) > 10


@pytest.mark.by_day("120")
@pytest.mark.parametrize("turns", [120, 400])
async def test_the_journal_of_a_conversation_is_about_its_payload(tmp_path, turns):
    """Turns of 2 KB, each request given all that came before, take at most 1.5 times those 2 KB."""
    size = 2048
    script = Script(lambda turn, _m: says("".join(random.Random(turn).choices(string.ascii_letters, k=size))))
    clerk = durable(script, instructions="Be kind.")

    @holdfast.agent
    async def job() -> int:
        messages = []
        for _ in range(turns):
            messages = (await clerk.run("go on", message_history=messages)).all_messages()
        return len(messages)

    def taken():
        return sum(file.stat().st_size for file in tmp_path.iterdir())

    async with holdfast.open(f"sqlite:{tmp_path / 'file.db'}", agents=[job]):
        pass
    empty = taken()
    async with holdfast.open(f"sqlite:{tmp_path / 'file.db'}", agents=[job]) as hf:
        assert await hf.run(job) == 2 * turns
    returned = taken() - empty
    assert returned <= 1.5 * turns * size


def test_holdfast_alone_does_not_import_the_framework():
    """`import holdfast` leaves Pydantic AI alone."""
    code = "import holdfast, holdfast.client.client, sys; print('pydantic_ai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize(("options", "kept"), [({}, True), ({"model": {"inputs": "digest"}}, False)])
def test_requests_are_kept_whole_unless_told_otherwise(options, kept):
    """Messages and tools as the model was sent them, in the framework's own form; what was recorded is not kept again."""
    long = "a long answer " * 40
    script = Script(lambda turn, _m: [calls(("look", {"at": "a"})), says(long), says("done")][turn])
    clerk = durable(script, capability=HoldfastDurability(**options), instructions="Be brief.")

    @clerk.tool_plain
    async def look(at: str) -> str:
        """Look at a place."""
        return f"saw {at} " * 50

    @holdfast.agent
    async def job() -> str:
        first = await clerk.run("go")
        return (await clerk.run("and now?", message_history=first.all_messages())).output

    async def main():
        async with holdfast.testing.open(agents=[job]) as hf:
            run = await hf.start(job, id="r")
            await run.result(timeout=20)
            requests = [step async for step in run.steps() if step.name == "clerk.model"]
            assert (await run.snapshot()).request.key == requests[-1].key
            return [await step.arguments() for step in requests], await hf.store.parts_of(["r"])

    requests, parts = asyncio.run(main())
    if not kept:
        assert requests == [None, None, None]
        return
    assert [len(request["messages"]) for request in requests] == [1, 3, 5]
    assert requests[2]["messages"][:3] == requests[1]["messages"]
    asked, called, returned_, said, again = requests[2]["messages"]
    assert asked["parts"] == [{"content": "go", "part_kind": "user-prompt"}]
    assert called["parts"][0]["tool_name"] == "look"
    assert returned_["parts"][0]["content"] == "saw a " * 50
    assert said["parts"] == [{"content": long, "part_kind": "text"}]
    assert again["parts"][0]["content"] == "and now?"
    assert [tool["name"] for tool in requests[0]["tools"]] == ["look"]
    assert parts == set()
