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
            late = finished(lateness(url, many, seconds))
            what = f"{name}: 100 of {many:,} schedules are due in one second; until the first line of each run"
            rows.append(Row(18, what, latency(late), "", f"p99 < {P99_S * 1000:g} ms", percentile(late, 99) < P99_S))
    return rows


async def lateness(url: str, many: int, seconds: int) -> list[float]:
    """Seconds from the time that each run is named by until its first line."""
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
        late = []
        async for run in each(hf):
            at = datetime.fromisoformat(run.id.partition("@")[2]).timestamp()
            late.append(await hf.get(run.id).result() - at)
        return late


async def each(hf: holdfast.Client) -> AsyncIterator[holdfast.RunInfo]:
    """Every run of the agent."""
    after = None
    while found := await hf.runs(agent="tick", limit=500, after=after):
        for run in found:
            yield run
        after = found[-1].id
