"""Families: a run and all below it, in one transaction.

A run that was cancelled ends together with all below it. The transaction that ends it ends every unfinished run of its
family, whoever carries it: the epoch moves on, so an owner that has not heard of it can write nothing more, and start no
child either. Nobody else makes one, because children are created by their parent's own appends. So below a cancelled run
there is never an unfinished one, and none can come: a failed run below it cannot be retried.

That is the last resort. An owner that was asked to stop tells the runs below it, and waits for their ends, before it ends.

Lock order on PostgreSQL: the run first, then all below it in the order of their ids (`below`). A run that is locked cannot
start a child, so it is looked again until no new one is found.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from holdfast.errors import UnknownRun
from holdfast.model import FINISHED, RunRow
from holdfast.store import audit
from holdfast.store.admission import freed
from holdfast.store.base import News, Transition
from holdfast.store.conversing import leave_all
from holdfast.store.leases import record
from holdfast.store.signals import put_signal
from holdfast.store.transaction import Asking, Conflict, Transaction, to_json


def existing(tx: Transaction, run: str) -> Asking[RunRow]:
    """The run, or `UnknownRun`."""
    row = yield from tx.row("run", run=run)
    if row is None:
        raise UnknownRun(f"there is no run {run!r}")
    return RunRow(*row)


def asked_to_stop(tx: Transaction, run: str) -> Asking[bool]:
    """Was the run ever cancelled?"""
    (before,) = yield from tx.row("count_signals", run=run, kind="run.cancelling")
    return bool(before)


def below(tx: Transaction, run: str) -> Asking[list[tuple[int, RunRow]]]:
    """All unfinished runs below this one, with how far below; they are locked, as the run itself must be."""
    known: set[str] = set()
    while True:
        found = [(depth, RunRow(*row)) for depth, *row in (yield from tx.rows("below", run=run))]
        members = {row.id for _, row in found}
        if members <= known:
            return found
        known = members  # while these were locked their owners may have started children: look again


def told(by: str, reason: str, what: str) -> str:
    """The reason as the row keeps it."""
    return f"{what} by {by}" + (f": {reason}" if reason else "")


def halt(tx: Transaction, found: RunRow, status: str, kind: str, data: dict[str, Any]) -> Asking[None]:
    """Stop a run without its owner, if it has one, with the one event that says so."""
    finished_at = tx.now if status in FINISHED else None
    reason = told(data["by"], data["reason"], status)
    halted = yield from tx.row("halt", run=found.id, status=status, reason=reason, finished_at=finished_at,
                               seq=found.next_seq, epoch=found.lease_epoch)  # fmt: skip
    if halted is None:
        raise Conflict(f"run {found.id!r} has moved on since it was looked at")
    yield from record(tx, found.id, found.next_seq, found.lease_epoch, kind, data)
    tx.changed(found.id, News.STOPPED)


def end_family(tx: Transaction, found: RunRow, data: dict[str, Any]) -> Asking[None]:
    """End a run without its code, and all below it."""
    yield from halt(tx, found, "cancelled", "run.cancelled", data)
    transition = Transition("cancelled", ends_below=data["reason"])
    yield from end_runs(tx, [(found.id, found.lease_epoch, found.parent_id, transition)])
    if found.status == "running":
        yield from freed(tx, [found.limit_key])


def end_if_asked(tx: Transaction, run: str) -> Asking[None]:
    """A run whose code cannot go on is paused, unless it was asked to stop: nobody could tidy up, so it ends."""
    if (yield from asked_to_stop(tx, run)):
        found = yield from existing(tx, run)
        data = {"by": f"run {run}", "reason": "it was told to stop, and its code cannot go on"}
        yield from end_family(tx, found, data)
        yield from audit.note(tx, run, data["by"], "run", "cancel", data)


def end_runs(tx: Transaction, ended: Sequence[tuple[str, int, str | None, Transition]]) -> Asking[None]:
    """What the end of runs (id, epoch, parent) brings: questions are withdrawn, conversations left, the parents told."""
    over: list[str] = []
    for run, _, _, transition in ended:
        over.append(run)
        if transition.ends_below is not None:
            over += yield from _end_below(tx, run, transition.ends_below)
    yield from tx.rows("withdraw", ids=to_json(over))
    yield from leave_all(tx, over)
    for run, epoch, parent, transition in ended:
        if parent is not None:
            data = {"child": run, "status": transition.status, "error": _error_record(transition.error)}
            # The epoch is part of the id: a child that failed and was retried ends a second time.
            signal = (f"child:{run}:{epoch}", "child.ended", run, transition.result, data)
            if (yield from put_signal(tx, parent, *signal)) is None:
                # The parent has ended. One above it that was asked to stop waits for this run too.
                for (above,) in (yield from tx.rows("stopping_above", run=parent)):
                    yield from put_signal(tx, above, *signal)


def _end_below(tx: Transaction, run: str, reason: str) -> Asking[list[str]]:
    """End all below a run that has just ended; returns who that was."""
    members = yield from below(tx, run)
    data = {"by": f"run {run}", "reason": reason}
    for _, member in members:
        yield from halt(tx, member, "cancelled", "run.cancelled", data)
        yield from audit.note(tx, member.id, data["by"], "run", "cancel", data)
    yield from freed(tx, [member.limit_key for _, member in members if member.status == "running"])
    return [member.id for _, member in members]


def above(tx: Transaction, run: str) -> Asking[str | None]:
    """Lock a run and all above it; returns the one above it that was cancelled, if one was."""
    line = yield from tx.rows("above", run=run)
    return next((member for member, status in line if status == "cancelled" and member != run), None)


def _error_record(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return {"message": text}
