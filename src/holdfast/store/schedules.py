"""Schedules: rows with a due time, and the runs that begin when it has come.

Any worker begins what is due, in one transaction with the runs it creates: the row moves on to its next time exactly if they are
there. A run is named by its schedule and its time, so a time is begun once, whatever dies, and whatever clocks do. Each row
has all that a run is created with, so a worker need not know the agent.

Deploys. A schedule that an agent declares is what the newest code declares (declarations.py). To serve the agent without
a schedule is a declaration too, which retires it. Whether a person has paused it is no part of any of this.

Times that have come and were not begun, because they wait for the run before or for a worker, are not kept when a schedule is
paused, deleted or retired, or gets other times: they count as missed.

Clocks. A clock that was ahead has moved schedules on to times that are far away once it is right again. Such rows say that they
were written in the future, and are set to their next time.

Lock order: rows of schedules in the order of their names, then those of runs. Crash points: each work is one transaction.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from holdfast.errors import BadArguments, UnknownSchedule
from holdfast.store import audit, declarations
from holdfast.store.control import Cancel
from holdfast.store.runs import NewRun, insert_runs
from holdfast.store.work import Asking, Count, Feature, Transaction, rows, to_json
from holdfast.words.limits import Lane
from holdfast.words.model import FINISHED
from holdfast.words.schedules import delayed, due, loaded, next_time, passed, problem, run_of

_AT_ONCE: Final = 100  # schedules, and times of one schedule, in a transaction
_LOOK_AGAIN_MS: Final = 2_000  # whether the run before has ended
LONGEST_INPUT: Final = 30_000  # characters of the arguments: they stand in the row
NEWS: Final = " schedules"  # under this name listeners hear of a change; no run has it
_AHEAD_MS: Final = 10_000  # by which clocks may differ
_NOBODY: Final = "schedule"  # starts runs of schedules that agents declare, and cancels runs that another one replaces
_GRACE_MS: Final = 10_000  # for a run that its schedule cancels


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule as the store keeps it."""

    name: str
    agent: str
    times: str
    run: str
    digest: str
    state: str
    since: int | None
    due_at: int | None
    last_at: int | None
    last_run: str | None
    begun: int
    missed: int
    made_by: str
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class Declared:
    """A schedule as a worker or a person declares it; `times` is '' where an agent declares none."""

    name: str
    agent: str
    times: str
    run: str
    digest: str


def template(run: NewRun) -> str:
    """Write what runs of a schedule are created with."""
    lane = run.lane
    told = {"agent": run.agent, "input": run.input, "version": run.version, "queue": run.queue, "labels": run.labels,
            "budget": run.budget, "identity": run.identity, "priority": lane.priority,
            "limit": [lane.limit_key, lane.limit_n], "rate": [lane.rate_key, lane.rate_n, lane.rate_ms],
            "singleton": lane.singleton_key}  # fmt: skip
    return to_json(told)


def _run(row: ScheduleRow, at: int) -> NewRun:
    told = json.loads(row.run)
    (limit_key, limit_n), (rate_key, rate_n, rate_ms) = told["limit"], told["rate"]
    lane = Lane(told["priority"], limit_key, limit_n, rate_key, rate_n, rate_ms, told["singleton"])
    return NewRun(
        run_of(row.name, at), secrets.token_hex(16), told["agent"], told["input"], told["version"], told["queue"], told["labels"],
        lane=lane, budget=told["budget"], identity=told["identity"],
    )  # fmt: skip


class Begun(NamedTuple):
    """Outcome of times that had come: the runs that were begun, how many were missed, and what the others wait for.

    `behind`: schedules whose next run begins when another one has ended, by that run.
    """

    runs: list[str]
    missed: int
    behind: dict[str, str]


class Schedules(Feature):
    """Schedules: declared, made, steered, begun and read."""

    async def declare_schedules(self, declared: Sequence[Declared]) -> None:
        """Write down what the code of this worker declares, and let it take effect where it should."""
        await self._submit(lambda tx: _declare(tx, declared), journal=False)

    async def make_schedule(self, made: Declared, *, by: str, via: str) -> ScheduleRow:
        """Make a schedule by hand, or change one that was; `BadArguments` if an agent declares one of this name."""
        return await self._submit(lambda tx: _make(tx, made, by, via), journal=False)

    async def steer_schedule(self, name: str, state: str, *, by: str, via: str) -> ScheduleRow:
        """Pause a schedule, or let it go on from now."""
        return await self._submit(lambda tx: _steer(tx, name, state, by, via), journal=False)

    async def delete_schedule(self, name: str, *, by: str, via: str) -> None:
        """Delete a schedule that a person made, or one that is retired."""
        await self._submit(lambda tx: _delete(tx, name, by, via), journal=False)

    async def begin_at(self, name: str, times: Sequence[int], *, by: str, via: str) -> list[str]:
        """Begin runs for these times, whatever its times are; returns the ids of the runs that were not there yet."""
        return await self._submit(lambda tx: _begin_at(tx, name, times, by, via), journal=False)

    async def begin_due(self, unread: dict[str, str] | None = None, freed: Sequence[str] = ()) -> Begun:
        """Begin the runs whose times have come. Some may be left: look at `next_schedule` again.

        Schedules are passed over whose times cannot be read here, because of a time zone, say: others may. `unread` has these
        times, with what is wrong with them; times that are found are added. `freed` names schedules whose run before has ended,
        so that they are looked at now and not later.
        """
        known = {} if unread is None else unread
        return await self._submit(lambda tx: _begin_due(tx, known, freed), journal=False)

    async def next_schedule(self, unread: Iterable[str] = ()) -> int | None:
        """Read when the next schedule is due, of all except the ones with these times."""
        if ids := list(unread):
            found = await self._glance(rows, "next_read_schedule", ids=to_json(ids))
        else:
            found = await self._glance(rows, "next_schedule")
        return found[0][0] if found else None

    async def schedules(self, *, after: str = "", limit: int = 100) -> list[ScheduleRow]:
        """Read schedules in the order of their names, after one."""
        return [ScheduleRow(*row) for row in await self._read(rows, "schedules", after=after, limit=limit)]

    async def schedule(self, name: str) -> ScheduleRow:
        """Read one; `UnknownSchedule` if there is none."""
        found = await self._read(rows, "schedule", name=name)
        if not found:
            raise _unknown(name)
        return ScheduleRow(*found[0])


def _unknown(name: str) -> UnknownSchedule:
    return UnknownSchedule(f"there is no schedule {name!r}; `holdfast schedules` lists them")


def _existing(tx: Transaction, name: str) -> Asking[ScheduleRow]:
    row = yield from tx.row("lock_schedule", name=name)
    if row is None:
        raise _unknown(name)
    return ScheduleRow(*row)


# Declaring


def _declare(tx: Transaction, declared: Sequence[Declared]) -> Asking[None]:
    for found in (yield from tx.rows("ahead_schedules", before=tx.now + _AHEAD_MS, limit=_AT_ONCE)):
        yield from _set_right(tx, ScheduleRow(*found))
    yield from declarations.forget_gone(tx)
    for each in sorted(declared, key=lambda each: each.name):
        row = yield from tx.row("lock_schedule", name=each.name)
        if row is None and not each.times:
            continue
        before = None if row is None else ScheduleRow(*row)
        yield from declarations.declare(tx, each.name, each.digest)
        if before is not None and (before.digest == each.digest or (before.state == "retired" and not each.times)):
            continue  # as it is; or made by hand under this name
        if before is not None and before.digest == "" and before.state != "retired":
            continue  # a person made one of this name first, and keeps it
        present = None if before is None else before.digest
        if not (yield from declarations.takes_effect(tx, each.name, each.digest, present)):
            continue
        if each.times:
            yield from _put(tx, each, before, "")
        else:
            missed = 0 if before is None else _unbegun(tx, before)
            yield from tx.rows(
                "set_schedule", name=each.name, state="retired", since=None, due_at=None, digest="", missed=missed
            )


def _set_right(tx: Transaction, row: ScheduleRow) -> Asking[ScheduleRow]:
    """Set a schedule to its next time if a clock that was ahead wrote it, and this process can read its times."""
    if row.updated_at <= tx.now + _AHEAD_MS or problem(row.times) is not None:
        return row
    schedule = loaded(row.times)
    since = None if row.since is None else next_time(schedule, tx.now)
    due_at = None if row.due_at is None or since is None else delayed(schedule, row.name, since)
    yield from tx.rows(
        "set_schedule", name=row.name, state=row.state, since=since, due_at=due_at, digest=row.digest, missed=0
    )
    tx.changed(NEWS)
    return replace(row, since=since, due_at=due_at, updated_at=tx.now)


def _unbegun(tx: Transaction, row: ScheduleRow) -> int:
    """Count the times that have come and were not begun, as far as they can be read here."""
    if row.state != "active" or row.since is None or problem(row.times) is not None:
        return 0
    return passed(loaded(row.times), row.name, row.since, tx.now)


def _put(tx: Transaction, new: Declared, before: ScheduleRow | None, by: str) -> Asking[int]:
    """Write a schedule. Its times count from now on; one that a person has paused stays paused. Returns how many are missed."""
    tx.changed(NEWS)
    schedule = loaded(new.times)
    paused = before is not None and before.state == "paused"
    since, missed = next_time(schedule, tx.now), 0
    if before is not None and before.since is not None and before.times == new.times:
        since = before.since  # only what its runs are created with is new
    elif before is not None:
        missed = _unbegun(tx, before)
    yield from tx.rows(
        "put_schedule", name=new.name, agent=new.agent, times=new.times, run=new.run, digest=new.digest, made_by=by,
        state="paused" if paused else "active", since=since,
        due_at=None if paused or since is None else delayed(schedule, new.name, since), missed=missed,
    )  # fmt: skip
    return missed


def _told(name: str, missed: int, **more: str) -> dict[str, Any]:
    """Data of the audit's row."""
    return {"schedule": name, **more} | ({"missed": missed} if missed else {})


# By hand


def _make(tx: Transaction, made: Declared, by: str, via: str) -> Asking[ScheduleRow]:
    row = yield from tx.row("lock_schedule", name=made.name)
    before = None if row is None else (yield from _set_right(tx, ScheduleRow(*row)))
    if before is not None and before.digest and before.state != "retired":
        raise BadArguments(
            f"agent {before.agent!r} declares the schedule {made.name!r} in its code: change it there, or give yours another name"
        )
    missed = yield from _put(tx, made, before, by)
    told = _told(made.name, missed, agent=made.agent, times=made.times)
    yield from audit.note(tx, "", by, via, "schedule", told)
    return ScheduleRow(*(yield from tx.row("lock_schedule", name=made.name)))


def _steer(tx: Transaction, name: str, state: str, by: str, via: str) -> Asking[ScheduleRow]:
    row = yield from _existing(tx, name)
    if row.state == "retired":
        raise BadArguments(
            f"schedule {name!r} is retired: agent {row.agent!r} is served without it. Start a worker whose code declares it, or "
            f"forget it with `holdfast schedules {name} --delete`"
        )
    if row.state != state:
        tx.changed(NEWS)
        since, due_at, missed = row.since, None, _unbegun(tx, row)
        if state != "paused":
            schedule = loaded(row.times)
            since = next_time(schedule, tx.now)
            due_at = None if since is None else delayed(schedule, name, since)
        yield from tx.rows(
            "set_schedule", name=name, state=state, since=since, due_at=due_at, digest=row.digest, missed=missed
        )
        yield from audit.note(tx, "", by, via, f"{state}_schedule", _told(name, missed))
    return ScheduleRow(*(yield from tx.row("lock_schedule", name=name)))


def _delete(tx: Transaction, name: str, by: str, via: str) -> Asking[None]:
    row = yield from _existing(tx, name)
    if row.digest and row.state != "retired":
        raise BadArguments(
            f"agent {row.agent!r} declares the schedule {name!r}, and would bring it back: take it out of the code, or pause it"
        )
    yield from tx.rows("delete_schedule", name=name)
    yield from tx.rows("forget_schedule", name=name)
    yield from audit.note(tx, "", by, via, "delete_schedule", _told(name, _unbegun(tx, row)))


def _begin_at(tx: Transaction, name: str, times: Sequence[int], by: str, via: str) -> Asking[list[str]]:
    row = yield from _set_right(tx, (yield from _existing(tx, name)))  # else its author could not be seen any more
    runs = {at: _run(row, at) for at in sorted(set(times))}
    created = yield from insert_runs(tx, list(runs.values()))
    begun = {at: run.id for at, run in runs.items() if run.id in created}
    if by:
        told = {"agent": row.agent, "schedule": name}
        if row.made_by not in ("", by):  # whose arguments these are: that person may not decide what is for another
            told["made_by"] = row.made_by
        yield from audit.note_starts(tx, [(run, by, told) for run in begun.values()], via)
    last: tuple[int | None, str | None] = max(begun.items(), default=(row.last_at, row.last_run))
    if (last[0] or 0) < (row.last_at or 0):
        last = row.last_at, row.last_run
    yield Count("begun_schedules", [[row.since, row.due_at, *last, len(begun), 0, tx.now, name]])
    return list(begun.values())


# Beginning


def _begin_due(tx: Transaction, unread: dict[str, str], freed: Sequence[str]) -> Asking[Begun]:
    """Begin what is due of a hundred schedules, those longest due first. Two workers at once take different ones."""
    found = yield from tx.rows("due_schedules", limit=_AT_ONCE, ids=to_json(list(unread)))
    if freed:
        found = [*found, *(yield from tx.rows("freed_schedules", ids=to_json(list(freed))))]
    due_now = list({row.name: row for row in (ScheduleRow(*each) for each in found)}.values())
    unread |= {row.times: wrong for row in due_now if (wrong := problem(row.times)) is not None}
    due_now = [row for row in due_now if row.times not in unread]
    if not due_now:
        return Begun([], 0, {})
    before = yield from _statuses(tx, [row.last_run for row in due_now if row.last_run is not None])
    plans: list[_Plan] = []
    for row in due_now:
        plan = yield from _plan(tx, row, before)
        plans.append(plan)
    created = yield from insert_runs(tx, [run for plan in plans for run in plan.runs.values()])
    # Of the others somebody has started one of this name; or its agent is a singleton, and another run of it goes on.
    others = [run.id for plan in plans for run in plan.runs.values() if run.id not in created]
    there = created | set((yield from _statuses(tx, others)))
    # The maker of a schedule starts its runs, and may not decide what is for another person; code is nobody.
    starts = [
        (run.id, plan.row.made_by or _NOBODY, {"agent": run.agent, "schedule": plan.row.name})
        for plan in plans for run in plan.runs.values() if run.id in created
    ]  # fmt: skip
    yield from audit.note_starts(tx, starts, "schedule")
    moved = [plan.moved(tx.now, created, there) for plan in plans]
    yield Count("begun_schedules", moved)
    behind = {plan.row.last_run: plan.row.name for plan in plans if plan.waits and plan.row.last_run is not None}
    return Begun([run for run, _, _ in starts], sum(row[_MISSED] for row in moved), behind)


def _statuses(tx: Transaction, runs: list[str]) -> Asking[dict[str, str]]:
    return dict((yield from tx.rows("statuses_of", ids=to_json(runs)))) if runs else {}


_MISSED: Final = 5  # its place among the parameters of begun_schedules


@dataclass(frozen=True, slots=True)
class _Plan:
    """Work to do about one schedule that is due: runs to begin by their times, and from when on it is due again."""

    row: ScheduleRow
    runs: dict[int, NewRun]
    since: int | None
    due_at: int | None
    missed: int
    waits: bool  # for the run before

    def moved(self, now: int, created: set[str], there: set[str]) -> list[Any]:
        """The row behind these times, as `begun_schedules` takes it."""
        last = max([(at, run.id) for at, run in self.runs.items() if run.id in there], default=None)
        last_at, last_run = last or (self.row.last_at, self.row.last_run)
        begun = sum(run.id in created for run in self.runs.values())
        missed = self.missed + sum(run.id not in there for run in self.runs.values())
        return [self.since, self.due_at, last_at, last_run, begun, missed, now, self.row.name]


def _plan(tx: Transaction, row: ScheduleRow, before: dict[str, str]) -> Asking[_Plan]:
    """Say what to begin of one schedule. If its run before must end first, that is looked at again soon."""
    schedule = loaded(row.times)
    assert row.since is not None  # because it is due
    jitter_ms = delayed(schedule, row.name, row.since) - row.since  # which makes no time a missed one
    todo = due(schedule, row.since, tx.now - jitter_ms, _AT_ONCE)
    begin, since, missed, again = todo.begin, todo.next, todo.missed, 0
    if begin and schedule.overlap != "allow":  # one at a time: whether the next one may begin is seen when it has begun
        at, *later = begin
        if before.get(row.last_run or "", "completed") in FINISHED or not (yield from _goes_on(tx, row, at)):
            begin, since = [at], later[0] if later else todo.next
        elif schedule.overlap == "skip":
            begin, missed = [], missed + len(begin)
        else:
            begin, since, again = [], at, tx.now + _LOOK_AGAIN_MS
    due_at = None if since is None else max(delayed(schedule, row.name, since), again)
    return _Plan(row, {at: _run(row, at) for at in begin}, since, due_at, missed, waits=again > 0)


def _goes_on(tx: Transaction, row: ScheduleRow, at: int) -> Asking[bool]:
    """Does the run before go on, also when it was asked to stop, as some schedules have it? It is asked once."""
    if loaded(row.times).overlap != "cancel" or row.last_run is None:
        return True
    why, request = f"{row.name!r} begins its next run", f"schedule:{run_of(row.name, at)}"
    stop = Cancel(row.last_run, _NOBODY, "schedule", why, _GRACE_MS, request, insist=False)
    return (yield from stop(tx)) != "cancelled"
