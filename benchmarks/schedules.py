"""18. Ten thousand schedules: how late the runs begin of those that are due in the same second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import datetime

from measuring import Bench, Row, finished, latency, percentile
from postgres_here import postgres

import holdfast

P99_S = 0.1


@holdfast.agent
async def tick() -> float:
    """Tell when its first line ran."""
    return time.time()


def measure(bench: Bench) -> list[Row]:
    many, seconds = bench.size(10_000, 200), bench.size(30, 5)
    rows = []
    with bench.place() as folder, postgres(bench) as server:
        for name, url in (("SQLite", f"sqlite:{folder / 'schedules.db'}"), ("PostgreSQL", server.url)):
            begun, ran = finished(lateness(url, many, seconds))
            p99, due = percentile(begun, 99), f"100 of {many:,} schedules are due in one second"
            rows.append(Row(18, f"{name}: {due}; until the run is begun", latency(begun), "", f"p99 < {P99_S * 1000:g} ms",
                            p99 < P99_S))  # fmt: skip
            rows.append(Row(18, f"{name}: until its first line runs", latency(ran)))
    return rows


async def lateness(url: str, many: int, seconds: int) -> tuple[list[float], list[float]]:
    """Seconds from the time that each run is named by until it was begun, and until its first line."""
    async with holdfast.open(url, agents=[tick]) as hf:
        rest, names = holdfast.Schedule(every="365d"), iter(range(many - 100))

        async def fill() -> None:
            for number in names:
                await hf.schedule(f"rest-{number}", tick, rest)

        await asyncio.gather(*[fill() for _ in range(20)])
        due = holdfast.Schedule(every="5s", overlap="allow")
        await asyncio.gather(*[hf.schedule(f"due-{number}", tick, due) for number in range(100)])
        await asyncio.sleep(seconds)
        for number in range(100):
            await hf.get_schedule(f"due-{number}").pause()
        begun, ran = [], []
        async for run in each(hf):
            at = datetime.fromisoformat(run.id.partition("@")[2]).timestamp()
            begun.append(run.created_at.timestamp() - at)
            ran.append(await hf.get(run.id).result() - at)
        return begun, ran


async def each(hf: holdfast.Client) -> AsyncIterator[holdfast.RunInfo]:
    """Every run of the agent."""
    after = None
    while found := await hf.runs(agent="tick", limit=500, after=after):
        for run in found:
            yield run
        after = found[-1].id
