"""Who may run now: priorities, limits, rates, singletons, versions. Every test runs on every store."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from tests.store.places import TTL, ManualClock, Place, finish, new, owned, park

from holdfast.errors import RunActive
from holdfast.store.store import Store
from holdfast.words.limits import Lane, interval_us, latest_us, slack_us, stretch_us
from holdfast.words.model import RunRow


def limited(run: str, key: str = "k", n: int = 1, **fields: Any) -> Any:
    return new(run, lane=Lane(limit_key=key, limit_n=n), **fields)


def rated(run: str, n: int, every_ms: int, key: str = "k") -> Any:
    return new(run, lane=Lane(rate_key=key, rate_n=n, rate_ms=every_ms))


async def create(store: Store, *runs: Any) -> None:
    await asyncio.gather(*[store.create(run) for run in runs])


async def claim(store: Store, limit: int = 100, *agents: str, **options: Any) -> list[RunRow]:
    return await store.claim(agents or ["agent"], limit, TTL, **options)


async def ids(store: Store, limit: int = 100, *agents: str, **options: Any) -> list[str]:
    return [row.id for row in await claim(store, limit, *agents, **options)]


# Priorities


async def test_the_highest_level_goes_first(place: Place) -> None:
    """A claim takes runs of the highest level first, whatever is due longer, and then those of the next."""
    clock = ManualClock()
    async with place.open(clock) as store:
        for number, priority in enumerate([5, 0, 9, 5, 9]):
            clock.time += 1
            await store.create(new(f"run-{number}", lane=Lane(priority)))
        await store.create(new("other", agent="other", lane=Lane(9)))
        await store.create(new("later", lane=Lane(9), delay_ms=1000))
        assert [await ids(store, 3) for _ in range(3)] == [["run-2", "run-4", "run-0"], ["run-3", "run-1"], []]
        assert await store.next_due(["agent"]) == clock.time + 1000


# Limits


async def test_at_most_so_many_run(place: Place) -> None:
    """Runs beyond the limit are held, not due, and say that they wait for a slot; each that ends lets the oldest in."""
    clock = ManualClock()
    async with place.open(clock) as store:
        for number in range(5):
            clock.time += 1
            await store.create(limited(f"run-{number}", n=2))
        await store.create(new("free"))
        first = await claim(store)
        assert [row.id for row in first] == ["run-0", "run-1", "free"]
        held = [await store.run(f"run-{number}") for number in (2, 3, 4)]
        assert {(row.status, row.due_at, row.waits_for) for row in held if row} == {("ready", None, "slot")}
        assert await store.next_due(["agent"]) is None
        await finish(store, first[1])
        assert await ids(store) == ["run-2"]
        await park(store, first[0], seen=0)  # a run that waits has no slot
        (third,) = await claim(store)
        assert (third.id, third.waits_for) == ("run-3", None)


async def test_every_way_to_stop_running_lets_another_in(place: Place) -> None:
    """A run that ends, fails, waits, is paused or given back frees its slot."""
    async with place.open() as store:
        await create(store, *[limited(f"run-{number}") for number in range(6)])
        seen = set()
        for status in ("completed", "failed", "waiting", "paused"):
            (row,) = await claim(store)
            seen.add(row.id)
            await (park(store, row, seen=0) if status == "waiting" else finish(store, row, status))
        async with place.open() as other:
            (row,) = await claim(other)  # closing gives it back, and it is let in before the one that is held
        assert len(seen | {row.id}) == 5
        assert len(await ids(store)) == 1


async def test_a_woken_run_needs_a_slot_again(place: Place) -> None:
    """A run that waited is held when it wakes and all slots are taken, and keeps what came to it meanwhile."""
    async with place.open() as store:
        await store.create(limited("a"))
        (a,) = await claim(store)
        await park(store, a, seen=0, waits_for="message", awaits=["topic"])
        await store.create(limited("b"))
        (b,) = await claim(store)
        await store.send("a", "1", "message.received", "topic", "1", {})
        assert await ids(store) == []
        row = await store.run("a")
        assert row is not None
        assert (row.status, row.waits_for, row.inbox_count) == ("ready", "slot", 1)
        await finish(store, b)
        assert await ids(store) == ["a"]


async def test_a_dead_workers_runs_keep_their_slots_and_are_taken_over(place: Place) -> None:
    """An interrupted run is claimed in its own slot, at once, and nobody else gets it before."""
    async with place.open() as store:
        await create(store, limited("a"), limited("b"))
        dead = place.connect(place.url)
        await dead.open()
        (row,) = await claim(dead)
        dead.abandon()
        while not await store.recover():
            await asyncio.sleep(0.01)
        (again,) = await claim(store)
        assert (again.id, again.lease_epoch, again.crash_count) == (row.id, 2, 1)
        await finish(store, again)
        assert len(await ids(store)) == 1


async def test_one_key_does_not_starve_another(place: Place) -> None:
    """Behind a thousand runs of one key, the only run of another begins with the first claims."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await create(store, *[limited(f"a-{number}", "a", 3) for number in range(1000)])
        clock.time += 1
        await store.create(limited("b", "b", 3))
        claimed = []
        for _ in range(3):
            claimed += await ids(store, 10)
        assert "b" in claimed
        assert len(claimed) == 4
        assert await store.next_due(["agent"]) is None  # nothing is looked at again


async def test_the_oldest_is_let_in_before_those_that_came_later(place: Place) -> None:
    """What was held comes before what was created after it."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await create(store, limited("first"))
        (row,) = await claim(store)
        for number in range(3):
            clock.time += 1
            await store.create(limited(f"held-{number}"))
        assert await ids(store) == []
        clock.time += 1
        await store.create(limited("late"))
        await finish(store, row)
        assert await ids(store) == ["held-0"]


async def test_a_raised_limit_is_found(place: Place) -> None:
    """Slots that no end of a run tells of (the limit was raised) are found by looking, for what this worker serves."""
    async with place.open() as store:
        await create(store, limited("a"), limited("b"))
        await store.create(limited("other", agent="other", n=5))
        await claim(store)
        assert await ids(store, 10, "other") == ["other"]  # its limit is five
        assert await store.let_in(["agent"]) == 0
        await create(store, limited("c", n=5))
        await claim(store)
        async with place.open() as two:
            await create(two, *[limited(f"more-{number}", n=5) for number in range(4)])
            taken = await ids(two)
        assert len(taken) == 2  # five in all, c among them
        assert await store.let_in(["nobody"]) == 0


async def test_what_nobody_serves_keeps_nobody_out(place: Place) -> None:
    """A run that is let in and that no worker serves does not keep others of the same limit from the free slot."""
    clock = ManualClock()
    async with place.open(clock) as store:
        row = await owned(store, "running", lane=Lane(limit_key="k", limit_n=1))
        clock.time += 1
        await store.create(limited("old", version="1"))
        clock.time += 1
        await store.create(limited("new"))
        assert await ids(store, 10, "agent", "agent 1") == []
        await finish(store, row)  # lets in "old", for which there is no worker any more
        assert await ids(store) == []
        assert await store.let_in(["agent"]) == 1
        assert await ids(store) == ["new"]


@pytest.mark.slow
async def test_eight_claimers_never_exceed_a_limit(place: Place) -> None:
    """Eight stores claim, park and end runs of three keys, at random: no count of running ones is ever above its limit."""
    limits = {"a": 1, "b": 3, "c": 5}
    async with place.open() as store:
        runs = [limited(f"{key}-{number}", key, n) for key, n in limits.items() for number in range(30)]
        await create(store, *runs)
        done: Counter[str] = Counter()
        most: Counter[str] = Counter()

        async def look() -> None:
            while sum(done.values()) < len(runs):
                running = Counter(row.limit_key for row in await store.runs(statuses=["running"], limit=1000))
                for key, count in running.items():
                    most[key or ""] = max(most[key or ""], count)
                    assert count <= limits[key or ""], f"{count} runs of {key} are running"
                await asyncio.sleep(0)

        async def work(seed: int) -> None:
            chance = random.Random(seed)
            async with place.open() as own:
                while sum(done.values()) < len(runs):
                    for row in await claim(own, chance.randint(1, 7)):
                        await asyncio.sleep(chance.random() / 500)
                        if chance.random() < 0.3:
                            await park(own, row, seen=0, due_at=own.clock.now(), waits_for="timer")
                        else:
                            await finish(own, row)
                            done[row.limit_key or ""] += 1
                    await own.let_in(["agent"])
                    await asyncio.sleep(0.001)

        await asyncio.gather(look(), *[work(seed) for seed in range(8)])
        assert done == Counter(dict.fromkeys(limits, 30))
        assert most["b"] > 1  # the limits were used


@pytest.mark.by_day("*-0")
@pytest.mark.parametrize("seed", range(3))
async def test_no_wake_up_is_lost(place: Place, seed: int) -> None:
    """With no looking at all, only told by ends of runs, every held run is let in: four stores, random schedules."""
    chance = random.Random(seed)
    async with place.open() as store:
        runs = [f"run-{number}" for number in range(40)]
        await create(store, *[limited(run, chance.choice("ab"), chance.randint(1, 2)) for run in runs])
        left = set(runs)

        async def work() -> None:
            async with place.open() as own:
                while left:
                    for row in await claim(own, 3):
                        await asyncio.sleep(chance.random() / 300)
                        await finish(own, row)
                        left.discard(row.id)
                    await asyncio.sleep(0.001)

        await asyncio.wait_for(asyncio.gather(*[work() for _ in range(4)]), 40)
        assert not left


# Rates


async def test_runs_begin_at_their_rate(place: Place) -> None:
    """Of a burst each run is due at its own turn, evenly apart, in order; it is looked at once."""
    clock = ManualClock()
    async with place.open(clock) as store:
        began = clock.time
        for number in range(4):
            clock.time += 1
            await store.create(rated(f"run-{number}", 10, 1000))
        step = interval_us(10, 1000) / 1000
        assert await ids(store) == ["run-0"]
        row = await store.run("run-2")
        assert row is not None
        assert (row.status, row.waits_for, row.due_at) == ("ready", "rate", began + 4 + 2 * step)
        for number in (1, 2, 3):
            clock.time = began + 4 + round(number * step) - 1
            assert await ids(store) == []
            clock.time += 1
            assert await ids(store) == [f"run-{number}"]


@pytest.mark.by_day("sqlite")
async def test_no_window_sees_more_than_the_rate(place: Place) -> None:
    """Eight claimers, late by chance within and beyond the slack: no window has more beginnings than the rate allows."""
    clock, chance = ManualClock(), random.Random(7)
    n, every = 5, 1000
    async with place.open(clock) as store, place.open(clock) as two:
        await create(store, *[rated(f"run-{number}", n, every) for number in range(60)])
        began: list[int] = []
        while len(began) < 60:
            clock.time += chance.choice([1, 20, 90, latest_us(every) // 1000 - 1, 700])
            for own in (store, two):
                for row in await claim(own, chance.randint(1, 20)):
                    began.append(row.started_at or 0)
                    await finish(own, row)
        for first in began:
            assert sum(first <= at < first + every for at in began) <= n


@pytest.mark.slow
@pytest.mark.by_day("sqlite-7-1000", "sqlite-3-3600000", "postgres-7-1000")
@pytest.mark.parametrize(("n", "every"), [(7, 1000), (60, 60_000), (500, 60_000), (1000, 1000), (3, 3_600_000)])
async def test_a_rate_gives_all_that_it_declares_and_never_more(place: Place, n: int, every: int) -> None:
    """Two workers that come a little late for each turn, and now and then very late: 97 % at least, in no window more."""
    clock, chance, count = ManualClock(), random.Random(n), 150

    async with place.open(clock) as store, place.open(clock) as two:
        await create(store, *[rated(f"run-{number}", n, every) for number in range(count)])
        began: list[int] = []
        stood_still = 0
        while len(began) < count:
            own = chance.choice([store, two])
            clock.time = max(clock.time, await own.next_due(["agent"]) or 0) + chance.choice([0, 1, 3, 15])
            if chance.random() < 0.02:  # it stood still
                late = chance.choice([slack_us(every), latest_us(every), 2_000_000]) // 1000
                clock.time += late
                stood_still += late
            for row in await claim(own, 100):
                began.append(row.started_at or 0)
                await finish(own, row)
        for first in began:
            assert sum(first <= at < first + every for at in began) <= n
        assert (began[-1] - began[0] - stood_still) * 0.97 <= (count - 1) * every / n + 15


async def test_a_turn_that_is_used_late_delays_the_one_a_window_behind(place: Place) -> None:
    """No other, so that nothing is lost; one that is much too late goes to the end of the line."""
    clock = ManualClock()
    async with place.open(clock) as store:
        for number in range(6):
            clock.time += 1
            await store.create(rated(f"run-{number}", 2, 1000))
        began = clock.time
        assert await ids(store) == ["run-0"]
        clock.time = began + 510 + 120
        assert await ids(store) == ["run-1"]
        clock.time = began + 1020
        assert await ids(store) == ["run-2"]
        clock.time = began + 1530 + 99
        assert await ids(store) == []
        clock.time += 1
        assert await ids(store) == ["run-3"]
        clock.time = began + 2040
        assert await ids(store) == ["run-4"]
        clock.time = began + 2550 + 600
        assert await ids(store) == ["run-5"]  # its turn is lost, and the next one has come


async def test_a_turn_that_is_taken_at_once_waits_for_those_that_were_used_late(place: Place) -> None:
    """A run that comes when nobody waits has its turn at once, but for those a window before it that began late."""
    clock = ManualClock()
    async with place.open(clock) as store:
        began = clock.time
        await create(store, *[rated(f"run-{number}", 2, 1000) for number in range(3)])
        for at, run in ((0, "run-0"), (950, "run-1"), (1020, "run-2")):
            clock.time = began + at
            assert await ids(store) == [run]
        clock.time = began + 1531
        await store.create(rated("run-3", 2, 1000))
        turn = await store.take_turn("steps", interval_us(2, 1000), every_ms=1000)
        assert turn.usable_at(1000) == clock.time
        assert await ids(store) == []
        clock.time = began + 1949
        assert await ids(store) == []
        clock.time += 1
        assert await ids(store) == ["run-3"]


async def test_a_turn_of_a_step_knows_of_those_that_were_used_late(place: Place) -> None:
    """It is told when it is reserved, so that a body which need not wait for its turn waits for them."""
    clock = ManualClock()
    async with place.open(clock) as store, place.open(clock) as two:
        first = await store.take_turn("k", interval_us(2, 1000), every_ms=1000)
        assert first.late == 0
        await two.use_late("k", {stretch_us(first.place, 1000): (first.at + 400) * 1000}, 1000)
        clock.time = first.at + 1021
        turn = await store.take_turn("k", interval_us(2, 1000), every_ms=1000)
        assert (turn.at, turn.usable_at(1000)) == (clock.time, first.at + 1400)


async def test_turns_are_not_saved_up(place: Place) -> None:
    """Runs that were due while no worker lived begin at their rate all the same."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await create(store, *[rated(f"run-{number}", 1, 1000) for number in range(5)])
        assert len(await ids(store)) == 1
        clock.time += 3_600_000
        assert len(await ids(store)) == 1
        assert await ids(store) == []


async def test_a_run_takes_one_turn(place: Place) -> None:
    """A run that has begun needs no other turn, when it wakes or is taken over."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.create(rated("a", 1, 60_000))
        (a,) = await claim(store)
        await park(store, a, seen=0, due_at=clock.time, waits_for="timer")
        assert await ids(store) == ["a"]


async def test_a_limit_and_a_rate(place: Place) -> None:
    """Who finds no slot takes no turn."""
    clock = ManualClock()
    async with place.open(clock) as store:
        both = Lane(limit_key="l", limit_n=1, rate_key="r", rate_n=1, rate_ms=1000)
        await create(store, new("a", lane=both), new("b", lane=both))
        (first,) = await claim(store)
        clock.time += 2000
        await finish(store, first)
        assert len(await ids(store)) == 1


# Singletons


async def test_one_unfinished_run_of_a_singleton(place: Place) -> None:
    """Of fifty creates in two stores one makes a run, and all others get it; when it has ended there can be another."""
    async with place.open() as one, place.open() as two:
        runs = [new(f"run-{number}", lane=Lane(singleton_key="s")) for number in range(50)]
        results = await asyncio.gather(*[(one, two)[n % 2].create(run) for n, run in enumerate(runs)])
        assert sum(created for _, created in results) == 1
        assert len({row.id for row, _ in results}) == 1
        (row,) = await claim(one)
        await finish(one, row, "failed")
        second, created = await two.create(new("second", lane=Lane(singleton_key="s")))
        assert (second.id, created) == ("second", True)
        with pytest.raises(RunActive, match="'second', of the same singleton"):
            await one.resume(row.id, by="ana", retry=True)


# Versions


async def test_a_run_is_claimed_by_its_version(place: Place) -> None:
    """A run of a version is taken by who has that version; a run of none by anyone who has the agent."""
    async with place.open() as store:
        await create(store, new("one", version="1"), new("two", version="2"), new("any"))
        assert await store.next_due(["other", "agent 1"]) is None
        assert await ids(store, 10, "agent") == ["any"]
        assert await ids(store, 10, "agent", "agent 2") == ["two"]
        assert await ids(store, 10, "agent", "agent 2") == []
        assert await ids(store, 10, "agent", "agent 2", "agent 1") == ["one"]


# Slots and turns of steps


async def test_slots_of_steps(place: Place) -> None:
    """So many bodies have a slot; one that ends frees it; asking twice for the same call takes one."""
    async with place.open() as store, place.open() as two:
        a, b = [await owned(store, run) for run in "ab"]
        assert await store.take_slot("k", 2, "a", "x#0", a.lease_epoch)
        assert await store.take_slot("k", 2, "a", "x#0", a.lease_epoch)
        assert await two.take_slot("k", 2, "b", "x#0", b.lease_epoch)
        assert not await store.take_slot("k", 2, "a", "x#1", a.lease_epoch)
        assert await store.take_slot("other", 2, "a", "x#1", a.lease_epoch)
        await two.leave_slot("b", "x#0", b.lease_epoch)
        assert await store.take_slot("k", 2, "b", "x#1", b.lease_epoch)


async def test_slots_of_a_dead_worker_are_free(place: Place) -> None:
    """A slot counts only while its run is running under the same epoch, with a lease that is not over."""
    clock = ManualClock()
    async with place.open(clock) as store:
        a, b = [await owned(store, run) for run in "ab"]
        assert await store.take_slot("k", 1, "a", "x#0", a.lease_epoch)
        assert not await store.take_slot("k", 1, "b", "x#0", b.lease_epoch)
        await park(store, a, seen=0)
        assert await store.take_slot("k", 1, "b", "x#0", b.lease_epoch)
        clock.time += TTL
        c = await owned(store, "c")
        assert await store.take_slot("k", 1, "c", "x#0", c.lease_epoch)


async def test_fifty_takers_of_three_slots(place: Place) -> None:
    """Fifty calls at once, in two stores: three get a slot."""
    async with place.open() as store, place.open() as two:
        row = await owned(store, "a")
        takes = [(store, two)[n % 2].take_slot("k", 3, "a", f"x#{n}", row.lease_epoch) for n in range(50)]
        assert sum(await asyncio.gather(*takes)) == 3


async def test_turns_of_steps(place: Place) -> None:
    """Turns of a key are reserved one after the other, by whoever asks."""
    clock = ManualClock()
    async with place.open(clock) as store, place.open(clock) as two:
        step = interval_us(10, 1000)
        turns = sorted(
            [turn.at for turn in await asyncio.gather(*[own.take_turn("k", step) for own in (store, two) * 5])]
        )
        assert turns == [clock.time + -(-number * step // 1000) for number in range(10)]
        assert (await store.take_turn("other", step)).at == clock.time


async def test_what_an_earlier_owner_asked_for_late_takes_no_slot_from_the_next(place: Place) -> None:
    """A run is parked while its call asks for a slot, and goes on elsewhere, where the call has one."""
    clock = ManualClock()
    async with place.open(clock) as store, place.open(clock) as two:
        before, other = [await owned(store, run) for run in "ab"]
        await park(store, before, seen=0, due_at=clock.time)
        (after,) = await claim(two)
        assert (after.id, after.lease_epoch) == ("a", before.lease_epoch + 1)
        assert await two.take_slot("k", 1, "a", "x#0", after.lease_epoch)
        assert not await store.take_slot("k", 1, "a", "x#0", before.lease_epoch)
        assert not await store.take_slot("k", 1, "b", "x#0", other.lease_epoch)
