"""Schedules in the store: each time begun once, what happens when runs overlap, when clocks jump, and when code is deployed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import apsw
import pytest
from tests.store.places import ManualClock, Place, finish, new

from holdfast import BadArguments, Schedule, UnknownSchedule
from holdfast.store.schedules import Declared, template
from holdfast.words.limits import Lane
from holdfast.words.schedules import next_time, run_of, stored

HAND = {"by": "ana", "via": "test"}


def declared(name: str = "s", digest: str = "", input: str = "{}", **options) -> Declared:
    schedule = Schedule(**(options or {"every": "1m"}))
    return Declared(name, "agent", stored(schedule), template(replace(new(""), input=input)), digest)


def none(name: str = "s") -> Declared:
    """An agent that is served, and declares no schedule."""
    return Declared(name, "agent", "", "", "")


def clock_at(minutes: int = 0) -> ManualClock:
    clock = ManualClock()
    clock.time = clock.time // 60_000 * 60_000 + minutes * 60_000 + 30_000
    return clock


async def test_each_time_is_begun_once(place: Place) -> None:
    """Two workers look all the time while an hour goes by: sixty runs of each of twenty schedules, each of one time."""
    clock = clock_at()
    async with place.open(clock) as one, place.open(clock) as two:
        for number in range(20):
            await one.make_schedule(declared(f"s{number}", overlap="allow", every="1m"), **HAND)
        begun: list[str] = []
        for _ in range(60):
            clock.time += 60_000
            for each in await asyncio.gather(*[store.begin_due() for store in (one, two) * 3]):
                begun += each.runs
        assert len(begun) == len(set(begun)) == 20 * 60
        rows = await one.schedules()
        assert {(row.begun, row.missed) for row in rows} == {(60, 0)}
        assert await one.next_schedule() == clock.time + 30_000
        created = await one.run(run_of("s3", clock.time - 30_000))
        assert created is not None
        assert (created.agent, created.input) == ("agent", "{}")


async def test_what_was_missed_is_caught_up(place: Place) -> None:
    """Nobody looks for five minutes: the last time is begun, or all, or none; and a long absence in several steps."""
    clock = clock_at()
    async with place.open(clock) as store:
        for way in ("last", "all", "none"):
            await store.make_schedule(declared(way, every="1m", overlap="allow", catch_up=way), **HAND)
        await store.make_schedule(declared("far", every="10m", overlap="allow", catch_up="none"), **HAND)
        clock.time += 5 * 60_000
        begun = sorted((await store.begin_due()).runs)
        times = [clock.time - 30_000 - back * 60_000 for back in (4, 3, 2, 1, 0)]
        expected = [run_of("last", times[-1]), *(run_of("all", at) for at in times), run_of("none", times[-1])]
        assert begun == sorted(expected)
        clock.time += 5 * 60_000 + 70_000
        assert not [
            run for run in (await store.begin_due()).runs if run.startswith("far")
        ]  # later than a minute: missed
        assert (await store.schedule("far")).missed == 1
        clock.time += 250 * 60_000
        for many in (100, 100, 50):
            assert len([run for run in (await store.begin_due()).runs if run.startswith("all")]) == many
        assert not [run for run in (await store.begin_due()).runs if run.startswith("all")]


async def test_a_time_that_jitter_puts_off_is_not_missed(place: Place) -> None:
    """An hour of jitter: the run begins up to an hour after its time, also where what was missed is not caught up."""
    clock = clock_at()
    async with place.open(clock) as store:
        names = [f"{way}-{number}" for way in ("last", "none") for number in range(5)]
        for name in names:
            await store.make_schedule(declared(name, every="2h", jitter="1h", catch_up=name.partition("-")[0]), **HAND)
        for name in names:
            row = await store.schedule(name)
            assert row.since is not None and row.due_at is not None
            assert row.since <= row.due_at <= row.since + 3_600_000
        end = clock.time // 7_200_000 * 7_200_000 + 3 * 3_600_000
        while (due := await store.next_schedule()) is not None and due <= end:
            clock.time = due
            assert len((await store.begin_due()).runs) == 1
        assert {(row.begun, row.missed) for row in await store.schedules()} == {(1, 0)}


async def test_runs_that_overlap(place: Place) -> None:
    clock = clock_at()
    async with place.open(clock) as store:
        for way in ("skip", "queue", "cancel", "allow"):
            await store.make_schedule(declared(way, every="1m", overlap=way, catch_up="all"), **HAND)
        clock.time += 60_000
        first = clock.time - 30_000
        assert sorted((await store.begin_due()).runs) == sorted(
            run_of(way, first) for way in ("skip", "queue", "cancel", "allow")
        )
        for _ in range(2):
            clock.time += 60_000
            at = clock.time - 30_000
            assert sorted((await store.begin_due()).runs) == [run_of("allow", at), run_of("cancel", at)]
            assert (await store.begin_due()).runs == []
            before = await store.run(run_of("cancel", at - 60_000))
            assert before is not None
            assert before.status == "cancelled"  # it had not begun, so it ended at once
        assert (await store.schedule("skip")).missed == 2
        for run in await store.claim(["agent"], 10, 60_000):
            await finish(store, run)
        clock.time += 3_000
        assert (await store.begin_due()).runs == [run_of("queue", first + 60_000)]


async def test_what_waits_for_the_run_before_begins_when_that_has_ended(place: Place) -> None:
    """Whoever looked is told for which run it waits; so the next begins at that run's end, and not at the next look."""
    clock = clock_at()
    async with place.open(clock) as store:
        await store.make_schedule(declared("queue", every="1m", overlap="queue", catch_up="all"), **HAND)
        clock.time += 3 * 60_000
        times = [clock.time - 30_000 - back * 60_000 for back in (2, 1, 0)]
        assert (await store.begin_due()).runs == [run_of("queue", times[0])]
        for at in times[1:]:
            begun = await store.begin_due()
            assert (begun.runs, begun.behind) == ([], {run_of("queue", at - 60_000): "queue"})
            assert await store.begin_due(freed=["queue"]) == begun  # it goes on, whatever was heard
            (run,) = await store.claim(["agent"], 10, 60_000)
            await finish(store, run)
            assert await store.begin_due() == ([], 0, {})
            assert (await store.begin_due(freed=["queue", "unknown"])).runs == [run_of("queue", at)]
        assert await store.begin_due(freed=["queue"]) == ([], 0, {})  # no time has come
        assert (await store.schedule("queue")).since == times[-1] + 60_000


async def test_times_that_wait_are_missed_when_a_schedule_is_paused_deleted_retired_or_has_other_times(
    place: Place,
) -> None:
    """They were counted nowhere: what waits for the run before is not begun any more, and a person is to see that."""
    clock = clock_at()
    async with place.open(clock) as store:
        await store.publish([("agent", None, "{}")])
        waits = {"every": "1m", "overlap": "queue", "catch_up": "all"}
        for name in ("paused", "deleted", "changed", "same"):
            await store.make_schedule(declared(name, **waits), **HAND)
        await store.declare_schedules([declared("retired", digest="1", **waits)])
        clock.time += 3 * 60_000
        while (await store.begin_due()).runs:
            pass
        assert (await store.steer_schedule("paused", "paused", **HAND)).missed == 2
        clock.time += 60_000  # what comes while it is paused is not missed: nobody wants it
        assert (await store.steer_schedule("paused", "active", **HAND)).missed == 2
        assert (await store.make_schedule(declared("changed", every="2m"), **HAND)).missed == 3
        changed = await store.make_schedule(declared("same", input='{"a": 1}', **waits), **HAND)
        assert (changed.missed, changed.since) == (
            0,
            clock.time // 60_000 * 60_000 - 2 * 60_000,
        )  # its times are as they were
        await store.declare_schedules([none("retired")])
        assert ((await store.schedule("retired")).state, (await store.schedule("retired")).missed) == ("retired", 3)
        await store.delete_schedule("deleted", **HAND)
        told = {deed["data"]["schedule"]: deed["data"].get("missed") for deed in await store.audit(limit=1000)
                if deed["action"] in ("paused_schedule", "delete_schedule")}  # fmt: skip
        assert (told["paused"], told["deleted"]) == (2, 3)


async def test_times_that_are_skipped_are_skipped_together(place: Place) -> None:
    clock = clock_at()
    async with place.open(clock) as store:
        await store.make_schedule(declared("skip", every="1m", overlap="skip", catch_up="all"), **HAND)
        clock.time += 50 * 60_000
        assert len((await store.begin_due()).runs) == 1
        assert await store.begin_due() == ([], 49, {})
        assert await store.next_schedule() == clock.time + 30_000


async def test_a_run_that_has_begun_is_asked_to_stop_and_waited_for(place: Place) -> None:
    clock = clock_at()
    async with place.open(clock) as store:
        await store.make_schedule(declared("cancel", every="1m", overlap="cancel"), **HAND)
        clock.time += 60_000
        (first,) = (await store.begin_due()).runs
        (run,) = await store.claim(["agent"], 1, 60_000_000)
        clock.time += 60_000
        assert (await store.begin_due()).runs == []
        assert [signal.kind for signal in await store.inbox(first, 0)] == ["run.cancelling"]
        clock.time += 3_000
        assert (await store.begin_due()).runs == []
        assert len(await store.inbox(first, 0)) == 1  # asked once
        await finish(store, run)
        clock.time += 3_000
        assert (await store.begin_due()).runs == [run_of("cancel", clock.time // 60_000 * 60_000)]


async def test_clocks_that_jump(place: Place) -> None:
    """Ahead by a year and back: the time ahead is begun, and then those of now; no time twice."""
    clock = clock_at()
    async with place.open(clock) as store:
        await store.make_schedule(declared(every="1m", overlap="allow"), **HAND)
        right = clock.time
        clock.time += 365 * 86_400_000
        (ahead,) = (await store.begin_due()).runs
        clock.time = right + 60_000
        assert (await store.begin_due()).runs == []
        await store.declare_schedules([])  # which each worker does now and then
        assert await store.next_schedule() == clock.time + 30_000
        clock.time += 60_000
        (now,) = (await store.begin_due()).runs
        assert now < ahead
        clock.time -= 90_000  # a little back: the times that were begun are not begun again
        await store.declare_schedules([])
        clock.time += 200_000
        assert now not in (await store.begin_due()).runs


async def test_a_schedule_that_was_moved_far_ahead_is_set_right_whatever_is_done_to_it_first(place: Place) -> None:
    """A person begins a run of it by hand, or gives it other arguments, before any worker has looked."""
    clock = clock_at()
    async with place.open(clock) as store:
        for name in ("begun", "changed"):
            await store.make_schedule(declared(name, every="1m", overlap="allow"), **HAND)
        right = clock.time
        clock.time += 365 * 86_400_000
        await store.begin_due()
        clock.time = right + 60_000
        await store.begin_at("begun", [clock.time], **HAND)
        await store.make_schedule(declared("changed", input='{"a": 1}', every="1m", overlap="allow"), **HAND)
        await store.declare_schedules([])
        assert {row.due_at for row in await store.schedules()} == {clock.time + 30_000}


async def test_deploys(place: Place) -> None:
    """New code takes effect; an old worker that is restarted changes nothing; when the new ones are gone, it does."""
    clock = clock_at()
    async with place.open(clock) as old, place.open(clock) as other:
        for store in (old, other):
            await store.publish([("agent", None, "{}")])
        first, second = declared(digest="1", every="1m"), declared(digest="2", every="2m")
        await old.declare_schedules([first])
        assert (await old.schedule("s")).times == first.times
        await other.declare_schedules([second])
        assert (await old.schedule("s")).times == second.times
        for _ in range(2):
            await old.declare_schedules([first])
        async with place.open(clock) as restarted:
            await restarted.publish([("agent", None, "{}")])
            await restarted.declare_schedules([first])
            assert (await old.schedule("s")).times == second.times
        await other.close()
        await old.declare_schedules([first])  # a rollback: nobody declares the second any more
        assert (await old.schedule("s")).times == first.times


async def test_a_schedule_that_is_not_declared_any_more_retires(place: Place) -> None:
    clock = clock_at()
    async with place.open(clock) as old, place.open(clock) as other:
        for store in (old, other):
            await store.publish([("agent", None, "{}")])
        await old.declare_schedules([none()])  # before there was one
        with pytest.raises(UnknownSchedule):
            await old.schedule("s")
        await other.declare_schedules([declared(digest="1")])
        await old.declare_schedules([none()])  # an old worker, restarted
        assert (await old.schedule("s")).state == "active"
        await other.declare_schedules([none()])  # the last one that declared it does so no more
        assert (await old.schedule("s")).state == "retired"
        assert await old.next_schedule() is None
        clock.time += 600_000
        assert (await old.begin_due()).runs == []
        with pytest.raises(BadArguments, match="retired"):
            await old.steer_schedule("s", "active", **HAND)
        await other.declare_schedules([declared(digest="1")])  # a rollback, and others declare none
        assert (await old.schedule("s")).state == "retired"
        await old.declare_schedules([declared(digest="1")])
        await other.declare_schedules([declared(digest="1")])
        assert (await old.schedule("s")).state == "active"
        assert await old.next_schedule() == next_time(Schedule(every="1m"), clock.time)


async def test_a_pause_survives_deploys(place: Place) -> None:
    clock = clock_at()
    async with place.open(clock) as store:
        await store.declare_schedules([declared(digest="1")])
        await store.steer_schedule("s", "paused", **HAND)
        await store.declare_schedules([declared(digest="2", every="2m")])
        row = await store.schedule("s")
        assert (row.state, row.due_at, row.digest) == ("paused", None, "2")
        clock.time += 600_000
        assert (await store.begin_due()).runs == []
        resumed = await store.steer_schedule("s", "active", **HAND)
        assert resumed.due_at == next_time(
            Schedule(every="2m"), clock.time
        )  # what was missed meanwhile is not caught up


async def test_only_the_arguments_are_new(place: Place) -> None:
    """A deploy between a time and the look at it loses nothing."""
    clock = clock_at()
    async with place.open(clock) as store:
        await store.declare_schedules([declared(digest="1")])
        clock.time += 60_000
        await store.declare_schedules([declared(digest="2", input='{"a":1}')])
        (run,) = (await store.begin_due()).runs
        row = await store.run(run)
        assert row is not None
        assert row.input == '{"a":1}'


async def test_by_hand_and_by_code_do_not_mix(place: Place) -> None:
    async with place.open(clock_at()) as store:
        await store.declare_schedules([declared(digest="1")])
        with pytest.raises(BadArguments, match="declares the schedule 's' in its code"):
            await store.make_schedule(declared(), **HAND)
        with pytest.raises(BadArguments, match="take it out of the code"):
            await store.delete_schedule("s", **HAND)
        await store.make_schedule(declared("mine"), **HAND)
        await store.declare_schedules([declared("mine", digest="1", every="5m")])
        assert (await store.schedule("mine")).times == declared("mine").times
        await store.delete_schedule("mine", **HAND)
        for call in (
            store.schedule("mine"),
            store.delete_schedule("mine", **HAND),
            store.steer_schedule("no", "paused", **HAND),
        ):
            with pytest.raises(UnknownSchedule):
                await call
        assert [row["action"] for row in await store.audit(None)] == ["delete_schedule", "schedule"]


async def test_times_can_be_begun_by_hand(place: Place) -> None:
    clock = clock_at()
    async with place.open(clock) as store:
        await store.make_schedule(declared(), **HAND)
        at = clock.time // 60_000 * 60_000 - 3_600_000
        assert await store.begin_at("s", [at, at + 60_000, at], **HAND) == [run_of("s", at), run_of("s", at + 60_000)]
        assert await store.begin_at("s", [at], **HAND) == []
        assert next((row["action"], row["run"]) for row in await store.audit(None)) == (
            "start",
            run_of("s", at + 60_000),
        )


async def test_a_singleton_that_goes_on_is_a_time_missed(place: Place) -> None:
    clock = clock_at()
    async with place.open(clock) as store:
        one = replace(new(""), lane=Lane(singleton_key="only"))
        await store.make_schedule(replace(declared(every="1m", overlap="allow"), run=template(one)), **HAND)
        clock.time += 60_000
        (first,) = (await store.begin_due()).runs
        clock.time += 60_000
        assert (await store.begin_due()).runs == []
        assert await store.begin_at("s", [clock.time], **HAND) == []
        row = await store.schedule("s")
        assert (row.begun, row.missed, row.last_run) == (1, 1, first)


async def test_what_workers_declared_that_are_gone_is_forgotten(file: Place) -> None:
    async with file.open(clock_at()) as store:
        for _ in range(3):
            async with file.open(clock_at()) as other:
                await other.publish([("agent", None, "{}")])
                await other.declare_schedules([declared(digest="1")])
        await store.declare_schedules([declared(digest="1")])
        assert apsw.Connection(file.path).execute("SELECT count(*) FROM schedules_declared").get == 1


async def test_a_schedule_that_cannot_be_read_here_holds_up_no_other(place: Place) -> None:
    """More of them than are begun at once, and due before the others; whoever has the time zone begins them."""
    clock = clock_at()
    async with place.open(clock) as store:
        for number in range(101):
            office = replace(declared(f"o{number}"), times=f'{{"catch_up":"last","cron":"{number % 60} * * * *",'
                             f'"jitter_ms":{number + 1},"overlap":"skip","tz":"Office/Main"}}')  # fmt: skip
            await store.make_schedule(declared(f"o{number}"), **HAND)
            await written(store, office)
        clock.time += 1
        await store.make_schedule(declared("s"), **HAND)
        clock.time += 60_000
        unread: dict[str, str] = {}
        assert (await store.begin_due(unread)).runs == []
        assert len(unread) == 100 and "Office/Main" in next(iter(unread.values()))
        assert await store.next_schedule(unread) is not None
        assert (await store.begin_due(unread)).runs == [run_of("s", clock.time // 60_000 * 60_000)]
        assert len(unread) == 101
        assert await store.next_schedule(unread) == clock.time // 60_000 * 60_000 + 60_000
        assert await store.next_schedule() < clock.time
        await store.declare_schedules([])
        assert (await store.steer_schedule("o1", "paused", **HAND)).due_at is None
        with pytest.raises(BadArguments, match="Office/Main"):
            await store.steer_schedule("o1", "active", **HAND)


async def written(store, office: Declared) -> None:
    """As a process has it that knows the time zone."""

    def work(tx):
        yield from tx.rows(
            "put_schedule", name=office.name, agent=office.agent, times=office.times, run=office.run, digest="", made_by="",
            state="active", since=tx.now - 1, due_at=tx.now - 1, missed=0,
        )  # fmt: skip

    await store._submit(work, journal=False)
