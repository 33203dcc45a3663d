"""Runs: created from outside or by a parent, read one by one, listed and counted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypedDict, Unpack

from holdfast.errors import UnknownRun
from holdfast.store import audit
from holdfast.store.blobs import insert_blobs
from holdfast.store.changes import News
from holdfast.store.work import Asking, Conflict, Feature, Many, Transaction, listed, only_of, rows, to_json
from holdfast.words.limits import Lane
from holdfast.words.model import FINISHED, TRANSITIONS, UNFINISHED, RunRow

_COUNTED: Final = 100_000  # runs that ended in one way, at most; an index alone is read
_LOOKED_AT: Final = 20_000  # the same, where rows must be read to see whether they fit
Order = Literal["newest", "oldest", "updated"]
_ORDERS: Final[dict[Order, str]] = {"newest": "runs", "oldest": "runs_oldest", "updated": "runs_updated"}


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a fork's child: the child that the other run had in its place, if it had one."""

    of: str
    effects: str  # what happens to steps that were done there
    by: str
    copies: list[list[Any]]  # under whose names the fork has copies of conversations, and as of when


@dataclass(slots=True)
class NewRun:
    """A run to be created. `uid` is random and never shown to be guessed; seeds and idempotency keys come from it."""

    id: str
    uid: str
    agent: str
    input: str
    version: str | None = None
    queue: str = "default"
    labels: str = "{}"
    parent_id: str | None = None
    parent_key: str | None = None
    root_id: str = ""
    delay_ms: int = 0
    lane: Lane = field(default_factory=Lane)
    budget: str | None = None  # as RunRow has it
    identity: str | None = None
    origin: Origin | None = None  # of a child of a fork


class Filter(TypedDict, total=False):
    """A choice of runs: all that fit each of these. What is None or missing fits any."""

    statuses: Iterable[str] | None
    agent: str | None
    labels: dict[str, str] | None
    since: int | None  # when they were created, at the earliest
    until: int | None  # and before this time
    search: str | None  # is in any text of theirs
    agents: Iterable[str] | None  # of any of these
    queues: Iterable[str] | None  # in any of these
    version: str | None
    top: bool | None  # True: nobody started them; False: a run did
    waits_for: Iterable[str] | None  # what lists say that they wait for is one of these
    stuck: bool | None  # they do not go on by themselves
    needs: bool | None  # the same, or they have an open question
    usd: int | None  # they and all below them have spent so much at least, in billionths of a dollar
    attempt: int | None  # one of their steps is at this attempt or a later one
    served: Iterable[str] | None  # the code that live workers have, as 'AGENT VERSION'; for what depends on that
    taken_queues: Iterable[str] | None  # queues that live workers take; None: all
    only: (
        Mapping[str, str] | None
    )  # they, or the runs above all of them, have these labels: all that is there for a caller


@dataclass(frozen=True, slots=True)
class Census:
    """The unfinished runs of one queue in one state."""

    queue: str
    status: str
    runs: int
    due: int  # of these; for running ones that is: whose lease is over
    late: int  # of these, due for long
    first_due_at: int | None


class Counts(NamedTuple):
    """Numbers of runs by state, and of runs that need a person. If they are not exact, more runs have ended."""

    states: dict[str, int]
    needs: int
    exact: bool


class Runs(Feature):
    """Runs: created, read, listed and counted."""

    async def create(
        self, run: NewRun, blobs: Mapping[str, bytes] | None = None, *, by: str = "", via: str = ""
    ) -> tuple[RunRow, bool]:
        """Create the run, or return the one with this id or the unfinished one of its singleton; True: it was created.

        Without `by` the audit has no row for it.
        """
        return await self._submit(Create(run, blobs or {}, by, via), small=not blobs, runs=())

    async def run(self, run: str) -> RunRow | None:
        """Read one run."""
        found = await self._glance(rows, "run", run=run)
        return RunRow(*found[0]) if found else None

    async def runs(
        self,
        *,
        parent: str | None = None,
        root: str | None = None,
        limit: int = 100,
        order: Order = "newest",
        after: str | None = None,
        at: int | None = None,
        **which: Unpack[Filter],
    ) -> list[RunRow]:
        """List runs in an order; `after` is the id of the last run of the page before, and `at` the time by which it stood there.

        Without `at` it is the time by which that run stands now: in the order "updated" a run that changed has moved since.
        """
        return await self._read(_runs, which, self.clock.now(), parent, root, limit, order, after, at)

    async def count_runs(self, **which: Unpack[Filter]) -> dict[str, dict[str, int]]:
        """Count the runs that fit: of each agent, in each state."""
        counts: dict[str, dict[str, int]] = {}
        for agent, status, count in await self._read(
            rows, "counted_runs", now=self.clock.now(), **_parameters(**which)
        ):
            counts.setdefault(agent, {})[status] = count
        return counts

    async def sees_run(self, run: str, only: Mapping[str, str]) -> bool:
        """Tell whether a run is there for a caller that sees only runs with these labels, or below such a run."""
        return bool(await self._glance(rows, "sees_run", run=run, only=only_of(only)))

    async def recent_runs(self, limit: int, only: Mapping[str, str] | None = None) -> list[tuple[str, str, str, str]]:
        """Read the ids, agents, states and labels of the newest runs."""
        return [tuple(row) for row in await self._read(rows, "recent_runs", limit=limit, only=only_of(only))]

    async def runs_beginning(
        self, text: str, limit: int, only: Mapping[str, str] | None = None
    ) -> list[tuple[str, str, str]]:
        """Read the ids, agents and states of runs whose ids begin with a text."""
        return [
            tuple(row) for row in await self._read(rows, "runs_beginning", search=text, limit=limit, only=only_of(only))
        ]

    async def family_size(self, root: str) -> tuple[int, int]:
        """Count the events of a run and all below it, and the bytes that they hold."""
        ((events, size),) = await self._read(rows, "bulk_of", root=root)
        return int(events), int(size)

    async def run_counts(self, *, parent: str | None = None, **which: Unpack[Filter]) -> Counts:
        """Count the runs that fit, by state, and the runs that need a person; of ended runs only so many are looked at."""
        return await self._read(_counts, which, parent, self.clock.now())

    async def these_runs(self, runs: Iterable[str]) -> list[RunRow]:
        """Read those of these runs that are there, in no particular order."""
        return [RunRow(*row) for row in await self._read(rows, "these_runs", ids=to_json(list(runs)))]

    async def open_below(self, run: str) -> list[str]:
        """List the nearest unfinished runs below this one: its children, and for an ended child the runs below it."""
        return [member for (member,) in await self._read(rows, "open_below", run=run)]

    async def census(self, late_ms: int) -> list[Census]:
        """Count unfinished runs by queue and state, from an index; late are those due for longer than this."""
        now = self.clock.now()
        return [Census(*row) for row in await self._read(rows, "census", now=now, late=now - late_ms)]

    async def stuck(self, late_ms: int, limit: int = 100) -> list[RunRow]:
        """List runs that were due for longer than this, paused ones, and those with two crashes or more; longest due first."""
        now = self.clock.now()
        return [RunRow(*row) for row in await self._read(rows, "stuck", now=now, late=now - late_ms, limit=limit)]

    async def halted(self, late_ms: int, limit: int, after: RunRow | None = None) -> list[RunRow]:
        """Page through runs that were due for longer than this, and paused runs, except runs that a person has paused."""
        at = -1 if after is None else after.updated_at if after.due_at is None else after.due_at
        place = {"since": at, "after": "" if after is None else after.id}
        found = await self._read(rows, "halted", late=self.clock.now() - late_ms, limit=limit, **place)
        return [RunRow(*row) for row in found]


@dataclass(frozen=True, slots=True)
class Create:
    """Create the run, or find the one with this id, or the unfinished one of its singleton."""

    run: NewRun
    blobs: Mapping[str, bytes]
    by: str = ""
    via: str = ""
    counted: str = ""  # the trigger for which a message of a queue does it, to be counted with it

    @property
    def noted(self) -> dict[str, Any]:
        """Data of the audit's row."""
        return {"agent": self.run.agent}

    def __call__(self, tx: Transaction) -> Asking[tuple[RunRow, bool]]:
        run = self.run
        row = yield from insert_run(tx, run)
        if row is not None:
            if self.blobs:
                yield from insert_blobs(tx, self.blobs)
            yield from audit.note(tx, run.id, self.by, self.via, "start", self.noted)
            if self.counted:
                tx.took(self.counted)
            return RunRow(*row), True
        row = yield from tx.row("run", run=run.id)
        if row is None and run.lane.singleton_key is not None:
            row = yield from tx.row("singleton", key=run.lane.singleton_key)
        if row is None:
            raise Conflict(f"run {run.id!r} was there and is gone")
        found = RunRow(*row)
        return found, tx.again and found.uid == run.uid  # the uid is random: then it was our own lost commit


def _columns(tx: Transaction, run: NewRun) -> dict[str, Any]:
    """Write a new run as `insert_run` and `insert_runs` take it, in their order."""
    lane = run.lane
    return {
        "id": run.id, "uid": run.uid, "agent": run.agent, "input": run.input, "version": run.version, "queue": run.queue,
        "due_at": tx.now + run.delay_ms, "parent_id": run.parent_id, "parent_key": run.parent_key,
        "root_id": run.root_id or run.id, "labels": run.labels, "now": tx.now, "priority": lane.priority,
        "limit_key": lane.limit_key, "limit_n": lane.limit_n, "rate_key": lane.rate_key, "rate_n": lane.rate_n,
        "rate_ms": lane.rate_ms, "singleton_key": lane.singleton_key, "budget": run.budget, "identity": run.identity,
    }  # fmt: skip


def insert_run(tx: Transaction, run: NewRun, query: str = "insert_run", **more: Any) -> Asking[Any]:
    """Create a run; None if there is one with this id, or an unfinished one of its singleton."""
    created = yield from tx.row(query, **_columns(tx, run), **more)
    if created is not None:
        tx.changed(run.id, News.DUE)
    return created


def insert_runs(tx: Transaction, runs: Sequence[NewRun]) -> Asking[set[str]]:
    """Create many runs at once as `insert_run` creates one; returns the ids of the runs that were created."""
    if not runs:
        return set()
    ordered = sorted(
        runs, key=lambda run: run.id
    )  # so that two callers that create the same runs wait for each other in one order
    created: list[Any] = yield Many("insert_runs", [list(_columns(tx, run).values()) for run in ordered])
    for (run,) in created:
        tx.changed(run, News.DUE)
    return {run for (run,) in created}


def existing(tx: Transaction, run: str) -> Asking[RunRow]:
    """Read a run that must be there: `UnknownRun` if it is not."""
    row = yield from tx.row("run", run=run)
    if row is None:
        raise UnknownRun(f"there is no run {run!r}")
    return RunRow(*row)


def _parameters(
    statuses: Iterable[str] | None = None,
    agent: str | None = None,
    labels: dict[str, str] | None = None,
    since: int | None = None,
    until: int | None = None,
    search: str | None = None,
    agents: Iterable[str] | None = None,
    queues: Iterable[str] | None = None,
    version: str | None = None,
    top: bool | None = None,
    waits_for: Iterable[str] | None = None,
    stuck: bool | None = None,
    needs: bool | None = None,
    usd: int | None = None,
    attempt: int | None = None,
    served: Iterable[str] | None = None,
    taken_queues: Iterable[str] | None = None,
    only: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write a filter as the queries take it; a name that is none of a filter is a `TypeError`."""
    if waits_for is not None or stuck or needs or attempt is not None:  # only these runs can: few among many
        statuses = [each for each in (UNFINISHED if statuses is None else statuses) if each in UNFINISHED]
    return {
        "statuses": listed(statuses), "agent": agent, "labels": to_json(labels) if labels else None,
        "since": since, "created_at": until, "search": None if search is None else search.lower(),
        "agents": listed(agents), "queues": listed(queues), "version": version, "top": _flag(top), "waits": listed(waits_for),
        "stalled": _flag(stuck), "needing": _flag(needs), "usd": usd, "attempt": attempt, "served": listed(served or ()),
        "taken_queues": listed(taken_queues), "parent": None, "only": only_of(only),
    }  # fmt: skip


def _counts(which: Filter, parent: str | None, now: int) -> Asking[Counts]:
    """Count what has not ended whole, and of what has ended no more than a person waits for."""
    wanted, exact = {**_parameters(**which), "parent": parent}, True
    plain = all(value is None for name, value in wanted.items() if name not in ("served", "taken_queues"))
    query = {} if plain else {"now": now, **wanted}
    states = dict.fromkeys(TRANSITIONS, 0)
    states |= dict((yield from rows("count_going" if plain else "count_going_that_fit", **query)))
    if plain:
        for status, looked_at, _ in (yield from rows("count_ended", limit=_COUNTED)):
            states[status], exact = looked_at, exact and looked_at < _COUNTED
    else:
        among = sorted(FINISHED if wanted["statuses"] is None else FINISHED & {*json.loads(wanted["statuses"])})
        for status in among:
            ((looked_at, fit),) = yield from rows("ended_that_fit", limit=_LOOKED_AT, **query | {"status": status})
            states[status], exact = fit, exact and looked_at < _LOOKED_AT
    ((needs,),) = yield from rows("count_needs", **{"now": now, **wanted})
    return Counts(states, needs, exact)


def _flag(wanted: bool | None) -> int | None:
    return None if wanted is None else int(wanted)


def _runs(
    which: Filter, now: int, parent: str | None, root: str | None, limit: int, order: Order, after: str | None, at: int | None
) -> Asking[list[RunRow]]:  # fmt: skip
    wanted = _parameters(**which)
    if after is not None and at is None:
        found = yield from rows("place_of", run=after)
        if not found:
            raise UnknownRun(f"run {after!r}, after which the next page begins, is not there any more; begin again")
        at = found[0][1 if order == "updated" else 0]
    rank = at if at is None or order == "oldest" else -at
    page = {"limit": limit, "after": after, "now": now}
    statuses = wanted["statuses"]
    if parent is not None or root is not None:
        wanted["parent"] = parent
        found = yield from rows("relatives", root=root, order=order, place=rank, **page, **wanted)
    elif statuses is not None and "completed" not in json.loads(statuses):
        found = yield from rows("runs_in", order=order, place=rank, **page, **wanted)
    else:
        found = yield from rows(_ORDERS[order], place=at, **page, **wanted)
    return [RunRow(*row) for row in found]
