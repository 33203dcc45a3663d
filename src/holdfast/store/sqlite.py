"""The SQLite store: one file, any number of processes on one computer.

A writer thread commits (writer.py), others read (readers.py), and the loop queues and is told. What the statements mean,
the order of locks and the crash points are at the head of queries.sql.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw

from holdfast.clock import Clock, SystemClock
from holdfast.errors import StoreUnavailable
from holdfast.model import ApprovalRow, Event, RunRow, Signal
from holdfast.store import leases, outside, reads
from holdfast.store.appends import QueuedAppend
from holdfast.store.base import Ailment, Append, Census, Change, Faults, Lease, NewRun, News, Told, settle
from holdfast.store.connection import Durability, check_library, connect, parse_url
from holdfast.store.migrate import migrate
from holdfast.store.peers import Peers
from holdfast.store.readers import Readers
from holdfast.store.transaction import Transaction, listed, to_json
from holdfast.store.writer import Aside, Operation, Result, Work, Writer

_log = logging.getLogger("holdfast.store")
T = TypeVar("T")

_AT_A_GLANCE: Final = 100  # events that are read on the loop; of more the reader threads read all
_PRUNED_AT_ONCE: Final = 50  # root runs per transaction: others can write in between
_SEEN_LATELY_MS: Final = 60_000


def _forget(future: asyncio.Future[Any]) -> None:
    """Nobody waits for this one; its failure was logged where it happened."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())


class SQLiteStore:
    """A `Store` in a SQLite file. Open it in the loop that uses it."""

    def __init__(self, path: str | os.PathLike[str], *, durability: Durability = "power", clock: Clock | None = None,
                 faults: Faults | None = None) -> None:  # fmt: skip
        check_library()
        self.path = str(Path(path).absolute())
        self.url = f"sqlite:{path}" + ("" if durability == "power" else f"?durability={durability}")
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.worker_id = secrets.token_hex(8)
        self._connect = functools.partial(connect, self.path, durability)
        self._peers = Peers(self.path, self.worker_id)
        self._writer = Writer(
            self._open_for_writing, self.clock, self.worker_id, deliver=self._from_writer,
            committed=self._peers.poke, moved=self._moved, died=self._died, faults=faults,
        )  # fmt: skip
        self._readers = Readers(self.path, self._connect, self._check_open)
        self._listeners: list[Callable[[Change], None]] = []
        self._served: set[str] = set()
        self._waiting: list[Operation] = []
        self._said_due = False  # a commit of ours made a run due, and no claim has looked since
        self._on_its_way = 0  # operations given to the writer's thread whose results have not come back to the loop
        self._open = self._registered = False

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None, faults: Faults | None = None) -> SQLiteStore:
        """A store for `sqlite:PATH` or `sqlite:PATH?durability=process`."""
        options = parse_url(url)
        return cls(options.path, durability=options.durability, clock=clock, faults=faults)

    # Life of the store

    async def open(self) -> None:
        self._loop, self._context = asyncio.get_running_loop(), contextvars.copy_context()
        opened: asyncio.Future[None] = self._loop.create_future()

        def tell(error: BaseException | None) -> None:
            if error is None:
                self._on_loop(opened.set_result, None)
            else:
                self._on_loop(opened.set_exception, error)

        self._writer.start(tell)
        await opened
        await self._readers.open()
        self._open = True
        self._peers.listen(self._loop, lambda run, news: self._tell([Change(run, news)]))

    def _open_for_writing(self) -> apsw.Connection:
        try:
            db = self._connect(writer=True)
            try:
                migrate(db, self.clock.now())
            except BaseException:
                db.close(force=True)
                raise
        except apsw.NotADBError as error:
            raise StoreUnavailable(f"{self.path!r} is not a SQLite file; name another one") from error
        except apsw.Error as error:
            raise StoreUnavailable(f"{self.path!r} cannot be opened: {error}") from error
        return db

    async def close(self) -> None:
        """Write what is queued, give back what is leased, and let go of the file."""
        if not self._open:
            return
        if self._registered:
            _forget(self._submit(leases.depart(self.worker_id), journal=False))  # on a full disk it would never be done
        self._open = False
        self._hand_over()
        self._writer.stop()
        await asyncio.to_thread(self._writer.join)
        await asyncio.to_thread(self._readers.close)
        self._peers.close()

    def abandon(self) -> None:
        self._open = False
        self._hand_over()
        self._writer.kill()
        self._readers.close()
        self._peers.close(died=True)

    def _died(self) -> None:
        """In the writer's thread, when it was killed: the lock goes first, as the kernel would let go of it."""
        self._open = False
        self._peers.unlock()
        self._on_loop(self._bury)

    def _bury(self) -> None:
        """On the loop, which may have queued something while the writer died; from now on it cannot."""
        self._hand_over()
        self._writer.refuse_rest()
        self._peers.close(died=True)

    def on_change(self, listener: Callable[[Change], None]) -> None:
        self._listeners.append(listener)

    def observe(self, commit: Callable[[int, float], None]) -> None:
        self._writer.observe = commit

    def ailment(self) -> Ailment | None:
        if not self._writer.thread.is_alive():
            return Ailment("the thread that writes the store has ended", lasting=True)
        return Ailment("the store cannot be written now", lasting=False) if self._writer.troubled else None

    def _moved(self) -> None:
        """In the writer's thread: another process committed."""
        self._on_loop(self._tell, [Change("", News.DUE)])

    def _from_writer(self, results: Sequence[Result], changes: dict[str, News]) -> None:
        """In the writer's thread: the loop is told when it turns, and who is not on it at once."""
        asides = [result for result in results if type(result[0]) is Aside]
        for operation, value, error in asides:
            operation.told(value, error)
        if asides:
            results = [result for result in results if type(result[0]) is not Aside]
        self._on_loop(self._came_back, results, changes)

    def _came_back(self, results: Sequence[Result], changes: dict[str, News]) -> None:
        self._on_its_way -= len(results)
        self._deliver(results, changes)

    def _on_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            _log.debug("the loop is closed; nobody waits any more")

    def _deliver(self, results: Sequence[Result], changes: dict[str, News]) -> None:
        """On the loop, after a commit: everyone who waits for it, then everyone who listens."""
        for operation, value, error in results:
            try:
                operation.told(value, error)
            except Exception:  # noqa: BLE001 - whatever it is, the next one must hear
                _log.exception("what followed a write failed")
        self._said_due = self._said_due or News.DUE in changes.values()
        if self._listeners:
            self._tell([Change(run, news) for run, news in changes.items()])

    def _tell(self, changes: Iterable[Change]) -> None:
        for change in changes:
            for listener in self._listeners:
                try:
                    listener(change)
                except Exception:  # noqa: BLE001 - whatever it is, the next one must hear
                    _log.exception("a listener failed")

    # Writing

    def _check_open(self) -> None:
        if not self._open:
            raise StoreUnavailable("the store is not open")

    def _submit(
        self, do: Callable[[Transaction], T], *, journal: bool = True, small: bool = False
    ) -> asyncio.Future[T]:
        self._check_open()
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue(Work(do, functools.partial(settle, future), journal, small))
        return future

    def post(self, append: Append, told: Told, *, alone: bool = False) -> None:
        self._check_open()
        queued = QueuedAppend(append, told)
        written = self._writer.write_here([queued]) if alone and not self._waiting and not self._on_its_way else None
        if written is None:
            self._queue(queued)
        else:
            self._deliver(*written)

    def append(self, append: Append) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self._loop.create_future()
        self.post(append, functools.partial(settle, future))
        return future

    def _queue(self, operation: Operation) -> None:
        """Collect what comes in one turn of the loop: it goes out together."""
        self._waiting.append(operation)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._flush, context=self._context)  # not in that of whoever writes first

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

    async def claim(self, agents: Iterable[str], limit: int, ttl_ms: int, *, root: str | None = None,
                    queues: Sequence[str] | None = None, alone: bool = False,
                    sure: bool = False) -> list[RunRow]:  # fmt: skip
        claim = leases.Claim(list(agents), limit, ttl_ms, root, None if queues is None else list(queues), alone)
        if limit < 1:
            return []
        # Look before writing, for an idle claim should cost no transaction; not when a commit of ours just said so.
        said_so, self._said_due = self._said_due, False
        if not (said_so or sure):
            due = await self._readers.glance(
                reads.rows, "due", agents=to_json(claim.agents), worker=self.worker_id, root=root, queues=listed(queues),
                alone=int(alone), limit=1, now=self.clock.now(),
            )  # fmt: skip
            if not due:
                return []
        if not self._registered:
            await self.publish([])
        work = self._submit(claim, small=True)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(self._give_back)
            raise

    def _give_back(self, work: asyncio.Future[list[RunRow]]) -> None:
        """Who claimed was cancelled: the runs would stay leased to a process that does not know of them."""
        claimed = [] if work.cancelled() or work.exception() is not None else work.result()
        if self._open and claimed:
            _forget(self._submit(leases.release([(run.id, run.lease_epoch) for run in claimed])))

    async def publish(self, agents: Iterable[tuple[str, str | None, str]]) -> None:
        published = list(agents)
        self._served.update(name for name, _, _ in published)
        if not self._registered:
            # The lock first: from the first lease on, whoever can take it takes us for dead.
            await self._readers.aside(self._peers.lock)
        await self._submit(outside.publish(published, sorted(self._served)), journal=False)
        self._registered = True

    def heartbeat(self, ttl_ms: int) -> list[Lease]:
        self._check_open()
        answer: concurrent.futures.Future[list[Lease]] = concurrent.futures.Future()
        self._writer.submit([Aside(leases.heartbeat(ttl_ms), functools.partial(settle, answer), journal=False)])
        try:
            return answer.result(ttl_ms / 1000)
        except TimeoutError:
            raise StoreUnavailable(f"the leases could not be prolonged within {ttl_ms} ms") from None

    async def recover(self) -> int:
        known = await self._readers.read(reads.rows, "workers")
        recovered = 0
        for worker in sorted({row[0] for row in known} | set(self._peers.lock_files())):
            lock = self._peers.seize(worker)
            if lock is None:
                continue
            try:
                recovered += await self._submit(leases.bury(worker))
            except BaseException:
                self._peers.put_back(lock)
                raise
            self._peers.remove(worker, lock)
        return recovered

    async def create(self, run: NewRun, blobs: dict[str, bytes] | None = None) -> tuple[RunRow, bool]:
        return await self._submit(outside.create(run, blobs or {}), small=not blobs)

    async def send(self, run: str, signal_id: str, kind: str, topic: str, value: str | None, data: dict[str, Any],
                   blobs: dict[str, bytes] | None = None) -> int:  # fmt: skip
        return await self._submit(outside.send(run, signal_id, kind, topic, value, data, blobs or {}), small=not blobs)

    async def decide(self, approval: str, decision: str, by: str, note: str) -> ApprovalRow:
        return await self._submit(outside.decide(approval, decision, by, note), small=True)

    async def resume(self, run: str, *, by: str, cut: int | None = None, retry: bool = False) -> None:
        await self._submit(outside.resume(run, by, cut, retry))

    async def delete(self, run: str) -> int:
        return await self._submit(outside.delete(run))

    async def prune(self, before: int, statuses: Iterable[str], limit: int = 1000) -> int:
        wanted, spared, pruned = list(statuses), set[str](), 0
        while pruned < limit:
            at_once, spared_before = min(_PRUNED_AT_ONCE, limit - pruned), len(spared)
            done = await self._submit(outside.prune(before, wanted, at_once, spared))
            pruned += done
            if done + len(spared) - spared_before < at_once:
                break
        return pruned

    # Reading

    async def run(self, run: str) -> RunRow | None:
        return await self._readers.glance(reads.run, run)

    async def runs(self, *, statuses: Iterable[str] | None = None, agent: str | None = None,
                   labels: dict[str, str] | None = None, parent: str | None = None, root: str | None = None,
                   limit: int = 100, after: str | None = None) -> list[RunRow]:  # fmt: skip
        return await self._readers.read(reads.runs, statuses, agent, labels, parent, root, limit, after)

    async def journal(
        self, run: str, from_seq: int = 0, limit: int | None = None, dropped: bool = False
    ) -> list[Event]:
        few = _AT_A_GLANCE if limit is None else min(limit, _AT_A_GLANCE)
        found = await self._readers.glance(reads.journal, run, from_seq, few, dropped)
        if len(found) < _AT_A_GLANCE or few == limit:
            return found
        return await self._readers.read(reads.journal, run, from_seq, limit, dropped)

    async def feed(self, after: int, kinds: Iterable[str] | None, limit: int = 500) -> list[Event]:
        return await self._readers.read(reads.feed, after, kinds, limit)

    async def inbox(self, run: str, after: int, limit: int = 1000) -> list[Signal]:
        found = await self._readers.glance(reads.inbox, run, after, min(limit, _AT_A_GLANCE))
        return found if len(found) < _AT_A_GLANCE else await self._readers.read(reads.inbox, run, after, limit)

    async def blob(self, digest: str) -> bytes:
        return await self._readers.read(reads.blob, digest)

    async def approvals(self, *, run: str | None = None, approval: str | None = None,
                        statuses: Iterable[str] = ("open",), limit: int = 100) -> list[ApprovalRow]:  # fmt: skip
        return await self._readers.read(reads.approvals, run, approval, statuses, limit)

    async def agents(self) -> dict[str, tuple[str | None, str, bool]]:
        served: set[str] = set()
        for worker, names, _, seen_at in await self._readers.read(reads.rows, "workers"):
            alive = self._peers.alive(worker)
            if seen_at > self.clock.now() - _SEEN_LATELY_MS if alive is None else alive:
                served.update(json.loads(names))
        found = await self._readers.read(reads.rows, "agents")
        return {name: (version, schema, name in served) for name, version, schema in found}

    async def next_due(self, agents: Iterable[str], *, root: str | None = None, queues: Sequence[str] | None = None,
                       alone: bool = True) -> int | None:  # fmt: skip
        found = await self._readers.glance(
            reads.rows, "next_due", agents=to_json(list(agents)), worker=self.worker_id, root=root, queues=listed(queues),
            alone=int(alone),
        )  # fmt: skip
        return found[0][0] if found else None

    async def census(self) -> list[Census]:
        return [Census(*row) for row in await self._readers.read(reads.rows, "census", now=self.clock.now())]

    async def stuck(self, late_ms: int, limit: int = 100) -> list[RunRow]:
        late = self.clock.now() - late_ms
        return [RunRow(*row) for row in await self._readers.read(reads.rows, "stuck", late=late, limit=limit)]

    async def audit(self, run: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
        return await self._readers.read(reads.audit, run, limit)

    async def facts(self) -> dict[str, Any]:
        return await self._readers.read(reads.facts, self.path) | {"url": self.url, "worker": self.worker_id}
