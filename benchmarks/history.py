"""14. Looking into a run of 10,000 steps: a page of its calls, wherever it begins, and a snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from statistics import median
from typing import Any

from measuring import Bench, Row, finished, latency, percentile
from postgres_here import postgres

import holdfast

PAGE, TARGET_S = 100, 0.020
TEXT = "what a page says, in a few words " * 8


@holdfast.step
async def read(page: int) -> str:
    return f"{page}: {TEXT}"


@holdfast.step(in_doubt="fail")
async def publish(page: int) -> int:
    return page


@holdfast.agent
async def survey(pages: int) -> int:
    """Steps of one event and of two, and one call that is open all the time."""
    async with holdfast.timeout("10h"):
        for page in range(pages):
            await read(page)
            if page % 10 == 0:
                await publish(page)
    await holdfast.receive("go", str)
    return pages


def measure(bench: Bench) -> list[Row]:
    steps = bench.size(10_000, 200)
    with bench.place() as folder:
        rows = finished(looked(f"sqlite:{folder / 'bench.db'}?durability=process", "SQLite", steps))
    with postgres(bench) as server:
        return rows + finished(looked(f"{server.url}?schema=history", "PostgreSQL", steps))


async def looked(url: str, store: str, steps: int) -> list[Row]:
    async with holdfast.open(url, agents=[survey]) as hf:
        run = await hf.start(survey, steps * 10 // 11)
        await run.wait("waiting")
    async with holdfast.open(url) as hf:
        run = hf.get(run.id)
        last = (await hf.store.run(run.id)).next_seq
        places = [-1, *range(0, last - 2 * PAGE, max(last // 60, 1))]
        pages = [median([await timed(lambda after=after: page(run, after)) for _ in range(3)]) for after in places]
        snapshots = [await timed(run.snapshot) for _ in range(5)]
    slowest = max(pages)
    return [
        Row(14, f"{store}: a page of {PAGE} of {steps:,} steps", f"{latency(pages)}, max {slowest * 1000:.1f} ms", "",
            f"max < {TARGET_S * 1000:g} ms", slowest < TARGET_S),
        Row(14, f"{store}: a snapshot of the run", f"p50 {percentile(snapshots, 50) * 1000:.1f} ms"),
    ]  # fmt: skip


async def page(run: holdfast.Run[Any], after: int) -> None:
    assert len([step async for step in run.steps(after=after, limit=PAGE)]) == PAGE


async def timed(work: Callable[[], Coroutine[Any, Any, Any]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began
