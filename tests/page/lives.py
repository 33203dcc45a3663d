"""Agents whose bodies stay in the middle for as long as a test wants: they are killed there, and watched."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import holdfast

HOLD = Path(os.environ.get("SCENE_HOLD", "/nonexistent"))  # while it is there, a body goes on


@holdfast.step
async def pack(what: str) -> str:
    holdfast.spend(usd=0.02)
    return f"{what} packed"


@holdfast.step
async def dive(nth: int) -> int:
    while HOLD.exists():  # noqa: ASYNC240 - a look at a file in memory
        await asyncio.sleep(0.02)
    return nth


@holdfast.agent
async def expedition(where: str, divers: int = 2, night: bool = False) -> str:
    """Packs, dives with several divers at once, and comes back."""
    await pack(where)
    found = await asyncio.gather(*(dive(nth) for nth in range(divers)))
    return f"{where}: {len(found)} dives"


@holdfast.step
async def count(nth: int) -> int:
    holdfast.spend(usd=nth / 100)
    return nth


@holdfast.agent
async def tally(to: int) -> int:
    """Counts, one step after the other, and waits for a word after each that a test names."""
    for nth in range(1, to + 1):
        await count(nth)
        if nth % 10 == 0 and nth < to:
            await holdfast.receive("on", int)
    return to


@holdfast.step
async def leap(how: str) -> str:
    if HOLD.exists():  # noqa: ASYNC240 - a look at a file in memory
        raise ValueError("it is too far")
    return f"{how}, and over"


@holdfast.agent
async def leaper(how: str) -> str:
    """Fails for as long as a test holds it, and goes on when it is retried."""
    return await leap(how)


@holdfast.agent(name="an_agent_whose_name_is_longer_than_a_phone_is_wide_because_nobody_counted_its_letters_in_time")
async def long_named(how: str) -> str:
    return await leap(how)


@holdfast.agent
async def asks(name: str) -> str:
    return "yes" if await holdfast.approve(f"May {name} go on?", show={"name": name}) else "no"


@holdfast.agent
async def listens(name: str) -> int:
    return await holdfast.receive("go", int, timeout="1 day")


@holdfast.agent
async def plans(name: str) -> str:
    plan = await holdfast.plan(["gather", "write", "ship"])
    await plan.done("gather")
    await plan.done("write")
    await holdfast.progress(1, 4, "gathered")
    await holdfast.receive("go", int)
    return name
