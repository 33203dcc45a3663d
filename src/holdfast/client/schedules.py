"""Schedules, from outside: made and steered by people, and looked at with their next times."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final

from holdfast.client.base import Base
from holdfast.errors import BadArguments
from holdfast.store.schedules import LONGEST_INPUT, Declared, ScheduleRow, template
from holdfast.values.codec import UNTYPED
from holdfast.words.durations import epoch_ms, from_day, moment
from holdfast.words.schedules import (
    Schedule,
    checked_name,
    checked_schedule,
    loaded,
    passed,
    problem,
    run_of,
    stored,
    times,
    words_of,
)

NEXT: Final = 5  # times that are shown
_LOOK: Final = "`holdfast schedules` shows what there is"
_APART_MS: Final = 60_000  # that the clocks of a caller and the store may be apart
_MOST_BACK: Final = 10_000  # runs that one backfill begins
_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule as it is now.

    Attributes:
        name: Its name.
        agent: The agent whose runs it begins.
        times: Its cron line with the time zone, or how often it is.
        state: "active", "paused" by a person, or "retired": no agent declares it any more.
        declared: Whether an agent's code declares it; otherwise a person made it.
        overlap: What happens if the run before has not ended.
        catch_up: What happens to times that passed while no worker was there.
        next: Its next five times, which have not come yet; empty unless it is active.
        due_at: When the next run begins: its time and the jitter.
        last_at: The time of the run that was begun last.
        last_run: That run.
        last_status: Its state; None if it was deleted.
        begun: How many runs it began.
        missed: How many times were passed over.
        problem: Why this process cannot tell its next times: it lacks the time zone, say. Workers that have it begin the runs.
        jitter_s: By how much a run may begin later than its time, in seconds.
        args: The arguments of its runs, by name, as plain data.
        waiting: How many times have come and will begin, but have not: the run before goes on, or no worker is there.

    Example:
        ```python
        for info in await hf.schedules():
            print(info.name, info.next[:1], info.last_status)
        ```
    """

    name: str
    agent: str
    times: str
    state: str
    declared: bool
    overlap: str
    catch_up: str
    next: tuple[datetime, ...]
    due_at: datetime | None
    last_at: datetime | None
    last_run: str | None
    last_status: str | None
    begun: int
    missed: int
    problem: str | None = None
    jitter_s: float = 0.0
    args: dict[str, Any] = field(default_factory=dict, hash=False)
    waiting: int = 0


class ScheduleHandle:
    """A schedule that can be steered, from `hf.schedule` or `hf.get_schedule`.

    Attributes:
        name: Its name.

    Example:
        ```python
        daily = await hf.schedule("daily", research, holdfast.Schedule("0 7 * * *", args={"topic": "otters"}))
        await daily.pause()
        ```
    """

    def __init__(self, client: Base, name: str) -> None:
        self._client, self.name = client, name

    def __repr__(self) -> str:
        return f"<schedule {self.name}>"

    async def info(self) -> ScheduleInfo:
        """Read it as it is now.

        Raises:
            UnknownSchedule: There is no such schedule.

        Example:
            ```python
            daily = await hf.schedule("daily", research, holdfast.Schedule("0 7 * * *", args={"topic": "otters"}))
            print((await daily.info()).next[0])
            ```
        """
        return await _told(self._client, await self._client.store.schedule(self.name))

    async def pause(self) -> ScheduleInfo:
        """Begin no more runs, also after deploys, until `resume`. Runs that go on are left alone; times that wait are missed.

        Raises:
            UnknownSchedule: There is no such schedule.
            BadArguments: It is retired.

        Example:
            ```python
            daily = await hf.schedule("daily", research, holdfast.Schedule("0 7 * * *", args={"topic": "otters"}))
            await daily.pause()
            assert (await daily.info()).state == "paused"
            ```
        """
        return await self._steer("paused")

    async def resume(self) -> ScheduleInfo:
        """Begin runs again, from the next time on: what was missed while it was paused is not caught up.

        Raises:
            UnknownSchedule: There is no such schedule.
            BadArguments: It is retired.

        Example:
            ```python
            daily = await hf.schedule("daily", research, holdfast.Schedule("0 7 * * *", args={"topic": "otters"}))
            await daily.pause()
            await daily.resume()
            ```
        """
        return await self._steer("active")

    async def _steer(self, state: str) -> ScheduleInfo:
        client = self._client
        row = await client._written(client.store.steer_schedule(self.name, state, **client._author()), _LOOK)
        return await _told(client, row)

    async def trigger(self) -> str:
        """Begin a run now, beside its times; returns its id.

        Raises:
            UnknownSchedule: There is no such schedule.
            BadArguments: It has begun one in this very second, or its agent is a singleton that runs.

        Example:
            ```python
            daily = await hf.schedule("daily", research, holdfast.Schedule("0 7 * * *", args={"topic": "otters"}))
            assert await hf.get(await daily.trigger()).result() == "published"
            ```
        """
        client = self._client
        at = client.store.clock.now() // 1000 * 1000
        ids = await client._written(client.store.begin_at(self.name, [at], **client._author()), _LOOK)
        if not ids:
            made = run_of(self.name, at)
            if await client.store.run(made) is not None:
                raise BadArguments(
                    f"schedule {self.name!r} has begun {made!r} in this very second; try again in the next"
                )
            agent = (await client.store.schedule(self.name)).agent
            raise BadArguments(
                f"schedule {self.name!r} begins nothing now: its agent {agent!r} is a singleton, and a run of it has not ended. "
                f"`holdfast runs --agent {agent}` shows it"
            )
        return ids[0]

    async def backfill(self, start: date, end: date) -> list[str]:
        """Begin a run for each of its times from `start` until `end`, as far as there is none yet; returns their ids.

        Args:
            start: A datetime with its time zone, or a date, which is its midnight in UTC.
            end: As well; it must be past.

        Raises:
            UnknownSchedule: There is no such schedule.
            BadArguments: The times are in the future, or too many.

        Example:
            ```python
            daily = await hf.schedule("daily", research, holdfast.Schedule("0 7 * * *", args={"topic": "otters"}))
            now = (await run.info()).created_at
            assert len(await daily.backfill(now - timedelta(days=3), now)) == 3
            ```
        """
        client = self._client
        start, end = from_day(start), from_day(end)
        first, until, now = epoch_ms(start), epoch_ms(end), client.store.clock.now()
        if not 0 <= first <= until <= now + _APART_MS:
            wrong = "the start is before 1970" if first < 0 else "the end is in the future"
            wrong = "the end is before the start" if until < first else wrong
            raise BadArguments(
                f"backfill({start.isoformat()}, {end.isoformat()}): {wrong}. Give a start, and an end behind it that is past"
            )
        schedule, until = loaded((await client.store.schedule(self.name)).times), min(until, now)
        wanted = list(
            itertools.islice(itertools.takewhile(lambda at: at <= until, times(schedule, first - 1)), _MOST_BACK + 1)
        )
        if len(wanted) > _MOST_BACK:
            raise BadArguments(
                f"there are more than {_MOST_BACK:,} times from {start.isoformat()} to {end.isoformat()}; do it in parts"
            )
        begun: list[str] = []
        for page in range(0, len(wanted), _PAGE):
            some = wanted[page : page + _PAGE]
            begun += await client._written(client.store.begin_at(self.name, some, **client._author()), _LOOK)
        return begun

    async def delete(self) -> None:
        """Delete it. One that an agent declares is taken out of the code instead, or paused.

        Raises:
            UnknownSchedule: There is no such schedule.
            BadArguments: An agent declares it.

        Example:
            ```python
            daily = await hf.schedule("daily", research, holdfast.Schedule("0 7 * * *", args={"topic": "otters"}))
            await daily.delete()
            ```
        """
        client = self._client
        await client._written(client.store.delete_schedule(self.name, **client._author()), _LOOK)


class Schedules(Base):
    """The part of a client that has to do with schedules."""

    async def schedule(self, name: str, agent: Any, schedule: str | Schedule, /) -> ScheduleHandle:
        """Have runs of an agent begin by themselves, from now on; the same name again changes it.

        Args:
            name: Begins the ids of its runs.
            agent: The agent, or its name.
            schedule: A cron line, or a `Schedule` with the arguments of its runs.

        Raises:
            BadArguments: It is no schedule, its arguments do not fit the agent, or an agent's code declares one of this name.
            UnknownAgent: No worker has published an agent of this name.

        Example:
            ```python
            await hf.schedule("weekly", research, holdfast.Schedule("0 7 * * mon", args={"topic": "otters"}))
            ```
        """
        named = checked_name(name)
        wanted = checked_schedule(schedule)
        if wanted is None:
            raise BadArguments("a schedule needs its times, as in hf.schedule('weekly', report, '0 7 * * mon')")
        run = await self._scheduled_run(agent, wanted.args)
        if len(run.input) > LONGEST_INPUT:
            raise BadArguments(
                f"the arguments of a schedule are at most {LONGEST_INPUT:,} characters; these are {len(run.input):,}. Give where "
                "the data is, and let the agent read it"
            )
        made = Declared(named, run.agent, stored(wanted), template(run), "")
        await self._written(self.store.make_schedule(made, **self._author()), _LOOK)
        return ScheduleHandle(self, named)

    def get_schedule(self, name: str) -> ScheduleHandle:
        """Return a handle to a schedule. Nothing is read before the handle is used.

        Raises:
            BadArguments: This is no name of a schedule.

        Example:
            ```python
            await hf.schedule("daily", research, holdfast.Schedule("0 7 * * *", args={"topic": "otters"}))
            await hf.get_schedule("daily").pause()
            ```
        """
        return ScheduleHandle(self, checked_name(name))

    async def schedules(self) -> list[ScheduleInfo]:
        """List all schedules, in the order of their names.

        Example:
            ```python
            for info in await hf.schedules():
                print(info.name, info.state, info.next[:1])
            ```
        """
        return [await _told(self, row) async for row in _all(self)]


async def _all(client: Base) -> AsyncIterator[ScheduleRow]:
    after = ""
    while page := await client.store.schedules(after=after, limit=_PAGE):
        for row in page:
            yield row
        after = page[-1].name


async def _told(client: Base, row: ScheduleRow) -> ScheduleInfo:
    wrong, coming, waiting = problem(row.times), list[int](), 0
    told = words_of(row.times)
    if wrong is None:
        schedule = loaded(row.times)
        told = str(schedule), schedule.overlap, schedule.catch_up, schedule.jitter_ms
        if row.state == "active" and row.since is not None:
            now = client.store.clock.now()
            waiting = passed(schedule, row.name, row.since, now)
            coming = list(itertools.islice(times(schedule, now if waiting else row.since - 1), NEXT))
            waiting = waiting if schedule.catch_up == "all" else min(waiting, 1)  # the others count as missed
    last = None if row.last_run is None else await client.store.run(row.last_run)
    return ScheduleInfo(
        row.name, row.agent, told[0], row.state, bool(row.digest), told[1], told[2],
        tuple(map(moment, coming)), None if row.due_at is None else moment(row.due_at),
        None if row.last_at is None else moment(row.last_at), row.last_run, None if last is None else last.status,
        row.begun, row.missed, wrong, told[3] / 1000, _arguments(row), waiting,
    )  # fmt: skip


def _arguments(row: ScheduleRow) -> dict[str, Any]:
    """Read the arguments of a schedule's runs, as far as plain data goes: the agent's types may not be here."""
    found = UNTYPED.load(json.loads(row.run)["input"])
    return found if isinstance(found, dict) else {}
