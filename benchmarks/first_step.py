"""4. From `hf.start` to the first line of the first step's body."""

from __future__ import annotations

import asyncio
from time import perf_counter

from latencies import Waits, serving
from measured_agents import arriver, seen
from measuring import Bench, Row, finished


def measure(bench: Bench) -> list[Row]:
    return [finished(starts(bench)).row(4, "from start to the first line of the first step")]


async def starts(bench: Bench) -> Waits:
    async with serving(bench, arriver) as (hf, waits):
        for _ in range(bench.size(500, 20)):
            seen.clear()
            called = perf_counter()
            run = await hf.start(arriver)
            await run.result()
            waits.add(seen[0] - called)
            await asyncio.sleep(0.005)  # the worker is idle again
        return waits
