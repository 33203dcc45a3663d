"""Single statements for what is written often and alone: its own transaction, and one round trip instead of five.

Each function asks one thing and returns its outcome, or `None`: then nothing was written, and the whole piece of work, in
a transaction, finds out why. Nothing else differs, so whatever is unknown after a cut connection is found as always.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.errors import HoldfastError
from holdfast.store.approvals import Decide, count, what_changes
from holdfast.store.budgets import BUDGET
from holdfast.store.changes import News
from holdfast.store.inbox import MOST, Send, Take, Taken, wake_token
from holdfast.store.leases import Claim
from holdfast.store.runs import Create, insert_run
from holdfast.store.work import Asking, Transaction, to_json
from holdfast.words.model import ApprovalRow, Claimed, Event, RunRow
from holdfast.words.people import LINK

SHORT: Final = 50  # events: a journal up to this length is read by the claim itself


def claim(tx: Transaction, work: Claim) -> Asking[list[Claimed] | None]:
    """Take what is due and needs no slot, no turn and no event."""
    limit = 1 if work.alone else work.limit
    soon = tx.now + work.early_ms
    rows = yield from tx.rows("claim_plain", limit=limit, soon=soon, ttl=work.ttl_ms, claim=work.name,
                              short=SHORT, **work.ours)  # fmt: skip
    due, needing, *_ = rows[0]
    if needing:
        return None
    claimed = []
    for row in rows if due else ():
        run = Claimed(*row[5:-2])
        run.silent = row[-2]
        if run.next_seq - (run.checkpoint_seq or 0) <= SHORT:
            run.journal = [
                Event(seq, kind, key, json.loads(data or "{}"), value, blob, at, epoch, run.id)
                for seq, kind, key, data, value, blob, at, epoch in json.loads(row[-1] or "[]")
            ]
            if run.next_seq and (not run.journal or run.journal[0].seq > (run.checkpoint_seq or 0)):
                run.journal = None  # perhaps it is a fork, and has the first of it from another run
        claimed.append(run)
        tx.changed(run.id, News.MOVED)
    return claimed


def send(tx: Transaction, work: Send) -> Asking[int | None]:
    """Put a small signal that was not sent before into the inbox of a run that takes it."""
    if work.blobs:
        return None
    found = yield from tx.row(
        "send_plain", run=work.run, signal_id=work.signal_id, kind=work.kind, topic=work.topic, value=work.value,
        data=to_json(work.data) if work.data else None, token=wake_token(work.kind, work.topic), actor=work.by, via=work.via,
    )  # fmt: skip
    if found is None:
        return None
    tx.changed(work.run, News.DUE)
    return int(found[0])


def send_many(tx: Transaction, works: Sequence[Send]) -> Asking[list[int | None]]:
    """Put small signals into inboxes in their order; None for a signal that came before, or whose run takes none."""
    rows = yield from tx.rows(
        "send_many", run=[work.run for work in works], signal_id=[work.signal_id for work in works],
        kind=[work.kind for work in works], topic=[work.topic for work in works], value=[work.value for work in works],
        data=[to_json(work.data) if work.data else None for work in works],
        token=[wake_token(work.kind, work.topic) for work in works], actor=[work.by for work in works],
        via=[work.via for work in works],
    )  # fmt: skip
    places = {(run, signal_id): position for run, signal_id, position in rows}
    for run in {run for run, _ in places}:
        tx.changed(run, News.DUE)
    return [places.pop((work.run, work.signal_id), None) for work in works]


def create(tx: Transaction, work: Create) -> Asking[tuple[RunRow, bool] | None]:
    """Create a run with small arguments that is not there."""
    if work.blobs:
        return None
    if work.by:
        noted = {"actor": work.by, "via": work.via, "told": to_json(work.noted)}
        row = yield from insert_run(tx, work.run, "start_plain", **noted)
    else:
        row = yield from insert_run(tx, work.run)
    if row is not None and work.counted:
        tx.took(work.counted)
    return None if row is None else (RunRow(*row), True)


def decide(tx: Transaction, work: Decide) -> Asking[ApprovalRow | None]:
    """Count a decision, or a vote, on a question that is as it was known a moment ago."""
    known = work.known
    if known is None or known.status != "open" or work.blobs or known.key == BUDGET or work.ballot.via.startswith(LINK):
        return None  # a ballot that comes by a link uses the link up
    try:
        said = count(tx.now, known, work.ballot)
    except HoldfastError:
        return None  # perhaps it is so no longer: then it is refused by what is the case
    token, data = wake_token(said.kind, known.id), to_json(said.data)
    row = yield from tx.row(
        "decide_plain", run=known.run_id, status_before=known.status, votes_before=known.votes,
        passed_before=known.delegations, digest_before=known.digest, needs_before=known.needs, token=token,
        signal_id=said.signal_id, kind=said.kind, value=said.value, told=data, actor=said.by,
        via=said.via, about=said.about, action=said.action, **what_changes(said.row),
    )  # fmt: skip
    if row is None:
        return None
    tx.changed(known.run_id, News.DUE)
    return said.row  # nothing else of a question ever changes


def take(tx: Transaction, work: Take) -> Asking[Taken]:
    """Take the signals of a run, if all are simple; a fence that does not hold is found by what its owner does next."""
    rows = yield from tx.rows("take_plain", run=work.run, epoch=work.epoch, expected=work.seq, inbox_seen=work.seen,
                              limit=MOST)  # fmt: skip
    events = [work.event(seq, kind, data, value, tx.now) for _, seq, kind, data, value in rows if seq is not None]
    if events:
        tx.changed(work.run)
    return Taken(events, more=len(events) < rows[0][0])


PLAIN: Final[Mapping[type, Callable[[Transaction, Any], Asking[Any]]]] = {
    Claim: claim, Send: send, Create: create, Decide: decide, Take: take,
}  # fmt: skip
# These spare round trips in a transaction with others too: what they find there is what the whole work would find.
IN_COMPANY: Final[Mapping[type, Callable[[Transaction, Any], Asking[Any]]]] = {Send: send, Create: create}
