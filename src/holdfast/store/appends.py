"""Appends: what the owner of a run writes. Many of them, of many runs, go out in few statements.

Appends of one run that follow each other are merged, then come, for the whole batch: one `reserve` per run (or `leave`,
if the lease ends), what must be stored with the events, one `record` per event. Nothing here uses a savepoint. If any
row is not as its writer expects, `Refused` says so and the caller rolls everything back; it then offers each append by
itself (`apply_one`), which finds out what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.errors import BadArguments, LeaseLost
from holdfast.store.announcements import Announcing
from holdfast.store.approvals import NewApproval, ask
from holdfast.store.blobs import insert_blobs
from holdfast.store.budgets import Spending, spend
from holdfast.store.changes import News
from holdfast.store.conversations import Talking, converse
from holdfast.store.families import End, end_if_asked, end_runs, hold_child
from holdfast.store.forks import born
from holdfast.store.inbox import release
from holdfast.store.limits import freed
from holdfast.store.parts import keep_parts
from holdfast.store.runs import NewRun, insert_run
from holdfast.store.streams import Piece, chunk_row
from holdfast.store.work import Asking, Conflict, Count, Many, Transaction, to_json
from holdfast.words.model import FINISHED, OUTCOMES, TRANSITIONS, Event, RunRow
from holdfast.words.people import writable

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_LEFT: Final = frozenset(TRANSITIONS["running"])

# Called on the loop, once: with the time of the commit, or with why there is none.
Told = Callable[[int, BaseException | None], None]


@dataclass(slots=True)
class Transition:
    """Status in which an append leaves the run: parked, released, paused or finished. The lease ends with it."""

    status: str
    due_at: int | None = None  # for 'waiting'; 'ready' is due at once
    waits_for: str | None = None
    awaits: Sequence[str] | None = None  # topics that may wake it; None: any
    inbox_seen: int | None = None  # refuse to park (InboxMoved) when a signal came after this one
    result: str | None = None
    error: str | None = None
    reason: str | None = None
    ends_below: str | None = None  # why all below the run end with it, in the same transaction; None: they go on

    def __post_init__(self) -> None:
        if self.status == "cancelled" and self.ends_below is None:
            self.ends_below = ""


@dataclass(slots=True)
class Append:
    """A write of the owner of a run, in one piece: events, and what must be stored with them or not at all."""

    run: str
    epoch: int
    expected_seq: int
    events: Sequence[Event] = ()  # their `seq` counts up from expected_seq; the store sets `at`
    blobs: Mapping[str, bytes] | None = None  # digest -> content
    children: Sequence[NewRun] = ()
    approvals: Sequence[NewApproval] = ()
    withdraws: Sequence[str] = ()  # questions that no call waits for any more
    talks: Sequence[Talking] = ()  # what the run does in conversations
    announces: Sequence[Announcing] = ()  # what it publishes, and what it waits for from now on
    pieces: Sequence[Piece] = ()  # what was written to streams since the append before
    inbox_seen: int | None = None  # the last inbox position these events take in
    checkpoint_seq: int | None = None
    releases: tuple[int, int] | None = None  # messages after a position, up to another: the journal has them
    transition: Transition | None = None
    parts: Mapping[str, str] | None = None  # of the inputs that the events tell: digest -> text


class InboxMoved(Exception):
    """The run was not parked: a signal came that its owner has not seen."""


class Refused(Exception):
    """A batch of appends is not accepted as a whole. `runs` are the runs known to be the reason."""

    def __init__(self, runs: Iterable[str] = ()) -> None:
        super().__init__()
        self.runs = frozenset(runs)


class QueuedAppend:
    """An append, prepared on the loop as far as possible: the writer thread should do little under the GIL."""

    __slots__ = ("again", "append", "chunks", "next_seq", "plain", "progress", "rows", "runs", "spendings", "steps",
                 "stored_with", "told")  # fmt: skip
    journal = small = True

    def __init__(self, append: Append, told: Told) -> None:
        self.append, self.told, self.again = append, told, False
        run, epoch, seq = append.run, append.epoch, append.expected_seq
        self.steps = self.progress = 0
        self.spendings: Sequence[Spending] = ()
        self.rows: list[tuple[Any, ...]] = []
        for event in append.events:
            if event.seq != seq:
                raise BadArguments(f"event {event.kind} of run {run!r} has seq {event.seq}, expected {seq}")
            seq += 1
            event.run, event.epoch = run, epoch
            kind = event.kind
            if kind in OUTCOMES:
                self.progress = 1
                if kind == "step.completed":
                    self.steps += 1
            if "spent" in event.data:
                self.spendings = (*self.spendings, Spending.of(event))
            data = to_json(event.data) if event.data else None
            self.rows.append((run, event.seq, kind, event.key, data, event.value, event.blob, epoch))
        self.next_seq = seq
        self.chunks = [chunk_row(run, epoch, piece) for piece in append.pieces] if append.pieces else ()
        self.stored_with = bool(
            append.blobs or append.children or append.approvals or append.withdraws or append.talks or append.announces
            or append.parts or append.releases or self.spendings
        )  # fmt: skip
        about = [new.about for new in append.approvals if new.about] if append.approvals else ()
        # Those it changes beside its own; None: they are not known before.
        self.runs: Sequence[str] | None = about
        self.plain = not (self.stored_with or self.chunks) and append.transition is None  # it only goes on
        if append.transition is not None:
            if append.transition.status not in _LEFT:
                raise BadArguments(f"a running run cannot become {append.transition.status!r}")
            if _takes_others_along(append.transition):
                self.runs = None

    def fence(self, now: int) -> Fence:
        """Parameters of `reserve`, in order."""
        append = self.append
        return [
            self.next_seq, now, self.steps, self.progress, append.checkpoint_seq, append.inbox_seen,
            append.run, append.epoch, append.expected_seq,
        ]  # fmt: skip


def _takes_others_along(transition: Transition) -> bool:
    """May runs below it end with this one?"""
    return transition.ends_below is not None or (transition.status == "paused" and transition.inbox_seen is None)


def apply_all(tx: Transaction, batch: Sequence[QueuedAppend]) -> Asking[None]:
    """Write all of them, or raise with the transaction in any state: the caller rolls back."""
    going, leaving = merge(tx.now, batch)
    if going:
        if (yield Count("reserve", going)) != len(going):
            raise Refused
        for fence in going:
            tx.changes.setdefault(fence[6], News.GREW)
    parents, keys = (yield from _leave(tx, leaving)) if leaving else ({}, [])
    more = [queued for queued in batch if not queued.plain]
    for queued in more:
        if queued.stored_with:
            yield from _store_with(tx, queued.append, batch)
    parts = [(queued.append.run, queued.append.parts) for queued in more if queued.append.parts]
    if parts:
        yield from keep_parts(tx, parts)
    spendings = [each for queued in more for each in queued.spendings]
    if spendings:
        yield from spend(tx, spendings)
    yield from _converse(tx, more)
    now = (tx.now,)
    rows = [row + now for queued in batch for row in queued.rows]
    if rows:
        yield Count("record", rows)
    chunks = [row + now for queued in more for row in queued.chunks]
    if chunks:
        yield Count("insert_chunk", chunks)
    ended = [
        End(fence[6], fence[7], parents[fence[6]], left.status, left.result, left.error, left.ends_below)
        for fence, left in leaving
        if left.status in FINISHED
    ]
    if ended:
        yield from end_runs(tx, ended)
    for fence, transition in leaving:
        if transition.status == "paused" and transition.inbox_seen is None:  # by the engine, which looked at no request
            yield from end_if_asked(tx, fence[6])
    yield from freed(tx, keys)


def apply_one(tx: Transaction, queued: QueuedAppend) -> Asking[int]:
    """Write one append, or say why not. One that is there already, by its own rows, is acknowledged."""
    try:
        yield from apply_all(tx, [queued])
    except Refused:
        return (yield from _judge(tx, queued))
    except Conflict as error:
        first, end = queued.append.expected_seq, queued.next_seq
        raise LeaseLost(
            f"run {queued.append.run!r} has an event at one of {first}..{end - 1} already: {error}"
        ) from error
    return tx.now


# A fence is the list of parameters of `reserve`, in order: next_seq, now, steps, progress, checkpoint_seq, inbox_seen,
# run, epoch, expected. A list and not a class, because it is bound as it is.
Fence = list[Any]


def merge(now: int, batch: Sequence[QueuedAppend]) -> tuple[list[Fence], list[tuple[Fence, Transition]]]:
    """Merge a batch into one fence per run: fences of runs that go on, and of runs whose last append ends the lease."""
    fences: dict[str, Fence] = {}
    leaving: dict[str, Transition] = {}
    for queued in batch:
        append = queued.append
        fence = fences.get(append.run)
        if fence is None:
            fences[append.run] = queued.fence(now)
        elif fence[7] == append.epoch and fence[0] == append.expected_seq and append.run not in leaving:
            fence[0] = queued.next_seq
            fence[2] += queued.steps
            fence[3] |= queued.progress
            if append.checkpoint_seq is not None:
                fence[4] = append.checkpoint_seq
            if append.inbox_seen is not None:
                fence[5] = append.inbox_seen
        else:
            raise Refused
        if append.transition is not None:
            leaving[append.run] = append.transition
    going = [fence for run, fence in fences.items() if run not in leaving]
    return going, [(fences[run], transition) for run, transition in leaving.items()]


def _leave(
    tx: Transaction, leaving: list[tuple[Fence, Transition]]
) -> Asking[tuple[dict[str, str | None], list[str | None]]]:
    """End the leases; returns the parents, and the limits of which slots are free now."""
    lists = []
    for fence, transition in leaving:
        status = transition.status
        due_at = tx.now if status == "ready" else transition.due_at if status == "waiting" else None
        awaits = _awaited(transition.awaits) if status == "waiting" else None
        waits_for = transition.waits_for if status == "waiting" else None
        finished_at = tx.now if status in FINISHED else None
        reason = transition.reason and writable(transition.reason)  # it may repeat what others wrote
        lists.append([
            *fence[:6], status, due_at, waits_for, awaits, transition.result, transition.error, reason,
            finished_at, *fence[6:], transition.inbox_seen,
        ])  # fmt: skip
        stopped = finished_at is not None or status == "paused"
        tx.changed(fence[6], News.STOPPED if stopped else News.MOVED if due_at is None else News.DUE)
    left: list[Any] = yield Many("leave", lists)
    if len(left) != len(leaving):
        raise Refused({fence[6] for fence, _ in leaving} - {row[0] for row in left})
    return {run: parent for run, parent, _ in left}, [key for _, _, key in left]


def _awaited(topics: Sequence[str] | None) -> str | None:
    """Write the topics as they are kept. PostgreSQL reads no text with these characters; then any signal wakes the run."""
    if topics is None or any("\0" in topic or _SURROGATE.search(topic) for topic in topics):
        return None
    return to_json(list(topics))


def _store_with(tx: Transaction, append: Append, batch: Sequence[QueuedAppend]) -> Asking[None]:
    if append.blobs:
        yield from insert_blobs(tx, append.blobs)
    if append.releases is not None:
        yield from release(tx, append.run, *append.releases)
    for child in append.children:
        created = yield from insert_run(tx, child)
        if created is not None:
            row = RunRow(*created)
            if child.origin is not None:
                row = yield from born(tx, row, child.origin)
            yield from hold_child(tx, append.run, row, _asked_to_pause(append.run, batch))
    for approval in append.approvals:
        yield from ask(tx, append.run, approval)
    for withdrawn in append.withdraws:
        yield from tx.rows("leave_question", approval=withdrawn, run=append.run)
        yield from tx.rows("withdraw_one", approval=withdrawn)
    for announcing in append.announces:
        yield from announcing(tx, append.run)


def _asked_to_pause(run: str, batch: Sequence[QueuedAppend]) -> list[dict[str, Any]]:
    """Find the requests to pause that this batch takes from the run's inbox."""
    appends = [queued.append for queued in batch if queued.append.run == run]
    return [event.data for append in appends for event in append.events if event.kind == "run.pausing"]


def _converse(tx: Transaction, batch: Sequence[QueuedAppend]) -> Asking[None]:
    """Do what runs do in conversations: those of the whole batch are locked in one order."""
    talks = [(queued.append.run, talking) for queued in batch for talking in queued.append.talks]
    for run, talking in sorted(talks, key=lambda each: each[1].conversation):
        if not (yield from converse(tx, run, talking)):
            raise Refused([run])


def _judge(tx: Transaction, queued: QueuedAppend) -> Asking[int]:
    """Find why an append was refused: if it was written before, returns the time of that. Else `InboxMoved` or `LeaseLost`."""
    append, transition = queued.append, queued.append.transition
    at = yield from written_at(tx, queued)
    if at is not None:
        return at
    found = yield from tx.row("fence", run=append.run)
    if found is None:
        raise LeaseLost(f"run {append.run!r} is not there any more")
    status, epoch, next_seq, inbox_count, owner, result, error = found
    if epoch == append.epoch and next_seq == append.expected_seq and transition is not None:
        if status == "running":
            seen = transition.inbox_seen
            raise InboxMoved(f"run {append.run!r} has {inbox_count} signals, its owner has seen {seen}")
        # Without events there are no rows to recognise; the state that this very epoch left is ours.
        if not queued.rows and owner is None and (status, result, error) == (
            transition.status, transition.result, transition.error,
        ):  # fmt: skip
            return tx.now
    raise LeaseLost(
        f"run {append.run!r} is {status} at epoch {epoch}, seq {next_seq}; this append is of epoch {append.epoch},"
        f" seq {append.expected_seq}"
    )


def written_at(tx: Transaction, queued: QueuedAppend) -> Asking[int | None]:
    """Find when exactly these events were written by this epoch; None if they were not. Atomic: so was all else in it."""
    append = queued.append
    if not queued.rows:
        if not append.pieces:
            return None
        first = append.pieces[0]
        row = yield from tx.row(
            "chunk_written", run=append.run, stream=first.stream, position=first.position, epoch=append.epoch
        )
        return None if row is None else int(row[0])
    found = yield from tx.rows(
        "written", run=append.run, first=append.expected_seq, end=queued.next_seq, epoch=append.epoch
    )
    if [row[:6] for row in found] != [row[1:7] for row in queued.rows]:
        return None
    at: int = found[0][6]
    return at
