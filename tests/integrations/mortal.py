"""Three parallel Pydantic AI agents in a process that kills itself in the middle of its nth effect.

Arguments: the file of the store, a file to which each effect is added before it happens, and n (0: live on).
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from pydantic_ai import Agent
from tests.integrations.scripted import Script, calls, says

import holdfast
from holdfast.integrations.pydantic_ai import HoldfastDurability

file, log, deadly = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
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
        sys.stdout.write(f"{await run.result(timeout=30)}\n")


asyncio.run(main())
