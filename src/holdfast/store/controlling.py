"""Pause and cancel, asked for from outside. Each function is one piece of work in a transaction.

A run that nobody carries is stopped here and now. One that is running has an owner, who alone may write its journal: the
request lies in its inbox, and the owner does it at a safe point. If the owner dies, the next one finds it there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.errors import RunFinished, UnknownRun
from holdfast.model import FINISHED, RunRow
from holdfast.store.appends import end_runs, put_signal
from holdfast.store.base import News, Transition
from holdfast.store.leases import record
from holdfast.store.transaction import Asking, Transaction, to_json


def pause(run: str, by: str, reason: str) -> Callable[[Transaction], Asking[str]]:
    """Stop a run until it is resumed; returns its status: 'running' means that its owner will do it."""

    def work(tx: Transaction) -> Asking[str]:
        found = yield from _existing(tx, run)
        if found.status in FINISHED:
            raise RunFinished(f"run {run!r} is {found.status} and cannot be paused")
        if found.status == "paused":
            return "paused"
        data = {"by": by, "reason": reason}
        if found.status == "running":
            known = yield from tx.row("signal_position", run=run, signal_id=f"pause:{found.lease_epoch}")
            if known is not None:
                return "running"
            yield from put_signal(tx, run, f"pause:{found.lease_epoch}", "run.pausing", "", None, data)
        else:
            yield from _halt(tx, found, "paused", "run.paused", data, told(by, reason, "paused"))
        yield from tx.rows("insert_audit", run=run, actor=by, action="pause", data=to_json(data))
        return "running" if found.status == "running" else "paused"

    return work


def cancel(run: str, by: str, reason: str, grace_ms: int, request: str) -> Callable[[Transaction], Asking[str]]:
    """Ask a run to stop and tidy up; a second request, or one to a run that never began, ends it. Returns its status."""

    def work(tx: Transaction) -> Asking[str]:
        found = yield from _existing(tx, run)
        if found.status == "cancelled":
            return "cancelled"
        if found.status in FINISHED:
            raise RunFinished(f"run {run!r} is {found.status} and cannot be cancelled")
        if (yield from tx.row("signal_position", run=run, signal_id=request)) is not None:
            return found.status  # our own, whose commit was unknown
        (before,) = yield from tx.row("count_signals", run=run, kind="run.cancelling")
        data = {"by": by, "reason": reason, "until": tx.now + grace_ms}
        if found.status != "running" and (before or found.lease_epoch == 0):
            yield from _cancel_family(tx, found, data, request)
            yield from _halt(tx, found, "cancelled", "run.cancelled", data, told(by, reason, "cancelled"))
            status = "cancelled"
        else:
            yield from _ask_to_stop(tx, run, data, request)
            status = found.status
        yield from tx.rows("insert_audit", run=run, actor=by, action="cancel", data=to_json(data))
        return status

    return work


def told(by: str, reason: str, what: str) -> str:
    """The reason as the row keeps it."""
    return f"{what} by {by}" + (f": {reason}" if reason else "")


def _existing(tx: Transaction, run: str) -> Asking[RunRow]:
    row = yield from tx.row("run", run=run)
    if row is None:
        raise UnknownRun(f"there is no run {run!r}")
    return RunRow(*row)


def _ask_to_stop(tx: Transaction, run: str, data: dict[str, Any], request: str) -> Asking[None]:
    yield from put_signal(tx, run, request, "run.cancelling", "", None, data)
    yield from tx.rows("rouse", run=run)


def _cancel_family(tx: Transaction, found: RunRow, data: dict[str, Any], request: str) -> Asking[None]:
    """A run that is ended without its code has nobody else to tell its children."""
    family = yield from tx.rows("family", run=found.id)
    for member, status in sorted(family):
        if member != found.id and status not in FINISHED:
            yield from _ask_to_stop(tx, member, data | {"by": f"run {found.id}"}, request)


def _halt(tx: Transaction, found: RunRow, status: str, kind: str, data: dict[str, Any], reason: str) -> Asking[None]:
    """Stop a run that has no owner, with the one event that says so."""
    finished_at = tx.now if status in FINISHED else None
    yield from tx.rows("halt", run=found.id, status=status, reason=reason, finished_at=finished_at, seq=found.next_seq,
                       epoch=found.lease_epoch)  # fmt: skip
    yield from record(tx, found.id, found.next_seq, found.lease_epoch, kind, data)
    if status in FINISHED:
        transition = Transition(status, reason=reason)
        yield from end_runs(tx, [(found.id, found.lease_epoch, found.parent_id, transition)])
    tx.changed(found.id, News.MOVED)
