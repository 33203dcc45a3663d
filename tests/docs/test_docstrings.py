"""Docstrings of public names: each says what it does, with one example that runs as it stands there.

An example is the body of an agent, unless it says otherwise: with `hf`, `run` or `question` it is code outside, with a client
open and a run that waits for a person; with a decorator or an import it is a module; and a few are the body of a step.
"""

import ast
import asyncio
import contextlib
import inspect
import re
import sys
import textwrap
import types

import pytest
from tests.docs import examples
from tests.snapshots.surface import members

import holdfast
import holdfast.testing

EXAMPLE = re.compile(r"^Example:\n    ```python\n(?P<code>.*?)^    ```$", re.MULTILINE | re.DOTALL)
IN_A_STEP = {
    "holdfast.LeafError", "holdfast.Stream", "holdfast.Stream.keep", "holdfast.Stream.write", "holdfast.connection",
    "holdfast.idempotency_key", "holdfast.lively", "holdfast.spend", "holdfast.stream", "holdfast.this_step",
}  # fmt: skip
IN_PLAIN_CODE = {"holdfast.NotInRun", "holdfast.sync.open"}
# Values that have no docstring of their own, properties that say all in a line, and what only Holdfast itself calls.
WITHOUT = re.compile(
    r"""holdfast\.(NOT_DONE|Command|Duration|Local|Reason)
    |holdfast\.(Budget|Spent|Loops|LogFilter|Remaining|Settings|Retry)\.\w+
    |holdfast\.(Checked|Difference|Frame|Notice|Pair|Replay)\.\w+
    |holdfast\.sync\.(Client|Run|Receipt|NotificationHandle|ScheduleHandle|Transcript|StepInfo|Snapshot|State|MessageInfo)(\.\w+)?
    |holdfast\.Client\.(token_of|good_token|token_used)
    |holdfast\.testing\.TestClient\.(?!crash$|deploy$|advance$|fire$)\w+
    |holdfast\.testing\.JumpClock\.\w+
    |holdfast\.testing\.provider\.(Exchange|Behaviour)(\.\w+)?
    |holdfast\.testing\.provider\.(?!Provider)\w+\.\w+
    |holdfast\.testing\.provider\.Provider\.(url|env|asked|paid)
    |holdfast\.integrations\.pydantic_ai\.\w+\.\w+
    |.*\.(__init__|of|store|settings|http_status|data|partial|shown|expired|salvaged|remaining)
    """,
    re.VERBOSE,
)
DULL = re.compile(r"(The same|That of|It |What |Who |How )")


def documented():
    """Every public name and method that a user may call, with its docstring."""
    for name, member in members(fields=False):
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isroutine(function) or inspect.isclass(function) or hasattr(function, "_fixture_function"):
            yield name, inspect.getdoc(getattr(function, "_fixture_function", function)) or ""


NAMES = {name: told for name, told in documented() if not WITHOUT.fullmatch(name) or name == "holdfast.remaining"}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_example_runs(name, tmp_path, monkeypatch):
    """Every public name has one, and it does what it shows."""
    found = EXAMPLE.search(NAMES[name])
    assert found, "no example in the docstring"
    monkeypatch.chdir(tmp_path)
    code = textwrap.dedent(found["code"])
    tree = ast.parse(code)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    defines = any(
        isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef) for node in tree.body
    )
    if name in IN_PLAIN_CODE or (defines and not used & {"question"}) or name == "holdfast.Settings":
        run_as_module(code)
    elif used & {"hf", "run", "question"}:
        asyncio.run(run_outside(code, tmp_path))
    else:
        asyncio.run(run_in_an_agent(code, in_a_step=name in IN_A_STEP))


def run_as_module(code):
    made = types.ModuleType("example")
    vars(made).update({name: getattr(examples, name) for name in examples.__all__})
    sys.modules["example"] = made  # annotations are resolved by the name of the module
    exec(compile(code, "example", "exec", dont_inherit=True), vars(made))


def function(code, head):
    """The code as the body of a function."""
    made = {name: getattr(examples, name) for name in examples.__all__}
    exec(compile(head + textwrap.indent(code, "    "), "example", "exec", dont_inherit=True), made)
    return made["example"]


async def run_outside(code, tmp_path):
    example = function(code, "async def example(hf, run, question):\n")
    agents = [examples.research, examples.report, examples.desk, examples.broken]
    async with holdfast.testing.open(agents=agents, path=tmp_path / "test.db") as hf:
        run = await hf.start(examples.report, "otters", id="r-1", labels={"team": "docs"})
        question = await run.wait_for_question()
        await run.wait("waiting")  # it may still be on its way out of memory
        await example(hf, run, question)


async def run_in_an_agent(code, *, in_a_step):
    if in_a_step:
        transaction = "connection()" in code
        body = holdfast.step(name="body", transaction=True) if transaction else holdfast.step(name="body")
        example = body(function(code, "async def example() -> None:\n"))

        async def agent_code() -> None:
            await example()

        agent = holdfast.agent(name="example")(agent_code)
    else:
        agent = holdfast.agent(name="example")(function(code, "async def example() -> None:\n"))
    async with holdfast.testing.open(agents=[agent, examples.research]) as hf:
        run = await hf.start(agent, id="e")
        await run.send("answer", "yes")
        result = asyncio.create_task(run.result(timeout=50))
        while not result.done():
            for question in await hf.approvals(run="e"):
                if question.to != ("nobody",):
                    with contextlib.suppress(holdfast.Expired):  # the clock may have jumped there first
                        await decide(hf, question)
            if "next_event" in code:  # until it hears: what came before it waits does not count
                await hf.publish("order.paid", {"order": 7})
            await asyncio.wait([result], timeout=0.02)
        await result


async def decide(hf, question):
    if question.kind == "ask":
        await hf.answer(question, 30, by="ana")
        return
    for name in ("ana", "bob"):
        if (await hf.approval(question.id)).status == "open":
            await hf.approve(question, by=holdfast.Actor(name, groups=["editors"]))


def test_the_first_line_says_what_it_does():
    """One line that ends with a full stop, and begins with the thing itself or a verb."""
    first = {name: told.partition("\n")[0] for name, told in NAMES.items()}
    assert {name: line for name, line in first.items() if not line.endswith(".") or DULL.match(line)} == {}
