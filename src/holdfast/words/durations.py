"""Durations as people write them: "30s", "2h", "1h30m", "2 days", seconds as a number, or a timedelta."""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, date, datetime, timedelta

from holdfast.errors import BadArguments
from holdfast.values.text import cut, short, show

Duration = str | float | timedelta
"""A length of time: a text such as `"2 days"`, `"1h30m"` or `"100ms"`, seconds as a number, or a `timedelta`."""

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_WORDS = {
    "ms": "ms", "millisecond": "ms", "s": "s", "sec": "s", "second": "s", "m": "m", "min": "m", "minute": "m",
    "h": "h", "hr": "h", "hour": "h", "d": "d", "day": "d", "w": "w", "week": "w",
}  # fmt: skip
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)[ ,]*", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_LENGTH = 100  # of what is written
LONGEST_S = 100 * 365 * 86400.0  # a longer wait is a mistake, and would overflow dates


def seconds(duration: Duration) -> float:
    """The duration in seconds; `BadArguments` says what a duration looks like."""
    if isinstance(duration, timedelta):
        value = duration.total_seconds()
    elif isinstance(duration, bool):
        raise _bad(duration)
    elif isinstance(duration, int | float):
        value = float(duration) if abs(duration) <= LONGEST_S else math.inf
    elif isinstance(duration, str):
        value = _parse(duration)
    else:
        raise _bad(duration)
    if not math.isfinite(value) or value < 0 or value > LONGEST_S:
        raise _bad(duration)
    return value


def _parse(text: str) -> float:
    if len(text) > _LENGTH or not text.strip():
        raise _bad(text)
    rest, at, total = text.strip().lower(), 0, 0.0
    while at < len(rest):
        found = _PART.match(rest, at)
        unit = found and (_WORDS.get(found[2]) or _WORDS.get(found[2].removesuffix("s")))
        if not found or not unit:
            raise _bad(text)
        total += float(found[1]) * _SECONDS[unit]
        at = found.end()
    return total


def is_number(text: str) -> bool:
    """Tell whether a duration has only a number, and no unit."""
    return _NUMBER.fullmatch(text.strip()) is not None


def _bad(duration: object) -> BadArguments:
    if isinstance(duration, str) and is_number(duration):
        number = cut(duration.strip(), 60)
        return BadArguments(
            f"{number!r} is not a duration, because it has no unit; write '{number}s' for seconds, or m, h, d"
        )
    return BadArguments(
        f"{cut(show(duration, 60), 60)} is not a duration; write it as '30s', '2h', '1h30m', '2 days', seconds or a timedelta "
        "(not negative, at most 100 years)"
    )


def milliseconds(duration: Duration) -> int:
    """The duration in whole milliseconds, rounded up so that nothing fires early."""
    return math.ceil(seconds(duration) * 1000)


def written(span_ms: int) -> str:
    """Write a length of time as people write it, and as `seconds` reads it again: '15m', '1h30m', '1.5s', '250ms'."""
    if span_ms < 1000:
        return f"{span_ms}ms" if span_ms else "0s"
    parts, rest = "", span_ms
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        count, rest = divmod(rest, length)
        parts += f"{count}{unit}" if count else ""
    return parts + (f"{rest / 1000:g}s" if rest else "")


def epoch_ms(moment: datetime) -> int:
    """A moment as milliseconds since 1970; naive datetimes are refused, because they name no moment."""
    if not isinstance(moment, datetime):
        raise BadArguments(f"{short(moment)} is not a datetime")
    if moment.tzinfo is None:
        raise BadArguments(f"{moment!r} has no time zone; give one, for example datetime(..., tzinfo=UTC)")
    return math.ceil(moment.timestamp() * 1000)


def from_day(day: date) -> datetime:
    """A datetime as it is; the midnight in UTC with which a date begins."""
    if isinstance(day, datetime):
        return day
    if not isinstance(day, date):
        raise BadArguments(f"{short(day)} is neither a datetime nor a date")
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def past_ms(since: Duration | datetime, now: int) -> int:
    """A moment that was: a datetime, or so long before now."""
    return epoch_ms(since) if isinstance(since, datetime) else now - milliseconds(since)


def moment(epoch: int) -> datetime:
    """Milliseconds since 1970 as an aware datetime in UTC."""
    return datetime.fromtimestamp(epoch / 1000, UTC)


def spoken(span_s: float) -> str:
    """A span of seconds for people: '3 ms', '1.2 s', '90 s', '4 min', '2 h 5 min', '3 days'."""
    if span_s < 0.9995:
        return f"{span_s * 1000:.0f} ms"
    if span_s < 59.95:
        return f"{span_s:.1f} s"
    if 60.5 < span_s < 119.5:  # less than a tenth of it is rounded away
        return f"{span_s:.0f} s"
    minutes = round(span_s / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    return f"{minutes / 1440:.0f} days"


# Moments, where this computer is


def clock(at: int, *, dated: bool = False) -> str:
    """Write a time of day; with the date where days matter."""
    return datetime.fromtimestamp(at / 1000).strftime("%m-%d %H:%M:%S" if dated else "%H:%M:%S")  # noqa: DTZ006 - local


def day_and_time(at: int) -> str:
    """Write a moment for people."""
    return datetime.fromtimestamp(at / 1000).strftime("%Y-%m-%d %H:%M:%S")  # noqa: DTZ006 - local


def when(at: int) -> str:
    """Write a moment for people, without the day if it is today."""
    day, _, time_of_day = day_and_time(at).partition(" ")
    return time_of_day if day == time.strftime("%Y-%m-%d") else f"{day} {time_of_day}"
