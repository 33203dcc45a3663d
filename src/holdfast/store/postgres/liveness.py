"""Liveness of this incarnation: a thread with a session of its own, which holds a lock and prolongs the leases.

The lock is the session's, on the incarnation's random id. When the process dies, however it dies, the session ends and the
lock is free: a process that can take it knows that the owner is gone. A process that is merely stopped keeps its connection and
so its lock; there the end of the lease decides. A host that vanished keeps it until the server's probes of the connection
fail, some seconds later.

It is a thread, because a loop that an agent keeps busy must not cost the others their leases. If the session is lost while
we live, it is opened again and the lock taken again; if others buried us meanwhile, we say again that we are there, and the
fence in the journal tells which runs are not ours any more.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from holdfast.errors import StoreUnavailable
from holdfast.store.leases import Lease
from holdfast.store.postgres.clock import DatabaseClock
from holdfast.store.postgres.connection import TROUBLE, Connection, goodbye, insist
from holdfast.store.postgres.execute import ask
from holdfast.store.work import to_json
from holdfast.words.clock import Clock
from holdfast.words.harmless import logger

_log = logger("holdfast.store")
T = TypeVar("T")
_TRY_AGAIN_S: Final = 0.2


class Liveness:
    """Everything but `start`, `hold`, `beat`, `end` and `abort` runs in its thread."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], clock: Clock, worker: str,
                 presence: Callable[[], dict[str, Any]]) -> None:  # fmt: skip
        self._connect, self._clock, self._worker, self._presence = connect, clock, worker, presence
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._db: Connection | None = None
        self._starting, self._silent = threading.Lock(), False

    # In other threads

    def hold(self) -> concurrent.futures.Future[None]:
        """Take the lock, and keep it until the end."""
        return self._call(self._hold())

    def beat(self, ttl_ms: int) -> list[Lease]:
        """Prolong the leases; blocks, at most for their time."""
        answer = self._call(self._beat(ttl_ms))
        try:
            return answer.result(ttl_ms / 1000)
        except TimeoutError:
            answer.cancel()
            raise StoreUnavailable(f"the leases could not be prolonged within {ttl_ms} ms") from None
        except concurrent.futures.CancelledError:
            raise StoreUnavailable("the store is not open") from None
        except TROUBLE as error:
            raise StoreUnavailable(f"the leases could not be prolonged: {str(error) or repr(error)}") from None

    def fall_silent(self) -> None:
        """Keep the lock, and say no more that we are there: we are about to leave."""
        self._silent = True

    def end(self) -> None:
        """Let go of the lock. Blocks until the thread is gone."""
        if self._loop is not None and self._thread is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)

    def abort(self) -> None:
        """Let go of the lock without a goodbye, as a killed process."""
        db = self._db
        if self._loop is not None and db is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(db.terminate)
        self.end()

    def _call(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        with self._starting:
            if self._thread is None:
                started: concurrent.futures.Future[None] = concurrent.futures.Future()
                self._thread = threading.Thread(
                    target=lambda: asyncio.run(self._main(started)), name="holdfast-liveness", daemon=True
                )
                self._thread.start()
                started.result()
        assert self._loop is not None
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise StoreUnavailable("the store is not open") from None

    # In its own

    async def _main(self, started: concurrent.futures.Future[None]) -> None:
        self._loop, self._stop, self._dropped = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._holds = False
        started.set_result(None)
        stop = asyncio.create_task(self._stop.wait())
        while not self._stop.is_set():
            dropped = asyncio.create_task(self._dropped.wait())
            await asyncio.wait([stop, dropped], return_when=asyncio.FIRST_COMPLETED)
            dropped.cancel()
            if self._dropped.is_set() and not self._stop.is_set():
                self._dropped.clear()
                await self._return()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await goodbye(self._db)

    async def _return(self) -> None:
        """Take the lock again, soon, after our session ended and the lock with it."""
        _log.warning("the session that shows that this worker is alive was lost; it is opened again")
        while not self._stop.is_set():
            try:
                async with self._one_at_a_time:
                    await self._session()
            except TROUBLE as trouble:
                _log.debug("no session yet: %r", trouble)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), random.uniform(0.5, 1.0) * _TRY_AGAIN_S)
            else:
                return

    async def _session(self) -> Connection:
        """Open the session, with the lock if it should have it, and the row that says that we are there."""
        if self._db is None or self._db.is_closed():
            db = await self._connect()
            db.add_termination_listener(lambda _: self._dropped.set())
            self._db = db
            if self._holds:
                await self._take(db)
                await self._say(db)
        return self._db

    async def _take(self, db: Connection) -> None:
        await ask(db, "hold", worker=self._worker)

    async def _say(self, db: Connection) -> None:
        if self._silent:
            return
        await ask(db, "register_worker", now=self._clock.now(), **self._presence())

    async def _hold(self) -> None:
        async with self._one_at_a_time:
            db = await self._session()
            if not self._holds:
                await self._take(db)
                self._holds = True

    async def _beat(self, ttl_ms: int) -> list[Lease]:
        async with self._one_at_a_time:
            for last in (False, True):
                try:
                    return await insist(lambda: self._prolong(ttl_ms))
                except TROUBLE:
                    if last:
                        raise
                    if self._db is not None:
                        self._db.terminate()
        raise AssertionError

    async def _prolong(self, ttl_ms: int) -> list[Lease]:
        db = await self._session()
        if isinstance(self._clock, DatabaseClock):
            await self._clock.measure(db)
        if self._holds:
            await self._say(db)
        now = self._clock.now()
        kept = await ask(db, "heartbeat", worker=self._worker, now=now, ttl=ttl_ms)
        # Those locked just now, if any; a writing loop that stands still may hold some, and only they wait for it.
        ids = to_json([row[0] for row in kept])
        kept += await ask(db, "heartbeat_rest", worker=self._worker, now=now, ttl=ttl_ms, ids=ids)
        return [Lease(*row) for row in kept]
