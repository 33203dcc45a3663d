"""The table of the inboxes is vacuumed by whoever empties it, and nothing depends on that."""

from __future__ import annotations

import asyncio
import re
import secrets
from typing import Any

from tests.store.places import TTL, Place, owned, write

from holdfast.store.postgres import vacuum
from holdfast.store.postgres.connection import connect, parse_url
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.store import Store
from holdfast.words.model import RunRow


async def leave(store: Store, row: RunRow, many: int) -> None:
    """Send messages, and have them leave the inbox."""
    sent = [
        store.send(row.id, f"id:{row.inbox_seen + number:016x}", "message.received", "mail", "1", {})
        for number in range(many)
    ]
    after, row.inbox_seen = row.inbox_seen, max(await asyncio.gather(*sent))
    await store.append(write(row, inbox_seen=row.inbox_seen, releases=(after, row.inbox_seen)))
    assert isinstance(store, PostgresStore)
    if store._vacuum._task is not None:
        await store._vacuum._task


async def vacuums(connection: Any) -> int:
    """How often somebody had the table vacuumed."""
    found: int = await connection.fetchval(
        "SELECT vacuum_count FROM pg_stat_user_tables WHERE relid = 'signals'::regclass"
    )
    return found


async def test_the_inboxes_are_vacuumed_when_many_messages_are_gone(database: Place) -> None:
    """With the indexes, which are read whole, when these are a fifth of the table: not for the sake of a few rows."""
    async with database.open() as store:
        assert isinstance(store, PostgresStore)
        connection = await connect(parse_url(database.url))
        row = await owned(store, "a")
        await leave(store, row, vacuum._LEAST - 1)
        assert await vacuums(connection) == 0
        await leave(store, row, 1)
        assert (await vacuums(connection), store._vacuum._indexed) == (1, 0)
        await connection.execute(
            "INSERT INTO signals (run_id, position, signal_id, kind, topic, sent_at)"
            " SELECT 'b', n, 'key:' || n, 'message.received', 't', 1 FROM generate_series(1, 12000) n"
        )
        found = []
        for _ in range(4):
            await leave(store, row, vacuum._LEAST)
            found.append((await vacuums(connection), store._vacuum._indexed))
        assert found == [(2, 0), (3, vacuum._LEAST), (4, 2 * vacuum._LEAST), (5, 0)]
        await connection.close()


async def test_a_table_that_is_being_vacuumed_is_passed_over(database: Place) -> None:
    async with database.open() as store:
        connection = await connect(parse_url(database.url))
        row = await owned(store, "a")
        async with connection.transaction():
            await connection.execute("LOCK TABLE signals IN SHARE UPDATE EXCLUSIVE MODE")
            async with asyncio.timeout(20):
                await leave(store, row, vacuum._LEAST)
        assert await vacuums(connection) == 0
        await leave(store, row, vacuum._LEAST)
        assert await vacuums(connection) == 1
        await connection.close()


async def test_a_store_that_is_closed_meanwhile_waits_for_no_vacuum(database: Place) -> None:
    async with database.open() as store:
        assert isinstance(store, PostgresStore)
        store._vacuum.left(vacuum._LEAST)
        task = store._vacuum._task
        assert task is not None
        await asyncio.sleep(0)
        assert not task.done()
    assert task.cancelled()


async def test_a_role_that_does_not_own_the_tables_leaves_it_to_the_server(database: Place) -> None:
    """What the server says about that is no error."""
    async with database.open() as store:
        await owned(store, "a")
    role, schema = f"carrier_{secrets.token_hex(4)}", parse_url(database.url).schema
    connection = await connect(parse_url(database.url))
    try:
        await connection.execute(
            f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role};"
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}"
        )
        theirs = Place(database.connect, re.sub("//[^@/]*@", f"//{role}@", database.url))
        async with theirs.open() as store:
            (row,) = await store.claim(["agent"], 1, TTL)
            await leave(store, row, vacuum._LEAST)
            assert len(await store.whole_inbox("a")) == vacuum._LEAST
        assert await vacuums(connection) == 0
    finally:
        await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        await connection.close()
