"""Pause and cancel, asked for from outside. Each function is one piece of work in a transaction.

A run that nobody carries is stopped here and now. One that is running has an owner, who alone may write its journal: the
request lies in its inbox, and the owner does it at a safe point. If the owner dies, the next one finds it there.

Each request has an id of its own, so that one whose commit was unknown is made once, with one row in the audit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.errors import RunActive, RunFinished
from holdfast.model import CRASHES_PAUSED, FINISHED, RunRow
from holdfast.store import audit
from holdfast.store.families import above, asked_to_stop, end_family, existing, halt
from holdfast.store.signals import put_signal
from holdfast.store.transaction import Asking, Transaction


def pause(run: str, by: str, reason: str, request: str, via: str) -> Callable[[Transaction], Asking[str]]:
    """Stop a run until it is resumed; returns its status: 'running' means that its owner will do it."""

    def work(tx: Transaction) -> Asking[str]:
        found = yield from existing(tx, run)
        if (yield from tx.row("signal_position", run=run, signal_id=request)) is not None:
            return found.status  # our own, whose commit was unknown
        if found.status in FINISHED:
            raise RunFinished(f"run {run!r} is {found.status} and cannot be paused")
        if found.status == "paused":
            return "paused"
        if (yield from asked_to_stop(tx, run)):
            raise RunActive(f"run {run!r} was told to stop and cannot be paused; cancel it again to end it at once")
        data = {"by": by, "reason": reason}
        if found.status == "running":
            yield from put_signal(tx, run, request, "run.pausing", "", None, data)
        else:
            yield from halt(tx, found, "paused", "run.paused", data)
        yield from audit.note(tx, run, by, via, "pause", data)
        return "running" if found.status == "running" else "paused"

    return work


def cancel(
    run: str, by: str, reason: str, grace_ms: int, request: str, insist: bool, via: str, whole: bool
) -> Callable[[Transaction], Asking[str | None]]:
    """Ask a run to stop and tidy up; a second request, or one to a run that cannot tidy up, ends it. Returns its status.

    Without `insist` a run that was asked before is left alone: what a parent passes on to its children is no second request.
    None: it is to be ended with others, whose rows may be locked only by a transaction that does nothing else (`whole`).
    """

    def work(tx: Transaction) -> Asking[str | None]:
        if whole:
            yield from above(tx, run)  # locked first: its parent is told
        found = yield from existing(tx, run)
        if found.status == "cancelled":
            return "cancelled"
        if found.status in FINISHED:
            raise RunFinished(f"run {run!r} is {found.status} and cannot be cancelled")
        if (yield from tx.row("signal_position", run=run, signal_id=request)) is not None:
            return found.status  # our own, whose commit was unknown
        before = yield from asked_to_stop(tx, run)
        if before and not insist:
            return found.status
        data = {"by": by, "reason": reason, "until": tx.now + grace_ms}
        hopeless = found.lease_epoch == 0 or (found.status == "paused" and found.crash_count >= CRASHES_PAUSED)
        if _is_carried(tx, found) or not (before or hopeless):
            yield from _ask_to_stop(tx, run, data, request)
            status = found.status
        elif not whole and (found.lease_epoch > 0 or found.parent_id is not None):
            return None
        else:
            yield from end_family(tx, found, data)
            status = "cancelled"
        yield from audit.note(tx, run, by, via, "cancel", data)
        return status

    return work


def _is_carried(tx: Transaction, found: RunRow) -> bool:
    """Does a worker have it? One whose lease is over may be dead; if it is not, it is fenced off."""
    return found.status == "running" and found.due_at is not None and found.due_at > tx.now


def _ask_to_stop(tx: Transaction, run: str, data: dict[str, Any], request: str) -> Asking[None]:
    yield from put_signal(tx, run, request, "run.cancelling", "", None, data)
    yield from tx.rows("rouse", run=run)
