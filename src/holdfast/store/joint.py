"""A joint transaction: somebody's own statements and an append of ours, committed together. Part of the contract of stores."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from holdfast.store.contract import Append

T = TypeVar("T")


class Undone(Exception):
    """The database undid a transaction, through no fault of what was in it: nothing happened, and it may be tried again."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Joint(Protocol):
    """A transaction that somebody's own statements share with an append of ours. One that is left uncommitted never was.

    Nobody else may end it; if that is tried it is refused, or `commit` says so, where the database cannot refuse it.
    """

    @property
    def connection(self) -> Any:
        """What the statements go through."""
        ...

    @property
    def in_threads(self) -> bool:
        """May it be used in any thread, or on the loop only?"""
        ...

    @property
    def longest_s(self) -> float | None:
        """How long it may be open: others wait for it."""
        ...

    def undid(self, error: Exception) -> bool:
        """Is this error the database's doing, so that the same statements may well succeed next time?"""
        ...

    async def commit(self, appends: Sequence[Append]) -> int:
        """Append, fenced like any append, and commit all; returns the time. Must not be cancelled.

        `LeaseLost`, with nothing written. `Undone` too leaves nothing behind: if it is not known whether a commit
        happened, this finds out. Any other error is that of the statements before it.
        """
        ...


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Wait for what must not be stopped half-way; a cancellation that comes meanwhile takes effect afterwards."""
    task, here = asyncio.ensure_future(work), asyncio.current_task()
    stopped = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            stopped = True
    if stopped and here is not None:
        here.cancel()
    return task.result()
