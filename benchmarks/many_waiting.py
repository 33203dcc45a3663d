"""7. A file with very many waiting runs: what the process that serves them holds, and how soon a due one wakes.

As a script it is one of two processes: `python many_waiting.py create|serve FILE RUNS WAKES`.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import apsw
from measured_agents import listener, seen, sleeper
from measuring import Bench, Row, told_by

import holdfast

RSS_MB, WAKE_S = 200.0, 0.100
AT_ONCE = 1000


def measure(bench: Bench) -> list[Row]:
    runs, wakes = bench.size(100_000, 500), bench.size(20, 3)
    with bench.place() as folder:
        file = folder / "bench.db"
        made = told_by("many_waiting.py", "create", file, runs, wakes)
        served = told_by("many_waiting.py", "serve", file, runs, wakes)
        size_mb = file.stat().st_size / 1e6
    held = f"{served['rss_mb']:.0f} MB ({served['empty_mb']:.0f} MB before opening, at most {served['most_mb']:.0f} MB)"
    target = f"p50 < {WAKE_S * 1000:g} ms"
    return [
        Row(7, f"start {runs:,} runs and park them all",
            f"{made['seconds']:.0f} s, {runs / made['seconds']:,.0f} runs/s; {size_mb:,.0f} MB of file"),
        Row(7, f"memory of the process that serves {runs:,} waiting runs", held, "", f"< {RSS_MB:g} MB",
            served["rss_mb"] < RSS_MB),
        Row(7, "a message wakes one of them", within(served["messages"]), "", target,
            median(served["messages"]) < WAKE_S),
        Row(7, "a timer among them fires", within(served["timers"]), "", target, median(served["timers"]) < WAKE_S),
    ]  # fmt: skip


def within(seconds: list[float]) -> str:
    return f"p50 {median(seconds) * 1000:.1f} ms, max {max(seconds) * 1000:.1f} ms, n={len(seconds)}"


async def create(file: Path, runs: int) -> dict[str, float]:
    """Start them as anyone would, in batches; each begins, waits for a message and leaves memory."""
    settings = holdfast.Settings(park_grace_s=0.0)
    began = time.perf_counter()
    async with holdfast.open(f"sqlite:{file}?durability=process", agents=[listener], settings=settings) as hf:
        for first in range(0, runs, AT_ONCE):
            batch = range(first, min(first + AT_ONCE, runs))
            await asyncio.gather(*[hf.start(listener, 1, id=f"waiting-{number}") for number in batch])
            while unparked(file) > AT_ONCE:  # noqa: ASYNC110 - nobody tells when the last of many is parked
                await asyncio.sleep(0.02)
        while unparked(file) > 0:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return {"seconds": time.perf_counter() - began}


def unparked(file: Path) -> int:
    """How many runs are due now or in memory: few, and found by their index."""
    db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(db.execute("SELECT count(*) FROM runs WHERE due_at IS NOT NULL").get)
    finally:
        db.close()


async def serve(file: Path, runs: int, wakes: int) -> dict[str, object]:
    empty_mb = resident_mb()
    settings = holdfast.Settings(park_grace_s=0.0)
    async with holdfast.open(f"sqlite:{file}", agents=[listener, sleeper], settings=settings) as hf:
        await asyncio.sleep(2.0)
        rss_mb = resident_mb()
        messages = [await message_wakes(hf, number * runs // wakes) for number in range(wakes)]
        timers = [await timer_wakes(hf) for _ in range(wakes)]
        rss_mb = max(rss_mb, resident_mb())
    most_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
    return {"empty_mb": empty_mb, "rss_mb": rss_mb, "most_mb": most_mb, "messages": messages, "timers": timers}


async def message_wakes(hf: holdfast.Client, number: int) -> float:
    run = hf.get(f"waiting-{number}", listener)
    seen.clear()
    sent = time.perf_counter()
    await run.send("ping", number)
    await run.result(timeout=60)
    return seen[0] - sent


async def timer_wakes(hf: holdfast.Client) -> float:
    seen.clear()
    run = await hf.start(sleeper, datetime.now(UTC) + timedelta(seconds=1))
    await run.wait("waiting", timeout=60)
    await run.result(timeout=60)
    return seen[0]


def resident_mb() -> float:
    """What this process holds in memory now; where that is not told, the most it ever held."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return pages * resource.getpagesize() / 1e6


if __name__ == "__main__":
    mode, path, total, woken = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    print(json.dumps(asyncio.run(create(path, total) if mode == "create" else serve(path, total, woken))))
