"""Steps per second, from the first `start` to the last result, each time in a new file."""

from __future__ import annotations

import asyncio
import json
import queue
import sys
import threading
import time
from pathlib import Path

import apsw
from measured_agents import count
from measuring import Bench, finished, told_by

import holdfast

STEPS_BEFORE = 20  # so that tables are there and statements compiled, as for the peer
CONCURRENCY = 500  # so that all runs of the concurrent case are in memory at once; the default is 200


def holdfast_rate(bench: Bench, runs: int, steps: int, durability: str = "power") -> float:
    """`runs` runs at once, each of `steps` steps one after the other, in a process of its own, as the peer has."""
    return holdfast_told(bench, runs, steps, durability)["rate"]


def holdfast_told(bench: Bench, runs: int, steps: int, durability: str) -> dict[str, float]:
    """The same with the processor's time for a step, all threads together, in microseconds."""
    with bench.place() as folder:
        return told_by("rates.py", folder, runs, steps, durability)


async def rate_in(folder: Path, runs: int, steps: int, durability: str = "power") -> dict[str, float]:
    return await told_at(f"sqlite:{folder / 'bench.db'}?durability={durability}", runs, steps)


async def rate_at(url: str, runs: int, steps: int) -> float:
    return (await told_at(url, runs, steps))["rate"]


async def told_at(url: str, runs: int, steps: int) -> dict[str, float]:
    settings = holdfast.Settings(concurrency=CONCURRENCY)
    async with holdfast.open(url, agents=[count], settings=settings) as hf:
        await hf.run(count, STEPS_BEFORE)
        began, busy = time.perf_counter(), time.process_time()
        started = await asyncio.gather(*[hf.start(count, steps) for _ in range(runs)])
        for total in await asyncio.gather(*[run.result() for run in started]):
            assert total == steps * (steps + 1) // 2
        took, worked = time.perf_counter() - began, time.process_time() - busy
        return {"rate": runs * steps / took, "processor_us": worked / (runs * steps) * 1e6}


class Bare:
    """Insert and commit, one row at a time, with nothing around it: what the disk and SQLite allow.

    The row is as long as that of a step in our journal. There is one table, no index and no second statement.
    """

    def __init__(self, folder: Path, page_bytes: int) -> None:
        self._db = db = apsw.Connection(str(folder / "bare.db"))
        db.execute(f"PRAGMA page_size = {page_bytes}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, run TEXT, kind TEXT, key TEXT, data TEXT, at INTEGER)")
        self._data = "x" * 130

    def commit(self, number: int = 0) -> float:
        """Write one row; how long it took."""
        began = time.perf_counter()
        now = time.time_ns() // 1_000_000
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(
            "INSERT INTO rows (run, kind, key, data, at) VALUES (?, ?, ?, ?, ?)",
            ("count-0123abcd", "step.completed", f"add#{number}", self._data, now),
        )
        self._db.execute("COMMIT")
        return time.perf_counter() - began

    def close(self) -> None:
        self._db.close()


def bare_rate(bench: Bench, rows: int, page_bytes: int) -> float:
    """Rows per second of the bare loop."""
    with bench.place() as folder:
        bare = Bare(folder, page_bytes)
        began = time.perf_counter()
        for number in range(rows):
            bare.commit(number)
        seconds = time.perf_counter() - began
        bare.close()
        return rows / seconds


def handed_over_rate(bench: Bench, rows: int, page_bytes: int) -> float:
    """The same loop on an event loop that stays free: a thread commits, and the loop waits for it row by row.

    Nothing is between the two but a queue there and `call_soon_threadsafe` back: no design with a thread that writes
    can do better for one run.
    """
    with bench.place() as folder:
        return finished(_handed_over(Bare(folder, page_bytes), rows))


async def _handed_over(bare: Bare, rows: int) -> float:
    loop, waiting = asyncio.get_running_loop(), queue.SimpleQueue[asyncio.Future[None] | None]()

    def write() -> None:
        while (future := waiting.get()) is not None:
            bare.commit()
            loop.call_soon_threadsafe(future.set_result, None)

    writer = threading.Thread(target=write)
    writer.start()
    began = time.perf_counter()
    for _ in range(rows):
        future: asyncio.Future[None] = loop.create_future()
        waiting.put(future)
        await future
    seconds = time.perf_counter() - began
    waiting.put(None)
    writer.join()
    bare.close()
    return rows / seconds


def our_page_bytes(bench: Bench) -> int:
    """The size of a page in our files, for the bare loop to use the same."""
    with bench.place() as folder:
        finished(rate_in(folder, 1, 1))
        db = apsw.Connection(str(folder / "bench.db"))
        size = int(db.pragma("page_size"))
        db.close()
        return size


if __name__ == "__main__":
    place, runs, steps = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    found = asyncio.run(rate_in(place, runs, steps, sys.argv[4]))
    print(json.dumps(found), flush=True)
