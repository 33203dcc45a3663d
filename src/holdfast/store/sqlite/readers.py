"""Readers: two threads, each with its own connection, and for what is small the loop itself."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

import apsw

from holdfast.errors import StoreUnavailable
from holdfast.store.sqlite.execute import do
from holdfast.store.work import Asking

T = TypeVar("T")
P = ParamSpec("P")
_THREADS: Final = 2


class Readers:
    """Connections that see the last commit. `check_open` raises when the store is closed."""

    def __init__(self, path: str, connect: Callable[[], apsw.Connection], check_open: Callable[[], None]) -> None:
        self._path, self._connect, self._check_open = path, connect, check_open
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="holdfast-reader")
        self._own, self._all = threading.local(), list[apsw.Connection]()

    async def open(self) -> None:
        """Make the loop's own connection."""
        self._here = await self.aside(self._connect)
        self._here.set_busy_handler(None)  # the loop waits for no lock
        self._all.append(self._here)

    def close(self) -> None:
        """Close the connections; blocks until the last read has ended."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for connection in self._all:
            connection.close(force=True)

    async def aside(self, call: Callable[[], T]) -> T:
        """Call it in a reader's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def read(self, read: Callable[P, Asking[T]], *arguments: P.args, **named: P.kwargs) -> T:
        """Read in a thread."""
        return await self.look(lambda db: do(db, read(*arguments, **named)))

    async def snapshot(self, read: Callable[P, Asking[T]], *arguments: P.args, **named: P.kwargs) -> T:
        """Read in a thread, all of it as it is at one moment."""

        def look(db: apsw.Connection) -> T:
            db.execute("BEGIN")
            try:
                return do(db, read(*arguments, **named))
            finally:
                db.execute("ROLLBACK")

        return await self.look(look)

    async def look(self, look: Callable[[apsw.Connection], T]) -> T:
        """Ask a connection something in SQLite's own words, in a thread."""
        self._check_open()
        try:
            return await self.aside(functools.partial(self._in_thread, look))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                self._check_open()  # its place in the queue was cancelled by closing
            raise

    async def glance(self, read: Callable[P, Asking[T]], *arguments: P.args, **named: P.kwargs) -> T:
        """Read on the loop, for what is found by an index and small; a thread does it if there is any trouble.

        To ask a thread, and to be woken by it, takes several times as long as to look up a few rows.
        """
        self._check_open()
        try:
            return do(self._here, read(*arguments, **named))
        except apsw.Error:
            return await self.read(read, *arguments, **named)

    def _in_thread(self, look: Callable[[apsw.Connection], T]) -> T:
        db: apsw.Connection | None = getattr(self._own, "db", None)
        try:
            if db is None:
                db = self._own.db = self._connect()
                self._all.append(db)
            return look(db)
        except apsw.Error as error:
            if db is not None:
                db.close(force=True)
            self._own.db = None
            raise StoreUnavailable(f"{self._path!r} cannot be read: {error}") from None
