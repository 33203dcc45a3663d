"""A family under one budget, with a ledger of its bodies: workers that are killed run it."""

from __future__ import annotations

import asyncio

from tests.grounds.canonical import PACE_S, wrote

import holdfast

CHILDREN, ITEMS, OWN, FIRST = 3, 4, 2, 3
PRICE = CHILDREN * ITEMS + OWN  # of all, in dollars


@holdfast.step
async def buy(what: str) -> str:
    wrote("begin")
    await asyncio.sleep(PACE_S)
    holdfast.spend(1.0, input_tokens=10, model="made-up")
    return what


@holdfast.agent
async def shopper(name: str) -> int:
    for n in range(ITEMS):
        await buy(f"{name}-{n}")
    return ITEMS


@holdfast.agent(budget=holdfast.Budget(usd=FIRST))
async def shoppers() -> int:
    counts = await asyncio.gather(*(shopper(str(n)) for n in range(CHILDREN)))
    for n in range(OWN):
        await buy(f"own-{n}")
    return sum(counts) + OWN


@holdfast.agent(budget=holdfast.Budget(usd=20))
async def alone(items: int) -> int:
    """Goes on over many executions, and takes no checkpoint."""
    for n in range(items):
        await buy(str(n))
    return items
