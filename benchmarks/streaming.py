"""12. What a streamed token costs: a step that makes tokens, with a stream and without."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

from measuring import Bench, Row, alternating, finished, ratios, spread

import holdfast

TARGET = 0.50  # of the rate without a stream, when a token costs nothing else than one turn of the loop
PACE_S, ROWS_PER_TOKEN = 0.002, 0.1


@holdfast.step
async def make(tokens: int, pace_s: float, streamed: bool) -> float:
    """Tokens as a model's client hands them out: one turn of the loop for each, or a pause."""
    began = time.perf_counter()
    if streamed:
        async with holdfast.stream("answer") as out:
            for _ in range(tokens):
                await asyncio.sleep(pace_s)
                await out.write("token ")
    else:
        answer = []
        for _ in range(tokens):
            await asyncio.sleep(pace_s)
            answer.append("token ")
    return time.perf_counter() - began


@holdfast.agent
async def tell(tokens: int, pace_s: float, streamed: bool) -> float:
    return await make(tokens, pace_s, streamed)


async def _told(folder: Path, runs: int, tokens: int, pace_s: float, streamed: bool) -> tuple[float, float]:
    async with holdfast.open(f"sqlite:{folder / 'streams.db'}", agents=[tell]) as hf:
        await hf.run(tell, 1, 0.0, streamed)
        began = time.perf_counter()
        started = [await hf.start(tell, tokens, pace_s, streamed) for _ in range(runs)]
        await asyncio.gather(*[run.result() for run in started])
        took_s = time.perf_counter() - began
        rows = [len(await hf.store.pieces(run.id, "answer", 0, limit=10**9)) for run in started]
        return runs * tokens / took_s, sum(rows) / (runs * tokens)


def rate(
    bench: Bench, runs: int, tokens: int, pace_s: float, *, streamed: bool, rows: list[float] | None = None
) -> float:
    """Tokens a second of all runs together, from the first start to the last result."""
    with bench.place() as folder:
        found: tuple[float, float] = finished(_told(folder, runs, tokens, pace_s, streamed))
    if rows is not None:
        rows.append(found[1])
    return found[0]


def measure(bench: Bench) -> list[Row]:
    tokens, runs, paced = bench.size(20_000, 500), bench.size(50, 5), bench.size(500, 50)
    rows: list[float] = []
    found = alternating(
        bench.size(7, 2),
        plain=lambda: rate(bench, 1, tokens, 0.0, streamed=False),
        streamed=lambda: rate(bench, 1, tokens, 0.0, streamed=True),
        many=lambda: rate(bench, runs, paced, PACE_S, streamed=False),
        many_streamed=lambda: rate(bench, runs, paced, PACE_S, streamed=True, rows=rows),
    )
    shares, paces = ratios(found["streamed"], found["plain"]), ratios(found["many_streamed"], found["many"])
    cost_us = [1e6 / ours - 1e6 / theirs for ours, theirs in zip(found["streamed"], found["plain"], strict=True)]
    return [
        Row(12, f"1 step of {tokens:,} tokens, each after one turn of the loop", spread(found["plain"], unit=" tokens/s")),
        Row(12, "the same, each written to a stream", spread(found["streamed"], unit=" tokens/s"),
            f"{spread(shares, '.0%')} of it", f">= {TARGET:.0%}", median(shares) >= TARGET),
        Row(12, "which is for each token", spread(cost_us, ".2f", " µs")),
        Row(12, f"{runs} steps at once, a token every {PACE_S * 1000:.0f} ms in each",
            spread(found["many"], unit=" tokens/s")),
        Row(12, "the same, each written to a stream", spread(found["many_streamed"], unit=" tokens/s"),
            f"{spread(paces, '.0%')} of it"),
        Row(12, "rows of the store for each token then", spread(rows, ".3f"), "", f"<= {ROWS_PER_TOKEN}",
            median(rows) <= ROWS_PER_TOKEN),
    ]  # fmt: skip
