"""The fleet as clients see it: workers, workers lost lately, queues, rates, missing versions, the last hour, the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, cast

from holdfast.client.filter import working
from holdfast.client.info import bury_owners
from holdfast.store.fleet import LostRow, RateRow, UnservedRow, WorkerRow
from holdfast.store.runs import Census
from holdfast.store.store import Store
from holdfast.words.durations import moment
from holdfast.words.limits import SHARED

_LATE_MS: Final = 60_000
How = Literal["dead", "lease", "drained"]


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker that is alive.

    Attributes:
        id: Its id: the name it was given, if any, and what is random.
        version: The version of its code, if it says one.
        agents: The agents it serves: names, and names with a version behind a space.
        queues: The queues it takes; None: all.
        state: "alive", "draining" (it was told to stop) or "hangs" (it has said nothing for too long).
        started_at: When it began.
        seen_at: When it last said that it is there.
        running: How many runs it had in memory then.
        limit: How many it may have.
        steps_1m: How many steps it had completed in the minute before.

    Example:
        ```python
        busy = [worker.id for worker in (await hf.fleet()).workers if worker.running]
        ```
    """

    id: str
    version: str | None
    agents: tuple[str, ...]
    queues: tuple[str, ...] | None
    state: Literal["alive", "draining", "hangs"]
    started_at: datetime
    seen_at: datetime
    running: int | None
    limit: int | None
    steps_1m: int | None

    @classmethod
    def of(cls, row: WorkerRow, now: int) -> WorkerInfo:
        load = row.load
        beats_ms = load.get("beats_ms", _LATE_MS)
        hangs = now - row.seen_at > beats_ms * 3 // 2
        return cls(
            row.id, row.version, tuple(row.agents), None if row.queues is None else tuple(row.queues),
            "hangs" if hangs else "draining" if load.get("draining") else "alive", moment(row.started_at), moment(row.seen_at),
            load.get("running"), load.get("limit"), load.get("steps_1m"),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A worker that is gone, or lost runs because it stood still.

    Attributes:
        id: Its id.
        version: The version of its code, if it said one.
        how: "dead" (its process was gone), "lease" (it stood still for longer than its leases) or "drained" (it stopped by itself).
        at: When that was noticed.
        moved: How many of its runs went on with others, or were given back.
        after_ms: The longest time from the last sign of it in one of these runs until another worker had it.

    Example:
        ```python
        killed = [worker.id for worker in (await hf.fleet()).lost if worker.how == "dead"]
        ```
    """

    id: str
    version: str | None
    how: How
    at: datetime
    moved: int
    after_ms: int | None

    @classmethod
    def of(cls, row: LostRow) -> LostWorker:
        return cls(row.id, row.version, cast(How, row.how), moment(row.at), row.moved, row.after_ms)


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """The unfinished runs of a queue.

    Attributes:
        queue: Its name.
        ready: How many wait to be taken, now or later.
        running: How many workers have.
        waiting: How many wait for something.
        due: How many are due and not taken.
        oldest_due_at: Since when the longest due one is.

    Example:
        ```python
        late = {queue.queue: queue.due for queue in (await hf.fleet()).queues}
        ```
    """

    queue: str
    ready: int
    running: int
    waiting: int
    due: int
    oldest_due_at: datetime | None


@dataclass(frozen=True, slots=True)
class RateInfo:
    """A rate that a provider has paused, or that runs wait for.

    Attributes:
        key: Its name.
        paused_until: Until when it is paused.
        waits: How many runs wait for their turns before they begin.
        because: Which step was refused, and with which words.

    Example:
        ```python
        paused = [rate.key for rate in (await hf.fleet()).rates if rate.paused_until]
        ```
    """

    key: str
    paused_until: datetime | None
    waits: int
    because: str | None

    @classmethod
    def of(cls, row: RateRow) -> RateInfo:
        until = None if row.paused_until is None else moment(row.paused_until)
        return cls(row.key.removeprefix(SHARED), until, row.waits, row.because)


@dataclass(frozen=True, slots=True)
class MissingVersion:
    """Code that runs are due for and no live worker has.

    Attributes:
        agent: The agent.
        version: The version that they are pinned to.
        runs: How many they are.
        oldest_due_at: Since when the longest due one is.

    Example:
        ```python
        lacking = [(code.agent, code.version) for code in (await hf.fleet()).versions]
        ```
    """

    agent: str
    version: str | None
    runs: int
    oldest_due_at: datetime

    @classmethod
    def of(cls, row: UnservedRow) -> MissingVersion:
        return cls(row.agent, row.version, row.runs, moment(row.first_due_at))


@dataclass(frozen=True, slots=True)
class MinuteInfo:
    """The work of all workers in one minute; it is told when the minute is over.

    Attributes:
        at: When it began.
        steps: How many steps completed.
        ended: How many runs ended.
        failed: How many of these failed.

    Example:
        ```python
        done = sum(minute.steps for minute in (await hf.fleet()).minutes)
        ```
    """

    at: datetime
    steps: int
    ended: int
    failed: int


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """The store behind a fleet.

    Attributes:
        kind: "sqlite" or "postgresql".
        where: Its URL, without a password; of a file without its folder, which is nobody's business on another computer.
            Over HTTP, of a database only its kind.
        bytes: How large it is.
        events: How many events it has, about.
        runs: How many runs it has, about.

    Example:
        ```python
        store = (await hf.fleet()).store
        print(store.kind, store.bytes)
        ```
    """

    kind: Literal["sqlite", "postgresql"]
    where: str
    bytes: int
    events: int
    runs: int


@dataclass(frozen=True, slots=True)
class Fleet:
    """Workers and what they share, at one moment.

    Attributes:
        now: The moment, by the store's clock.
        workers: Workers that are alive, the oldest first.
        lost: Workers that were lost within a day, the last one first.
        queues: What waits and runs, by queue.
        rates: Rates that are paused, or that runs wait for.
        versions: Code that runs are due for and no live worker has.
        minutes: The minutes of the last hour in which anything was done.
        store: The store.

    Example:
        ```python
        fleet = await hf.fleet()
        print(len(fleet.workers), "workers,", sum(queue.due for queue in fleet.queues), "runs due")
        ```
    """

    now: datetime
    workers: tuple[WorkerInfo, ...]
    lost: tuple[LostWorker, ...]
    queues: tuple[QueueInfo, ...]
    rates: tuple[RateInfo, ...]
    versions: tuple[MissingVersion, ...]
    minutes: tuple[MinuteInfo, ...]
    store: StoreInfo


async def fleet(store: Store) -> Fleet:
    """Look at the fleet. Nothing is read that grows with what has ended."""
    await bury_owners(store)
    fits = await working(store)
    counts, workers = await store.run_counts(**fits), await store.fleet_workers()
    now = store.clock.now()
    return Fleet(
        moment(now), tuple(WorkerInfo.of(row, now) for row in workers),
        tuple(LostWorker.of(row) for row in await store.lost_workers()), tuple(_queues(await store.census(_LATE_MS))),
        tuple(RateInfo.of(row) for row in await store.busy_rates()),
        tuple(MissingVersion.of(row) for row in await store.unserved(list(fits.get("served") or ()))),
        tuple(MinuteInfo(moment(row.at), *row[1:]) for row in await store.minutes()),
        StoreInfo(*_place(store.url), *(await store.size()), sum(counts.states.values())),
    )  # fmt: skip


def _place(url: str) -> tuple[Literal["sqlite", "postgresql"], str]:
    return (
        ("sqlite", f"sqlite:{url.removeprefix('sqlite:').rpartition('/')[2]}")
        if url.startswith("sqlite:")
        else ("postgresql", url)
    )


def _queues(census: Iterable[Census]) -> Iterable[QueueInfo]:
    found: dict[str, dict[str, Census]] = defaultdict(dict)
    for row in census:
        found[row.queue][row.status] = row
    for queue, states in sorted(found.items()):
        due = [row.first_due_at for row in states.values() if row.due and row.first_due_at is not None]
        ready, running, waiting = (
            states[each].runs if each in states else 0 for each in ("ready", "running", "waiting")
        )
        late = sum(row.due for row in states.values())
        yield QueueInfo(queue, ready, running, waiting, late, moment(min(due)) if due else None)
