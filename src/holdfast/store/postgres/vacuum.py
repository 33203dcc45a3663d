"""Vacuum: the room of messages that have left the inbox, which the next ones take.

A row that is deleted takes its room until a vacuum. PostgreSQL looks once a minute which tables need one, and in a minute a busy
reducer leaves tens of megabytes behind. So a worker that lets messages leave the inbox has its table vacuumed. That
reads the pages which have changed, and so grows with what it finds. The indexes it would read whole: that is done when
what is gone is a fair part of the table, which is the rule of PostgreSQL itself.

Nothing depends on it. A table that another vacuum is at is passed over. Where the table is not this role's own, or a transaction is
open that is older than what is gone, nothing happens, and PostgreSQL does it in its own time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import asyncpg

from holdfast.store.postgres.connection import ANSWER_S, TROUBLE, Connection, goodbye
from holdfast.words.harmless import logger

_log = logger("holdfast.store")
_LEAST: Final = 1_000  # messages that are gone
_SHARE: Final = 0.2  # of the rows that are there, for the indexes
# To cut off the empty end of the table would lock out everybody for a moment; the next messages take it anyway.
_VACUUM: Final = "VACUUM (SKIP_LOCKED, TRUNCATE FALSE, INDEX_CLEANUP {}) signals"
_ROWS: Final = "SELECT reltuples::float8 FROM pg_class WHERE oid = 'signals'::regclass"


class Vacuum:
    """Has the table of the inboxes vacuumed, on a connection of its own, when this process has emptied enough of it."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._gone = self._indexed = 0  # messages since the table was vacuumed, and since its indexes were
        self._rows = 0.0
        self._task: asyncio.Task[None] | None = None

    def left(self, messages: int) -> None:
        """Count messages that have left the inbox."""
        self._gone += messages
        self._indexed += messages
        if self._gone >= _LEAST and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._vacuum())

    async def _vacuum(self) -> None:
        self._gone, indexes = 0, self._indexed >= _SHARE * self._rows
        if indexes:
            self._indexed = 0
        db = None
        try:
            async with asyncio.timeout(ANSWER_S):
                db = await self._connect()
                await db.execute(_VACUUM.format("ON" if indexes else "OFF"))
                self._rows = await db.fetchval(_ROWS)
        except (*TROUBLE, asyncpg.PostgresError) as error:
            _log.debug("the inboxes were not vacuumed: %s", str(error) or repr(error))
        finally:
            await goodbye(db)

    async def close(self) -> None:
        """End it: nobody needs the rest."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def abort(self) -> None:
        """Drop it."""
        if self._task is not None:
            self._task.cancel()
