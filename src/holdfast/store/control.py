"""Pause and cancel, asked for from outside. Each function is one piece of work in a transaction.

A run that nobody carries is stopped here and now. One that is running has an owner, who alone may write its journal: the
request lies in its inbox, and the owner does it at a safe point. If the owner dies, the next one finds it there.

Each request has an id of its own, so that one whose commit was unknown is made once, with one row in the audit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from holdfast.errors import RunActive, RunFinished
from holdfast.store import audit
from holdfast.store.families import above, asked_to_stop, below, end_family, existing, pause_member
from holdfast.store.inbox import put_signal
from holdfast.store.transaction import Asking, Transaction
from holdfast.words.model import CRASHES_PAUSED, FINISHED, RunRow


def pause(
    run: str, by: str, reason: str, request: str, via: str, family: bool, now: bool, whole: bool
) -> Callable[[Transaction], Asking[str | None]]:
    """Stop a run and its family until it is resumed; returns its status: 'running' means that its owner will do it.

    None: others are to be paused with it, whose rows may be locked only by a transaction that does nothing else (`whole`).
    """

    def work(tx: Transaction) -> Asking[str | None]:
        yield from tx.rows("hold_run", run=run)
        found = yield from existing(tx, run)
        if (yield from tx.row("signal_position", run=run, signal_id=request)) is not None:
            return found.status  # our own, whose commit was unknown
        if found.status in FINISHED:
            raise RunFinished(f"run {run!r} is {found.status} and cannot be paused")
        if (yield from asked_to_stop(tx, run)):
            raise RunActive(f"run {run!r} was told to stop and cannot be paused; cancel it again to end it at once")
        takes_others = family and (yield from tx.row("has_children", run=run)) is not None
        if takes_others and not whole:
            return None
        members = [(0, found), *((yield from below(tx, run)) if takes_others else ())]
        for depth, member in members:
            data = {"by": by, "reason": reason, "request": request, "depth": depth, "family": family, "now": now}
            if depth and (yield from asked_to_stop(tx, member.id)):
                continue
            if (yield from pause_member(tx, member, data)):
                noted = {"by": by, "reason": reason} | ({"with": run} if depth else {}) | ({"now": True} if now else {})
                yield from audit.note(tx, member.id, by, via, "pause", noted)
        return "running" if found.status == "running" else "paused"

    return work


def cancel(
    run: str, by: str, reason: str, grace_ms: int, request: str, insist: bool, via: str, whole: bool
) -> Callable[[Transaction], Asking[str | None]]:
    """Ask a run to stop and tidy up; a second request, or one to a run that cannot tidy up, ends it. Returns its status.

    A third one ends it also if its worker does not, as when it hangs: then that worker is fenced off.

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
        # Who has it ends it at the second request; if that did not happen, it is ended without who has it.
        carried = _is_carried(tx, found) and before < 2
        if carried or not (before or hopeless):
            yield from _ask_to_stop(tx, run, data, request)
            status = found.status
        elif not whole and (found.lease_epoch > 0 or found.parent_id is not None):
            return None
        else:
            ended = data
            if not reason:  # a second request that says nothing does not unsay what the first one said
                said = [json.loads(each) for (each,) in (yield from tx.rows("reasons_to_stop", run=run))]
                ended = {**data, "reason": next((each["reason"] for each in said if each["reason"]), "")}
            yield from end_family(tx, found, ended)
            status = "cancelled"
        yield from audit.note(tx, run, by, via, "cancel", data)  # what this one said
        return status

    return work


def _is_carried(tx: Transaction, found: RunRow) -> bool:
    """Does a worker have it? One whose lease is over may be dead; if it is not, it is fenced off."""
    return found.status == "running" and found.due_at is not None and found.due_at > tx.now


def _ask_to_stop(tx: Transaction, run: str, data: dict[str, Any], request: str) -> Asking[None]:
    yield from tx.rows("forgive", run=run)  # it does not pause any more, nor do the children it starts
    yield from put_signal(tx, run, request, "run.cancelling", "", None, data)
    yield from tx.rows("rouse", run=run)
