"""Bundles in the store: the schema of older stores is widened without touching a row, and names of stores give nothing away."""

import apsw
import pytest
from tests.store.places import new, owned, park

from holdfast.errors import RunFinished
from holdfast.store import migrate
from holdfast.store.bundles import Changed, Mark, Move, public_id
from holdfast.words.model import Event

OLD = [migration for migration in migrate.known() if migration.name != "bundles" and migration.number < 10]


def old_store(path):
    """A store of the version before, with a run, its question, its stream and what it spent."""
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", "wal")
    db.execute("PRAGMA foreign_keys = ON")
    migrate.migrate(db, 1, OLD)
    db.execute(
        "INSERT INTO runs (id, uid, agent, status, input, queue, root_id, labels, created_at, updated_at)"
        " VALUES ('r', 'u', 'a', 'waiting', '{}', 'default', 'r', '{}', 1, 1);"
        "INSERT INTO approvals (id, run_id, root_id, path, key, kind, question, digest, recipients, needs, votes, delegations,"
        " status, asked_at) VALUES ('q', 'r', 'r', '[]', 'k', 'ask', '?', 'd', '[]', '1', '[]', '[]', 'open', 1);"
        "INSERT INTO chunks VALUES ('r', 's', 1, 'data', x'41', 'k', 1, 0, NULL, 0, 1);"
        "INSERT INTO spending VALUES ('r', 'w', 1, 1, 1, 1, 0, 1)"
    )
    return db


def test_an_old_store_learns_the_new_state_and_loses_nothing(tmp_path):
    """In one transaction, seen at once by connections that were open before."""
    db = old_store(tmp_path / "old.db")
    other = apsw.Connection(str(tmp_path / "old.db"))
    other.execute("PRAGMA foreign_keys = ON")
    tables = ("runs", "approvals", "chunks", "spending")
    before = {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in tables}
    with pytest.raises(apsw.ConstraintError):
        other.execute("UPDATE runs SET status = 'moved'")
    migrate.migrate(db, 2)
    for table, rows in before.items():  # later migrations may have added columns behind
        assert [row[: len(rows[0])] for row in db.execute(f"SELECT * FROM {table}").fetchall()] == rows
    for each in (db, other):
        each.execute("UPDATE runs SET status = 'moved'")
        with pytest.raises(apsw.ConstraintError):
            each.execute("UPDATE runs SET status = 'odd'")
    assert db.execute("PRAGMA integrity_check").get == "ok"
    assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    assert not db.pragma("writable_schema")
    db.execute("DELETE FROM runs")
    assert db.execute("SELECT count(*) FROM approvals").get == 0


def test_a_migration_that_fails_leaves_an_old_store_as_it_was(tmp_path):
    db = old_store(tmp_path / "old.db")
    broken = migrate.Migration(99, "broken", "CREATE TABLE runs (x)")
    with pytest.raises(apsw.SQLError):
        migrate.migrate(db, 2, [*migrate.known(), broken])
    with pytest.raises(apsw.ConstraintError):
        db.execute("UPDATE runs SET status = 'moved'")
    assert migrate.migrate(db, 2) > 0


async def test_a_run_that_changed_since_it_was_read_is_not_given_up(place):
    """A signal, an event, a claim: each is seen, and nothing is changed."""
    async with place.open() as store:
        row = await owned(store, "r")
        await park(store, row, Event(0, "note", "n#0"))
        found = await store.belongings("r")
        marks = {each.id: Mark.of(each) for each in found.runs}

        def move(bundle="b"):
            return Move(bundle, "r", "0" * 32, marks, "p", b"file", "moved to store x", "ana", "python")

        await store.send("r", "s", "message.received", "t", "1", {})
        with pytest.raises(Changed):
            await store.move(move())
        assert (await store.run("r")).status == "waiting"
        assert await store.moved("r") is None
        marks = {each.id: Mark.of(each) for each in (await store.belongings("r")).runs}
        await store.move(move())
        moved = await store.run("r")
        assert (moved.status, moved.reason, moved.lease_epoch) == ("moved", "moved to store x", row.lease_epoch + 1)
        assert await store.moved_content("b") == b"file"
        with pytest.raises(RunFinished, match="by another export meanwhile"):
            await store.move(move("again"))


async def test_the_name_of_a_store_is_not_the_id_that_it_keeps(place):
    """On PostgreSQL the channel of its wake-ups is derived from the id."""
    async with place.open() as store:
        own = (await store.facts())["identity"]["id"]
        name = await store.store_id()
        assert name == public_id(own) != own
        await store.create(new("r"))
        assert (await store.belongings("r")).store == name
