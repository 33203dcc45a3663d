"""Pause and cancel, asked for from outside. Each function is one piece of work in a transaction.

A run that nobody carries is stopped here and now. One that is running has an owner, who alone may write its journal: the
request lies in its inbox, and the owner does it at a safe point. If the owner dies, the next one finds it there.

Each request has an id of its own, so that one whose commit was unknown is made once, with one row in the audit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.errors import RunActive, RunFinished, UnknownRun
from holdfast.model import CRASHES_PAUSED, FINISHED, RunRow
from holdfast.store import audit
from holdfast.store.admission import freed
from holdfast.store.appends import end_runs
from holdfast.store.base import News, Transition
from holdfast.store.leases import record
from holdfast.store.signals import put_signal
from holdfast.store.transaction import Asking, Conflict, Transaction


def pause(run: str, by: str, reason: str, request: str, via: str) -> Callable[[Transaction], Asking[str]]:
    """Stop a run until it is resumed; returns its status: 'running' means that its owner will do it."""

    def work(tx: Transaction) -> Asking[str]:
        found = yield from _existing(tx, run)
        if (yield from tx.row("signal_position", run=run, signal_id=request)) is not None:
            return found.status  # our own, whose commit was unknown
        if found.status in FINISHED:
            raise RunFinished(f"run {run!r} is {found.status} and cannot be paused")
        if found.status == "paused":
            return "paused"
        if (yield from _asked_to_stop(tx, run)):
            raise RunActive(f"run {run!r} was told to stop and cannot be paused; cancel it again to end it at once")
        data = {"by": by, "reason": reason}
        if found.status == "running":
            yield from put_signal(tx, run, request, "run.pausing", "", None, data)
        else:
            yield from _halt(tx, found, "paused", "run.paused", data, told(by, reason, "paused"))
        yield from audit.note(tx, run, by, via, "pause", data)
        return "running" if found.status == "running" else "paused"

    return work


def cancel(
    run: str, by: str, reason: str, grace_ms: int, request: str, insist: bool, via: str
) -> Callable[[Transaction], Asking[str]]:
    """Ask a run to stop and tidy up; a second request, or one to a run that cannot tidy up, ends it. Returns its status.

    Without `insist` a run that was asked before is left alone: what a parent passes on to its children is no second request.
    """

    def work(tx: Transaction) -> Asking[str]:
        found = yield from _existing(tx, run)
        if found.status == "cancelled":
            return "cancelled"
        if found.status in FINISHED:
            raise RunFinished(f"run {run!r} is {found.status} and cannot be cancelled")
        if (yield from tx.row("signal_position", run=run, signal_id=request)) is not None:
            return found.status  # our own, whose commit was unknown
        before = yield from _asked_to_stop(tx, run)
        if before and not insist:
            return found.status
        data = {"by": by, "reason": reason, "until": tx.now + grace_ms}
        hopeless = found.lease_epoch == 0 or (found.status == "paused" and found.crash_count >= CRASHES_PAUSED)
        if _is_carried(tx, found) or not (before or hopeless):
            yield from _ask_to_stop(tx, run, data, request)
            status = found.status
        else:
            yield from _end_family(tx, found, data, request)
            status = "cancelled"
        yield from audit.note(tx, run, by, via, "cancel", data)
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


def _asked_to_stop(tx: Transaction, run: str) -> Asking[bool]:
    (before,) = yield from tx.row("count_signals", run=run, kind="run.cancelling")
    return bool(before)


def _is_carried(tx: Transaction, found: RunRow) -> bool:
    """Does a worker have it? One whose lease is over may be dead; if it is not, it is fenced off."""
    return found.status == "running" and found.due_at is not None and found.due_at > tx.now


def _ask_to_stop(tx: Transaction, run: str, data: dict[str, Any], request: str) -> Asking[None]:
    yield from put_signal(tx, run, request, "run.cancelling", "", None, data)
    yield from tx.rows("rouse", run=run)


def _end_family(tx: Transaction, found: RunRow, data: dict[str, Any], request: str) -> Asking[None]:
    """End a run without its code, which has nobody else to tell its children: those that nobody carries end with it."""
    family = yield from tx.rows("family", run=found.id)
    for member, status in sorted(family, reverse=True):  # a child's id begins with its parent's, so children come first
        if member == found.id or status in FINISHED:
            continue
        child = yield from _existing(tx, member)
        passed = data | {"by": f"run {found.id}"}
        if _is_carried(tx, child):
            yield from _ask_to_stop(tx, member, passed, request)
        else:
            yield from _halt(
                tx, child, "cancelled", "run.cancelled", passed, told(passed["by"], data["reason"], "cancelled")
            )
        yield from audit.note(tx, member, passed["by"], "run", "cancel", passed)
    yield from _halt(tx, found, "cancelled", "run.cancelled", data, told(data["by"], data["reason"], "cancelled"))


def _halt(tx: Transaction, found: RunRow, status: str, kind: str, data: dict[str, Any], reason: str) -> Asking[None]:
    """Stop a run that nobody carries, with the one event that says so."""
    finished_at = tx.now if status in FINISHED else None
    halted = yield from tx.row("halt", run=found.id, status=status, reason=reason, finished_at=finished_at,
                               seq=found.next_seq, epoch=found.lease_epoch)  # fmt: skip
    if halted is None:
        raise Conflict(f"run {found.id!r} has moved on since it was looked at")
    yield from record(tx, found.id, found.next_seq, found.lease_epoch, kind, data)
    if status in FINISHED:
        transition = Transition(status, reason=reason)
        yield from end_runs(tx, [(found.id, found.lease_epoch, found.parent_id, transition)])
    if found.status == "running":
        yield from freed(tx, [found.limit_key])
    tx.changed(found.id, News.STOPPED)
