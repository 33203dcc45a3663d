"""Who runs what: claiming, keeping and losing leases. Each function is one piece of work in a write transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from holdfast.model import RunRow
from holdfast.store.base import Lease, News
from holdfast.store.transaction import Transaction, listed, to_json


@dataclass(slots=True)
class Claim:
    """Take due runs. Remembers what it took, for the case that its commit is unknown."""

    agents: list[str]
    limit: int
    ttl_ms: int
    root: str | None = None
    queues: list[str] | None = None
    alone: bool = False
    taken: list[tuple[str, int]] = field(default_factory=list)  # (run, epoch)

    def __call__(self, tx: Transaction) -> list[RunRow]:
        if tx.again:
            # Without this the runs would be lost until we die: they are ours, so no claim of ours takes them again.
            held = [tx.row("held", run=run, epoch=epoch) for run, epoch in self.taken]
            if any(held):
                return [RunRow(*row) for row in held if row is not None]
        picked = tx.rows("due", agents=to_json(self.agents), root=self.root, queues=listed(self.queues),
                         alone=int(self.alone), limit=1 if self.alone else self.limit)  # fmt: skip
        self.taken = [(run, epoch + 1) for run, _, _, epoch, _ in picked]
        if not picked:
            return []
        ids = [run for run, *_ in picked]
        claimed = {row[0]: RunRow(*row) for row in tx.rows("claim", ids=to_json(ids), ttl=self.ttl_ms)}
        for run, status, owner, epoch, seq in picked:
            if status == "running":
                record(tx, run, seq, epoch + 1, "run.interrupted", {"owner": owner, "epoch": epoch})
            tx.changed(run, News.MOVED)
        return [claimed[run] for run in ids]  # the statement returns them in no particular order


def release(leases: Iterable[tuple[str, int]]) -> Callable[[Transaction], None]:
    """Give back runs whose claimer went away before it heard of them."""

    def work(tx: Transaction) -> None:
        for run, epoch in leases:
            tx.rows("release", run=run, epoch=epoch)
            tx.changed(run, News.DUE)

    return work


def heartbeat(ttl_ms: int) -> Callable[[Transaction], list[Lease]]:
    """Prolong all leases of this incarnation."""

    def work(tx: Transaction) -> list[Lease]:
        tx.rows("seen_worker")
        return [Lease(*row) for row in tx.rows("heartbeat", ttl=ttl_ms)]

    return work


def bury(worker: str) -> Callable[[Transaction], int]:
    """Make a dead incarnation's runs due and forget it. The caller holds its lock."""

    def work(tx: Transaction) -> int:
        orphans = tx.rows("orphan", worker=worker)
        for (run,) in orphans:
            tx.changed(run, News.DUE)
        tx.rows("forget_worker", worker=worker)
        return len(orphans)

    return work


def depart(worker: str) -> Callable[[Transaction], None]:
    """This incarnation closes: what it still holds (it was claimed a moment ago, say) is given back, and it is forgotten."""

    def work(tx: Transaction) -> None:
        for (run,) in tx.rows("release_all"):
            tx.changed(run, News.DUE)
        tx.rows("forget_worker", worker=worker)

    return work


def record(tx: Transaction, run: str, seq: int, epoch: int, kind: str, data: dict[str, Any]) -> None:
    """One event that the store itself writes, at a place that was reserved for it."""
    tx.rows("record", run=run, seq=seq, kind=kind, key=None, data=to_json(data), value=None, blob=None, epoch=epoch)
