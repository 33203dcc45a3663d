"""Who runs what: claiming, keeping and losing leases. Each function is one piece of work in a write transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from holdfast.model import RunRow
from holdfast.store.base import Lease, News
from holdfast.store.transaction import Asking, Count, Transaction, listed, to_json


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

    def __call__(self, tx: Transaction) -> Asking[list[RunRow]]:
        if tx.again:
            # Without this the runs would be lost until we die: they are ours, so no claim of ours takes them again.
            held = []
            for run, epoch in self.taken:
                held += yield from tx.rows("held", run=run, epoch=epoch)
            if held:
                return [RunRow(*row) for row in held]
        picked = yield from tx.rows("pick", agents=to_json(self.agents), root=self.root, queues=listed(self.queues),
                         alone=int(self.alone), limit=1 if self.alone else self.limit)  # fmt: skip
        self.taken = [(run, epoch + 1) for run, _, _, epoch, _ in picked]
        if not picked:
            return []
        ids = [run for run, *_ in picked]
        rows = yield from tx.rows("claim", ids=to_json(ids), ttl=self.ttl_ms)
        claimed = {row[0]: RunRow(*row) for row in rows}
        for run, status, owner, epoch, seq in picked:
            if status == "running":
                yield from record(tx, run, seq, epoch + 1, "run.interrupted", {"owner": owner, "epoch": epoch})
            tx.changed(run, News.MOVED)
        return [claimed[run] for run in ids]  # the statement returns them in no particular order


def release(leases: Iterable[tuple[str, int]]) -> Callable[[Transaction], Asking[None]]:
    """Give back runs whose claimer went away before it heard of them."""

    def work(tx: Transaction) -> Asking[None]:
        for run, epoch in leases:
            yield from tx.rows("release", run=run, epoch=epoch)
            tx.changed(run, News.DUE)

    return work


def heartbeat(ttl_ms: int) -> Callable[[Transaction], Asking[list[Lease]]]:
    """Prolong all leases of this incarnation."""

    def work(tx: Transaction) -> Asking[list[Lease]]:
        yield from tx.rows("seen_worker")
        kept = yield from tx.rows("heartbeat", ttl=ttl_ms)
        return [Lease(*row) for row in kept]

    return work


def bury(worker: str) -> Callable[[Transaction], Asking[int]]:
    """Make a dead incarnation's runs due and forget it. The caller holds its lock."""

    def work(tx: Transaction) -> Asking[int]:
        orphans = yield from tx.rows("orphan", worker=worker)
        for (run,) in orphans:
            tx.changed(run, News.DUE)
        yield from tx.rows("forget_worker", worker=worker)
        return len(orphans)

    return work


def depart(worker: str) -> Callable[[Transaction], Asking[None]]:
    """This incarnation closes: what it still holds (it was claimed a moment ago, say) is given back, and it is forgotten."""

    def work(tx: Transaction) -> Asking[None]:
        for (run,) in (yield from tx.rows("release_all")):
            tx.changed(run, News.DUE)
        yield from tx.rows("forget_worker", worker=worker)

    return work


def record(tx: Transaction, run: str, seq: int, epoch: int, kind: str, data: dict[str, Any]) -> Asking[None]:
    """One event that the store itself writes, at a place that was reserved for it."""
    yield Count("record", [(run, seq, kind, None, to_json(data), None, None, epoch, tx.now)])
