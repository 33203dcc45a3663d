"""The PostgreSQL store: one database, workers on any number of computers.

Writes go through two connections (lanes.py, writer.py), reads through a few (readers.py), one listens (wakeups.py), now and then
one makes room (vacuum.py), and a worker has one more, in a thread, that shows that it lives (liveness.py). What the statements mean
is at the head of ../queries.sql, what differs here at the head of queries.sql.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ParamSpec, TypeVar

import asyncpg

from holdfast.errors import StoreUnavailable
from holdfast.store.appends import QueuedAppend
from holdfast.store.backup import Part, opened
from holdfast.store.changes import News
from holdfast.store.contract import Ailment
from holdfast.store.inbox import Take, Taken
from holdfast.store.leases import Claim, Lease
from holdfast.store.operations import Faults, Result
from holdfast.store.postgres.backup import copy_in, copy_out
from holdfast.store.postgres.clock import DatabaseClock
from holdfast.store.postgres.connection import TROUBLE, Connection, Options, connect, goodbye, insist, parse_url
from holdfast.store.postgres.execute import Answers
from holdfast.store.postgres.lanes import Lanes
from holdfast.store.postgres.liveness import Liveness
from holdfast.store.postgres.migrate import migrate, secret_of
from holdfast.store.postgres.probe import probe
from holdfast.store.postgres.readers import Readers
from holdfast.store.postgres.transactions import Loans
from holdfast.store.postgres.vacuum import Vacuum
from holdfast.store.postgres.wakeups import Wakeups
from holdfast.store.store import Store, facts
from holdfast.store.transactions import Joint, found
from holdfast.store.work import Asking, Transaction, forget, listed, rows, to_json
from holdfast.store.workers import Living, bury
from holdfast.words.clock import Clock
from holdfast.words.harmless import logger
from holdfast.words.model import ON_TEMPORAL
from holdfast.words.urls import without_secrets

_log = logger("holdfast.store")
T = TypeVar("T")
P = ParamSpec("P")


class PostgresStore(Store):
    """A `Store` in a schema of a PostgreSQL database. Open it in the loop that uses it."""

    def __init__(
        self,
        options: Options,
        *,
        clock: Clock | None = None,
        faults: Faults | None = None,
        name: str = "",
        worker: str = "",
    ) -> None:
        super().__init__(clock if clock is not None else DatabaseClock(), name, worker)
        self.url, self.inputs, self._options = options.shown, options.inputs, options
        passing = functools.partial(connect, self._options, durable=False)
        self._readers = Readers(functools.partial(connect, self._options), self._check_open, self._limit_of_reads)
        self._liveness = Liveness(passing, self.clock, self.worker_id, self._presence)
        self._vacuum = Vacuum(passing)
        self._wakeups = Wakeups(passing, self.clock, self.worker_id, self._tell)
        self._writer = Lanes(self._connect_writer, self.clock, self.worker_id, deliver=self._written, died=self._died,
                             faults=faults)  # fmt: skip
        self._loans = Loans(
            functools.partial(connect, self._options, ours=False), self.clock, self.worker_id, self._options.schema,
            look_up=self._look_up, tell=lambda changes: self._written([], changes), hook=self._writer.hook,
            died=self.abandon,
        )  # fmt: skip

    @classmethod
    def from_url(
        cls, url: str, *, clock: Clock | None = None, faults: Faults | None = None, name: str = ""
    ) -> PostgresStore:
        """Make a store for `postgresql://user@host/database?schema=holdfast`."""
        return cls(parse_url(url), clock=clock, faults=faults, name=name)

    # Life of the store

    async def open(self) -> None:
        self._begin()
        db = None
        try:
            db = await self._connect_writer()
            looks = self.refuses is not None
            if not looks:
                await self._probe(db)
            if not await insist(functools.partial(migrate, db, self._options.schema, self.clock.now(), looks=looks)):
                self.refuses = f"{self.url!r} can only be looked at and cannot be changed: its role may not write"
            await self._wakeups.open(f"holdfast_{await secret_of(db)}")
        except BaseException as error:
            await goodbye(db)
            if isinstance(
                error, (*TROUBLE, asyncpg.PostgresError, ValueError)
            ):  # what the driver cannot read of the URL
                raise StoreUnavailable(
                    f"{self.url!r} cannot be opened: {self._told(error)}{_advice(error, self.url)}"
                ) from None
            raise
        self._writer.open(db)
        self._open = True

    async def _probe(self, db: Connection) -> None:
        other = await connect(self._options)
        try:
            await probe(other, db, self.url)
        finally:
            await goodbye(other)

    def _told(self, error: BaseException) -> str:
        if isinstance(error, TimeoutError) and not str(error):
            return "it did not answer in time"
        return without_secrets(str(error) or repr(error), self._options.dsn)

    async def _connect_writer(self) -> Connection:
        db = await connect(self._options)
        if isinstance(self.clock, DatabaseClock):
            await self.clock.begin(db)
        return db

    async def close(self) -> None:
        """Write what is queued, give back what is leased, and let go of the connections."""
        if not self._open:
            return
        if self._registered:
            self._liveness.fall_silent()  # a heartbeat would say again that we are there
            self._flush()
            await self._writer.merge()  # what is queued is still ours
            forget(self._submit(self._departs(), journal=False))
        self._open = False
        self._flush()
        await self._loans.close()
        await self._writer.stop()
        await asyncio.gather(
            self._readers.close(), asyncio.to_thread(self._liveness.end), self._wakeups.close(), self._vacuum.close()
        )

    def abandon(self) -> None:
        if self._open:
            self._open = False
            self._flush()
            self._writer.kill()
        self._died()

    def _died(self) -> None:
        """Let go of everything because a writer ended: as of a killed process, nothing of us stays."""
        self._open = False
        self._writer.kill()
        self._loans.abort()
        self._liveness.abort()
        self._readers.abort()
        self._wakeups.abort()
        self._vacuum.abort()

    def observe(self, commit: Callable[[int, float], None]) -> None:
        self._writer.observe(commit)
        self._loans.observe = commit

    def ailment(self) -> Ailment | None:
        if self._writer.ended:
            return Ailment("the task that writes the store has ended", lasting=True)
        trouble, now = self._writer.trouble, "the store cannot be written now"
        return None if trouble is None else Ailment(now, lasting=False, trouble=str(trouble))

    # Writing

    async def _may_be_due(self, claim: Claim) -> bool:
        return True  # a claim that finds nothing is one statement that writes nothing

    def take(self, run: str, epoch: int, expected_seq: int, seen: int) -> asyncio.Future[Taken] | None:
        if self._waiting or not self._writer.idle:
            return None  # what is appended goes out together with what others write
        return self._submit(Take(run, epoch, expected_seq, seen), small=True, runs=[run])

    def transaction(self, isolation: str) -> AbstractAsyncContextManager[Joint]:
        self._check_open()
        return self._loans.lend(isolation)

    def shuts_out(self, isolation: str) -> bool:
        return isolation == "serializable"

    def _look_up(self, batch: Sequence[QueuedAppend]) -> asyncio.Future[int | None]:
        return self._submit(lambda tx: found(tx, batch), journal=False, runs=[batch[0].append.run])

    def _submit(self, do: Callable[[Transaction], Asking[T]], *, journal: bool = True, small: bool = False,
                runs: Sequence[str] | None = None) -> asyncio.Future[T]:  # fmt: skip
        future = super()._submit(do, journal=journal, small=small, runs=runs)
        if small and len(self._waiting) == 1 and self._writer.idle:
            self._flush()  # a caller waits for just this: it does not wait for others to go with it
        return future

    def _flush(self) -> None:
        batch, self._waiting = self._waiting, []
        if batch:
            self._writer.submit(batch)

    def _written(self, results: Sequence[Result], changes: dict[str, News]) -> None:
        self._wakeups.tell(changes)  # first: callers here go on while other processes hear of it
        self._deliver(results, changes)
        for one, _, error in results:
            if type(one) is QueuedAppend and one.append.releases is not None and error is None:
                after, until = one.append.releases
                self._vacuum.left(until - after)

    async def _hold_lock(self) -> None:
        try:
            await asyncio.wrap_future(self._liveness.hold())
        except TROUBLE as error:
            raise StoreUnavailable(f"the lock of this worker cannot be taken: {self._told(error)}") from None

    def heartbeat(self, ttl_ms: int) -> list[Lease]:
        self._check_open()
        return self._liveness.beat(ttl_ms)

    def _presence(self) -> dict[str, Any]:
        """Parameters of the row of this incarnation."""
        return {"worker": self.worker_id, "agents": to_json(sorted(self._served)), "queues": listed(self.queues),
                "version": self.code_version, "load": self._load_text()}  # fmt: skip

    async def recover(self) -> int:
        known = await self._read(rows, "workers")
        return sum([await self._submit(functools.partial(_bury, worker=worker)) for worker, *_, alive in known
                    if not alive and worker != self.worker_id])  # fmt: skip

    # Reading

    def _limit_of_reads(self) -> float | None:
        return self.read_limit_s()

    async def _read(self, read: Callable[P, Asking[T]], *arguments: P.args, **named: P.kwargs) -> T:
        return await self._readers.read(read, *arguments, **named)

    async def _snapshot(self, read: Callable[P, Asking[T]], *arguments: P.args, **named: P.kwargs) -> T:
        connection = await connect(self._options)
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await Answers(connection).do(read(*arguments, **named))
        except (*TROUBLE, asyncpg.PostgresError) as error:
            raise StoreUnavailable(f"{self.url!r} cannot be read: {self._told(error)}") from None
        finally:
            await goodbye(connection)

    _glance = _read  # one round trip is one, however few rows come back

    async def _living(self) -> list[Living]:
        known = await self._read(rows, "workers")
        return [Living.of(worker, names, queues) for worker, names, queues, _, _, alive in known if alive]

    async def _copy_out(self, part: Part) -> int:
        connection = await connect(self._options)
        try:
            return await copy_out(connection, part, self.clock.now())
        except (*TROUBLE, asyncpg.PostgresError) as error:
            raise StoreUnavailable(f"{self.url!r} cannot be copied: {self._told(error)}") from None
        finally:
            await goodbye(connection)

    async def restore(self, path: str | os.PathLike[str], *, by: str, via: str) -> int:
        connection = backup = None
        try:
            backup = await asyncio.to_thread(opened, path)  # first: nothing is touched for what is no backup
            connection = await self._connect_writer()
            now = self.clock.now()
            await insist(functools.partial(migrate, connection, self._options.schema, now))
            return await copy_in(connection, backup, now, by, via)
        except (*TROUBLE, asyncpg.PostgresError) as error:
            raise StoreUnavailable(f"{self.url!r} cannot be filled: {self._told(error)}") from None
        finally:
            await goodbye(connection)
            if backup is not None:
                backup.db.close()

    async def facts(self) -> dict[str, Any]:
        ((version, database, schema, commit, size),) = await self._read(rows, "about")
        ((gaps,),) = await self._read(rows, "gaps", reason=ON_TEMPORAL)
        about = {"store": "postgresql", "server": version, "database": database, "schema_name": schema,
                 "synchronous_commit": commit, "bytes": size,
                 "integrity": "ok" if not gaps else f"{gaps} runs have more or fewer events than they should"}  # fmt: skip
        return about | await self._read(facts) | {"url": self.url, "worker": self.worker_id}


def _bury(tx: Transaction, worker: str) -> Asking[int]:
    """Bury an incarnation if it is dead: no session holds its lock."""
    ((free,),) = yield from tx.rows("seize", worker=worker)
    known = yield from tx.rows("workers")
    if not free or all(each != worker for each, *_ in known):  # it lives, or another process was quicker
        return 0
    return (yield from bury(tx, worker))


def _advice(error: BaseException, url: str) -> str:
    """Advise what to do about a server that cannot be reached, lets nobody in, or has no TLS though the URL wants it."""
    if "rejected SSL" in str(error):
        return (
            "; to another machine nothing goes in the clear unless the URL says so: give the server a certificate and write "
            "?sslmode=verify-full, or write ?sslmode=disable for a network that you trust"
        )
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return "; make it with `createdb`, at that host and as a role that may, or name another in the URL"
    if isinstance(error, asyncpg.InvalidPasswordError):
        return "; a password is taken from the URL, from PGPASSWORD or from ~/.pgpass"
    if "issuer certificate" in str(error) or "self-signed" in str(error):
        return "; sslrootcert=FILE names a certificate authority that the system does not know"
    if isinstance(error, FileNotFoundError):
        if re.search(r"[?&]ssl(rootcert|cert|key|crl)=", url) or any(name.startswith("PGSSL") for name in os.environ):
            return "; are the files there that sslrootcert=, sslcert= and sslkey= name?"
        return "; is a PostgreSQL server there? While it runs, its socket is in the folder that host= names"
    if isinstance(error, (ConnectionRefusedError, TimeoutError)):
        return "; is a PostgreSQL server there, at that host and port?"
    return ""
