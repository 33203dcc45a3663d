"""Deletion of finished runs, with all below them and what only they used."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, Final

from holdfast.errors import RunActive, UnknownRun
from holdfast.store import audit
from holdfast.store.announcements import forget_runs
from holdfast.store.blobs import NAMED_BLOB, delete_blobs
from holdfast.store.changes import News
from holdfast.store.forks import keep_shared
from holdfast.store.parts import delete_parts
from holdfast.store.work import Asking, Feature, Transaction, rows, to_json
from holdfast.words.model import FINISHED, RunRow

_PRUNED_AT_ONCE: Final = 50  # root runs per transaction: others can write in between


class Deletion(Feature):
    """Deletion of one run, or of old ones."""

    async def delete(self, run: str, *, by: str = "", via: str = "") -> int:
        """Delete a finished run, its finished descendants and what only they used; `RunActive` if one is unfinished."""
        return await self._submit(lambda tx: _delete(tx, run, by, via))

    async def prune(
        self,
        before: int,
        statuses: Iterable[str],
        limit: int = 1000,
        *,
        agent: str | None = None,
        labels: dict[str, str] | None = None,
        by: str = "",
        via: str = "",
    ) -> int:
        """Delete up to `limit` root runs that finished before this time, with their descendants; returns the count."""
        fits, spared, pruned = _prunable(before, statuses, agent, labels), set[str](), 0
        while pruned < limit:
            at_once, spared_before = min(_PRUNED_AT_ONCE, limit - pruned), len(spared)
            work = functools.partial(_prune, fits=fits, limit=at_once, spared=spared, by=by, via=via)
            done = await self._submit(work)
            pruned += done
            if done + len(spared) - spared_before < at_once:
                break
        return pruned

    async def would_prune(
        self, before: int, statuses: Iterable[str], *, agent: str | None = None, labels: dict[str, str] | None = None
    ) -> list[str]:
        """List the ids of the root runs that `prune` would delete, the oldest first."""
        found = await self._read(rows, "would_prune", **_prunable(before, statuses, agent, labels))
        return [run for (run,) in found]


def _delete(tx: Transaction, run: str, by: str, via: str) -> Asking[int]:
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
    if not family:  # another was quicker, while this waited for it
        raise UnknownRun(f"there is no run {run!r}")
    for member, status in family:
        if status not in FINISHED:
            raise RunActive(f"run {member!r} is {status}; cancel it first, or wait for its end")
    if (yield from _is_underway(tx, found.root_id, family)):
        where = found.reason if found.status == "moved" else "moved in part"
        raise RunActive(
            f"run {run!r} was {where}, and its destination has not confirmed that it came: until then its bundle can be written "
            f"again. If it came: `holdfast export {found.root_id} --confirm RECEIPT`, with what `holdfast receipt {found.root_id}` "
            "says there"
        )
    if found.parent_id is not None:  # it may be told to go on, and then it starts the same child again
        yield from tx.rows("rename_ends", run=found.parent_id, topic=run, mark=f":{secrets.token_hex(4)}")
    yield from delete_runs(tx, [member for member, _ in family])
    yield from audit.note(tx, run, by, via, "delete", _gone(found, len(family)))
    return len(family)


def _is_underway(tx: Transaction, root: str, family: Iterable[Sequence[Any]]) -> Asking[bool]:
    """Was this run moved, or one of its family, and is it not known that it came? Then what is here of it is the last of it."""
    row = yield from tx.row("run", run=root)
    away = (row is not None and row[3] == "moved") or any(status == "moved" for _, status in family)
    moved = (yield from tx.row("export", run=root)) if away else None
    return moved is not None and moved[4] is None


def _gone(root: RunRow, runs: int) -> dict[str, Any]:
    """Data of the audit's row for a run that is not there any more."""
    return {"agent": root.agent, "status": root.status, "runs": runs}


def _prunable(before: int, statuses: Iterable[str], agent: str | None, labels: dict[str, str] | None) -> dict[str, Any]:
    """Name the runs to be deleted, as the queries take it."""
    wanted = [status for status in statuses if status in FINISHED]
    return {
        "before": before,
        "statuses": to_json(wanted),
        "agent": agent,
        "labels": to_json(labels) if labels else None,
    }


def _prune(tx: Transaction, fits: dict[str, Any], limit: int, spared: set[str], by: str, via: str) -> Asking[int]:
    """Delete up to `limit` old root runs. Those with unfinished descendants are left and added to `spared`."""
    doomed: list[str] = []
    roots = 0
    found = yield from tx.rows("prunable", **fits, limit=limit, spared=to_json(sorted(spared)))
    for (root,) in found:
        family = yield from tx.rows("family", run=root)
        if (
            family
            and all(status in FINISHED for _, status in family)
            and not (yield from _is_underway(tx, root, family))
        ):
            doomed += [member for member, _ in family]
            roots += 1
            gone = RunRow(*(yield from tx.row("run", run=root)))
            yield from audit.note(tx, root, by, via, "prune", _gone(gone, len(family)))
        else:
            spared.add(root)
    yield from delete_runs(tx, doomed)
    yield from tx.rows("forget_rates", micros=tx.now * 1000)
    yield from tx.rows("forget_late_turns")
    return roots


def delete_runs(tx: Transaction, runs: list[str]) -> Asking[None]:
    """Delete runs, and the large values that only they named: after a crash between the two, those would stay for ever."""
    forgotten = yield from keep_shared(tx, runs, secrets.token_hex(4))
    ids = to_json([*runs, *forgotten])
    used = yield from tx.rows("blobs_used", ids=ids)
    digests = {digest for (digest,) in used}
    for (text,) in (yield from tx.rows("blobs_named", ids=ids)):
        digests.update(NAMED_BLOB.findall(text))
    (last,) = yield from tx.row("last_position")
    yield from forget_runs(tx, runs)
    for run in runs:
        yield from tx.rows("delete_run", run=run)
        yield from tx.rows("delete_signals", run=run)
        yield from tx.rows("delete_events", run=run)
        tx.changed(run, News.STOPPED)
    for name in forgotten:
        yield from tx.rows("delete_events", run=name)
    yield from tx.rows("forget_archived", ids=to_json(forgotten))
    if last is not None and (yield from tx.row("last_position"))[0] != last:
        yield from tx.rows("mark_position", position=last)
    if last is not None:
        yield from tx.rows("unmark_positions", position=last)
    yield from delete_blobs(tx, digests)
    yield from delete_parts(tx, [*runs, *forgotten])
