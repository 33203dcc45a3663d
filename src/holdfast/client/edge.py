"""The edge of a client: what the command line and the server ask of one beyond what users are offered.

Look here when an edge needs something of the store, the worker or the audit: no edge reaches behind a client by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import getpass
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.client import sessions
from holdfast.client.approvals import Approval, Room
from holdfast.client.bundles import Bundle, Judgement, add_decisions, judged, new_decisions, read
from holdfast.client.calls import OpenCall
from holdfast.client.client import Client, open, store_for
from holdfast.client.conversations import Message
from holdfast.client.fleet import Fleet
from holdfast.client.history import value_text
from holdfast.client.info import Deed, RunEvent, bury_owners
from holdfast.client.keys import Key, Keys
from holdfast.client.links import link_of, why_over
from holdfast.client.refusals import Try
from holdfast.client.sessions import Begun, Identity
from holdfast.client.triggers import DeliveryInfo
from holdfast.errors import NotAllowed, StoreUnavailable, UnknownRun, Unsupported
from holdfast.store.approvals import QuestionAges, check_allowed
from holdfast.store.blobs import unspilled
from holdfast.store.bundles import Import
from holdfast.store.calls import news_of
from holdfast.store.changes import News
from holdfast.store.contract import Ailment
from holdfast.store.runs import Census
from holdfast.store.store import Store
from holdfast.store.triggers import UNDONE, Tally
from holdfast.words.calls import OpenBody
from holdfast.words.durations import moment
from holdfast.words.features import Feature
from holdfast.words.model import ApprovalRow, Event, Published, RunRow, Signal, checked_kinds, checked_run_id
from holdfast.words.people import GROUP, Actor, Ballot, passed_on
from holdfast.words.triggers import Delivery
from holdfast.worker.worker import Worker


def user() -> str:
    """Name the user who runs this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "someone"


def version() -> str:
    """Name the version of this package."""
    return str(getattr(sys.modules["holdfast"], "__version__", "unknown"))


class Overdue(NamedTuple):
    """Runs that may not go on by themselves, with what live workers serve at this moment."""

    rows: list[RunRow]
    served: Published
    queues: frozenset[str] | None
    now: int


class Edge:
    """A client as an edge of this package uses it."""

    __slots__ = ("_hf",)

    def __init__(self, hf: Client) -> None:
        self._hf = hf

    # Actors

    def through(self, actor: Actor, door: str, only: Mapping[str, str] | None = None) -> Client:
        """Make a view of the client for an actor at a door; the audit names both. `only` limits the runs that it sees."""
        return self._hf._through(actor, door, only)

    @property
    def feed_alike(self) -> Callable[[int, int], bool] | None:
        """Tells whether two positions of the feed stand for the same place; None: if they are the same number."""
        return self._hf.store.feed_alike

    async def check_sees(self, run: str) -> None:
        """Raise `UnknownRun` if a run is not there for this view."""
        await self._hf._check_sees(run)

    async def sees(self, run: str) -> bool:
        """Tell whether a run is there for this view, or would be if it were there."""
        return self._hf._only is None or await self._hf.store.sees_run(run, self._hf._only)

    async def begin_session(self, who: Identity, whose: str, account: int | None) -> Begun:
        """Begin a session of a user who has proved an identity."""
        return await self._hf._written(sessions.begin(self._hf.store, who, whose, account), "Sign in again")

    async def session(self, cookie: str) -> Identity | None:
        """Find the user of the session with this cookie, if it is good."""
        return await sessions.found(self._hf.store, cookie)

    async def end_session(self, digest: str) -> None:
        """End a session."""
        await self._hf._written(self._hf.store.end_session(digest), "Sign out again")

    async def use_once(self, word: str, seconds: int) -> bool:
        """Note that a word was used, for so long; False if it was before."""
        return await self._hf._written(self._hf.store.use_once(sessions.digest(word), seconds * 1000), "Sign in again")

    async def link(self, secret: str) -> Identity | None:
        """Find the person who may decide by the link with this secret, if it is good."""
        return await link_of(self._hf.store, secret)

    async def why_over(self, secret: str) -> str:
        """Say why a link is not good."""
        return await why_over(self._hf.store, secret)

    async def fleet(self) -> Fleet:
        """Look at the fleet, except for where a database is: a reader of runs need not know its host."""
        found = await self._hf.fleet()
        seen = found.store if found.store.kind == "sqlite" else replace(found.store, where=found.store.kind)
        return replace(found, store=seen)

    def note_refused(self, refused: Try) -> None:
        """Count a refused try for the audit."""
        self._hf._refusals.note(refused)

    async def move(self, run: str, to: str, there: Client, **how: Any) -> Bundle:
        """Move a run to the store of another client, as `Run.export` does, if that store would import it."""
        how = {"effects": "ask", "keys": None, "by": ""} | how
        return await self._hf._export(run, to, move=await there.store_id(), there=there, **how)

    # Lists that are cut to a size

    async def approvals(
        self,
        room: Room,
        *,
        run: str | None,
        to: str | Actor | None,
        open: bool,
        limit: int,
        status: Iterable[str] | None = None,
        after: str | None = None,
    ) -> tuple[list[Approval], str | None]:
        """List questions as `hf.approvals` does, with so much of the values as there is room for; and where to go on."""
        return await self._hf._listed(room, run=run, to=to, open=open, limit=limit, status=status, after=after)

    async def audit(
        self, room: Room, *, run: str | None, by: str | None, action: Iterable[str] | None, before: int | None, limit: int
    ) -> list[Deed]:  # fmt: skip
        """List deeds as `hf.audit` does, with so much of the values as there is room for."""
        return await self._hf._audited(room, run=run, by=by, action=action, before=before, limit=limit)

    async def messages(self, room: Room, conversation: str, first: int, end: int) -> list[Message[Any]]:
        """Read messages of a conversation from a place to before another, with so much of them as there is room for."""
        store, made = self._hf.store, list[Message[Any]]()
        for row in await store.said(conversation, first, end):
            made.append(Message(row.position, await room.value(store, row.value), row.run, moment(row.at)))
        return made

    # The store

    @property
    def url(self) -> str:
        """The URL of the store, without a password."""
        return self._hf.store.url

    @property
    def is_open(self) -> bool:
        """Is the client open?"""
        return self._hf._store is not None

    @property
    def worker_id(self) -> str:
        """The id under which this process holds leases."""
        return self._hf.store.worker_id

    @property
    def is_backup(self) -> bool:
        """Is the store the file of a backup, which refuses every write?"""
        return self._hf.store.is_backup

    @property
    def only_reads(self) -> bool:
        """Is the store one that can only be looked at?"""
        return self._hf.store.refuses is not None

    @property
    def lacks(self) -> Mapping[Feature, str]:
        """Features that the ground does not have, each with why and what to do instead. What is lacked is not offered."""
        return self._hf.store.lacks

    def check_has(self, feature: Feature) -> None:
        """Refuse a command about what the ground does not have: `Unsupported`."""
        if feature in self.lacks:
            raise self._hf.store.refusal(feature)

    def now(self) -> int:
        """Read the store's clock."""
        return self._hf.store.clock.now()

    def ailment(self) -> Ailment | None:
        """Say what keeps the store from being written, if anything does."""
        return self._hf.store.ailment()

    async def ping(self) -> None:
        """Ask the store the quickest question there is: no run has this id."""
        await self._hf.store.run("")

    async def is_held(self) -> bool:
        """Is the store a copy, none of whose runs is carried?"""
        return await self._hf.store.held()

    async def facts(self) -> dict[str, Any]:
        """Read all of the store, and say what is in it and whether it is whole."""
        return await self._hf.store.facts()

    async def census(self, late_ms: int) -> tuple[list[Census], QuestionAges, list[Tally]]:
        """Count runs, open questions and deliveries that are not done, for metrics."""
        store = self._hf.store
        return await store.census(late_ms), await store.question_ages(), await store.tally_deliveries(UNDONE)

    async def agents(self) -> Published:
        """Read what was published, and which of it live workers serve."""
        return await self._hf.store.agents()

    async def paused_rates(self) -> list[tuple[str, int]]:
        """List the rates that a provider has paused, each with the time until which."""
        return [(key.removeprefix("rate:"), until) for key, until in await self._hf.store.paused_rates()]

    # Deliveries

    async def webhook(self, name: str) -> dict[str, Any] | None:
        """Read what is declared of a webhook: its verifier, and how much it takes; None if there is none of this name."""
        row = await self._hf.store.trigger(name)
        return None if row is None or row.kind != "webhook" else json.loads(row.config)

    async def receive(self, trigger: str, id: str, headers: Mapping[str, str], body: bytes) -> bool:
        """Keep a delivery for a webhook; False if it came before."""
        return await self._hf._receive(trigger, "webhook", id, headers, body)

    async def delivery(self, trigger: str, id: str) -> tuple[DeliveryInfo, Delivery]:
        """Read a delivery: its state and its content. `UnknownTrigger` if there is none."""
        return await self._hf._delivery(trigger, id)

    # Runs

    async def find(self, run: str) -> RunRow | None:
        """Read a run, if it is there."""
        return await self._hf.store.run(run)

    async def row(self, run: str) -> RunRow:
        """Read a run, or raise `UnknownRun` that names near ones: for callers that may list them."""
        found = await self._hf.store.run(run)
        if found is None:
            near = [each.id for each in await self._hf.store.runs(limit=200) if run in each.id][:5]
            listed = f"; there are {', '.join(near)}" if near else "; `holdfast runs` lists those there are"
            raise UnknownRun(f"there is no run {run!r} in {self.url}{listed}")
        return found

    async def overdue(self, limit: int) -> Overdue:
        """List unfinished runs that are due, paused or left by their worker, the longest due first."""
        store = self._hf.store
        return Overdue(await store.stuck(0, limit=limit), await store.agents(), await store.queues_taken(), self.now())

    async def open_calls_of(self, run: str) -> AsyncIterator[list[OpenCall]]:
        """Tell which calls of a run are open, now and whenever that changes, for as long as a caller wants to know."""
        told: list[OpenCall] | None = None
        with self._hf._listening(news_of(run), News.GREW) as heard:
            while True:
                heard.clear()
                now = await self._hf.get(run).open_calls()
                if now != (told or []):
                    told = now
                    yield now
                await self._hf._pause_for(heard)

    async def family_size(self, run: str) -> tuple[int, int]:
        """Count the events of a root run and all below it, and the bytes that they hold."""
        return await self._hf.store.family_size(run)

    async def untaken(self, row: RunRow) -> list[Signal]:
        """List the signals that came to a run since a worker last took from its inbox."""
        return await self._hf.store.inbox(row.id, row.inbox_seen)

    # Events

    async def events(self, run: str | None, after: int, limit: int = 500) -> list[Event]:
        """Read a page of a run's journal from a seq on; without a run, of the feed of all behind a position."""
        store = self._hf.store
        return await (store.feed(after, None, limit) if run is None else store.journal(run, after, limit))

    async def feed(
        self, after: int, kinds: Iterable[str] | None, run: str | None = None, limit: int = 500
    ) -> list[RunEvent]:
        """Read what the feed has behind a position, as `hf.events` tells it; nobody waits for transactions of others."""
        chosen = None if kinds is None else checked_kinds(kinds)
        which = None if run is None else checked_run_id(run)
        return [
            RunEvent.of(line) for line in await self._hf.store.feed_lines(after, chosen, which, limit, self._hf._only)
        ]

    async def sure_position(self) -> int:
        """Return the position up to which the feed is complete: a reader that goes on from there misses nothing."""
        return max((await self._hf.store.feed_reach())[0] - 1, 0)

    async def value_text(self, run: str, seq: int) -> str | None:
        """Read the value that an event holds, as the text that is stored."""
        return await value_text(self._hf, run, seq)

    async def last_position(self) -> int:
        """Say where the newest event of the store stands in the order of all."""
        return (await self._hf.store.feed_reach())[1] - 1

    def changes(self) -> asyncio.Event:
        """Make an event that is set whenever something changes in the store; the caller clears it."""
        heard = asyncio.Event()
        self._hf.store.on_change(lambda _: heard.set())
        return heard

    # The worker in this process

    def show_worker(self, watch: Callable[[Worker], None]) -> None:
        """Let probes look at the worker in this client."""
        worker: Any = self._hf._worker
        if worker is not None and not worker.probed:
            raise Unsupported(
                f"probes and metrics of a worker need a store of Holdfast's own, and this one is {self.url!r}"
            )
        if worker is not None:
            watch(worker)

    def open_calls(self) -> dict[str, list[OpenBody]]:
        """List the steps whose bodies run in this process right now, by run: what goes on now is in no journal."""
        worker = self._hf._worker
        found: dict[str, list[OpenBody]] = {}
        for run, attempt in list(worker.attempts.items()) if worker is not None else ():
            for call in attempt.open_calls():
                found.setdefault(run, []).append(call)
        return found


# Stores that must be there


class _Onlooker(Client):
    """A client that only looks: it writes nothing, and does not bring a store of an older version up to date."""

    def _make_store(self) -> Store:
        store = super()._make_store()
        store.refuses = "this command only looks, and writes nothing"
        return store


@asynccontextmanager
async def open_existing(url: str | None, actor: Actor, door: str, *, only_looks: bool = False) -> AsyncIterator[Client]:
    """Open a store that must be there, for an actor at a door; no new file is made.

    A file that cannot be written, or whose folder cannot, is looked at in a copy. With `only_looks` every write is refused,
    and a store of an older version is not brought up to date.
    """
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
                client = _Onlooker(url) if only_looks else open(url)
                hf = await stack.enter_async_context(client._through(actor, door))
                if not only_looks:
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
                hf = await stack.enter_async_context(open(f"sqlite:{copy}")._through(actor, door))
            except StoreUnavailable as error:
                raise trouble or error  # noqa: B904 - the copy is nothing that the user knows of
            hf.store.url = store.url
            hf.store.refuses = (
                f"{store.url!r} can only be looked at and cannot be changed: its file, folder or disk cannot be written"
            )
        yield hf


@asynccontextmanager
async def open_bundle(
    path: str, actor: Actor, door: str, signer: Callable[[], Key], keys: Keys | None = None
) -> AsyncIterator[Client]:
    """Open a bundle as if it were a store, to look at it; what is decided there is signed and written into the file.

    Its rows lie in a store that is gone with the block, in a folder that only this account may read.
    """
    ring = keys or Keys()
    bundle = await asyncio.to_thread(functools.partial(read, path, ring, looks=True))
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        url = f"sqlite:{folder}/bundle.db?durability=process"
        async with open(url)._through(actor, door) as hf:
            manifest, found = bundle.head.manifest, bundle.found
            # Whether each signer may decide is known where it is imported: here the groups of people are not known.
            ballots = [each._replace(ballot=_trusted(each.ballot, door)) for each in bundle.ballots]
            seen = [each for each, one in zip(ballots, judged(bundle._replace(ballots=ballots, refused=[])), strict=True)
                    if one.why is None]  # fmt: skip
            work = Import(manifest, found, seen, actor.name, door, look=True, started_by=bundle.started_by)
            await hf.store.import_bundle(work)
            hf.store.url = f"bundle {path}"
            asked = [row.id for row in found.questions]
            before = [await hf.store.approval(question) for question in asked]
            yield hf
            after = [await hf.store.approval(question) for question in asked]
            refused: NotAllowed | None = None
            made: list[tuple[Key, dict[str, Any]]] = []
            for decision in new_decisions(before, after):
                key = signer()
                try:
                    _check_decider(before[asked.index(decision["question"])], key)
                except NotAllowed as error:
                    refused = NotAllowed(f"{error}. It would count nowhere, and was not written into {path!r}")
                    continue
                decision["value"] = await unspilled(hf.store, decision["value"])
                made.append((key, decision))
            if made:
                await asyncio.to_thread(add_decisions, path, ring, bundle, made)
            if refused is not None:
                raise refused


def _check_decider(asked: ApprovalRow, key: Key) -> None:
    """Refuse a person who may not decide in any store: the one who started the run, or who passed the question on.

    Groups are known only where the bundle is imported, so the person is taken to be in every group that the question is
    for.
    """
    names = [*json.loads(asked.recipients), *(to for _, to in passed_on(asked.delegations))]
    check_allowed(asked, Actor(key.name, [name.removeprefix(GROUP) for name in names]))


@asynccontextmanager
async def open_trial(url: str | None, actor: Actor, door: str) -> AsyncIterator[tuple[Client, bool]]:
    """Open a store to try something in that leaves nothing behind; also tells whether it is there.

    In place of a file that is not there stands an empty one, which is gone with the block.
    """
    path = getattr(store_for(url), "path", None)
    if path is None or os.path.exists(path):  # noqa: ASYNC240, PTH110
        async with open(url)._through(actor, door) as hf:
            yield hf, True
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        async with open(f"sqlite:{folder}/trial.db?durability=process")._through(actor, door) as hf:
            yield hf, False


def _trusted(ballot: Ballot, door: str) -> Ballot:
    return replace(ballot, by=replace(ballot.by, via=door))


def describe(path: str, keys: Keys | None = None) -> Bundle:
    """Tell what a bundle is; all of it is read and checked."""
    return read(path, keys or Keys(), looks=True).told()


def decisions_in(path: str, keys: Keys | None = None) -> list[Judgement]:
    """Tell what was decided in a bundle, and whether each of it would count, imported with the keys that are here."""
    return judged(read(path, keys or Keys(), looks=True))


def _can_be_written(path: str) -> bool:
    """SQLite writes beside the file even to read it, so its folder counts too."""
    beside = [path + suffix for suffix in ("", "-wal", "-shm")]
    return os.access(os.path.dirname(path), os.W_OK) and all(  # noqa: PTH120
        os.access(file, os.W_OK)
        for file in beside
        if os.path.exists(file)  # noqa: PTH110
    )


def _copied(path: str, folder: str) -> str:
    """Copy the file, with what its log has, into a folder that can be written."""
    for suffix in ("", "-wal"):
        if os.path.exists(path + suffix):  # noqa: PTH110
            copy = shutil.copyfile(path + suffix, os.path.join(folder, "copy.db" + suffix))  # noqa: PTH118
            os.chmod(copy, 0o600)  # noqa: PTH101
    return os.path.join(folder, "copy.db")  # noqa: PTH118


def file_facts(url: str | None) -> dict[str, Any]:
    """Say what can be told of the file of a store that is not open; nothing of another kind of store, or of none."""
    store = store_for(url)
    path = getattr(store, "path", None)
    if path is None or not Path(path).exists():
        return {}
    return {
        "store": "sqlite", "url": store.url, "path": path, "file_bytes": Path(path).stat().st_size,
        "free_bytes": shutil.disk_usage(Path(path).parent).free,
    }  # fmt: skip
