"""An agent that is in the middle of something for long enough to be killed there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import holdfast


@holdfast.step
async def dive(nth: int, air: Path) -> int:
    """Stay down until the file `air` is there."""
    while not air.exists():  # noqa: ASYNC240 - a look at a file in memory
        await asyncio.sleep(0.1)
    return nth


@holdfast.step
async def surface(nth: int) -> int:
    return nth


async def one(nth: int, air: Path) -> int:
    return await dive(nth, air)


@holdfast.agent
async def torn(number: int, air: Path) -> int:
    await surface(0)
    return sum(await asyncio.gather(*(one(nth, air) for nth in range(number))))
