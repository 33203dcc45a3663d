"""Lost workers and the numbers of minutes, as the store keeps them."""

from __future__ import annotations

from tests.store.places import TTL, LosesAnswers, ManualClock, Place, owned, recovered, step, write

DAY = 86_400_000


async def test_a_worker_that_lost_runs_by_time_is_told_until_it_is_buried(place: Place) -> None:
    """As `lease` while it is there, with the longest tear; as `dead` when its lock was free; a day long."""
    clock = ManualClock()
    async with place.open(clock) as young:
        old = place.connect(place.url, clock=clock)
        await old.open()
        row = await owned(old, "a")
        await owned(old, "b")
        clock.time += 500
        await old.append(write(row, step()))
        clock.time += TTL
        noticed = clock.time
        assert len(await young.claim(["agent"], 5, TTL)) == 2
        (lost,) = await young.lost_workers()
        assert (lost.id, lost.how, lost.at, lost.moved, lost.after_ms) == (
            old.worker_id, "lease", noticed, 2, TTL + 500,
        )  # fmt: skip
        clock.time += 70
        await owned(old, "c")
        old.abandon()
        assert await recovered(young) == 1
        (lost,) = await young.lost_workers()
        assert (lost.how, lost.at, lost.moved) == ("dead", clock.time, 2)
        await young.claim(["agent"], 5, TTL)
        (lost,) = await young.lost_workers()
        assert (lost.how, lost.moved, lost.after_ms) == ("dead", 3, TTL + 500)
        clock.time += DAY + 1
        assert await young.lost_workers() == []


async def test_minutes_are_sums_of_all_workers_and_counted_once(place: Place) -> None:
    """Said again after a lost answer a minute is the same; after an hour it is forgotten."""
    clock, faults = ManualClock(60_000_000), LosesAnswers()
    async with place.open(clock) as one, place.open(clock, faults) as two:
        await one.count_minute(59_940_000, 10, 2, 1)
        faults.lose = True
        await two.count_minute(59_940_000, 5, 1, 0)
        await two.count_minute(60_000_000, 7, 0, 0)
        assert await one.minutes() == [(59_940_000, 15, 3, 1), (60_000_000, 7, 0, 0)]
        clock.time += 3_600_000
        await one.count_minute(clock.time, 1, 1, 1)
        assert await one.minutes() == [(60_000_000, 7, 0, 0), (clock.time, 1, 1, 1)]
