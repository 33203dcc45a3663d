"""PostgreSQL in trouble: connections cut in the middle of what they say, a server killed and restarted."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from tests.chaos.proxy import Proxy
from tests.chaos.server import Server
from tests.store.places import TTL, Place, finish, new, owned, park, step, write

from holdfast.errors import StoreUnavailable
from holdfast.store.postgres import connection
from holdfast.store.store import Store
from holdfast.store.urls import store_at
from holdfast.words.model import RunRow

BUSY_MS = 100  # a busy computer hears an answer late


@asynccontextmanager
async def through_proxy(place: Place, seed: int) -> AsyncIterator[tuple[Proxy, Place]]:
    """The same database behind a proxy."""
    parts = urlsplit(place.url)
    proxy = Proxy(parts.port or 5432, random.Random(seed))
    port = await proxy.start()
    try:
        yield proxy, Place(store_at, place.url.replace(f":{parts.port}/", f":{port}/"))
    finally:
        await proxy.stop()


async def write_all(store: Store, row: RunRow, count: int) -> None:
    for number in range(count):
        await store.append(write(row, *[step() for _ in range(1 + number % 3)]))


async def check(place: Place, rows: list[RunRow]) -> None:
    """Each run's journal has each event that was written once, and its row agrees."""
    async with place.open() as store:
        for row in rows:
            journal, events = await store.journal(row.id), row.next_seq
            assert events > 0
            assert [event.seq for event in journal] == list(range(events))
            assert len({event.key for event in journal}) == events
            found = await store.run(row.id)
            assert found is not None
            assert (found.next_seq, found.steps) == (events, events)


@pytest.mark.by_day("0")
@pytest.mark.parametrize("seed", range(3))
async def test_connections_cut_at_random_bytes(database: Place, seed: int) -> None:
    """Whatever is cut in the middle of a statement, a commit or an answer: each append is acknowledged and there once."""
    async with through_proxy(database, seed) as (proxy, place):
        store = store_at(place.url)
        await store.open()
        rows = [await owned(store, f"run-{number}") for number in range(6)]
        proxy.budget = 25_000  # bytes that a connection lives at most
        proxy.reset(1.0)
        await asyncio.gather(*[write_all(store, row, 40) for row in rows])
        proxy.budget = None
        proxy.reset(1.0)
        assert proxy.cut > 10
        await store.close()
    await check(database, rows)


async def test_a_connection_that_swallows_everything(database: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked and never answered, though nobody hangs up, is asked again: reads, writes and news of others."""
    monkeypatch.setattr(connection, "ANSWER_S", 0.5)

    async with through_proxy(database, 1) as (proxy, place), database.open() as other:
        store = store_at(place.url)
        await store.open()
        heard = asyncio.Event()
        store.on_change(lambda changes: heard.set() if {"told", ""} & changes.keys() else None)
        row = await owned(store, "run")
        await store.create(new("told"))
        for _ in range(2):
            proxy.swallow()
            assert await store.run("run") is not None
            await store.append(write(row, step()))
        heard.clear()
        proxy.swallow()
        await other.send("told", "s", "message.received", "t", None, {})
        await heard.wait()
        assert proxy.cut == 0
        await store.close()
    await check(database, [row])


async def test_every_kind_of_write_through_cut_connections(database: Place) -> None:
    """Create, claim, send, park and finish are done once each and answered, although every connection is cut soon."""
    async with through_proxy(database, 7) as (proxy, place):
        store = store_at(place.url)
        await store.open()
        await store.publish([("agent", None, "{}")])
        proxy.budget = 40_000
        proxy.reset(1.0)
        for number in range(25):
            _, created = await store.create(new(f"run-{number}"))
            assert created
            (row,) = await store.claim(["agent"], 1, TTL, sure=True)
            assert (row.id, row.lease_epoch, row.crash_count) == (f"run-{number}", 1, 0)
            await store.append(write(row, step()))
            assert await store.send(row.id, "s", "message.received", "t", None, {}) == 1
            await park(store, row, seen=1)
            assert await store.send(row.id, "s2", "message.received", "t", None, {}) == 2
            (row,) = await store.claim(["agent"], 1, TTL, sure=True)
            await finish(store, row)
        proxy.budget = None
        proxy.reset(1.0)
        assert proxy.cut > 10
        await store.close()
    async with database.open() as store:
        rows = await store.runs(limit=100)
        assert [(row.status, row.lease_epoch, row.inbox_count) for row in rows] == [("completed", 2, 2)] * 25
        for row in rows:
            events = await store.journal(row.id)
            assert len(events) == row.next_seq
            mail = [event.data["position"] for event in events if event.kind == "message.received"]
            assert mail in ([], [1, 2])  # what the last claim took in, unless it had to be made again
            assert [event.kind for event in events if event.kind != "message.received"] == [
                "step.completed", "run.completed",
            ]  # fmt: skip


async def test_a_server_killed_in_the_middle_of_appends(own_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """After SIGKILL and a restart all appends are acknowledged and there once; two lines of the log tell of it."""
    place = Place(store_at, own_server.url)
    store = store_at(place.url)
    await store.open()
    rows = [await owned(store, f"run-{number}") for number in range(4)]
    over = asyncio.Event()

    async def write_on(row: RunRow) -> None:
        while not over.is_set():
            await write_all(store, row, 3)

    writing = asyncio.gather(*[write_on(row) for row in rows])
    for _ in range(2):
        before = rows[0].next_seq
        while rows[0].next_seq < before + 50:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(own_server.kill)
        while store.ailment() is None:
            await asyncio.sleep(0.01)
        with pytest.raises(StoreUnavailable):
            await store.run("run-0")
        await asyncio.to_thread(own_server.start)
        while store.ailment() is not None:
            await asyncio.sleep(0.01)
    over.set()
    await writing
    await store.close()
    await check(place, rows)
    writer = [record.message for record in caplog.records if "written" in record.message]
    assert len([text for text in writer if text.startswith("the store cannot be written")]) == 2


async def test_closing_without_a_server(own_server: Server) -> None:
    """A store whose server is gone can be closed; whoever waits is told that nothing is sure."""
    store = store_at(own_server.url)
    await store.open()
    row = await owned(store, "a")
    await asyncio.to_thread(own_server.kill)
    waiting = store.append(write(row, step()))
    while store.ailment() is None:
        await asyncio.sleep(0.01)
    await store.close()
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        await waiting


@pytest.mark.by_day("there")
@pytest.mark.parametrize("way", ["there", "back"])
async def test_a_slow_way_to_the_database_makes_no_clock_fast(database: Place, way: str) -> None:
    """Neither a first measure that is slow nor a later one: what counts is the shortest way, and in doubt it is earlier."""

    def ahead_ms(store: Store) -> float:
        before = time.time() * 1000
        return store.clock.now() - before  # the server of these tests has the clock of this computer

    async with through_proxy(database, 1) as (proxy, slow):
        setattr(proxy, f"{way}_s", 0.2)
        async with slow.open() as store:
            assert -250 - BUSY_MS < ahead_ms(store) <= 0
            setattr(proxy, f"{way}_s", 0.0)
            await claim_something(store)
            assert -BUSY_MS < ahead_ms(store) <= 0
            setattr(proxy, f"{way}_s", 0.4)
            await asyncio.to_thread(store.heartbeat, TTL)
            assert -BUSY_MS < ahead_ms(store) <= 0


async def claim_something(store: Store) -> None:
    """A worker's first claim, and a heartbeat, which measures the clock."""
    await owned(store, "run")
    await asyncio.to_thread(store.heartbeat, TTL)
