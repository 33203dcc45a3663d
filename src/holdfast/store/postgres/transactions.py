"""Loans: a connection for the body of a transactional step, in a transaction that ends with our record.

A body has a connection to itself. Its names are the user's: our schema is in its search path only when we append, at the end.
Rows are locked and not the whole database, so the writer goes on meanwhile; with 'serializable' an append to the same
run would make this one give way, so there the run's other writes wait.

PostgreSQL lets nobody forbid COMMIT. A setting that lasts as long as the transaction shows afterwards whether it is still
the same; if it is not, the step fails and says so.

Crash points. Before COMMIT arrives nothing happened: the server rolls back when the connection is gone. After it all
happened; what a lost connection leaves open is looked up (`transactions.found`), behind the lock of the run's row, which the
commit in question has until it is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import asyncpg
from asyncpg import exceptions as pg

from holdfast.errors import BadArguments, StoreUnavailable
from holdfast.store.appends import Append, QueuedAppend
from holdfast.store.changes import News
from holdfast.store.operations import Crash
from holdfast.store.postgres.connection import GAVE_WAY, LOST, TROUBLE, Connection, goodbye
from holdfast.store.postgres.execute import Answers
from holdfast.store.transactions import Undone, join, queued, to_its_end
from holdfast.store.work import Transaction
from holdfast.words.clock import Clock

MOST: Final = 10  # lent at once; the server has about a hundred connections for all processes
_IDLE_KEPT: Final = 2
_ENDING_S: Final = 5.0
_MARK: Final = "SELECT set_config('holdfast.transaction', $1, true)"
_RETURN: Final = "SELECT current_setting('holdfast.transaction', true), set_config('search_path', $1, true)"


class Loan:
    """A transaction on a connection of its own, for one body."""

    in_threads, longest_s = False, None

    def __init__(self, loans: Loans, db: Connection, isolation: str) -> None:
        self._loans, self.connection, self._mark = loans, db, secrets.token_hex(8)
        self._transaction = db.transaction(isolation=isolation.replace(" ", "_"))
        self.committed = False

    async def begin(self) -> None:
        await self._transaction.start()
        await self.connection.execute(_MARK, self._mark)

    def undid(self, error: Exception) -> bool:
        if isinstance(error, pg.TransactionRollbackError | pg.InsufficientResourcesError):
            return True
        return isinstance(error, LOST) and bool(self.connection.is_closed())

    async def commit(self, appends: Sequence[Append]) -> int:
        loans, batch, began = self._loans, queued(appends), time.perf_counter()
        tx = Transaction(loans.clock.now(), loans.worker)
        try:
            await self._take_back()
            at = await Answers(self.connection).do(join(tx, batch))
        except TROUBLE as error:
            raise Undone(error) from error
        at = await self._commit(batch, at)
        self.committed = True
        loans.observe(len(batch), time.perf_counter() - began)
        loans.tell(tx.changes)
        return at

    async def _take_back(self) -> None:
        """Make names those of our schema again, if this is still the transaction that was lent."""
        try:
            mark, _ = await self.connection.fetchrow(_RETURN, f"{self._loans.schema}, pg_temp")
        except pg.InFailedSQLTransactionError as error:
            raise BadArguments(
                "a statement of the step's body failed, and PostgreSQL then undoes the whole transaction; let the exception "
                "pass, or put what may fail into `async with connection().transaction():`, which is a savepoint"
            ) from error
        except asyncpg.InterfaceError as error:
            if self.connection.is_closed():
                raise
            raise BadArguments(f"the step's body left something running on its connection: {error}") from error
        if mark != self._mark:
            raise BadArguments(
                "the body of a transactional step may not end its transaction: it did, so that what it wrote may be "
                "committed without the step's record. To undo what it wrote it raises an exception; savepoints are allowed"
            )

    async def _commit(self, batch: Sequence[QueuedAppend], at: int) -> int:
        loans = self._loans
        try:
            await loans.hook("before_commit", batch)
            await self._transaction.commit()
            await loans.hook("after_commit", batch)
        except GAVE_WAY as error:
            raise Undone(error) from error
        except LOST as error:
            self.connection.terminate()
            found = await loans.look_up(batch)
            if found is None:
                raise Undone(error) from error
            return found
        return at

    async def end(self) -> None:
        """Undo what is not committed."""
        if not self.committed and not self.connection.is_closed():
            await self._transaction.rollback()


class Loans:
    """Lends connections, and keeps a few for the next."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        clock: Clock,
        worker: str,
        schema: str,
        *,
        look_up: Callable[[Sequence[QueuedAppend]], Awaitable[int | None]],
        tell: Callable[[dict[str, News]], None],
        hook: Callable[[str, Sequence[QueuedAppend]], Awaitable[None]],
        died: Callable[[], None],
    ) -> None:
        self._connect, self.clock, self.worker, self.schema = connect, clock, worker, schema
        self.look_up, self.tell, self.hook, self._died = look_up, tell, hook, died
        self._turns, self._idle, self._lent = asyncio.Semaphore(MOST), list[Connection](), set[Connection]()
        self._closed = False
        self.observe: Callable[[int, float], None] = lambda _operations, _seconds: None

    @contextlib.asynccontextmanager
    async def lend(self, isolation: str) -> AsyncIterator[Loan]:
        """Lend a transaction to one body; it is over when this is left."""
        async with self._turns:
            try:
                loan = await self._begin(isolation)
            except TROUBLE as error:
                raise Undone(error) from error
            try:
                yield loan
            except Crash:
                self._died()
                raise StoreUnavailable("the store is closed") from None
            finally:
                await to_its_end(self._end(loan))

    async def _begin(self, isolation: str) -> Loan:
        """Begin a transaction. A connection that was kept may have been cut off meanwhile; then another one is tried."""
        while True:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            kept = bool(self._idle)
            db = self._idle.pop() if kept else await self._connect()
            self._lent.add(db)
            try:
                loan = Loan(self, db, isolation)
                await loan.begin()
                return loan
            except BaseException as error:
                self._lent.discard(db)
                db.terminate()
                if not (kept and isinstance(error, LOST)):
                    raise

    async def _end(self, loan: Loan) -> None:
        db: Any = loan.connection
        try:
            async with asyncio.timeout(_ENDING_S):
                await loan.end()
                if self._closed or len(self._idle) >= _IDLE_KEPT:
                    await db.close()
                else:
                    await db.reset()
                    await db.execute("DISCARD TEMP")
                    self._idle.append(db)
        except (*LOST, asyncpg.PostgresError):
            db.terminate()
        finally:
            self._lent.discard(db)

    async def close(self) -> None:
        self._closed = True
        for db in self._idle:
            await goodbye(db)

    def abort(self) -> None:
        """Cut off what is lent, as a killed process would; the server rolls it back."""
        self._closed = True
        for db in (*self._idle, *self._lent):
            db.terminate()
