"""Summing what was spent, for a run and each one above it. Pieces of work in a transaction.

An event that says what was spent and the sums are written together, so the sums are what the journals say. All rows of a
batch are changed by one statement, in one order for all: two batches of one tree cannot wait for each other.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from holdfast.errors import NotStorable
from holdfast.store.transaction import Asking, Count, Rows, Transaction, to_json
from holdfast.values.codec import UNTYPED
from holdfast.words.budget import Asked, Budget, Purse
from holdfast.words.model import Event
from holdfast.words.spent import Spent


class Spending(NamedTuple):
    """What one event says was spent."""

    run: str
    what: str
    sums: tuple[int, ...]

    @classmethod
    def of(cls, event: Event) -> Spending:
        return cls(event.run, event.data.get("name", ""), Spent.of(event.data["spent"]).row())


def spend(tx: Transaction, spendings: Iterable[Spending]) -> Asking[None]:
    """Add them to what their runs have spent, and to what those above have."""
    lines: dict[str, list[str]] = defaultdict(list)
    runs = sorted({each.run for each in spendings})
    for run, member in (yield from tx.rows("lines", ids=to_json(runs))):
        lines[run].append(member)
    totals: dict[tuple[str, str], tuple[int, ...]] = {}
    for run, what, sums in spendings:
        for member in lines[run]:
            before = totals.get((member, what), (0,) * len(sums))
            totals[member, what] = tuple(map(sum, zip(before, sums, strict=True)))
    yield Count("spend", [[*place, *sums] for place, sums in sorted(totals.items())])


def purses(run: str) -> Asking[list[Purse]]:
    """The budgets that hold for a run, and how they stand."""
    rows: list[Any] = yield Rows("purses", {"run": run})
    held = {row[0]: tuple(row[1:4]) for row in rows}
    sums: list[Any] = (yield Rows("spent", {"ids": to_json(list(held))})) if held else []
    spent = {row[0]: Spent.from_row(tuple(row)[1:]) for row in sums}
    asked: dict[str, list[Asked]] = defaultdict(list)
    for row in rows:
        holder, question, status, decision, at, by, note, more, by_us = row[0], *tuple(row)[4:]
        if question is not None:
            yes, given = decision == "approved", _given(more)
            asked[holder].append(Asked(question, status, yes, at, by, given, bool(by_us), note or ""))
    return [
        Purse(holder, uid, Budget.of(json.loads(budget)), began, spent.get(holder, Spent()), asked[holder])
        for holder, (uid, budget, began) in held.items()
    ]


def _given(text: str | None) -> dict[str, Any]:
    try:
        more = UNTYPED.load(text or "{}")
    except NotStorable:
        return {}
    return more if isinstance(more, dict) else {}
