"""9. From one process to another: a client starts or tells a run, and a worker process acts.

Both read the same monotonic clock: the step returns the moment its body began.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic

from measured_agents import allowed, told, when
from measuring import HERE, Bench, Row, finished, latency, percentile
from postgres_here import postgres

import holdfast

TARGETS_S = {"PostgreSQL": 0.005, "SQLite": 0.010}


def measure(bench: Bench) -> Iterator[Row]:
    with postgres(bench) as server:
        yield from rows(bench, "PostgreSQL", server.url)
    with bench.place() as folder:
        yield from rows(bench, "SQLite", f"sqlite:{folder / 'bench.db'}")


def rows(bench: Bench, name: str, url: str) -> Iterator[Row]:
    target = TARGETS_S[name]
    cases = {
        "start to the first step": (0.5, starts),
        "a message wakes a run in memory": (60.0, messages),
        "a message wakes a parked run": (0.0, parked_messages),
        "a decision wakes a run in memory": (60.0, decisions),
        "a decision wakes a parked run": (0.0, parked_decisions),
    }
    for what, (grace_s, work) in cases.items():
        with worker(url, grace_s):
            waits = finished(work(url, bench.size(300, 10)))
        passed = percentile(waits, 50) < target
        row = f"{name}, two processes: {what}"
        yield Row(9, row, latency(waits), "", f"p50 < {target * 1000:g} ms", passed)


@contextmanager
def worker(url: str, park_grace_s: float) -> Iterator[None]:
    command = [sys.executable, str(HERE / "fleet_worker.py"), url, str(park_grace_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        yield
        process.communicate(timeout=60)


@asynccontextmanager
async def client(url: str) -> AsyncIterator[holdfast.Client]:
    async with holdfast.open(url) as hf:
        await hf.run(when)  # warm: connections are open, statements prepared
        yield hf


async def starts(url: str, times: int) -> list[float]:
    waits = []
    async with client(url) as hf:
        for _ in range(times):
            began = monotonic()
            run = await hf.start(when)
            waits.append(await run.result() - began)
            await asyncio.sleep(0.005)
    return waits


async def messages(url: str, times: int) -> list[float]:
    async with client(url) as hf:
        run = await hf.start(told, times)
        await asyncio.sleep(0.3)
        sent = []
        for number in range(times):
            sent.append(monotonic())
            await run.send("ping", number)
            await asyncio.sleep(0.03)
        return [seen - began for seen, began in zip(await run.result(), sent, strict=True)]


async def parked_messages(url: str, times: int) -> list[float]:
    waits = []
    async with client(url) as hf:
        for number in range(times):
            run = await hf.start(told, 1)
            await run.wait("waiting")
            await asyncio.sleep(0.02)
            began = monotonic()
            await run.send("ping", number)
            (seen,) = await run.result()
            waits.append(seen - began)
    return waits


async def decisions(url: str, times: int) -> list[float]:
    async with client(url) as hf:
        run = await hf.start(allowed, times)
        sent = []
        for _ in range(times):
            question = await asked(run)
            await asyncio.sleep(0.03)
            sent.append(monotonic())
            await hf.approve(question, by="eve")
            await asyncio.sleep(0.03)  # to ask for the next question at once would compete with what is measured
        return [seen - began for seen, began in zip(await run.result(), sent, strict=True)]


async def parked_decisions(url: str, times: int) -> list[float]:
    waits = []
    async with client(url) as hf:
        for _ in range(times):
            run = await hf.start(allowed, 1)
            await run.wait("waiting")
            question = await asked(run)
            await asyncio.sleep(0.02)
            began = monotonic()
            await hf.approve(question, by="eve")
            (seen,) = await run.result()
            waits.append(seen - began)
    return waits


async def asked(run: holdfast.Run[list[float]]) -> holdfast.Approval:
    """Its open question, once there is one."""
    while not (questions := await run.approvals()):  # noqa: ASYNC110 - nothing tells this process
        await asyncio.sleep(0.005)
    return questions[0]
