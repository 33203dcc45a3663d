"""Agents that keep a ledger of their bodies, for tests that kill databases and movers under them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import holdfast


def _note(what: str) -> None:
    step = holdfast.this_step()
    with Path(os.environ["LEDGER"]).open("a") as ledger:  # one small write: lines of processes do not mix
        ledger.write(f"{time.time():.6f}\t{what}\t{step.run}\t{step.key}\t{holdfast.idempotency_key()}\n")


@holdfast.step
async def turn(n: int) -> int:
    _note("begin")
    return n


@holdfast.agent
async def helper(n: int) -> int:
    return await turn(n)


@holdfast.agent
async def walk(steps: int, pause: float = 0.05) -> int:
    """Steps, a child and a timer, again and again."""
    total = 0
    for n in range(steps):
        total += await turn(n)
        await holdfast.sleep(pause)
        if n % 5 == 2:
            total += await helper(n)
    return total


@holdfast.step(in_doubt="fail")
async def pay(n: int) -> int:
    _note("begin")
    await asyncio.sleep(600)
    return n


@holdfast.agent
async def pays(n: int) -> str:
    try:
        return f"paid {await pay(n)}"
    except holdfast.StepFailed as failed:
        return str(failed.type)


def expected(steps: int) -> int:
    return sum(n + (n if n % 5 == 2 else 0) for n in range(steps))
