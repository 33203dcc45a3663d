"""4. From `hf.start` to the first line of the first step's body."""

from __future__ import annotations

import asyncio
from time import perf_counter

from measured_agents import arriver, seen
from measuring import Bench, Row, finished, latency, percentile

import holdfast

TARGET_S = 0.003


def measure(bench: Bench) -> list[Row]:
    seconds = finished(starts(bench, bench.size(500, 20)))
    passed = percentile(seconds, 50) < TARGET_S
    return [Row(4, "from start to the first line of the first step", latency(seconds), "", "p50 < 3 ms", passed)]


async def starts(bench: Bench, runs: int) -> list[float]:
    waits = []
    with bench.place() as folder:
        async with holdfast.open(f"sqlite:{folder / 'bench.db'}", agents=[arriver]) as hf:
            for _ in range(runs):
                seen.clear()
                called = perf_counter()
                run = await hf.start(arriver)
                await run.result()
                waits.append(seen[0] - called)
                await asyncio.sleep(0.005)  # the worker is idle again
    return waits
