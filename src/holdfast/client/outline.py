"""Outlines of long histories: groups of calls, with how many ended when, folded once and then kept up to date.

The fold of a history is kept for readers that ask again, a few numbers for each call. It goes on from where it was;
only a retry, which takes events out of the history, has it folded anew.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from weakref import WeakKeyDictionary

from holdfast.client.base import Base
from holdfast.errors import BadArguments
from holdfast.store.store import Store
from holdfast.values.text import is_whole, short
from holdfast.words.durations import moment
from holdfast.words.model import RunRow
from holdfast.words.outline import Fold, Grouped
from holdfast.words.people import checked_text
from holdfast.words.spent import NANOS

_CHUNK: Final = 1_000  # events that are read together
_MOST_BUCKETS: Final = 1_000
_PLACE: Final = 10_000  # characters of a place
_KEPT_CALLS: Final = 500_000  # of all histories together, about 70 bytes each
_KEPT_RUNS: Final = 64
_QUICK: Final = 3_000  # calls that are grouped in a few milliseconds


@dataclass(frozen=True, slots=True)
class CallSample:
    """One call of a group.

    Attributes:
        key: Its identity in the run.
        seq: The place of its first event in the run's history.
        ms: How long it took, its last attempt.
        attempts: How many bodies ran.

    Example:
        ```python
        outline = await run.outline()
        slow = [call.key for group in outline.groups for call in group.slowest]
        ```
    """

    key: str
    seq: int
    ms: int
    attempts: int


@dataclass(frozen=True, slots=True)
class CallGroup:
    """Calls of one name in one place of a run.

    Attributes:
        key: The group: `name` or `task#1/name` of calls; `task#1/` of all in a task, `task/` of all in tasks of that name. Give it
            as `under` to see what is in it. Empty: the smallest groups, where there are too many.
        name: The name of the step, the child's agent, the verb or the task.
        kind: "step", "model", "timer", "child", "question" and so on; "branch" of tasks, "others" of the smallest groups.
        count: How many calls it has.
        began: When the first of them began.
        ended: When the last of them ended; None if some have not.
        failed: How many failed.
        running: How many have not ended.
        attempts: How many bodies ran in all.
        usd: What they spent.
        density: How many ended in each piece of the time.
        failures: In which pieces some failed.
        slowest: The calls that took longest.
        again: The calls with most attempts.

    Example:
        ```python
        for group in (await run.outline()).groups:
            print(group.name, group.count, group.failed)
        ```
    """

    key: str
    name: str
    kind: str
    count: int
    began: datetime
    ended: datetime | None
    failed: int
    running: int
    attempts: int
    usd: float
    density: tuple[int, ...]
    failures: tuple[int, ...]
    slowest: tuple[CallSample, ...]
    again: tuple[CallSample, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """A history in groups of calls.

    Attributes:
        began: When the run began: the first piece of the time begins here.
        ended: When the run ended, and the last piece with it; until then it ends now.
        now: The time by the store's clock.
        events: How many events the history has.
        calls: How many calls it has.
        buckets: In how many pieces the time is cut.
        groups: The groups, in the order of their beginnings.

    Example:
        ```python
        outline = await run.outline(buckets=60)
        assert all(len(group.density) == 60 for group in outline.groups)
        ```
    """

    began: datetime
    ended: datetime | None
    now: datetime
    events: int
    calls: int
    buckets: int
    groups: tuple[CallGroup, ...]


@dataclass(slots=True)
class _Kept:
    """The fold of a history; only the task that has the lock changes it."""

    uid: str
    fold: Fold = field(default_factory=Fold)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Outlines:
    """The folds that are kept of the histories of a store, the last asked for last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def of(self, row: RunRow) -> _Kept:
        """Find the fold of a run, or begin one. A run with the same id that was deleted is another."""
        kept = self._kept.get(row.id)
        if kept is None or kept.uid != row.uid:
            kept = self._kept[row.id] = _Kept(row.uid)
        self._kept.move_to_end(row.id)
        return kept

    def make_room(self) -> None:
        """Let go of the folds that were asked for least recently."""
        calls = sum(len(each.fold) for each in self._kept.values())
        while len(self._kept) > 1 and (calls > _KEPT_CALLS or len(self._kept) > _KEPT_RUNS):
            _, gone = self._kept.popitem(last=False)
            calls -= len(gone.fold)


# One for each store that is open, as long as it is.
_outlines: Final[WeakKeyDictionary[Store, Outlines]] = WeakKeyDictionary()


async def outline(client: Base, run: str, buckets: int, under: str | None) -> Outline:
    """Fold what is new of a history, and group its calls."""
    if not is_whole(buckets, 1) or buckets > _MOST_BUCKETS:
        raise BadArguments(f"buckets={short(buckets)}: give a whole number from 1 to {_MOST_BUCKETS}")
    place = None if under is None else checked_text(under, "under", _PLACE)
    row = await client._run_row(run)
    outlines = _outlines.setdefault(client.store, Outlines())
    kept = outlines.of(row)
    async with kept.lock:
        await _read_on(client, kept, row)
        outlines.make_room()
        fold, now = kept.fold, client.store.clock.now()
        began = row.started_at or row.created_at
        last = max(row.finished_at or now, began)
        if len(fold) <= _QUICK:
            groups = _grouped(fold, began, last, buckets, place)
        else:
            groups = await asyncio.to_thread(_grouped, fold, began, last, buckets, place)
        ended = None if row.finished_at is None else moment(row.finished_at)
        return Outline(moment(began), ended, moment(now), fold.next_seq, fold.calls, buckets, groups)


async def _read_on(client: Base, kept: _Kept, row: RunRow) -> None:
    since = kept.fold.next_seq
    while kept.fold.next_seq < row.next_seq:
        page = await client.store.outline(row.id, kept.fold.next_seq, _CHUNK)
        if since and any(event.kind == "run.retried" for event in page):
            kept.fold, since = Fold(), 0  # what was folded before may have been taken out of the history
            continue
        kept.fold.add(page)
        if len(page) < _CHUNK:
            kept.fold.skip(row.next_seq)  # what a retry took out is not told


def _grouped(fold: Fold, began: int, last: int, buckets: int, under: str | None) -> tuple[CallGroup, ...]:
    found = fold.groups(began, last, buckets, under)
    rows = {row for group in found for _, row in (*group.slowest, *group.again)}
    told = {row: CallSample(one.key, one.seq, one.ms, one.attempts) for row, one in fold.samples(rows).items()}
    return tuple(_group(group, told) for group in found)


def _group(group: Grouped, told: dict[int, CallSample]) -> CallGroup:
    def most(kept: list[tuple[int, int]]) -> tuple[CallSample, ...]:
        return tuple(told[row] for _, row in sorted(kept, reverse=True))

    return CallGroup(
        group.key, group.name, group.kind, group.count, moment(group.began or 0),
        None if group.ended is None else moment(group.ended), group.failed, group.running, group.attempts,
        group.nanos / NANOS, tuple(group.density), tuple(sorted(group.failures)), most(group.slowest), most(group.again),
    )  # fmt: skip
