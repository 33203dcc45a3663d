"""13. Agents of Pydantic AI: what durability costs per call of a tool, and how soon a long conversation goes on.

As a script it is one process of the second part: `python pydantic_agents.py record|resume FILE TURNS`. Both end by killing
themselves in the request after so many calls of a tool; the second says when that request began.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import string
import sys
import time
from pathlib import Path
from statistics import median

from measuring import Bench, Row, alternating, finished, spread, told_by
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits

import holdfast
from holdfast.integrations.pydantic_ai import HoldfastDurability

OVERHEAD_MS, RESUME_MS = 1.0, 300
RESULT_BYTES = 2048
FREE = UsageLimits(request_limit=None)

times: dict[str, float] = {}


def note(what: str) -> None:
    times.setdefault(what, time.monotonic())


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    if turn < wanted():
        return ModelResponse(parts=[ToolCallPart("look", {"turn": turn}, f"call_{turn}")])
    if len(sys.argv) > 1 and sys.argv[1] in ("record", "resume"):
        note("request")
        if sys.argv[1] == "resume":
            print(json.dumps(times), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return ModelResponse(parts=[TextPart("done")])


turns = 0


def wanted() -> int:
    return int(sys.argv[3]) if len(sys.argv) > 1 and sys.argv[1] in ("record", "resume") else turns


async def look(turn: int) -> str:
    """Text of a fixed length that no compression would make small."""
    return "".join(random.Random(turn).choices(string.ascii_letters, k=RESULT_BYTES))


plain = Agent(FunctionModel(answer), name="plain", tools=[look])
durable = Agent(FunctionModel(answer), name="durable", tools=[look], capabilities=[HoldfastDurability()])


@holdfast.agent
async def job() -> str:
    return (await durable.run("go", usage_limits=FREE)).output


async def carry(mode: str, file: str) -> None:
    url = f"sqlite:{file}?durability=process" if mode == "record" else f"sqlite:{file}"
    note("imported")
    async with holdfast.open(url, agents=[job]) as hf:
        run = await hf.start(job, id="long")
        await run.result(timeout=600)


def measure(bench: Bench) -> list[Row]:
    return [*overhead(bench), *resuming(bench)]


def overhead(bench: Bench) -> list[Row]:
    """All make the same calls. Two plain steps are measured beside them: a call of a tool is one, and its request is."""
    global turns
    turns, rounds = bench.size(40, 5), bench.size(7, 2)

    def alone() -> float:
        began = time.perf_counter()
        finished(plain.run("go", usage_limits=FREE))
        return (time.perf_counter() - began) * 1000 / turns

    def recorded(durability: str) -> float:
        async def run() -> float:
            with bench.place() as folder:
                url = f"sqlite:{folder / 'bench.db'}?durability={durability}"
                async with holdfast.open(url, agents=[job]) as hf:
                    began = time.perf_counter()
                    await hf.run(job)
                    return (time.perf_counter() - began) * 1000 / turns

        return float(finished(run()))

    def commits() -> float:
        async def run() -> float:
            with bench.place() as folder:
                async with holdfast.open(f"sqlite:{folder / 'bench.db'}", agents=[stepping]) as hf:
                    began = time.perf_counter()
                    await hf.run(stepping, 2 * turns)
                    return (time.perf_counter() - began) * 1000 / turns

        return float(finished(run()))

    found = alternating(rounds, alone=alone, power=lambda: recorded("power"), commits=commits)
    more = [
        ours - bare - kept for ours, bare, kept in zip(*(found[k] for k in ("power", "alone", "commits")), strict=True)
    ]
    return [
        Row(13, f"Pydantic AI, {turns} calls of a tool: the plain agent, per call", spread(found["alone"], ",.2f", " ms")),
        Row(13, "the same, durable", spread(found["power"], ",.2f", " ms")),
        Row(13, "two plain steps, which is what a call of a tool is: it and the request", spread(found["commits"], ",.2f", " ms")),
        Row(13, "durability per call beyond these steps", spread(more, ",.2f", " ms"), "", f"< {OVERHEAD_MS:g} ms",
            median(more) < OVERHEAD_MS),
    ]  # fmt: skip


@holdfast.step
async def text(turn: int) -> str:
    return await look(turn)


@holdfast.agent
async def stepping(steps: int) -> int:
    for number in range(steps):
        await text(number)
    return steps


def resuming(bench: Bench) -> list[Row]:
    calls, rounds, spans = bench.size(400, 20), bench.size(5, 2), []
    with bench.place() as folder:
        killed = folder / "killed"
        killed.mkdir()
        told_by("pydantic_agents.py", "record", killed / "bench.db", calls, killed=True)
        for number in range(rounds):
            copy = folder / str(number)
            shutil.copytree(killed, copy, ignore=shutil.ignore_patterns("*.sock"))
            at = told_by("pydantic_agents.py", "resume", copy / "bench.db", calls, killed=True)
            spans.append((at["request"] - at["imported"]) * 1000)
            shutil.rmtree(copy, ignore_errors=True)
    what = f"resume after {calls} calls of a tool, {RESULT_BYTES // 1024} KiB each: from imports to the next request"
    return [Row(13, what, spread(spans, ",.0f", " ms"), "", f"< {RESUME_MS} ms", median(spans) < RESUME_MS)]


if __name__ == "__main__":
    asyncio.run(carry(sys.argv[1], str(Path(sys.argv[2]))))
