"""Loans: a connection for the body of a transactional step, in a transaction that ends with our record.

Each body has a connection of its own, so that nothing it sets up stays for the next. Its transaction has the write lock of
the file from its first statement on: any other writer, in this process or another, waits. So there is one at a
time in a process, for a bounded time, and between two of them the writer's thread has its turn.

The body may not end the transaction. An authorizer refuses the statements that would, and writes to our own tables; a hook
refuses any commit but ours, whatever it came from: after `INSERT OR ROLLBACK`, say, each statement would commit itself.

Crash points. Before COMMIT returns nothing of the transaction is in the file, after it all is; what an error of COMMIT
itself leaves open is looked up (`transactions.found`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import apsw

from holdfast.errors import BadArguments, StoreUnavailable
from holdfast.store.appends import Append, QueuedAppend
from holdfast.store.changes import News
from holdfast.store.migrate import known
from holdfast.store.operations import Crash, Faults, names
from holdfast.store.sqlite.connection import Nap
from holdfast.store.sqlite.execute import do
from holdfast.store.sqlite.writer import inject
from holdfast.store.transactions import Undone, found, join, queued, tell, to_its_end
from holdfast.store.work import Asking, Transaction, forget
from holdfast.words.clock import Clock

T = TypeVar("T")

LONGEST_S: Final = 5.0  # a heartbeat waits for the lock too, and must not wait for as long as a lease lasts
_LONG_S, _OTHERS_S = 0.01, 0.002  # after a long one other processes have a chance: they look every millisecond
_UNDID: Final = (apsw.FullError, apsw.IOError, apsw.BusyError, apsw.LockedError, apsw.CantOpenError, apsw.NoMemError)

# What the authorizer is asked about and need not look at.
_HARMLESS: Final = frozenset({
    apsw.SQLITE_READ, apsw.SQLITE_SELECT, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE, apsw.SQLITE_SAVEPOINT,
})  # fmt: skip
_TELL: Final = ("_info", "_xinfo", "_list", "_check")  # how pragmas end that only tell something
_OURS: Final = frozenset(
    name.lower() for migration in known() for name in re.findall(r"CREATE TABLE (\w+)", migration.sql)
) | {"migrations"}


def may_not(what: str) -> BadArguments:
    """Make the error for a body that did what is ours to do."""
    return BadArguments(
        f"the body of a transactional step may not {what}: the transaction is ended for it, together with the step's "
        "record. To undo what it wrote it raises an exception; savepoints are allowed"
    )


class Loan:
    """A transaction in the file, for one body."""

    in_threads, longest_s = True, LONGEST_S

    def __init__(self, loans: Loans) -> None:
        self._loans, self.nap = loans, Nap()
        self._commits = False  # we end the transaction
        self._ended = False  # something else has
        self.connection: Any = None

    def undid(self, error: Exception) -> bool:
        return isinstance(error, _UNDID)

    async def commit(self, appends: Sequence[Append]) -> int:
        batch = queued(appends)
        self._loans.check_open()
        try:
            at, changes = await self._loans.aside(functools.partial(self._commit, batch))
        except _UNDID as error:
            await self._loans.aside(self.end)  # the writer needs the lock
            when = await self._loans.submit(functools.partial(found, batch=batch))
            if when is None:
                raise Undone(error) from error
            at, changes = when, {appends[0].run: News.DUE}
        self._loans.changes = changes
        return at

    # In the thread of the loans

    def begin(self) -> None:
        db = self.connection = self._loans.connect(writer=True)
        db.set_busy_handler(self.nap)
        db.execute("BEGIN IMMEDIATE")
        db.set_commit_hook(self._refuses)
        db.set_rollback_hook(self._rolled_back)
        db.set_authorizer(self._judge)

    def _judge(
        self, action: int, first: str | None, second: str | None, _schema: str | None, _inner: str | None
    ) -> int:
        """Asked of every statement of the body, and of every trigger it sets off, before it runs."""
        if action in _HARMLESS:
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_TRANSACTION:
            raise may_not(f"use {first}")
        if action == apsw.SQLITE_ATTACH:
            raise BadArguments(
                "the body of a transactional step may not attach another file: its commit would be another one"
            )
        if action == apsw.SQLITE_PRAGMA and second is not None and not (first or "").endswith(_TELL):
            raise may_not(f"set PRAGMA {first}")
        names = (first,) if action == apsw.SQLITE_UPDATE else (first, second)  # of an update the second is a column
        touched = {(name or "").lower() for name in names} & _OURS
        if touched and action != apsw.SQLITE_PRAGMA:
            raise BadArguments(
                f"the table {touched.pop()!r} belongs to Holdfast, and a step may read it only; name your own differently"
            )
        return apsw.SQLITE_OK

    def _refuses(self) -> bool:
        if not self._commits:
            raise may_not("go on after its transaction was rolled back")
        return False

    def _rolled_back(self) -> None:
        self._ended = True

    def _commit(self, batch: Sequence[QueuedAppend]) -> tuple[int, dict[str, News]]:
        db, loans = self.connection, self._loans
        began = time.perf_counter()
        try:
            db.set_authorizer(None)
            db.set_exec_trace(None)  # whatever the body has set up, our statements and their rows are ours
            db.set_row_trace(None)
            if self._ended or not db.in_transaction:
                raise may_not("end its transaction")
        except apsw.ConnectionClosedError:
            raise may_not("close its connection") from None
        tx = Transaction(loans.clock.now(), loans.worker)
        at = do(db, join(tx, batch))
        self._commits = True
        loans.inject("before_commit", batch)
        db.execute("COMMIT")
        loans.inject("after_commit", batch)
        loans.observe(len(batch), time.perf_counter() - began)
        return at, tx.changes

    def end(self) -> None:
        """Close: what is not committed is rolled back. A thread that still uses the connection finds it closed."""
        while self.connection is not None:
            try:
                self.connection.interrupt()
                self.connection.close(force=True)
                return
            except apsw.ThreadingViolationError:
                time.sleep(0.001)
            except apsw.Error:
                return


class Loans:
    """Lends to one body at a time. `submit` has a piece of work written by the writer, `died` is for tests that crash."""

    def __init__(
        self,
        connect: Callable[..., apsw.Connection],
        clock: Clock,
        worker: str,
        *,
        submit: Callable[[Callable[[Transaction], Asking[Any]]], asyncio.Future[Any]],
        died: Callable[[], None],
        faults: Faults | None,
    ) -> None:
        self.connect, self.clock, self.worker, self.submit = connect, clock, worker, submit
        self._died, self._faults = died, faults
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="holdfast-transaction")
        self._turn, self._closed = asyncio.Lock(), False
        self._told: asyncio.Future[None] | None = None
        self.changes: dict[str, News] = {}
        self.observe: Callable[[int, float], None] = lambda _operations, _seconds: None

    async def aside(self, call: Callable[[], T]) -> T:
        """Call it in the thread of the loans."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    @contextlib.asynccontextmanager
    async def lend(self) -> AsyncIterator[Loan]:
        """Lend a transaction that has the file to itself; it is over when this is left."""
        async with self._turn:
            if self._told is not None:  # the writer's thread, and with it every heartbeat, goes first
                await asyncio.wait([self._told])
            self.check_open()
            loan, began = Loan(self), time.monotonic()
            try:
                try:
                    await self.aside(loan.begin)
                except _UNDID as error:
                    raise Undone(error) from error
                yield loan
            except Crash:
                self._died()
                raise StoreUnavailable("the store is closed") from None
            finally:
                loan.nap.patient = False  # if it still waits for the lock, it need not any more
                await to_its_end(self.aside(loan.end))
                changes, self.changes = self.changes, {}
                with contextlib.suppress(StoreUnavailable):
                    self._told = self.submit(functools.partial(tell, changes=changes))
                    forget(self._told)
                if self._closed:
                    self._threads.shutdown(wait=False)
                elif time.monotonic() - began > _LONG_S:
                    await asyncio.sleep(_OTHERS_S)

    def inject(self, hook: str, batch: Sequence[QueuedAppend]) -> None:
        if self._faults is not None:
            inject(getattr(self._faults, hook), names(batch))

    def check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")

    def close(self) -> None:
        """Lend nothing more, and commit nothing that is lent."""
        self._closed = True
        if not self._turn.locked():
            self._threads.shutdown(wait=False)
