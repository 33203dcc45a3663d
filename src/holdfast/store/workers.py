"""Workers: incarnations of processes that can hold leases, what each may take, and what follows when one is gone.

An incarnation shows that it is alive by a lock that the operating system or the database frees when its process dies. The
databases differ in that lock (`sqlite/peers.py`, `postgres/liveness.py`); all else is here.
"""

from __future__ import annotations

import abc
import functools
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.store import triggers
from holdfast.store.changes import News
from holdfast.store.families import end_if_asked
from holdfast.store.limits import freed
from holdfast.store.work import Asking, Feature, Transaction, listed, rows, to_json
from holdfast.words.model import Published, RunRow
from holdfast.words.people import writable


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


LOST_MS: Final = 86_400_000  # for so long it is known that an incarnation is gone


class Workers(Feature):
    """Workers: published, found alive or dead, and the runs that they refuse."""

    code_version: str | None = None  # of the code that this process runs, for people
    queues: Sequence[str] | None = None  # those this process takes runs of; None: all
    load: Callable[[], dict[str, Any]] | None = None  # tells how much a worker here does; any thread may ask
    _served: set[str]  # names of agents, and names with a version after a space
    _open = _registered = False

    async def worker_ids(self) -> list[str]:
        """List the incarnations that said they are there, alive or not."""
        return [row[0] for row in await self._read(rows, "workers")]

    async def publish(self, agents: Iterable[tuple[str, str | None, str]]) -> None:
        """Record (name, version, schema JSON) of agents this process serves; of several versions the last is the newest."""
        self._check_writable()
        published = list(agents)
        self._served.update(name for name, _, _ in published)
        self._served.update(f"{name} {version}" for name, version, _ in published if version is not None)
        if not self._registered:
            await (
                self._hold_lock()
            )  # first: from the first lease on, any process that can take the lock takes us for dead
        served, queues, version = sorted(self._served), self.queues, self.code_version
        await self._submit(lambda tx: _publish(tx, published, served, queues, version), journal=False)
        self._registered = True

    async def agents(self) -> Published:
        """Read what was published, and which versions of it live workers serve."""
        versions: dict[str, set[str]] = {}
        for served in {name for each in await self._living() for name in each.agents}:
            name, _, version = served.partition(" ")
            versions.setdefault(name, set()).add(version)
        found = await self._read(rows, "agents")
        return {name: (version, schema, frozenset(versions.get(name, ()))) for name, version, schema in found}

    async def queues_taken(self) -> frozenset[str] | None:
        """Read the queues that workers which are there take runs of; None: all."""
        found = [row[0] for row in await self._read(rows, "queues")]
        return None if None in found else frozenset(queue for each in found for queue in json.loads(each))

    async def count_workers(self) -> int:
        """Count the workers that said they are there; one that died a moment ago is among them."""
        return int((await self._glance(rows, "count_workers"))[0][0])

    async def refuse(self, run: RunRow, reason: str) -> None:
        """Give back a run whose records do not fit the code here, for a worker that has other code; paused if none is left."""
        living, worker = await self._living(), self.worker_id
        able = [each.id for each in living if each.may_take(run.agent, run.version, run.queue)]
        await self._submit(lambda tx: _refuse(tx, run, worker, reason, able))

    async def reconsider(self) -> None:
        """Let any worker take runs again that wait for one that has not refused them, when the last one of these is gone."""
        refused = await self._read(rows, "refused_due", now=self.clock.now())
        if not refused:
            return
        living = await self._living()
        nobody = [
            run
            for run, agent, version, queue, by in refused
            if not any(each.may_take(agent, version, queue) and each.id not in json.loads(by) for each in living)
        ]
        if nobody:
            await self._submit(lambda tx: _reconsider(tx, nobody))

    def _load_text(self) -> str | None:
        """Write what a worker here says of itself, as its row keeps it."""
        return None if self.load is None else to_json(self.load())

    def _departs(self) -> Callable[[Transaction], Asking[None]]:
        """Make the work by which this incarnation leaves."""
        released = 0 if self.load is None else int(self.load().get("released", 0))
        return functools.partial(depart, released=released)

    @abc.abstractmethod
    async def recover(self) -> int:
        """Make the runs of dead incarnations due now; returns how many. A stopped (not dead) process keeps its runs."""

    @abc.abstractmethod
    async def _living(self) -> list[Living]:
        """Find the workers that are alive."""

    @abc.abstractmethod
    async def _hold_lock(self) -> None:
        """Hold the lock that tells others that this incarnation is alive."""

    @abc.abstractmethod
    def _check_writable(self) -> None:
        """Raise if this store may only be looked at."""


def _publish(
    tx: Transaction,
    agents: Sequence[tuple[str, str | None, str]],
    served: list[str],
    queues: Sequence[str] | None,
    code_version: str | None,
) -> Asking[None]:
    """Record what these names mean now, and all that this incarnation serves."""
    yield from tx.rows(
        "register_worker", agents=to_json(served), queues=listed(queues), version=code_version, load=None
    )
    newest = {agent[0]: agent for agent in agents}
    for name, version, schema in sorted(newest.values(), key=lambda agent: agent[0]):
        yield from tx.rows("publish_agent", name=name, version=version, schema=schema)


def _refuse(tx: Transaction, run: RunRow, worker: str, reason: str, able: Collection[str]) -> Asking[None]:
    """Give back a run; pause it if all that could take it have refused it, or end it if it was asked to stop."""
    row = yield from tx.row("refused", run=run.id, epoch=run.lease_epoch)
    if row is None:
        return
    refused = {*json.loads(row[0] or "[]"), worker}
    left = [each for each in able if each not in refused]
    gone = yield from tx.rows(
        "refuse", run=run.id, epoch=run.lease_epoch, status="waiting" if left else "paused",
        due_at=tx.now if left else None, waits_for="worker" if left else None, reason=writable(reason),
        refused=to_json(sorted(refused)) if left else None,
    )  # fmt: skip
    tx.changed(run.id, News.DUE if left else News.STOPPED)
    yield from freed(tx, [key for _, key in gone])
    if gone and not left:
        yield from end_if_asked(tx, run.id)


def _reconsider(tx: Transaction, runs: Collection[str]) -> Asking[None]:
    """Let any worker take runs again that only those could take that have refused them; the next one will pause them."""
    for (run,) in (yield from tx.rows("forget_refused", ids=to_json(list(runs)))):
        tx.changed(run, News.DUE)


def bury(tx: Transaction, worker: str) -> Asking[int]:
    """Make a dead incarnation's runs due and forget it; returns how many. The caller holds its lock."""
    (crowd,) = yield from tx.row("crowd", worker=worker)
    orphans = yield from tx.rows("orphan", worker=worker, crowd=crowd)
    for (run,) in orphans:
        tx.changed(run, News.DUE)
    yield from triggers.orphan(tx, worker)
    # What it told of open calls stays until its runs are claimed: their events say what was in the middle.
    yield from _lose(tx, worker, "dead", 0)
    yield from tx.rows("forget_worker", worker=worker)
    return len(orphans)


def _lose(tx: Transaction, worker: str, how: str, moved: int) -> Asking[None]:
    """Remember for a day that an incarnation is gone: people ask for it."""
    yield from tx.rows("lose_worker", whose=worker, how=how, moved=moved, after_ms=None)
    yield from tx.rows("forget_lost", before=tx.now - LOST_MS)


def depart(tx: Transaction, released: int = 0) -> Asking[None]:
    """Give back what this incarnation, which closes, still holds (it was claimed a moment ago, say), and forget it."""
    keys = []
    for run, key in (yield from tx.rows("release_all")):
        keys.append(key)
        tx.changed(run, News.DUE)
    yield from freed(tx, keys)
    yield from triggers.release(tx)
    yield from tx.rows("forget_calls")
    yield from _lose(tx, tx.worker, "drained", released + len(keys))
    yield from tx.rows("forget_worker")
