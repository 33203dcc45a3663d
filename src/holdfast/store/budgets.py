"""Budgets: what was spent, summed for a run and each one above it, and what may be.

Spending is never written by itself: an append sums what its events say (`data["spent"]`) in its own transaction, so the sums
are what the journals say. All rows of a batch are changed by one statement, in one order for all: two batches of one tree
cannot wait for each other.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdfast.errors import NotStorable
from holdfast.store.work import Asking, Count, Feature, Transaction, rows, to_json
from holdfast.values.codec import UNTYPED
from holdfast.words.budget import Asked, Budget, Purse
from holdfast.words.model import Event
from holdfast.words.spent import Spent

BUDGET: Final = "budget"  # the key of questions for more; no call has such a key


class Budgets(Feature):
    """Sums and budgets, read."""

    async def spent(self, runs: Iterable[str]) -> dict[str, Spent]:
        """Read what each of these runs has spent with all below it, if it has spent anything."""
        found = await self._glance(rows, "spent", ids=to_json(list(runs)))
        return {run: Spent.from_row(sums) for run, *sums in found}

    async def spent_with_steps(self, runs: Iterable[str]) -> dict[str, Spent]:
        """Read `spent` with steps for every run: where no budget holds, those completed in it and in all below it."""
        ids = list(runs)
        spent = await self.spent(ids)
        for run, steps in await self._read(rows, "steps_below", ids=to_json(ids)) if ids else ():
            if steps:
                spent[run] = dataclasses.replace(spent.get(run, Spent()), steps=steps)
        return spent

    async def spent_by(self, run: str, limit: int = 10) -> list[tuple[str, Spent]]:
        """Read which steps, by their names, have spent most of it."""
        found = await self._read(rows, "spent_by", run=run, limit=limit)
        return [(what, Spent.from_row(sums)) for what, *sums in found]

    async def purses(self, run: str) -> list[Purse]:
        """Read the budgets that hold for a run, its own and those above it, the nearest first, and how they stand."""
        return await self._glance(_purses, run)

    async def granted(self, runs: Iterable[str]) -> dict[str, list[Asked]]:
        """Read what people have given to each of these runs on top of its budget, if they have."""
        found: dict[str, list[Asked]] = defaultdict(list)
        for run, *asked in await self._glance(rows, "granted", ids=to_json(list(runs))):
            found[run].append(_asked(asked))
        return dict(found)


class Spending(NamedTuple):
    """The sums that one event says were spent."""

    run: str
    what: str
    sums: tuple[int, ...]

    @classmethod
    def of(cls, event: Event) -> Spending:
        return cls(event.run, event.data.get("name", ""), Spent.of(event.data["spent"]).row())


def spend(tx: Transaction, spendings: Iterable[Spending]) -> Asking[None]:
    """Add spendings to what their runs have spent, and to what the runs above have."""
    lines: dict[str, list[str]] = defaultdict(list)
    runs = sorted({each.run for each in spendings})
    for run, member in (yield from tx.rows("lines", ids=to_json(runs))):
        lines[run].append(member)
    yield from _add(spendings, lines)


def spend_alone(run: str, spendings: Iterable[Spending]) -> Asking[None]:
    """Add spendings of a run to what it has spent, and to nothing above it: those runs may not be here."""
    yield from _add(spendings, {run: [run]})


def _add(spendings: Iterable[Spending], lines: Mapping[str, Sequence[str]]) -> Asking[None]:
    totals: dict[tuple[str, str], tuple[int, ...]] = {}
    for run, what, sums in spendings:
        for member in lines[run]:
            before = totals.get((member, what), (0,) * len(sums))
            totals[member, what] = tuple(map(sum, zip(before, sums, strict=True)))
    yield Count("spend", [[*place, *sums] for place, sums in sorted(totals.items())])


def _purses(run: str) -> Asking[list[Purse]]:
    found = yield from rows("purses", run=run)
    held = {row[0]: tuple(row[1:4]) for row in found}
    sums = (yield from rows("spent", ids=to_json(list(held)))) if held else []
    spent = {row[0]: Spent.from_row(tuple(row)[1:]) for row in sums}
    asked: dict[str, list[Asked]] = defaultdict(list)
    for row in found:
        if row[4] is not None:
            asked[row[0]].append(_asked(tuple(row)[4:]))
    return [
        Purse(holder, uid, Budget.of(json.loads(budget)), began, spent.get(holder, Spent()), asked[holder])
        for holder, (uid, budget, began) in held.items()
    ]


def _asked(row: Sequence[Any]) -> Asked:
    question, status, decision, at, by, note, more, by_us = row
    return Asked(question, status, decision == "approved", at, by, _given(more), bool(by_us), note or "")


def _given(text: str | None) -> dict[str, Any]:
    try:
        more = UNTYPED.load(text or "{}")
    except NotStorable:
        return {}
    return more if isinstance(more, dict) else {}
