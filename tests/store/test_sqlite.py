"""What is particular to SQLite: URLs, settings, migrations, plans and sizes."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from pathlib import Path

import apsw
import pytest
from tests.store.places import (
    PARTS,
    TTL,
    ManualClock,
    Place,
    finish,
    line,
    new,
    owned,
    park,
    python,
    step,
    write,
)

from holdfast.errors import BadArguments, HoldfastError, NewerJournal, StoreUnavailable
from holdfast.store import migrate
from holdfast.store.changes import News
from holdfast.store.queries import QUERIES, load
from holdfast.store.sqlite import connection, writer
from holdfast.store.sqlite.connection import Options, check_library, connect, parse_url
from holdfast.store.sqlite.peers import Peers
from holdfast.store.sqlite.store import SQLiteStore
from holdfast.store.urls import store_at
from holdfast.words.model import TRANSITIONS


def test_urls() -> None:
    """A URL is `sqlite:PATH` with at most a durability; everything else is an error that says what to write."""
    assert parse_url("sqlite:runs.db") == Options("runs.db", "power")
    assert parse_url("sqlite:/x/runs.db?durability=process") == Options("/x/runs.db", "process")
    assert parse_url("sqlite:C:\\runs.db") == Options("C:\\runs.db")
    assert parse_url("sqlite:////var/lib/runs.db") == Options("/var/lib/runs.db")  # means the same to everybody
    for url, message in {
        "runs.db": "write 'sqlite:PATH'",
        "postgresql://x": "not a SQLite URL",
        "sqlite:": "names no file",
        "sqlite::memory:": "must outlive the process",
        "sqlite:x?durability=none": "neither 'power' nor 'process'",
        "sqlite:x?mode=ro": "unknown option 'mode'",
        "sqlite://x.db": "write 'sqlite:x.db' for a file in the current folder, 'sqlite:/x.db' for one in the root folder",
        "sqlite:///x.db?durability=process": "write 'sqlite:x.db?durability=process' for a file in the current folder",
        "sqlite:///var/lib/x.db": "'sqlite:/var/lib/x.db' for one in the folder /var/lib",
        "sqlite:runs/": "names a folder; write 'sqlite:runs/holdfast.db'",
        "sqlite:/": "names a folder; write 'sqlite:holdfast.db'",
        "sqlite://": "names no file",
    }.items():
        with pytest.raises(BadArguments, match=re.escape(message)):
            parse_url(url)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("x.db", "write 'sqlite:x.db'"),
        ("/var/x.db", "write 'sqlite:/var/x.db'"),
        ("file:x.db", "write 'sqlite:x.db'"),
        ("SQLite:x.db", "write 'sqlite:x.db'"),
        ("sqlite+aiosqlite:///x.db", "write 'sqlite:x.db'"),
        ("sqlite", "write 'sqlite:PATH'"),
        ("postgresql+asyncpg://ana@db/team", "write 'postgresql://user@host/database'"),
        ("postgres:/", "write 'postgresql://user@host/database'"),
        ("postgresql:team", "write 'postgresql://user@host/database'"),
        (
            "mysql://db",
            "write 'sqlite:PATH', for example 'sqlite:holdfast.db', 'postgresql://user@host/database', 'cells:FILE' or 't",
        ),
        ("sqlite://x.db", "write 'sqlite:x.db'"),
        (7, "7 is not a store"),
    ],
)
def test_every_door_says_how_a_store_is_named(url: str, message: str) -> None:
    """A URL in the spelling of another program, or none, is refused before anything is opened or made."""
    with pytest.raises(BadArguments, match=re.escape(message)):
        store_at(url)


async def test_settings(file: Place) -> None:
    """Writers use the log, flush at each commit if asked for power, keep foreign keys, and never map the file."""
    for durability, synchronous in (("power", 2), ("process", 1)):
        store = SQLiteStore(file.path, durability=durability)  # type: ignore[arg-type]
        await store.open()
        pragmas = (await store.facts())["pragmas"]
        assert (pragmas["journal_mode"], pragmas["synchronous"]) == ("wal", synchronous)
        assert (pragmas["foreign_keys"], pragmas["mmap_size"]) == (1, 0)
        assert store.url == file.url + ("" if durability == "power" else "?durability=process")
        await store.close()


def test_old_libraries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SQLite that can corrupt the log is refused with the way out."""
    check_library()
    monkeypatch.setattr(connection.apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(StoreUnavailable, match="install a newer apsw"):
        check_library()


async def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    """A missing folder, a file of another kind and another program's database are refused, and left as they are."""
    other = tmp_path / "other.db"
    apsw.Connection(str(other)).execute("CREATE TABLE theirs (x)").connection.close()
    (tmp_path / "text.db").write_text("not a database " * 100)
    (tmp_path / "folder").mkdir()
    cases = {"none/x.db": "there is no folder", "folder": "is a folder; name a file in it: 'sqlite:.*/folder/holdfast.db'",
             "text.db": "not a SQLite file", "other.db": "some other program"}  # fmt: skip
    for name, message in cases.items():
        store = SQLiteStore(tmp_path / name)
        with pytest.raises(StoreUnavailable, match=message):
            await store.open()
        await store.close()
    assert [name for (name,) in apsw.Connection(str(other)).execute("SELECT name FROM sqlite_schema")] == ["theirs"]


OPENER = """
import asyncio, sys
from holdfast.store.runs import NewRun
from holdfast.store.sqlite.store import SQLiteStore

async def main():
    store = SQLiteStore.from_url(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    await store.open()
    await store.create(NewRun(sys.argv[2], "uid", "agent", "{}"))
    await store.close()

asyncio.run(main())
"""


@pytest.mark.slow
async def test_eight_processes_open_a_new_file(file: Place) -> None:
    """Eight processes that open a file that is not there yet all succeed, and it is migrated once."""
    processes = [python(OPENER, file.url, f"run-{number}") for number in range(8)]
    assert [line(process) for process in processes] == ["ready"] * 8
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait() for process in processes] == [0] * 8
    async with file.open() as store:
        assert len(await store.runs()) == 8
        assert (await store.facts())["integrity"] == "ok"
    for process in processes:
        process.communicate()


async def test_newer_and_changed_schemas_are_refused(file: Place) -> None:
    """A file with a later migration, or with another text of a known one, is refused and not touched."""
    async with file.open():
        pass
    for change, message in (
        ("INSERT INTO migrations VALUES (99, 'future', 'x', 0)", "upgrade this one"),
        ("UPDATE migrations SET checksum = 'x'; DELETE FROM migrations WHERE number = 99", "another text of schema 1"),
    ):
        with apsw.Connection(file.path) as db:
            db.execute(change)
        db.close()
        with pytest.raises(NewerJournal, match=message):
            async with file.open():
                pass


def test_a_failing_migration_changes_nothing(tmp_path: Path) -> None:
    """If one migration fails, none of those before it in the same opening stays."""
    db = connect(str(tmp_path / "x.db"), "power", writer=True)
    broken = migrate.Migration(99, "broken", "CREATE TABLE more (x); SELECT * FROM nothing")
    with pytest.raises(apsw.SQLError):
        migrate.migrate(db, 0, [*migrate.known(), broken])
    assert db.execute("SELECT count(*) FROM sqlite_schema").get == 0
    assert migrate.migrate(db, 0) == len(migrate.known())
    assert migrate.migrate(db, 0) == 0
    later = migrate.Migration(99, "later", "CREATE TABLE more (x)")
    assert migrate.migrate(db, 0, [*migrate.known(), later]) == 1
    db.close()


def test_the_schema_knows_the_model() -> None:
    """The allowed states in the schema are those of model.py."""
    db = apsw.Connection(":memory:")
    migrate.migrate(db, 0)
    sql = db.execute("SELECT sql FROM sqlite_schema WHERE name = 'runs'").get
    check = sql.partition("CHECK (status IN")[2].partition("))")[0]
    assert set(re.findall(r"'([a-z]+)'", check)) == set(TRANSITIONS)


def test_queries_are_named_and_explained() -> None:
    """Every query compiles against the schema and has one sentence that says what it is for."""
    text = (Path(connection.__file__).parents[1] / "queries.sql").read_text()
    for block in text.split("-- name: ")[1:]:
        name, comment = block.splitlines()[:2]
        assert re.fullmatch(r"-- .*\.", comment), name
    with pytest.raises(ValueError, match="two queries named 'x'"):
        load("-- name: x\nSELECT 1\n-- name: x\nSELECT 2\n")
    db = apsw.Connection(":memory:")
    migrate.migrate(db, 0)
    for sql in [sql for name, sql in QUERIES.items() if name not in PARTS]:
        db.execute(f"EXPLAIN {sql}", dict.fromkeys(re.findall(r":(\w+)", sql)))
    db.close()


@pytest.mark.slow
async def test_plans(file: Place) -> None:
    """With many sleeping runs, claim, heartbeat and the like use their index, and no statement reads a whole table."""
    clock = ManualClock()
    async with file.open(clock) as store:
        db = apsw.Connection(file.path)
        db.execute(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 100000)"
            "INSERT INTO runs (id, uid, agent, status, input, queue, due_at, root_id, labels, created_at, updated_at)"
            "SELECT 'run-' || n, 'u', 'agent', 'waiting', '{}', 'default', CASE n % 2 WHEN 0 THEN 99999999 + n END,"
            " 'run-' || n, '{}', n, n FROM n;"
            "INSERT INTO schedules (name, agent, times, run, digest, state, due_at, made_by, created_at, updated_at)"
            "SELECT 's' || substr(id, 5), 'agent', '{}', '{}', '', 'active', 9000000 + created_at, '', created_at, created_at"
            " FROM runs WHERE created_at <= 10000; ANALYZE"
        )

        def plan(query: str) -> str:
            parameters = dict.fromkeys(re.findall(r":(\w+)", QUERIES[query]))
            parameters |= {
                "agents": '["agent"]',
                "ids": "[]",
                "statuses": "[]",
                "spared": "[]",
                "kinds": None,
                "now": 5,
            }
            return " ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {QUERIES[query]}", parameters))

        indexes = {
            "occupied": "runs_slots", "wake": "runs_held", "held_keys": "runs_held", "singleton": "runs_singleton",
            "due": "runs_due", "next_due": "runs_due", "heartbeat": "runs_lease", "orphan": "runs_lease",
            "counted_runs": "runs_recent", "would_prune": "runs_finished",
            "runs": "runs_recent", "prunable": "runs_finished", "family": "runs_parent", "relatives": "runs_parent",
            "open_approvals": "approvals_open", "blobs_named": "with_blob", "delete_blob": "runs_with_blob",
            "census": "COVERING INDEX runs_unfinished", "count_going": "COVERING INDEX runs_unfinished",
            "count_ended": "COVERING INDEX runs_finished", "ended_that_fit": "runs_finished", "count_needs": "runs_due",
            "stuck": "runs_due", "due_schedules": "schedules_due",
            "next_schedule": "schedules_due", "ahead_schedules": "schedules_updated",
            "due_deliveries": "deliveries_due", "due_triggers": "deliveries_due",
            "next_delivery": "deliveries_due", "tally_deliveries": "deliveries_recent",
            "deliveries": "deliveries_recent", "prune_deliveries": "deliveries_settled",
            "orphan_deliveries": "deliveries_owner", "release_deliveries": "deliveries_owner",
            "waiting_announcements": "announcements_waiting", "next_announcement": "announcements_waiting",
            "prune_announcements": "announcements_passed", "subscribers": "subscriptions_wanted (name=? AND wanted=?",
            "compared_fields": "subscriptions_fields", "due_gatherings": "gatherings_due",
            "replay_dead_deliveries": "deliveries_recent",
            "recall_deliveries": "deliveries_due", "recall_received": "deliveries_recent",
            "recall_gatherings": "gatherings",
        }  # fmt: skip
        for query, index in indexes.items():
            assert index in plan(query), f"{query}: {plan(query)}"
        allowed = {"agents", "workers", "count_runs", "count_rows", "approvals", "audit"}
        allowed.add("ended_that_fit")  # scans those that it has found
        for query in QUERIES.keys() - allowed - PARTS:
            scans = re.findall(
                r"SCAN (?:runs|events|signals|blobs|chunks|schedules|deliveries|announcements|subscriptions|gathered)\b(?! USING)",
                plan(query),
            )
            assert not scans, f"{query}: {plan(query)}"
        db.close()
        began = time.process_time()
        for _ in range(100):
            assert await store.claim(["agent"], 10, TTL) == []
        assert time.process_time() - began < 1.0


async def test_an_idle_claim_writes_nothing(file: Place) -> None:
    """A claim that finds nothing due does not even begin a write transaction."""
    async with file.open() as store:
        row = await owned(store, "a")
        await park(store, row, seen=0)
        db = apsw.Connection(file.path)
        db.execute("BEGIN IMMEDIATE")
        assert await asyncio.wait_for(store.claim(["agent"], 10, TTL), 5) == []
        db.execute("ROLLBACK")
        db.close()


async def test_the_file_is_little_larger_than_what_it_holds(file: Place) -> None:
    """400 events of 2 KB make the file grow by at most 1.5 times their payload."""

    def size() -> int:
        return Path(file.path).stat().st_size  # the last close moved the log into the file

    async with file.open() as store:
        await finish(store, await owned(store, "before"))
    before = size()
    payload = 0
    async with file.open() as store:
        row = await owned(store, "2c4d7d1c-0000-4000-8000-a2b3c4d5e6f7")
        for number in range(400):
            event = step(
                key=f"summarise_all#0/fetch#{number}", value="x" * 2048, asked=number, name="fetch", digest="0" * 16
            )
            payload += len(event.value or "")
            await store.append(write(row, event))
    grown = size() - before
    assert grown <= 1.5 * payload, f"{grown / payload:.2f}"


def test_errors_are_ours() -> None:
    """Everything a caller may catch from the store is a HoldfastError."""
    assert all(issubclass(error, HoldfastError) for error in (BadArguments, StoreUnavailable, NewerJournal))


async def test_new_runs_do_not_wait_for_a_reader(file: Place) -> None:
    """A reader in another connection that never ends its transaction holds up no writer."""
    async with file.open() as store:
        await store.create(new("a"))
        db = apsw.Connection(file.path)
        db.execute("BEGIN; SELECT * FROM runs").fetchall()
        await asyncio.wait_for(store.create(new("b")), 5)
        db.close()


async def test_one_thread_at_a_time_tells_other_processes(file: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lone write is told by the loop's thread, what waits for its millisecond by the writer's."""
    poke, inside, met = Peers.poke, threading.Lock(), []

    def slow(self: Peers, changes: dict[str, News]) -> float | None:
        if not inside.acquire(blocking=False):
            met.append(threading.current_thread().name)
            return poke(self, changes)
        try:
            if not changes:
                time.sleep(0.005)  # so that the next write comes meanwhile
            return poke(self, changes)
        finally:
            inside.release()

    monkeypatch.setattr(Peers, "poke", slow)
    monkeypatch.setattr(writer, "_SLOW_S", 60.0)  # every write of the run is a lone one
    async with file.open() as store, file.open():
        row = await owned(store, "a")
        for number in range(300):
            await store.append(write(row, step()))
            await asyncio.sleep(0.002 * (number % 2))
    assert not met
