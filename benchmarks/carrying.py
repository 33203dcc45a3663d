"""15. A run with a long journal as a bundle: written by one store, taken by another. As `holdfast` does both, without a worker."""

from __future__ import annotations

import asyncio
import time
from statistics import median

from measuring import Bench, Row, spread

import holdfast

TARGET_S = 3.0


@holdfast.step
async def add(number: int) -> int:
    return number + 1


@holdfast.agent
async def long(steps: int) -> None:
    for number in range(steps):
        await add(number)
    await holdfast.receive("go")


async def _carried(bench: Bench, steps: int, round: int) -> tuple[float, float, int]:
    """Seconds to move the run to a file, seconds to take it from there, and the bytes of the file."""
    folder = bench.folder / f"carrying-{round}"
    folder.mkdir()
    holdfast.Keys(folder / "keys").new("bench", shared=True)
    here, there, file = f"sqlite:{folder / 'here.db'}", f"sqlite:{folder / 'there.db'}", folder / "run.bundle"
    async with holdfast.open(here, agents=[long]) as hf:
        run = await hf.start(long, steps, id="long")
        await run.wait("waiting")
    async with holdfast.open(here) as hf, holdfast.open(there) as other:
        to = await other.store_id()
        began = time.perf_counter()
        made = await hf.get("long").export(file, move=to, keys=folder / "keys")
        written = time.perf_counter()
        await other.import_run(file, keys=folder / "keys")
        taken = time.perf_counter()
    return written - began, taken - written, made.size_bytes


def measure(bench: Bench) -> list[Row]:
    steps = 500 if bench.quick else 10_000
    rounds = [asyncio.run(_carried(bench, steps, round)) for round in range(1 if bench.quick else 3)]
    out, into = [each[0] for each in rounds], [each[1] for each in rounds]
    both = [each[0] + each[1] for each in rounds]
    size = rounds[0][2]
    told = f"{spread(both, '.2f', ' s')}; export {median(out):.2f} s, import {median(into):.2f} s, file {size / 1024:.0f} KiB"
    return [
        Row(
            15,
            f"move of a run of {steps:,} steps",
            told,
            target=f"<= {TARGET_S:.0f} s",
            passed=median(both) <= TARGET_S,
        )
    ]
