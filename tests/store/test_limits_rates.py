"""Rates that are shared: pauses, and tokens that are paid for afterwards. Every test runs on every store."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.store.places import TTL, ManualClock, Place, new

from holdfast.store.limits import Closed, Turn
from holdfast.words.limits import Lane, interval_us

A_SECOND_US = 1_000_000
THOUSAND_A_SECOND = 1_000_000  # microseconds that a thousand tokens take


async def test_a_pause_puts_off_every_turn(place: Place) -> None:
    """Turns taken after it, by anybody, come after its end and are as far apart as ever; a shorter one changes nothing."""
    clock = ManualClock()
    async with place.open(clock) as store, place.open(clock) as two:
        now = clock.time
        assert await store.take_turn("k", A_SECOND_US) == Turn(now * 1000, paused=False)
        assert await two.pause_rate("k", 30_000) == now + 30_000
        assert await store.pause_rate("k", 10_000) == now + 30_000
        turns = await asyncio.gather(*[own.take_turn("k", A_SECOND_US) for own in (store, two) * 2])
        assert sorted(turns) == [Turn((now + 30_000 + 1000 * number) * 1000, paused=True) for number in range(4)]
        assert (await store.take_turn("other", A_SECOND_US)).at == now
        assert await store.closed("k") == Closed(now + 30_000, 0, 0)
        assert await store.closed("never heard of") == Closed(0, 0, 0)
        clock.time = now + 40_000
        assert await two.take_turn("k", A_SECOND_US) == Turn((now + 40_000) * 1000, paused=False)


async def test_a_pause_is_there_when_all_who_knew_of_it_are_gone(place: Place) -> None:
    """It is in the database; what is paused can be listed, the longest first."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.pause_rate("short", 1_000)
        await store.pause_rate("long", 60_000)
    async with place.open(clock) as store:
        assert await store.paused_rates() == [("long", clock.time + 60_000), ("short", clock.time + 1_000)]
        clock.time += 1_000
        assert await store.paused_rates() == [("long", clock.time + 59_000)]


async def test_what_is_paused_is_not_forgotten_with_old_rates(place: Place) -> None:
    """Pruning deletes rows that say nothing, and only those."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.pause_rate("k", 60_000)
        await store.charge("owing", 30_000, THOUSAND_A_SECOND, clock.time)
        clock.time += 10_000
        await store.prune(clock.time, ["completed"])
        assert (await store.closed("k")).paused == clock.time + 50_000
        assert (await store.closed("owing")).owed == clock.time + 20_000


async def test_a_run_whose_turn_comes_in_a_pause_is_put_off(place: Place) -> None:
    """It had its turn before the rate was paused: it is not claimed, but due again after the pause."""
    clock = ManualClock()
    async with place.open(clock) as store:
        for number in range(3):
            clock.time += 1
            await store.create(new(f"run-{number}", lane=Lane(rate_key="k", rate_n=1, rate_ms=1000)))
        claimed = await store.claim(["agent"], 10, TTL)
        assert [row.id for row in claimed] == ["run-0"]
        paused = await store.pause_rate("k", 60_000)
        clock.time += 5_000
        assert await store.claim(["agent"], 10, TTL) == []
        row = await store.run("run-1")
        assert row is not None
        assert (row.status, row.waits_for, row.due_at) == ("ready", "rate", paused)
        assert await store.next_due(["agent"]) == paused
        clock.time = paused + 10
        assert [row.id for row in await store.claim(["agent"], 10, TTL)] == ["run-1"]


async def test_a_rate_without_a_number_only_pauses(place: Place) -> None:
    """Its runs begin together, before and after the pause, and none within."""
    clock = ManualClock()
    async with place.open(clock) as store:
        lane = Lane(rate_key="k", rate_n=0, rate_ms=0)
        await asyncio.gather(*[store.create(new(f"a-{number}", lane=lane)) for number in range(5)])
        assert len(await store.claim(["agent"], 10, TTL)) == 5
        until = await store.pause_rate("k", 1_000)
        await asyncio.gather(*[store.create(new(f"b-{number}", lane=lane)) for number in range(5)])
        assert await store.claim(["agent"], 10, TTL) == []
        clock.time = until
        assert len(await store.claim(["agent"], 10, TTL)) == 5


async def test_tokens_are_paid_for_by_later_turns(place: Place) -> None:
    """They take their time from the turn of the one that used them, and the next turns are as far apart as usual use."""
    clock = ManualClock()
    async with place.open(clock) as store, place.open(clock) as two:
        first = await store.take_turn("k", 1_000, THOUSAND_A_SECOND)
        clock.time += 500
        await two.charge("k", 3_000, THOUSAND_A_SECOND, first.at)
        assert (await store.closed("k")).owed == first.at + 3_000
        turns = [await two.take_turn("k", 1_000, THOUSAND_A_SECOND) for _ in range(3)]
        assert [turn.at for turn in turns] == [first.at + 3_000 * number for number in (1, 2, 3)]


async def test_no_more_tokens_than_the_rate_over_time(place: Place) -> None:
    """A hundred calls of very different sizes, by two stores: what they used fits into the time they took."""
    clock, chance = ManualClock(), random.Random(11)
    async with place.open(clock) as store, place.open(clock) as two:
        began, used = clock.time, 0
        for _ in range(100):
            own = chance.choice([store, two])
            turn = await own.take_turn("k", interval_us(10, 1_000), THOUSAND_A_SECOND)
            clock.time = max(clock.time, turn.at) + chance.choice([0, 50, 2_000])
            tokens = chance.choice([1, 100, 500, 8_000])
            used += tokens
            await own.charge("k", tokens, THOUSAND_A_SECOND, turn.at)
        end = await store.take_turn("k", 0, THOUSAND_A_SECOND)
        assert used <= end.at - began <= used + 100 * 2_600  # a token a millisecond; and the pauses we made ourselves


@pytest.mark.parametrize(("sizes", "callers", "least", "most"), [
    ([1_000], 1, 0.98, 1.0), ([300, 3_000], 1, 0.66, 0.76), ([300, 3_000], 4, 0.86, 1.0),
])  # fmt: skip
async def test_what_calls_of_even_and_of_uneven_sizes_get_of_a_rate(
    place: Place, sizes: list[int], callers: int, least: float, most: float
) -> None:
    """Even ones all of it. Of those that differ tenfold, several callers nine tenths, and a single one seven: the docs say so."""
    clock, chance = ManualClock(), random.Random(5)
    async with place.open(clock) as store:
        began, used = clock.time, 0
        turns = [await store.take_turn("k", 1_000, THOUSAND_A_SECOND) for _ in range(callers)]
        for _ in range(160):
            turn = turns.pop(0)
            clock.time, tokens = max(clock.time, turn.at), chance.choice(sizes)
            used += tokens
            await store.charge("k", tokens, THOUSAND_A_SECOND, turn.at)
            turns.append(await store.take_turn("k", 1_000, THOUSAND_A_SECOND))
        assert least <= used / (turns[0].at - began) <= most
