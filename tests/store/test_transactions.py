"""Joint transactions: somebody's own statements and an append of ours are committed together, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Any

import apsw
import asyncpg
import pytest
from tests.store.places import TTL, ManualClock, Place, owned, step, write

from holdfast.errors import BadArguments, LeaseLost
from holdfast.store.transactions import Undone


class Book:
    """A table of somebody's own in the same database."""

    def __init__(self, place: Place) -> None:
        self.place, self.name = place, f"book_{secrets.token_hex(6)}"
        self.url = place.url.partition("?")[0]

    @property
    def in_file(self) -> bool:
        return self.url.startswith("sqlite:")

    async def ask(self, statement: str, db: Any = None) -> list[tuple[Any, ...]]:
        """Run a statement, on this connection or a new one."""
        statement = statement.format(book=self.name)
        if self.in_file:
            used = db or apsw.Connection(self.place.path)
            used.set_busy_timeout(10_000)
            return list(used.execute(statement))
        used = db or await asyncpg.connect(self.url)
        try:
            return [tuple(row) for row in await used.fetch(statement)]
        finally:
            if db is None:
                await used.close()

    async def lines(self) -> list[str]:
        return [text for (text,) in await self.ask("SELECT line FROM {book} ORDER BY line")]


@pytest.fixture
def book(place: Place):
    """It is gone after the test, even where the server stays."""
    made = Book(place)
    yield made
    if not made.in_file:
        asyncio.run(made.ask("DROP TABLE IF EXISTS {book}"))


class Breaks:
    """Fails once, before or after a commit of a joint transaction."""

    def __init__(self, when: str) -> None:
        self.when, self.armed = when, False

    def before_commit(self, writes: list[str]) -> None:
        self._at("before")

    def after_commit(self, writes: list[str]) -> None:
        self._at("after")

    def _at(self, when: str) -> None:
        if self.armed and when == self.when:
            self.armed = False
            raise OSError("cut")


async def attempt(store, isolation, append, *work):
    """Open a transaction, do this work on its connection, and commit with this append."""
    async with store.transaction(isolation) as joint:
        for one in work:
            await one(joint.connection)
        await joint.commit([append])


async def fails(_db):
    raise ZeroDivisionError


def says(book, statement):
    return lambda db: book.ask(statement, db)


ISOLATIONS = ["read committed", "serializable"]


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_committed_together(place, book, isolation):
    """The statements and the events become visible together; the time is the commit's."""
    async with place.open(ManualClock()) as store:
        await book.ask("CREATE TABLE {book} (line TEXT)")
        row = await owned(store, "run")
        async with store.transaction(isolation) as joint:
            await book.ask("INSERT INTO {book} VALUES ('one')", joint.connection)
            assert await book.lines() == []
            assert await joint.commit([write(row, step(), step()), write(row, step())]) == 1_000_000
            assert await book.lines() == ["one"]
        assert [event.seq for event in await store.journal("run")] == [0, 1, 2]
        await store.append(write(row, step()))  # the journal goes on behind it


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_left_without_a_commit(place, book, isolation):
    """What is not committed never was, and the next one begins afresh."""
    async with place.open() as store:
        await book.ask("CREATE TABLE {book} (line TEXT)")
        row = await owned(store, "run")
        for _ in range(4):
            async with store.transaction(isolation) as joint:
                await book.ask("INSERT INTO {book} VALUES ('gone')", joint.connection)
        with pytest.raises(ZeroDivisionError):
            await attempt(store, isolation, write(row, step()), says(book, "INSERT INTO {book} VALUES ('gone')"), fails)
        row.next_seq -= 1
        assert await book.lines() == []
        async with store.transaction(isolation) as joint:
            await book.ask("INSERT INTO {book} VALUES ('kept')", joint.connection)
            await joint.commit([write(row, step())])
        assert await book.lines() == ["kept"]


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_stale_owner_leaves_nothing(place, book, isolation):
    """Whoever has lost the run cannot commit what its body wrote."""
    clock = ManualClock()
    async with place.open(clock) as first, place.open(clock) as second:
        await book.ask("CREATE TABLE {book} (line TEXT)")
        row = await owned(first, "run")
        clock.time += TTL + 1
        (taken,) = await second.claim(["agent"], 1, TTL)
        with pytest.raises(LeaseLost):
            await attempt(first, isolation, write(row, step()), says(book, "INSERT INTO {book} VALUES ('stale')"))
        assert await book.lines() == []
        async with second.transaction(isolation) as joint:
            await book.ask("INSERT INTO {book} VALUES ('owner')", joint.connection)
            await joint.commit([write(taken, step())])
        assert await book.lines() == ["owner"]
        kinds = [(event.kind, event.epoch) for event in await second.journal("run")]
        assert kinds == [("run.interrupted", 2), ("step.completed", 2)]


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_commit_nobody_knows_of_is_found(place, book, isolation):
    """An error after the commit happened changes nothing: it is there, and acknowledged."""
    faults = Breaks("after")
    async with place.open(ManualClock(), faults=faults) as store:
        await book.ask("CREATE TABLE {book} (line TEXT)")
        row = await owned(store, "run")
        async with store.transaction(isolation) as joint:
            await book.ask("INSERT INTO {book} VALUES ('one')", joint.connection)
            faults.armed = True
            assert await joint.commit([write(row, step()), write(row, step())]) == 1_000_000
        assert (await book.lines(), len(await store.journal("run"))) == (["one"], 2)


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_commit_that_did_not_happen_is_known(place, book, isolation):
    """An error before the commit happened leaves nothing, and the same may be done again."""
    faults = Breaks("before")
    async with place.open(faults=faults) as store:
        await book.ask("CREATE TABLE {book} (line TEXT)")
        row = await owned(store, "run")
        append = write(row, step())
        faults.armed = True
        with pytest.raises(Undone, match="cut"):
            await attempt(store, isolation, append, says(book, "INSERT INTO {book} VALUES ('one')"))
        assert (await book.lines(), await store.journal("run")) == ([], [])
        async with store.transaction(isolation) as joint:
            await book.ask("INSERT INTO {book} VALUES ('two')", joint.connection)
            await joint.commit([append])
        assert (await book.lines(), len(await store.journal("run"))) == (["two"], 1)


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_many_at_once(place, book, isolation):
    """Thirty transactions of as many runs, and heartbeats beside them, lose no update and no lease."""
    async with place.open() as store:
        await book.ask("CREATE TABLE {book} (line INTEGER)")
        await book.ask("INSERT INTO {book} VALUES (0)")
        rows = [await owned(store, f"run{n}") for n in range(30)]

        async def add(row):
            append = write(row, step())
            while True:
                try:
                    async with store.transaction(isolation) as joint:
                        try:
                            ((n,),) = await book.ask("SELECT line FROM {book}" + lock, joint.connection)
                            await asyncio.sleep(0)
                            await book.ask(f"UPDATE {{book}} SET line = {n + 1}", joint.connection)
                        except Exception as error:
                            if joint.undid(error):
                                continue
                            raise
                        await joint.commit([append])
                        return
                except Undone:
                    continue

        lock = "" if book.in_file or isolation == "serializable" else " FOR UPDATE"
        beats = [asyncio.create_task(asyncio.to_thread(store.heartbeat, TTL)) for _ in range(3)]
        await asyncio.gather(*(add(row) for row in rows))
        assert await book.lines() == [30]
        assert [len(leases) for leases in await asyncio.gather(*beats)] == [30] * 3


# What is particular to PostgreSQL


@pytest.fixture
def paper(database: Place):
    made = Book(database)
    yield made
    asyncio.run(made.ask("DROP TABLE IF EXISTS {book}"))


async def test_a_body_that_commits_is_found_out(database, paper):
    """PostgreSQL lets nobody forbid COMMIT; then the append is refused and the error says what happened."""
    async with database.open() as store:
        await paper.ask("CREATE TABLE {book} (line TEXT)")
        row = await owned(store, "run")
        for statements in (("COMMIT",), ("ROLLBACK",), ("COMMIT", "BEGIN"), ("ROLLBACK", "BEGIN")):
            work = [says(paper, statement) for statement in statements]
            with pytest.raises(BadArguments, match="may not end its transaction"):
                await attempt(store, "read committed", write(row, step()), *work)
            row.next_seq -= 1
        assert await store.journal("run") == []


async def test_a_statement_that_failed_undoes_all(database, paper):
    """A body that goes on after a failed statement has no transaction left; in a savepoint it may fail."""
    async with database.open() as store:
        await paper.ask("CREATE TABLE {book} (line TEXT PRIMARY KEY)")
        row = await owned(store, "run")
        append = write(row, step())

        async def divides(db):
            with pytest.raises(asyncpg.DivisionByZeroError):
                await db.execute("SELECT 1/0")

        with pytest.raises(BadArguments, match="savepoint"):
            await attempt(store, "read committed", append, divides)
        async with store.transaction("read committed") as joint:
            await paper.ask("INSERT INTO {book} VALUES ('one')", joint.connection)
            with contextlib.suppress(asyncpg.UniqueViolationError):
                async with joint.connection.transaction():
                    await paper.ask("INSERT INTO {book} VALUES ('two')", joint.connection)
                    await paper.ask("INSERT INTO {book} VALUES ('one')", joint.connection)
            await joint.commit([append])
        assert await paper.lines() == ["one"]


async def test_names_are_the_users(database):
    """A body sees the names of its database, and our tables only if it says our schema's name."""
    async with database.open() as store:
        row = await owned(store, "run")
        async with store.transaction("read committed") as joint:
            db = joint.connection
            assert await db.fetchval("SHOW search_path") == '"$user", public'
            assert await db.fetchval("SELECT to_regclass('events')") is None
            await db.execute("SET search_path = pg_catalog; CREATE TEMP TABLE events (a int)")
            await joint.commit([write(row, step())])
        async with store.transaction("read committed") as joint:
            assert await joint.connection.fetchval("SHOW search_path") == '"$user", public'
            assert await joint.connection.fetchval("SELECT to_regclass('events')") is None
        assert len(await store.journal("run")) == 1


async def test_a_connection_that_is_cut(database, paper):
    """Cut off in the body or kept and cut off in between, nothing is written and the next transaction has another one."""
    async with database.open() as store:
        await paper.ask("CREATE TABLE {book} (line TEXT)")
        row = await owned(store, "run")
        append = write(row, step())
        async with store.transaction("read committed") as joint:
            await paper.ask("INSERT INTO {book} VALUES ('gone')", joint.connection)
            await paper.ask(f"SELECT pg_terminate_backend({joint.connection.get_server_pid()})")
            with pytest.raises(
                (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
            ) as cut:
                await paper.ask("INSERT INTO {book} VALUES ('gone')", joint.connection)
            assert joint.undid(cut.value)
        async with store.transaction("read committed") as joint:
            pid = joint.connection.get_server_pid()
        await paper.ask(f"SELECT pg_terminate_backend({pid})")
        async with store.transaction("read committed") as joint:
            assert joint.connection.get_server_pid() != pid
            await paper.ask("INSERT INTO {book} VALUES ('kept')", joint.connection)
            await joint.commit([append])
        assert await paper.lines() == ["kept"]


async def test_conflicts_are_the_databases_doing(database, paper):
    """Of two serializable transactions that read what the other writes, one gives way, at a statement or at its commit."""
    async with database.open() as store:
        await paper.ask("CREATE TABLE {book} (line TEXT)")
        one, other = await owned(store, "one"), await owned(store, "other")
        async with store.transaction("serializable") as first, store.transaction("serializable") as second:
            for joint in (first, second):
                assert await paper.ask("SELECT count(*) FROM {book}", joint.connection) == [(0,)]
                await paper.ask("INSERT INTO {book} VALUES ('one')", joint.connection)
            await first.commit([write(one, step())])
            with pytest.raises(Undone):
                await second.commit([write(other, step())])
        assert await paper.lines() == ["one"]
        assert [len(await store.journal(run)) for run in ("one", "other")] == [1, 0]


async def test_a_commit_that_goes_on_without_us_is_waited_for(database, paper):
    """Cut off while the server is at the commit, it is not taken for undone: whoever looks waits until it is over."""
    async with database.open(ManualClock()) as store:
        await paper.ask("CREATE TABLE {book} (line TEXT)")
        await paper.ask(
            "CREATE FUNCTION {book}_slow() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END $$"
        )
        await paper.ask(
            "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON {book} DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION {book}_slow()"
        )
        row = await owned(store, "run")
        async with store.transaction("read committed") as joint:
            await paper.ask("INSERT INTO {book} VALUES ('one')", joint.connection)
            pid = joint.connection.get_server_pid()
            commit = asyncio.create_task(joint.commit([write(row, step())]))
            at_it = f"SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'PgSleep'"
            while await paper.ask(at_it) != [(1,)]:
                await asyncio.sleep(0.005)
            joint.connection.terminate()
            assert await commit == 1_000_000
        assert (await paper.lines(), len(await store.journal("run"))) == (["one"], 1)
    await paper.ask("DROP FUNCTION {book}_slow CASCADE")
