"""An agent that is in the middle of something for long enough to be killed there."""

from __future__ import annotations

import asyncio
import os

import holdfast


@holdfast.step
async def dive(nth: int, air: str) -> int:
    """Stay down until the file `air` is there."""
    while not os.path.exists(air):  # noqa: ASYNC240, PTH110 - a look at a file in memory
        await asyncio.sleep(0.1)
    return nth


@holdfast.step
async def surface(nth: int) -> int:
    return nth


async def one(nth: int, air: str) -> int:
    return await dive(nth, air)


@holdfast.agent
async def torn(number: int, air: str) -> int:
    await surface(0)
    return sum(await asyncio.gather(*(one(nth, air) for nth in range(number))))
