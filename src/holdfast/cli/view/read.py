"""What the command line reads of a store beyond what `Client` offers to users. The only file here that does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.cli.view.console import command, user
from holdfast.cli.view.tree import History, OpenCall
from holdfast.client.approvals import Approval
from holdfast.client.client import Client, store_for
from holdfast.client.client import open as open_store
from holdfast.client.run import bury_owners
from holdfast.errors import NotStorable, StoreUnavailable, UnknownRun
from holdfast.values.codec import UNTYPED
from holdfast.values.text import cut, show
from holdfast.words.model import FINISHED, Event, RunRow
from holdfast.words.people import Actor
from holdfast.words.spent import NOTHING, Spent

FAMILY_LIMIT: Final = 1000  # runs of one tree that are looked at


@dataclass(slots=True)
class Account:
    """Everything about one run and those it started."""

    row: RunRow
    input: str
    events: list[Event]
    history: History
    questions: list[Approval]
    untaken: list[Event] = field(default_factory=list)  # what came to it and waits for a worker to take it
    children: list[Account] = field(default_factory=list)
    spent: Spent = NOTHING  # with all below it
    started_by: str | None = None  # or the run above all; None: a store of old, that had no audit

    def descendants(self) -> list[Account]:
        """All runs below this one."""
        return [each for child in self.children for each in (child, *child.descendants())]


@asynccontextmanager
async def existing(url: str | None) -> AsyncIterator[Client]:
    """Open a store that must be there: a command that only looks makes no new file."""
    store = store_for(url)
    path = getattr(store, "path", None)
    if path is not None and not os.path.exists(path):  # noqa: ASYNC240, PTH110
        raise StoreUnavailable(
            f"there is no store at {store.url!r}; `holdfast run FILE.py:AGENT` makes one, --db names another"
        )
    async with contextlib.AsyncExitStack() as stack:
        hf, trouble = None, None
        if path is None or store.is_backup or _can_be_written(path):
            try:
                hf = await stack.enter_async_context(at_terminal(open_store(url)))
                await bury_owners(hf.store)
            except StoreUnavailable as error:
                if path is None:
                    raise
                trouble = error
        if hf is None:
            assert path is not None
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-"))
            copy = await asyncio.to_thread(_copied, path, folder)
            try:
                hf = await stack.enter_async_context(at_terminal(open_store(f"sqlite:{copy}")))
            except StoreUnavailable as error:
                raise trouble or error  # noqa: B904 - the copy is nothing that the user knows of
            hf.store.url = store.url
            hf.store.refuses = (
                f"{store.url!r} can only be looked at and cannot be changed: its file, folder or disk cannot be written"
            )
        yield hf


@dataclass(frozen=True, slots=True)
class Held:
    """That none of a store's runs is carried, because it is a copy, and what to do."""

    what: str
    when: str
    command: str

    @property
    def advice(self) -> str:
        return f"{self.when} {self.command}"

    def __str__(self) -> str:
        return f"{self.what}. {self.advice}"


async def held(hf: Client, url: str | None) -> Held | None:
    """What holds the runs of this store; None when they are carried."""
    if not await hf.store.held():
        return None
    if hf.store.is_backup:
        made = command("restore", hf.store.url.removeprefix("sqlite:").partition("?")[0], db="sqlite:NEW.db")
        return Held("this is a backup: no run is carried in it, and it cannot be changed", "Make a store of it:", made)
    let_go = command("restore", "--activate", db=url)
    return Held("this store is a copy and held: no run is carried", "When the original does nothing any more:", let_go)


def _can_be_written(path: str) -> bool:
    """SQLite writes beside the file even to read it, so its folder counts too."""
    beside = [path + suffix for suffix in ("", "-wal", "-shm")]
    return os.access(os.path.dirname(path), os.W_OK) and all(  # noqa: PTH120
        os.access(file, os.W_OK)
        for file in beside
        if os.path.exists(file)  # noqa: PTH110
    )


def _copied(path: str, folder: str) -> str:
    """A copy of the file, with what its log has, in a folder that can be written."""
    for suffix in ("", "-wal"):
        if os.path.exists(path + suffix):  # noqa: PTH110
            copy = shutil.copyfile(path + suffix, os.path.join(folder, "copy.db" + suffix))  # noqa: PTH118
            os.chmod(copy, 0o600)  # noqa: PTH101
    return os.path.join(folder, "copy.db")  # noqa: PTH118


def at_terminal(hf: Client) -> Client:
    """The client as the user of this computer has it at a terminal, whom the audit names with this door."""
    return hf._through(Actor(user()), f"cli:{user()}")  # noqa: SLF001 - users act through doors of their own


async def row_of(hf: Client, run: str) -> RunRow:
    """The run, or `UnknownRun` that names near ones."""
    row = await hf.store.run(run)
    if row is None:
        near = [each.id for each in await hf.store.runs(limit=200) if run in each.id][:5]
        listed = f"; there are {', '.join(near)}" if near else "; `holdfast runs` lists those there are"
        raise UnknownRun(f"there is no run {run!r} in {hf.store.url}{listed}")
    return row


async def account(hf: Client, run: str) -> Account:
    """A run with its history and its children's."""
    root = await row_of(hf, run)
    members = [root] if root.parent_id is None else [root, *await _below(hf, root)]
    if root.parent_id is None:
        members = await family(hf, root)
    accounts: dict[str, Account] = {}
    asked = await hf.approvals(run=run)
    spent = await hf.store.spent_with_steps([row.id for row in members])
    starts = await hf.audit(run=root.root_id, action="start", limit=1)
    for row in members:
        events = await hf.store.journal(row.id, dropped=True)
        questions = [each for each in asked if each.run == row.id]
        history = History(await _as_it_came(hf, row, events))
        accounts[row.id] = Account(row, input_preview(row), events, history, questions)
        accounts[row.id].spent = spent.get(row.id, NOTHING)
        accounts[row.id].started_by = starts[0].by if starts else None
        accounts[row.id].untaken = await _untaken(hf, row)
        accounts[row.id].history.add_untaken(accounts[row.id].untaken)
        accounts[row.id].history.show_children({each.id: each for each in members})
    for row in members:
        if row.id != run and row.parent_id in accounts:
            accounts[row.parent_id].children.append(accounts[row.id])
    return accounts[run]


async def _as_it_came(hf: Client, row: RunRow, events: list[Event]) -> list[Event]:
    """The events, and those that came from outside at the time when somebody did it: a worker may have taken them much later."""
    came = dict[tuple[str, str], list[int]]()
    after = 0
    while after < row.inbox_seen and (page := await hf.store.inbox(row.id, after)):
        for signal in page:
            came.setdefault(_named(signal.kind, signal.recorded() or {}), []).append(signal.sent_at)
        after = page[-1].position
    made = []
    for event in events:
        times = came.get(_named(event.kind, event.data)) if event.key is None else None
        made.append(replace(event, at=times.pop(0)) if times else event)
    return made


def _named(kind: str, data: dict[str, Any]) -> tuple[str, str]:
    told = {name: value for name, value in data.items() if name != "position"}
    return kind, json.dumps(told, sort_keys=True)


async def _untaken(hf: Client, row: RunRow) -> list[Event]:
    """What came to a run since a worker last took from its inbox, as the events that it will be."""
    if row.status in FINISHED or row.inbox_count <= row.inbox_seen:
        return []
    made: list[Event] = []
    for signal in await hf.store.inbox(row.id, row.inbox_seen):
        data, seq, value = signal.recorded(), row.next_seq + len(made), signal.value
        if data is None or signal.kind == "run.resumed" or (signal.kind == "run.pausing" and row.status == "paused"):
            continue
        blob = json.loads(value)["$blob"] if value is not None and value.startswith('{"$blob":') else None
        text = value if blob is None else None
        made.append(Event(seq, signal.kind, None, data, text, blob, at=signal.sent_at, run=row.id))
    return made


async def _below(hf: Client, row: RunRow) -> list[RunRow]:
    found: list[RunRow] = []
    for child in await hf.store.runs(parent=row.id, limit=FAMILY_LIMIT):
        found += [child, *await _below(hf, child)]
    return found


async def family(hf: Client, root: RunRow) -> list[RunRow]:
    """A root run and its descendants, oldest first."""
    found = await hf.store.runs(root=root.id, limit=FAMILY_LIMIT)
    others = sorted((row for row in found if row.id != root.id), key=lambda row: row.created_at)
    return [root, *others]


async def input_text(hf: Client, row: RunRow) -> str:
    """The stored arguments of a run, wherever they are kept."""
    if row.input.startswith('{"$blob":'):
        return (await hf.store.blob(json.loads(row.input)["$blob"])).decode()
    return row.input


def input_preview(row: RunRow) -> str:
    """The arguments as people write them: `topic='otters', depth=2`."""
    if row.input.startswith('{"$blob":'):
        return "a large value"
    try:
        arguments: Any = UNTYPED.load(row.input)
    except NotStorable:
        return cut(row.input, 120)
    if not isinstance(arguments, dict):
        return cut(row.input, 120)
    return cut(", ".join(f"{name}={show(value, 120)}" for name, value in arguments.items()), 120)


async def latest_position(hf: Client, back: int = 0) -> int:
    """Where the newest event of the store stands, less `back`: found by halving, for positions only grow."""
    if not await hf.store.feed(0, None, 1):
        return 0
    low, high = 0, 1
    while await hf.store.feed(high, None, 1):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if await hf.store.feed(middle, None, 1):
            low = middle
        else:
            high = middle
    return max(high - back, 0)


def open_calls(hf: Client) -> dict[str, list[OpenCall]]:
    """By run: the steps whose bodies run in this process right now."""
    worker = hf._worker  # noqa: SLF001 - what goes on now is in no journal
    found: dict[str, list[OpenCall]] = {}
    for run, execution in list(worker.executions.items()) if worker is not None else ():
        for key, call in list(execution.calls.items()):
            began = getattr(call, "_began_at", 0)
            if began and not call.numbered and key not in execution.waits:
                found.setdefault(run, []).append(OpenCall(key, call.name, call.preview, began))
    return found
