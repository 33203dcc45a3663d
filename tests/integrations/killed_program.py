"""Three parallel Pydantic AI agents in processes that kill themselves in the middle of their nth effect, one after the other.

Arguments: the file of the store, a file to which each effect is added before it happens, and n for each (0: live on). The
processes are forks of this one, which has imported the framework and does nothing else; it tells how each has ended.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from pydantic_ai import Agent
from tests.integrations.scripted_model import Script, calls, says

import holdfast
from holdfast.integrations.pydantic_ai import HoldfastDurability

file, log, deadly = Path(sys.argv[1]), Path(sys.argv[2]), 0
effects = []


def happens(what):
    effects.append(what)
    with log.open("a", encoding="utf-8") as lines:
        lines.write(f"{what}\n")
    if len(effects) == deadly:
        os.kill(os.getpid(), signal.SIGKILL)


async def effect(what):
    happens(what)
    await asyncio.sleep(0)


def answer(turn, messages):
    if turn < 2:
        return calls(("look", {"at": f"{messages[0].parts[0].content}{turn}"}))
    return says(messages[-1].parts[0].content)


script = Script(answer, before=lambda _, prompt, turn: effect(f"request {prompt} {turn}"))
searcher = Agent(script.model, name="searcher", capabilities=[HoldfastDurability()])


@searcher.tool_plain
async def look(at: str) -> str:
    await effect(f"look {at}")
    return f"saw {at}"


@holdfast.agent
async def job() -> list[str]:
    results = await asyncio.gather(*(searcher.run(topic) for topic in "xyz"))
    return [result.output for result in results]


async def main():
    async with holdfast.open(f"sqlite:{file}", agents=[job]) as hf:
        run = await hf.start(job, id="r")
        print(await run.result(timeout=30), flush=True)  # noqa: T201


for n in map(int, sys.argv[3:]):
    pid = os.fork()
    if pid == 0:
        deadly = n
        asyncio.run(main())
        break
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)  # noqa: T201
