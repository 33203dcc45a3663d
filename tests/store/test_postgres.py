"""What is particular to PostgreSQL: URLs, schemas, translated queries, order of the feed, locks, sessions and plans."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import apsw
import asyncpg
import pytest
from tests.store.places import (
    PARTS,
    TTL,
    Gate,
    ManualClock,
    Place,
    fed,
    finish,
    line,
    new,
    owned,
    python,
    step,
    write,
)

from holdfast.errors import BadArguments, LeaseLost, NewerJournal, StoreUnavailable, UnknownRun
from holdfast.store.appends import InboxMoved, Transition
from holdfast.store.changes import News
from holdfast.store.migrate import known
from holdfast.store.postgres.connection import connect, parse_url
from holdfast.store.postgres.dialect import STATEMENTS, migrations, schema_text, translate
from holdfast.store.queries import QUERIES
from holdfast.store.urls import store_at
from holdfast.words.model import RunRow


@asynccontextmanager
async def session(place: Place) -> AsyncIterator[Any]:
    """A connection of somebody else's."""
    options = parse_url(place.url)
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
    try:
        yield connection
    finally:
        await connection.close()


def test_urls() -> None:
    """A URL names a schema, and how many statements are kept; the rest is the driver's, and the password is not shown."""
    options = parse_url("postgresql://ana:secret@db.example:6432/team?sslmode=require&schema=agents&statement_cache=0")
    assert options.dsn == "postgresql://ana:secret@db.example:6432/team?sslmode=require"
    assert options.shown == "postgresql://ana@db.example:6432/team?sslmode=require&schema=agents&statement_cache=0"
    assert (options.schema, options.statement_cache) == ("agents", 0)
    assert parse_url("postgres:///team").schema == "holdfast"
    assert parse_url("postgres:///team").shown == "postgres:///team"  # which can be typed again
    for url, message in {
        "mysql://x": "write 'postgresql://user@host/database'",
        "postgresql:///x?schema=a-b": "'a-b' is no name for a schema",
        "postgresql:///x?schema=": "'' is no name for a schema",
        "postgresql:///x?statement_cache=many": "'many' is no number",
    }.items():
        with pytest.raises(BadArguments, match=re.escape(message)):
            parse_url(url)
    with pytest.raises(BadArguments, match="'sqlite:PATH'"):
        store_at("mysql://x")


def test_a_store_needs_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without asyncpg the error says what to install."""
    import sys

    for name in [name for name in sys.modules if name.startswith("holdfast.store.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(StoreUnavailable, match=re.escape('pip install "holdfast[postgres]"')):
        store_at("postgresql:///x")


async def test_servers_that_are_not_there() -> None:
    """A server that does not answer is named, with the reason."""
    store = store_at("postgresql://x@127.0.0.1:1/x")
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1/x' cannot be opened"):
        await store.open()
    await store.close()
    store.abandon()


async def test_a_database_that_is_not_there_is_told_how_to_make(postgres_url: str) -> None:
    """The server answers, and has none of that name."""
    store = store_at(urlsplit(postgres_url)._replace(path="/nosuch").geturl())
    with pytest.raises(StoreUnavailable, match=r'"nosuch" does not exist; make it with `createdb`'):
        await store.open()
    store.abandon()


async def test_both_databases_have_the_same_tables(database: Place) -> None:
    """Tables, columns, their order and whether they may be null are those of SQLite, but for what only PostgreSQL needs."""
    db = apsw.Connection(":memory:")
    for migration in known():
        db.execute(migration.sql)
    there: dict[str, list[tuple[str, bool]]] = {}
    for (table,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"):
        there[table] = [
            (name, bool(strict or key)) for _, name, _, strict, _, key in db.execute(f"PRAGMA table_info({table})")
        ]
    here: dict[str, list[tuple[str, bool]]] = {}
    async with database.open(), session(database) as connection:
        for table, name, null in await connection.fetch(
            "SELECT table_name, column_name, is_nullable FROM information_schema.columns"
            " WHERE table_schema = current_schema() ORDER BY table_name, ordinal_position"
        ):
            here.setdefault(table, []).append((name, null == "NO"))
        indexes = {
            row[0]
            for row in await connection.fetch("SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()")
        }
    del here["positions"], here["migrations"]
    assert here == there
    assert {
        name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
    } <= indexes


async def test_every_statement_is_understood(database: Place) -> None:
    """PostgreSQL parses every query, and each query of SQLite has one."""
    assert set(QUERIES) <= set(STATEMENTS)
    async with database.open(), session(database) as connection:
        for name, statement in STATEMENTS.items():
            if name in PARTS:
                continue
            prepared = await connection.prepare(statement.text)
            assert len(prepared.get_parameters()) == len(statement.parameters), name


def test_parameters_are_numbered_and_typed() -> None:
    """Each name has one number and one type; a list becomes an array; a name of unknown type is an error."""
    made = translate(
        "x", "SELECT :run, :now, :run WHERE agent NOT IN (SELECT value FROM json_each(:agents)) AND a::text = ''"
    )
    assert made.text == (
        "SELECT $1::text, $2::bigint, $1::text WHERE agent <> ALL (ARRAY(SELECT json_array_elements_text($3::text::json)))"
        " AND a::text = ''"
    )
    assert made.parameters == ("run", "now", "agents")
    with pytest.raises(ValueError, match="'colour' of unknown type"):
        translate("x", "SELECT :colour")


def test_migrations_keep_their_meaning() -> None:
    """What PostgreSQL spells otherwise is spelt so, and no comment is left to hide a statement."""
    for migration in migrations():
        text = schema_text(migration)
        assert not re.search(r"AUTOINCREMENT|WITHOUT ROWID|\bBLOB\b|instr\(|--", text)


async def test_stores_in_two_schemas_do_not_meet(database: Place, postgres_server: str) -> None:
    """Runs, wake-ups and the rest of one schema are nobody's business in another."""
    mark = "&" if "?" in postgres_server else "?"
    other = Place(store_at, f"{postgres_server}{mark}schema=test_{secrets.token_hex(6)}")
    async with database.open() as one, other.open() as two:
        heard: list[str] = []
        two.on_change(heard.extend)
        await one.create(new("a"))
        assert await two.run("a") is None
        await two.create(new("b"))
        assert [row.id for row in await one.runs()] == ["a"]
        assert "a" not in heard


async def test_schemas_that_cannot_be_used(nothing: Place) -> None:
    """A schema of another program, a newer one and a changed one are refused; nothing in them is touched."""
    schema = parse_url(nothing.url).schema
    async with session(nothing) as connection:
        await connection.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.customers (id int)")
        with pytest.raises(StoreUnavailable, match="'customers'"):
            async with nothing.open():
                pass
        await connection.execute(f"DROP TABLE {schema}.customers")
        async with nothing.open():
            pass
        await connection.execute("INSERT INTO migrations VALUES (999, 'later', 'x', 0)")
        with pytest.raises(NewerJournal, match="has schema 999"):
            async with nothing.open():
                pass
        await connection.execute("DELETE FROM migrations WHERE number = 999; UPDATE migrations SET checksum = 'x'")
        with pytest.raises(NewerJournal, match="another text of schema 1"):
            async with nothing.open():
                pass


OPENER = """
import asyncio, sys
from holdfast.store.runs import NewRun
from holdfast.store.urls import store_at

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    store = store_at(sys.argv[1])
    await store.open()
    await store.create(NewRun(sys.argv[2], "uid", "agent", "{}"))
    await store.close()
    print("done", flush=True)

asyncio.run(main())
"""


@pytest.mark.by_day("10")
@pytest.mark.parametrize("many", [10, 20])
async def test_many_processes_open_an_empty_database(nothing: Place, many: int) -> None:
    """Many that open it at once: each migration is applied once and all of them work."""
    processes = [python(OPENER, nothing.url, f"run-{number}") for number in range(many)]
    assert [line(process) for process in processes] == ["ready"] * many
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate()[0].split() for process in processes] == [["done"]] * many
    async with nothing.open() as store, session(nothing) as connection:
        assert len(await store.runs()) == many
        assert await connection.fetchval("SELECT count(*) FROM migrations") == len(known())


async def test_the_feed_waits_for_older_transactions(database: Place) -> None:
    """What a later transaction wrote is not in the feed while an earlier one may still commit; then both come in order."""
    async with database.open() as store, session(database) as slow:
        one, two = await owned(store, "one"), await owned(store, "two")
        begun = slow.transaction()
        await begun.start()
        await slow.fetchval("SELECT pg_current_xact_id()::text")
        await store.append(write(two, step()))
        assert await store.feed(0, None) == []
        record = STATEMENTS["record"].text
        await slow.execute(record, 0, ["one"], [0], ["step.completed"], ["work#0"], [None], ["1"], [None], [1], [5])
        assert await store.feed(0, None) == []
        await begun.commit()
        assert [event.run for event in await fed(store, 0, 2)] == ["one", "two"]
        assert one.next_seq == 0


async def test_positions_go_on_after_a_dump_is_restored(database: Place) -> None:
    """In a new home, where transactions have small numbers, new events still come after the old ones."""
    async with database.open() as store:
        row = await owned(store, "a")
        await store.append(write(row, step()))
    async with session(database) as connection:
        await connection.execute("UPDATE events SET position = position + (1::bigint << 50)")
        (old,) = await connection.fetchrow("SELECT max(position) FROM events")
    async with database.open() as store, database.open() as other:
        (row,) = await store.claim(["agent"], 1, TTL)
        await store.append(write(row, step()))
        await other.create(new("b"))
        found = await fed(store, old, 1)
        assert [(event.run, event.seq) for event in found] == [("a", 1)]
        assert [event.seq for event in await fed(store, 0, 2)] == [0, 1]


async def test_one_refusal_does_not_scatter_a_batch(database: Place) -> None:
    """Twenty runs that park and twenty messages in one batch, one of each refused: the others are still one commit."""
    gate = Gate()
    async with database.open(faults=gate) as store:
        rows = [await owned(store, f"run-{number}") for number in range(20)]
        await store.send("run-7", "early", "message.received", "t", None, {})
        sizes: list[int] = []
        store.observe(lambda operations, _: sizes.append(operations))
        gate.shut()
        first = asyncio.create_task(store.create(new("first", agent="other")))
        await asyncio.to_thread(gate.reached.wait, 20)
        parks = [store.append(write(row, step(), transition=Transition("waiting", inbox_seen=0))) for row in rows]
        sends = [
            asyncio.create_task(store.send(run, "s", "message.received", "t", None, {})) for run in ("first", "nobody")
        ]
        await asyncio.sleep(0)
        gate.opened.set()
        results = await asyncio.gather(*parks, *sends, return_exceptions=True)
        refused = {number: type(result) for number, result in enumerate(results) if isinstance(result, BaseException)}
        assert refused == {7: InboxMoved, 21: UnknownRun}
        assert sizes[0] == 1 and max(sizes) == 20 and len(sizes) <= 4
        await first


async def test_appends_and_messages_meet(database: Place) -> None:
    """Runs that are written and sent to at the same time, from two stores: nothing is refused, nothing is lost."""
    async with database.open() as store, database.open() as other:
        rows = [await owned(store, f"run-{number}") for number in range(10)]

        async def tell(run: str) -> None:
            for number in range(30):
                await other.send(run, f"s{number}", "message.received", "t", None, {})

        async def write_on(row: RunRow) -> None:
            for _ in range(30):
                await store.append(write(row, step()))

        await asyncio.gather(*[write_on(row) for row in rows], *[tell(row.id) for row in rows])
        found = await store.runs()
        assert {(row.next_seq, row.steps, row.inbox_count) for row in found} == {(30, 30, 30)}


async def test_a_deadlock_is_tried_again(database: Place) -> None:
    """A transaction that PostgreSQL ends so that another can go on is done again, and nobody notices."""
    async with database.open() as store, session(database) as other:
        rows = [await owned(store, f"run-{number}") for number in range(2)]
        begun = other.transaction()
        await begun.start()
        await other.execute("SET LOCAL deadlock_timeout = '1min'")  # so that it is ours that gives way
        await other.execute("UPDATE runs SET reason = 'x' WHERE id = 'run-1'")
        waiting = [store.append(write(row, step())) for row in rows]
        while not await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()"):
            await asyncio.sleep(0.01)
        await other.execute("UPDATE runs SET reason = 'x' WHERE id = 'run-0'")
        await begun.commit()
        await asyncio.gather(*waiting)
        assert [len(await store.journal(row.id)) for row in rows] == [1, 1]


async def test_a_locked_run_is_passed_over_by_claims(database: Place) -> None:
    """A claim does not wait for a run that somebody is changing: it takes the next one."""
    async with database.open() as store, session(database) as other:
        await store.create(new("a"))
        await store.create(new("b"))
        begun = other.transaction()
        await begun.start()
        await other.execute("SELECT 1 FROM runs WHERE id = 'a' FOR UPDATE")
        assert [row.id for row in await store.claim(["agent"], 5, TTL)] == ["b"]
        await begun.rollback()
        assert [row.id for row in await store.claim(["agent"], 5, TTL, sure=True)] == ["a"]


async def test_a_locked_run_does_not_cost_others_their_leases(database: Place) -> None:
    """A heartbeat prolongs what it can at once; for a row that stays locked it waits no longer than the lease."""
    clock = ManualClock()
    async with database.open(clock) as store, session(database) as other:
        await owned(store, "a")
        await owned(store, "b")
        begun = other.transaction()
        await begun.start()
        await other.execute("SELECT 1 FROM runs WHERE id = 'a' FOR UPDATE")
        clock.time += TTL
        with pytest.raises(StoreUnavailable, match="within 300 ms"):
            await asyncio.to_thread(store.heartbeat, 300)
        due = {row.id: row.due_at for row in await store.runs()}
        assert due == {"a": clock.time, "b": clock.time + 300}
        await begun.rollback()
        leases = await asyncio.to_thread(store.heartbeat, TTL)
        assert sorted(lease.run for lease in leases) == ["a", "b"]


async def test_a_lease_is_not_lost_for_being_locked(database: Place) -> None:
    """A run that is locked while leases are prolonged, and whose lease is long enough, is told as ours all the same."""
    async with database.open(ManualClock()) as store, session(database) as other:
        await owned(store, "a")
        await owned(store, "b")
        begun = other.transaction()
        await begun.start()
        await other.execute("SELECT 1 FROM runs WHERE id = 'a' FOR UPDATE")
        beat = asyncio.create_task(asyncio.to_thread(store.heartbeat, TTL))
        while not await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()"):
            await asyncio.sleep(0.01)
        await begun.rollback()
        assert sorted(lease.run for lease in await beat) == ["a", "b"]


async def test_a_worker_whose_session_ended_is_not_taken_for_dead_for_long(database: Place) -> None:
    """A cut session is opened again with its lock; others that look later find the worker alive, and its runs its own."""
    async with database.open() as store, database.open() as other, session(database) as admin:
        row = await owned(store, "a")
        await _end_sessions(admin, "pg_advisory_lock")
        while not (await other._read(_workers))[0][4]:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
        assert await other.recover() == 0
        await store.append(write(row, step()))
        assert len(await asyncio.to_thread(store.heartbeat, TTL)) == 1


async def test_a_buried_worker_says_again_that_it_lives(database: Place) -> None:
    """One that others took for dead is refused in the journal, registers with its next heartbeat, and works on."""
    async with database.open() as store, database.open() as other, session(database) as admin:
        row = await owned(store, "a")
        await admin.execute("UPDATE runs SET due_at = 0; DELETE FROM workers")  # as `bury` does
        (taken,) = await other.claim(["agent"], 1, TTL)
        assert taken.crash_count == 1
        with pytest.raises(LeaseLost):
            await store.append(write(row, step()))
        assert await asyncio.to_thread(store.heartbeat, TTL) == []
        assert store.worker_id in [found[0] for found in await other._read(_workers)]  # type: ignore[attr-defined]
        await owned(store, "b", agent="b")


def _workers() -> Any:
    from holdfast.store.work import rows

    return rows("workers")


async def _end_sessions(admin: Any, doing: str) -> int:
    """End the sessions of this schema's stores whose last statement was of this kind, and wait until they are gone."""
    schema = await admin.fetchval("SELECT current_schema()")
    found = await admin.fetch(
        "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity WHERE application_name = 'holdfast:' || $1"
        " AND datname = current_database()"
        " AND query LIKE '%' || $2 || '%' AND pid <> pg_backend_pid()", schema, doing,
    )  # fmt: skip
    assert found
    return len(found)


async def test_a_listener_that_was_cut_off_hears_again(database: Place) -> None:
    """After its session ends a store says that anything may have changed, listens again and hears by name."""
    async with database.open() as store, database.open() as other, session(database) as admin:
        heard: list[tuple[str, News]] = []
        more = asyncio.Event()
        store.on_change(lambda changes: (heard.extend(changes.items()), more.set()))
        await _end_sessions(admin, "pg_snapshot_xmax")
        while ("", News.DUE) not in heard:
            more.clear()
            await more.wait()
        number = 0
        while not [run for run, _ in heard if run]:
            await other.create(new(f"run-{number}"))
            number += 1
            await asyncio.sleep(0.05)


async def test_plans(database: Place) -> None:
    """Planned when there was nothing, claims, appends, decisions and the like still use their index among 110,000 runs."""
    queries = {
        "due": "runs_due", "pick": "runs_due", "next_due": "runs_due", "heartbeat": "runs_lease", "claim": "runs_pkey",
        "heartbeat_rest": "runs_lease", "orphan": "runs_lease", "append": "runs_pkey", "leave": "runs_pkey",
        "notify": "runs_pkey", "lock_runs": "runs_pkey", "wake": "runs_held", "wake_ours": "runs_held",
        "held_keys": "runs_held", "occupied": "runs_slots", "room": "runs_slots", "singleton": "runs_singleton",
        "claim_plain": "runs_due", "decide_plain": "approvals_pkey", "due_schedules": "schedules_due",
        "next_schedule": "schedules_due", "ahead_schedules": "schedules_updated",
        "lock_schedule": "schedules_pkey", "begun_schedules": "schedules_pkey",
        "due_deliveries": "deliveries_due", "next_delivery": "deliveries_due", "deliveries": "deliveries_recent",
        "orphan_deliveries": "deliveries_owner", "take_delivery": "deliveries_pkey",
        "waiting_announcements": "announcements_waiting", "subscribers": "subscriptions_wanted",
        "compared_fields": "subscriptions_fields", "passed": "announcements_pkey", "due_gatherings": "gatherings_due",
        "send_many": "signals_run_id_signal_id_key", "send_plain": "signals_run_id_signal_id_key",
    }  # fmt: skip
    async with database.open(ManualClock()) as store:
        connection = await connect(parse_url(database.url))
        for query in queries:
            await connection.execute(f"PREPARE {query} AS {STATEMENTS[query].text}")
            for _ in range(6):
                await plan(connection, query)
        columns = "uid, agent, input, queue, root_id, labels, created_at, updated_at"
        await connection.execute(
            f"INSERT INTO runs (id, status, due_at, lease_owner, {columns})"
            " SELECT 'run-' || n, CASE WHEN n % 11 = 0 THEN 'ready' ELSE 'waiting' END,"
            " CASE WHEN n % 11 = 0 THEN n WHEN n % 2 = 0 THEN 9000000 + n END, NULL,"
            " 'u', 'agent', '{}', 'default', 'run-' || n, '{}', n, n FROM generate_series(1, 110000) n"
        )
        await connection.execute("UPDATE runs SET status = 'running', lease_owner = 'me' WHERE id LIKE 'run-10101%'")
        columns = "run_id, root_id, path, key, kind, question, digest, recipients, needs, votes, delegations"
        await connection.execute(
            f"INSERT INTO approvals (id, {columns}, status, asked_at) SELECT 'question-' || n, 'run-' || n, 'run-' || n,"
            " '[]', 'k', 'approve', '?', '', '[]', '1', '[]', '[]', 'open', n FROM generate_series(1, 2000) n"
        )
        await connection.execute(
            "INSERT INTO schedules (name, agent, times, run, digest, state, due_at, made_by, created_at, updated_at)"
            " SELECT 's' || n, 'agent', '{}', '{}', '', 'active', 9000000 + n, '', n, n FROM generate_series(1, 10000) n"
        )
        await connection.execute(
            "INSERT INTO deliveries (trigger, key, kind, headers, status, due_at, received_at, settled_at, size, body)"
            " SELECT 't' || n % 3, 'k' || n, 'webhook', '{}', CASE WHEN n % 10 = 0 THEN 'new' ELSE 'done' END, 9000000 + n, n,"
            " CASE WHEN n % 10 = 0 THEN NULL ELSE n END, 0, '' FROM generate_series(1, 20000) n"
        )
        await connection.execute(
            "INSERT INTO announcements (id, name, published_at, passed_at)"
            " SELECT 'e' || n, 'paid', n, CASE WHEN n % 1000 > 0 THEN n END FROM generate_series(1, 20000) n;"
            "INSERT INTO subscriptions (run, topic, name, fields, wanted, since)"
            " SELECT 'run-' || n, 't', 'paid', '[\"order\"]', 'w' || n, 0 FROM generate_series(1, 20000) n;"
            "INSERT INTO signals (run_id, position, signal_id, kind, topic, sent_at)"
            " SELECT 'run-' || n % 100, n, 'id:' || n, 'message.received', 't', n FROM generate_series(1, 20000) n;"
            "INSERT INTO gatherings (trigger, bucket, key, began_at, due_at, count, size, most)"
            " SELECT 't', 'b' || n, 'k', n, 9000000 + n, 1, 1, 0 FROM generate_series(1, 5000) n"
        )
        for analyzed in (False, True):
            if analyzed:
                await connection.execute("ANALYZE")
                await connection.execute("SET enable_seqscan = on")
            for query, index in queries.items():
                found = await plan(connection, query)
                scans = re.search("Seq Scan on (runs|signals|schedules|deliveries|announcements|subscriptions)", found)
                assert index in found and not scans, f"{query}, analyzed: {analyzed}: {found}"
        await connection.close()
        await finish(store, (await store.claim(["agent"], 1, TTL))[0])


async def plan(connection: Any, query: str) -> str:
    values = {
        "agents": "'[\"agent\"]'",
        "worker": "'me'",
        "now": "1000000",
        "limit": "10",
        "ttl": "10000",
        "alone": "0",
    }
    array = "[]" in STATEMENTS[query].text
    values |= {"ids": "'[\"a\"]'", "keys": "'[\"a\"]'", "key": "NULL" if array else "'a'", "after": "''"}
    arguments = ", ".join(values.get(name, "NULL") for name in STATEMENTS[query].parameters)
    given = arguments if not array else arguments.replace("1000000", "NULL")
    lines = await connection.fetch(f"EXPLAIN EXECUTE {query} ({given})" if given else f"EXPLAIN EXECUTE {query}")
    return "\n".join(row[0] for row in lines)
