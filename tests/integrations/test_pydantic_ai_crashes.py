"""Parallel agents and parallel tools of Pydantic AI, dropped at random commits: right in the end, and paid for once."""

import asyncio
import random
import subprocess
import sys
from collections import Counter

import pytest
from pydantic_ai import Agent
from tests.commands import environment
from tests.engine.test_schedules import Crashes
from tests.integrations.scripted_model import Script, calls, says

import holdfast
import holdfast.testing
from holdfast.integrations.pydantic_ai import HoldfastDurability
from holdfast.testing.crashes import _restart

TOGETHER = 10  # runs in one file, which are dropped together
noise = random.Random()


async def nap(*_):
    await asyncio.sleep(noise.choice([0, 0, noise.random() * 0.004]))


def contents(messages):
    return [part.content for part in messages[-1].parts]


def research(turn, messages):
    """Looks, reads what it found, and says what it read."""
    topic = messages[0].parts[0].content
    if turn == 0:
        return calls(("look", {"at": topic}), ("look", {"at": f"{topic}!"}))
    if turn == 1:
        return calls(("read", {"what": " and ".join(contents(messages))}))
    return says(contents(messages)[0])


searching = Script(research, before=nap)
searcher = Agent(searching.model, name="searcher", capabilities=[HoldfastDurability()])


@searcher.tool_plain
async def look(at: str) -> str:
    await nap()
    return f"found {at}"


@searcher.tool_plain
async def read(what: str) -> str:
    await nap()
    return f"read {what}"


@holdfast.agent
async def three_agents() -> list[str]:
    results = await asyncio.gather(*(searcher.run(topic) for topic in "xyz"))
    return [result.output for result in results]


five = Script(
    lambda turn, messages: (
        calls(*(("measure", {"n": n}) for n in range(5))) if turn == 0 else says(str(contents(messages)))
    ),
    before=nap,
)
surveyor = Agent(five.model, name="surveyor", capabilities=[HoldfastDurability()])


@surveyor.tool_plain
async def measure(n: int) -> int:
    await nap()
    return n * n


@holdfast.agent
async def five_tools() -> str:
    return (await surveyor.run("go")).output


CASES = {
    "three_agents": (three_agents, searching, 9, 9, [f"read found {topic} and found {topic}!" for topic in "xyz"]),
    "five_tools": (five_tools, five, 2, 5, "[0, 1, 4, 9, 16]"),
}


async def together(name, seed):
    """Some runs in one file, dropped together a few times: how often, and how often a recorded request was paid again."""
    agent, script, requests, tools, right = CASES[name]
    rng = random.Random(seed)
    noise.seed(seed)
    script.forget()
    faults = Crashes(rng)
    async with holdfast.testing.open(agents=[agent], faults=faults, park=rng.random() < 0.5) as hf:
        faults.crashed = _restart(hf)
        runs = [await hf.start(agent, id=f"r{n}") for n in range(TOGETHER)]
        for run in runs:
            assert await run.result(timeout=50) == right
            events = [event async for event in run.events(follow=False)]
            closed = [event.key for event in events if event.kind.startswith("step.")]
            assert len(closed) == len(set(closed)) == requests + tools
            assert not [event for event in events if event.kind == "foreign"]
        assert script.again == []
        assert all(times <= 1 + hf.crashes for times in script.paid.values())
        return hf.crashes, sum(script.paid.values()) - TOGETHER * requests


@pytest.mark.by_day("40-five_tools")
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # by a task that was dropped before its first step
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("runs", [40, 200])
async def test_a_dropped_run_ends_right_and_pays_no_recorded_request_again(name, runs):
    """All runs, dropped at random commits, have the right result; what was recorded is never asked again."""
    ended = [await together(name, seed) for seed in range(runs // TOGETHER)]
    returned = [sum(column) for column in zip(*ended, strict=True)]
    crashes, lost = returned
    assert crashes > runs // TOGETHER
    assert lost <= crashes * TOGETHER * 3  # only what was under way when a crash came


@pytest.mark.by_day("0")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(3))
def test_a_process_killed_in_the_middle_of_an_effect_goes_on_in_the_next(tmp_path, seed):
    """Three agents in parallel, kill -9 in the middle of a random request or tool call, twice: the third process ends right."""
    rng, file, log = random.Random(seed), tmp_path / "file.db", tmp_path / "effects.txt"
    deaths = [str(rng.randint(1, 7)), str(rng.randint(1, 5)), "0"]
    command = [sys.executable, "-m", "tests.integrations.killed_program", str(file), str(log), *deaths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment())
    assert done.stdout.splitlines() == ["-9", "-9", "['saw x1', 'saw y1', 'saw z1']", "0"], done.stderr
    happened = log.read_text().splitlines()
    order = {name: happened.index(name) for name in happened}
    for topic in "xyz":
        life = [f"request {topic} 0", f"look {topic}0", f"request {topic} 1", f"look {topic}1", f"request {topic} 2"]
        for earlier, later in zip(life, life[1:], strict=False):
            assert earlier not in happened[order[later] :]
    assert max(Counter(happened).values()) <= 3 and len(happened) <= 15 + 2 * 3
