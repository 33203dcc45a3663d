"""Times of schedules: cron lines over both changes of the clock, lengths of time, what is due, and texts that are none."""

import itertools
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from holdfast import BadArguments, Schedule
from holdfast.words.schedules import (
    Due,
    checked_name,
    checked_schedule,
    delayed,
    due,
    last_time,
    loaded,
    next_time,
    run_of,
    stored,
    times,
)


def ms(text):
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def after(schedule, moment, many=4):
    """Its next times, as clocks on the wall show them."""
    zone = ZoneInfo(schedule.tz)
    found = itertools.islice(times(schedule, ms(moment)), many)
    return [datetime.fromtimestamp(at / 1000, zone).strftime("%d %H:%M %z") for at in found]


# Both changes of 2026 in four zones: one hour north and south of the equator, and half an hour.
CHANGES = [
    # Spring: a time that is left out comes when the clocks have moved.
    ("30 2 * * *", "Europe/Vienna", "2026-03-27T12:00Z", ["28 02:30 +0100", "29 03:00 +0200", "30 02:30 +0200"]),
    ("30 2 * * *", "America/New_York", "2026-03-07T00:00Z", ["07 02:30 -0500", "08 03:00 -0400", "09 02:30 -0400"]),
    ("30 2 * * *", "Australia/Sydney", "2026-10-02T00:00Z", ["03 02:30 +1000", "04 03:00 +1100", "05 02:30 +1100"]),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-02T00:00Z", ["03 02:15 +1030", "04 02:30 +1100", "05 02:15 +1100"]),
    # Autumn: a time that comes twice is taken once.
    ("30 2 * * *", "Europe/Vienna", "2026-10-24T12:00Z", ["25 02:30 +0200", "26 02:30 +0100"]),
    ("30 1 * * *", "America/New_York", "2026-10-31T12:00Z", ["01 01:30 -0400", "02 01:30 -0500"]),
    ("30 2 * * *", "Australia/Sydney", "2026-04-03T20:00Z", ["05 02:30 +1100", "06 02:30 +1000"]),
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-03T20:00Z", ["05 01:45 +1100", "06 01:45 +1030"]),
    # Every hour is every hour, in spring and in autumn.
    ("0 * * * *", "Europe/Vienna", "2026-03-29T00:00Z", ["29 03:00 +0200", "29 04:00 +0200"]),
    ("0 * * * *", "Europe/Vienna", "2026-10-24T23:30Z", ["25 02:00 +0200", "25 02:00 +0100", "25 03:00 +0100"]),
    # Seven in the morning stays seven in the morning.
    ("0 7 * * mon-fri", "Europe/Vienna", "2026-10-22T12:00Z", ["23 07:00 +0200", "26 07:00 +0100"]),
    ("0 7 * * mon-fri", "America/New_York", "2026-03-06T00:00Z", ["06 07:00 -0500", "09 07:00 -0400"]),
]


@pytest.mark.parametrize(("cron", "tz", "moment", "found"), CHANGES, ids=lambda each: str(each)[:20])
def test_times_over_changes_of_the_clock(cron, tz, moment, found):
    assert after(Schedule(cron, tz=tz), moment, len(found)) == found


@pytest.mark.parametrize("tz", ["Europe/Vienna", "America/New_York", "Australia/Sydney", "Australia/Lord_Howe"])
@pytest.mark.parametrize("cron", ["30 2 * * *", "15 * * * *", "*/20 1-3 * * *", "0 7 * * mon-fri"])
def test_the_last_time_is_the_one_before_the_next(cron, tz):
    """Looked for backwards, times are the same as forwards, in the days of every change of the clock."""
    schedule = Schedule(cron, tz=tz)
    for day in ("2026-03-06", "2026-03-27", "2026-04-03", "2026-10-02", "2026-10-23", "2026-10-30"):
        found = between(schedule, ms(f"{day}T00:00Z"), 5 * 86_400_000)
        assert found == sorted(set(found))
        assert len(found) > 2
        for before, at in itertools.pairwise(found):
            assert last_time(schedule, at - 1) == before
            assert last_time(schedule, before) == before
            assert next_time(schedule, before) == at


def between(schedule, begin, length):
    return list(itertools.takewhile(lambda at: at < begin + length, times(schedule, begin)))


def test_lengths_of_time_begin_in_1970():
    quarter = Schedule(every="15m")
    assert after(quarter, "2026-11-16T16:01Z", 2) == ["16 16:15 +0000", "16 16:30 +0000"]
    assert next_time(quarter, ms("2026-11-16T16:15Z")) == ms("2026-11-16T16:30Z")
    assert last_time(quarter, ms("2026-11-16T16:15Z")) == ms("2026-11-16T16:15Z")


HOURLY = {"cron": "0 * * * *"}
NOW = ms("2026-11-16T16:00:05Z")


@pytest.mark.parametrize(
    ("options", "since", "expected"),
    [
        (HOURLY, "2026-11-16T17:00Z", ([], 0, "2026-11-16T17:00Z")),  # not yet
        (HOURLY, "2026-11-16T16:00Z", (["2026-11-16T16:00Z"], 0, "2026-11-16T17:00Z")),
        (HOURLY, "2026-11-16T13:00Z", (["2026-11-16T16:00Z"], 3, "2026-11-16T17:00Z")),
        ({**HOURLY, "catch_up": "all"}, "2026-11-16T15:00Z",
         (["2026-11-16T15:00Z", "2026-11-16T16:00Z"], 0, "2026-11-16T17:00Z")),
        ({**HOURLY, "catch_up": "all"}, "2026-11-16T12:00Z",  # three at once
         (["2026-11-16T12:00Z", "2026-11-16T13:00Z", "2026-11-16T14:00Z"], 0, "2026-11-16T15:00Z")),
        ({**HOURLY, "catch_up": "none"}, "2026-11-16T13:00Z", (["2026-11-16T16:00Z"], 3, "2026-11-16T17:00Z")),  # on time
        ({"cron": "30 * * * *", "catch_up": "none"}, "2026-11-16T13:30Z", ([], 3, "2026-11-16T16:30Z")),
        ({"cron": "30 * * * *"}, "2026-11-16T13:30Z", (["2026-11-16T15:30Z"], 2, "2026-11-16T16:30Z")),
    ],
)  # fmt: skip
def test_what_is_due(options, since, expected):
    begin, missed, following = expected
    found = due(Schedule(**options), ms(since), NOW, 3)
    assert found == Due([ms(each) for each in begin], missed, ms(following))


def test_years_that_were_missed_are_not_counted_through():
    """Every second since 1970: found at once, and a thousand stand for any more."""
    found = due(Schedule("* * * * * *"), 0, NOW, 3)
    assert (found.begin, found.missed) == ([NOW], 1000)


def test_jitter_is_the_same_each_time():
    schedule = Schedule("0 7 * * *", jitter="10m")
    at = ms("2026-11-16T07:00Z")
    shifts = {delayed(schedule, f"s{n}", at) - at for n in range(100)}
    assert len(shifts) > 90
    assert 0 <= min(shifts) <= max(shifts) <= 600_000
    assert delayed(schedule, "s1", at) == delayed(schedule, "s1", at)
    assert delayed(Schedule("0 7 * * *"), "s1", at) == at


def test_runs_are_named_by_their_times():
    assert run_of("report", ms("2026-11-15T07:00Z")) == "report@2026-11-15T07:00:00Z"


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule("0  7 * * MON-fri", tz="Asia/Tokyo"),
        Schedule(every="90s", jitter="1500ms", overlap="queue", catch_up="all"),
    ],
)
def test_a_stored_schedule_is_read_again(schedule):
    assert loaded(stored(schedule)) == schedule
    assert stored(loaded(stored(schedule))) == stored(schedule)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "a cron line or every="),
        ({"cron": "0 7 * * *", "every": "1h"}, "a cron line or every="),
        ({"cron": "7 o'clock"}, "five fields"),
        ({"cron": "0 7 * *"}, "five fields"),
        ({"cron": "61 * * * *"}, "Bad minute"),
        ({"cron": "0 0 30 2 *"}, "not a cron line"),
        ({"cron": "* " * 500}, "not a cron line"),
        ({"cron": 7}, "not a cron line"),
        ({"every": "10ms"}, "each second at the most"),
        ({"every": "soon"}, "not a duration"),
        ({"cron": "0 7 * * *", "tz": "Mars/Base"}, "no such time zone"),
        ({"cron": "0 7 * * *", "tz": "../../etc/passwd"}, "no such time zone"),
        ({"cron": "0 7 * * *", "tz": 1}, "the name of a time zone"),
        ({"cron": "0 7 * * *", "overlap": "wait"}, "skip, queue, cancel, allow"),
        ({"cron": "0 7 * * *", "catch_up": "some"}, "last, all, none"),
        ({"cron": "0 7 * * *", "args": ["a"]}, "by name"),
        ({"cron": "0 7 * * *", "jitter": -1}, "not a duration"),
    ],
)
def test_what_is_no_schedule_is_refused(options, says):
    with pytest.raises(BadArguments, match=says):
        Schedule(**options)


def test_a_cron_line_alone_is_a_schedule():
    assert checked_schedule("0 7 * * *") == Schedule("0 7 * * *")
    with pytest.raises(BadArguments, match="cron line"):
        checked_schedule(7)


@pytest.mark.parametrize("name", ["", "a b", "-x", "..", "x" * 151, "a@b", 7])
def test_names_begin_the_ids_of_runs(name):
    with pytest.raises(BadArguments, match="not the name of a schedule"):
        checked_name(name)


def test_moments_are_utc():
    assert datetime.fromtimestamp(next_time(Schedule("0 7 * * *"), ms("2026-11-16T16:00Z")) / 1000, UTC).hour == 7


@pytest.mark.parametrize("day", ["2026-04-05", "2026-10-04"])
@pytest.mark.parametrize("cron", ["15 */2 * * *", "30 */1 * * *", "*/20 1-3 * * *", "45 1 * * *"])
def test_times_are_the_same_backwards_where_clocks_change_by_half_an_hour(cron, day):
    schedule = Schedule(cron, tz="Australia/Lord_Howe")
    first, last = ms(f"{day}T00:00Z") - 36 * 3_600_000, ms(f"{day}T00:00Z") + 36 * 3_600_000
    forwards = list(itertools.takewhile(lambda at: at <= last, times(schedule, first)))
    backwards, until = [], last
    while (at := last_time(schedule, until)) > first:
        backwards.append(at)
        until = at - 1
    assert backwards[::-1] == forwards
    for moment in range(first, last, 7 * 60_000):
        assert next_time(schedule, moment) in (*forwards, next_time(schedule, last))
