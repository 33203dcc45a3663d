"""Families: a run and all below it, changed in one transaction.

A run that was cancelled ends together with all below it. The transaction that ends it ends every unfinished run of its
family, whichever worker carries it: the epoch moves on, so an owner that has not heard of it can write nothing more, and start no
child either. Nobody else makes one, because children are created by their parent's own appends. So below a cancelled run
there is never an unfinished one, and none can come: a failed run below it cannot be retried.

That is the last resort. An owner that was asked to stop tells the runs below it, and waits for their ends, before it ends.

A pause takes the family too, and so does the resume that undoes it. Each paused run keeps the name of the request that holds it
in the event that says so (`run.paused`), with how far above it that was made; the nearest request holds. A resume lets those go
on that the requests hold which held the run itself: a run that was paused by a nearer request, or by the engine, stays paused. A
running member has an owner, which is asked by a signal. A child that such an owner starts before it has seen the request is
paused in the transaction that creates it (`hold_child`).

Lock order on PostgreSQL: the run first, then all below it in the order of their ids (`below`). A run that is locked cannot
start a child, so it is looked again until no new one is found.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from holdfast.store import audit
from holdfast.store.changes import News
from holdfast.store.conversations import leave_all
from holdfast.store.inbox import put_signal
from holdfast.store.limits import freed
from holdfast.store.runs import existing
from holdfast.store.work import Asking, Conflict, Transaction, to_json
from holdfast.words.model import FINISHED, RunRow

FAR: Final = 1_000_000  # the depth of a request to pause to which every other one is nearer


class End(NamedTuple):
    """A run that has just ended, and how."""

    run: str
    epoch: int
    parent: str | None
    status: str
    result: str | None = None
    error: str | None = None
    ends_below: str | None = None  # why all below it end with it; None: they go on


def asked_to_stop(tx: Transaction, run: str) -> Asking[int]:
    """Count how often the run was cancelled."""
    (before,) = yield from tx.row("count_signals", run=run, kind="run.cancelling")
    return int(before)


def below(tx: Transaction, run: str) -> Asking[list[tuple[int, RunRow]]]:
    """Lock all unfinished runs below this one, as the run itself must be; returns them, with how far below."""
    known: set[str] = set()
    while True:
        found = [(depth, RunRow(*row)) for depth, *row in (yield from tx.rows("below", run=run))]
        members = {row.id for _, row in found}
        if members <= known:
            return found
        known = members  # while these were locked their owners may have started children: look again


def told(by: str, reason: str, what: str) -> str:
    """Word the reason as the row keeps it."""
    return f"{what} by {by or 'somebody'}" + (f": {reason}" if reason else "")


def halt(
    tx: Transaction, found: RunRow, status: str, kind: str, data: dict[str, Any], reason: str | None = None
) -> Asking[None]:
    """Stop a run without its owner, if it has one, with the one event that says so."""
    finished_at = tx.now if status in FINISHED else None
    reason = reason or told(data["by"], data["reason"], status)
    halted = yield from tx.row("halt", run=found.id, status=status, reason=reason, finished_at=finished_at,
                               seq=found.next_seq, epoch=found.lease_epoch)  # fmt: skip
    if halted is None:
        raise Conflict(f"run {found.id!r} has moved on since it was looked at")
    yield from tx.record(found.id, found.next_seq, found.lease_epoch, kind, data)
    tx.changed(found.id, News.STOPPED)


def end_family(tx: Transaction, found: RunRow, data: dict[str, Any]) -> Asking[None]:
    """End a run without its code, and all below it."""
    yield from halt(tx, found, "cancelled", "run.cancelled", data)
    yield from end_runs(tx, [End(found.id, found.lease_epoch, found.parent_id, "cancelled", ends_below=data["reason"])])
    if found.status == "running":
        yield from freed(tx, [found.limit_key])


def end_if_asked(tx: Transaction, run: str) -> Asking[None]:
    """End a run that was paused because its code cannot go on, if it was asked to stop: nobody could tidy up."""
    if (yield from asked_to_stop(tx, run)):
        found = yield from existing(tx, run)
        data = {"by": f"run {run}", "reason": "it was told to stop, and its code cannot go on"}
        yield from end_family(tx, found, data)
        yield from audit.note(tx, run, data["by"], "run", "cancel", data)


def end_runs(tx: Transaction, ends: Sequence[End]) -> Asking[None]:
    """Do what the end of runs brings: withdraw their questions, leave their conversations, tell their parents."""
    over: list[str] = []
    for end in ends:
        over.append(end.run)
        if end.ends_below is not None:
            over += yield from _end_below(tx, end.run, end.ends_below)
    yield from tx.rows("withdraw", ids=to_json(over))
    yield from leave_all(tx, over)
    for end in ends:
        if end.parent is not None:
            data = {"child": end.run, "status": end.status, "error": _error_record(end.error)}
            # The epoch is part of the id: a child that failed and was retried ends a second time.
            signal = (f"child:{end.run}:{end.epoch}", "child.ended", end.run, end.result, data)
            if (yield from put_signal(tx, end.parent, *signal)) is None:
                # The parent has ended. One above it that was asked to stop waits for this run too.
                for (above,) in (yield from tx.rows("stopping_above", run=end.parent)):
                    yield from put_signal(tx, above, *signal)


def _end_below(tx: Transaction, run: str, reason: str) -> Asking[list[str]]:
    """End all below a run that has just ended; returns their ids."""
    members = yield from below(tx, run)
    data = {"by": f"run {run}", "reason": reason}
    for _, member in members:
        yield from halt(tx, member, "cancelled", "run.cancelled", data)
        yield from audit.note(tx, member.id, data["by"], "run", "cancel", data)
    yield from freed(tx, [member.limit_key for _, member in members if member.status == "running"])
    return [member.id for _, member in members]


def pause_member(tx: Transaction, found: RunRow, data: dict[str, Any]) -> Asking[bool]:
    """Pause a run or ask its owner to; False if something nearer holds it already."""
    if found.status == "running":
        if (yield from tx.row("signal_position", run=found.id, signal_id=data["request"])) is not None:
            return False
        yield from put_signal(tx, found.id, data["request"], "run.pausing", "", None, data)
        return True
    reason = None
    if found.status == "paused":
        held = yield from _held_by(tx, found)
        if held is None:
            if data["depth"] > 0:
                return False
            reason = found.reason  # by the engine, which says what is wrong
        elif held.get("request") == data["request"] or held.get("depth", 0) < data["depth"]:
            return False
        elif not data["reason"]:
            reason = found.reason  # a request that gives none takes none away
    yield from halt(tx, found, "paused", "run.paused", data, reason)
    return True


def hold_child(tx: Transaction, parent: str, child: RunRow, asked: Sequence[dict[str, Any]]) -> Asking[None]:
    """Pause a new child whose parent's family is being paused: its owner had not seen that, or `asked`, in this very commit."""
    unseen = [json.loads(data) for (_, data) in (yield from tx.rows("unseen_pauses", run=parent))]
    requests = [data for data in (*unseen, *asked) if data.get("family")]
    if requests:
        data = min(requests, key=lambda each: each["depth"])
        yield from halt(tx, child, "paused", "run.paused", data | {"depth": data["depth"] + 1})


def _held_by(tx: Transaction, found: RunRow) -> Asking[dict[str, Any] | None]:
    """Read the request that holds a paused run from its last event; None if the engine paused it."""
    row = yield from tx.row("paused_by", run=found.id, seq=found.next_seq - 1)
    return None if row is None else json.loads(row[0] or "{}")


def requests_that_hold(tx: Transaction, found: RunRow) -> Asking[set[str]]:
    """Name the requests to pause that hold a run, or will when its owner has come so far."""
    held = (yield from _held_by(tx, found)) if found.status == "paused" else None
    if held is not None:
        return {held["request"]} if "request" in held else set()
    asked = [json.loads(data) for (_, data) in (yield from tx.rows("unseen_pauses", run=found.id))]
    for kind, data in (yield from tx.rows("pauses", run=found.id)):
        if kind != "run.pausing":
            break
        asked.append(json.loads(data or "{}"))
    return {data["request"] for data in asked if "request" in data}


def go_on(tx: Transaction, found: RunRow, by: str) -> Asking[None]:
    """Make a paused run ready again."""
    yield from tx.rows("resume", run=found.id, status=found.status, seq=found.next_seq)
    yield from tx.rows("forgive", run=found.id)
    yield from tx.record(found.id, found.next_seq, found.lease_epoch, "run.resumed", {"by": by, "cut": None})
    tx.changed(found.id, News.DUE)


def call_off(tx: Transaction, found: RunRow, requests: set[str], by: str, mark: str) -> Asking[None]:
    """Call off requests to pause before their run was paused: those its owner has not seen, and those it is about to do."""
    for position, data in (yield from tx.rows("unseen_pauses", run=found.id)):
        if json.loads(data).get("request") in requests:
            yield from tx.rows("forgive_one", run=found.id, position=position)
    signal = f"resume:{mark}"
    if (yield from tx.row("signal_position", run=found.id, signal_id=signal)) is None:
        data = {"by": by, "requests": sorted(requests)}
        yield from put_signal(tx, found.id, signal, "run.resumed", "", None, data)


def resume_below(tx: Transaction, run: str, requests: set[str], by: str, mark: str) -> Asking[list[str]]:
    """Let all below a run go on that these requests hold; returns their ids."""
    resumed = []
    for _, member in (yield from below(tx, run)) if requests else ():
        if member.status == "paused":
            held = yield from _held_by(tx, member)
            if held is None or held.get("request") not in requests:
                continue
            yield from go_on(tx, member, by)
            resumed.append(member.id)
        elif member.status in ("running", "ready") and member.lease_epoch > 0:
            yield from call_off(tx, member, requests, by, mark)
    return resumed


def above(tx: Transaction, run: str) -> Asking[str | None]:
    """Lock a run and all above it; returns the one above it that was cancelled, if one was."""
    line = yield from tx.rows("above", run=run)
    return next((member for member, status in line if status == "cancelled" and member != run), None)


def _error_record(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return {"message": text}
