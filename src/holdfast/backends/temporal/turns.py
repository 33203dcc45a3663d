"""Turns of rates on Temporal: a body goes to the process that runs it a little before its turn, and waits for it there.

A word with the database takes that process a millisecond, and a run inside its workflow an activity: most turns would be over
before it could use them. A turn that is lost all the same, because the rate was paused or the process was busy, is replaced there.
If the next one is far off, the run waits for it and not the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from holdfast.engine.turns import Late, Reservation
from holdfast.store.limits import Turn
from holdfast.store.store import Store
from holdfast.words.limits import Lane

AHEAD_MS: Final = 2_000  # so long before its turn a body goes to the process that runs it
_FAR_MS: Final = 3 * AHEAD_MS


def turn_of(rate: Reservation) -> list[Any] | None:
    """A turn, and which rate it is of, as they travel."""
    lane = rate.lane
    if rate.turn is None:
        return None
    return [lane.rate_key, lane.rate_n, lane.rate_ms, lane.tokens_us, lane.tokens_ms, *rate.turn]


async def until_turn(turn: Sequence[Any], store: Store, late: Late) -> list[Any] | None:
    """Wait for a turn, and use it. If it is lost and the next one is far off, returns that one."""
    key, n, every_ms, tokens_us, tokens_ms, *known = turn
    lane = Lane(rate_key=key, rate_n=n, rate_ms=every_ms, tokens_us=tokens_us, tokens_ms=tokens_ms)
    rate, clock = Reservation(lane, Turn(*known), store, store.clock, late), store.clock
    while True:
        if rate.turn is None:
            await rate.reserve()
        wait_ms = rate.due - clock.now()
        if wait_ms > _FAR_MS:
            return turn_of(rate)
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)
            rate.look = True
        if await rate.usable() and await rate.tell_if_late():
            rate.begins(clock.now())
            return None
