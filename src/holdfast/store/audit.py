"""The audit: what was done from outside, by whom and through which door. Pieces of work inside somebody's transaction.

A deed's row is written in the transaction of the deed itself, so there is one exactly if it was done. Rows are never deleted;
`erase` takes the value and all free text out of them, for whoever must forget what was decided and may not forget that it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.store.blobs import NAMED_BLOB, delete_blobs
from holdfast.store.transaction import Asking, Rows, Transaction, listed, to_json

_ALL: Final = (1 << 63) - 1
Refusal = tuple[str, str, str, dict[str, Any]]  # the run, the actor, the door, and what was tried
_FREE_TEXT: Final = frozenset(
    {"question", "note", "reason", "votes", "address"}
)  # of what a row says beside its columns
_VOTE: Final = ("by", "yes", "at", "digest")  # what stays of a vote


@dataclass(frozen=True, slots=True)
class Which:
    """Rows of the audit: of a run, by somebody, from before a time. What is None fits any."""

    run: str | None = None
    by: str | None = None
    before: int | None = None

    def told(self) -> dict[str, Any]:
        """As the row says it that is written for an erasure."""
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


def refusals(tries: Sequence[Refusal]) -> Callable[[Transaction], Asking[None]]:
    """What was tried and not done."""

    def work(tx: Transaction) -> Asking[None]:
        for run, by, via, data in tries:
            yield from note(tx, run, by, via, "refused", data)

    return work


def rows(
    run: str | None, by: str | None, actions: Iterable[str] | None, before: int | None, limit: int
) -> Asking[list[dict[str, Any]]]:
    """What was done, the newest first."""
    names = ("id", "at", "run", "actor", "action", "via", "value", "erased_at")
    chosen = {"run": run, "actor": by, "kinds": listed(actions), "before": _ALL if before is None else before}
    found: list[Any] = yield Rows("audit", {**chosen, "limit": limit})
    return [dict(zip(names, row, strict=False)) | {"data": json.loads(row[8]) if row[8] else {}} for row in found]


def erase(
    which: Which, after: int, limit: int, by: str, via: str
) -> Callable[[Transaction], Asking[tuple[int, int | None]]]:
    """Erase up to `limit` rows behind an id; returns how many had anything to erase, and where to go on: None at the end."""

    def work(tx: Transaction) -> Asking[tuple[int, int | None]]:
        before = _ALL if which.before is None else which.before
        found = yield from tx.rows(
            "erasable", run=which.run, actor=which.by, before=before, position=after, limit=limit
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
        return erased, found[-1][0] if len(found) == limit else None

    return work


def _without_text(data: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in data.items() if name not in _FREE_TEXT}
    if "votes" in data:
        kept["votes"] = [{name: vote[name] for name in _VOTE if name in vote} for vote in data["votes"]]
    return kept
