"""3. From the reason to the agent's next line: a message that is sent, a timer that is due."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from time import perf_counter

from latencies import Waits, serving
from measured_agents import listener, seen, sleeper
from measuring import Bench, Row, finished

import holdfast

IN_MEMORY = holdfast.Settings(park_grace_s=60.0)
PARKED = holdfast.Settings(park_grace_s=0.0)


def measure(bench: Bench) -> Iterator[Row]:
    cases = {
        "a message wakes a run in memory": messages_in_memory,
        "a message wakes a parked run": messages_parked,
        "lateness of a timer of a run in memory": partial(timers, settings=IN_MEMORY),
        "lateness of a timer of a parked run": partial(timers, settings=PARKED),
    }
    for what, work in cases.items():
        yield finished(work(bench)).row(3, what)


async def messages_in_memory(bench: Bench) -> Waits:
    """One run that stays in memory, and message after message, each when the one before was received."""
    messages = bench.size(500, 20)
    seen.clear()
    async with serving(bench, listener, IN_MEMORY) as (hf, waits):
        run = await hf.start(listener, messages)
        await asyncio.sleep(0.2)
        for number in range(messages):
            sent = perf_counter()
            await run.send("ping", number)
            while len(seen) <= number:  # noqa: ASYNC110 - the agent must do nothing but note the time
                await asyncio.sleep(0.0005)
            waits.add(seen[-1] - sent)
            await asyncio.sleep(0.005)  # it waits again, and nothing is on its way
        await run.result()
        return waits


async def messages_parked(bench: Bench) -> Waits:
    """A new run for each message, sent once the run is known to hold nothing but its row."""
    async with serving(bench, listener, PARKED) as (hf, waits):
        for number in range(bench.size(500, 20)):
            run = await hf.start(listener, 1)
            await run.wait("waiting")
            await asyncio.sleep(0.005)
            seen.clear()
            sent = perf_counter()
            await run.send("ping", number)
            await run.result()
            waits.add(seen[0] - sent)
        return waits


async def timers(bench: Bench, settings: holdfast.Settings) -> Waits:
    """How long after its moment the line after `sleep` runs. The moment is an argument: a replay has the same."""
    async with serving(bench, sleeper, settings) as (hf, waits):
        for _ in range(bench.size(100, 5)):
            until = datetime.now(UTC) + timedelta(milliseconds=250)
            until = until.replace(microsecond=until.microsecond // 1000 * 1000)
            seen.clear()
            run = await hf.start(sleeper, until)
            parked = await left_memory(run)
            await run.result()
            if parked == (settings is PARKED):
                waits.add(seen[0])
        assert len(waits.seconds) > 1, f"no run with {settings.park_grace_s=} slept as it should"
        return waits


async def left_memory(run: holdfast.Run[None]) -> bool:
    """Did it park, well before its time? On a busy machine it may not get to it; then its sample does not count."""
    with suppress(TimeoutError, holdfast.RunFinished):
        return (await run.wait("waiting", timeout=0.2)).status == "waiting"
    return False
