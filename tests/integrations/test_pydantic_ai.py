"""Pydantic AI agents in runs: what is a step, under which key, what is stored, and what people are asked."""

import asyncio
import json
import random
import string
import subprocess
import sys
from pathlib import Path

import pydantic_ai
import pytest
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.exceptions import ApprovalRequired, ModelHTTPError
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import ExternalToolset
from tests.integrations.scripted import Script, calls, returned, says, turn_of

import holdfast
import holdfast.testing
from holdfast.integrations.pydantic_ai import HoldfastDurability

# A task that a crash ends before its first step never awaits what it was to await.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")


def durable(script, name="clerk", **options):
    own = options.pop("capability", None) or HoldfastDurability()
    return Agent(script.model, name=name, capabilities=[own], **options)


def running(agent, *given, act=None, agents=(), **options):
    """Run the agent to its end, and look: its result, its events, and the client."""

    async def main():
        async with holdfast.testing.open(agents=[agent, *agents], **options) as hf:
            run = await hf.start(agent, *given, id="r")
            if act is not None:
                await act(hf, run)
            result = await run.result(timeout=20)
            return result, [event async for event in run.events(follow=False)], hf

    return asyncio.run(main())


def everywhere(agent, *given, act=None, agents=(), check):
    """The same with a crash before and after each commit; `check(result, hf)` each time."""

    async def main():
        passes = 0
        async for hf in holdfast.testing.crash_everywhere(agents=[agent, *agents]):
            run = await hf.start(agent, *given, id="r")
            if act is not None:
                await act(hf, run)
            check(await run.result(timeout=20), hf)
            closed = [event.key async for event in run.events(follow=False) if event.kind == "step.completed"]
            assert len(closed) == len(set(closed))
            passes += 1
        return passes

    return asyncio.run(main())


def keys(events, kind="step.completed"):
    return [event.key for event in events if event.kind == kind]


async def stored(hf, run, name):
    """The results of a step in the journal, in order."""
    return [
        json.loads(event.value) for event in await hf.store.journal(run.id) if event.value and name in (event.key or "")
    ]


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


def test_parallel_tools_are_not_serialised():
    """Five tools of one answer run at the same time: each waits until all have begun."""
    script = Script(lambda turn, _m: [calls(*(("meet", {"n": n}) for n in range(5))), says("met")][turn])
    clerk, gathered = durable(script), asyncio.Barrier(5)

    @clerk.tool_plain
    async def meet(n: int) -> int:
        await gathered.wait()
        return n

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    assert running(job)[0] == "met"


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


def test_a_tool_may_run_in_the_agent():
    """With the metadata `holdfast: False` a tool uses steps, verbs and other agents, which are recorded one by one."""
    inner_script = Script(lambda _turn, _m: says("inner says hi"))
    inner = durable(inner_script, "inner")
    script = Script(
        lambda turn, m: [calls(("delegate", {"what": "x"}), ("delegate", {"what": "y"})), says(str(returned(m)))][turn]
    )
    clerk = durable(script)

    @holdfast.step
    async def double(what: str) -> str:
        return what * 2

    @clerk.tool(metadata={"holdfast": False})
    async def delegate(ctx: RunContext, what: str) -> str:
        await holdfast.sleep("1h")
        return f"{await double(what)} {(await inner.run(what)).output}"

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    def check(result, hf):
        assert result == "{'delegate': 'yy inner says hi'}"
        assert hf.bodies["inner.model"] <= 2 + hf.crashes and hf.bodies["clerk.model"] <= 2 + hf.crashes

    assert everywhere(job, check=check) > 10
    _, events, _ = running(job)
    assert {"clerk-0:c0/double#0", "clerk-0:c1/double#0"} <= set(keys(events))


def test_steps_and_agents_are_tools_that_run_in_the_agent():
    """A `@step` given as a tool is that step, and a `@agent` a child run, without any metadata."""

    @holdfast.step
    async def double(what: str) -> str:
        """Says it twice."""
        return what * 2

    @holdfast.agent
    async def helper(what: str) -> str:
        """Helps."""
        return f"helped {await double(what)}"

    script = Script(
        lambda turn, m: [calls(("double", {"what": "a"}), ("helper", {"what": "b"})), says(str(returned(m)))][turn]
    )
    clerk = durable(script, tools=[double, Tool(helper)])

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    result, events, hf = running(job, agents=[helper])
    assert result == "{'double': 'aa', 'helper': 'helped bb'}"
    assert "clerk-0:c0/double#0" in keys(events) and "clerk-0:c1/helper#0" in keys(events, "child.started")
    assert hf.bodies["double"] == 2


def test_a_tool_that_is_a_step_and_calls_one_is_told_what_to_do():
    """The error of a durable call in a tool's step names the tool and the metadata that lets it run in the agent."""
    script = Script(lambda _turn, _m: calls(("delegate", {})))
    other, clerk = durable(Script(lambda _turn, _m: says("never")), "other"), durable(script)

    @holdfast.step
    async def double(what: str) -> str:
        return what * 2

    @clerk.tool_plain
    async def delegate(how: str = "step") -> str:
        return await double("x") if how == "step" else (await other.run("x")).output

    @holdfast.agent
    async def job() -> str:
        try:
            await clerk.run("go")
        except holdfast.LeafError as error:
            return str(error)

    assert "tool 'delegate' is a step" in running(job)[0]
    assert "metadata={'holdfast': False}" in running(job)[0]
    delegate_to_agent = calls(("delegate", {"how": "agent"}))
    script.answer = lambda _turn, _m: delegate_to_agent
    assert "agent 'other' has HoldfastDurability and was run inside the body of a step" in running(job)[0]


def test_outside_a_run_the_capability_says_so():
    """Run outside a run the agent raises NotInRun with the way to start it, and pays for nothing."""
    script = Script(lambda _turn, _m: says("hello"))
    with pytest.raises(holdfast.NotInRun, match=r"outside a run, where nothing would be durable.*@holdfast\.agent"):
        asyncio.run(durable(script).run("go"))
    assert not script.paid


def test_tools_are_configured_by_their_metadata():
    """`retry` and `in_doubt` in a tool's metadata are those of its step; what is not known is refused by name."""
    script = Script(lambda turn, m: [calls(("flaky", {}), ("careful", {"n": 1})), says(str(returned(m)))][turn])
    clerk, tries, looks = durable(script), [], []

    @clerk.tool_plain(metadata={"holdfast": {"retry": holdfast.Retry(3, first="1s")}})
    async def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("again")
        return "at last"

    async def was_done(n: int) -> str:
        looks.append(n)
        return "it was"

    @clerk.tool_plain(metadata={"holdfast": {"in_doubt": was_done}})
    async def careful(n: int) -> str:
        raise holdfast.InDoubt("no answer")

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    result, events, _ = running(job)
    assert result == "{'flaky': 'at last', 'careful': 'it was'}" and looks == [1]
    assert len([event for event in events if event.kind == "step.retrying"]) == 2

    @clerk.tool_plain(metadata={"holdfast": {"retries": 3}})
    async def wrong() -> str: ...

    script.answer = lambda _turn, _m: calls(("wrong", {}))
    with pytest.raises(holdfast.RunFailed, match=r"metadata of tool 'wrong'.*'retries'.*retry"):
        running(job)


def test_a_tool_in_doubt_is_asked_about_in_its_own_words():
    """With `in_doubt: ask` a person enters what the tool would have returned."""
    script = Script(lambda turn, m: [calls(("pay", {"usd": 5})), says(str(returned(m)))][turn])
    clerk = durable(script)

    @clerk.tool_plain(metadata={"holdfast": {"in_doubt": "ask"}})
    async def pay(usd: int) -> dict[str, str]:
        raise holdfast.InDoubt("the line went dead")

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    async def act(hf, run):
        await run.wait("waiting")
        await hf.answer("r", {"result": {"receipt": "77"}}, by="ana")

    assert running(job, act=act)[0] == "{'pay': {'receipt': '77'}}"


def test_approvals_are_questions_in_the_inbox():
    """A tool that needs approval is asked about with its arguments; edited ones are used, a denial's reason is heard."""
    script = Script(
        lambda turn, m: [calls(("pay", {"usd": 5}), ("pay", {"usd": 6})), says(str([p.content for p in m[-1].parts]))][
            turn
        ]
    )
    clerk, paid = durable(script), []

    @clerk.tool_plain(requires_approval=True, metadata={"holdfast": {"to": "treasury"}})
    async def pay(usd: int) -> str:
        paid.append(usd)
        return f"paid {usd}"

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    async def act(hf, run):
        while len(waiting := await run.approvals()) < 2:
            await run.wait("waiting")
        for approval in waiting:
            ana = holdfast.Actor("ana", groups=("treasury",))
            if approval.shown["usd"] == 5:
                await hf.approve(approval, by=ana, data={"usd": 4})
            else:
                await hf.deny(approval, by=ana, note="too dear")

    def check(result, hf):
        assert result == "['paid 4', 'too dear']" and set(paid) == {4}
        assert sum(script.paid.values()) <= 2 + hf.crashes
        script.forget()

    _, events, _ = running(job, act=act)
    assert sorted(keys(events, "approval.asked")) == ["clerk-0:c0/:approve#0", "clerk-0:c1/:approve#0"]
    script.forget()
    assert everywhere(job, act=act, check=check) > 10


def test_a_tool_may_ask_for_approval_when_it_has_looked():
    """ApprovalRequired from a tool's body is a question too; when it is granted the tool runs again, and is told so."""
    script = Script(lambda turn, m: [calls(("pay", {"usd": 5})), says(str(returned(m)))][turn])
    clerk = durable(script)

    @clerk.tool
    async def pay(ctx: RunContext, usd: int) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return f"paid {usd}"

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    async def act(hf, run):
        await run.wait("waiting")
        await hf.approve("r", by="ana")

    result, events, _ = running(job, act=act)
    assert result == "{'pay': 'paid 5'}"
    assert [key for key in keys(events) if "/pay" in key] == ["clerk-0:c0/pay#0", "clerk-0:c0/pay#1"]


def test_a_tool_executed_elsewhere_is_a_question_for_its_result():
    """A call of an external tool waits in the inbox until somebody enters its result."""
    tool = pydantic_ai.tools.ToolDefinition(name="measure", parameters_json_schema={"type": "object", "properties": {}})
    script = Script(lambda turn, m: [calls(("measure", {})), says(str(returned(m)))][turn])
    clerk = durable(script, toolsets=[ExternalToolset([tool])])

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    async def act(hf, run):
        await run.wait("waiting")
        await hf.answer("r", {"cm": 7}, by="ana")

    assert running(job, act=act)[0] == "{'measure': {'cm': 7}}"


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


def test_a_tool_may_ask_the_model_to_try_again():
    """ModelRetry from a tool is an answer to the model, recorded as one."""
    script = Script(
        lambda turn, m: [calls(("look", {"at": "x"})), calls(("look", {"at": "y"})), says(str(returned(m)))][turn]
    )
    clerk = durable(script)

    @clerk.tool_plain
    async def look(at: str) -> str:
        if at == "x":
            raise ModelRetry("not there")
        return "seen"

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    def check(result, hf):
        assert result == "{'look': 'seen'}"

    everywhere(job, check=check)


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


def test_calls_of_an_mcp_server_are_steps(tmp_path):
    """The tools of a server, its instructions and each call are recorded: a resumed run asks it nothing again."""
    log = tmp_path / "asked.txt"
    transport = StdioTransport(sys.executable, [str(Path(__file__).with_name("shelf.py")), str(log)])
    wanted = calls(("book", {"title": "a"}), ("book", {"title": "b"}))
    script = Script(
        lambda turn, m: [wanted, says(f"{returned(m).get('book')} {'Ask nicely.' in m[-1].instructions}")][turn]
    )
    clerk = durable(script, toolsets=[MCPToolset(transport, id="shelf", include_instructions=True)])

    @holdfast.agent
    async def job() -> str:
        output = (await clerk.run("go")).output
        await holdfast.sleep("1h")
        return output

    async def main():
        async with holdfast.testing.open(agents=[job]) as hf:
            run = await hf.start(job, id="r")
            try:
                result = await run.result(timeout=40)
            finally:
                await transport.close()
            return result, keys([event async for event in run.events(follow=False)]), hf.bodies

    result, recorded, bodies = asyncio.run(main())
    assert result == "has b True"
    assert {"clerk-0:shelf.tools/shelf.tools#0", "clerk-0:c0/book#0", "clerk-0:c1/book#0"} <= set(recorded)
    assert bodies["book"] == 2 and sorted(log.read_text().split()) == ["a", "b"]


@pytest.mark.timeout(180)  # the framework goes through all messages at each request
def test_the_journal_of_a_conversation_is_about_its_payload(tmp_path):
    """400 turns of 2 KB, each request given all that came before, take at most 1.5 times those 2 KB."""
    turns, size = 400, 2048
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

    async def main():
        async with holdfast.open(f"sqlite:{tmp_path / 'file.db'}", agents=[job]):
            pass
        empty = taken()
        async with holdfast.open(f"sqlite:{tmp_path / 'file.db'}", agents=[job]) as hf:
            assert await hf.run(job) == 2 * turns
        return taken() - empty

    assert asyncio.run(main()) <= 1.5 * turns * size


def test_holdfast_alone_does_not_import_the_framework():
    """`import holdfast` leaves Pydantic AI alone."""
    code = "import holdfast, holdfast.client, sys; print('pydantic_ai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
