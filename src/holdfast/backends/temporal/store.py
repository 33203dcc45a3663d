"""A cluster as a client sees it: a `Store` whose writes are signals, updates and starts of workflows.

What is read lies in a mirror: a SQLite file that is gone with the client. Before a run is read its workflow is described, and its
history put into the mirror if it has changed since (`_refresh`); lists ask the cluster's index first. So every reader of Holdfast's
works on Temporal as it is. Whatever would write the mirror itself is refused: it would be lost.

Lists come from the cluster's index, which is a moment behind; a run that is named is read from its history, which is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import secrets
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, GetSystemInfoRequest
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.backends.temporal import budgets, history, talks
from holdfast.backends.temporal.address import (
    AGENT,
    ARRIVE,
    ASIDE,
    ASIDE_BYTES,
    DECIDE,
    MORE,
    NOT_ASIDE,
    RUN,
    SIDE_OF,
    STORE,
    Address,
    is_missing,
    is_too_large,
)
from holdfast.backends.temporal.feed import Feed, record
from holdfast.backends.temporal.gaps import BESIDE, GAPS, lacked
from holdfast.backends.temporal.ground import first_attributes, first_memo
from holdfast.backends.temporal.history import Found
from holdfast.backends.temporal.loads import ELSEWHERE, PAYLOADS, escaped, weight
from holdfast.backends.temporal.moves import Moves, unspill
from holdfast.backends.temporal.pauses import is_told
from holdfast.backends.temporal.records import Start, State, moving
from holdfast.backends.temporal.side import Forget
from holdfast.backends.temporal.worker import TemporalWorker, check_served
from holdfast.errors import (
    AlreadyDecided,
    BadArguments,
    Expired,
    HoldfastError,
    NotAllowed,
    NotStorable,
    RunActive,
    RunFinished,
    Stale,
    StoreUnavailable,
    UnknownApproval,
    UnknownRun,
    Unsupported,
)
from holdfast.runtime import AgentSpec
from holdfast.store.approvals import closed_by, count, delegated
from holdfast.store.audit import note
from holdfast.store.blobs import insert_blobs, spilled
from holdfast.store.budgets import BUDGET, Spending, spend_alone
from holdfast.store.bundles import public_id
from holdfast.store.changes import Changes, News
from holdfast.store.contract import Ailment, looks_again, write_limit
from holdfast.store.control import Resume
from holdfast.store.families import told as cancelled
from holdfast.store.links import use_link
from holdfast.store.parts import keep_parts
from holdfast.store.runs import NewRun
from holdfast.store.sqlite.store import SQLiteStore
from holdfast.store.store import Store
from holdfast.store.streams import Piece
from holdfast.store.work import Asking, Transaction, rows, to_json
from holdfast.words import people
from holdfast.words.budget import Asked
from holdfast.words.clock import Clock, SystemClock
from holdfast.words.features import Feature
from holdfast.words.model import FINISHED, ApprovalRow, Published, RunRow, is_served, is_shadow
from holdfast.words.people import Ballot
from holdfast.words.spent import Spent
from holdfast.worker.settings import Settings

T = TypeVar("T")
P = ParamSpec("P")
_KINDS: Final = {
    kind.__name__: kind
    for kind in (AlreadyDecided, BadArguments, Expired, NotAllowed, RunFinished, Stale, UnknownApproval)
}
_LOOKED_AT: Final = 2_000  # runs of a list, at most
_SHORT: Final = 1_000  # events of a history that are read when only the row is asked for
_SOONEST_S, _LATEST_S = 0.05, 1.0  # between two looks for news, while somebody waits
_ALIVE_S: Final = 75.0  # since a poller was heard of: each poll takes a minute
_AGENTS_S: Final = 2.0
_PROBLEMS: Final = "TemporalReportedProblems"  # a search attribute: servers set it after five failed tasks of a run
# Too many ask at once; the workflow tasks of the run fail.
_ASK_AGAIN: Final = (RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.FAILED_PRECONDITION)
_NEXT_S: Final = 1.0  # for so long one run alone is asked to count an answer that several wait for
_OWN: Final = ("lease_owner", "company", "life", "life_at", "worked_ms", "interruptions")


class TemporalStore(Moves):
    """A namespace of a cluster, as a `Store`."""

    def __init__(
        self, address: Address, *, clock: Clock | None = None, name: str = "", side: Store | None = None
    ) -> None:
        super().__init__(clock if clock is not None else SystemClock(), name)
        self.url, self.address, self.inputs = address.url, address, address.inputs
        self.side = side  # a database beside the cluster
        self._client: Client | None = None
        self._seen: dict[str, _Seen] = {}
        self._turn = asyncio.Lock()
        self._news = Rounds(self._tell)
        self._published: tuple[float, Published] | None = None
        self._served_here: TemporalWorker | None = None

    @classmethod
    def from_url(
        cls, url: str, *, clock: Clock | None = None, faults: Any = None, name: str = "",
        beside: Callable[..., Store] | None = None,
    ) -> TemporalStore:  # fmt: skip
        """Make a store for `temporal://HOST:PORT/NAMESPACE`; `beside` makes the one that its URL names beside it."""
        del faults  # of a database
        address = Address.of(url)
        side = None if address.side is None or beside is None else beside(address.side, clock=clock, name=name)
        return cls(address, clock=clock, name=name, side=side)

    # Life of the store

    @property
    def lacks(self) -> Mapping[Feature, str]:
        return lacked(self.url, side=self.side is not None)

    @property
    def value_limit_bytes(self) -> int:
        return self.address.value_limit_bytes

    async def open(self) -> None:
        self._begin()
        self._client = await self.address.connect()
        if self.side is None:
            await self._check_no_side()
        else:
            await self.side.open()
            self.side.on_change(self._tell)
            try:
                await self._check_side(self.side)
            except BaseException:
                await self.side.close()
                raise
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-temporal-")
        self._mirror = SQLiteStore(f"{self._folder.name}/mirror.db", durability="none", clock=self.clock)
        await self._mirror.open()
        self._open = True
        self._news.begin()

    async def _check_no_side(self) -> None:
        """See that nobody names a database beside the cluster: a process without it could carry on no run that has one."""
        if await self._remembered(SIDE_OF, self.address.queue) is not None:
            raise StoreUnavailable(
                f"others name a database beside the cluster at {self.url!r}, and this URL names none. Name the same one: "
                f"?side=postgresql://..., or ?side=$NAME, a variable of the environment that has it. {self._given_up('none')}",
                lasting=True,
            )

    def _given_up(self, instead: str) -> str:
        return (
            f"If that was given up for {instead}, stop all workers and end the workflow that remembers it: temporal workflow "
            f"terminate --workflow-id {SIDE_OF}:{self.address.queue} --namespace {self.address.namespace}"
        )

    async def _check_side(self, side: Store) -> None:
        """Check that this database is the one that all others name: the first process told the cluster which it is."""
        itself, told = await side.store_id(), await self._remembered(SIDE_OF, self.address.queue)
        if told is None and self.refuses is None:
            await self._remember(SIDE_OF, self.address.queue, {"id": itself})
            told = await self._remembered(SIDE_OF, self.address.queue)
        if told is not None and told["id"] != itself:
            raise StoreUnavailable(
                f"{side.url!r} is not the database that others name beside the cluster at {self.url!r}: its id is {itself}, theirs "
                f"is {told['id']}. Name the same one in side=. {self._given_up('this one')}",
                lasting=True,
            )

    async def close(self) -> None:
        if self._open:
            self._open = False
            await self._news.end()
            await self._mirror.close()
            if self.side is not None:
                await self.side.close()
            self._folder.cleanup()

    def abandon(self) -> None:
        if self._open:
            self._open = False
            self._mirror.abandon()
            if self.side is not None:
                self.side.abandon()

    def observe(self, commit: Callable[[int, float], None]) -> None:
        """A cluster tells nobody of its commits."""

    def ailment(self) -> Ailment | None:
        return None

    def worker(
        self, specs: Iterable[AgentSpec], settings: Settings, triggers: Iterable[Any], *_: Any, **__: Any
    ) -> TemporalWorker:
        """Make what carries runs of these agents in this process."""
        self._served_here = TemporalWorker(
            self.client, self.address, self.worker_id, specs, settings, triggers, self.side
        )
        return self._served_here

    def check_agent(self, spec: AgentSpec) -> None:
        """Refuse what a worker would refuse. What the code of an agent cannot be seen to use is not known here, nor there."""
        check_served(spec, side=self.side is not None)

    @property
    def client(self) -> Client:  # type: ignore[override]
        assert self._client is not None
        return self._client

    async def held(self) -> bool:
        return False

    async def recover(self) -> int:
        return 0

    async def facts(self) -> dict[str, Any]:
        about = await self._asked(self.client.workflow_service.get_system_info(GetSystemInfoRequest()))
        side = None if self.side is None else await self.side.facts()
        runs, named = Counter[str](), await self._remembered(STORE, "id")
        for counted in (await self.count_runs()).values():
            runs.update(counted)
        return {
            "store": "temporal", "url": self.url, "worker": self.worker_id, "namespace": self.address.namespace,
            "server": about.server_version, "store_id": None if named is None else public_id(named["id"]), "side": side,
            "integrity": "ok" if side is None else side["integrity"], "runs": dict(runs),
            "open_approvals": len(await self.approvals(limit=_LOOKED_AT)),
        }  # fmt: skip

    async def _hold_lock(self) -> None:
        """A process on Temporal is known to be alive by its polls."""

    async def _living(self) -> list[Any]:
        return []

    def _flush(self) -> None:
        """Do nothing: what is written here goes to the cluster at once."""

    def heartbeat(self, ttl_ms: int) -> NoReturn:
        raise self._of_a_database("leases")

    def transaction(self, isolation: str) -> NoReturn:
        raise self._of_a_database("transactions")

    def shuts_out(self, isolation: str) -> NoReturn:
        raise self._of_a_database("transactions")

    def _submit(self, do: Any, **_: Any) -> NoReturn:
        raise self._of_a_database("rows that could be written")

    def _of_a_database(self, what: str) -> Unsupported:
        return Unsupported(f"{self.url!r} is a Temporal cluster, which has no {what}: this is done in databases alone")

    async def _mirrored(self, do: Callable[[Transaction], Asking[T]]) -> T:
        return await self._mirror._submit(do)

    async def _read(self, read: Callable[P, Asking[T]], *arguments: P.args, **named: P.kwargs) -> T:
        return await self._mirror._read(read, *arguments, **named)

    async def _snapshot(self, read: Callable[P, Asking[T]], *arguments: P.args, **named: P.kwargs) -> T:
        return await self._mirror._snapshot(read, *arguments, **named)

    async def _glance(self, read: Callable[P, Asking[T]], *arguments: P.args, **named: P.kwargs) -> T:
        return await self._mirror._glance(read, *arguments, **named)

    async def _asked(self, call: Awaitable[T], run: str = "") -> T:
        """Ask the cluster something, within the deadline of the caller."""
        try:
            async with asyncio.timeout(write_limit.get() or self.read_limit_s()):
                try:
                    return await call
                except WorkflowUpdateRPCTimeoutOrCancelledError as error:  # the SDK's word for a cancel of ours
                    if isinstance(error.__cause__, asyncio.CancelledError):
                        raise error.__cause__ from None
                    raise
        except RPCError as error:
            if run and is_missing(error):
                raise UnknownRun(f"there is no run {run!r} in {self.url}") from None
            if is_too_large(error):
                raise NotStorable(
                    f"what was sent is too large for the cluster at {self.url!r}: {error}; {ELSEWHERE}"
                ) from error
            raise StoreUnavailable(f"the cluster at {self.url!r} did not answer: {self.address.told(error)}") from error
        except TimeoutError:
            raise StoreUnavailable(f"the cluster at {self.url!r} did not answer in time") from None

    # The mirror

    async def _place(self, found: Sequence[Found]) -> None:
        async with self._turn:
            await self._mirrored(_Put(found))

    def _forget_seen(self, run: str) -> None:
        self._seen.pop(run, None)

    async def _described(self, run: str) -> WorkflowExecutionDescription | None:
        try:
            return await self._asked(self.client.get_workflow_handle(run).describe(), run)
        except UnknownRun:
            return None

    async def _refresh(self, run: str, *, whole: bool = True) -> Found | None:
        """Bring a run in the mirror up to date; `whole`: with its journal."""
        if not run:
            return None
        async with self._turn:
            described = await self._described(run)
            if described is None:
                return None
            status = "" if described.status is None else described.status.name
            left = await self._is_left(described)
            mark = (described.run_id or "", described.history_length, status, left, history.is_failing(described))
            known = self._seen.get(run)
            if known is not None and known.mark == mark and (known.whole or not whole):
                return None
            self._news.hurry()
            over = status not in ("RUNNING", "")
            short = described.history_length <= _SHORT and not looks_again.get()
            whole = whole or over or short
            found = None if whole else await self._asked(history.told(self.client, described), run)
            if (
                found is None or not found.row.input or found.more
            ):  # the memo has no long arguments, and not every question
                whole, found = True, await self._asked(history.read(self.client, described), run)
            if found is not None:
                if left and (found.row.status != "paused" or history.is_told_to_stop(described)):
                    found.row.status, found.row.waits_for, found.row.due_at = "ready", None, None
                elif not left and (reason := await self._misfit(described)) is not None:
                    found.row.status, found.row.waits_for, found.row.due_at = "paused", None, None
                    found.row.reason = reason
                await self._mirrored(_Put([found]))
                self._seen[run] = _Seen(mark, whole, found.row)
            return found

    async def _misfit(self, described: WorkflowExecutionDescription) -> str | None:
        """Say why a run does not go on whose code does not fit its history: the cluster refuses what the code does, each time."""
        failure = await self._asked(history.failure(self.client, described), described.id)
        return history.misfit(described.id, failure.message) if failure is not None and failure.misfit else None

    async def _is_left(self, described: WorkflowExecutionDescription) -> bool:
        """Has something come for a run that no worker takes up, because none polls for it?"""
        return history.is_due(described) and not await self._has_poller(described.task_queue or "")

    async def _has_poller(self, queue: str) -> bool:
        here = () if self._served_here is None else self._served_here.polls
        return queue in here or await self._asked(self._is_polled(queue))

    async def _refresh_family(self, run: str) -> None:
        """Bring a run, and all below it, up to date."""
        waiting, seen = [run], set[str]()
        while waiting:
            each = waiting.pop()
            if each in seen:
                continue
            seen.add(each)
            await self._refresh(each)
            events = await self._mirror.journal(each)
            waiting += [event.data["child"] for event in events if event.kind in ("child.started", "child.spawned")]

    async def _list(self, query: str, limit: int = _LOOKED_AT) -> None:
        """Bring the runs of a list into the mirror, as their memos tell of them."""
        wanted = f"WorkflowType = '{RUN}' AND ExecutionStatus != 'ContinuedAsNew' AND TaskQueue STARTS_WITH '{self.address.queue}:'"
        found, troubled = dict[str, Found](), set[str]()

        async def look() -> None:
            async for execution in self.client.list_workflows(f"{wanted}{query}", page_size=500, limit=limit):
                if _PROBLEMS in execution.raw_info.search_attributes.indexed_fields:
                    troubled.add(execution.id)
                told = None if execution.id in found else await history.told(self.client, execution)
                if told is not None:
                    found[execution.id] = told

        await self._asked(look())
        if begun := [each.row for each in found.values() if history.is_new(each.row)]:
            # The index does not know how long histories are: a worker that has its code has it, or will in a moment.
            served, now = await self.agents(), self.clock.now()
            for row in begun:
                if is_served(row, served) and (row.due_at or 0) <= now:
                    row.due_at = None
                else:
                    row.status = "ready"
        async with self._turn:
            apart = {*troubled, *(run for run, each in found.items() if each.more)}
            new = [each for run, each in found.items() if run not in apart and self._is_news(each.row)]
            for each in new:
                self._seen.pop(each.row.id, None)
            if new:
                await self._mirrored(_Put(new))
        for run in found.keys() & apart:
            await self._refresh(run)
        with contextlib.suppress(StoreUnavailable):  # lists do without them while that database is away
            await self._bring_questions(_nothing)

    def _is_news(self, told: RunRow) -> bool:
        """Does a list say what the mirror does not? The index is a moment behind, and others may be reading what the mirror has."""
        known = self._seen.get(told.id)
        if known is None or (told.updated_at or 0) > (known.row.updated_at or 0):
            return True
        as_known = (told.status, told.waits_for) == (known.row.status, known.row.waits_for)
        return told.updated_at == known.row.updated_at and not as_known

    # Reading

    async def run(self, run: str) -> RunRow | None:
        if not run:  # a probe
            await self._asked(self.client.workflow_service.get_system_info(GetSystemInfoRequest()))
            return None if self.side is None else await self.side.run("")
        await self._refresh(run, whole=False)
        return await super().run(run)

    async def runs(self, **which: Any) -> list[RunRow]:
        await self._list(_query(which))
        return await super().runs(**which)

    async def count_runs(self, **which: Any) -> dict[str, dict[str, int]]:
        await self._list(_query(which))
        return await super().count_runs(**which)

    async def run_counts(self, **which: Any) -> Any:
        await self._list(_query(which))
        return await super().run_counts(**which)

    async def recent_runs(self, limit: int, only: Mapping[str, str] | None = None) -> list[tuple[str, str, str, str]]:
        await self._list("")
        return await super().recent_runs(limit, only)

    async def runs_beginning(
        self, text: str, limit: int, only: Mapping[str, str] | None = None
    ) -> list[tuple[str, str, str]]:
        await self._list(f" AND WorkflowId STARTS_WITH {_quoted(text)}")
        return await super().runs_beginning(text, limit, only)

    async def census(self, late_ms: int) -> list[Any]:
        await self._list(" AND ExecutionStatus = 'Running'")
        return await super().census(late_ms)

    async def stuck(self, late_ms: int, limit: int = 100) -> list[RunRow]:
        await self._list(" AND ExecutionStatus = 'Running'")
        return await super().stuck(late_ms, limit)

    async def approval(self, approval: str) -> ApprovalRow:
        beside = await self._question_beside(approval)
        if beside is not None:
            return beside
        await self._find_question(approval)
        return await super().approval(approval)

    async def _question_beside(self, approval: str) -> ApprovalRow | None:
        """Read a question about a budget: these lie in the database beside the cluster."""
        if self.side is None:
            return None
        with contextlib.suppress(UnknownApproval):
            if (await self._mirror.approval(approval)).key != BUDGET:
                return None
        with contextlib.suppress(UnknownApproval):
            return await self.side.approval(approval)
        return None

    async def _bring_questions(self, then: Callable[[], Awaitable[T]], statuses: Iterable[str] = ()) -> T:
        """Bring the questions about budgets that are open, and those of other statuses, into the mirror, and read it then.

        Nobody else does so in between: what was decided before this began is not shown as open.
        """
        if self.side is None:
            return await then()
        looked: set[str] = set()
        while True:
            async with self._turn:
                asked = await self._questions_beside(self.side, ["open", *statuses])
                missing = [run for run in {row.run_id for row in asked} - looked if await self._mirror.run(run) is None]
                if not missing:
                    await self._mirrored(_Bring(asked))
                    return await then()
            for run in missing:
                looked.add(run)
                await self._refresh(run, whole=False)

    async def _questions_beside(self, side: Store, statuses: Iterable[str]) -> list[ApprovalRow]:
        found = await side._read(rows, "budget_questions", statuses=to_json(list(statuses)), limit=_LOOKED_AT)
        return [ApprovalRow(*row) for row in found]

    async def approvals(
        self, *, run: str | None = None, approval: str | None = None, statuses: Iterable[str] = ("open",), limit: int = 100,
        after: str | None = None, at: int | None = None, only: Mapping[str, str] | None = None,
    ) -> list[ApprovalRow]:  # fmt: skip
        wanted = list(statuses)
        if approval is not None:
            await self._find_question(approval)
        elif run is not None:
            await self._refresh_family(run)
        else:
            await self._list(" AND HoldfastQuestions IS NOT NULL AND ExecutionStatus = 'Running'")
        look = functools.partial(
            super().approvals, run=run, approval=approval, statuses=wanted, limit=limit, after=after, at=at, only=only
        )
        return await self._bring_questions(look, wanted)

    async def _find_question(self, approval: str) -> None:
        """Bring the run that asks this into the mirror."""
        if await self._question_beside(approval) is not None:
            return
        with contextlib.suppress(UnknownApproval):
            await self._refresh((await self._mirror.approval(approval)).run_id)
            return
        for which in (approval, MORE):
            for run in await self._askers(which):
                await self._refresh(run)
                with contextlib.suppress(UnknownApproval):
                    await self._mirror.approval(approval)
                    return

    async def _askers(self, question: str) -> list[str]:
        """Find runs by a question of theirs: by any of their executions, because the index may have the last one later."""
        ours = f"WorkflowType = '{RUN}' AND TaskQueue STARTS_WITH '{self.address.queue}:'"
        found: dict[str, None] = {}

        async def look() -> None:
            query = f"{ours} AND HoldfastQuestions = {_quoted(question)}"
            async for execution in self.client.list_workflows(query, limit=_LOOKED_AT):
                found[execution.id] = None

        await self._asked(look())
        return list(found)

    async def voted(self, run: str, ballot: str) -> ApprovalRow | None:
        await self._refresh(run)
        found = await super().voted(run, ballot)
        return found if found is not None or self.side is None else await self.side.voted(run, ballot)

    async def spent(self, runs: Iterable[str]) -> dict[str, Spent]:
        """Read what runs have spent, as far as the mirror has them, or as the database beside the cluster has summed it."""
        ids = list(runs)
        found = await super().spent(ids)
        if self.side is not None:
            with contextlib.suppress(StoreUnavailable):
                found |= await self.side.spent(ids)
        return found

    async def granted(self, runs: Iterable[str]) -> dict[str, list[Asked]]:
        """Read what people have given, from the database beside the cluster, which has the questions about budgets."""
        if self.side is not None:
            with contextlib.suppress(StoreUnavailable):
                return await self.side.granted(runs)
        return {}

    async def spent_by(self, run: str, limit: int = 10) -> list[tuple[str, Spent]]:
        await self._refresh(run)
        found = [] if self.side is None else await self.side.spent_by(run, limit)
        return found or await super().spent_by(run, limit)

    async def agents(self) -> Published:
        """Read what workers have published, and which of it is polled for."""
        loop = asyncio.get_running_loop()
        if self._published is not None and self._published[0] > loop.time() - _AGENTS_S:
            return self._published[1]
        found: dict[str, tuple[str | None, str, set[str], bool]] = {}
        query = f"WorkflowType = '{AGENT}' AND ExecutionStatus = 'Running' AND TaskQueue STARTS_WITH '{self.address.queue}:'"

        async def look() -> None:
            async for execution in self.client.list_workflows(query):
                said = (await execution.memo()).get("Holdfast", {})
                name, version = said["agent"], said["version"]
                known = found.setdefault(name, (version, said["schema"], set(), False))
                if said["newest"] and not known[3]:
                    found[name] = (version, said["schema"], known[2], True)
                if await self._is_polled(self.address.task_queue(name, version, "default")):
                    found[name][2].update({"", version or ""})

        await self._asked(look())
        here = [] if self._served_here is None else self._served_here.serves
        for name in here:
            agent, _, version = name.partition(" ")
            if agent in found:
                found[agent][2].update({"", version})
        published = {name: (version, schema, frozenset(served)) for name, (version, schema, served, _) in found.items()}
        self._published = loop.time(), published
        return published

    async def _is_polled(self, queue: str) -> bool:
        asked = DescribeTaskQueueRequest(
            namespace=self.address.namespace, task_queue=TaskQueue(name=queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )  # fmt: skip
        found = await self.client.workflow_service.describe_task_queue(asked)
        now_s = self.clock.now() / 1000
        return any(poller.last_access_time.ToSeconds() > now_s - _ALIVE_S for poller in found.pollers)

    async def streams(self, run: str) -> list[Piece]:
        return [] if self.side is None else await self.side.streams(run)

    async def pieces(self, run: str, stream: str, after: int, limit: int = 500) -> Sequence[Piece]:
        return [] if self.side is None else await self.side.pieces(run, stream, after, limit)

    async def conversations_held(self, run: str) -> list[str]:
        return [] if self.side is None else await self.side.conversations_held(run)

    async def stream_sizes(self, run: str) -> dict[str, int]:
        return {} if self.side is None else await self.side.stream_sizes(run)

    async def paused_rates(self, *args: Any, **named: Any) -> list[tuple[str, int]]:
        return [] if self.side is None else await self.side.paused_rates(*args, **named)

    async def feed_reach(self) -> tuple[int, int]:
        return await super().feed_reach() if self.side is None else await self.side.feed_reach()

    async def queues_taken(self) -> frozenset[str] | None:
        return None

    async def audit(self, run: str | None = None, limit: int = 100, **which: Any) -> list[Any]:
        """Read the audit. Without a database beside the cluster it has only the starter of a run, from its history.

        A caller that looks for what it says of one question or run, and can do without, is told nothing.
        """
        if self.side is not None:
            return await self.side.audit(run, limit, **which)
        if "only" in which:
            raise self.refusal("audit")
        if run is None or which.get("actions") != ["start"]:
            return []
        described = await self._described(run)
        found = None if described is None else await self._asked(history.read(self.client, described), run)
        return [] if found is None or found.start is None else [{"actor": found.start.starters[0], "data": {}}]

    async def _note(
        self, run: str, by: str, via: str, action: str, data: dict[str, Any], value: str | None = None
    ) -> None:
        """Note in the audit what was done, if there is one: behind the deed, because a cluster has no transaction with it."""
        if self.side is not None:
            await self.side._submit(lambda tx: note(tx, run, by, via, action, data, value), journal=False)

    # Writing

    async def create(
        self, run: NewRun, blobs: Mapping[str, bytes] | None = None, *, by: str = "", via: str = ""
    ) -> tuple[RunRow, bool]:
        lane = run.lane
        if lane.limit_key or lane.rate_key or lane.singleton_key:
            raise Unsupported(
                f"agent {run.agent!r} has a limit, a rate or a singleton, which span runs and need a database of Holdfast's own "
                f"(sqlite: or postgresql://), and {self.url!r} is a Temporal cluster"
            )
        if run.budget is not None and self.side is None:
            raise self.refusal("budgets")
        run.input = _whole(run.input, blobs)
        starters = people.starters(by or people.SOMEONE.name, via)
        start = Start.of(run, [], starters, self.address.longest, self.clock.now(), side=self.side is not None)
        self._check_travels(start)
        await self._forget_former(run.id)
        try:
            await self._asked(self._started(start, None, delay_ms=run.delay_ms))
        except WorkflowAlreadyStartedError:
            await self._refresh(run.id)
            row = await super().run(run.id)
            if row is None:
                raise UnknownRun(f"{run.id!r} is a workflow in {self.url} that is no run of Holdfast's") from None
            return row, row.uid == run.uid
        start.row.status = "ready"
        await self._note(run.id, by, via, "start", {"agent": run.agent})
        return start.row, True

    def _check_travels(self, start: Start) -> None:
        """Refuse arguments that the cluster would refuse: as a text in a text, they may travel longer than they are."""
        travels = weight(start.text())
        if self.address.blobs is None and travels > PAYLOADS:
            raise NotStorable(escaped(start.row.input, travels))

    async def _forget_former(self, run: str) -> None:
        """Forget beside the cluster, too, what it has forgotten of a run whose id is used again: its sums are not the new one's."""
        if self.side is None:
            return
        found = await self.side.run(run)
        if found is not None and is_shadow(found) and await self._described(run) is None:
            await self.side._submit(Forget(run, found.created_at))

    async def _started(
        self, start: Start, state: bytes | None, *, delay_ms: int = 0, again: bool = False, memo: Mapping[str, Any] | None = None,
        asked: Collection[ApprovalRow] = (),
    ) -> None:  # fmt: skip
        """Start the workflow of a run; `asked` are its questions, which are shown before any worker has it."""
        row, reuse, memo = start.row, WorkflowIDReusePolicy, {**first_memo(start.row, asked), **(memo or {})}
        await self.client.start_workflow(
            RUN, args=[start.text(), state], id=row.id, task_queue=self.address.task_queue(row.agent, row.version, row.queue),
            id_reuse_policy=reuse.ALLOW_DUPLICATE if again else reuse.REJECT_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL, memo=memo, search_attributes=first_attributes(row, asked),
            start_delay=timedelta(milliseconds=delay_ms) if delay_ms else None,
        )  # fmt: skip

    async def send(
        self, run: str, signal_id: str, kind: str, topic: str, value: str | None, data: dict[str, Any],
        blobs: Mapping[str, bytes] | None = None, *, by: str = "", via: str = "",
    ) -> int:  # fmt: skip
        """Send a signal. Its place in the inbox is known to the run alone."""
        said = {"id": signal_id, "kind": kind, "topic": topic, "value": value and _whole(value, blobs), "data": data}
        await self._signal(run, said)
        await self._note(run, by, via, "send", {"topic": topic, "position": 0})
        return 0

    async def _signal(self, run: str, said: Mapping[str, Any]) -> None:
        try:
            await self._asked(self.client.get_workflow_handle(run).signal(ARRIVE, said), run)
        except UnknownRun:
            row = await self.run(run)
            if row is None:
                raise
            raise RunFinished(f"run {run!r} is {row.status}") from None
        self._news.hurry()

    async def pause(
        self, run: str, *, by: str, via: str = "run", reason: str = "", request: str, family: bool = True, now: bool = False,
        yields: bool = False,
    ) -> str:  # fmt: skip
        row = await self._going(run, "paused")
        if (await self._was_asked(await self._must_describe(run))).stop:
            raise RunActive(f"run {run!r} was told to stop and cannot be paused; cancel it again to end it at once")
        data = {"by": by, "reason": reason, "request": request, "depth": 0, "family": family, "now": now}
        await self._signal(run, {"id": request, "kind": "run.pausing", "data": data})
        await self._note(run, by, via, "pause", {"by": by, "reason": reason} | ({"now": True} if now else {}))
        return "paused" if row.status == "paused" else "running"

    async def cancel(
        self, run: str, *, by: str, via: str = "run", reason: str = "", grace_ms: int, request: str, insist: bool = True
    ) -> str:
        row = await self.run(run)
        if row is not None and row.status == "cancelled":
            return "cancelled"
        row = await self._going(run, "cancelled")
        data = {"by": by, "reason": reason, "until": self.clock.now() + grace_ms}
        if (status := await self._cancel_left(row, data, request, insist=insist)) is None:
            await self._signal(run, {"id": request, "kind": "run.cancelling", "data": data})
            with contextlib.suppress(UnknownRun):  # so that the cluster shows it as cancelled too
                await self._asked(self.client.get_workflow_handle(run).cancel(), run)
            status = row.status
        await self._note(run, by, via, "cancel", data)
        return status

    async def _cancel_left(self, row: RunRow, data: dict[str, Any], request: str, *, insist: bool) -> str | None:
        """End a run that no worker can carry, if it was asked to stop before or nobody could tidy up; None: ask it to stop."""
        described = await self._must_describe(row.id)
        misfits = await self._misfit(described) is not None
        if not misfits and await self._is_carried(row):
            return None
        before = await self._asked(history.stops(self.client, described), row.id)
        if not before and not misfits and not history.is_untaken(described):
            return None
        if [name for name, _ in before] == [request] or (before and not insist):
            return row.status  # our own, whose answer was lost; or one that does not insist
        # A second request that says nothing does not unsay what the first one said.
        reason = data["reason"] or next((each["reason"] for _, each in before if each.get("reason")), "")
        await self._end(row, {"by": data["by"], "reason": reason}, top=True)
        return "cancelled"

    async def _is_carried(self, row: RunRow) -> bool:
        """Does a worker live that polls for it?"""
        return await self._has_poller(self.address.task_queue(row.agent, row.version, row.queue))

    async def _end(self, row: RunRow, data: dict[str, Any], *, top: bool = False) -> None:
        """End a run without its code, and all below it, which end first: whoever dies meanwhile can ask again.

        A worker that carries a run below ends it, as it does at a second request.
        """
        await self._refresh(row.id)
        below = {"by": f"run {row.id}", "reason": data["reason"], "until": self.clock.now()}
        for event in await self._mirror.journal(row.id):
            child = await self.run(event.data["child"]) if event.kind in ("child.started", "child.spawned") else None
            if child is None or child.status in FINISHED:
                continue
            if not await self._is_carried(child):
                await self._end(child, {"by": below["by"], "reason": below["reason"]})
                continue
            for nth in range(2):
                await self._tells(child.id, {"id": f"end:{row.uid}:{nth}", "kind": "run.cancelling", "data": below})
        told = cancelled(data["by"], data["reason"], "cancelled")
        with contextlib.suppress(UnknownRun):  # it has ended meanwhile
            ends = self.client.get_workflow_handle(row.id).terminate(history.details_of(data), reason=told)
            await self._asked(ends, row.id)
        self._forget_seen(row.id)
        self._news.hurry()
        if self.side is not None:
            await talks.leave_all(self.side, row.id, self._tells)
            await budgets.leave_all(self.side, row.id)
            await Feed(self.side, self.client).copy(row.id)
        if top and row.parent_id is not None:
            ended = {"child": row.id, "status": "cancelled", "error": None}
            await self._tells(row.parent_id, {"id": f"child:{row.id}:{row.uid}:{row.next_seq}", "kind": "child.ended",
                                              "topic": row.id, "value": None, "data": ended})  # fmt: skip
        await self.run(row.id)

    async def _going(self, run: str, what: str) -> RunRow:
        row = await self.run(run)
        if row is None:
            raise UnknownRun(f"there is no run {run!r} in {self.url}")
        if row.status in FINISHED:
            raise RunFinished(f"run {run!r} is {row.status} and cannot be {what}")
        return row

    async def resume(
        self, run: str, *, by: str, via: str = "run", retry: bool = False, budget: str | None = None, family: bool = True,
        at: int | str | None = None, effects: str | None = None,
    ) -> None:  # fmt: skip
        if at is not None:
            raise Unsupported("a retry from another place needs a database of Holdfast's own")
        row = await self.run(run)
        if row is None:
            raise UnknownRun(f"there is no run {run!r} in {self.url}")
        noted = {"by": by, "cut": None} | ({} if budget is None else {"budget": json.loads(budget)})
        if row.status == "failed" and retry:
            await self._retry(row, by, via, budget)
            await self._note(run, by, via, "retry", noted)
            return
        if row.status in FINISHED:
            advice = "; retry it instead" if row.status == "failed" else ""
            raise RunFinished(f"run {run!r} is {row.status} and cannot be resumed{advice}")
        if row.status != "paused" and not await self._is_to_pause(run):
            raise RunActive(f"run {run!r} is {row.status} and not paused: there is nothing to resume")
        data = {"by": by, "requests": [], "direct": True, "family": family}
        if budget is not None:
            await self._rebudget(row, budget)
            data["budget"] = budget
        await self._signal(
            run, {"id": f"resume:{run}:{row.next_seq}:{secrets.token_hex(8)}", "kind": "run.resumed", "data": data}
        )
        await self._until_resumed(row)
        await self._note(run, by, via, "resume", noted)

    async def _until_resumed(self, before: RunRow) -> None:
        """Wait until a worker has let the run go on: what a client reads next must not be that it is paused, if not anew."""
        limit_s, run = write_limit.get() or 30.0, before.id
        try:
            async with asyncio.timeout(limit_s):
                while (row := await self.run(run)) is not None and row.status == "paused":
                    if before.status == "paused" and row.next_seq > before.next_seq:
                        return
                    await asyncio.sleep(_SOONEST_S)
        except TimeoutError as error:
            raise await self._unanswered(run, error, ", which was told to go on") from None

    async def _was_asked(self, described: WorkflowExecutionDescription) -> history.Asked:
        return await self._asked(history.asked(self.client, described), described.id)

    async def _is_to_pause(self, run: str) -> bool:
        """Was the run asked to pause, and was that not undone?

        The cluster shows what came while a worker is at a workflow task when that task is done, and not before.
        """
        described = await self._must_describe(run)
        task, found = history.task_of(described), await self._was_asked(described)
        if found.pause or found.stop or task is None:
            return found.pause
        while history.task_of(described) == task:
            await asyncio.sleep(_SOONEST_S)
            described = await self._must_describe(run)
        return (await self._was_asked(described)).pause

    async def _rebudget(self, row: RunRow, budget: str) -> None:
        """Set what a run may spend from now on, in all. Runs below it look at budgets only if they were begun below one."""
        if self.side is None:
            raise self.refusal("budgets")
        if row.budget is None:
            await self._refresh_family(row.id)
            for each in await self._mirror.members(row.id):
                if each.id != row.id and each.status not in FINISHED:
                    raise Unsupported(
                        f"run {row.id!r} had no budget, and run {each.id!r}, which was started below it, goes on: on a Temporal "
                        "cluster that would look at none. Give the budget when all below have ended, or start the run with one"
                    )
        found = await self._asked(history.read(self.client, await self._must_describe(row.id)), row.id)
        assert found is not None
        assert found.start is not None
        start = found.start
        if not start.side:
            raise Unsupported(
                f"run {row.id!r} was started without a database beside the cluster (?side=), where budgets lie, and can have none. "
                "Retry it without budget=, or start another run"
            )
        start.row.budget, start.row.started_at = budget, row.started_at or row.created_at
        await self.side._submit(budgets.Rebudget(start.line(), json.loads(row.labels), budget))

    async def _retry(self, row: RunRow, by: str, via: str, budget: str | None = None) -> None:
        """Start a failed run anew, from its journal without what a retry takes out of that; then those below that failed with it.

        The rules of the cut are those of a database: they are applied to the mirror.
        """
        run = row.id
        if budget is not None:
            await self._rebudget(row, budget)
        await self._refresh_family(run)
        await self._mirrored(Resume(run, by, via, True, budget, True, whole=True))
        found = [
            await self._mirror.run(run),
            *await self._mirror.runs(root=run, limit=_LOOKED_AT, statuses=["ready"]),
        ]
        ready = {row.id: row for row in found if row is not None and row.status == "ready"}
        try:
            if self.side is not None and (under := [each.id for each in ready.values() if each.budget is not None]):
                await self.side._submit(budgets.Reconsider(under))
            for start, packed, asked in [await self._ready_anew(row) for row in ready.values()]:
                try:
                    await self._asked(self._started(start, packed, again=True, asked=asked))
                except WorkflowAlreadyStartedError:
                    raise RunActive(f"run {start.row.id!r} was retried by somebody else meanwhile") from None
        finally:
            for each in ready:
                self._forget_seen(each)  # the mirror says what is to be, and not what is

    async def _ready_anew(self, row: RunRow) -> tuple[Start, bytes, Collection[ApprovalRow]]:
        """Make what a failed run starts anew with, or refuse: it may be too much for a payload."""
        found = await self._asked(history.read(self.client, await self._must_describe(row.id)), row.id)
        assert found is not None
        assert found.start is not None
        whole = await self._mirror.journal(row.id, dropped=True)
        await unspill(self._mirror, whole)
        events = [event for event in whole if event.dropped is None]
        children = {event.data["child"]: None for event in events if event.kind in ("child.started", "child.spawned")}
        asked = {event.data["approval"] for event in events if event.kind == "approval.asked"}
        # The agent still waits for these: the server ended the run, and not the engine, which withdraws them.
        waits = {name: question for name, question in found.left_open.items() if name in asked}
        state = State(events, moving(row), {**found.questions, **waits}, dict(children), parts=found.parts)
        state.dropped = [event for event in whole if event.dropped is not None]
        state.row |= {"lease_epoch": row.lease_epoch, "status": "ready"}
        for child in children:
            state.children[child] = await self._how_it_ended(child)
        packed = state.pack()
        found.start.row.budget = row.budget
        self._check_fits(found.start, packed)
        return found.start, packed, waits.values()

    async def _must_describe(self, run: str) -> WorkflowExecutionDescription:
        described = await self._described(run)
        if described is None:
            raise UnknownRun(f"there is no run {run!r} in {self.url}")
        return described

    async def _how_it_ended(self, run: str) -> dict[str, Any] | None:
        row = await self._mirror.run(run)
        if row is None or row.status not in FINISHED:
            return None
        error = None if row.error is None else json.loads(row.error)
        return {"child": run, "status": row.status, "error": error, "value": row.result}

    async def decide(
        self, approval: str, ballot: Ballot, blobs: Mapping[str, bytes] | None = None, known: ApprovalRow | None = None
    ) -> ApprovalRow:
        return await self._say(approval, ballot, blobs)

    async def delegate(self, approval: str, to: str, ballot: Ballot) -> ApprovalRow:
        return await self._say(approval, ballot, None, to)

    async def _say(
        self, approval: str, ballot: Ballot, blobs: Mapping[str, bytes] | None, to: str | None = None
    ) -> ApprovalRow:
        """Say something to a question. The run counts it; what it refuses is told in the words of the rule, which is here too."""
        row = await self.approval(approval)
        said = {**asdict(ballot), "value": ballot.value and _whole(ballot.value, blobs)}
        asked = {"question": approval, "ballot": said, "to": to, "brief": True}
        if to is None and row.status == "open" and not _has(row, ballot):
            stops = await self._closing(row.run_id)
            if stops is not None:
                raise closed_by(stops, approval)
        beside = row.key == BUDGET and await self._question_beside(approval) is not None
        if not beside and not _has(row, ballot):
            await self._check_link(ballot.via)
        answer = await (self._answer_beside(asked, ballot.id) if beside else self._answer(row.run_id, asked, ballot.id))
        self._news.hurry()
        if "error" in answer:
            now = await self.approval(approval)
            if _has(now, ballot):
                return now
            (count(self.clock.now(), now, ballot) if to is None else delegated(self.clock.now(), now, to, ballot))
            raise _error(answer)
        decided = ApprovalRow(**{**answer, "shown": row.shown})
        if decided.data is None:  # it is not told back to whom it came from
            decided.data = said["value"]
        if self.side is not None and not beside:
            if ballot.via.startswith(people.LINK):
                await self._use_link(ballot.via)
            with contextlib.suppress(HoldfastError):
                at = self.clock.now()
                what = count(at, row, ballot) if to is None else delegated(at, row, to, ballot)
                await self._note(row.run_id, what.by, what.via, what.action, what.data, decided.data or decided.shown)
        return decided

    async def _closing(self, run: str) -> str | None:
        """Name the run, this one or one above it, that was asked to stop and whose agent was not told yet.

        The cluster says so from the moment when the request is acknowledged, whatever workers do.
        """
        above: str | None = run
        while above is not None and (described := await self._described(above)) is not None:
            found = await self._asked(history.told(self.client, described), above)
            if found is None:
                return None
            if described.raw_description.workflow_extended_info.cancel_requested and found.row.status not in FINISHED:
                whole = await self._asked(history.read(self.client, described), above)
                if whole is not None and not is_told(whole.events):
                    return above
            above = found.row.parent_id
        return None

    async def _check_link(self, via: str) -> None:
        """Refuse a link that was used. The run itself refuses a second vote by one, so two at once are one too."""
        if self.side is not None and via.startswith(people.LINK):
            found = await self.side.link(via.removeprefix(people.LINK))
            if found is None or found.used_at is not None:
                await self.side._submit(lambda tx: use_link(tx, via), journal=False)  # which says so

    async def _use_link(self, via: str) -> None:
        """Note that a person has decided by a link: behind the deed, because a cluster has no transaction with it."""
        assert self.side is not None
        with contextlib.suppress(AlreadyDecided):
            await self.side._submit(lambda tx: use_link(tx, via), journal=False)

    async def _answer_beside(self, asked: dict[str, Any], request: str) -> dict[str, Any]:
        """Have a run that waits for the answer count what a person says to a question about a budget, and tell all that wait."""
        assert self.side is not None
        asking, problem = set[asyncio.Task[dict[str, Any]]](), None
        askers = [run for (run,) in await self.side._read(rows, "askers", approval=asked["question"])]
        try:
            while askers or asking:
                if askers:
                    answer = self._answer(askers.pop(0), {**asked, "beside": True}, request)
                    asking.add(asyncio.create_task(answer))
                # A run that no worker serves keeps none of the others waiting: the ballot is counted once, whichever
                # run has it counted.
                done, asking = await asyncio.wait(
                    asking, timeout=_NEXT_S if askers else None, return_when=asyncio.FIRST_COMPLETED
                )
                for each in done:
                    if each.exception() is not None:
                        problem = each.exception()
                    elif each.result().get("error") != RunFinished.__name__:
                        return each.result()
        finally:
            for each in asking:
                each.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        if problem is not None:
            raise problem
        return await budgets.decide(self.side, asked, self._tells)  # all of them have ended, or none waits any more

    async def _tells(self, run: str, said: dict[str, Any]) -> bool:
        try:
            await self._asked(self.client.get_workflow_handle(run).signal(ARRIVE, said), run)
        except UnknownRun:
            return False
        return True

    async def _answer(self, run: str, asked: dict[str, Any], request: str) -> dict[str, Any]:
        """Have a run answer what a person says. Asked again under the same id, it counts that once.

        It goes on in another execution now and then, few may ask it at once, and the server lets nobody ask a run whose workflow
        tasks fail. A large value goes before, as a signal: a workflow task sends all that is asked back to the server, in one
        message, and the server ends a workflow whose message is too large.
        """
        ballot = asked["ballot"]
        aside = None
        if len(ballot["value"] or "") > ASIDE_BYTES:
            aside = {"id": f"aside:{request}", "kind": ASIDE, "topic": request, "value": ballot["value"]}
            asked = {**asked, "ballot": {**ballot, "value": None}, "aside": request}
            await self._tells(run, aside)
        handle, loop, limit_s = (
            self.client.get_workflow_handle(run),
            asyncio.get_running_loop(),
            write_limit.get() or 30.0,
        )
        end = loop.time() + limit_s
        while True:
            update = handle.execute_update(
                DECIDE, asked, id=request, result_type=dict, rpc_timeout=timedelta(seconds=limit_s)
            )
            try:
                answer: dict[str, Any] = await self._asked(update, run)
                return answer
            except UnknownRun as error:
                problem: Exception = error
                described = await self._described(run)
                if described is None or described.status is None or described.status.name != "RUNNING":
                    message = f"question {asked['question']!r} is closed: its run has ended"
                    return {"error": "RunFinished", "message": message}
            except WorkflowUpdateFailedError as error:
                if aside is None or not isinstance(error.cause, ApplicationError) or error.cause.type != NOT_ASIDE:
                    raise
                problem = error
                await self._tells(run, aside)  # the run went on in another execution meanwhile
            except (WorkflowUpdateRPCTimeoutOrCancelledError, StoreUnavailable) as error:
                cause, problem = error.__cause__, error
                if not isinstance(cause, RPCError) or cause.status not in _ASK_AGAIN:
                    raise await self._unanswered(run, error) from error
            if loop.time() > end:
                raise await self._unanswered(run, problem) from problem
            await asyncio.sleep(_SOONEST_S)


@dataclass(slots=True)
class _Seen:
    """State of a run in the mirror: its workflow as it was, whether with the journal, and its row."""

    mark: tuple[Any, ...]
    whole: bool
    row: RunRow


def _has(row: ApprovalRow, ballot: Ballot) -> bool:
    """Was this ballot counted before?"""
    return any(each["id"] == ballot.id for each in (*json.loads(row.votes), *json.loads(row.delegations)))


def _error(answer: Mapping[str, str]) -> HoldfastError:
    kind = _KINDS.get(answer["error"], RunFinished)
    made: HoldfastError = kind(answer["message"])
    return made


class Rounds:
    """Lets waiters for a run look again: often after something has changed, then ever more rarely."""

    def __init__(self, tell: Callable[[Changes], None]) -> None:
        self._tell, self._pause_s = tell, _SOONEST_S
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep())

    def hurry(self) -> None:
        """Look again soon: something has changed, or is about to."""
        self._pause_s = _SOONEST_S

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(self._pause_s * 1.3, _LATEST_S)
            self._tell({"": News.DUE})


class _Put:
    """Put runs into the mirror, instead of what it has of them."""

    def __init__(self, found: Sequence[Found]) -> None:
        self._found = found

    def __call__(self, tx: Transaction) -> Asking[None]:
        for found in self._found:
            row, spendings = found.row, []
            asked = [ApprovalRow(*each) for each in (yield from tx.rows("approvals_of", ids=to_json([row.id])))]
            for query in ("delete_run", "delete_events", "delete_signals"):
                yield from tx.rows(query, run=row.id)
            values = {name: value for name, value in asdict(row).items() if name not in _OWN}
            values["epoch"] = values.pop("lease_epoch")
            for name in ("input", "result"):
                if values[name] is not None:
                    values[name], blobs = spilled(values[name])
                    yield from insert_blobs(tx, blobs)
            yield from tx.rows("import_run", **values)
            yield from record(tx, row.id, found.events)
            for event in found.events:
                if "spent" in event.data:
                    spendings.append(Spending.of(event))
                if event.dropped is not None:
                    yield from tx.rows("drop_event", run=row.id, seq=event.seq, dropped=event.dropped)
            if found.parts:
                yield from keep_parts(tx, [(row.id, found.parts)])
            for position, signal_id, kind, topic, value, told, at in found.inbox:
                yield from tx.rows("insert_signal", run=row.id, position=position, signal_id=signal_id, kind=kind, topic=topic,
                                   value=value, data=told, now=at)  # fmt: skip
            beside = [question for question in asked if question.key == BUDGET]  # which the cluster does not tell
            for question in (*found.questions.values(), *beside):
                yield from _put_question(tx, question)
            if spendings:
                yield from spend_alone(row.id, spendings)  # sums of families are those of the side
            tx.changed(row.id, News.GREW)


async def _nothing() -> None: ...


class _Bring:
    """Replace the questions about budgets in the mirror by these: all that are open, and others."""

    def __init__(self, asked: Sequence[ApprovalRow]) -> None:
        self._asked = asked

    def __call__(self, tx: Transaction) -> Asking[None]:
        yield from tx.rows("forget_questions", ids=to_json([question.id for question in self._asked]))
        for question in self._asked:
            if (yield from tx.row("fence", run=question.run_id)) is not None:  # else the cluster has forgotten its run
                yield from _put_question(tx, question)


def _put_question(tx: Transaction, question: ApprovalRow) -> Asking[None]:
    asked = asdict(question)
    asked["run"], asked["root"], asked["by"] = asked.pop("run_id"), asked.pop("root_id"), asked.pop("decided_by")
    yield from tx.rows("import_approval", **asked)


def _whole(text: str, blobs: Mapping[str, bytes] | None) -> str:
    return blobs[text[10:74]].decode() if blobs and text.startswith('{"$blob":') else text


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _query(which: Mapping[str, Any]) -> str:
    """Ask the cluster's index for what it can answer of a filter; the mirror does the rest."""
    wanted = ""
    for name, key in (("statuses", "HoldfastStatus"), ("agents", "HoldfastAgent")):
        if which.get(name) is not None and name != "statuses":
            wanted += f" AND {key} IN ({', '.join(map(_quoted, which[name]))})"
    statuses = which.get("statuses")
    if statuses is not None and not FINISHED & set(statuses):
        wanted += " AND ExecutionStatus = 'Running'"
    for name, key in (("agent", "HoldfastAgent"), ("parent", "HoldfastParent"), ("root", "HoldfastRoot")):
        if which.get(name) is not None:
            wanted += f" AND {key} = {_quoted(which[name])}"
    for name, value in (which.get("labels") or {}).items():
        wanted += f" AND HoldfastLabels = {_quoted(f'{name}={value}')}"
    return wanted


def _of_run(name: str) -> Any:
    plain = getattr(Store, name)

    async def method(self: TemporalStore, run: str, *args: Any, **named: Any) -> Any:
        await self._refresh(run)
        return await plain(self, run, *args, **named)

    return method


def _of_side(name: str, feature: Feature) -> Any:
    """Ask the database beside the cluster, if there is one, for what spans runs."""

    async def method(self: TemporalStore, *args: Any, **named: Any) -> Any:
        if self.side is None:
            raise self.refusal(feature)
        return await getattr(self.side, name)(*args, **named)

    return method


def _refused(feature: Feature) -> Any:
    async def method(self: TemporalStore, *_: Any, **__: Any) -> NoReturn:
        raise self.refusal(feature)

    return method


for _name in (
    "journal", "outline", "lines", "lines_at", "outline_of", "begun_before", "worker_at", "events_at", "inputs_between",
    "last_of_kind", "last_request", "keys_like", "last_messages", "count_messages",
):  # fmt: skip
    setattr(TemporalStore, _name, _of_run(_name))
for _feature, _gap in BESIDE.items():
    for _name in _gap.operations:
        setattr(TemporalStore, _name, _of_side(_name, _feature))
for _feature, _gap in GAPS.items():
    for _name in _gap.operations:
        setattr(TemporalStore, _name, _refused(_feature))
TemporalStore.__abstractmethods__ = frozenset()  # those of the tables are there
