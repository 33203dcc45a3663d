"""The SQLite store: one file, any number of processes on one computer.

A writer thread commits (writer.py), others read (readers.py), and the loop queues and is told. What the statements mean,
the order of locks and the crash points are at the head of queries.sql.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import apsw

from holdfast.errors import StoreUnavailable
from holdfast.store import backup
from holdfast.store.appends import Append, QueuedAppend, Told
from holdfast.store.backup import Part
from holdfast.store.changes import News
from holdfast.store.contract import Ailment
from holdfast.store.inbox import inbox
from holdfast.store.journal import journal
from holdfast.store.leases import Lease, prolong
from holdfast.store.migrate import migrate
from holdfast.store.operations import Aside, Faults, Result
from holdfast.store.sqlite import connection
from holdfast.store.sqlite.connection import PAGE_BYTES, Durability, check_library, check_process, connect, parse_url
from holdfast.store.sqlite.peers import Peers
from holdfast.store.sqlite.readers import Readers
from holdfast.store.sqlite.transactions import Loans
from holdfast.store.sqlite.wal import Runway
from holdfast.store.sqlite.writer import Writer
from holdfast.store.store import Store, facts
from holdfast.store.transactions import Joint
from holdfast.store.work import Asking, forget, rows, settle
from holdfast.store.workers import Living, bury
from holdfast.words.clock import Clock, SystemClock
from holdfast.words.harmless import logger
from holdfast.words.model import Event, Signal

_log = logger("holdfast.store")
T = TypeVar("T")
P = ParamSpec("P")

_AT_A_GLANCE: Final = 100  # events that are read on the loop; of more the reader threads read all
_SEEN_LATELY_MS: Final = 60_000


class SQLiteStore(Store):
    """A `Store` in a SQLite file. Open it in the loop that uses it."""

    def __init__(self, path: str | os.PathLike[str], *, durability: Durability = "power", clock: Clock | None = None,
                 faults: Faults | None = None, name: str = "") -> None:  # fmt: skip
        check_library()
        super().__init__(clock if clock is not None else SystemClock(), name)
        self.path, self._file = str(Path(path).absolute()), os.fspath(path)
        self.url = f"sqlite:{path}" + ("" if durability == "power" else f"?durability={durability}")
        self._connect = functools.partial(connect, self.path, durability)
        self._peers = Peers(self.path, self.worker_id)
        self._writer = Writer(
            self._open_for_writing, self.clock, self.worker_id, deliver=self._from_writer,
            committed=self._peers.poke, moved=self._moved, died=self._died, faults=faults,
            runway=Runway(self.path, PAGE_BYTES) if durability == "power" else None,
        )  # fmt: skip
        self._loans = Loans(
            self._connect, self.clock, self.worker_id, submit=lambda work: self._submit(work, journal=False, small=True),
            died=self._writer.kill, faults=faults,
        )  # fmt: skip
        self._view: backup.View | None = None  # of what is only looked at
        self._readers = Readers(self.path, self._connect_to_read, self._check_open)
        self._on_its_way = 0  # operations given to the writer's thread whose results have not come back to the loop

    @classmethod
    def from_url(
        cls, url: str, *, clock: Clock | None = None, faults: Faults | None = None, name: str = ""
    ) -> SQLiteStore:
        """Make a store for `sqlite:PATH` or `sqlite:PATH?durability=process`."""
        options = parse_url(url)
        made = cls(options.path, durability=options.durability, clock=clock, faults=faults, name=name)
        made.inputs = options.inputs
        return made

    # Life of the store

    async def open(self) -> None:
        check_process()
        self._begin()
        if await asyncio.to_thread(lambda: self.is_backup):
            self.refuses = (
                f"{self._file!r} is a backup: it can be looked at and cannot be changed. Make a store of it: "
                f"holdfast restore {shlex.quote(self._file)} --db sqlite:NEW.db"
            )
            await self._open_view()
            return
        if self.refuses is not None and await asyncio.to_thread(backup.is_older, self.path):
            await self._open_view()
            return
        opened: asyncio.Future[None] = self._loop.create_future()

        def tell(error: BaseException | None) -> None:
            if error is None:
                self._on_loop(opened.set_result, None)
            else:
                self._on_loop(opened.set_exception, error)

        self._writer.start(tell)
        await opened
        self._open = True
        try:
            await self._readers.open()
            self._peers.listen(self._loop, lambda run, news: self._tell({run: news}))
        except BaseException:  # nobody will close what was never open
            await self.close()
            raise

    @functools.cached_property
    def is_backup(self) -> bool:  # it is asked of the file once
        return backup.is_backup(self.path)

    async def _open_view(self) -> None:
        """Open only to look: there is no writer, no lock and no socket, so the file stays as it is and nothing lies beside it."""
        try:
            self._view = await asyncio.to_thread(backup.View, self.path)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise StoreUnavailable(f"{self.path!r} cannot be opened: {error}") from None
        await self._readers.open()
        self._open = True

    def _connect_to_read(self) -> apsw.Connection:
        return self._connect() if self._view is None else self._view.connect()

    def _open_for_writing(self) -> apsw.Connection:
        try:
            db = self._connect(writer=True)
            try:
                migrate(db, self.clock.now())
            except BaseException:
                db.close(force=True)
                raise
        except apsw.NotADBError:
            raise StoreUnavailable(f"{self.path!r} is not a SQLite file; name another one") from None
        except apsw.Error as error:
            raise StoreUnavailable(f"{self.path!r} cannot be opened: {error}") from None
        return db

    async def close(self) -> None:
        """Write what is queued, give back what is leased, and let go of the file."""
        if not self._open:
            return
        if self._registered:
            forget(self._submit(self._departs(), journal=False))  # on a full disk it would never be done
        self._open = False
        self._loans.close()
        if self._view is None:
            self._hand_over()
            self._writer.stop()
            await asyncio.to_thread(self._writer.join)
        await asyncio.to_thread(self._readers.close)
        self._peers.close()
        if self._view is not None:
            self._view.close()

    def abandon(self) -> None:
        self._open = False
        self._loans.close()
        self._hand_over()
        self._writer.kill()
        self._readers.close()
        self._peers.close(died=True)

    def _died(self) -> None:
        """Let go, in the writer's thread, when it was killed: of the lock first, as the kernel would."""
        self._open = False
        self._peers.unlock()
        self._on_loop(self._bury)

    def _bury(self) -> None:
        """Refuse, on the loop, what it may have queued while the writer died; from now on it cannot."""
        self._loans.close()
        self._hand_over()
        self._writer.refuse_rest()
        self._peers.close(died=True)

    def observe(self, commit: Callable[[int, float], None]) -> None:
        self._writer.observe = self._loans.observe = commit

    def ailment(self) -> Ailment | None:
        if self._view is not None:
            return None  # there is nothing to write
        if not self._writer.thread.is_alive():
            return Ailment("the thread that writes the store has ended", lasting=True)
        trouble, now = self._writer.trouble, "the store cannot be written now"
        if isinstance(trouble, apsw.Error):
            return Ailment(f"{now}: {trouble}", lasting=False)  # SQLite's own words, which name no file
        return None if trouble is None else Ailment(now, lasting=False, trouble=str(trouble))

    def _moved(self) -> None:
        """Tell listeners, from the writer's thread, that another process committed."""
        self._on_loop(self._tell, {"": News.DUE})

    def _from_writer(self, results: Sequence[Result], changes: dict[str, News]) -> None:
        """Pass results on, in the writer's thread: to the loop, which hears when it turns, then to callers in other threads."""
        asides = [result for result in results if type(result[0]) is Aside]
        if asides:
            results = [result for result in results if type(result[0]) is not Aside]
        self._on_loop(self._came_back, results, changes)
        for operation, value, error in asides:
            operation.told(value, error)

    def _came_back(self, results: Sequence[Result], changes: dict[str, News]) -> None:
        self._on_its_way -= len(results)
        self._deliver(results, changes)

    def _on_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            _log.debug("the loop is closed; nobody waits any more")

    # Writing

    def transaction(self, isolation: str) -> AbstractAsyncContextManager[Joint]:
        self._check_open()
        return self._loans.lend()  # alone in the file, which is stricter than any isolation

    def shuts_out(self, isolation: str) -> bool:
        return True

    def post(self, append: Append, told: Told, *, alone: bool = False) -> None:
        self._check_open()
        queued = QueuedAppend(append, told)
        written = self._writer.write_here([queued]) if alone and not self._waiting and not self._on_its_way else None
        if written is None:
            self._queue(queued)
        else:
            self._deliver(*written)

    def _flush(self) -> None:
        batch = self._waiting
        written = self._writer.write_here(batch) if batch and not self._on_its_way else None
        if written is None:
            self._hand_over()
        else:
            self._waiting = []
            self._deliver(*written)

    def _hand_over(self) -> None:
        batch, self._waiting = self._waiting, []
        if batch:
            self._on_its_way += len(batch)
            self._writer.submit(batch)

    async def _hold_lock(self) -> None:
        await self._readers.aside(self._peers.lock)

    def heartbeat(self, ttl_ms: int) -> list[Lease]:
        self._check_open()
        answer: concurrent.futures.Future[list[Lease]] = concurrent.futures.Future()
        work = functools.partial(prolong, ttl_ms=ttl_ms, load=self._load_text())
        self._writer.submit([Aside(work, functools.partial(settle, answer), journal=False)])
        try:
            return answer.result(ttl_ms / 1000)
        except TimeoutError:
            raise StoreUnavailable(f"the leases could not be prolonged within {ttl_ms} ms") from None

    async def recover(self) -> int:
        known = await self._read(rows, "workers")
        recovered = 0
        for worker in sorted({row[0] for row in known} | set(self._peers.lock_files())):
            lock = self._peers.seize(worker)
            if lock is None:
                continue
            try:
                recovered += await self._submit(functools.partial(bury, worker=worker))
            except BaseException:
                self._peers.put_back(lock)
                raise
            self._peers.remove(worker, lock)
        return recovered

    # Reading

    async def _read(self, read: Callable[P, Asking[T]], *arguments: P.args, **named: P.kwargs) -> T:
        return await self._readers.read(read, *arguments, **named)

    async def _snapshot(self, read: Callable[P, Asking[T]], *arguments: P.args, **named: P.kwargs) -> T:
        return await self._readers.snapshot(read, *arguments, **named)

    async def _glance(self, read: Callable[P, Asking[T]], *arguments: P.args, **named: P.kwargs) -> T:
        return await self._readers.glance(read, *arguments, **named)

    async def journal(
        self, run: str, from_seq: int = 0, limit: int | None = None, dropped: bool = False
    ) -> list[Event]:
        few = _AT_A_GLANCE if limit is None else min(limit, _AT_A_GLANCE)
        found = await self._readers.glance(journal, run, from_seq, few, dropped)
        if len(found) < _AT_A_GLANCE or few == limit:
            return found
        return await self._readers.read(journal, run, from_seq, limit, dropped)

    async def inbox(self, run: str, after: int, limit: int = 1000) -> list[Signal]:
        found = await self._readers.glance(inbox, run, after, min(limit, _AT_A_GLANCE))
        return found if len(found) < _AT_A_GLANCE else await self._readers.read(inbox, run, after, limit)

    async def _living(self) -> list[Living]:
        found = []
        for worker, names, queues, _, seen_at in await self._read(rows, "workers"):
            alive = self._peers.alive(worker)
            if seen_at > self.clock.now() - _SEEN_LATELY_MS if alive is None else alive:
                found.append(Living.of(worker, names, queues))
        return found

    async def _copy_out(self, part: Part) -> int:
        try:
            return await asyncio.to_thread(self._copy_to, part)
        except BaseException:
            part.unwanted = True
            raise

    def _copy_to(self, part: Part) -> int:
        source = target = None
        try:
            source, target = self._connect(), part.open()
            backup.copy_pages(source, target, part.check_wanted)
            target.pragma("journal_mode", "delete")
            of: str = target.execute("SELECT id FROM identity").get
            runs = backup.seal(target, of, self.clock.now())
            part.finish(target)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise StoreUnavailable(f"the backup {str(part.path)!r} cannot be written: {error}") from None
        finally:
            for db in (source, target):
                if db is not None:
                    db.close(force=True)
            part.discard()
        return runs

    async def restore(self, path: str | os.PathLike[str], *, by: str, via: str) -> int:
        try:
            return await asyncio.to_thread(backup.restore_file, path, self.path, self.clock.now(), by, via)
        except apsw.Error as error:
            raise StoreUnavailable(f"{self.path!r} cannot be written: {error}") from None

    async def facts(self) -> dict[str, Any]:
        about = await self._readers.look(functools.partial(connection.facts, path=self.path))
        about |= {"url": self.url, "worker": self.worker_id}
        try:
            return about | await self._read(facts)
        except StoreUnavailable:
            if about["integrity"] == "ok":
                raise
            return about  # of a damaged file not all can be read
