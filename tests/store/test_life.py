"""The life of a run: what it did and for how long, written by the statements that change its state and by no other."""

from __future__ import annotations

import asyncio

import apsw
import pytest
from tests.store.places import TTL, LosesAnswers, ManualClock, Place, finish, new, owned, park, recovered, step, write

from holdfast.client.info import infos_of
from holdfast.store.appends import Transition
from holdfast.store.calls import Told
from holdfast.store.queries import QUERIES
from holdfast.store.store import Store
from holdfast.words.calls import OpenBody
from holdfast.words.life import LETTERS, MOST, life_of, stands, torn_ms, worked
from holdfast.words.limits import Lane
from holdfast.words.model import TRANSITIONS, RunRow


async def held(store: Store, run: str) -> RunRow:
    row = await store.run(run)
    assert row is not None
    return row


async def told(store: Store, run: str, now: int) -> tuple[tuple[str, int], ...]:
    return life_of(await held(store, run), now)


async def test_a_life_is_told_in_pieces(place: Place) -> None:
    """Ready, at work, waiting for a time, at work, waiting for a person, at work, over: each with how long it took."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.create(new("a"))
        clock.time += 50
        assert await told(store, "a", clock.time) == (("ready", 50),)
        (row,) = await store.claim(["agent"], 1, TTL)
        clock.time += 200
        await store.append(write(row, step()))
        assert await told(store, "a", clock.time) == (("ready", 50), ("work", 200))
        await park(store, row, waits_for="timer", due_at=clock.time + 3_000)
        clock.time += 3_000
        (row,) = await store.claim(["agent"], 1, TTL)
        clock.time += 10
        await park(store, row, waits_for="person")
        clock.time += 60_000
        await store.send("a", "s-1", "message.received", "x", "1", {})
        assert (await told(store, "a", clock.time))[-1] == ("person", 60_000)
        (row,) = await store.claim(["agent"], 1, TTL)
        clock.time += 7
        await finish(store, row)
        clock.time += 99_999  # nobody's time
        pieces = (("ready", 50), ("work", 200), ("wait", 3_000), ("work", 10), ("person", 60_000), ("work", 7))
        assert await told(store, "a", clock.time) == pieces
        found = await store.run("a")
        assert found is not None
        assert (worked(found, clock.time), found.interruptions) == (217, 0)


async def test_a_tear_is_from_the_last_record_to_the_next_claim(place: Place) -> None:
    """What the owner did before its last record was work; an open tear is told as one while nobody has the run."""
    clock = ManualClock()
    async with place.open(clock) as old, place.open(clock) as young:
        row = await owned(old, "a")
        clock.time += 400
        await old.append(write(row, step()))
        clock.time += TTL + 7
        assert await told(young, "a", clock.time) == (("work", 400), ("torn", TTL + 7))
        (taken,) = await young.claim(["agent"], 1, TTL)
        clock.time += 30
        assert await told(young, "a", clock.time) == (("work", 400), ("torn", TTL + 7), ("work", 30))
        assert (worked(taken, clock.time), taken.interruptions) == (430, 1)
        clock.time += TTL
        (again,) = await old.claim(["agent"], 1, TTL, alone=True)
        assert again.interruptions == 2  # in all, whatever was done between
        await finish(old, again)
        assert await told(old, "a", clock.time) == (("work", 400), ("torn", TTL + 7), ("torn", TTL + 30))


async def test_word_of_an_open_call_is_a_sign_of_its_owner(place: Place) -> None:
    """The row, the event, the lost worker and an open tear tell of one moment; word of an owner before that is none."""
    clock = ManualClock()
    async with place.open(clock) as old, place.open(clock) as young:
        row = await owned(old, "a")
        clock.time += 1_500
        await old.tell_calls({"a": Told(row.lease_epoch, 1, [OpenBody("b#0", "b", "", 1, clock.time - 1_200)])}, [])
        seen = clock.time
        clock.time += TTL
        (info,) = await infos_of(young, [await held(young, "a")])
        assert (info.life, info.worked_ms) == ((("work", 1_500), ("torn", TTL)), 1_500)
        (taken,) = await young.claim(["agent"], 1, TTL)
        assert (await told(young, "a", clock.time))[:2] == (("work", 1_500), ("torn", TTL))
        assert worked(taken, clock.time) == 1_500
        (event,) = await young.journal("a", 0, 10)
        assert event.data["seen"] == seen
        (lost,) = await young.lost_workers()
        assert lost.after_ms == TTL


async def test_a_heartbeat_is_a_sign_of_an_owner_that_stands_still(place: Place) -> None:
    """A body that is told of once may run for long: what prolongs its lease says that its process was there."""
    clock = ManualClock()
    async with place.open(clock) as old, place.open(clock) as young:
        row = await owned(old, "a")
        clock.time += 1_500
        await old.tell_calls({"a": Told(row.lease_epoch, 1, [OpenBody("b#0", "b", "", 1, clock.time - 1_200)])}, [])
        clock.time += 240_000
        await asyncio.to_thread(old.heartbeat, TTL)
        seen = clock.time
        clock.time += TTL
        (info,) = await infos_of(young, [await held(young, "a")])
        assert (info.life, info.worked_ms) == ((("work", 241_500), ("torn", TTL)), 241_500)
        (taken,) = await young.claim(["agent"], 1, TTL)
        assert (worked(taken, clock.time), torn_ms(taken)) == (241_500, TTL)
        (event,) = await young.journal("a", 0, 10)
        assert (event.data["how"], event.data["seen"]) == ("lease", seen)
        (lost,) = await young.lost_workers()
        assert lost.after_ms == TTL


async def test_a_heartbeat_is_a_sign_of_an_owner_that_was_buried(place: Place) -> None:
    """Who finds the process dead forgets it: its last heartbeat is kept with its runs."""
    clock = ManualClock()
    async with place.open(clock) as young:
        dying = place.connect(place.url, clock=clock)
        await dying.open()
        await owned(dying, "a")
        clock.time += 240_000
        await asyncio.to_thread(dying.heartbeat, TTL)
        seen = clock.time
        dying.abandon()
        clock.time += 1_000
        assert await recovered(young) == 1
        (info,) = await infos_of(young, [await held(young, "a")])
        assert (info.life, info.worked_ms) == ((("work", 240_000), ("torn", 1_000)), 240_000)
        (taken,) = await young.claim(["agent"], 1, TTL)
        assert (worked(taken, clock.time), torn_ms(taken)) == (240_000, 1_000)
        (event,) = await young.journal("a", 0, 10)
        assert (event.data["how"], event.data["seen"]) == ("dead", seen)
        (lost,) = await young.lost_workers()
        assert (lost.how, lost.after_ms) == ("dead", 1_000)


async def test_a_long_life_stays_short(place: Place) -> None:
    """The oldest pieces become one, so the text is bounded, and the time is all there."""
    clock = ManualClock()
    async with place.open(clock) as store:
        row = await owned(store, "a")
        for number in range(40):
            clock.time += 10 + number
            await park(store, row, waits_for="timer", due_at=clock.time)
            clock.time += 1_000
            (row,) = await store.claim(["agent"], 1, TTL)
            assert len(row.life or "") <= 13 * 26
        clock.time += 5
        pieces = await told(store, "a", clock.time)
        assert len(pieces) == MOST
        assert pieces[-3:] == (("work", 49), ("wait", 1_000), ("work", 5))
        assert pieces[0][0] == "wait"  # of the longest of what was merged
        assert sum(ms for _, ms in pieces) == 40 * 1_000 + sum(10 + number for number in range(40)) + 5
        found = await store.run("a")
        assert found is not None
        assert worked(found, clock.time) == sum(10 + number for number in range(40)) + 5


async def test_a_run_that_is_stopped_and_let_go_is_paused_meanwhile(place: Place) -> None:
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.create(new("a"))
        clock.time += 20
        await store.pause("a", by="ana", reason="so", request="r-1")
        clock.time += 500
        await store.resume("a", by="ana")
        clock.time += 3
        assert await told(store, "a", clock.time) == (("ready", 20), ("paused", 500), ("ready", 3))


async def test_what_was_not_begun_was_not_worked_on_for_long(place: Place) -> None:
    """A run that is given back goes on being ready; a failed one that is retried was stopped meanwhile."""
    clock = ManualClock()
    async with place.open(clock) as store:
        row = await owned(store, "a")
        clock.time += 5
        await store.append(write(row, transition=Transition("ready")))
        clock.time += 5
        (row,) = await store.claim(["agent"], 1, TTL)
        clock.time += 5
        await finish(store, row, "failed", error='{"type": "ValueError", "message": "no"}')
        clock.time += 100
        await store.resume("a", by="ana", retry=True)
        assert await told(store, "a", clock.time) == (
            ("work", 5), ("ready", 5), ("work", 5), ("paused", 100), ("ready", 0),
        )  # fmt: skip


async def test_a_run_that_is_held_back_stays_ready(place: Place) -> None:
    """However often claims pass it over: of a thousand times none is a piece of its life."""
    clock = ManualClock()
    async with place.open(clock) as store:
        lane = Lane(limit_key="k", limit_n=1)
        await owned(store, "a", lane=lane)
        await store.create(new("b", lane=lane))
        for _ in range(3):
            clock.time += 10
            await store.claim(["agent"], 5, TTL)
        clock.time += 10
        assert await told(store, "b", clock.time) == (("ready", 40),)


async def test_an_append_whose_commit_was_unknown_lives_once(place: Place) -> None:
    """It is found by its own rows, and adds no second piece."""
    clock, faults = ManualClock(), LosesAnswers()
    async with place.open(clock, faults) as store:
        row = await owned(store, "a")
        clock.time += 9
        faults.lose = True
        await finish(store, row)
        assert await told(store, "a", clock.time) == (("work", 9),)


async def test_rows_from_before_have_no_life(place: Place) -> None:
    """It is empty, and what was worked is not known, until the run goes on here."""
    row = RunRow("a", "u", "agent", "waiting", "{}", started_at=5, updated_at=10, worked_ms=0)
    assert life_of(row, 100) == ()
    assert worked(row, 100) is None


@pytest.mark.parametrize("status", sorted(TRANSITIONS))
@pytest.mark.parametrize("waits_for", [None, "person", "retry", "worker", "timer"])
async def test_python_and_the_store_name_pieces_alike(status: str, waits_for: str | None) -> None:
    """The letter that the store writes is the kind that lists show of a piece that lasts."""
    row = RunRow("a", "u", "agent", status, "{}", waits_for=waits_for)
    db = apsw.Connection(":memory:")
    db.execute("CREATE TABLE runs (status TEXT, waits_for TEXT)")
    db.execute("INSERT INTO runs VALUES (?, ?)", (status, waits_for))
    assert LETTERS[db.execute(f"SELECT {QUERIES['stood']} FROM runs").get] == stands(row)
