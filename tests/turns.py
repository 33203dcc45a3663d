"""Turns of an event loop: whether long work lets others in between its pieces."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass


@dataclass(slots=True)
class Turns:
    """What others got while something went on: how many turns, and the most that they waited for one.

    Attributes:
        count: Turns of the loop. A machine that is busy gives no fewer.
        longest_s: The most work between two turns, as processor time of the loop's thread: what other processes do is not in it,
            nor a collection of the garbage that earlier tests left.
    """

    count: int = 0
    longest_s: float = 0.0


@contextlib.asynccontextmanager
async def counted_turns() -> AsyncIterator[Turns]:
    """Count the turns of the running loop, from here to the end of the block."""
    turns, over = Turns(), False

    async def count() -> None:
        while not over:
            before = time.thread_time()
            await asyncio.sleep(0)
            turns.count, turns.longest_s = turns.count + 1, max(turns.longest_s, time.thread_time() - before)

    gc.disable()
    counting = asyncio.create_task(count())
    try:
        yield turns
    finally:
        over = True
        await counting
        gc.enable()
