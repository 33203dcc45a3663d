"""Wake-ups of other processes: NOTIFY for listening stores, and a slow poll, which is the truth.

One connection listens and tells. What is committed is told after the commit and not in it (a notifying commit takes a lock
that all of a server's notifying commits wait for), together for all that was committed in the last few milliseconds: at
once if a process waits to act on it, and otherwise a little later.
Nothing depends on it: once a second each store asks whether any transaction ended anywhere, and if so says that something
may have changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import asyncpg

from holdfast.store.changes import Changes, News, as_text, from_text
from holdfast.store.postgres import connection
from holdfast.store.postgres.clock import DatabaseClock
from holdfast.store.postgres.connection import TROUBLE, Connection, goodbye
from holdfast.store.postgres.execute import ask
from holdfast.words.clock import Clock
from holdfast.words.harmless import logger

_log = logger("holdfast.store")
POLL_S: Final = 1.0
_TELL_EVERY_S: Final = 0.002
_TELL_REST_S: Final = 0.01  # of what no process must act on: people look at it
_LEAVE_S: Final = 2.0  # for the last words


class Wakeups:
    """Hears of other processes' commits and tells of ours."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], clock: Clock, worker: str,
                 heard: Callable[[Changes], None]) -> None:  # fmt: skip
        self._connect, self._clock, self._worker, self._heard = connect, clock, worker, heard
        self._channel = ""
        self._pending: dict[str, News] = {}
        self._more = asyncio.Event()
        self._db: Connection | None = None
        self._progress: int | None = None
        self._leaving = False
        self._later: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self, channel: str) -> None:
        self._channel = channel
        await self._listen()
        self._task = asyncio.get_running_loop().create_task(self._main())

    async def close(self) -> None:
        """Tell the rest, and leave."""
        self._leaving = True
        self._more.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_LEAVE_S)
            self._task.cancel()
        await goodbye(self._db)

    def abort(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._db is not None:
            self._db.terminate()

    def tell(self, changes: dict[str, News]) -> None:
        """Have other processes hear of this soon."""
        for run, how in changes.items():
            self._pending[run] = max(self._pending.get(run, how), how)
        if changes and max(changes.values()) >= News.STOPPED:
            self._more.set()
        elif changes and self._later is None:
            self._later = asyncio.get_running_loop().call_later(_TELL_REST_S, self._more.set)

    async def _listen(self) -> None:
        self._db = await self._connect()
        self._db.add_termination_listener(lambda _: self._more.set())
        await self._db.add_listener(self._channel, self._hear)
        self._progress = await self._newest(self._db)

    def _hear(self, _connection: Any, _process: int, _channel: str, payload: str) -> None:
        sender, _, text = payload.partition("\n")
        if sender != self._worker:
            self._heard(dict(from_text(text)))

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        next_poll = loop.time() + POLL_S
        while not self._leaving or self._pending:
            try:
                if self._db is None or self._db.is_closed():
                    await self._listen()
                    self._heard({"": News.DUE})  # whatever was said meanwhile was not heard
                with contextlib.suppress(TimeoutError):  # not wait_for: Python 3.11's can lose a cancellation
                    async with asyncio.timeout_at(next_poll):
                        await self._more.wait()
                self._more.clear()
                if self._pending:
                    async with asyncio.timeout(connection.ANSWER_S):
                        await self._tell()
                    await asyncio.sleep(_TELL_EVERY_S)
                if loop.time() >= next_poll:
                    next_poll = loop.time() + POLL_S
                    async with asyncio.timeout(connection.ANSWER_S):
                        await self._poll()
            except (*TROUBLE, asyncpg.PostgresError) as trouble:
                _log.debug("nothing is heard of other processes: %r", trouble)
                if self._db is not None:
                    self._db.terminate()
                await asyncio.sleep(POLL_S / 2)

    async def _tell(self) -> None:
        pending, self._pending = self._pending, {}
        if self._later is not None:
            self._later.cancel()
            self._later = None
        assert self._db is not None
        await ask(self._db, "notify_others", channel=self._channel, payload=f"{self._worker}\n{as_text(pending)}")

    async def _poll(self) -> None:
        assert self._db is not None
        before, self._progress = self._progress, await self._newest(self._db)
        if self._progress != before:
            self._heard({"": News.DUE})

    async def _newest(self, db: Connection) -> int:
        """Ask for the newest transaction; the time comes with it."""
        asked_s = time.monotonic()
        ((newest, told),) = await ask(db, "newest_transaction")
        if isinstance(self._clock, DatabaseClock):
            self._clock.learn(asked_s, told, time.monotonic())
        return int(newest)
