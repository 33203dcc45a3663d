"""A family: a run with the runs below it. `account` reads all that is known of one, `Family` follows one as it goes on."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.client.approvals import Approval
from holdfast.client.client import Client
from holdfast.client.edge import Edge
from holdfast.client.failure import Failure, failure_of
from holdfast.client.forks import shared_below
from holdfast.client.info import RunInfo, granted_to, shared_info, starter, wants_worker
from holdfast.errors import NotStorable
from holdfast.store.blobs import NAMED_BLOB, unspilled
from holdfast.values.codec import UNTYPED
from holdfast.values.text import cut, show
from holdfast.words.model import FINISHED, Event, RunRow, Signal, is_served
from holdfast.words.spent import NOTHING

_MOST: Final = 1000  # runs of one family that are looked at


@dataclass(frozen=True, slots=True)
class Shared:
    """The arguments and the result of a run that a fork has from another, as plain data."""

    input: Any
    result: Any


@dataclass(slots=True)
class Account:
    """Everything about one run and those it started."""

    row: RunRow
    info: RunInfo  # without its progress, which is in the events
    events: list[Event]
    told: list[Event]  # the events, each from outside at the time when somebody did it
    untaken: list[Event]  # signals that wait for a worker to take them
    questions: list[Approval]
    started_by: str | None  # or the run above all; None: a store of old, that had no audit
    children: list[Account] = field(default_factory=list)
    shared: Shared | None = None  # a fork has it from the run it was made from, and it may be deleted

    def members(self) -> list[Account]:
        """List this run, and all runs below it."""
        return [self, *(each for child in self.children for each in child.members())]


async def account(hf: Client, run: str) -> Account:
    """Read a run with its history and those of the runs below it."""
    edge, store = Edge(hf), hf.store
    root = await edge.row(run)
    rows = await family(hf, root)
    asked = await hf.approvals(run=run)
    spent = await store.spent_with_steps([row.id for row in rows])
    granted = await granted_to(store, rows)
    started_by = await starter(store, root.root_id)
    now = edge.now()
    served = await store.agents() if any(wants_worker(row, now) for row in rows) else {}
    accounts: dict[str, Account] = {}
    for row in rows:
        events = await store.journal(row.id, dropped=True)
        accounts[row.id] = Account(
            row, RunInfo.of(row, served, now, None, spent.get(row.id, NOTHING), granted=granted.get(row.id, ())), events,
            await _told(hf, row, events), await _untaken(edge, row), [each for each in asked if each.run == row.id], started_by,
        )  # fmt: skip
    for row in rows:
        if row.id != run and row.parent_id in accounts:
            accounts[row.parent_id].children.append(accounts[row.id])
    top, below = accounts[run], await shared_below(hf, run)
    if below:
        top.children[:0] = await _shared(hf, run, top, below)
    return top


async def _shared(hf: Client, fork: str, above: Account, below: dict[str | None, list[RunRow]]) -> list[Account]:
    """Read the runs that a fork has from another, below one of them or below the fork."""
    made, store = [], hf.store
    ends = {event.data["child"]: event for event in above.events if event.kind == "child.ended"}
    for row in below.get(above.row.id, ()):
        events, end = await store.journal_below(fork, row.id), ends.get(row.id)
        counted = [event for event in events if event.dropped is None]
        text = None if end is None else end.value if end.blob is None else (await store.blob(end.blob)).decode()
        told = Shared(
            UNTYPED.load(await unspilled(store, row.input) or "{}"),
            None if text is None else UNTYPED.load(await unspilled(store, text) or "null"),
        )
        info = shared_info(row, counted, store.clock.now())
        found = Account(row, info, events, events, [], [], above.started_by, shared=told)
        found.children = await _shared(hf, fork, found, below)
        made.append(found)
    return made


async def _told(hf: Client, row: RunRow, events: list[Event]) -> list[Event]:
    """Date the events that came from outside by when a person did it: a worker may have taken them much later."""
    came: dict[tuple[str, str], list[int]] = {}
    for signal in await hf.store.whole_inbox(row.id) if row.inbox_seen else ():
        data = signal.recorded() or {}
        came.setdefault(_named(signal.kind, data), []).append(_done_at(signal, data))
    made = []
    for event in events:
        times = came.get(_named(event.kind, event.data)) if came and event.key is None else None
        made.append(replace(event, at=times.pop(0)) if times else event)
    return made


def _done_at(signal: Signal, data: dict[str, Any]) -> int:
    """Say when a person did it: what was decided in a bundle was sent when that was imported, or looked at."""
    at = data.get("at") if signal.kind.startswith("approval.") else None
    return at if type(at) is int else signal.sent_at


def _named(kind: str, data: dict[str, Any]) -> tuple[str, str]:
    told = {name: value for name, value in data.items() if name not in ("position", "worker")}
    return kind, json.dumps(told, sort_keys=True)


async def _untaken(edge: Edge, row: RunRow) -> list[Event]:
    """List the signals that came to a run since a worker last took from its inbox, as the events that they will be."""
    if row.status in FINISHED or row.inbox_count <= row.inbox_seen:
        return []
    made: list[Event] = []
    for signal in await edge.untaken(row):
        data, seq, value = signal.recorded(), row.next_seq + len(made), signal.value
        if data is None or signal.kind == "run.resumed" or (signal.kind == "run.pausing" and row.status == "paused"):
            continue
        spilled = None if value is None else NAMED_BLOB.match(value, 1)
        text, blob = (value, None) if spilled is None else (None, spilled[1])
        made.append(Event(seq, signal.kind, None, data, text, blob, at=_done_at(signal, data), run=row.id))
    return made


async def family(hf: Client, row: RunRow) -> list[RunRow]:
    """List a run, then the runs below it, the oldest first."""
    if row.parent_id is None:
        found = await hf.store.runs(root=row.id, limit=_MOST)
        return [row, *sorted((each for each in found if each.id != row.id), key=lambda each: each.created_at)]
    below = await hf.store.runs(parent=row.id, limit=_MOST)
    return [row, *[member for child in below for member in await family(hf, child)]]


def input_preview(row: RunRow) -> str:
    """Write the arguments of a run as people do: `topic='otters', depth=2`."""
    if row.input.startswith('{"$blob":'):
        return "a large value"
    try:
        arguments: Any = UNTYPED.load(row.input)
    except NotStorable:
        return cut(row.input, 120)
    if not isinstance(arguments, dict):
        return cut(row.input, 120)
    return cut(", ".join(f"{name}={show(value, 120)}" for name, value in arguments.items()), 120)


class Family:
    """A run and those below it, followed as they go on; `look` takes in what is new."""

    def __init__(self, hf: Client, run: str) -> None:
        self.hf, self.edge, self.run = hf, Edge(hf), run
        self.rows: dict[str, RunRow] = {}
        self.questions: list[Approval] = []
        self.failure: Failure | None = None  # of the run, once it has failed
        self.unserved: list[RunRow] = []  # unfinished ones for which there is no live worker, here or elsewhere
        self._seen: dict[str, int] = {}  # events of each

    @property
    def root(self) -> RunRow:
        """The run itself."""
        return self.rows[self.run]

    async def look(self) -> list[Event]:
        """Read what was recorded since the last look, in order."""
        root = await self.edge.row(self.run)
        new: list[Event] = []
        for row in await family(self.hf, root):
            self.rows[row.id] = row
            seen = self._seen.get(row.id, 0)
            if row.next_seq > seen:
                events = await self.hf.store.journal(row.id, seen)
                self._seen[row.id] = events[-1].seq + 1 if events else seen
                new += events
        if root.status == "failed" and self.failure is None:
            self.failure = await failure_of(self.hf, root)
        parked = [row for row in self.rows.values() if row.status in ("ready", "waiting")]
        served = await self.edge.agents() if parked else {}
        self.unserved = [row for row in parked if not is_served(row, served)]
        waits = any(row.waits_for == "person" for row in self.rows.values())
        self.questions = await self.hf.approvals(run=self.run) if waits else []
        return sorted(new, key=lambda event: event.position)

    @property
    def elsewhere(self) -> bool:
        """Does another live process work on the run?"""
        root = self.root
        return (
            root.status == "running"
            and root.lease_owner != self.edge.worker_id
            and (root.due_at or 0) > self.edge.now()
        )

    @property
    def is_over(self) -> bool:
        """Is there nothing to wait for? A run that ended may have started others that are still at work."""
        if self.root.status in FINISHED:
            return not any(is_active(row, self.edge.now()) for row in self.rows.values())
        return self.stuck_on is not None

    @property
    def stuck_on(self) -> RunRow | None:
        """A run that is paused or that nobody serves, and that everything else waits for: nothing goes on by itself."""
        if self.root.status in FINISHED:
            return None
        stuck = {row.id: row for row in self.rows.values() if row.status == "paused"}
        stuck |= {row.id: row for row in self.unserved}
        if self.run in stuck:
            return self.root
        others = [row for row in self.rows.values() if row.status not in FINISHED and row.id not in stuck]
        if any(row.status != "waiting" or row.waits_for != "child" for row in others):
            return None
        return next(iter(stuck.values()), None)

    @property
    def is_due(self) -> bool:
        """Is its wait over, so that a worker should take it any moment?"""
        return self.root.due_at is not None and self.root.due_at <= self.edge.now()


def is_active(row: RunRow, now: int) -> bool:
    """Is a worker on it, or should one be?"""
    return row.status in ("ready", "running") or (
        row.status == "waiting" and row.due_at is not None and row.due_at <= now
    )
