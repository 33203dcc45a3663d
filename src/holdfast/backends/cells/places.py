"""Places in the feed of all cells: one number for a place in each.

A place in one database is exact (`store/postgres/queries.sql` says how); a place in several is one for each, which is no number
that JSON holds. So a position here is a time, in milliseconds, with a count behind it, and this process remembers which places it
stands for. For a position that it does not know, of another process or of long ago, it looks in each database where events of
that time begin, and goes back by a minute: a reader that goes on there is told some events again, and misses none.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any, Final

_SINCE_MS: Final = 1_767_225_600_000  # the beginning of 2026: a position fits into 53 bits
_COUNT: Final = 4096
_KNOWN: Final = 100_000  # positions that are remembered
_BACK_MS: Final = 60_000
_NEAR: Final = 50  # events that are looked at together: one alone may say an old time

Places = dict[str, int]  # by the names of the cells


class Positions:
    """The positions that this process gave, the newest last."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, Places] = OrderedDict()
        self._last = 0

    def of(self, places: Places) -> int:
        """Give a position, later than all that were given."""
        self._last = max(self._last + 1, (round(time.time() * 1000) - _SINCE_MS) * _COUNT)
        self._known[self._last] = dict(places)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        return self._last

    def known(self, position: int) -> Places | None:
        """The places that a position stands for; None: they must be looked for."""
        return {} if position <= 0 else self._known.get(position)

    def later(self, one: int, other: int) -> int:
        """A position for the later of two places in each cell."""
        first, second = self.known(one), self.known(other)
        if first is None or second is None:
            return max(one, other)
        merged = {name: max(first.get(name, 0), second.get(name, 0)) for name in {*first, *second}}
        return one if merged == first else self.of(merged)

    def before(self, one: int, other: int) -> bool:
        """Is one before another, in any cell?"""
        first, second = self.known(one), self.known(other)
        if first is None or second is None:
            return one < other
        return any(first.get(name, place) < place for name, place in second.items())


async def place_at(db: Any, position: int) -> int:
    """Look where in a database events begin of the time of a position, less a minute."""
    at = position // _COUNT + _SINCE_MS - _BACK_MS
    low, high = 0, await db.fetchval("SELECT coalesce(max(position), 0) FROM events") + 1
    while high - low > 1:
        middle = (low + high) // 2
        newest = await db.fetchval(
            "SELECT max(at) FROM (SELECT at FROM events WHERE position >= $1 ORDER BY position LIMIT $2) AS near",
            middle,
            _NEAR,
        )
        low, high = (middle, high) if newest is not None and newest < at else (low, middle)
    return int(low)
