"""Migrations of a schema: the same numbered files as in SQLite, in one transaction under a lock.

Of many processes that open an empty database at once one applies; the others wait for its lock and find it done.
"""

from __future__ import annotations

import hashlib
import secrets

import asyncpg

from holdfast.errors import StoreUnavailable
from holdfast.store.migrate import Migration, missing
from holdfast.store.postgres.connection import Connection
from holdfast.store.postgres.dialect import migrations, schema_text
from holdfast.store.postgres.execute import ask


async def migrate(connection: Connection, schema: str, now: int, *, looks: bool = False) -> bool:
    """Apply what is missing. Returns whether we may write here. `NewerJournal` when the database knows more than we do.

    With `looks` nothing is changed, and `StoreUnavailable` tells of what is missing.
    """
    wanted = migrations()
    lacking = await _missing(connection, schema, wanted)
    if looks:
        if lacking:
            raise StoreUnavailable(
                f"schema {schema!r} is that of an older Holdfast, and a command that only looks does not bring it up to date. Look "
                "at a backup, made with the version that works there: `holdfast backup FILE`, then --db sqlite:FILE; or upgrade "
                "first"
            )
        return True
    if lacking:  # the usual case takes no lock
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('holdfast:' || $1, 0))", schema)
            lacking = await _missing(connection, schema, wanted)
            await _apply(connection, schema, lacking, now)
    try:
        await ask(connection, "raise_base")
    except asyncpg.InsufficientPrivilegeError:  # a role that may only look
        return False
    return True


async def secret_of(connection: Connection) -> str:
    """Make a word that only roles which may read this schema know: any role of a database may listen to any channel of it."""
    ((itself, *_),) = await ask(connection, "identity")
    return hashlib.sha256(f"holdfast-wake-up {itself}".encode()).hexdigest()[:24]


async def _apply(connection: Connection, schema: str, lacking: list[Migration], now: int) -> None:
    if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", schema):
        try:
            await connection.execute(f'CREATE SCHEMA "{schema}"')
        except asyncpg.InsufficientPrivilegeError as error:
            raise StoreUnavailable(
                f"there is no schema {schema!r}, and this user may not create one: {error}; have it created first"
            ) from error
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS migrations (number BIGINT PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,"
        " applied_at BIGINT NOT NULL)"
    )
    for migration in lacking:
        await connection.execute(schema_text(migration))
        await connection.execute(
            "INSERT INTO migrations (number, name, checksum, applied_at) VALUES ($1, $2, $3, $4)",
            migration.number, migration.name, migration.checksum, now,
        )  # fmt: skip
        if migration.name == "copies":
            made = secrets.token_hex(16)
            await connection.execute("INSERT INTO identity (id, made_at) VALUES ($1, $2)", made, now)


async def _missing(connection: Connection, schema: str, wanted: list[Migration]) -> list[Migration]:
    tables = {row[0] for row in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)}
    if tables and "migrations" not in tables:
        raise StoreUnavailable(
            f"the schema {schema!r} is some other program's (it has a table {min(tables)!r}); name another: ?schema=..."
        )
    try:
        applied = await connection.fetch("SELECT number, name, checksum FROM migrations") if tables else []
    except (
        asyncpg.UndefinedTableError,
        asyncpg.InsufficientPrivilegeError,
    ):  # a schema that may not be used is not looked into
        role = await connection.fetchval("SELECT quote_ident(current_user)")
        raise StoreUnavailable(
            f"the role {role} may not use the schema {schema!r}, in which the store is. Let its owner say: GRANT USAGE ON SCHEMA "
            f'"{schema}" TO {role}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{schema}" TO {role}'
        ) from None
    return missing(f"schema {schema!r}", [tuple(row) for row in applied], wanted)
