"""Schedules from outside: declared by agents and made by hand, steered, deployed, backed up, and moved by the clock of tests."""

from __future__ import annotations

import asyncio
import sys
import zoneinfo
from datetime import UTC, datetime, timedelta

import pytest

import holdfast
import holdfast.sync
import holdfast.testing
from holdfast import BadArguments, NotAllowed, Schedule, UnknownAgent, UnknownSchedule
from holdfast.words import schedules


@holdfast.agent(schedule=Schedule("0 7 * * *", args={"team": "sales"}))
async def morning(team: str) -> str:
    return f"good morning, {team}"


@holdfast.agent
async def sweep(team: str = "all") -> str:
    return team


async def test_a_declared_schedule_begins_runs_while_time_passes():
    async with holdfast.testing.open(agents=[morning]) as hf:
        for day in range(1, 4):
            await hf.advance("1 day")
            runs = await hf.runs(agent="morning")
            assert len(runs) == day
            assert await hf.get(runs[0].id).result() == "good morning, sales"
        (info,) = await hf.schedules()
        assert (info.name, info.agent, info.state, info.declared) == ("morning", "morning", "active", True)
        assert (info.begun, info.missed, info.last_status, info.last_run) == (3, 0, "completed", runs[0].id)
        assert [each.hour for each in info.next] == [7] * 5
        assert runs[0].id == f"morning@{info.last_at:%Y-%m-%d}T07:00:00Z"
        (deed,) = await hf.audit(run=runs[0].id)
        assert (deed.action, deed.by, deed.via, deed.data["schedule"]) == ("start", "schedule", "schedule", "morning")


async def test_time_does_not_run_away_for_schedules():
    """A test that waits for a person sees no years go by; one whose run sleeps sees what became due meanwhile."""

    @holdfast.agent
    async def sleeper() -> datetime:
        await holdfast.sleep("3 days")
        return holdfast.now()

    async with holdfast.testing.open(agents=[morning, sleeper]) as hf:
        before = hf.clock.now()
        with pytest.raises(TimeoutError):
            await (await hf.start(sleeper, after="1 day", id="s")).wait("failed", timeout=0)
        assert hf.clock.now() - before < 60_000
        await hf.get("s").result()
        await hf.advance("1s")
        (info,) = await hf.schedules()
        assert 1 <= info.begun <= 4
        assert await hf.get(info.last_run).result() == "good morning, sales"


async def test_what_serve_brings_is_a_deploy():
    async with holdfast.testing.open(agents=[morning]) as hf:
        await hf.advance("1s")

        @holdfast.agent(name="morning", schedule=Schedule(every="1h", args={"team": "ops"}))
        async def later(team: str) -> str:
            return team

        @holdfast.agent(name="morning", schedule=Schedule(every="1h", args={"tame": "ops"}))
        async def wrong(team: str) -> str:
            return team

        with pytest.raises(BadArguments, match="tame"):
            await hf.serve(wrong)
        await hf.serve(later)
        await hf.advance("1h")
        (info,) = await hf.schedules()
        assert (info.times, info.begun) == ("every 1h", 1)
        assert await hf.get(info.last_run).result() == "ops"


async def test_arguments_that_do_not_fit_are_refused_when_a_worker_starts(tmp_path):
    @holdfast.agent(schedule="0 7 * * *")
    async def needs(team: str) -> None: ...

    with pytest.raises(BadArguments, match="team"):
        async with holdfast.open(f"sqlite:{tmp_path / 'a.db'}", agents=[needs]):
            pass


async def test_a_run_that_its_schedule_replaces_says_who_cancelled_it():
    @holdfast.agent(schedule=Schedule(every="1h", overlap="cancel"))
    async def long() -> None:
        await holdfast.sleep("3h")

    async with holdfast.testing.open(agents=[long]) as hf:
        await hf.advance("1h")
        (first,) = await hf.runs()
        await hf.advance("1h")
        info = await hf.get(first.id).info()
        assert (info.status, info.reason) == ("cancelled", "cancelled by schedule: 'long' begins its next run")
        (deed,) = [deed for deed in await hf.audit(run=first.id) if deed.action == "cancel"]
        assert (deed.by, deed.via, deed.data["reason"]) == ("schedule", "schedule", "'long' begins its next run")


async def test_made_and_steered_by_hand():
    async with holdfast.testing.open(agents=[sweep]) as hf:
        handle = await hf.schedule("s", "sweep", Schedule(every="1h", args={"team": "a"}))
        await hf.advance("1h")
        assert (await handle.info()).begun == 1
        await handle.pause()
        await hf.advance("5h")
        paused = await handle.info()
        assert (paused.state, paused.begun, paused.next, paused.due_at) == ("paused", 1, (), None)
        run = await handle.trigger()
        assert await hf.get(run).result() == "a"
        assert (await handle.resume()).next[0] > datetime.fromtimestamp(hf.clock.now() / 1000, UTC)
        now = datetime.fromtimestamp(hf.clock.now() / 1000, UTC)
        filled = await handle.backfill(now - timedelta(hours=4), now)
        assert len(filled) == 4
        assert await handle.backfill(now - timedelta(hours=4), now) == []
        day = (now - timedelta(days=9)).date()
        assert await handle.backfill(day, day) == [f"{handle.name}@{day}T00:00:00Z"]
        assert (await handle.info()).last_run == run
        await hf.get(run).delete()
        assert (await handle.info()).last_status is None
        await hf.schedule("s", sweep, Schedule(every="2h"))
        await hf.advance("2h")
        assert await hf.get((await handle.info()).last_run).result() == "all"
        await handle.delete()
        with pytest.raises(UnknownSchedule, match="'s'"):
            await handle.info()
        assert await hf.schedules() == []
        done = [deed.action for deed in await hf.audit() if "schedule" in deed.action]
        assert done == ["delete_schedule", "schedule", "active_schedule", "paused_schedule", "schedule"]


async def test_who_made_a_schedule_started_its_runs():
    """A question that is not for the starter is not for who made the schedule; if an agent declares it, it is for anybody."""

    @holdfast.agent(schedule=Schedule(every="1h"))
    async def pays() -> bool:
        return bool(await holdfast.approve("Pay?", not_by="starter"))

    async with holdfast.testing.open(agents=[pays]) as hf:
        await hf.acting_as("ana").schedule("made", pays, Schedule(every="1h"))
        await hf.advance("1h")
        asked = {question.run.partition("@")[0]: question for question in await hf.approvals()}
        assert asked.keys() == {"made", "pays"}
        with pytest.raises(NotAllowed, match="ana started the run"):
            await hf.approve(asked["made"], by="ana")
        for question in asked.values():
            await hf.approve(question, by="bo")
            assert await hf.get(question.run).result()


async def test_who_made_a_schedule_or_began_it_by_hand_may_not_decide_what_is_for_another():
    """The arguments are the maker's, and the run is the other's; a fork of the run leaves out both, and so does a backfill."""

    @holdfast.agent
    async def pays_to(name: str) -> bool:
        return bool(await holdfast.approve(f"Pay {name}?", not_by="starter"))

    async with holdfast.testing.open(agents=[pays_to]) as hf:
        await hf.acting_as("ana").schedule("made", pays_to, Schedule(every="1h", args={"name": "ana"}))
        bob = hf.acting_as("bob")
        handle, day = bob.get_schedule("made"), datetime(2026, 11, 2, tzinfo=UTC)
        runs = [await handle.trigger(), *await handle.backfill(day, day)]
        runs.append((await bob.get(runs[0]).fork(by="cy")).id)
        for run in runs:
            question = await hf.get(run).wait_for_question()
            for left_out in ("ana", "bob"):
                assert left_out in question.not_by
                with pytest.raises(NotAllowed, match="started the run"):
                    await hf.approve(question, by=left_out)
            await hf.approve(question, by="dan")
        await hf.advance("2s")
        question = await hf.get(await hf.acting_as("ana").get_schedule("made").trigger()).wait_for_question()
        assert question.not_by == ("ana",)


async def test_what_cannot_be_a_schedule_is_refused():
    async with holdfast.testing.open(agents=[sweep]) as hf:
        now = datetime.now(UTC)
        handle = await hf.schedule("s", sweep, Schedule(every="1s"))
        for wrong, told in (
            (hf.schedule("a b", sweep, "0 7 * * *"), "is not the name of a schedule"),
            (hf.schedule("s2", sweep, None), "needs its times"),
            (hf.schedule("s2", sweep, "7 o'clock"), "is not a cron line"),
            (hf.schedule("s2", sweep, Schedule(every="1h", args={"tame": 1})), "tame"),
            (hf.schedule("s2", sweep, Schedule(every="1h", args={"team": "x" * 40_000})), "at most 30,000 characters"),
            (handle.backfill("2026-11-02", now), "neither a datetime nor a date"),
            (handle.backfill(now.replace(tzinfo=None), now), "has no time zone"),
            (handle.backfill(now, now + timedelta(days=2)), "an end behind it that is past"),
            (handle.backfill(now - timedelta(days=1), now - timedelta(hours=1)), "more than 10,000 times"),
        ):
            with pytest.raises(BadArguments, match=told):
                await wrong
        with pytest.raises(UnknownAgent):
            await hf.schedule("s2", "nobody", "0 7 * * *")
        assert [info.name for info in await hf.schedules()] == ["s"]


async def test_a_restored_copy_has_schedules_and_begins_nothing_while_it_is_held(store_url, tmp_path):
    async with holdfast.open(store_url, agents=[sweep]) as hf:
        await hf.schedule("s", sweep, Schedule(every="1s", overlap="allow"))
        while not (await hf.get_schedule("s").info()).begun:
            await asyncio.sleep(0.05)
        await hf.backup(tmp_path / "copy.backup")
    copy = f"sqlite:{tmp_path / 'copy.db'}"
    await holdfast.restore_backup(tmp_path / "copy.backup", copy)
    async with holdfast.open(copy, agents=[sweep]) as hf:
        kept = await hf.get_schedule("s").info()
        assert kept.due_at < datetime.now(UTC) + timedelta(seconds=1)
        assert await hf.store.next_schedule() is None
        assert (await hf.store.begin_due()).runs == []
        await hf.activate()
        while (await hf.get_schedule("s").info()).begun == kept.begun:
            await asyncio.sleep(0.05)

    await asyncio.sleep(0.05)


def test_plain_code_does_the_same(tmp_path):
    with holdfast.sync.open(f"sqlite:{tmp_path / 'a.db'}", agents=[sweep]) as hf:
        handle = hf.schedule("s", sweep, Schedule(every="1h", args={"team": "b"}))
        assert (type(handle), repr(handle)) == (holdfast.sync.ScheduleHandle, "<schedule s>")
        assert hf.get(handle.trigger()).result(timeout=20) == "b"
        assert hf.get_schedule("s").pause().state == "paused"
        assert [info.name for info in hf.schedules()] == ["s"]


def test_cron_lines_say_what_they_need(monkeypatch):
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(BadArguments, match=r'pip install "holdfast\[schedules\]"'):
        Schedule("0 7 * * *")
    Schedule(every="1h")


async def test_a_schedule_whose_time_zone_is_unknown_is_listed_with_its_problem_and_holds_up_no_other(
    monkeypatch, caplog
):
    async with holdfast.testing.open(agents=[sweep]) as hf:
        await hf.schedule("office", "sweep", Schedule("0 7 * * *", tz="Asia/Tokyo"))
        await hf.schedule("hourly", "sweep", Schedule(every="1h", overlap="allow", catch_up="all"))
        monkeypatch.setattr(
            schedules, "ZoneInfo", lambda name: zoneinfo.ZoneInfo(name if name == "UTC" else "Gone/Zone")
        )
        await hf.advance("25h")
        hourly, office = [info for info in await hf.schedules() if not info.declared]
        assert hourly.begun >= 24 and hourly.problem is None
        assert (office.times, office.overlap, office.next, office.begun) == ("0 7 * * * Asia/Tokyo", "skip", (), 0)
        assert "there is no such time zone here" in office.problem
        assert (await hf.get_schedule("office").pause()).state == "paused"
    assert len([each for each in caplog.records if "leaves schedules" in each.message]) == 1
