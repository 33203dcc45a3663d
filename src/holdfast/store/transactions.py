"""Joint transactions: the statements of a step's body and an append of ours, committed together.

The databases differ in how they lend a connection (`sqlite/transactions.py`, `postgres/transactions.py`). What the append
does in such a transaction is the same on any, and is here.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from holdfast.errors import LeaseLost
from holdfast.store.appends import Append, QueuedAppend, Refused, apply_all, written_at
from holdfast.store.changes import Changes
from holdfast.store.work import Asking, Conflict, Count, Feature, Transaction

T = TypeVar("T")


class Undone(Exception):
    """The database undid a transaction, through no fault of what was in it: nothing happened, and it may be tried again."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Joint(Protocol):
    """A transaction that a body's own statements share with an append of ours. One that is left uncommitted never was.

    Nobody else may end it; if that is tried it is refused, or `commit` says so, where the database cannot refuse it.
    """

    @property
    def connection(self) -> Any:
        """Connection that the statements go through."""
        ...

    @property
    def in_threads(self) -> bool:
        """May it be used in any thread, or on the loop only?"""
        ...

    @property
    def longest_s(self) -> float | None:
        """Longest time that it may be open, because others wait for it; None: any."""
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


class Transactions(Feature):
    """Transactions of the store, lent to the bodies of steps."""

    @abc.abstractmethod
    def transaction(self, isolation: str) -> AbstractAsyncContextManager[Joint]:
        """Open a transaction for a body's own statements: 'read committed' or 'serializable', or what is stricter."""

    @abc.abstractmethod
    def shuts_out(self, isolation: str) -> bool:
        """Must nothing else be written to the run while such a transaction of it is open?"""


def queued(appends: Iterable[Append]) -> list[QueuedAppend]:
    """Prepare appends of one run that follow each other."""
    return [QueuedAppend(append, lambda _at, _error: None) for append in appends]


def join(tx: Transaction, batch: Sequence[QueuedAppend]) -> Asking[int]:
    """Write all of a batch, or find that the run is another owner's; the caller rolls back then."""
    run = batch[0].append.run
    try:
        yield from apply_all(tx, batch)
    except (Refused, Conflict) as error:
        raise LeaseLost(f"run {run!r} is not ours any more: what a step of it wrote is rolled back") from error
    return tx.now


def found(tx: Transaction, batch: Sequence[QueuedAppend]) -> Asking[int | None]:
    """Find, after a commit of which it is not known whether it happened, the time of it, or None.

    Begins with the statement every append begins with, and changes nothing by it: if another backend is still at that
    commit, this waits for its lock, and so cannot miss it.
    """
    first = batch[0].append
    fence = [first.expected_seq, tx.now, 0, 0, None, None, first.run, first.epoch, first.expected_seq]
    if (yield Count("reserve", [fence])) == 1:
        return None
    for one in batch:
        at = yield from written_at(tx, one)
        if at is None:
            raise LeaseLost(f"run {first.run!r} is not ours any more")
    return at


def tell(tx: Transaction, changes: Changes) -> Asking[None]:
    """Write nothing, and have listeners told what a transaction beside the writer's has changed."""
    for run, news in changes.items():
        tx.changed(run, news)
    yield from ()
