"""Who runs what: claiming, keeping and losing leases. Each function is one piece of work in a write transaction."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.store.contract import Lease, News
from holdfast.store.limits import Due, admitted, freed
from holdfast.store.transaction import Asking, Count, Transaction, listed, to_json
from holdfast.words.model import CRASHES_APART, RunRow

_ROUNDS: Final = 10  # of looking at what is due, while some of it has no slot or turn
_LOOKED_AT: Final = 100  # in each round but the first


@dataclass(slots=True)
class Claim:
    """Take due runs. It has a name, by which it finds what it took in the case that its commit is unknown.

    Of a thousand runs that one key holds back a claim looks at as many as it may, so that they soon stand in nobody's way.
    """

    agents: list[str]
    limit: int
    ttl_ms: int
    root: str | None = None
    queues: list[str] | None = None
    alone: bool = False
    early_ms: int = 0
    name: str = field(default_factory=lambda: secrets.token_hex(6))

    def __call__(self, tx: Transaction) -> Asking[list[RunRow]]:
        if tx.again:
            # Without this the runs would be lost until we die: they are ours, so no claim of ours takes them again.
            held = yield from tx.rows("held", claim=self.name)
            if held:
                return [RunRow(*row) for row in held]
        if self.alone:
            return (yield from self._apart(tx))
        claimed: list[RunRow] = []
        limit = look = self.limit
        for _ in range(_ROUNDS):
            found = yield from tx.rows("pick", limit=look, soon=tx.now + self.early_ms, **self.ours)
            due = [Due(*row) for row in found]
            picked = yield from admitted(tx, due, limit - len(claimed))
            claimed += yield from self._take(tx, picked)
            if len(claimed) >= limit or len(picked) == len(due):
                break
            look = max(limit - len(claimed), _LOOKED_AT)
        return claimed

    def _apart(self, tx: Transaction) -> Asking[list[RunRow]]:
        """The run that is due first; if it may have ended its process, as many of its like as it may have for company."""
        for _ in range(_ROUNDS):
            found = yield from tx.rows("pick", limit=self.limit, soon=tx.now + self.early_ms, **self.ours)
            due = [Due(*row) for row in found]
            group = due[:1]
            if due and due[0].crashes >= CRASHES_APART:
                most = max(due[0].company, 1)
                group = [run for run in due if run.crashes >= CRASHES_APART and max(run.company, 1) >= most][:most]
            picked = yield from admitted(tx, group, len(group))
            if picked or not group:
                return (yield from self._take(tx, picked))
        return []

    @property
    def ours(self) -> dict[str, Any]:
        """Which runs may be taken, as queries want to know it."""
        return ours(self.agents, self.root, self.queues, self.alone)

    def _take(self, tx: Transaction, picked: list[Due]) -> Asking[list[RunRow]]:
        if not picked:
            return []
        rows = yield from tx.rows("claim", ids=to_json([run.id for run in picked]), ttl=self.ttl_ms, claim=self.name)
        claimed = {row[0]: RunRow(*row) for row in rows}
        for run in picked:
            if run.status == "running":
                data = {"owner": run.owner, "epoch": run.epoch}
                yield from record(tx, run.id, run.seq, run.epoch + 1, "run.interrupted", data)
            tx.changed(run.id, News.MOVED)
        return [claimed[run.id] for run in picked]  # the statement returns them in no particular order


def ours(agents: Iterable[str], root: str | None, queues: Iterable[str] | None, alone: bool) -> dict[str, Any]:
    """Which runs a worker may take, as queries want to know it."""
    return {"agents": to_json(list(agents)), "root": root, "queues": listed(queues), "alone": int(alone)}


def release(leases: Iterable[tuple[str, int]]) -> Callable[[Transaction], Asking[None]]:
    """Give back runs whose claimer went away before it heard of them."""

    def work(tx: Transaction) -> Asking[None]:
        keys = []
        for run, epoch in leases:
            for released, key in (yield from tx.rows("release", run=run, epoch=epoch)):
                keys.append(key)
                tx.changed(released, News.DUE)
        yield from freed(tx, keys)

    return work


@dataclass(frozen=True, slots=True)
class Living:
    """A worker that is alive, and what it may take."""

    id: str
    agents: frozenset[str]  # names, and names with a version after a space
    queues: frozenset[str] | None

    @classmethod
    def of(cls, id: str, agents: str, queues: str | None) -> Living:
        return cls(id, frozenset(json.loads(agents)), None if queues is None else frozenset(json.loads(queues)))

    def may_take(self, agent: str, version: str | None, queue: str) -> bool:
        name = agent if version is None else f"{agent} {version}"
        return name in self.agents and (self.queues is None or queue in self.queues)


def refuse(run: RunRow, worker: str, reason: str, able: Collection[str]) -> Callable[[Transaction], Asking[bool]]:
    """Give back a run whose records do not fit the code of this worker; paused (True) if all that could take it did that."""

    def work(tx: Transaction) -> Asking[bool]:
        row = yield from tx.row("refused", run=run.id, epoch=run.lease_epoch)
        if row is None:
            return False
        refused = {*json.loads(row[0] or "[]"), worker}
        left = [each for each in able if each not in refused]
        gone = yield from tx.rows(
            "refuse", run=run.id, epoch=run.lease_epoch, status="waiting" if left else "paused",
            due_at=tx.now if left else None, waits_for="worker" if left else None, reason=reason,
            refused=to_json(sorted(refused)) if left else None,
        )  # fmt: skip
        tx.changed(run.id, News.DUE if left else News.STOPPED)
        yield from freed(tx, [key for _, key in gone])
        return bool(gone) and not left

    return work


def reconsider(runs: Collection[str]) -> Callable[[Transaction], Asking[None]]:
    """Let anybody take runs again that only those could take who have refused them; the next one will pause them."""

    def work(tx: Transaction) -> Asking[None]:
        for (run,) in (yield from tx.rows("forget_refused", ids=to_json(list(runs)))):
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
        (crowd,) = yield from tx.row("crowd", worker=worker)
        orphans = yield from tx.rows("orphan", worker=worker, crowd=crowd)
        for (run,) in orphans:
            tx.changed(run, News.DUE)
        yield from tx.rows("forget_worker", worker=worker)
        return len(orphans)

    return work


def depart(worker: str) -> Callable[[Transaction], Asking[None]]:
    """This incarnation closes: what it still holds (it was claimed a moment ago, say) is given back, and it is forgotten."""

    def work(tx: Transaction) -> Asking[None]:
        keys = []
        for run, key in (yield from tx.rows("release_all")):
            keys.append(key)
            tx.changed(run, News.DUE)
        yield from freed(tx, keys)
        yield from tx.rows("forget_worker", worker=worker)

    return work


def record(tx: Transaction, run: str, seq: int, epoch: int, kind: str, data: dict[str, Any]) -> Asking[None]:
    """One event that the store itself writes, at a place that was reserved for it."""
    yield Count("record", [(run, seq, kind, None, to_json(data), None, None, epoch, tx.now)])
