"""Answers: how those of several cells become one, in the order that one store would give."""

from __future__ import annotations

import functools
import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from holdfast.backends.cells.places import Place, Places, Positions
from holdfast.store.approvals import QuestionAges
from holdfast.store.fleet import MinuteRow, RateRow, UnservedRow, WorkerRow
from holdfast.store.runs import Census, Counts, Order
from holdfast.store.triggers import Tally
from holdfast.words.model import Event, Published, RunRow

T = TypeVar("T")
E = TypeVar("E", bound=Event)
_SUMS = ("running", "limit")  # of what a worker says of itself


# The feed


def feed(
    pages: Mapping[str, Sequence[E]], read_at: Mapping[str, int], places: Places, positions: Positions, limit: int
) -> list[E]:
    """Events of all cells by their time; those of one cell stay in their order. Each says where to go on behind it.

    A page that is not full is all that its cell had when it was read, at `read_at`, or had kept back since then.
    """
    rests = {name: _rests(page, page[-1].at if len(page) >= limit else read_at[name]) for name, page in pages.items()}
    reached, found = {**places.of}, list[E]()
    for name, rest in rests.items():
        reached[name] = Place(reached[name].position, rest[0])
    ordered = heapq.merge(
        *([(event.at, name, nth, event) for nth, event in enumerate(page, 1)] for name, page in pages.items()),
        key=lambda each: each[:2],
    )
    for _, name, nth, event in ordered:
        if len(found) == limit:
            break
        reached[name] = Place(event.position, rests[name][nth])
        found.append(replace(event, position=positions.give(Places({**reached}, places.start))))
    return found


def _rests(page: Sequence[Event], behind: int) -> list[int]:
    """The time of the oldest event from each of a page on, and of what is behind all of it."""
    return [*itertools.accumulate((event.at for event in reversed(page)), min, initial=behind)][::-1]


# Lists


def concatenated(pages: Iterable[Iterable[T]]) -> list[T]:
    """All of them."""
    return [each for page in pages for each in page]


def ordered(key: Callable[[Any], Any], *, backwards: bool = False) -> Callable[[Iterable[Iterable[T]]], list[T]]:
    """Merge lists that are in an order."""
    return lambda pages: sorted(concatenated(pages), key=key, reverse=backwards)


def in_order(pages: Sequence[Sequence[RunRow]], order: Order, limit: int, *, by_id_backwards: bool) -> list[RunRow]:
    """Runs of all cells, in the order of one store: equal times are told apart by the ids."""

    def place(row: RunRow) -> int:
        return row.created_at if order != "updated" else row.updated_at if row.finished_at is None else row.finished_at

    found = sorted(concatenated(pages), key=lambda row: row.id, reverse=by_id_backwards)
    return sorted(found, key=place if order == "oldest" else lambda row: -place(row))[:limit]


# Numbers


def summed(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Add up what has one name."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


def nested(counts: Sequence[dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    """Add up numbers by two names."""
    names = dict.fromkeys(name for each in counts for name in each)
    return {name: summed(each.get(name, {}) for each in counts) for name in names}


def counted(counts: Sequence[Counts]) -> Counts:
    """Add up counts of runs."""
    return Counts(
        summed(each.states for each in counts), sum(each.needs for each in counts), all(each.exact for each in counts)
    )


def census(pages: Sequence[Sequence[Census]]) -> list[Census]:
    """Add up the unfinished runs of each queue and state."""
    found: dict[tuple[str, str], Census] = {}
    for row in concatenated(pages):
        known = found.get((row.queue, row.status))
        first = [each.first_due_at for each in (row, known) if each is not None and each.first_due_at is not None]
        runs, due, late = (known.runs, known.due, known.late) if known is not None else (0, 0, 0)
        found[row.queue, row.status] = Census(
            row.queue, row.status, runs + row.runs, due + row.due, late + row.late, min(first, default=None)
        )
    return list(found.values())


def ages(found: Sequence[QuestionAges]) -> QuestionAges:
    """Add up open questions by their age."""
    counts = tuple(map(sum, zip(*(each.counts for each in found), strict=True)))
    return QuestionAges(counts, max(each.oldest_ms for each in found))


def minutes(pages: Sequence[Sequence[MinuteRow]]) -> list[MinuteRow]:
    """Add up what was done in each minute."""
    found: dict[int, MinuteRow] = {}
    for row in concatenated(pages):
        before = found.get(row.at, MinuteRow(row.at, 0, 0, 0))
        found[row.at] = MinuteRow(
            row.at, before.steps + row.steps, before.ended + row.ended, before.failed + row.failed
        )
    return [found[at] for at in sorted(found)]


def workers(pages: Sequence[Sequence[WorkerRow]]) -> list[WorkerRow]:
    """Workers by their ids: each is in every cell, carries runs of each, and says in each what it did in all."""
    found: dict[str, WorkerRow] = {}
    for row in concatenated(pages):
        before = found.get(row.id)
        sums = (
            {}
            if before is None
            else {name: before.load.get(name, 0) + row.load[name] for name in _SUMS if name in row.load}
        )
        found[row.id] = replace(row, load={**row.load, **sums})
    return list(found.values())


def unserved(pages: Sequence[Sequence[UnservedRow]]) -> list[UnservedRow]:
    """Add up runs whose code is nowhere."""
    found: dict[tuple[str, str | None], UnservedRow] = {}
    for row in concatenated(pages):
        before = found.get((row.agent, row.version))
        runs, first = (0, row.first_due_at) if before is None else (before.runs, before.first_due_at)
        found[row.agent, row.version] = UnservedRow(
            row.agent, row.version, runs + row.runs, min(first, row.first_due_at)
        )
    return sorted(found.values(), key=lambda row: row.first_due_at)


def rates(pages: Sequence[Sequence[RateRow]]) -> list[RateRow]:
    """Rates by their keys: the runs that wait may be in one cell, and the rate in another."""
    found: dict[str, RateRow] = {}
    for row in concatenated(pages):
        before = found.get(row.key, RateRow(row.key, None, 0, None))
        until = max((each for each in (before.paused_until, row.paused_until) if each is not None), default=None)
        found[row.key] = RateRow(row.key, until, before.waits + row.waits, row.because or before.because)
    return list(found.values())


def tallies(pages: Sequence[Sequence[Tally]]) -> list[Tally]:
    """Add up deliveries: messages of a notification are in all cells."""
    found: dict[tuple[str, str], Tally] = {}
    for row in concatenated(pages):
        before = found.get((row.trigger, row.status), Tally(row.trigger, row.status, 0, row.first_at, row.last_at))
        first, last = min(before.first_at, row.first_at), max(before.last_at, row.last_at)
        found[row.trigger, row.status] = Tally(row.trigger, row.status, before.count + row.count, first, last)
    return list(found.values())


def united(found: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
    """All of these; what has one name is the same everywhere."""
    return functools.reduce(lambda one, other: {**one, **other}, found, {})


def published(found: Sequence[Published]) -> Published:
    """Agents of all cells, served where any worker serves them."""
    merged: Published = {}
    for each in found:
        for name, (version, schema, served) in each.items():
            before = merged.get(name)
            merged[name] = (version, schema, served) if before is None else (before[0], before[1], before[2] | served)
    return merged


def queues(found: Sequence[frozenset[str] | None]) -> frozenset[str] | None:
    """The queues that are taken; None: all."""
    return None if any(each is None for each in found) else frozenset().union(*(each or () for each in found))
