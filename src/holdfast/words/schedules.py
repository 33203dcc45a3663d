"""Schedules as they are declared: at which times a run begins by itself. Data and arithmetic only: no clock and no I/O.

A schedule names moments, its times. They come from the schedule alone, so every process finds the same ones: those of a cron line
in its time zone, or the multiples of `every` since 1970. What is done about times that nobody was there for is `due`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.errors import BadArguments
from holdfast.values.text import short
from holdfast.words.durations import Duration, milliseconds, written
from holdfast.words.model import is_awkward

Overlap = Literal["skip", "queue", "cancel", "allow"]
CatchUp = Literal["last", "all", "none"]
_OVERLAPS: Final = ("skip", "queue", "cancel", "allow")
_CATCH_UPS: Final = ("last", "all", "none")
_NAME: Final = re.compile(r"[\w.:-]{1,150}", re.ASCII)
_SHORTEST_MS: Final = 1_000
_CHANGE_S: Final = 3 * 3600  # before and after a change of the clock, in which no search begins
_LONGEST_CRON: Final = 200  # characters
ON_TIME_MS: Final = 60_000  # a time that is begun so late was not missed


@dataclass(frozen=True, slots=True, init=False)
class Schedule:
    """Times at which runs of an agent begin by themselves.

    `Schedule("0 7 * * mon-fri", tz="Europe/Vienna")` is seven o'clock there on working days, also after the clocks change.
    `Schedule(every="15m")` is each quarter of an hour.

    Args:
        cron: Minute, hour, day, month and day of the week; with six fields the first is the second. `L`, `#` and names of days and
            months are known. A time that the change to summer time leaves out is begun when the clocks have moved; one that
            comes twice in autumn is begun once, unless the line is about every hour.
        every: The length of time from one to the next, instead of a cron line.
        tz: The time zone of a cron line; `every` has none.
        jitter: Each run begins up to so much later, always as much at the same time: many schedules do not begin at once.
        overlap: If the run before has not ended: "skip" the time, "queue" a run behind it, "cancel" it first, or "allow" both.
        catch_up: Of times that passed while no worker was there, begin the "last", "all" or "none".
        args: The arguments of each run, by name.

    Raises:
        BadArguments: It is no schedule.

    Example:
        ```python
        @holdfast.agent(schedule=holdfast.Schedule("0 7 * * mon-fri", tz="Europe/Vienna"))
        async def morning_report() -> None: ...
        ```
    """

    cron: str | None
    every_ms: int
    tz: str
    jitter_ms: int
    overlap: Overlap
    catch_up: CatchUp
    args: Mapping[str, Any] = field(hash=False)

    def __init__(
        self,
        cron: str | None = None,
        *,
        every: Duration | None = None,
        tz: str = "UTC",
        jitter: Duration = 0,
        overlap: Overlap = "skip",
        catch_up: CatchUp = "last",
        args: Mapping[str, Any] | None = None,
    ) -> None:
        if (cron is None) == (every is None):
            raise BadArguments(
                "a schedule has a cron line or every=, as in Schedule('0 7 * * *') or Schedule(every='15m')"
            )
        every_ms = 0 if every is None else milliseconds(every)
        if every is not None and every_ms < _SHORTEST_MS:
            raise BadArguments(
                f"every={short(every)}: a schedule begins a run each second at the most; write every='1s', and let each do more"
            )
        zone = _zone(tz)
        if every is not None and tz != "UTC":
            raise BadArguments(
                f"tz={short(tz)} is for cron lines: every= counts from 1970, in UTC. For a time of day there write a cron line, as "
                f"in Schedule('0 7 * * *', tz={short(tz)})"
            )
        if cron is not None:
            cron = _checked_cron(cron, zone)
        if overlap not in _OVERLAPS:
            raise BadArguments(f"overlap={short(overlap)}: choose one of {', '.join(_OVERLAPS)}")
        if catch_up not in _CATCH_UPS:
            raise BadArguments(f"catch_up={short(catch_up)}: choose one of {', '.join(_CATCH_UPS)}")
        if args is not None and not (isinstance(args, Mapping) and all(isinstance(name, str) for name in args)):
            raise BadArguments(f"args={short(args)}: give arguments by name, such as args={{'team': 'sales'}}")
        of = {"cron": cron, "every_ms": every_ms, "tz": tz, "jitter_ms": milliseconds(jitter), "overlap": overlap,
              "catch_up": catch_up, "args": dict(args or {})}  # fmt: skip
        for attribute, value in of.items():
            object.__setattr__(self, attribute, value)

    def __str__(self) -> str:
        if self.cron is None:
            return f"every {written(self.every_ms)}"
        return self.cron if self.tz == "UTC" else f"{self.cron} {self.tz}"


def checked_schedule(schedule: object) -> Schedule | None:
    """Read what an agent declares: a schedule, or its cron line alone."""
    if schedule is None or isinstance(schedule, Schedule):
        return schedule
    if isinstance(schedule, str):
        return Schedule(schedule)
    raise BadArguments(f"schedule={short(schedule)}: give a cron line such as '0 7 * * mon-fri', or a Schedule")


def checked_name(name: object) -> str:
    """The name itself, or `BadArguments` that says what it looks like: ids of runs begin with it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or is_awkward(name):
        raise BadArguments(
            f"{short(name)} is not the name of a schedule; use 1 to 150 letters, digits or any of '_ . : -', such as 'report'"
        )
    return name


def _zone(tz: object) -> ZoneInfo:
    if not isinstance(tz, str):
        raise BadArguments(f"tz={short(tz)}: give the name of a time zone, such as 'Europe/Vienna'")
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadArguments(
            f"tz={short(tz)}: there is no such time zone here; names look like 'Europe/Vienna'. If the machine has none at all: "
            "pip install tzdata"
        ) from None


def _checked_cron(cron: object, zone: ZoneInfo) -> str:
    if not isinstance(cron, str) or not 1 <= len(cron) <= _LONGEST_CRON:
        raise BadArguments(f"{short(cron)} is not a cron line; it has five fields, as in '0 7 * * mon-fri'")
    line, cronsim = " ".join(cron.split()), _cronsim()
    try:
        next(cronsim.CronSim(line, datetime(2024, 1, 1, tzinfo=zone)))
    except cronsim.CronSimError as error:
        raise BadArguments(
            f"{short(cron)} is not a cron line: {error}. It has five fields, as in '0 7 * * mon-fri'"
        ) from None
    except StopIteration:
        raise BadArguments(f"{short(cron)} names a day that never comes; look at its day and its month") from None
    return line


# Times


def times(schedule: Schedule, after: int) -> Iterator[int]:
    """The times after a moment, in milliseconds since 1970, for ever or until there are none."""
    if schedule.cron is None:
        at = after - after % schedule.every_ms
        while True:
            at += schedule.every_ms
            yield at
    for each in _cron(schedule, after):
        if (at := _ms(each)) > after:
            yield at


def next_time(schedule: Schedule, after: int) -> int | None:
    """Find the first time after a moment."""
    return next(times(schedule, after), None)


def last_time(schedule: Schedule, until: int) -> int | None:
    """Find the last time before or at a moment, whatever lies between: nothing is counted through.

    Where clocks change by half an hour, cronsim finds other times backwards than forwards: so it only tells where to look.
    """
    if schedule.cron is None:
        return until - until % schedule.every_ms
    last: int | None
    for each in _cron(schedule, until + 1, reverse=True):
        found = itertools.takewhile(lambda at: at <= until, times(schedule, _ms(each) - 1))
        if (last := max(found, default=None)) is not None:
            return last
    return None


def _cron(schedule: Schedule, at: int, *, reverse: bool = False) -> Iterator[datetime]:
    """Walk through the times from a moment on; some may be before it.

    Where clocks change by half an hour, what cronsim finds behind the change depends on where it begins: so that is before it.
    """
    zone = ZoneInfo(schedule.tz)
    before, begin, behind = (
        datetime.fromtimestamp(at / 1000 + s, UTC).astimezone(zone) for s in (-_CHANGE_S, 0, _CHANGE_S)
    )
    if not reverse and before.utcoffset() != behind.utcoffset():
        begin = before
    return iter(_cronsim().CronSim(schedule.cron or "", begin, reverse=reverse))


def _cronsim() -> Any:
    try:
        import cronsim  # noqa: PLC0415 - only cron lines need it
    except ImportError:
        raise BadArguments(
            'cron lines need cronsim, which is not installed: pip install "holdfast[schedules]"'
        ) from None
    return cronsim


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Due:
    """The work there is to do about a schedule whose time has come.

    Attributes:
        begin: The times for which runs begin now, the earliest first.
        missed: How many times were passed over.
        next: The time after these; None if there is none.
    """

    begin: list[int]
    missed: int
    next: int | None


def due(schedule: Schedule, since: int, now: int, most: int) -> Due:
    """Say what there is to do now, if `since` is the first time that was not dealt with; at most so many runs at once."""
    last = last_time(schedule, now)
    if last is None or last < since:
        return Due([], 0, since)
    if schedule.catch_up == "all":
        begin = [since]
        for at in times(schedule, since):
            if at > now or len(begin) == most:
                return Due(begin, 0, at)
            begin.append(at)
        return Due(begin, 0, None)
    late = now - last > ON_TIME_MS
    skipped = _count(schedule, since, last)
    if schedule.catch_up == "none" and late:
        return Due([], skipped + 1, next_time(schedule, now))
    return Due([last], skipped, next_time(schedule, now))


_COUNTED: Final = 1_000


def _count(schedule: Schedule, since: int, before: int) -> int:
    """Count the times from one on, before another; a thousand stand for any more."""
    found = 0
    if since < before:
        found = 1
        for at in times(schedule, since):
            if at >= before or found == _COUNTED:
                break
            found += 1
    return found


def passed(schedule: Schedule, name: str, since: int, now: int) -> int:
    """Count the times from `since` on whose moment has come, jitter included; a thousand stand for any more."""
    return _count(schedule, since, now - (delayed(schedule, name, since) - since) + 1)


def delayed(schedule: Schedule, name: str, at: int) -> int:
    """Find the moment at which the run of a time begins: later by the jitter, which is always the same for it."""
    if not schedule.jitter_ms:
        return at
    chance = int.from_bytes(hashlib.sha256(f"{name}@{at}".encode()).digest()[:8], "big")
    return at + chance % (schedule.jitter_ms + 1)


def run_of(name: str, at: int) -> str:
    """Name the run of a time: `report@2026-11-15T07:00:00Z`."""
    return f"{name}@{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


# Stored


def stored(schedule: Schedule) -> str:
    """Write a schedule, without its arguments, as the store keeps it: the same text for the same schedule."""
    told = {"cron": schedule.cron, "every_ms": schedule.every_ms or None, "tz": schedule.tz if schedule.cron else None,
            "jitter_ms": schedule.jitter_ms or None, "overlap": schedule.overlap, "catch_up": schedule.catch_up}  # fmt: skip
    return json.dumps({name: value for name, value in told.items() if value is not None}, sort_keys=True)


def loaded(text: str) -> Schedule:
    """Read a schedule that `stored` wrote."""
    told = json.loads(text)
    every = told.get("every_ms")
    return Schedule(
        told.get("cron"), every=None if every is None else every / 1000, tz=told.get("tz", "UTC"),
        jitter=told.get("jitter_ms", 0) / 1000, overlap=told["overlap"], catch_up=told["catch_up"],
    )  # fmt: skip


def problem(text: str) -> str | None:
    """Say why this process cannot read a schedule that another wrote: it lacks the time zone, or cronsim."""
    try:
        loaded(text)
    except (BadArguments, LookupError, TypeError, ValueError) as error:
        return str(error)
    return None


def words_of(text: str) -> tuple[str, str, str, int]:
    """Tell of a schedule that `stored` wrote what can be told although it cannot be read.

    These are its times, `overlap`, `catch_up` and the jitter in milliseconds.
    """
    told = json.loads(text)
    line = " ".join(str(told[name]) for name in ("cron", "tz") if told.get(name) not in (None, "UTC"))
    return line, told.get("overlap", ""), told.get("catch_up", ""), told.get("jitter_ms", 0)
