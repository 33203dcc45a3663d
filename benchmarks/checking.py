"""16. Code against a store of runs: how long `check` takes, and a replay of one of them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from measuring import Bench, Row

import holdfast

LONGEST_S = 30.0


@holdfast.step
async def add(number: int) -> int:
    return number + 1


@holdfast.agent
async def counts(steps: int) -> int:
    total = 0
    for number in range(steps):
        total += await add(number)
    await holdfast.receive("go", int)
    return total


async def record(file: Path, runs: int, steps: int) -> None:
    """Fill a store with runs that wait behind their last step."""
    settings = holdfast.Settings(concurrency=200, park_grace_s=0.0)
    async with holdfast.open(f"sqlite:{file}?durability=process", agents=[counts], settings=settings) as hf:
        started = [await hf.start(counts, steps, id=f"r-{number}") for number in range(runs)]
        for run in started:
            await run.wait("waiting")


async def check(file: Path) -> tuple[float, int]:
    """Seconds that a check of all of them takes, as `holdfast check` makes it."""
    async with holdfast.open(f"sqlite:{file}") as hf:
        began = time.perf_counter()
        checked = await hf.check([counts])
        took = time.perf_counter() - began
    assert checked.fits
    return took, len(checked.replays)


def measure(bench: Bench) -> list[Row]:
    runs, steps = bench.size(1_000, 20), bench.size(100, 10)
    with bench.place() as folder:
        asyncio.run(record(folder / "runs.db", runs, steps))
        took, replayed = asyncio.run(check(folder / "runs.db"))
    assert replayed == runs
    rate = f"{took:.1f} s, {runs * steps / took:,.0f} steps/s"
    return [Row(16, f"check {runs:,} runs of {steps} steps", rate, "", f"< {LONGEST_S:g} s", took < LONGEST_S)]
