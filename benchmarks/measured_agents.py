"""The agents and steps that are measured: as little work of their own as can be."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from time import monotonic, perf_counter

import holdfast

seen: list[float] = []  # when measured code reached the line of interest


@holdfast.step
async def add(number: int) -> int:
    return number + 1


@holdfast.agent
async def count(steps: int) -> int:
    total = 0
    for number in range(steps):
        total += await add(number)
    return total


@holdfast.step
async def arrive() -> None:
    seen.append(perf_counter())


@holdfast.agent
async def arriver() -> None:
    await arrive()


@holdfast.step
async def moment() -> float:
    return monotonic()


@holdfast.agent
async def when() -> float:
    return await moment()


@holdfast.agent
async def told(messages: int) -> list[float]:
    found = []
    for _ in range(messages):
        await holdfast.receive("ping", int)
        found.append(await moment())
    return found


@holdfast.agent
async def allowed(questions: int) -> list[float]:
    found = []
    for _ in range(questions):
        await holdfast.approve("go on?")
        found.append(await moment())
    return found


@holdfast.agent
async def listener(messages: int) -> None:
    for _ in range(messages):
        await holdfast.receive("ping", int)
        seen.append(perf_counter())


@holdfast.agent
async def sleeper(until: datetime) -> None:
    await holdfast.sleep(until=until)
    seen.append((datetime.now(UTC) - until).total_seconds())


@holdfast.step
async def tick(due: float) -> float:
    await asyncio.sleep(max(due - monotonic(), 0))
    return monotonic()


@holdfast.agent
async def ticking(ticks: int, a_second: int) -> None:
    """So many events, at this pace, from the first message on."""
    await holdfast.receive("ping", int)
    began = await moment()
    for number in range(ticks):
        await tick(began + number / a_second)
