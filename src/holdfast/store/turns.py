"""Turns of rates: pieces of work in a write transaction, under the lock under which all turns are counted.

The turns of a rate are one after the other. None is earlier than the end of a pause, nor than the time at which the tokens
that were used are paid for. Tokens are known only when a body has ended; so that those who wait do not all begin before
the first bill comes, turns are as far apart as the tokens of the last few would have them.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.store.rates import Turn
from holdfast.store.transaction import Asking, Transaction


def in_milliseconds(micros: int) -> int:
    """Rounded up: nothing begins early."""
    return -(-micros // 1000)


def take_turns(
    tx: Transaction, key: str, interval_us: int, tokens_us: int = 0, turns: int = 1
) -> Asking[tuple[int, int]]:
    """Reserve turns; the time of the first, and until when the rate is paused, in microseconds."""
    first, paused = yield from tx.row(
        "take_turns", key=key, micros=tx.now * 1000, interval=interval_us, tokens_us=tokens_us, turns=turns
    )
    return first, paused


def take_turn(key: str, interval_us: int, tokens_us: int) -> Callable[[Transaction], Asking[Turn]]:
    """Reserve one."""

    def work(tx: Transaction) -> Asking[Turn]:
        yield from tx.rows("lock_counts")
        at, paused = yield from take_turns(tx, key, interval_us, tokens_us)
        return Turn(in_milliseconds(at), paused > tx.now * 1000)

    return work


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
