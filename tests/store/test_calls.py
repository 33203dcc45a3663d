"""Open calls: what owners tell of bodies that run now counts while they have the run, and no longer."""

from __future__ import annotations

import apsw
import asyncpg
from tests.store.places import TTL, ManualClock, Place, finish, owned, park, recovered

from holdfast.store.calls import Told, news_of
from holdfast.store.changes import Changes
from holdfast.store.postgres.connection import parse_url
from holdfast.words.calls import OpenBody

FETCH = OpenBody("fetch#0", "fetch", "url='a'", 1, 1_000)
ODD = OpenBody("say#0", "say", "text='\\u0000 \\ud800 \"quoted\" ä'", 3, 2_000)


async def test_what_an_owner_tells_is_read_by_all(place: Place) -> None:
    """In one write for all its runs, with the news that a stream waits for; told again it takes the place of the first."""
    clock = ManualClock()
    async with place.open(clock) as store, place.open(clock) as other:
        heard: list[str] = []

        def listen(changes: Changes) -> None:
            heard.extend(changes)

        store.on_change(listen)
        one, two = await owned(store, "one"), await owned(store, "two")
        told = {"one": Told(one.lease_epoch, 1, [FETCH]), "two": Told(two.lease_epoch, 70, [FETCH, ODD])}
        heard.clear()
        await store.tell_calls(told, [])
        assert await other.open_calls(["one", "two", "three"]) == told
        assert {news_of("one"), news_of("two")} <= set(heard)
        await store.tell_calls({"two": Told(two.lease_epoch, 1, [ODD])}, ["one"])
        assert await other.open_calls(["one", "two"]) == {"two": Told(two.lease_epoch, 1, [ODD])}


async def test_nothing_is_told_of_a_run_that_has_left(place: Place) -> None:
    """Parked, ended, taken over by another, or under a lease that is over: the row that is left says nothing."""
    clock = ManualClock()
    async with place.open(clock) as store, place.open(clock) as other:
        rows = {run: await owned(store, run) for run in ("parked", "ended", "taken")}
        await store.tell_calls({run: Told(row.lease_epoch, 1, [FETCH]) for run, row in rows.items()}, [])
        await park(store, rows["parked"], waits_for="timer", due_at=clock.time + 9 * TTL)
        await finish(store, rows["ended"])
        assert (await other.open_calls(rows)).keys() == {"taken"}
        clock.time += TTL
        assert await other.open_calls(rows) == {}
        (taken,) = await other.claim(["agent"], 1, TTL)
        assert await other.open_calls(rows) == {}
        await store.tell_calls({"taken": Told(rows["taken"].lease_epoch, 1, [FETCH])}, [])  # it does not know yet
        assert await other.open_calls(rows) == {}
        await other.tell_calls({"taken": Told(taken.lease_epoch, 1, [ODD])}, [])
        assert await store.open_calls(rows) == {"taken": Told(taken.lease_epoch, 1, [ODD])}


async def test_what_a_dead_worker_told_is_deleted(place: Place) -> None:
    """When its run is taken over; one that closes takes it away itself."""
    async with place.open() as store:
        for how in ("dies", "closes"):
            gone = place.connect(place.url)
            await gone.open()
            row = await owned(gone, how)
            await gone.tell_calls({how: Told(row.lease_epoch, 1, [FETCH])}, [])
            assert (await store.open_calls([how])).keys() == {how}
            if how == "dies":
                gone.abandon()
                assert await recovered(store) == 1
            else:
                await gone.close()
            (orphan,) = await store.claim(["agent"], 1, TTL)
            assert orphan.id == how
            assert await store.open_calls([how]) == {}
            assert await kept(place) == 0


async def test_what_was_open_when_its_owner_died_is_in_the_event_of_the_interruption(place: Place) -> None:
    """So that a reader who comes later knows of attempts that were lost with their process."""
    clock = ManualClock()
    async with place.open(clock) as store, place.open(clock) as other:
        row = await owned(store, "torn")
        await store.tell_calls({"torn": Told(row.lease_epoch, 2, [FETCH, ODD])}, [])
        clock.time += TTL
        await other.claim(["agent"], 1, TTL)
        (event,) = [each for each in await other.journal("torn", 0, 10) if each.kind == "run.interrupted"]
        assert event.data["open"] == [
            {"key": "fetch#0", "attempt": 1, "began": 1_000},
            {"key": "say#0", "attempt": 3, "began": 2_000},
        ]
        assert await kept(place) == 0


async def kept(place: Place) -> int:
    """How many rows there are, whether they count or not."""
    count = "SELECT count(*) FROM open_calls"
    if place.url.startswith("sqlite:"):
        return int(apsw.Connection(place.path).execute(count).get)
    options = parse_url(place.url)
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
    try:
        return int(await connection.fetchval(count))
    finally:
        await connection.close()
