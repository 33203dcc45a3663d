"""What the store tests share: a place to open stores in, a clock that stands still, and short ways to say things."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import holdfast.store
from holdfast.store.appends import Append, Transition
from holdfast.store.operations import Faults
from holdfast.store.queries import text_of
from holdfast.store.runs import NewRun
from holdfast.store.store import Store
from holdfast.words.clock import Clock, Timer
from holdfast.words.model import Event, RunRow

SOURCE = Path(holdfast.store.__file__).parents[2]
TTL = 30_000
# Of other queries, and none themselves.
PARTS = frozenset({"ours", "takeable", "woken", "spacing", "appending", "simple", "arrival"}) | frozenset(
    re.findall(r"^-- name: (\w+)\n-- Part of (?:others|another):", text_of("queries.sql"), re.MULTILINE)
)
_uids = itertools.count()


class ManualClock:
    """Stands still until it is told otherwise."""

    def __init__(self, now: int = 1_000_000) -> None:
        self.time = now

    def now(self) -> int:
        return self.time

    def call_at(self, when: int, callback: Callable[[], object]) -> Timer:
        raise NotImplementedError


class Gate:
    """A fault hook that holds the writer before a commit until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.opened.set()

    def shut(self) -> None:
        self.reached.clear()
        self.opened.clear()

    def before_commit(self, writes: list[str]) -> None:
        self.reached.set()
        assert self.opened.wait(20)

    def after_commit(self, writes: list[str]) -> None: ...


class Place:
    """A database, and how to open stores on it."""

    def __init__(self, connect: Callable[..., Store], url: str) -> None:
        self.connect, self.url = connect, url
        self.path = url.partition(":")[2]

    @asynccontextmanager
    async def open(self, clock: Clock | None = None, faults: Faults | None = None) -> AsyncIterator[Store]:
        store = self.connect(self.url, clock=clock, faults=faults)
        await store.open()
        try:
            yield store
        finally:
            await store.close()


def new(run: str, agent: str = "agent", **fields: Any) -> NewRun:
    return NewRun(run, f"uid-{next(_uids)}", agent, fields.pop("input", "{}"), **fields)


def step(seq: int = 0, key: str | None = None, value: str = "1", **data: Any) -> Event:
    """A completed step; `write` gives it its seq, and a key of its own if it has none."""
    return Event(seq, "step.completed", key, data, value)


def write(run: RunRow, *events: Event, **fields: Any) -> Append:
    """An append by the owner that claimed this row. The row's next_seq is moved on, so writes can follow each other."""
    append = Append(run.id, run.lease_epoch, run.next_seq, list(events), **fields)
    for number, event in enumerate(events):
        event.seq = run.next_seq + number
        if event.key is None and event.kind == "step.completed":
            event.key = f"work#{event.seq}"
    run.next_seq += len(events)
    return append


async def owned(store: Store, run: str, **fields: Any) -> RunRow:
    """A new run that this store has claimed."""
    await store.create(new(run, **fields))
    (row,) = await store.claim([fields.get("agent", "agent")], 1, TTL)
    assert row.id == run
    return row


async def park(store: Store, row: RunRow, *events: Event, seen: int | None = None, **transition: Any) -> None:
    await store.append(write(row, *events, transition=Transition("waiting", inbox_seen=seen, **transition)))


async def finish(store: Store, row: RunRow, status: str = "completed", **transition: Any) -> None:
    event = Event(0, f"run.{status}")
    await store.append(write(row, event, transition=Transition(status, **transition)))


async def recovered(store: Store) -> int:
    """How many runs of the dead became due. A server takes a moment to notice that a session has ended."""
    while not (count := await store.recover()):
        await asyncio.sleep(0.005)
    return count


async def fed(store: Store, after: int, count: int, kinds: list[str] | None = None) -> list[Event]:
    """So many events of the feed. On PostgreSQL they come a moment late: when no older transaction of any program is open."""
    while len(found := await store.feed(after, kinds)) < count:
        await asyncio.sleep(0.01)
    return found


def python(script: str, *arguments: str, before: tuple[str, ...] = (), **options: Any) -> subprocess.Popen[str]:
    """A real process that runs this script. It ends with the test's process, at the latest by its closed stdin."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(SOURCE), str(Path(__file__).parents[2])])}
    return subprocess.Popen([*before, sys.executable, "-c", script, *arguments], env=environment, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)  # fmt: skip


def files_beside(place: Place) -> list[str]:
    """What lies in the folder of the store's incarnations, where it has one."""
    folder = Path(place.path + "-workers")
    return sorted(file.name for file in folder.iterdir()) if place.url.startswith("sqlite:") else []


def line(process: subprocess.Popen[str]) -> str:
    """The next line a process prints: how a test waits for it."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


class LosesAnswers:
    """The answer of the next commit is lost on the way."""

    def __init__(self) -> None:
        self.lose = False

    def before_commit(self, writes: list[str]) -> None: ...

    def after_commit(self, writes: list[str]) -> None:
        if self.lose:
            self.lose = False
            raise OSError("lost")
