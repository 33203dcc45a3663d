"""DBOS, doing what our concurrent case does: `python dbos_peer.py URL RUNS STEPS`, or `FOLDER RUNS STEPS JOURNAL_MODE`.

A process of its own, because DBOS is one object per process. As with us, the clock starts at the first start and stops
at the last result. `JOURNAL_MODE` is that of SQLite: DBOS leaves it at `delete`, and keeps `wal` in a file that has it.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

from dbos import DBOS


@DBOS.step()
async def add(number: int) -> int:
    return number + 1


@DBOS.workflow()
async def count(steps: int) -> int:
    total = 0
    for number in range(steps):
        total += await add(number)
    return total


async def rate(runs: int, steps: int) -> float:
    began = time.perf_counter()
    started = await asyncio.gather(*[DBOS.start_workflow_async(count, steps) for _ in range(runs)])
    for total in await asyncio.gather(*[handle.get_result() for handle in started]):
        assert total == steps * (steps + 1) // 2
    return runs * steps / (time.perf_counter() - began)


async def measured(url: str, runs: int, steps: int) -> float:
    DBOS(config={"name": "bench", "system_database_url": url, "run_admin_server": False, "log_level": "CRITICAL"})
    DBOS.launch()
    await rate(1, steps)  # warm: its tables are there, its statements compiled
    found = await rate(runs, steps)
    DBOS.destroy()
    return found


def on_sqlite(file: Path, runs: int, steps: int, journal_mode: str) -> dict[str, object]:
    with closing(sqlite3.connect(file)) as db:
        db.execute(f"PRAGMA journal_mode = {journal_mode}")
    found = asyncio.run(measured(f"sqlite:///{file}", runs, steps))
    with closing(sqlite3.connect(file)) as db:
        (mode,) = db.execute("PRAGMA journal_mode").fetchone()
    return {"rate": found, "journal_mode": mode}


if __name__ == "__main__":
    where, runs, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if "://" in where:
        told: dict[str, object] = {"rate": asyncio.run(measured(where, runs, steps))}
    else:
        told = on_sqlite(Path(where) / "dbos.sqlite", runs, steps, sys.argv[4])
    print(json.dumps(told), flush=True)
