"""An agent that is in the middle of something for long enough to be killed there."""

from __future__ import annotations

import asyncio

import holdfast


@holdfast.step
async def dive(nth: int) -> int:
    await asyncio.sleep(4)
    return nth


@holdfast.step
async def surface(nth: int) -> int:
    return nth


async def one(nth: int) -> int:
    return await dive(nth)


@holdfast.agent
async def torn(number: int) -> int:
    await surface(0)
    return sum(await asyncio.gather(*(one(nth) for nth in range(number))))
