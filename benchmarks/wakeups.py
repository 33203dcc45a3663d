"""3. From the reason to the agent's next line: a message that is sent, a timer that is due."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from time import perf_counter

from measured_agents import listener, seen, sleeper
from measuring import Bench, Row, finished, latency, percentile

import holdfast

TARGET_S = 0.003
IN_MEMORY = holdfast.Settings(park_grace_s=60.0)
PARKED = holdfast.Settings(park_grace_s=0.0)


def measure(bench: Bench) -> Iterator[Row]:
    cases = {
        "a message wakes a run in memory": messages_in_memory,
        "a message wakes a parked run": messages_parked,
        "lateness of a timer of a run in memory": timers_in_memory,
        "lateness of a timer of a parked run": timers_parked,
    }
    for what, work in cases.items():
        seconds = finished(work(bench))
        yield Row(3, what, latency(seconds), "", "p50 < 3 ms", percentile(seconds, 50) < TARGET_S)


async def messages_in_memory(bench: Bench) -> list[float]:
    """One run that stays in memory, and message after message, each when the one before was received."""
    seen.clear()
    waits, messages = [], bench.size(500, 20)
    with bench.place() as folder:
        async with holdfast.open(f"sqlite:{folder / 'bench.db'}", agents=[listener], settings=IN_MEMORY) as hf:
            run = await hf.start(listener, messages)
            await asyncio.sleep(0.2)
            for number in range(messages):
                sent = perf_counter()
                await run.send("ping", number)
                while len(seen) <= number:  # noqa: ASYNC110 - the agent must do nothing but note the time
                    await asyncio.sleep(0.0005)
                waits.append(seen[-1] - sent)
                await asyncio.sleep(0.005)  # it waits again, and nothing is on its way
            await run.result()
    return waits


async def messages_parked(bench: Bench) -> list[float]:
    """A new run for each message, sent once the run is known to hold nothing but its row."""
    waits = []
    with bench.place() as folder:
        async with holdfast.open(f"sqlite:{folder / 'bench.db'}", agents=[listener], settings=PARKED) as hf:
            for number in range(bench.size(500, 20)):
                run = await hf.start(listener, 1)
                await run.wait("waiting")
                await asyncio.sleep(0.005)
                seen.clear()
                sent = perf_counter()
                await run.send("ping", number)
                await run.result()
                waits.append(seen[0] - sent)
    return waits


async def timers_in_memory(bench: Bench) -> list[float]:
    return await timers_of(bench, IN_MEMORY)


async def timers_parked(bench: Bench) -> list[float]:
    return await timers_of(bench, PARKED)


async def timers_of(bench: Bench, settings: holdfast.Settings) -> list[float]:
    """How long after its moment the line after `sleep` runs. The moment is an argument: a replay has the same."""
    seen.clear()
    with bench.place() as folder:
        async with holdfast.open(f"sqlite:{folder / 'bench.db'}", agents=[sleeper], settings=settings) as hf:
            for _ in range(bench.size(100, 5)):
                until = datetime.now(UTC) + timedelta(milliseconds=150)
                until = until.replace(microsecond=until.microsecond // 1000 * 1000)
                run = await hf.start(sleeper, until)
                if settings is PARKED:
                    await run.wait("waiting")
                await run.result()
    return list(seen)
