"""Runs that sleep outside memory are woken in time, whatever else is here."""

import asyncio
from datetime import UTC, datetime, timedelta

import holdfast

LATE_S = 1.0  # far below the pace at which a worker looks by itself


@holdfast.agent(name="timers-sleeper")
async def sleeper(until: datetime) -> float:
    await holdfast.sleep(until=until)
    return (datetime.now(UTC) - until).total_seconds()


async def test_a_parked_run_wakes_in_time_beside_one_that_is_busy(tmp_path):
    """A worker that has a run in memory still knows when the one that it gave back is due."""
    begun, end = asyncio.Event(), asyncio.Event()

    @holdfast.step
    async def last() -> None:
        begun.set()
        await end.wait()

    @holdfast.agent(name="timers-busy")
    async def busy() -> None:
        await last()

    settings = holdfast.Settings(park_grace_s=0.01)
    async with holdfast.open(f"sqlite:{tmp_path / 't.db'}", agents=[busy, sleeper], settings=settings) as hf:
        beside = await hf.start(busy)
        await begun.wait()
        for _ in range(3):
            run = await hf.start(sleeper, datetime.now(UTC) + timedelta(milliseconds=400))
            await run.wait("waiting", timeout=20)
            assert await run.result(timeout=20) < LATE_S
        end.set()
        await beside.result(timeout=20)
