"""Turns of rates: pieces of work in a write transaction, under the lock under which all turns are counted.

The turns of a rate are one after the other, at places that are an interval apart. `n` intervals are a little longer than the
window, so a turn may be used so much late, and all turns of any window are `n` at most. One that is used later than that is
written down with its time: those a window behind it wait for it, and no others. So what comes late delays a fiftieth of the
turns, is made up for by and by, and none is lost.

None is earlier than the end of a pause, nor than the time at which the tokens that were used are paid for. Tokens are known
only when a body has ended; so that those who wait do not all begin before the first bill comes, turns are as far apart as the
tokens of the last few would have them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.store.rates import Closed, Turn, in_milliseconds
from holdfast.store.transaction import Asking, Transaction


def take_turns(tx: Transaction, key: str, interval_us: int, tokens_us: int = 0, turns: int = 1) -> Asking[Turn]:
    """Reserve turns; returns the first of them."""
    place, paused = yield from tx.row(
        "take_turns", key=key, micros=tx.now * 1000, interval=interval_us, tokens_us=tokens_us, turns=turns
    )
    return Turn(place, paused > tx.now * 1000)


def take_turn(key: str, interval_us: int, tokens_us: int) -> Callable[[Transaction], Asking[Turn]]:
    """Reserve one."""

    def work(tx: Transaction) -> Asking[Turn]:
        yield from tx.rows("lock_counts")
        return (yield from take_turns(tx, key, interval_us, tokens_us))

    return work


def use_late(key: str, began: dict[int, int], every_ms: int) -> Callable[[Transaction], Asking[None]]:
    """Turns were used late: write it down."""

    def work(tx: Transaction) -> Asking[None]:
        yield from tx.rows("lock_counts")
        yield from late(tx, key, began, every_ms)

    return work


def late(tx: Transaction, key: str, began: dict[int, int], every_ms: int) -> Asking[None]:
    """Write down when late turns are used, by stretches. What was written a window ago delays nobody any more."""
    yield from tx.rows("forget_late", key=key, micros=tx.now * 1000 - every_ms * 1000)
    for stretch, micros in sorted(began.items()):
        yield from tx.rows("use_late", key=key, place=stretch, micros=micros)


def pause(key: str, wait_ms: int) -> Callable[[Transaction], Asking[int]]:
    """Nobody has a turn for so long."""

    def work(tx: Transaction) -> Asking[int]:
        yield from tx.rows("lock_counts")
        (until,) = yield from tx.row("pause_rate", key=key, until=(tx.now + wait_ms) * 1000)
        return in_milliseconds(until)

    return work


def charge(key: str, tokens: int, tokens_us: int, since: int) -> Callable[[Transaction], Asking[None]]:
    """Tokens were used by a body that had its turn at that time."""

    def work(tx: Transaction) -> Asking[None]:
        yield from tx.rows("lock_counts")
        cost = tokens * tokens_us // 1000
        yield from tx.rows("charge", key=key, tokens=tokens, cost=cost, since=since * 1000)

    return work


def closed(row: Any) -> Closed:
    """A row of `rate`."""
    paused, owed, began = row
    return Closed(in_milliseconds(paused), in_milliseconds(owed), began)
