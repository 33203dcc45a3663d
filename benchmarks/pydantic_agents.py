"""13. Agents of Pydantic AI: what durability costs per call of a tool, and how soon a long conversation goes on.

As a script it is one process of the second part: `python pydantic_agents.py record|resume FILE TURNS`. Both end by killing
themselves in the request after so many calls of a tool; the second says when that request began.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import random
import shutil
import signal
import string
import sys
import time
from collections.abc import Awaitable, Callable
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
MANY = 9  # calls of a tool in one response
FREE = UsageLimits(request_limit=None)

times: dict[str, float] = {}


def note(what: str) -> None:
    times.setdefault(what, time.monotonic())


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    if turn < wanted():
        calls = [
            ToolCallPart("look", {"turn": turn * 100 + nth}, f"call_{turn}_{nth}") for nth in range(script["width"])
        ]
        return ModelResponse(parts=calls)
    if len(sys.argv) > 1 and sys.argv[1] in ("record", "resume"):
        note("request")
        if sys.argv[1] == "resume":
            print(json.dumps(times), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return ModelResponse(parts=[TextPart("done")])


script = {"turns": 0, "width": 1}  # responses with calls of the tool, and how many each has


def wanted() -> int:
    return int(sys.argv[3]) if len(sys.argv) > 1 and sys.argv[1] in ("record", "resume") else script["turns"]


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
    opening = holdfast.open(url, agents=[job])  # which imports the rest of the package; nothing is opened yet
    note("imported")
    async with opening as hf:
        run = await hf.start(job, id="long")
        await run.result(timeout=600)


def measure(bench: Bench) -> list[Row]:
    return [*overhead(bench), *resuming(bench)]


def overhead(bench: Bench) -> list[Row]:
    """All make the same calls, one in each response or nine; beside them as many plain steps are made.

    A request is one, and a call of a tool is one. What eight more calls take, divided by eight, is what one call takes.
    """
    turns, rounds = bench.size(20, 3), bench.size(9, 2)
    script["turns"] = turns

    def timed(work: Callable[[holdfast.Client], Awaitable[object]], calls: int) -> float:
        async def run() -> float:
            script["width"] = calls
            with bench.place() as folder:
                async with holdfast.open(f"sqlite:{folder / 'bench.db'}", agents=[job, stepping]) as hf:
                    began = time.perf_counter()
                    await work(hf)
                    return (time.perf_counter() - began) * 1000 / turns

        return float(finished(run()))

    kinds: dict[str, Callable[[holdfast.Client], Awaitable[object]]] = {
        "plain": lambda _: plain.run("go", usage_limits=FREE),
        "durable": lambda hf: hf.run(job),
        "steps": lambda hf: hf.run(stepping, turns, script["width"]),
    }
    found = alternating(rounds, **{
        f"{kind}{calls}": functools.partial(timed, work, calls) for kind, work in kinds.items() for calls in (1, MANY)
    })  # fmt: skip
    turn = [a - b - c for a, b, c in zip(found["durable1"], found["plain1"], found["steps1"], strict=True)]
    more = {kind: _per_call(found[f"{kind}1"], found[f"{kind}{MANY}"]) for kind in kinds}
    call = [a - b - c for a, b, c in zip(more["durable"], more["plain"], more["steps"], strict=True)]
    return [
        Row(13, "Pydantic AI, a request and a call of a tool: the plain agent", spread(found["plain1"], ",.2f", " ms")),
        Row(13, "the same, durable", spread(found["durable1"], ",.2f", " ms"),
            f"{median(turn):.2f} ms more than that and two steps"),
        Row(13, "one more call of a tool: the plain agent", spread(more["plain"], ",.2f", " ms")),
        Row(13, "the same, durable", spread(more["durable"], ",.2f", " ms")),
        Row(13, "one more plain step, its share of the commit with it", spread(more["steps"], ",.2f", " ms")),
        Row(13, "durability per call of a tool, beyond that step", spread(call, ",.2f", " ms"), "", f"< {OVERHEAD_MS:g} ms",
            median(call) < OVERHEAD_MS),
    ]  # fmt: skip


def _per_call(one: list[float], many: list[float]) -> list[float]:
    return [(b - a) / (MANY - 1) for a, b in zip(one, many, strict=True)]


@holdfast.step
async def text(turn: int) -> str:
    return await look(turn)


@holdfast.agent
async def stepping(turns: int, width: int) -> int:
    for number in range(turns):
        await text(number)
        await asyncio.gather(*[text(number * 100 + nth) for nth in range(width)])
    return turns


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
