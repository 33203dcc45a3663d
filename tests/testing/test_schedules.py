"""The clock of tests and schedules: `advance` ends, moves time by what it says, and has every time handled once, in order."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

import holdfast
import holdfast.testing
from holdfast import Schedule

WAYS = ("skip", "queue", "cancel", "allow")


def ticking(way: str, work: str = "", **options: Any) -> Any:
    """An agent that begins every five seconds, and then sleeps for a time, or calls a step."""

    @holdfast.step
    async def noted() -> None: ...

    @holdfast.agent(name="tick", schedule=Schedule(every="5s", overlap=way, **options))
    async def tick() -> None:
        await (holdfast.sleep(work) if work else noted())

    return tick


@holdfast.agent
async def asks() -> bool:
    return bool(await holdfast.approve("Go on?"))


def times_of(runs: list[holdfast.RunInfo]) -> list[datetime]:
    """The times for which runs were begun, in the order in which they were."""
    return [datetime.fromisoformat(run.id.partition("@")[2]) for run in sorted(runs, key=lambda run: run.created_at)]


@pytest.mark.parametrize("park", [True, False], ids=["parked", "in memory"])
@pytest.mark.parametrize("way", WAYS)
async def test_advance_moves_time_by_what_it_says_while_another_task_waits_for_a_run(way, park):
    """The task lets time jump when every run waits; not while it is moved by hand, or it would run away with schedules."""
    agents = [ticking(way, "12s", catch_up="all"), asks]
    async with holdfast.testing.open(agents=agents, park=park) as hf, asyncio.timeout(60):
        run = await hf.start(asks)
        waits = asyncio.create_task(run.result())
        began, real = hf.clock.now(), time.monotonic()
        await hf.advance("1m")
        assert hf.clock.now() - began <= 60_000 + (time.monotonic() - real) * 1000 + 50
        (question,) = await hf.approvals()
        await hf.approve(question.id, by="ana")
        assert await waits is True


@pytest.mark.parametrize("jitter", [0, "3s"])
async def test_times_that_wait_behind_each_other_begin_in_the_same_advance(jitter):
    """Nothing has to look again later: a time begins when the run before has ended."""
    async with holdfast.testing.open(agents=[ticking("queue", catch_up="all", jitter=jitter)]) as hf:
        until = hf.clock.now() + 60_000
        await hf.advance("1m")
        runs = await hf.runs(agent="tick")
        times = times_of(runs)
        assert len(times) in (11, 12, 13)  # real time passes too, and may bring one more
        assert times == [times[0] + timedelta(seconds=5) * nth for nth in range(len(times))]
        waited = [run for run in runs if times_of([run])[0].timestamp() * 1000 < until]
        assert {run.status for run in waited} == {"completed"}
        (info,) = await hf.schedules()
        assert info.begun in (len(times), len(times) + 1) and info.missed == 0


async def test_times_that_wait_behind_runs_that_sleep_begin_while_a_test_waits_for_these():
    async with holdfast.testing.open(agents=[ticking("queue", "3s", catch_up="all")]) as hf, asyncio.timeout(60):
        await hf.advance("1m")
        for nth in range(1, 12):
            (info,) = await hf.schedules()
            assert info.begun == nth
            await hf.get(info.last_run).result()
            await hf.advance("1ms")
        times = times_of(await hf.runs(agent="tick"))
        assert times == [times[0] + timedelta(seconds=5) * nth for nth in range(12)]


@pytest.mark.parametrize("way", WAYS)
async def test_advance_returns_when_all_times_that_have_come_are_dealt_with(way):
    """Whatever becomes of each: it is begun or counted as missed, and none is left that is due."""
    async with holdfast.testing.open(agents=[ticking(way, "1h", catch_up="all")]) as hf:
        before = hf.clock.now()
        await hf.advance("1m")
        (info,) = await hf.schedules()
        came = (before + 60_000) // 5_000 - before // 5_000
        if way == "queue":
            assert (info.begun, info.missed) == (1, 0)
            return
        assert came <= info.begun + info.missed <= came + 1  # real time passes too
        assert info.begun == (1 if way == "skip" else info.begun + info.missed)


@dataclass(frozen=True)
class Begun:
    pass


@dataclass(frozen=True)
class Late:
    pass


@holdfast.reducer(str)
def reminded(state: str, event: Begun | Late) -> str | tuple[str, list[holdfast.Command]]:
    match event:
        case Begun():
            return "begun", [holdfast.After("1h", Late())]
        case _:
            return "late", [holdfast.Done()]


async def test_several_schedules_and_the_timer_of_a_reducer():
    @holdfast.agent(name="tock", schedule=Schedule(every="7s", overlap="allow"))
    async def tock() -> None:
        await holdfast.sleep("4s")

    agents = [ticking("allow", "12s"), tock, reminded, asks]
    async with holdfast.testing.open(agents=agents, park=False) as hf, asyncio.timeout(60):
        run = await hf.start(reminded)
        waits = asyncio.create_task((await hf.start(asks)).result())
        await run.send(Begun())
        await hf.publish("nobody.waits.for.this")  # lets things settle, too
        began, real = hf.clock.now(), time.monotonic()
        await hf.advance("1h")
        assert hf.clock.now() - began <= 3_600_000 + (time.monotonic() - real) * 1000 + 50
        assert (await run.info()).status == "completed"
        waits.cancel()
