"""Moves: how a run leaves a cluster in a bundle, and how one comes.

Look here for what replaces the transactions of `store/bundles.py`, which says what a move promises. A cluster has no
transaction over two workflows, so each move has one workflow whose change is the commit.

Leaving: the run is asked what it is made of (an update), a workflow that nobody carries out keeps the file and what the run is
made of, and then the run is told to leave (an update again). It leaves only if it is as it was read, and ends in that very workflow
task: the server lets no workflow end that has not heard all that came. Runs below it must have ended, because nothing could
let two workflows end at once.

Coming: all rules are those of a database, and so they are applied in one, an empty SQLite file; what stands there then is what
comes. Runs below the root are started first and wait (`State.unborn`). The start of the root is the commit; it lets the others go
on. Whatever dies in between, the same import goes on with what is there. A workflow that nobody carries out remembers the bundle.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets
import shlex
import tempfile
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.backends.temporal import history
from holdfast.backends.temporal.address import EXPORTED, IMPORTED, LEAVE, NOBODY, STORE, TELL, Address
from holdfast.backends.temporal.blobs import INLINE_BYTES
from holdfast.backends.temporal.history import Found
from holdfast.backends.temporal.loads import PAYLOADS, too_long
from holdfast.backends.temporal.records import Start, State, moving
from holdfast.errors import (
    BadArguments,
    BadBundle,
    RunActive,
    RunExists,
    RunFinished,
    StoreUnavailable,
    Unconfirmed,
    UnknownRun,
    Unsupported,
)
from holdfast.store.bundles import (
    MOVES,
    Belongings,
    Came,
    Changed,
    Import,
    Mark,
    Move,
    Moved,
    TakeBack,
    Unchanged,
    imported_before,
    public_id,
)
from holdfast.store.inbox import whole_inbox
from holdfast.store.sqlite.store import SQLiteStore
from holdfast.store.store import Store
from holdfast.store.work import rows, to_json
from holdfast.words import people
from holdfast.words.model import FINISHED, ApprovalRow, Event, RunRow, Signal, is_served

T = TypeVar("T")
_TRIES, _PAUSE_S = 10, 0.1
_BEGUN: Final = ("child.started", "child.spawned")
_TOO_LATE: Final = (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)
# What a bundle may have that a cluster has not: its section, and what that is.
_LACKED: Final = (("forks", "is a fork"), ("lineage", "is a fork"))
# What a cluster has in the database beside it, where no bundle brings it.
_BESIDE: Final = (
    ("conversations", "has conversations"), ("waiting", "waits for a conversation"), ("chunks", "has streams"),
    ("askers", "asks about a budget"),
)  # fmt: skip
_SPANS: Final = ("limit_key", "rate_key", "singleton_key")


class _Kept(NamedTuple):
    """A move, as its source keeps it."""

    moved: Moved
    content: bytes | None
    start: str
    state: bytes


class Moves(Store):
    """The part of a cluster's store that bundles leave and come to."""

    address: Address
    client: Client
    _mirror: SQLiteStore

    async def _asked(self, call: Awaitable[T], run: str = "") -> T:
        raise NotImplementedError

    async def _described(self, run: str) -> WorkflowExecutionDescription | None:
        raise NotImplementedError

    async def _refresh_family(self, run: str) -> None:
        raise NotImplementedError

    async def _place(self, found: Sequence[Found]) -> None:
        """Put runs into the mirror."""
        raise NotImplementedError

    async def _started(
        self, start: Start, state: bytes | None, *, delay_ms: int = 0, again: bool = False, memo: Mapping[str, Any] | None = None,
        asked: Collection[ApprovalRow] = (),
    ) -> None:  # fmt: skip
        raise NotImplementedError

    def _forget_seen(self, run: str) -> None:
        raise NotImplementedError

    async def _note(
        self, run: str, by: str, via: str, action: str, data: dict[str, Any], value: str | None = None
    ) -> None:
        raise NotImplementedError

    def _check_fits(self, start: Start, packed: bytes) -> None:
        """Refuse to start a run with more than a payload takes; nothing is done then."""
        size = len(start.text()) + len(packed)
        if self.address.blobs is None and size > PAYLOADS:
            raise BadArguments(f"{too_long(start.row.id)}. Nothing was done")

    # What nobody carries out

    async def _remember(
        self, kind: str, name: str, told: Mapping[str, Any], args: Sequence[Any] = (), *, instead: bool = False
    ) -> bool:
        """Start a workflow that only remembers; False: it is there already. `instead`: it takes the place of one that is."""
        policy = WorkflowIDConflictPolicy
        try:
            await self._asked(self.client.start_workflow(
                kind, args=args, id=f"{kind}:{name}", task_queue=f"{self.address.queue}:{NOBODY}", memo={"Holdfast": dict(told)},
                id_conflict_policy=policy.TERMINATE_EXISTING if instead else policy.FAIL,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            ))  # fmt: skip
        except WorkflowAlreadyStartedError:
            return False
        return True

    async def _remembered(self, kind: str, name: str) -> dict[str, Any] | None:
        described = await self._described(f"{kind}:{name}")
        if described is None or described.status is None or described.status.name != "RUNNING":
            return None
        found: dict[str, Any] | None = (await described.memo()).get("Holdfast")
        return found

    async def store_id(self) -> str:
        """Read the name of the namespace as a store: the first process that asked gave it one."""
        found = await self._remembered(STORE, "id")
        if found is None:
            await self._remember(STORE, "id", {"id": secrets.token_hex(16)})
            found = await self._remembered(STORE, "id")
        if found is None:
            raise StoreUnavailable(f"the workflow {STORE}:id of {self.url!r} is gone: somebody ended it")
        return public_id(found["id"])

    # Leaving

    async def members(self, root: str) -> list[RunRow]:
        await self._refresh_family(root)
        found = await self._mirror.members(root)
        for row in found:
            if row.id == root and row.status == "failed":
                raise Unsupported(
                    f"run {root!r} has failed, and its workflow has ended: a cluster has nothing that could be moved. Retry it, "
                    "pause it, and move it then"
                )
            if row.id != root and row.status not in FINISHED:
                raise Unsupported(
                    f"run {row.id!r}, below run {root!r}, is {row.status}: on a Temporal cluster no two workflows can leave at "
                    "once. Move the run when all below it have ended"
                )
        return found

    async def halt_forsaken(self, root: str, data: dict[str, Any]) -> None:
        """Do nothing: a run belongs to no process, so none is forsaken."""

    async def note_copy(self, root: str, told: dict[str, Any], *, by: str, via: str) -> None:
        await self._note(root, by, via, "export", told)

    async def belongings(self, root: str) -> Belongings:
        family = await self.members(root)
        for row in family:
            kinds = {event.kind.partition(".")[0] for event in await self._mirror.journal(row.id)}
            if "conversation" in kinds or await self.streams(row.id):
                raise Unsupported(
                    f"run {row.id!r} has streams or conversations in the database beside the cluster, and a bundle would be "
                    "without them: it cannot be exported"
                )
            if row.budget is not None:
                raise Unsupported(
                    f"run {row.id!r} has a budget, and what was spent of it lies in the database beside the cluster: a bundle "
                    "would be without that, and it cannot be exported"
                )
        whole = []
        for row in family:
            found, _ = await self._whole(row.id, asks=row.id == root and row.status not in FINISHED)
            whole.append(found)
        await self._place(whole)
        for row in family:
            self._forget_seen(row.id)  # what was placed has an inbox, which the next reader need not have
        taken = await self._mirror.belongings(root)
        taken.store = await self.store_id()
        return taken

    async def _whole(self, run: str, *, asks: bool) -> tuple[Found, bytes]:
        """Read all of a run; `asks`: as it says that it is, in one moment. What its history has besides came later."""
        if not asks:
            found = await self._from_history(run)
            found.inbox = inbox_of(found.row, {}, [])
            return found, b""
        try:
            packed = await self._update(run, TELL, bytes)
        except Changed:
            raise RunActive(f"run {run!r} ended, or left, while it was read; try again") from None
        found, state = await self._from_history(run), State.unpack(packed)
        for name, value in state.row.items():
            setattr(found.row, name, value)
        found.events = [event for event in found.events if event.seq < found.row.next_seq]
        closed = {
            name: asked
            for name, asked in found.questions.items()
            if asked.status != "open" and name not in state.questions
        }
        found.questions = {**closed, **state.questions}
        found.inbox = inbox_of(found.row, state.known, state.signals)
        return found, packed

    async def _from_history(self, run: str) -> Found:
        described = await self._described(run)
        found = None if described is None else await self._asked(history.read(self.client, described), run)
        if found is None or found.start is None:
            raise UnknownRun(f"there is no run {run!r} in {self.url}")
        missing = {*range(found.row.next_seq)} - {event.seq for event in found.events}
        if missing:
            raise BadArguments(
                f"run {run!r}: the cluster has forgotten {len(missing)} of its {found.row.next_seq} events, the first of which is "
                f"{min(missing)}: its retention is shorter than the run is old. It cannot be exported"
            )
        return found

    async def _update(self, run: str, name: str, kind: type[T], *args: Any, id: str | None = None) -> T:
        """Have a run do something; `Changed` if it has ended. Asked again under the same id, it does that once.

        A workflow task that fails takes the update with it: so it is when something comes for a run in the moment it leaves.
        """
        handle, named = self.client.get_workflow_handle(run), id or secrets.token_hex(16)
        for left in reversed(range(_TRIES)):
            try:
                return await self._asked(handle.execute_update(name, args=args, id=named, result_type=kind), run)
            except UnknownRun:
                raise Changed from None  # its workflow has ended
            except WorkflowUpdateFailedError as error:
                raise BadArguments(f"{error.cause}. Nothing was done") from None
            except (WorkflowUpdateRPCTimeoutOrCancelledError, StoreUnavailable) as error:
                if not left or not isinstance(error.__cause__, RPCError):
                    raise await self._unanswered(run, error, ", and only the run itself can be asked") from error
            await asyncio.sleep(_PAUSE_S)
        raise AssertionError("unreachable")

    async def _unanswered(self, run: str, error: BaseException, more: str = "") -> Unconfirmed:
        """Tell that no worker has answered for a run, and how to start one."""
        cause, start = error.__cause__, f"`holdfast worker FILE.py --db {shlex.quote(self.url)}`"
        try:
            row = await self.run(run)
            if row is not None and not is_served(row, await self.agents()):
                return Unconfirmed(f"no worker serves agent {_code(row)} of run {run!r}{more}. Start one: {start}")
            if row is not None and (row.reason or "").startswith(history.MISFIT):
                return Unconfirmed(f"no worker can carry on run {run!r}{more}. {row.reason}")
            described = await self._described(run)
            failure = None if described is None else await self._asked(history.failure(self.client, described), run)
            if failure is not None:
                said = f" It says: {failure.message}" if failure.message else ""
                return Unconfirmed(f"the worker of run {run!r} cannot carry it on{more}. Look at its log.{said}")
        except StoreUnavailable as away:
            return Unconfirmed(f"nobody answered for run {run!r}{more}: {away}")
        why = f": {error}" if isinstance(cause, RPCError) and cause.status not in _TOO_LATE else " in time"
        code = "" if row is None else f" with agent {_code(row)}"
        return Unconfirmed(
            f"no worker{code} answered for run {run!r}{more}{why}. If none is running, start one: {start}"
        )

    async def move(self, move: Move) -> None:
        """Let the run leave, and keep its file; `Changed` if it is not as it was read.

        Crash points: before `LEAVE` is done the run goes on here, and what is remembered of the move means nothing.
        """
        root = move.root
        found, packed = await self._whole(root, asks=True)
        if Mark.of(found.row) != move.marks[root]:
            raise Changed
        limit = INLINE_BYTES if self.address.blobs is None else None
        if limit is not None and len(move.content) + len(packed) > limit:
            raise BadArguments(
                f"the bundle of run {root!r} has {len(move.content):,} bytes, which is too much for a payload of Temporal's, and a "
                "source keeps it until it has come. Name a folder for large values in the URL: ?blobs=FOLDER"
            )
        assert found.start is not None
        told = {"run": root, "destination": move.destination, "made_at": self.clock.now()}
        await self._remember(EXPORTED, move.bundle, told, [move.content, found.start.text(), packed])
        said = {"mark": list(move.marks[root]), "reason": move.reason, "bundle": move.bundle}
        try:
            if not await self._update(root, LEAVE, bool, said, id=move.bundle):
                raise Changed
        except Changed:
            last = await self._last(root)
            if last is None or last.moved.bundle != move.bundle:  # else it was done, and the answer lost
                await self._asked(self.client.get_workflow_handle(f"{EXPORTED}:{move.bundle}").terminate())
                raise
        finally:
            self._forget_seen(root)
        noted = {"bundle": move.bundle, "to": move.destination, "runs": len(move.marks)}
        await self._note(root, move.by, move.via, "move", noted)

    async def call_off_move(self, root: str, request: str, *, by: str) -> None:
        row = await self.run(root)
        if row is None or row.status in FINISHED:
            return
        events = await self.journal(root)
        last = next((event for event in reversed(events) if event.kind in ("run.paused", "run.pausing")), None)
        if last is not None and last.data.get("request") == request:
            data = {"by": by, "requests": [request], "family": False}
            said = {"id": f"call-off:{request}", "kind": "run.resumed", "data": data}
            await self._signal(root, said)

    async def _signal(self, run: str, said: Mapping[str, Any]) -> None:
        raise NotImplementedError

    async def _kept(self, bundle: str) -> _Kept | None:
        """Read what is kept of a move."""
        told = await self._remembered(EXPORTED, bundle)
        if told is None:
            return None
        handle = self.client.get_workflow_handle(f"{EXPORTED}:{bundle}")
        (first,) = [event async for event in handle.fetch_history_events(page_size=1)][:1]
        given = first.workflow_execution_started_event_attributes.input.payloads
        content, start, state = await self.client.data_converter.decode(list(given), [bytes, str, bytes])
        times = (told["made_at"], told.get("confirmed_at"), told.get("undone_at"))
        return _Kept(Moved(bundle, told["run"], told["destination"], *times), content or None, start, state)

    async def _last(self, root: str) -> _Kept | None:
        """Read what is kept of the last move of a run. The run says which that was: others may have begun, and come too late."""
        described = await self._described(root)
        bundle = None if described is None else (await described.memo()).get("HoldfastMoved")
        return None if bundle is None else await self._kept(bundle)

    async def moved(self, root: str) -> Moved | None:
        kept, row = await self._last(root), await self.run(root)
        if kept is None or row is None:
            return None
        if row.status != "moved" and kept.moved.undone_at is None:  # its process died before it kept that
            return kept.moved._replace(undone_at=row.created_at)
        return kept.moved

    async def moved_content(self, bundle: str) -> bytes | None:
        kept = await self._kept(bundle)
        return None if kept is None else kept.content

    async def _settled(self, kept: _Kept, **times: int) -> None:
        """Keep of a move only that there was one, and how it ended."""
        moved = kept.moved
        told = {"run": moved.run, "destination": moved.destination, "made_at": moved.made_at, **times}
        await self._remember(EXPORTED, moved.bundle, told, [b"", "", b""], instead=True)

    async def confirm(self, root: str, bundle: str, told: dict[str, Any], *, by: str, via: str) -> None:
        row, kept = await self.run(root), await self._last(root)
        if row is None or row.status != "moved" or kept is None or kept.moved.bundle != bundle or kept.moved.undone_at:
            status = "not there" if row is None else row.status
            raise RunActive(f"run {root!r} is {status}: that move was taken back, and there is nothing to confirm")
        if kept.moved.confirmed_at is None:
            await self._settled(kept, confirmed_at=self.clock.now())
            await self._note(root, by, via, "confirm_move", {"bundle": bundle, **told})

    async def take_back(self, work: TakeBack) -> None:
        """Start the run again, as it was when it left. Crash points: once it is started it is not 'moved' any more."""
        root = work.root
        row, kept = await self.run(root), await self._last(root)
        if row is None:
            raise UnknownRun(f"there is no run {root!r} in {self.url}")
        if row.status != "moved" or kept is None:
            raise RunActive(f"run {root!r} is {row.status}: it was not moved, and there is nothing to take back")
        if kept.moved.confirmed_at is not None:
            raise RunFinished(f"run {root!r} was {row.reason}, and it came there: move it back from there")
        start, state = Start.read(kept.start), State.unpack(kept.state)
        if any(each.startswith(MOVES) for each in state.pauses):
            state.pauses, state.held = [], False
            _resumed(state, self.clock.now(), work.by)
        start.row.status = state.row["status"]
        try:
            memo = {"HoldfastMoved": kept.moved.bundle}
            await self._asked(self._started(start, state.pack(), again=True, memo=memo, asked=state.questions.values()))
        except WorkflowAlreadyStartedError:
            raise RunActive(f"run {root!r} was taken back by somebody else meanwhile") from None
        self._forget_seen(root)
        await self._settled(kept, undone_at=self.clock.now())
        noted = {"bundle": kept.moved.bundle, "to": kept.moved.destination}
        await self._note(root, work.by, work.via, "take_back", noted)

    # Coming

    async def imported(self, bundle: str) -> int | None:
        told = await self._remembered(IMPORTED, bundle)
        return None if told is None else told["at"]

    async def came(self, run: str) -> Came | None:
        described = await self._described(run)
        told = None if described is None else (await described.memo()).get("HoldfastBundle")
        return None if told is None else Came(told["bundle"], told["source"], told["at"])

    async def imported_from(self, run: str) -> str | None:
        came = await self.came(run)
        return None if came is None else came.source

    async def import_bundle(self, work: Import) -> tuple[str, ...]:
        manifest, found, own = work.manifest, work.found, await self.store_id()
        if work.copy is not None:
            raise Unsupported(
                f"a copy of a run becomes a fork of it, and {self.url!r} is a Temporal cluster, which has no forks. Move the run "
                f"here (--move {own}), or import the copy into a database"
            )
        if manifest.destination != own:
            raise BadBundle(
                f"this bundle is for the store {manifest.destination}, and this is {own}; import it there. If it was to come here, "
                f"take the move back in its source, `holdfast export {found.root} --undo --force`, and move it here: --move {own}"
            )
        if await self.imported(manifest.id) is not None:
            raise imported_before(found.root)
        self._check_lacks(found)
        again = await self._room_for(found, manifest.id)
        with tempfile.TemporaryDirectory(prefix="holdfast-import-") as folder:
            scratch = SQLiteStore(f"{folder}/import.db", durability="none", clock=self.clock)
            await scratch.open()
            try:
                for_scratch = dataclasses.replace(manifest, destination=await scratch.store_id())
                questions = await scratch.import_bundle(dataclasses.replace(work, manifest=for_scratch, dry_run=False))
                await self._bring(scratch, work, again, questions)
            finally:
                await scratch.close()
        return questions

    def _check_lacks(self, found: Belongings) -> None:
        what = next((word for section, word in _LACKED if found.rows[section]), None)
        for row in found.runs:
            if what is None and any(getattr(row, name) is not None for name in _SPANS):
                what = "has a limit, a rate or a singleton"
        if what is not None:
            raise Unsupported(
                f"run {found.root!r} {what}, which needs a database of Holdfast's own (sqlite: or postgresql://), and {self.url!r} "
                "is a Temporal cluster; nothing was imported"
            )
        beside = next((word for section, word in _BESIDE if found.rows[section]), None)
        if beside is None and any(row.budget is not None for row in found.runs):
            beside = "has a budget, of which a part is spent"
        if beside is not None:
            raise Unsupported(
                f"run {found.root!r} {beside}, and a bundle does not bring that to {self.url!r}: for runs that are started on a "
                "Temporal cluster it lies in the database beside it (?side=), and a bundle goes to the cluster alone. Move the run "
                "to a database of Holdfast's own (sqlite: or postgresql://); nothing was imported"
            )

    async def _room_for(self, found: Belongings, bundle: str) -> frozenset[str]:
        """Refuse to take the place of a run that is here; tell which have left it, and come back."""
        again = set()
        for row in found.runs:
            described = await self._described(row.id)
            if described is None:
                continue
            memo: Mapping[str, Any] = await described.memo()
            here = await self.run(row.id)
            if memo.get("HoldfastBundle", {}).get("bundle") == bundle:
                if row.parent_id is None:
                    await self._note_import(found.root, bundle, memo["HoldfastBundle"])
                    raise imported_before(found.root)
                continue  # an import of the same bundle began here, and ended before its root was there
            over = here is not None and here.status in FINISHED and described.status is not None
            if over and here is not None and here.uid == row.uid and await self._last(found.root) is not None:
                again.add(row.id)
                continue
            status = "no run of Holdfast's" if here is None else here.status
            raise RunExists(f"there is a run {row.id!r} here already, which is {status}; nothing was imported")
        return frozenset(again)

    async def _note_import(self, run: str, bundle: str, told: Mapping[str, Any]) -> None:
        await self._remember(IMPORTED, bundle, {**told, "run": run})

    async def _bring(
        self, scratch: SQLiteStore, work: Import, again: frozenset[str], questions: tuple[str, ...]
    ) -> None:
        """Start the runs of a bundle, all of which fit; `Unchanged` of a dry run, which starts none."""
        root, bundle = work.found.root, work.manifest.id
        family = await scratch.members(root)
        agents = {row.id: row.agent for row in family}
        above = {row.id: row.parent_id for row in family}
        came = {"bundle": bundle, "source": work.manifest.source, "at": self.clock.now()}
        ready = []
        for row in family:
            path, line, each = [row.agent], list[str](), row.parent_id
            while each is not None:
                path, line, each = [agents[each], *path], [each, *line], above[each]
            starters = people.starters(work.started_by or people.SOMEONE.name, None)
            start = Start(row, path, starters, self.address.longest, line, self.address.side is not None)
            state = await state_of(scratch, row, {each.id: each for each in family})
            state.unborn = row.id != root and state.over is None
            if row.id == root:
                state.frees = [each.id for each in family if each.id != root and each.status not in FINISHED]
            packed = state.pack()
            self._check_fits(start, packed)
            ready.append((start, packed, state.questions.values()))
        if work.dry_run:
            raise Unchanged(questions)
        ready.sort(key=lambda each: each[0].row.id == root)  # the root last
        for start, packed, asked in ready:
            run, memo = start.row.id, {"HoldfastBundle": came}
            try:
                await self._asked(self._started(start, packed, again=run in again, memo=memo, asked=asked))
            except WorkflowAlreadyStartedError:
                if run == root:
                    raise imported_before(root) from None
            self._forget_seen(run)
        await self._note_import(root, bundle, came)
        noted: dict[str, Any] = {"bundle": bundle, "from": work.manifest.source, "kind": "move", "runs": len(family)}
        noted |= {"started_by": work.started_by} if work.started_by is not None else {}
        await self._note(root, work.by, work.via, "import", noted)


async def state_of(store: Store, row: RunRow, family: Mapping[str, RunRow]) -> State:
    """All that a run in a database goes on with."""
    events = await store.journal(row.id, dropped=True)
    await unspill(store, events)
    row.input = await _text(store, row.input)
    inbox = await store._read(whole_inbox, row.id)
    signals = [
        Signal(
            position, kind, topic, None if value is None else await _text(store, value), json.loads(data or "{}"), at
        )
        for position, _, kind, topic, value, data, at in inbox
        if position > row.inbox_seen
    ]
    questions = [ApprovalRow(*each) for each in await store._read(rows, "approvals_of", ids=to_json([row.id]))]
    for asked in questions:
        for name in ("shown", "data"):
            text = getattr(asked, name)
            setattr(asked, name, None if text is None else await _text(store, text))
    children: dict[str, dict[str, Any] | None] = {}
    for event in events:
        if event.kind in _BEGUN and event.dropped is None:
            child = family.get(event.data["child"])
            children[event.data["child"]] = (
                None if child is None or child.status not in FINISHED else await _ended(store, child)
            )
    paused = next((event.data.get("request") for event in reversed(events) if event.kind == "run.paused"), None)
    held = row.status == "paused"
    over: dict[str, Any] | None = None
    if row.status in FINISHED:
        result = None if row.result is None else await _text(store, row.result)
        over = {"status": row.status, "error": row.error, "result": result}
    return State(
        [event for event in events if event.dropped is None], moving(row) | {"inbox_seen": row.inbox_seen},
        {asked.id: asked for asked in questions}, children, signals,
        {signal_id: [position, kind, topic, at] for position, signal_id, kind, topic, _, _, at in inbox},
        [paused] if held and paused is not None else [], held,
        parts=await store.parts(await store.parts_of([row.id])),
        dropped=[event for event in events if event.dropped is not None], over=over,
    )  # fmt: skip


async def unspill(store: Store, events: Iterable[Event]) -> None:
    """Bring values that lie beside their events back into them."""
    for event in events:
        if event.blob is not None:
            event.value, event.blob = (await store.blob(event.blob)).decode(), None


async def _text(store: Store, text: str) -> str:
    return (await store.blob(text[10:74])).decode() if text.startswith('{"$blob":') else text


async def _ended(store: Store, row: RunRow) -> dict[str, Any]:
    result = None if row.result is None else await _text(store, row.result)
    error = None if row.error is None else json.loads(row.error)
    return {"child": row.id, "status": row.status, "error": error, "value": result}


def inbox_of(row: RunRow, known: Mapping[str, Sequence[Any]], untaken: Sequence[Signal]) -> list[tuple[Any, ...]]:
    """Rows of an inbox: of what was taken long ago only that it came is known."""
    values = {signal.position: signal for signal in untaken}
    by_place = {came[0]: (signal_id, *came[1:]) for signal_id, came in known.items()}
    found: list[tuple[Any, ...]] = []
    for position in range(1, row.inbox_count + 1):
        signal = values.get(position)
        signal_id, kind, topic, at = by_place.get(
            position, (f"taken:{position}", "message.received", "", row.created_at)
        )
        if signal is not None:
            found.append(
                (position, signal_id, kind, topic, signal.value, to_json(signal.data) if signal.data else None, at)
            )
        elif kind == "run.cancelling":  # they are counted: a second one ends a run at once
            found.append((position, signal_id, kind, topic, None, to_json({"by": "", "reason": "", "until": at}), at))
        else:  # the journal has what it said
            found.append((position, signal_id, "message.received", topic, None, None, at))
    return found


def _resumed(state: State, now: int, by: str) -> None:
    """Record that a run goes on which was paused to be moved."""
    seq = state.row["next_seq"]
    state.events.append(
        Event(seq, "run.resumed", None, {"by": by, "cut": None}, None, None, now, state.row["lease_epoch"])
    )
    state.row |= {"next_seq": seq + 1, "status": "ready"}
    state.row.pop("reason", None)


def _code(row: RunRow) -> str:
    """Name the code that a run needs."""
    return repr(row.agent) if row.version is None else f"{row.agent!r} in version {row.version!r}"
