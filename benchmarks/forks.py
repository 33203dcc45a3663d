"""17. A fork of a run with a long journal: how long it takes to make one, and how much it adds to the store."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

import apsw
from measuring import Bench, Row, spread
from postgres_here import postgres

import holdfast

FORK_MS, FORK_BYTES = 50.0, 10_240
_USED = "SELECT sum(pgsize - unused) FROM dbstat"  # what is written in pages, whole or not


@holdfast.step
async def add(number: int) -> int:
    return number + 1


@holdfast.agent
async def long(steps: int) -> int:
    for number in range(steps):
        await add(number)
    return steps


async def forked(url: str, steps: int, forks: int) -> list[float]:
    """Milliseconds of each fork, all over the history."""
    async with holdfast.open(url, agents=[long]) as hf:
        run = await hf.start(long, steps, id="long")
        await run.result()
    took = []
    async with holdfast.open(url) as hf:  # serves nothing: what is measured is to make the fork
        run = hf.get("long")
        for number in range(forks):
            began = time.perf_counter()
            await run.fork(at=(number + 1) * steps // (forks + 1), id=f"fork-{number}")
            took.append((time.perf_counter() - began) * 1000)
    return took


def measure(bench: Bench) -> list[Row]:
    steps, forks = bench.size(10_000, 300), bench.size(20, 3)
    rows = []
    with bench.place() as folder:
        file = folder / "bench.db"
        took = asyncio.run(forked(f"sqlite:{file}", steps, forks))
        rows += _rows("SQLite", steps, took)
        size = _grown(file, steps, forks)
        rows.append(
            Row(17, f"what a fork of {steps} steps adds to the file", f"{size:,.0f} bytes", "", f"< {FORK_BYTES:,} bytes",
                size < FORK_BYTES)
        )  # fmt: skip
    with postgres(bench) as server:
        rows += _rows("PostgreSQL", steps, asyncio.run(forked(f"{server.url}?schema=forks", steps, forks)))
    return rows


def _rows(store: str, steps: int, took: list[float]) -> list[Row]:
    return [
        Row(17, f"fork a run of {steps} steps, {store}", spread(took, ",.1f", " ms"), "", f"< {FORK_MS:g} ms",
            median(took) < FORK_MS)
    ]  # fmt: skip


def _grown(file: Path, steps: int, forks: int) -> float:
    """Bytes that the rows of one more fork take."""
    before = _used(file)
    asyncio.run(_more(f"sqlite:{file}", steps, forks))
    return (_used(file) - before) / forks


async def _more(url: str, steps: int, forks: int) -> None:
    async with holdfast.open(url) as hf:
        for number in range(forks):
            await hf.get("long").fork(at=(number + 1) * steps // (forks + 1), id=f"more-{number}")


def _used(file: Path) -> int:
    db = apsw.Connection(str(file))
    used: int = db.execute(_USED).get
    db.close()
    return used
