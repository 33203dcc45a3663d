"""Places in the feed of all cells: one number for a place in each.

A place in one database is exact (`store/postgres/queries.sql` says how); a place in several is one for each, which is no number
that JSON holds. So a position here is the time at which it was given, with a count behind it, and this process remembers which
places it stands for. Positions grow in the order in which a process gives them, because a reader compares those that it was
given. Two processes do not give the same one, which each would take for its own: the number of a process is in its positions. It is
one of 64 in turn, as the first cell counts them; a process that cannot ask that cell, or may not write, takes one at random. Those
of two readers are compared by what they stand for (`http/follow.py`).

For a position that this process does not know, of another process or of long ago, it looks in each database where events begin
that a reader there may not have been told. So a position says too how far its reader was behind when it was given: a reader of a
backlog is behind, and so is one whom a cell did not answer. One goes back by that and by a minute more: a reader that goes on
there is told some events again, and misses none. A cell that did not answer a reader yet has no place in its positions; when it is
back, its place is looked for in the same way, by the position with which the reader began.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

_SINCE_MS: Final = 1_767_225_600_000  # the beginning of 2026: a position fits into 53 bits
_UNIT_MS: Final = 8  # of the time in a position
_COUNT: Final = 32  # positions of a unit
_FIRST: Final = 2  # those before it are left free, so that one may go back by one
READERS: Final = 64  # numbers of processes; the next begins again
_LAGS: Final = 32  # how far the reader was behind: at most 2 ** lag seconds; the last one is from the beginning on
_TIME: Final = _COUNT * READERS * _LAGS
_KNOWN: Final = 100_000  # positions that are remembered
_BACK_MS: Final = 60_000
_NEAR: Final = 50  # events that are looked at together: one alone may say an old time


class Place(NamedTuple):
    """A place in one cell. All that is behind it happened at this time of the cell's clock, or later."""

    position: int
    since: int


@dataclass(frozen=True, slots=True)
class Places:
    """A place in each cell that has answered. In any other one is looked for, by an earlier position; None: by this one."""

    of: Mapping[str, Place]
    start: int | None


class Positions:
    """The positions that this process gave, the newest last."""

    def __init__(self, cells: Collection[str], now: Callable[[], int]) -> None:
        self._cells, self._now = cells, now
        self._known: OrderedDict[int, Places] = OrderedDict()
        self._last = 0
        self.reader: int | None = None  # the number of this process, once it has one

    def give(self, places: Places) -> int:
        """Give a position, later than all that were given."""
        since = [place.since for place in places.of.values()]
        if places.start is not None and not places.of.keys() >= set(self._cells):
            since.append(_since(places.start))
        time = max((self._now() - _SINCE_MS) // _UNIT_MS, self._last // _TIME, 0)
        position = self._first(time, min(since, default=0))
        if position <= self._last:  # one more of the same unit and lag, or else of the next unit
            beside = self._last + 1
            same = beside // _COUNT == position // _COUNT
            position = beside if same else self._first(time + 1, min(since, default=0))
        self._last = position
        self._known[position] = Places(places.of, position if places.start is None else places.start)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        return position

    def _first(self, time: int, since: int) -> int:
        """The first position of a time, of a reader who was told all that happened before another time."""
        lag = _lag(time * _UNIT_MS + _SINCE_MS - since)
        return ((time * _LAGS + lag) * READERS + (self.reader or 0)) * _COUNT + _FIRST

    def known(self, position: int) -> Places:
        """The places that a position stands for, as far as this process knows them."""
        return self._known.get(position) or Places({}, max(position, 0))

    def alike(self, one: int, other: int) -> bool:
        """Do two positions stand for the same place, in every cell?"""
        first, second = ({name: place.position for name, place in self.known(each).of.items()} for each in (one, other))
        return first == second and first.keys() == set(self._cells)

    def before(self, one: int, other: int) -> bool:
        """Is one before another, in any cell?"""
        first, second = self.known(one).of, self.known(other).of
        if not first or not second:
            return one < other
        return any(name in first and first[name].position < place.position for name, place in second.items())


def _lag(behind_ms: int) -> int:
    """The least number of which a reader is not farther behind."""
    return next((lag for lag in range(_LAGS - 1) if behind_ms <= 1000 << lag), _LAGS - 1)


def _since(position: int) -> int:
    """When the oldest event happened that the reader of a position may not have been told."""
    lag = position // (_COUNT * READERS) % _LAGS
    return 0 if position <= 0 or lag == _LAGS - 1 else position // _TIME * _UNIT_MS + _SINCE_MS - (1000 << lag)


async def place_at(db: Any, position: int) -> Place:
    """Look where in a database events begin that the reader of a position may not have been told, less a minute."""
    at = _since(position) - _BACK_MS
    if at <= 0:
        return Place(0, 0)
    low, high = 0, await db.fetchval("SELECT coalesce(max(position), 0) FROM events") + 1
    while high - low > 1:
        middle = (low + high) // 2
        newest = await db.fetchval(
            "SELECT max(at) FROM (SELECT at FROM events WHERE position >= $1 ORDER BY position LIMIT $2) AS near",
            middle,
            _NEAR,
        )
        low, high = (middle, high) if newest is not None and newest < at else (low, middle)
    first = await db.fetchval(  # those before it are older: in a quiet database, by days
        "SELECT min(position) FROM (SELECT position, at FROM events WHERE position > $1 ORDER BY position LIMIT $2) AS near"
        " WHERE at >= $3",
        low,
        _NEAR,
        at,
    )
    return Place(int(low if first is None else first - 1), at)


async def held_back(db: Any) -> int | None:
    """Tell when the first of the events happened that a transaction in flight keeps out of the feed; None: it keeps back none."""
    oldest: int | None = await db.fetchval(
        "SELECT min(at) FROM (SELECT at FROM events WHERE position >="
        " (SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + base) << 20 FROM positions)"
        " ORDER BY position LIMIT $1) AS near",
        _NEAR,
    )
    return oldest
