"""Infos: what lists show of runs, events, agents and deeds, each made of a row of the store."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from holdfast.client.present import Doing, Forked, doing, stopping
from holdfast.errors import StoreUnavailable
from holdfast.store.journal import Line
from holdfast.store.present import Present
from holdfast.store.store import Store
from holdfast.values.codec import beginning, preview
from holdfast.words.budget import Asked, Budget, Purse
from holdfast.words.durations import moment
from holdfast.words.life import is_known, life_of, worked
from holdfast.words.model import CRASHES_APART, Event, Published, RunRow, is_served
from holdfast.words.progress import Progress
from holdfast.words.spent import NOTHING, Spent
from holdfast.words.triggers import OUTGOING

_BURY_S: Final = 2.0
_PREVIEW: Final = 160  # characters of a value that lists of events show


@dataclass(frozen=True, slots=True)
class FailureInfo:
    """The exception that failed a run.

    Attributes:
        type: Its class.
        message: Its text.
        traceback: Where it came from, as Python writes it.

    Example:
        ```python
        failure = (await run.info()).failure
        print("" if failure is None else failure.traceback)
        ```
    """

    type: str
    message: str
    traceback: str

    @classmethod
    def of(cls, error: dict[str, Any]) -> FailureInfo:
        return cls(str(error.get("type")), str(error.get("message")), str(error.get("traceback") or ""))


@dataclass(frozen=True, slots=True)
class PlanItem:
    """An item of a run's plan.

    Attributes:
        text: What is to be done.
        state: "done", "next" (the first that is not done) or "open".

    Example:
        ```python
        left = [item.text for item in (await run.info()).items if item.state != "done"]
        ```
    """

    text: str
    state: Literal["done", "next", "open"]


def _items(data: dict[str, Any] | None) -> tuple[PlanItem, ...]:
    """Read the items of the event of a plan."""
    found: list[PlanItem] = []
    for text, done in (data or {}).get("items", ()):
        ahead = any(item.state == "next" for item in found)
        found.append(PlanItem(str(text), "done" if done else "open" if ahead else "next"))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The state of a run, as lists show it.

    Attributes:
        id: The run.
        agent: The name of its agent.
        status: "ready", "running", "waiting", "paused", "completed", "failed", "cancelled" or "moved".
        waits_for: "person", "message", "child", "conversation", "retry", "timer", "rate", "slot", "group" or "worker".
        reason: Why it is paused or was cancelled.
        error: The type and text of the exception that failed it.
        labels: The texts it was started with.
        parent: The run that started it.
        root: The run above all.
        version: The version of its agent, if it is pinned.
        steps: How many steps completed.
        crashes: How often its process ended since it last made progress.
        due_at: When it goes on by itself.
        created_at: When it was started.
        started_at: When a worker first took it.
        finished_at: When it ended.
        progress: What it said last by `progress`; if it never did, its plan.
        plan: How much of its plan is done, if it has one.
        spent: What it spent, with all runs below it.
        budget: What it may spend: its own budget, with what people have given on top.
        worker: The worker that has it; if that is gone, the one that had it.
        worker_gone: The worker died, or stands still for longer than its lease, in the middle of the run.
        queue: The queue that it waits in.
        priority: From 0 to 9; the highest is taken first.
        updated_at: When its history or its state last changed; if its worker was found dead, the last sign of that.
        epoch: How often a worker has taken it.
        events: How many events its history has.
        interruptions: How often its process ended in the middle of it, in all; None if that was not counted from its begin.
        worked_ms: For how long workers had it in memory; None if that was not counted from its begin.
        stopping: "cancelling" or "pausing", while it still goes on.
        failure: The exception that failed it, with its traceback.
        items: The items of its plan.
        doing: What it does or waits for now.
        life: What it did and for how long, the oldest first, at most 24 pieces of a kind and milliseconds. The kinds are "work",
            "wait", "person", "retry", "torn" (its process was gone), "paused" and "ready". Unless the run has ended, the last
            piece lasts.
        forked: Where it comes from, if it is a fork.

    Example:
        ```python
        info = await run.info()
        assert (info.status, info.waits_for) == ("waiting", "person")
        ```
    """

    id: str
    agent: str
    status: str
    waits_for: str | None
    reason: str | None
    error: str | None
    labels: dict[str, str]
    parent: str | None
    root: str
    version: str | None
    steps: int  # that completed; failed ones are not among them
    crashes: int
    due_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    progress: Progress | None = None  # what it said last by `progress`; if it never did, its plan
    plan: Progress | None = None  # how much of its plan is done, if it has one
    spent: Spent = NOTHING  # with all below it
    budget: Budget | None = None
    worker: str | None = None  # its owner; if that is gone, the owner when it was cut off
    worker_gone: bool = False  # it died, or stands still for longer than its lease, in the middle of the run
    queue: str = "default"
    priority: int = 5
    updated_at: datetime | None = None
    epoch: int = 0
    events: int = 0
    interruptions: int | None = None
    worked_ms: int | None = None
    stopping: Literal["pausing", "cancelling"] | None = None
    failure: FailureInfo | None = None
    items: tuple[PlanItem, ...] = ()
    doing: Doing | None = None
    life: tuple[tuple[str, int], ...] = ()
    forked: Forked | None = None

    @classmethod
    def of(
        cls,
        row: RunRow,
        published: Published,
        now: int,
        said: dict[str, dict[str, Any]] | None = None,
        spent: Spent | None = None,
        present: Present | None = None,
        granted: Sequence[Asked] = (),
    ) -> RunInfo:
        def when(at: int | None) -> datetime | None:
            return None if at is None else moment(at)

        error = None if row.error is None else json.loads(row.error)
        budget, began = Budget.seen(row.budget), row.started_at or row.created_at
        if budget is not None and granted:
            budget = Purse(row.id, row.uid, budget, began, NOTHING, granted).in_force
        waits_for = row.waits_for if row.status in ("waiting", "ready") else None
        if is_held_back(row, published, now):
            waits_for = "group"
        elif is_forsaken(row, now) or (wants_worker(row, now) and not is_served(row, published)):
            waits_for = "worker"
        elif is_put_off(row, now):
            waits_for = "timer"
        here, forked = present or Present(), None if present is None else present.fork
        timed = row.status == "waiting" or waits_for in ("rate", "timer")
        return cls(
            id=row.id, agent=row.agent, status=row.status, waits_for=waits_for, reason=row.reason,
            error=None if error is None else f"{error.get('type')}: {error.get('message')}",
            labels=json.loads(row.labels), parent=row.parent_id, root=row.root_id, version=row.version, steps=row.steps,
            crashes=row.crash_count, due_at=when(row.due_at) if timed else None,
            created_at=moment(row.created_at), started_at=when(row.started_at), finished_at=when(row.finished_at),
            progress=Progress.of((said or {}).get("progress") or (said or {}).get("plan")),
            plan=Progress.of((said or {}).get("plan")), spent=spent or NOTHING,
            budget=budget,
            worker=row.lease_owner if row.status == "running" else None, worker_gone=is_forsaken(row, now),
            queue=row.queue, priority=row.priority, updated_at=moment(row.updated_at), epoch=row.lease_epoch,
            events=row.next_seq, interruptions=row.interruptions if is_known(row) else None,
            worked_ms=worked(row, now, here.last_sign),
            stopping=stopping(row, here), failure=None if error is None else FailureInfo.of(error),
            items=_items((said or {}).get("plan")), doing=doing(row, waits_for, here),
            life=life_of(row, now, here.last_sign),
            forked=None if forked is None else Forked(*forked),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Numbers of runs.

    Attributes:
        counts: How many there are in each state.
        needs: How many need a person.
        exact: Whether all that have ended were counted; if not, there are more.

    Example:
        ```python
        counts = (await hf.run_counts()).counts
        print(counts["failed"], "of", sum(counts.values()))
        ```
    """

    counts: dict[str, int]
    needs: int
    exact: bool


async def infos_of(store: Store, rows: Sequence[RunRow]) -> list[RunInfo]:
    """Say of these runs what lists show; however many there are, each kind of it is read once."""
    now, ids = store.clock.now(), [row.id for row in rows]
    served = await store.agents() if any(wants_worker(row, now) for row in rows) else {}
    said, spent, present = await store.progress(ids), await store.spent_with_steps(ids), await store.present(ids)
    granted = await granted_to(store, rows)
    return [
        RunInfo.of(
            row,
            served,
            now,
            said.get(row.id),
            spent.get(row.id),
            present.get(row.id, Present()),
            granted.get(row.id, ()),
        )
        for row in rows
    ]


async def granted_to(store: Store, rows: Iterable[RunRow]) -> dict[str, list[Asked]]:
    """Read what people have given to the budgets that these runs have; without one nothing is read."""
    with_budget = [row.id for row in rows if row.budget not in (None, "{}")]
    return await store.granted(with_budget) if with_budget else {}


def shared_info(row: RunRow, events: Iterable[Event], now: int) -> RunInfo:
    """Say of a run what lists show, by its row and its history alone: a fork has it from another run, and it may be deleted."""
    said: dict[str, dict[str, Any]] = {}
    spent = NOTHING
    for event in events:
        if event.kind in ("progress", "plan", "step.progress"):
            said["plan" if event.kind == "plan" else "progress"] = event.data
        if "spent" in event.data:
            spent += Spent.of(event.data["spent"])
    return RunInfo.of(row, {}, now, said, spent)


def wants_worker(row: RunRow, now: int) -> bool:
    """Is it for a worker to go on with this run?"""
    if row.status == "ready":
        return not is_put_off(row, now)
    return row.status in ("waiting", "running") and row.due_at is not None and row.due_at <= now


def is_forsaken(row: RunRow, now: int) -> bool:
    """Did its worker die, or stand still for longer than its lease, in the middle of it?"""
    return row.status == "running" and row.due_at is not None and row.due_at <= now


def crashes(row: RunRow, now: int) -> int:
    """Count how often its process ended since it last made progress; the row counts the last end only at the next claim."""
    return row.crash_count + is_forsaken(row, now)


def is_held_back(row: RunRow, published: Published, now: int) -> bool:
    """Is it due, and carried apart because of its crashes, so that live workers with its code may carry others first?"""
    return wants_worker(row, now) and crashes(row, now) >= CRASHES_APART and is_served(row, published)


def is_put_off(row: RunRow, now: int) -> bool:
    """Was it started to begin later, and is it not yet that time?"""
    return row.status == "ready" and row.waits_for is None and row.due_at is not None and row.due_at > now


async def bury_owners(store: Store, rows: Iterable[RunRow] | None = None) -> bool:
    """Let go of runs whose worker died, as a worker would, so that what is told of them is true; tells whether there were any.

    Nobody is looked for if no other process carries one of these runs. A store that cannot be written is told of as it is.
    """
    if rows is not None and all(row.status != "running" or row.lease_owner == store.worker_id for row in rows):
        return False
    if store.ailment() is not None:
        return False
    with contextlib.suppress(TimeoutError, StoreUnavailable):
        async with asyncio.timeout(_BURY_S):
            return await store.recover() > 0
    return False


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One line of a run's history.

    Attributes:
        position: Its place among the events of all runs.
        run: The run.
        seq: Its place in the run's history, from 0 on.
        kind: One of the kinds in the design page, such as "step.completed".
        key: The call it belongs to.
        at: When.
        data: What else there is to say, by kind.
        epoch: The number of the claim under which it was written.
        dropped: The event of the retry that took it out of the history.
        preview: The value that it holds, in a line cut to 160 characters; `run.value(seq)` reads it.
        size: The bytes of that value, as it is stored.

    Example:
        ```python
        kinds = [event.kind async for event in run.events(follow=False)]
        ```
    """

    position: int
    run: str
    seq: int
    kind: str
    key: str | None
    at: datetime
    data: dict[str, Any]
    epoch: int = 0
    dropped: int | None = None
    preview: str | None = None
    size: int | None = None

    @classmethod
    def of(cls, event: Event) -> RunEvent:
        told, size = event.value, event.size if isinstance(event, Line) else None
        if told is not None:
            told = preview(told, _PREVIEW) if size is None or size <= len(told) else beginning(told, _PREVIEW)
        return cls(
            event.position, event.run, event.seq, event.kind, event.key, moment(event.at), event.data, event.epoch,
            event.dropped, told, size,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """An agent that a worker has published.

    Attributes:
        name: Its name.
        version: Its newest version.
        schema: The JSON schema of its arguments, as one object.
        served: Whether a live worker serves it.
        versions: The versions that live workers serve.

    Example:
        ```python
        takes = {agent.name: list(agent.schema["properties"]) for agent in await hf.agents()}
        assert takes["research"] == ["topic"]
        ```
    """

    name: str
    version: str | None
    schema: dict[str, Any]  # the JSON schema of its arguments, as one object
    served: bool
    versions: tuple[str, ...]

    @classmethod
    def of(cls, name: str, version: str | None, schema: str, served: frozenset[str]) -> AgentInfo:
        told = {key: value for key, value in json.loads(schema).items() if key not in ("x-flow", "x-budget")}
        return cls(name, version, told, bool(served), tuple(sorted(served - {""})))


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that was done from outside, as the audit has it.

    Attributes:
        id: Its place in the audit.
        at: When.
        run: The run; empty for what was done to the store.
        by: The person.
        action: What was done, such as "approve".
        data: What else there is to say, such as the reason.
        via: The door: "python", "cli:USER", "http:TOKEN", "unix:USER", "run" or "worker"; empty in rows of the first version.
        value: The value that was approved, denied or answered.
        erased_at: Since then it is without its value and all free text.
        subject: Besides the run, or instead of one, what it was done to or with: "schedule nightly", "notification ops", "trigger
            github", "announcement order.paid", "conversation ana", "token 5f…"; empty if there is nothing.

    Example:
        ```python
        (started,) = await hf.audit(action="start")
        assert (started.run, started.via) == ("r-1", "python")
        ```
    """

    id: int
    at: datetime
    run: str  # empty for what was done to the store
    by: str
    action: str
    data: dict[str, Any]
    via: str = (
        ""  # 'python', 'cli:USER', 'http:TOKEN', 'unix:USER', 'run' or 'worker'; empty in rows of the first version
    )
    value: Any = None  # what was approved, denied or answered
    erased_at: datetime | None = None  # since then without its value and all free text
    subject: str = ""  # "schedule nightly"; what it was done to besides a run, or instead of one

    @classmethod
    def of(cls, row: dict[str, Any], value: Any) -> Deed:
        """A row of the store, with its value."""
        erased_at = None if row["erased_at"] is None else moment(row["erased_at"])
        return cls(
            row["id"], moment(row["at"]), row["run"], row["actor"], row["action"], row["data"], row["via"] or "",
            value, erased_at, _subject(row["action"], row["data"]),
        )  # fmt: skip


def _subject(action: str, data: dict[str, Any]) -> str:
    """Name what a deed was done to besides a run, from what its row tells."""
    if action == "refused":
        return ""  # its token names the person
    for key, noun in _SUBJECTS.items():
        name = data.get(key)
        if isinstance(name, str) and name:
            if name.startswith(OUTGOING):  # the messages of a notification are deliveries, too
                return f"notification {name.removeprefix(OUTGOING)}"
            return f"{noun} {name}"
    return ""


_SUBJECTS: Final = {
    "schedule": "schedule", "notification": "notification", "trigger": "trigger", "event": "announcement",
    "conversation": "conversation", "token": "token",
}  # fmt: skip


async def starter(store: Store, run: str) -> str | None:
    """Name the person who started a run, here or where it comes from; None where no audit has it."""
    found = await store.audit(run, 1, by=None, actions=["start"], before=None)
    if found:
        name: str = found[0]["actor"]
        return name
    came = await store.audit(run, 1, by=None, actions=["import"], before=None)
    return came[0]["data"].get("started_by") if came else None
