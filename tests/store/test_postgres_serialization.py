"""PostgreSQL that has transactions give way to others (SQLSTATE 40001): they are done again, and nobody hears of it."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.store.places import TTL, Place, finish, new, owned, park, step, write

from holdfast.errors import RunFinished
from holdfast.store.postgres.connection import parse_url
from holdfast.store.store import Store
from holdfast.store.urls import store_at
from holdfast.words.limits import Lane

LIMITS = {"a": 1, "b": 3}
EACH = 20
MANY = EACH * len(LIMITS)


@pytest.fixture
def gave_way(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The driver, with transactions that are serializable whatever it is told; how often which statements gave way."""
    connect, counted = asyncpg.connect, Counter[str]()

    def count(record: Any) -> None:
        if getattr(record.exception, "sqlstate", None) == "40001":
            counted[record.query.split(None, 1)[0]] += 1

    async def connect_serializably(*arguments: Any, server_settings: dict[str, str], **named: Any) -> Any:
        settings = server_settings | {"default_transaction_isolation": "serializable"}
        connection = await connect(*arguments, server_settings=settings, **named)
        connection.add_query_logger(count)
        return connection

    monkeypatch.setattr(asyncpg, "connect", connect_serializably)
    return counted


class Yard:
    """Limited runs, stores that take them at the same time, and somebody who looks."""

    def __init__(self, place: Place) -> None:
        self.place, self.done = place, Counter[str]()

    async def fill(self, store: Store) -> None:
        runs = [
            new(f"{key}-{number}", lane=Lane(limit_key=key, limit_n=limit))
            for key, limit in LIMITS.items()
            for number in range(EACH)
        ]
        await asyncio.gather(*[store.create(run) for run in runs])

    @property
    def busy(self) -> bool:
        return sum(self.done.values()) < MANY

    async def work(self, store: Store) -> None:
        """Claim, write, wait a moment, and end, until all has ended."""
        while self.busy:
            for row in await store.claim(["agent"], 3, TTL):
                await store.append(write(row, step()))
                if row.next_seq < 3:
                    await park(store, row, due_at=store.clock.now(), waits_for="timer")
                else:
                    await finish(store, row)
                    self.done[row.id] += 1
            await asyncio.to_thread(store.heartbeat, TTL)
            await store.let_in(["agent"])
            await asyncio.sleep(0)

    async def look(self, store: Store) -> None:
        """No limit is ever exceeded, and a reader is always answered."""
        while self.busy:
            running = Counter(row.limit_key for row in await store.runs(statuses=["running"], limit=1000))
            assert all(count <= LIMITS[key or ""] for key, count in running.items()), running

    async def send(self, store: Store, name: str) -> int:
        """Two messages to each run, of which only those are not taken that come too late."""
        sent = 0
        for number in range(MANY * 2):
            run = f"{list(LIMITS)[number % 2]}-{number // 4}"
            try:
                await store.send(run, f"{name} {number}", "message.received", "t", None, {})
                sent += 1
            except RunFinished:
                assert self.done[run]
        return sent

    async def check(self, sent: int) -> None:
        """All was done, and once."""
        async with self.place.open() as store:
            rows = await store.runs(limit=1000)
            assert Counter((row.status, row.next_seq, row.steps, row.lease_epoch) for row in rows) == {
                ("completed", 4, 3, 3): MANY
            }
            assert sum(row.inbox_count for row in rows) == sent
            assert self.done == Counter([row.id for row in rows])


async def in_the_yard(place: Place, stores: list[Store]) -> None:
    yard = Yard(place)
    await yard.fill(stores[0])
    each = [[yard.work(store), yard.look(store), yard.send(store, store.worker_id)] for store in stores]
    told = await asyncio.gather(*[work for those in each for work in those])
    await yard.check(sum(told[2::3]))


async def test_all_is_done_once_among_serialization_failures(database: Place, gave_way: Counter[str]) -> None:
    """Claims, appends, messages, counted limits and heartbeats of three stores at once; hundreds give way, none is told."""
    async with database.open() as one, database.open() as two, database.open() as three:
        await in_the_yard(database, [one, two, three])
    assert gave_way.total() > 50


@asynccontextmanager
async def database_that_begins(server: str, isolation: str) -> AsyncIterator[Place]:
    """A database of its own whose transactions are of this kind unless they say otherwise."""
    name = f"test_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(server)
    try:
        await admin.execute(f"CREATE DATABASE {name}")
        await admin.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'")
        yield Place(store_at, urlsplit(server)._replace(path=f"/{name}").geturl())
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()


@pytest.mark.by_day("serializable")
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_a_database_may_begin_otherwise(postgres_server: str, isolation: str) -> None:
    """Whatever a database's transactions are by default: opened by four at once, limits counted, all done once."""
    async with database_that_begins(postgres_server, isolation) as place:
        stores = [store_at(place.url) for _ in range(4)]
        try:
            await asyncio.gather(*[store.open() for store in stores])
            await in_the_yard(place, stores)
        finally:
            await asyncio.gather(*[store.close() for store in stores])


GIVE_WAY = """
CREATE SEQUENCE tries;
CREATE FUNCTION give_way() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF nextval('tries') % 6 <> 0 THEN
    RAISE 'could not serialize access' USING ERRCODE = 'serialization_failure';
  END IF;
  RETURN true;
END $$;
CREATE FUNCTION gives_way() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM give_way();
  RETURN new;
END $$;
CREATE TRIGGER gives_way BEFORE UPDATE ON runs FOR EACH ROW EXECUTE FUNCTION gives_way();
ALTER TABLE audit RENAME TO audited;
CREATE VIEW audit AS SELECT * FROM audited WHERE give_way();
"""


async def test_however_often(database: Place) -> None:
    """A read, an append, a message, a heartbeat, a claim: each is told five times in a row to give way, and goes on."""
    options = parse_url(database.url)
    async with database.open() as store:
        row = await owned(store, "a")
        await store.pause("a", by="ana", reason="", request="1")
        admin = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
        await admin.execute(GIVE_WAY)

        async def tries() -> int:
            return int(await admin.fetchval("SELECT last_value FROM tries"))

        assert [deed["actor"] for deed in await store.audit("a", 10)] == ["ana"]
        assert await tries() == 6
        await store.append(write(row, step()))
        assert await tries() == 12
        assert await store.send("a", "s", "message.received", "t", None, {}) == 2  # the pause is the first
        assert await tries() == 18
        assert [lease.run for lease in await asyncio.to_thread(store.heartbeat, TTL)] == ["a"]
        assert await tries() == 24
        await admin.close()
        assert store.ailment() is None
