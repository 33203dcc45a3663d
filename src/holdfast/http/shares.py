"""Shares: how many requests of one caller are worked on at a time, so that no caller keeps others waiting for long.

The others of that caller wait in line, for a while at the most; `Limits.token` bounds the line. A caller that waits for
something to happen, as a long poll does, leaves the share to others meanwhile; a follower has none.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import ClientDisconnect

from holdfast.http.connections import Visit
from holdfast.http.errors import Refused

_IN_LINE_S: Final = 30.0


class Place:
    """The place of one request in the share of its caller."""

    def __init__(self, share: asyncio.Semaphore, visit: Visit) -> None:
        self._share, self._visit, self._is_taken = share, visit, False

    async def take(self) -> None:
        """Wait for it; `Refused` where that takes too long."""
        try:
            async with asyncio.timeout(_IN_LINE_S):
                await self._share.acquire()
        except TimeoutError:
            told = f"other requests of this caller are worked on, and this one was not within {_IN_LINE_S:g} s"
            raise Refused("too_many_requests", told, {"Retry-After": "1"}) from None
        self._is_taken = True
        if self._visit.is_gone:  # nobody waits for it any more
            raise ClientDisconnect

    def give(self) -> None:
        """Give it back, if it is taken."""
        if self._is_taken:
            self._is_taken = False
            self._share.release()

    @contextlib.asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Wait for something else in this block: others of the caller are worked on meanwhile."""
        self.give()
        yield
        await self._share.acquire()  # however long it takes: it was in line before
        self._is_taken = True


class Shares:
    """The shares of all callers."""

    def __init__(self) -> None:
        self._of: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()

    def place(self, caller: str, visit: Visit) -> Place:
        """Make the place of a request, which is not taken yet."""
        return Place(self._of.setdefault(caller, asyncio.Semaphore(visit.limits.work)), visit)
