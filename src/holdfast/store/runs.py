"""Writes from outside a run: create, send, resume, delete. Each function is one piece of work in a transaction.

None of them touches a running run's journal: that is its owner's.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import RunActive, RunFinished, UnknownRun
from holdfast.store import audit
from holdfast.store.appends import insert_run
from holdfast.store.blobs import NAMED_BLOB, delete_blobs
from holdfast.store.contract import NewRun, News
from holdfast.store.families import above, call_off, existing, requests_that_hold, resume_below
from holdfast.store.inbox import put_signal
from holdfast.store.leases import record
from holdfast.store.rewind import dropped_by_cut, first_cause, mended_by_cut
from holdfast.store.transaction import Asking, Conflict, Transaction, listed, to_json
from holdfast.words.model import FINISHED, RunRow


@dataclass(frozen=True, slots=True)
class Create:
    """Create the run, or find the one with this id, or the unfinished one of its singleton. `by` nobody: no row in the audit."""

    run: NewRun
    blobs: dict[str, bytes]
    by: str = ""
    via: str = ""

    @property
    def noted(self) -> dict[str, Any]:
        """What the audit says of it."""
        return {"agent": self.run.agent}

    def __call__(self, tx: Transaction) -> Asking[tuple[RunRow, bool]]:
        run = self.run
        row = yield from insert_run(tx, run)
        if row is not None:
            for digest, content in self.blobs.items():
                yield from tx.rows("insert_blob", digest=digest, content=content)
            yield from audit.note(tx, run.id, self.by, self.via, "start", self.noted)
            return RunRow(*row), True
        row = yield from tx.row("run", run=run.id)
        if row is None and run.lane.singleton_key is not None:
            row = yield from tx.row("singleton", key=run.lane.singleton_key)
        if row is None:
            raise Conflict(f"run {run.id!r} was there and is gone")
        found = RunRow(*row)
        return found, tx.again and found.uid == run.uid  # the uid is random: then it was our own lost commit


@dataclass(frozen=True, slots=True)
class Send:
    """Put a signal into the inbox, once per signal id."""

    run: str
    signal_id: str
    kind: str
    topic: str
    value: str | None
    data: dict[str, Any]
    blobs: dict[str, bytes]
    by: str = ""
    via: str = ""

    def __call__(self, tx: Transaction) -> Asking[int]:
        run = self.run
        before = yield from tx.row("signal_position", run=run, signal_id=self.signal_id)
        if before is not None:
            return int(before[0])
        position = yield from put_signal(tx, run, self.signal_id, self.kind, self.topic, self.value, self.data)
        if position is None:
            found = yield from tx.row("fence", run=run)
            if found is None:
                raise UnknownRun(f"there is no run {run!r}")
            raise RunFinished(f"run {run!r} is {found[0]} and takes no more messages")
        for digest, content in self.blobs.items():
            yield from tx.rows("insert_blob", digest=digest, content=content)
        yield from audit.note(tx, run, self.by, self.via, "send", {"topic": self.topic, "position": position})
        return position


def resume(
    run: str, by: str, retry: bool, budget: str | None, via: str, family: bool, whole: bool
) -> Callable[[Transaction], Asking[bool]]:
    """Make a stopped run ready again, and its family if the same request had paused it. No event of a run that has an owner.

    A run that is retried takes its failed children along, here and now: nobody may carry one on while the run above it still
    has its old budget, or cannot go on at all.

    False: it has relatives, whose rows may be locked only by a transaction that does nothing else (`whole`).
    """

    def work(tx: Transaction) -> Asking[bool]:
        cancelled = (yield from above(tx, run)) if whole else None
        found = yield from existing(tx, run)
        if not whole and (found.parent_id or (yield from tx.row("has_children", run=run)) is not None):
            return False
        if tx.again and found.status in ("ready", "running", "waiting"):
            return True  # it was stopped when we looked first: the lost commit did happen
        retries = found.status == "failed" and retry
        requests = set[str]() if retries or not family else (yield from requests_that_hold(tx, found))
        mark = f"{run}:{found.next_seq}"
        resumed = yield from resume_below(tx, run, requests, by, mark)
        for member in resumed:
            yield from audit.note(tx, member, by, via, "resume", {"by": by, "with": run})
        if found.status in FINISHED and not retries:
            if resumed:
                return True  # it has ended meanwhile, and what was paused with it goes on
            advice = "; retry it instead" if found.status == "failed" else ""
            raise RunFinished(f"run {run!r} is {found.status} and cannot be resumed{advice}")
        if cancelled is not None:
            raise RunFinished(f"run {run!r} belongs to run {cancelled!r}, which was cancelled: it cannot be retried")
        if found.status not in ("paused", "failed"):
            if not requests:
                raise RunActive(f"run {run!r} is {found.status} and not paused: there is nothing to resume")
            yield from call_off(tx, found, requests, by, mark)
            yield from audit.note(tx, run, by, via, "resume", _resumed(by, None, budget))
            return True
        other = found.singleton_key and (yield from tx.row("singleton", key=found.singleton_key))
        if other and other[0] != run:
            raise RunActive(f"run {run!r} cannot go on while {other[0]!r}, of the same singleton, has not ended")
        failed: dict[str | None, dict[str, RunRow]] = defaultdict(dict)
        for row in (yield from tx.rows("failed_below", run=run)) if retries and whole else ():
            child = RunRow(*row)
            failed[child.parent_id][child.id] = child
        if budget is not None:
            yield from tx.rows("rebudget", run=run, budget=budget)
        yield from _ready(tx, found, failed, by, via, retry, budget)
        return True

    return work


def _ready(
    tx: Transaction, found: RunRow, failed: Mapping[str | None, dict[str, RunRow]], by: str, via: str, retry: bool,
    budget: str | None = None,
) -> Asking[None]:  # fmt: skip
    """Make one that stopped ready, and with one that failed those of its failed children that brought it down."""
    run, seq, cut = found.id, found.next_seq, None
    yield from tx.rows("resume", run=run, status=found.status, seq=seq)
    yield from tx.rows("forgive", run=run)
    if retry and found.budget is not None:
        yield from tx.rows("reconsider", run=run)
    if found.status == "failed":
        cut, children = first_cause(found.error), failed.get(run, {})
        mended = yield from _drop(tx, run, seq, cut, children)
        for child in sorted(mended & children.keys()):
            yield from _ready(tx, children[child], failed, by, via, retry)
    data = _resumed(by, cut, budget)
    yield from record(tx, run, seq, found.lease_epoch, "run.retried" if retry else "run.resumed", data)
    yield from audit.note(tx, run, by, via, "retry" if retry else "resume", data)
    tx.changed(run, News.DUE)


def _resumed(by: str, cut: int | None, budget: str | None) -> dict[str, Any]:
    """What the history and the audit say of it."""
    return {"by": by, "cut": cut} | ({"budget": json.loads(budget)} if budget is not None else {})


def _drop(tx: Transaction, run: str, end: int, cause: int | None, failed: Collection[str]) -> Asking[set[str]]:
    """Take out of the history of a failed run what a retry takes out; returns the children whose failures went with it."""
    found = yield from tx.rows("history", run=run)
    history = [(seq, kind, key, json.loads(data) if data else {}) for seq, kind, key, data in found]
    cut = end if cause is None else cause
    mended = mended_by_cut(history, cut, failed)
    dropped = set(dropped_by_cut(history, cut, mended))
    dropped.update(seq for seq, kind, _, _ in history if kind == "run.failed")  # it is not how the run ended any more
    for seq in sorted(dropped):
        yield from tx.rows("drop_event", run=run, seq=seq, dropped=end)
    yield from tx.rows("recount", run=run)
    for child in sorted(mended):  # its end may lie in the inbox, where the run ended before it was taken
        yield from tx.rows("void_end", run=run, topic=child)
    return mended


def delete(run: str, by: str, via: str) -> Callable[[Transaction], Asking[int]]:
    """Delete a finished run and its descendants."""

    def work(tx: Transaction) -> Asking[int]:
        row = yield from tx.row("run", run=run)
        if row is None:
            if tx.again:
                return 1
            raise UnknownRun(f"there is no run {run!r}")
        found = RunRow(*row)
        parent = (yield from tx.row("fence", run=found.parent_id)) if found.parent_id is not None else None
        if parent is not None and parent[0] not in FINISHED:
            raise RunActive(f"run {run!r} belongs to run {found.parent_id!r}, which is {parent[0]}")
        family = yield from tx.rows("family", run=run)
        for member, status in family:
            if status not in FINISHED:
                raise RunActive(f"run {member!r} is {status}; cancel it first, or wait for its end")
        yield from _delete_runs(tx, [member for member, _ in family])
        yield from audit.note(tx, run, by, via, "delete", _gone(found, len(family)))
        return len(family)

    return work


def _gone(root: RunRow, runs: int) -> dict[str, Any]:
    """What the audit says of a run that is not there any more."""
    return {"agent": root.agent, "status": root.status, "runs": runs}


def prunable(before: int, statuses: Iterable[str], agent: str | None, labels: dict[str, str] | None) -> dict[str, Any]:
    """Which runs are to be deleted, as the queries take it."""
    wanted = [status for status in statuses if status in FINISHED]
    return {
        "before": before,
        "statuses": to_json(wanted),
        "agent": agent,
        "labels": to_json(labels) if labels else None,
    }


def prune(
    before: int,
    statuses: Iterable[str],
    agent: str | None,
    labels: dict[str, str] | None,
    limit: int,
    spared: set[str],
    by: str,
    via: str,
) -> Callable[[Transaction], Asking[int]]:
    """Delete up to `limit` old root runs. Those with unfinished descendants are left and added to `spared`."""
    fits = prunable(before, statuses, agent, labels)

    def work(tx: Transaction) -> Asking[int]:
        doomed: list[str] = []
        roots = 0
        found = yield from tx.rows("prunable", **fits, limit=limit, spared=to_json(sorted(spared)))
        for (root,) in found:
            family = yield from tx.rows("family", run=root)
            if all(status in FINISHED for _, status in family):
                doomed += [member for member, _ in family]
                roots += 1
                gone = RunRow(*(yield from tx.row("run", run=root)))
                yield from audit.note(tx, root, by, via, "prune", _gone(gone, len(family)))
            else:
                spared.add(root)
        yield from _delete_runs(tx, doomed)
        yield from tx.rows("forget_rates", micros=tx.now * 1000)
        yield from tx.rows("forget_late_turns")
        return roots

    return work


def _delete_runs(tx: Transaction, runs: list[str]) -> Asking[None]:
    """Delete runs, then the large values that only they named; if we died between the two they would stay for ever."""
    ids = to_json(runs)
    used = yield from tx.rows("blobs_used", ids=ids)
    digests = {digest for (digest,) in used}
    for (text,) in (yield from tx.rows("blobs_named", ids=ids)):
        digests.update(NAMED_BLOB.findall(text))
    (last,) = yield from tx.row("last_position")
    for run in runs:
        yield from tx.rows("delete_run", run=run)
        yield from tx.rows("delete_signals", run=run)
        yield from tx.rows("delete_events", run=run)
        tx.changed(run, News.STOPPED)
    if last is not None and (yield from tx.row("last_position"))[0] != last:
        yield from tx.rows("mark_position", position=last)
    if last is not None:
        yield from tx.rows("unmark_positions", position=last)
    yield from delete_blobs(tx, digests)


def publish(
    agents: list[tuple[str, str | None, str]], served: list[str], queues: Iterable[str] | None, code_version: str | None
) -> Callable[[Transaction], Asking[None]]:
    """Record what these names mean now, and all that this incarnation serves. Of several versions the last one counts."""
    newest = {agent[0]: agent for agent in agents}

    def work(tx: Transaction) -> Asking[None]:
        yield from tx.rows("register_worker", agents=to_json(served), queues=listed(queues), version=code_version)
        for name, version, schema in sorted(newest.values(), key=lambda agent: agent[0]):
            yield from tx.rows("publish_agent", name=name, version=version, schema=schema)

    return work
