"""Throughput of one cell of two while the other is alive and when it is dead: `python benchmarks/cells.py --quick`.

Two PostgreSQL servers, one worker process over both. Runs of the first cell are measured in rounds, in turn with the second server
up and killed. What is told is the ratio; and what two cells cost against one plain PostgreSQL store, as processor time of this
process per step.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.cells import written
from tests.chaos.server import Server

import holdfast
from holdfast.backends.cells.slots import slot_of

_names = (f"run-{n}" for n in itertools.count())


@holdfast.step
async def nothing(n: int) -> int:
    return n


@holdfast.agent
async def sequential(steps: int) -> int:
    total = 0
    for n in range(steps):
        total += await nothing(n)
    return total


async def measure(hf: holdfast.Client, owner: dict[int, str] | None, runs: int, steps: int) -> tuple[float, float]:
    """Steps a second of runs in the first cell, and processor milliseconds per step."""
    names = list(itertools.islice((name for name in _names if owner is None or owner[slot_of(name)] == "a"), runs))
    began, used = time.perf_counter(), time.process_time()
    for name in names:
        await hf.start(sequential, steps, id=name)
    for name in names:
        await hf.get(name).result()
    took = time.perf_counter() - began
    return runs * steps / took, (time.process_time() - used) * 1000 / (runs * steps)


async def main(rounds: int, runs: int, steps: int) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-postgres-") as place:
        servers = {name: Server(Path(place) / name) for name in "ab"}
        for server in servers.values():
            server.create()
            server.start()
        try:
            url = written(
                Path(place) / "cells.toml", {name: f"{server.url}?schema=cells" for name, server in servers.items()}
            )
            alive, dead, cells, plain = [], [], [], []
            async with holdfast.open(f"{servers['a'].url}?schema=plain", agents=[sequential]) as one:
                await measure(one, None, runs, steps)
                plain = [(await measure(one, None, runs, steps))[1] for _ in range(rounds)]
            async with holdfast.open(url, agents=[sequential]) as hf:
                owner = dict(hf.store.cells.owners)
                await measure(hf, owner, runs, steps)
                for _ in range(rounds):
                    speed, cost = await measure(hf, owner, runs, steps)
                    alive.append(speed)
                    cells.append(cost)
                    servers["b"].kill()
                    while not hf.store.cells.down:  # noqa: ASYNC110 - nobody tells
                        await asyncio.sleep(0.05)
                    dead.append((await measure(hf, owner, runs, steps))[0])
                    servers["b"].start()
                    while hf.store.cells.down:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
        finally:
            for server in servers.values():
                server.stop()
    ratios = [gone / there for gone, there in zip(dead, alive, strict=True)]
    print(
        f"one cell of two, steps/s: {statistics.median(alive):.0f} with the other alive, {statistics.median(dead):.0f} with it dead"
    )
    print(
        f"ratio of each round: {', '.join(f'{ratio:.2f}' for ratio in ratios)}; median {statistics.median(ratios):.2f}"
    )
    print(
        f"processor time per step: {statistics.median(plain):.2f} ms on one store, {statistics.median(cells):.2f} ms on cells"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three short rounds")
    asked = parser.parse_args()
    asyncio.run(main(*((3, 20, 20) if asked.quick else (9, 50, 100))))
