"""A schema of PostgreSQL as a backup, and a backup as a schema: rows are carried from one database to the other.

Out of one snapshot, so that it is one moment; into one transaction, so that it is there whole or not at all.
"""

from __future__ import annotations

import asyncio
from typing import Final

import apsw
import asyncpg

from holdfast.errors import BadArguments, StoreUnavailable
from holdfast.store.backup import NOT_COPIED, Backup, Part, columns, rows_at_once, seal, up_to_date
from holdfast.store.migrate import migrate as migrate_file
from holdfast.store.postgres.connection import ANSWER_S, Connection
from holdfast.store.postgres.execute import ask

_FIRST: Final = ("runs", "approvals")  # that rows of others point to
# The feed has no position beyond this one; SQLite must not give it again.
_MARK: Final = (
    "INSERT INTO events (position, run_id, seq, kind, at, epoch) SELECT :position, '', :position, 'deleted', :now, 0"
    " WHERE :position > (SELECT coalesce(max(position), 0) FROM events)"
)


async def _tables(connection: Connection) -> list[str]:
    """List the tables of our schema that are copied; tables that others point to come first."""
    found = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1")
    names = {row[0] for row in found} - NOT_COPIED
    return [*_FIRST, *sorted(names - set(_FIRST))]


async def copy_out(connection: Connection, part: Part, now: int) -> int:
    """Fill a backup; returns how many runs it has."""
    db = await asyncio.to_thread(part.open)
    try:
        await asyncio.to_thread(_prepare, db, now)
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            ((of, *_),) = await ask(connection, "identity")
            for table in await _tables(connection):
                names = await asyncio.to_thread(columns, db, table)
                listed = ", ".join(f'"{name}"' for name in names)
                cursor = await connection.cursor(f'SELECT {listed} FROM "{table}"')  # noqa: S608 - names of our schema
                insert = f'INSERT INTO "{table}" ({listed}) VALUES ({", ".join("?" * len(names))})'  # noqa: S608
                while some := await cursor.fetch(rows_at_once(table), timeout=ANSWER_S):
                    part.check_wanted()
                    await asyncio.to_thread(db.executemany, insert, [tuple(row) for row in some])
            ((_, reach),) = await ask(connection, "feed_reach")
        return await asyncio.to_thread(_finish, db, part, {"position": reach - 1, "now": now}, of)
    except BaseException:
        part.unwanted = True
        db.close(force=True)
        raise
    finally:
        part.discard()


def _prepare(db: apsw.Connection, now: int) -> None:
    migrate_file(db, now)
    db.execute("PRAGMA foreign_keys = OFF; BEGIN")


def _finish(db: apsw.Connection, part: Part, mark: dict[str, int], of: str) -> int:
    db.execute(_MARK, mark)
    db.execute("COMMIT")
    runs = seal(db, of, mark["now"])
    part.finish(db)
    return runs


async def copy_in(connection: Connection, backup: Backup, now: int, by: str, via: str) -> int:
    """Fill an empty schema; returns how many runs it has then."""
    try:
        with up_to_date(backup) as current:
            async with connection.transaction():
                return await _fill(connection, current, now, by, via)
    except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
        raise StoreUnavailable(f"{backup.path!r} has what PostgreSQL does not take: {error}") from error


async def _fill(connection: Connection, backup: Backup, now: int, by: str, via: str) -> int:
    tables = await _tables(connection)
    await connection.execute("LOCK TABLE runs, workers IN EXCLUSIVE MODE")  # no process begins here meanwhile
    for table in [*tables, "workers"]:
        if await connection.fetchval(f'SELECT EXISTS (SELECT 1 FROM "{table}")'):  # noqa: S608 - names of our schema
            raise BadArguments(
                f"this store is not empty (it has rows in {table!r}); restore into another schema: ?schema=..."
            )
    for table in tables:
        names, rows = await asyncio.to_thread(columns, backup.db, table), backup.rows(table)
        while some := await asyncio.to_thread(next, rows, None):
            await connection.copy_records_to_table(table, records=some, columns=names)
    highest = await asyncio.to_thread(lambda: backup.db.execute("SELECT coalesce(max(position), 0) FROM events").get)
    await ask(connection, "raise_base_to", position=highest)
    for table, column in (("audit", "id"), ("announcements", "position")):
        await connection.execute(
            f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), "  # noqa: S608 - names of our schema
            f"(SELECT coalesce(max({column}), 0) + 1 FROM {table}))"
        )
    await connection.execute("DELETE FROM identity")
    await connection.execute(
        "INSERT INTO identity (id, made_at, backup_of, backup_at, restored_at, held_at) VALUES ($1, $2, $3, $4, $5, $6)",
        *backup.identity(now),
    )
    await ask(connection, "insert_audit", now=now, run="", actor=by, action="restore", data=None, via=via, value=None)
    runs: int = await connection.fetchval("SELECT count(*) FROM runs")
    return runs
