"""Leases: how workers claim runs, keep them and give them back.

Each claim adds one to the run's epoch, which is the fence of its owner's appends. A lease that nobody prolongs ends by time;
the leases of a worker that is known to be dead end at once (`workers.py`).
"""

from __future__ import annotations

import abc
import asyncio
import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.store.changes import News
from holdfast.store.limits import KEYS_AT_ONCE, Due, admitted, freed, let_in
from holdfast.store.work import Asking, Transaction, forget, listed, rows, to_json
from holdfast.store.workers import Workers
from holdfast.words.life import torn_ms
from holdfast.words.model import CRASHES_APART, RunRow

_ROUNDS: Final = 10  # of looking at what is due, while some of it has no slot or turn
_LOOKED_AT: Final = 100  # in each round but the first


@dataclass(frozen=True, slots=True)
class Lease:
    """A run that its owner still has, as a heartbeat tells."""

    run: str
    epoch: int
    inbox_count: int


class Leases(Workers):
    """Leases, for a worker, which publishes itself with its first claim."""

    _said_due = False  # a commit of ours made a run due, and no claim has looked since
    _held_after = ""  # the limit up to which held runs were looked at

    async def claim(
        self,
        agents: Iterable[str],
        limit: int,
        ttl_ms: int,
        *,
        root: str | None = None,
        queues: Sequence[str] | None = None,
        alone: bool = False,
        sure: bool = False,
        early_ms: int = 0,
    ) -> list[RunRow]:
        """Take up to `limit` due runs of these agents (of this root's tree and these queues only, if given), epoch + 1 each.

        An agent is a name, for runs of no version, or a name and a version with a space between them, beside the name. The
        highest priority goes first. A run whose limit has no slot, or whose rate no turn, is held back.
        A claimed run that was still 'running' was interrupted: `crash_count + 1` and a `run.interrupted` event, which
        names the worker that took it over and how that was noticed: the owner's lock was free ("dead"), or its lease
        was over ("lease"); and when that owner was last heard of ("seen"). Runs with two crashes or more are left out,
        unless `alone`: then one run is claimed, and any may be it. Never claims a run that this very incarnation is
        running. `sure`: a run is known to be due, so skip the cheap check before claiming. A run that waits is taken up
        to `early_ms` before its time.
        """
        named = None if queues is None else list(queues)
        claim = Claim(list(agents), limit, ttl_ms, root, named, alone, early_ms)
        if limit < 1:
            return []
        # Look before writing, because an idle claim should cost no transaction; not when a commit of ours just said so.
        said_so, self._said_due = self._said_due, False
        if not (said_so or sure or await self._may_be_due(claim)):
            return []
        if not self._registered:
            await self.publish([])
        work = self._submit(claim, small=True, runs=())
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(self._give_back)
            raise

    async def _may_be_due(self, claim: Claim) -> bool:
        now, worker = self.clock.now(), self.worker_id
        when = {"now": now, "soon": now + claim.early_ms}
        return bool(await self._glance(rows, "due", worker=worker, limit=1, **when, **claim.ours))

    def _give_back(self, work: asyncio.Future[list[RunRow]]) -> None:
        """Release what was claimed for a caller that was cancelled: this process would hold it and not know of it."""
        claimed = [] if work.cancelled() or work.exception() is not None else work.result()
        if self._open and claimed:
            forget(self._submit(lambda tx: _release(tx, claimed)))

    async def next_due(
        self,
        agents: Iterable[str],
        *,
        root: str | None = None,
        queues: Sequence[str] | None = None,
        alone: bool = True,
    ) -> int | None:
        """Tell the earliest time (it may be past) at which a `claim` with the same arguments would find a run."""
        found = await self._glance(rows, "next_due", worker=self.worker_id, **_ours(agents, root, queues, alone))
        due_at: int | None = found[0][0]
        return due_at

    async def let_in(
        self, agents: Iterable[str], *, root: str | None = None, queues: Sequence[str] | None = None
    ) -> int:
        """Make runs due that a `claim` with these arguments held back and that would find a slot now; tells how many.

        The end of a run that had a slot does so itself. This is for what it cannot know, and is bounded: call it now and
        then.
        """
        held = await self._glance(rows, "held_keys", after=self._held_after, limit=KEYS_AT_ONCE)
        self._held_after = held[-1][0] if len(held) == KEYS_AT_ONCE else ""
        keys, ours = [key for key, taken, slots in held if taken < slots], _ours(agents, root, queues, alone=False)
        return await self._submit(lambda tx: let_in(tx, keys, ours)) if keys else 0

    @abc.abstractmethod
    def heartbeat(self, ttl_ms: int) -> list[Lease]:
        """Prolong every lease of this incarnation in one statement; tells which ones it still has.

        Blocks, at most for the time of a lease, and needs nothing of the loop: any other thread may call it while the
        loop is hung. `StoreUnavailable` when it could not be done.
        """


@dataclass(slots=True)
class Claim:
    """Take due runs. A claim has a name, by which it finds what it took in the case that its commit is unknown.

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
        """Take the run that is due first; if it may have ended its process, as many of its like as it may have for company."""
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
        """Name the runs that may be taken, as queries take it."""
        return _ours(self.agents, self.root, self.queues, self.alone)

    def _take(self, tx: Transaction, picked: list[Due]) -> Asking[list[RunRow]]:
        if not picked:
            return []
        rows = yield from tx.rows("claim", ids=to_json([run.id for run in picked]), ttl=self.ttl_ms, claim=self.name)
        claimed = {row[0]: RunRow(*row) for row in rows}
        owners = {run.owner for run in picked if run.status == "running"}
        # A dead worker is forgotten in the same transaction; an owner still among the workers only let its lease end.
        known = (yield from tx.rows("known_workers", ids=to_json(sorted(map(str, owners))))) if owners else ()
        living = {worker for (worker,) in known}
        left = (yield from _left_calls(tx, [run.id for run in picked if run.status == "running"])) if owners else {}
        lost: dict[tuple[str, str], list[int]] = {}
        for run in picked:
            if run.status == "running":
                how = "lease" if run.owner in living else "dead"
                torn = torn_ms(claimed[run.id])
                data: dict[str, Any] = {
                    "owner": run.owner,
                    "epoch": run.epoch,
                    "by": tx.worker,
                    "how": how,
                    "seen": tx.now - torn,
                }
                if (run.id, run.epoch) in left:
                    data["open"] = left[run.id, run.epoch]
                yield from tx.record(run.id, run.seq, run.epoch + 1, "run.interrupted", data)
                lost.setdefault((str(run.owner), how), []).append(torn)
            tx.changed(run.id, News.MOVED)
        for (owner, how), after in sorted(lost.items()):
            yield from tx.rows("lose_worker", whose=owner, how=how, moved=len(after), after_ms=max(after))
        return [claimed[run.id] for run in picked]  # the statement returns them in no particular order


def _left_calls(tx: Transaction, runs: list[str]) -> Asking[dict[tuple[str, int], list[dict[str, Any]]]]:
    """Take what owners that are gone had told of open calls, by run and epoch: attempts that were lost with their processes."""
    ids = to_json(runs)
    found = yield from tx.rows("left_calls", ids=ids)
    if found:
        yield from tx.rows("end_calls", ids=ids)
    return {
        (run, epoch): [
            {"key": key, "attempt": attempt, "began": began} for key, _, _, attempt, began in json.loads(calls)
        ]
        for run, epoch, calls in found
    }


def _ours(agents: Iterable[str], root: str | None, queues: Iterable[str] | None, alone: bool) -> dict[str, Any]:
    """Name the runs that a worker may take, as queries take it."""
    return {"agents": to_json(list(agents)), "root": root, "queues": listed(queues), "alone": int(alone)}


def _release(tx: Transaction, claimed: Iterable[RunRow]) -> Asking[None]:
    """Give back runs whose claimer went away before it heard of them."""
    keys = []
    for run in claimed:
        for released, key in (yield from tx.rows("release", run=run.id, epoch=run.lease_epoch)):
            keys.append(key)
            tx.changed(released, News.DUE)
    yield from freed(tx, keys)


def prolong(tx: Transaction, ttl_ms: int, load: str | None = None) -> Asking[list[Lease]]:
    """Prolong all leases of this incarnation."""
    yield from tx.rows("seen_worker", load=load)
    kept = yield from tx.rows("heartbeat", ttl=ttl_ms)
    return [Lease(*row) for row in kept]
