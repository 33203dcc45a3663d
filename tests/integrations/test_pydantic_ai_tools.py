"""Tools of Pydantic AI agents in runs: where they run, how they are tried again, and what people are asked."""

import asyncio
import re
import sys
from pathlib import Path
from typing import Annotated

import pydantic_ai
import pytest
from pydantic import AfterValidator, BaseModel, Field
from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import ExternalToolset
from tests.integrations.durable_agent import durable, everywhere, keys, running
from tests.integrations.scripted_model import Script, calls, returned, says

import holdfast
import holdfast.testing

# A task that a crash ends before its first step never awaits what it was to await.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")


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
        # The two tools run at the same time, so one crash can cost the answers of both.
        assert hf.bodies["inner.model"] <= 2 + 2 * hf.crashes and hf.bodies["clerk.model"] <= 2 + hf.crashes

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


class Line(BaseModel):
    what: str
    euros: Annotated[int, Field(gt=0)]


def _even(cents: int) -> int:
    if cents % 2:
        raise ValueError("cents come in pairs")
    return cents


def paying(paid):
    """An agent that pays what its model wants, if a person lets it."""
    script = Script(
        lambda turn, m: [
            calls(("pay", {"lines": [{"what": "tea", "euros": 5}]})),
            says(str([p.content for p in m[-1].parts])),
        ][turn]
    )
    clerk = durable(script)

    @clerk.tool_plain(requires_approval=True)
    async def pay(lines: list[Line], cents: Annotated[int, AfterValidator(_even)] = 0) -> str:
        paid.append((lines[0].euros, cents))
        return f"paid {lines[0].euros}"

    @holdfast.agent
    async def job() -> str:
        return (await clerk.run("go")).output

    return script, job


TEA = {"what": "tea", "euros": 4}
WRONG = {
    "not a number": ({"lines": [{"what": "tea", "euros": "lots"}]}, "euros: found str 'lots'"),
    "nothing": ({}, "lines: found nothing"),
    "too little": ({"lines": [{"what": "tea", "euros": 0}]}, "exclusiveMinimum 0"),
    "unknown": ({"lines": [TEA], "cent": 2}, "cent: "),
    "unknown inside": ({"lines": [TEA | {"euro": 2}]}, "euro: "),
}


def test_edited_arguments_are_checked_where_they_are_entered():
    """By the schema of the tool, which is stored with the question: no code of the agent is needed. Nothing is decided."""
    paid = []
    script, job = paying(paid)

    async def act(hf, run):
        await run.wait("waiting")
        (asked,) = await run.approvals()
        assert asked.editable and asked.schema["required"] == ["lines"]
        for data, told in WRONG.values():
            with pytest.raises(holdfast.BadArguments, match=re.escape(told)):
                await hf.approve(asked, by="ana", data=data)
        assert [each.id for each in await run.approvals()] == [asked.id]
        await hf.approve(asked, by="ana", data={"lines": [TEA]})

    result, _, _ = running(job, act=act)
    assert result == "['paid 4']" and paid == [(4, 0)] and script.paid.total() == 2


def test_an_edited_call_counts_when_the_tool_accepts_it():
    """What only the tool's own code can refuse is asked about again, with the reason; the model hears nothing of it."""
    paid = []
    script, job = paying(paid)

    async def act(hf, run):
        while True:
            await run.wait("waiting", "completed")
            for asked in await run.approvals():
                again = "cents come in pairs" in asked.question and "ana" in asked.question
                assert asked.shown == {"lines": [{"what": "tea", "euros": 5}]}
                await hf.approve(asked, by="ana", data={"lines": [TEA], "cents": 2 if again else 3})
                if again:
                    return

    def check(result, hf):
        assert result == "['paid 4']" and set(paid) == {(4, 2)}
        assert script.paid.total() <= 2 + hf.crashes
        script.forget()

    _, events, _ = running(job, act=act)
    assert keys(events, "approval.asked") == ["clerk-0:c0/:approve#0", "clerk-0:c0/:approve#1"]
    assert script.paid.total() == 2
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


@pytest.mark.timeout(150)
def test_calls_of_an_mcp_server_are_steps(tmp_path):
    """The tools of a server, its instructions and each call are recorded: a resumed run asks it nothing again."""
    log = tmp_path / "asked.txt"
    from fastmcp.client.transports import StdioTransport  # whoever collects the tests need not wait for it
    from pydantic_ai.mcp import MCPToolset

    transport = StdioTransport(sys.executable, [str(Path(__file__).with_name("mcp_server.py")), str(log)])
    wanted = calls(("book", {"title": "a"}), ("book", {"title": "b"}))
    script = Script(
        lambda turn, m: [wanted, says(f"{returned(m).get('book')} {'Ask nicely.' in m[-1].instructions}")][turn]
    )
    # The server is a new process that first imports its package: of its own accord the client waits 5 s for that.
    shelf = MCPToolset(transport, id="shelf", include_instructions=True, init_timeout=100)
    clerk = durable(script, toolsets=[shelf])

    @holdfast.agent
    async def job() -> str:
        output = (await clerk.run("go")).output
        await holdfast.sleep("1h")
        return output

    async def main():
        async with holdfast.testing.open(agents=[job]) as hf:
            run = await hf.start(job, id="r")
            try:
                result = await run.result(timeout=120)
            finally:
                await transport.close()
            return result, keys([event async for event in run.events(follow=False)]), hf.bodies

    result, recorded, bodies = asyncio.run(main())
    assert result == "has b True"
    assert {"clerk-0:shelf.tools/shelf.tools#0", "clerk-0:c0/book#0", "clerk-0:c1/book#0"} <= set(recorded)
    assert bodies["book"] == 2 and sorted(log.read_text().split()) == ["a", "b"]
