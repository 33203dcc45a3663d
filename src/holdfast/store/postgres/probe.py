"""The probe: does a server that speaks PostgreSQL's protocol have what this store relies on?

Some say yes and do nothing. A lock of a session that two sessions have at once would let a live worker be taken for dead, and its
runs be carried twice; a notification that nobody hears would leave wake-ups to the poll. So both are tried, with two sessions,
before anything is created. A pooler that gives each transaction another session fails in the same way.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final

import asyncpg

from holdfast.errors import StoreUnavailable
from holdfast.store.postgres.connection import Connection

_HEARD_S: Final = 5.0


async def probe(one: Connection, other: Connection, url: str) -> None:
    """Try it with two sessions. `StoreUnavailable` says what is missing; the driver's own errors pass."""
    word = secrets.token_hex(8)
    if await _both_have(one, other, word):
        raise _lacks(url, "locks that one session has at a time (pg_advisory_lock): two sessions had the same one")
    if not await _hears(one, other, f"holdfast_probe_{word}"):
        raise _lacks(url, "notifications (LISTEN and NOTIFY): one session did not hear another")


async def _both_have(one: Connection, other: Connection, word: str) -> bool:
    take, leave = (f"SELECT pg_{what}(hashtextextended($1, 0))" for what in ("try_advisory_lock", "advisory_unlock"))
    try:
        first = await one.fetchval(take, word)
        second = await other.fetchval(take, word)
        await one.fetchval(leave, word)
        again = await other.fetchval(take, word)
        await other.fetchval(leave, word)
    except (asyncpg.SyntaxOrAccessError, asyncpg.FeatureNotSupportedError):
        return True  # it has no such lock at all
    return bool(not first or second or not again)


async def _hears(one: Connection, other: Connection, channel: str) -> bool:
    heard = asyncio.Event()

    def hear(*_: Any) -> None:
        heard.set()

    try:
        await one.add_listener(channel, hear)
        await other.execute(f"SELECT pg_notify('{channel}', '')")
        async with asyncio.timeout(_HEARD_S):
            await heard.wait()
    except (TimeoutError, asyncpg.SyntaxOrAccessError, asyncpg.FeatureNotSupportedError):
        return False
    else:
        return True
    finally:
        if not one.is_closed():
            await one.reset()


def _lacks(url: str, what: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{url!r} speaks PostgreSQL's protocol and lacks {what}. Holdfast cannot tell there which workers are alive. Use "
        "PostgreSQL itself, or a service that is one; CockroachDB is not, and a pooler must keep a session for each client "
        "(pool_mode=session)",
        lasting=True,
    )
