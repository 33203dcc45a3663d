"""The audit: what was done from outside, by whom and through which door.

A deed's row is written in the transaction of the deed itself (`note`), so there is one exactly if it was done. Rows are never
deleted; an erasure takes the value and all free text out of them, because an operator may have to forget what was
decided, but not that it was.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.store.blobs import NAMED_BLOB, delete_blobs
from holdfast.store.work import ALL, Asking, Count, Feature, Transaction, listed, only_of, rows, to_json
from holdfast.words.people import starters

Refusal = tuple[str, str, str, dict[str, Any]]  # the run, the actor, the door, and what was tried
_FREE_TEXT: Final = frozenset({"question", "note", "reason", "votes", "address", "values"})  # of a row's data
_VOTE: Final = ("by", "yes", "at", "digest")  # what stays of a vote
_ERASED_AT_ONCE: Final = 500  # rows per transaction
_COLUMNS: Final = ("id", "at", "run", "actor", "action", "via", "value", "erased_at")


class Audit(Feature):
    """The audit, as clients and operators reach it."""

    async def audit(
        self,
        run: str | None = None,
        limit: int = 100,
        *,
        by: str | None = None,
        actions: Iterable[str] | None = None,
        before: int | None = None,
        only: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        """Read rows, the newest first: of a run and those below it, by an actor, of these actions, before a row."""
        chosen = {"run": run, "actor": by, "kinds": listed(actions), "before": ALL if before is None else before}
        found = await self._read(rows, "audit", **chosen, limit=limit, only=only_of(only))
        return [
            dict(zip(_COLUMNS, row, strict=False)) | {"data": json.loads(row[8]) if row[8] else {}} for row in found
        ]

    async def note_refusals(self, tries: Sequence[Refusal]) -> None:
        """Write rows for what was tried and refused, and how often."""

        def work(tx: Transaction) -> Asking[None]:
            for run, by, via, data in tries:
                yield from note(tx, run, by, via, "refused", data)

        await self._submit(work, journal=False)

    async def erase_audit(
        self, *, run: str | None = None, actor: str | None = None, before: int | None = None, by: str, via: str
    ) -> int:
        """Take values and free text out of rows that fit: of a run, of an actor, from before a time. Returns how many."""
        which, erased = _Which(run, actor, before), 0
        place: int | None = 0
        while place is not None:
            work = functools.partial(_erase, which=which, after=place, by=by, via=via)
            some, place = await self._submit(work, journal=False)
            erased += some
        return erased


@dataclass(frozen=True, slots=True)
class _Which:
    """The rows to erase: of a run, by an actor, from before a time. What is None fits any."""

    run: str | None
    by: str | None
    before: int | None

    def told(self) -> dict[str, Any]:
        """Tell which, as the row says it that is written for an erasure."""
        return {name: value for name, value in (("run", self.run), ("by", self.by), ("before", self.before)) if value}


def note(
    tx: Transaction, run: str, by: str, via: str, action: str, data: dict[str, Any], value: str | None = None
) -> Asking[None]:
    """Write a row, unless nobody from outside did it. `run` is empty for what is done to the store."""
    if not by:
        return
    yield from tx.rows(
        "insert_audit", run=run, actor=by, via=via, action=action, data=to_json(data) if data else None, value=value
    )


def note_starts(tx: Transaction, starts: Sequence[tuple[str, str, dict[str, Any]]], via: str) -> Asking[None]:
    """Write rows for runs that were started at once: each run, the actor that started it, and what is told of it."""
    if starts:
        yield Count("insert_audits", [[tx.now, run, by, "start", to_json(data), via, None] for run, by, data in starts])


def starters_of(tx: Transaction, run: str) -> Asking[list[str]]:
    """Name the people who started a run: also the maker of the schedule, if another person began it by hand."""
    found = yield from tx.row("starter", run=run)
    if found is None:
        return []
    by, via, told = found
    maker = json.loads(told).get("made_by") if told else None
    return [*starters(by, via), *([maker] if maker else [])]


def _erase(tx: Transaction, which: _Which, after: int, by: str, via: str) -> Asking[tuple[int, int | None]]:
    """Erase some rows behind an id; returns how many had anything to erase, and where to go on: None at the end."""
    before = ALL if which.before is None else which.before
    found = yield from tx.rows(
        "erasable", run=which.run, actor=which.by, before=before, position=after, limit=_ERASED_AT_ONCE
    )
    erased, digests = 0, set[str]()
    for row, text, value in found:
        data = json.loads(text) if text else {}
        if value is None and _FREE_TEXT.isdisjoint(data):
            continue
        yield from tx.rows("erase", position=row, data=to_json(_without_text(data)))
        digests.update(NAMED_BLOB.findall(value or ""))
        erased += 1
    if erased:
        yield from note(tx, "", by, via, "erase", {"deeds": erased, **which.told()})
        yield from delete_blobs(tx, digests)
    return erased, found[-1][0] if len(found) == _ERASED_AT_ONCE else None


def _without_text(data: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in data.items() if name not in _FREE_TEXT}
    if "votes" in data:
        kept["votes"] = [{name: vote[name] for name in _VOTE if name in vote} for vote in data["votes"]]
    return kept
