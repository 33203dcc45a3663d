"""The ground of one run on Temporal: what its engine asks for inside the workflow, as `Host` and as `EngineStore`.

Everything here is decided by the history of the workflow alone, and so the same on every replay: time, the order in which things
come, what was asked of the cluster. Nothing waits for a disk. What the engine appends is acknowledged at once; `flush` puts it into
the history with the workflow task in which it happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributePair, TypedSearchAttributes, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, FailureError, WorkflowAlreadyStartedError
from temporalio.workflow import ActivityCancellationType, ParentClosePolicy

from holdfast.backends.temporal.address import (
    AGENT_KEY,
    ARRIVE,
    ASIDE,
    BORN,
    FED_S,
    KEEP,
    KEYS,
    LABELS_KEY,
    MORE,
    PARENT_KEY,
    QUESTIONS_KEY,
    ROOT_KEY,
    RUN,
    STATUS_KEY,
    WAITS_KEY,
)
from holdfast.backends.temporal.beside import ASKED, Beside
from holdfast.backends.temporal.gaps import LACKS_START, LACKS_STORE
from holdfast.backends.temporal.house import House
from holdfast.backends.temporal.loads import PAYLOADS, Load, escaped, too_long, weight
from holdfast.backends.temporal.pauses import forgive, hold, is_closing, is_held_by_request, is_stopping, undo
from holdfast.backends.temporal.performer import Performer
from holdfast.backends.temporal.records import LISTED, Piece, Start, State, cut, listed, moved, moving
from holdfast.backends.temporal.slices import Slices
from holdfast.backends.temporal.turns import AHEAD_MS
from holdfast.engine.carried import Carried
from holdfast.engine.execute import begin
from holdfast.engine.loop import install
from holdfast.engine.slots import Freed
from holdfast.errors import HoldfastError, LeaseLost, NotStorable, Unsupported
from holdfast.runtime import AgentSpec, Placed, StepSpec, outside
from holdfast.store.appends import Append, InboxMoved, Told, Transition
from holdfast.store.approvals import NewApproval, Said, closed_by, count, delegated, expired, required
from holdfast.store.links import check_unused
from holdfast.store.runs import NewRun
from holdfast.store.work import settle, to_json
from holdfast.words.clock import Timer
from holdfast.words.harmless import logger
from holdfast.words.model import FINISHED, ApprovalRow, Claimed, Event, RunRow, Signal
from holdfast.words.overrides import Override
from holdfast.words.people import Actor, Ballot
from holdfast.words.spent import Spent

T = TypeVar("T")
_log = logger("holdfast")
_LARGE: Final = 30_000  # characters of what goes into the memo at once
_INDEXED: Final = 50  # questions by which a run is found: the server refuses search attributes of 2 KB
_GROWN_BYTES: Final = 10_000_000  # by which a history grows until it is tried again to leave it behind
_FULL_EVENTS: Final = 40_000  # the server ends a workflow at 51,200 events, and at 50 MB
_FULL_BYTES: Final = 40_000_000
_KNOWN: Final = 1_000  # signals whose ids are remembered
_UNWIND: Final = 200  # turns that tasks get to unwind
_CANCEL_GRACE_MS: Final = 30_000
_ACTED_UPON: Final = frozenset({"status", "due_at", "waits_for", "reason", "error"})  # others are told of these at once
_STAYS: Final = FINISHED | {"paused"}  # in these a run stays when a worker takes it
_HEARD: Final = 5  # turns of the loop in which everything that came is taken
_SHOWN: Final = 4_000  # characters of arguments that a memo tells


class WorkflowTimer:
    """A timer of the workflow; one of a workflow that leaves memory is left alone."""

    __slots__ = ("_ground", "_handle")

    def __init__(self, ground: Ground, handle: asyncio.Handle) -> None:
        self._ground, self._handle = ground, handle

    def cancel(self) -> None:
        if not self._ground.evicted:
            self._handle.cancel()


class WorkflowClock:
    """Time as the history tells it."""

    def __init__(self, ground: Ground) -> None:
        self._ground, self.later = ground, ground.loop.call_later  # before `install`

    def now(self) -> int:
        return workflow.time_ns() // 1_000_000

    def call_at(self, when: int, callback: Callable[[], object]) -> Timer:
        return self.call_later((when - self.now()) / 1000, callback)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        outside = self._ground.outside
        if delay_s <= 0:
            return WorkflowTimer(self._ground, self._ground.loop.call_soon(callback, context=outside))
        return WorkflowTimer(self._ground, self.later(max(delay_s, 0.001), callback, context=outside))

    after = call_later


@dataclass(slots=True)
class Way:
    """Ways in which a run leaves its workflow, as far as it is on one."""

    left: Transition | None = None  # how the engine left the run
    resumed: str | None = None  # by whom, while it was on its way to be paused
    over: bool = False  # the run has ended, and tells whom it has to tell
    moving: bool = False  # it goes on in another execution as soon as it can
    cancelled: bool = False  # by a person who knows Temporal only
    leaves: Mapping[str, Any] | None = None  # the bundle in which it leaves the cluster, and why
    stayed: tuple[int, int] | None = None  # events and bytes of a history whose journal was too much to be carried
    decided: int = 0  # how often it was decided whether it is
    large: int = 0  # children whose arguments were perhaps too large
    pieces: int = 0  # that were perhaps too large
    births: set[str] = field(default_factory=set)  # children that the cluster was asked to start, and has not yet


@dataclass(slots=True)
class Fed:
    """State of what copies the journal into the feed."""

    behind: bool  # the execution before may have left something
    keeping: int = 0  # activities that copy into it


def _streams(append: Append) -> bool:
    """Is something written into a stream, or is one opened for that?"""
    return bool(append.pieces) or any(event.kind == "stream.opened" for event in append.events)


class Ground:
    """One run in one workflow: the `Host` of its attempt, and the `EngineStore`."""

    resources: Any = None
    threads: Any = None
    ahead_ms = AHEAD_MS

    def __init__(self, house: House, start: str, state: bytes | None) -> None:
        self.house, self.loop, self.outside = house, asyncio.get_running_loop(), outside()
        self._start = Start.read(start)
        self.state = State() if state is None else State.unpack(state)
        self.row = row = self._start.row
        if state is not None:
            moved(row, self.state.row)
        row.lease_epoch, row.lease_owner = row.lease_epoch + 1, None
        self.slots, self.inputs = Freed(), house.inputs
        self.value_limit_bytes = house.value_limit_bytes
        self.evicted = False  # the workflow leaves memory: no command can be given any more
        self.carried: Carried | None = None
        self._results: dict[str, tuple[str, str]] = {}  # by key: the activity that ran the body, and its result
        # What the memo and the search attributes say.
        self._shown: dict[str, Any] = (
            {"row": {"status": "running"}, "questions": [], "ids": []} if state is None else {}
        )
        self._indexed: tuple[Any, ...] = ("running", None, ()) if state is None else ()
        self._blobs: dict[str, bytes] = {}
        self._way = Way()
        self._errands = 0  # of ours to the cluster that are on their way
        self._fed = Fed(self._start.side and state is not None)
        self._stop: asyncio.Future[None] | None = None  # what the run itself waits for at the moment
        self.clock = WorkflowClock(self)
        self._slices = Slices(self.loop, self.clock.later, self.outside, self._is_replaying)
        self._slices.begin(len(self.state.events))
        install(self.loop)
        self.load = Load(self.loop, self.clock.later, self.outside, workflow.info().get_current_history_length)
        self.perform = Performer(self)
        talked = any(event.kind.startswith("conversation.") for event in self.state.events)
        self._beside = Beside(self, self._start, talked=talked, whole=_unspilled)
        row.inbox_seen = self.state.row.get("inbox_seen", 0)
        if row.started_at is None:
            row.started_at = self.clock.now()

    @property
    def store(self) -> Any:
        return self

    @property
    def has_side(self) -> bool:
        """Was the run started with a database beside the cluster?"""
        return self._start.side

    @property
    def turned_away(self) -> bool:
        """Is it left to another worker, because this one has no such database?"""
        return self._start.side and self.house.turns_away(self.row.id)

    # The life of the workflow

    async def carry(self) -> str:
        """Carry the run to its end, or to the next execution; returns its result as a text."""
        state = self.state
        if self.turned_away:
            await self.loop.create_future()  # another worker has what it needs
        if state.over is not None:
            return await self._end_as(state.over)
        for run in state.frees:
            self.errand(self._tell(run, {"id": BORN, "kind": BORN}))
        state.frees = []
        while True:
            while state.held or state.unborn:
                await self._until_told()
                if self._way.leaves is not None:
                    return await self._leave(self._way.leaves)
                if self._way.stayed is not None and not state.held:
                    await self._go_over()
            outcome = await self._attempt()
            if self._way.leaves is not None:
                return await self._leave(self._way.leaves)
            if outcome == "ended":
                return await self._end()
            await self._go_over()

    async def _attempt(self) -> str:
        """Let the engine carry the run until it has ended, leaves the cluster, or is to go on anew; returns how it left it."""
        state, row = self.state, self.row
        spec = self.house.spec_of(row.agent, row.version)
        if spec is None:
            raise RuntimeError(f"agent {row.agent!r} {row.version or ''} is not served by this worker")
        row.status = "running"
        self.carried = carried = await begin(self, self._claimed(), spec)
        if state.signals:
            carried.notice()
        carried.ended.add_done_callback(lambda _: self._go_on(), context=self.outside)
        while not carried.ended.done():
            await self._until_told()
            if self._way.leaves is not None:
                return "left"
        outcome = carried.ended.result()
        if outcome == "paused":
            await carried.put_away()
        await self._settle()
        if outcome == "unfit":
            self._way.left = Transition("paused", reason=carried.unfit)
        left = self._way.left
        if left is not None and left.status == "paused":
            self._hold(left.reason)
            if self._way.resumed is not None:
                self._resumed(self._way.resumed)
        return outcome

    def _hold(self, reason: str | None) -> None:
        """Let the run be paused from here on, unless it is to be cancelled."""
        row, state = self.row, self.state
        row.status, row.reason, row.waits_for, row.due_at = "paused", reason, None, None
        row.updated_at = self.clock.now()
        state.held = not any(signal.kind == "run.cancelling" for signal in state.signals)

    async def _until_told(self) -> None:
        """Wait until the run has ended, or something came for one that is paused. A cancel of Temporal's is a request to stop."""
        self._stop = self.loop.create_future()
        try:
            await self._stop
        except asyncio.CancelledError:
            if self.evicted:
                await self._let_go()
                raise
            if self._way.cancelled:
                raise
            self._way.cancelled = True
            until = self.clock.now() + _CANCEL_GRACE_MS
            data = {"by": "Temporal", "reason": workflow.cancellation_reason() or "", "until": until}
            if not self._is_stopping():
                self.arrive({"id": "cancel:temporal", "kind": "run.cancelling", "data": data})
        finally:
            self._stop = None

    def _is_stopping(self) -> bool:
        """Was the run asked to stop, so that a cancel of Temporal's, which comes with each request, is none of its own?"""
        if self._knows_stops():
            return is_stopping(self.state)
        waits = any(signal.kind == "run.cancelling" for signal in self.state.signals)
        return waits or (self.carried is not None and self.carried.attempt.control.cancelling is not None)

    def _knows_stops(self) -> bool:
        """Does a request to stop count from its arrival? In executions that were written before it counted from its delivery."""
        return workflow.patched("holdfast.stops")

    def _go_on(self) -> None:
        if self._stop is not None and not self._stop.done():
            self._stop.set_result(None)

    async def _let_go(self) -> None:
        """The workflow leaves memory: unwind as after a crash, now, because the loop will not turn any more."""
        if self.carried is not None:
            self.carried.abandon()
            for _ in range(_UNWIND):
                if not self.carried.unended:
                    break
                await asyncio.sleep(0)
            self.house.strays += [*self.carried.attempt.tasks.alive]

    def abandon(self) -> None:
        """Drop the run as a killed process would."""
        if self.carried is not None:
            self.carried.abandon()

    async def _settle(self) -> None:
        """Let tasks unwind, and errands end, before the execution does."""
        assert self.carried is not None
        for _ in range(_UNWIND):
            if not self.carried.unended:
                break
            await asyncio.sleep(0)
        while self._errands:
            await self._until_told()

    def evict(self) -> None:
        """Note that the workflow is about to be taken out of memory, in this activation."""
        self.evicted = True
        self._slices.end()

    def _is_replaying(self) -> bool:
        return self.carried is None or not self.carried.is_live

    def _claimed(self) -> Claimed:
        row, state = self.row, self.state
        given = {name: getattr(row, name) for name in RunRow.__slots__}
        seq = row.checkpoint_seq or 0
        journal = [event for event in state.events if event.seq >= seq]
        return Claimed(**given, journal=journal, silent=not self._start.side)

    async def _end_as(self, over: Mapping[str, Any]) -> str:
        """Be as it was when it came: it had ended elsewhere, and told whom it had to tell."""
        self.row.error = over["error"]
        await self._did(self.feed())
        self.flush(last=True)
        return self._closed(over["status"], over["error"], over["result"])

    async def _leave(self, said: Mapping[str, Any]) -> str:
        """Be of this cluster no more: a bundle goes on with the run elsewhere. As after a crash, nothing more is recorded."""
        row, reason = self.row, said["reason"]
        if self.carried is not None:
            self.carried.abandon()
            await self._settle()
        row.status, row.reason, row.waits_for, row.due_at = "moved", reason, None, None
        row.finished_at = row.updated_at = self.clock.now()
        for asked in self.state.questions.values():
            if asked.status == "open":
                asked.status, asked.decided_at, asked.note = "withdrawn", row.finished_at, reason
                self._question(asked)
        workflow.upsert_memo({"HoldfastMoved": said["bundle"]})
        self.flush(last=True)
        return "null"

    async def _end(self) -> str:
        left, row = self._way.left, self.row
        assert left is not None
        self._way.over = True
        if self._start.side and row.budget is not None:
            await self._did(self._beside.leave_all())  # before any other run hears of the end
        if left.ends_below is not None:
            self.errand(self._end_below(left.ends_below))
        if row.parent_id is not None:
            error = None if left.error is None else json.loads(left.error)
            data = {"child": row.id, "status": left.status, "error": error}
            said = {"id": f"child:{row.id}:{row.uid}:{row.next_seq}", "kind": "child.ended", "topic": row.id,
                    "value": left.result, "data": data}  # fmt: skip
            self.errand(self._tell(row.parent_id, said))
        self.errand(self.feed())
        if self._beside.talked and self._start.side and row.budget is None:
            self.errand(self._beside.leave_all())
        if self.perform.calls_off and workflow.patched("holdfast.queued"):
            # The server refuses to end a workflow to which something came meanwhile, with all that it was told then: as long
            # as bodies end, none would be called off. So that is told before.
            self.errand(self.load.next())
        while self._errands:  # to cancel the workflow now comes too late
            await self._until_told()
        # Only now: a client that reads that it has ended reads the result next.
        row.status, row.error, row.reason, row.waits_for, row.due_at = left.status, left.error, left.reason, None, None
        row.finished_at = row.updated_at = self.clock.now()
        self.flush(last=True)
        if left.status == "cancelled" and self._way.cancelled:
            raise asyncio.CancelledError(left.reason or "")
        return self._closed(left.status, left.error, left.result)

    def _closed(self, status: str, error: str | None, result: str | None) -> str:
        """End the workflow as the run has ended."""
        if status == "failed":
            told = json.loads(error or "{}")
            message = f"{told.get('type', '')}: {told.get('message', '')}"[:2000]
            raise ApplicationError(message, type=told.get("type") or None, non_retryable=True)
        return result or "null"

    # Leaving the cluster

    def tell(self) -> bytes:
        """Return all that the run is made of, for the process that moves it."""
        self._show(last=False)
        self._settle_row()
        content = self.state.pack_within(PAYLOADS, lambda: self.house.address.blobs is not None)
        if content is None:
            raise ApplicationError(too_long(self.row.id), type="JournalTooLong", non_retryable=True)
        return content

    async def leave(self, said: Mapping[str, Any]) -> bool:
        """Leave this cluster, if the run is as the process that moves it has read it, and only waits.

        Signals that came with this, in the same activation, are heard first. A signal that comes while this workflow
        task is done makes the server have it done again. So nothing is lost of which a sender was told that it has
        come.
        """
        await workflow.wait_condition(lambda: not self._fed.keeping)  # what it leaves behind is told to the end
        for _ in range(_HEARD):
            await asyncio.sleep(0)
        self._show(last=False)
        row, carried = self.row, self.carried
        waits = self.state.held or (carried is not None and carried.waits is not None and not carried.leaves)
        now = [row.status, row.lease_epoch, row.next_seq, row.inbox_count]
        if self._way.leaves is not None or not waits or self._way.moving or self._errands or said["mark"] != now:
            return self._way.leaves is not None and bool(self._way.leaves["bundle"] == said["bundle"])
        self._way.leaves = said
        self._go_on()
        return True

    def _settle_row(self) -> None:
        self.state.row = moving(self.row) | {"inbox_seen": self.row.inbox_seen}

    async def _go_over(self) -> None:
        """Go on in another execution, from what the engine has recorded; in this one, if that is too much to be carried there."""
        state = self.state
        state.cut += 1
        while True:
            if self.load.unsent.weight > _LARGE:
                await self._did(self._sent())
            self._settle_row()
            state.known = dict(list(state.known.items())[-_KNOWN:])
            for each in [each for each in state.questions.values() if each.status != "open"][:-50]:
                del state.questions[each.id]
            start = self._start.text()
            content = state.pack_within(PAYLOADS - len(start), self._has_folder)
            if content is None:
                state.cut -= 1
                self._stay()
                return
            if self.load.takes(len(start) + len(content)):
                break
            await self._did(self.load.next())  # and pack anew: something may have come
        self.flush(last=True)
        memo = {name: value for name, value in workflow.memo().items() if name != "HoldfastJournal"}
        found = workflow.info().typed_search_attributes
        keys = TypedSearchAttributes([pair for pair in found.search_attributes if pair.key in KEYS])
        workflow.continue_as_new(
            args=[start, content], memo=memo, search_attributes=keys
        )  # lists tell no less meanwhile

    def _has_folder(self) -> bool:
        """Decide whether what is too large for a payload lies in a folder, as it was decided before if this is a replay.

        Workers may differ in that, and be given a folder later. A patch is the mark that it does; no mark, that it does not.
        """
        self._way.decided += 1
        if self.house.address.blobs is None and not workflow.unsafe.is_replaying():
            return False
        return workflow.patched(f"holdfast.folder-{self._way.decided}")

    def _stay(self) -> None:
        """Make ready for another attempt in this execution. One that is about to be too long for the server waits for a folder."""
        row, info, carried = self.row, workflow.info(), self.carried
        why = too_long(row.id)
        if self._way.stayed is None and not workflow.unsafe.is_replaying():
            _log.warning("%s. It stays in its execution", why)
        self._way.stayed = events, content = info.get_current_history_length(), info.get_current_history_size()
        if (events > _FULL_EVENTS or content > _FULL_BYTES) and not self.state.held:
            self._hold(
                f"{why}. Its history is nearly as long as a cluster allows: resume it with workers that have one"
            )
        if carried is not None:
            self.house.strays += [*carried.attempt.tasks.alive]
        self.carried = None
        self._results.clear()
        self._way = replace(self._way, left=None, over=False, moving=False, leaves=None)
        row.lease_epoch += 1
        self._slices.begin(len(self.state.events))

    # The history

    def came(self, key: str, activity: str, text: str) -> None:
        """The body of a step ended with this result."""
        self._results[key] = activity, text

    def flush(self, *, last: bool = False) -> None:
        """Put into the history what was recorded in this workflow task, and tell others how the run stands."""
        if self.evicted:
            return
        self._show(last=last)
        memo, (questions, more) = moving(self.row), _open_questions(self.state.questions.values())
        told: dict[str, Any] = {}
        if self._start.side and not last and (self.load.unsent or self._fed.behind):
            self._fed.behind = False
            self._keep_some(even_nothing=True)
        elif self.load.unsent.weight > _LARGE:
            self._keep_some()
        elif self.load.unsent:
            told["HoldfastJournal"] = self.load.unsent.take(last=last)
        quiet = {name: value for name, value in memo.items() if name in _ACTED_UPON}
        ids = [row.id for row in self.state.questions.values() if row.status == "open"]
        shown = {"row": quiet, "questions": questions, "ids": ids}
        if told or shown != self._shown or last:
            self._shown = shown
            told["Holdfast"] = {"row": memo, "questions": questions} | ({"more": True} if more else {})
            workflow.upsert_memo(told)
        indexed = (self.row.status, self.row.waits_for, _index(ids))
        if indexed != self._indexed:
            self._indexed = indexed
            workflow.upsert_search_attributes(
                [
                    STATUS_KEY.value_set(self.row.status),
                    WAITS_KEY.value_set(self.row.waits_for or "none"),
                    QUESTIONS_KEY.value_set([*indexed[2]]) if ids else QUESTIONS_KEY.value_unset(),
                ]
            )

    def _show(self, *, last: bool) -> None:
        carried, row = self.carried, self.row
        if last or carried is None or carried.leaves:
            return
        waits = carried.waits
        row.status = "running" if waits is None else "waiting"
        row.waits_for, row.due_at = (None, None) if waits is None else waits[:2]

    def _keep_some(self, *, even_nothing: bool = False) -> None:
        """Have what was recorded kept, as much of it as goes with this workflow task; the rest goes with the next one."""
        while (pieces := self.load.unsent.take()) or even_nothing:
            even_nothing = False
            _ = self._keep(pieces)
        if self.load.unsent:
            self.load.turn()

    async def _sent(self) -> None:
        """Wait until so little of what was recorded is left that it goes with any workflow task."""
        while self.load.unsent.weight > _LARGE:
            self._keep_some()
            if self.load.unsent:
                await self.load.next()

    def _keep(self, pieces: list[Piece]) -> asyncio.Task[None]:
        """Large records, and what is to be in the feed, lie in the history as the input of an activity."""
        fed = self._start.side
        limit = timedelta(seconds=FED_S + 1) if fed else timedelta(days=1)
        handle = workflow.start_activity(
            KEEP, args=[pieces, fed], start_to_close_timeout=limit, cancellation_type=ActivityCancellationType.ABANDON,
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(seconds=5)),
        )  # fmt: skip
        self._fed.keeping += 1
        handle.add_done_callback(self._kept, context=self.outside)
        return handle

    def _kept(self, task: asyncio.Task[None]) -> None:
        self._fed.keeping -= 1
        if not task.cancelled():
            task.exception()

    async def feed(self) -> None:
        """Have all that was recorded in the history, and in the feed."""
        await self._sent()
        if self._start.side:
            await self.load.room(_LARGE)
            await self.perform.awaited(self._keep(self.load.unsent.take()))

    # What comes

    def arrive(self, said: Mapping[str, Any]) -> None:
        """Take a signal: a message, a child's end, a request."""
        state, signal_id, kind = self.state, said["id"], said["kind"]
        if signal_id in state.known or self._way.over or not kind:  # or somebody asks whether it is there
            return
        if kind == ASIDE:
            self.load.asides[said["topic"]] = said["value"]
            return
        if kind == BORN:
            state.unborn = False
            self._go_on()
            return
        data = said.get("data") or {}
        if kind == "run.resumed" and not self._resumes(data, signal_id):
            return
        if kind == "run.pausing":
            if not self._names_requests():
                state.pauses.append(data.get("request", ""))
            elif is_stopping(state) or not hold(state, data):
                return
            self._pass_on(kind, {**data, "depth": data.get("depth", 0) + 1}, signal_id)
        if kind == "child.ended":
            state.children[said["topic"]] = {**data, "value": said.get("value")}
        self.row.inbox_count += 1
        signal = Signal(self.row.inbox_count, kind, said.get("topic", ""), said.get("value"), data, self.clock.now())
        state.known[signal_id] = [signal.position, kind, signal.topic, signal.sent_at]
        state.signals.append(signal)
        if kind == "run.cancelling" and state.held:
            state.held = False
            self._go_on()
        if self.carried is not None:
            with Placed(None):
                self.carried.notice(sure=True)

    def _names_requests(self) -> bool:
        """Does a resume undo what it names, whatever came first? In an execution that was written before, what came last counts."""
        return workflow.patched("holdfast.pauses")

    def _resumes(self, data: dict[str, Any], signal_id: str) -> bool:
        """Let a paused run go on; True: it was not paused yet, and its owner is to be told."""
        state, budget = self.state, data.pop("budget", None)
        if budget is not None:
            self.row.budget = budget  # of this and all later executions: it begins them
            workflow.upsert_memo({"HoldfastRun": _still(self.row)})
        if not self._names_requests():
            return self._resumes_as_before(data, budget)
        direct, undone = data.get("direct", False), undo(state, data)
        data.pop("direct", None)
        data["requests"] = undone
        if undone:
            self._pass_on("run.resumed", data, signal_id)
        elif not direct:
            return False
        left = self._way.left
        if not state.held and (left is None or left.status != "paused"):
            return True
        forgive(state, undone)
        if direct or (not state.pauses and is_held_by_request(state)):
            if state.held:
                self._resumed(data["by"], budget)
                self._go_on()
            else:
                self._way.resumed = data["by"]  # the engine has left the run, and it is not held yet
        return False

    def _resumes_as_before(self, data: dict[str, Any], budget: str | None) -> bool:
        state = self.state
        if not data.pop("direct", False) and not set(data["requests"]) & set(state.pauses):
            return False
        data["requests"] = [*state.pauses]
        if state.pauses:
            self._pass_on("run.resumed", data, f"resumed:{self.row.id}:{self.row.next_seq}")
        state.pauses = []
        if state.held:
            self._resumed(data["by"], budget)
            self._go_on()
            return False
        left = self._way.left
        if left is not None and left.status == "paused":  # the engine has left the run, and it is not held yet
            self._way.resumed = data["by"]
            return False
        return True

    def _resumed(self, by: str, budget: str | None = None) -> None:
        """Have the run go on, which is paused; with another budget, if there is one."""
        more = {} if budget is None else {"budget": json.loads(budget)}
        self._record("run.resumed", {"by": by, "cut": None, **more})
        self.state.held, self._way.resumed = False, None
        self.row.status, self.row.reason = "running", None

    def _record(self, kind: str, data: dict[str, Any]) -> None:
        """Record an event of a run that is not in memory."""
        row = self.row
        event = Event(row.next_seq, kind, None, data, None, None, self.clock.now(), row.lease_epoch)
        row.next_seq += 1
        self.state.events.append(event)
        self._record_piece(listed(event))

    def decide(self, said: dict[str, Any]) -> dict[str, Any]:
        """Count what a person says, or pass the question on; what is refused is told by its kind and its words."""
        row = self.state.questions.get(said["question"])
        if (aside := said.get("aside")) is not None:
            said["ballot"]["value"] = self.load.asides.pop(aside)
        if row is None:
            return {"error": "UnknownApproval", "message": f"there is no question {said['question']!r}"}
        if self._way.over:
            return {"error": "RunFinished", "message": f"question {row.id!r} is closed: its run has ended"}
        if said.get("to") is None and is_closing(self.state) and self._knows_stops():
            return {"error": "RunFinished", "message": str(closed_by(self.row.id, row.id))}
        ballot = Ballot(**{**said["ballot"], "by": Actor(**said["ballot"]["by"])})
        votes = [*json.loads(row.votes), *json.loads(row.delegations)]
        if any(each["id"] == ballot.id for each in votes):
            return asdict(row) | {"shown": None}  # the person who decides has seen it
        try:
            check_unused(votes, ballot.via)
            now, to = self.clock.now(), said.get("to")
            done = count(now, row, ballot) if to is None else delegated(now, row, to, ballot)
        except HoldfastError as error:
            return {"error": type(error).__name__, "message": str(error)}
        self._say(done)
        known = said.get("brief", False) and done.row.data == ballot.value
        return asdict(done.row) | {"shown": None} | ({"data": None} if known else {})

    def has_value(self, said: Mapping[str, Any]) -> bool:
        """Has the value come that a decision names, to this execution?"""
        return said.get("aside") is None or said["aside"] in self.load.asides

    async def ask_beside(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Have counted what a person says to a question about a budget, for which this run waits or has waited."""
        if self._way.over or self._way.leaves is not None:
            return {"error": "RunFinished", "message": f"question {said['question']!r}: run {self.row.id!r} has ended"}
        answer: asyncio.Future[dict[str, Any]] = self.loop.create_future()

        async def work() -> None:
            settle(answer, await self._beside.decide(said), None)

        self.errand(work())
        return await answer

    def _say(self, said: Said) -> ApprovalRow:
        self._question(said.row)
        self.arrive(
            {"id": said.signal_id, "kind": said.kind, "topic": said.row.id, "value": said.value, "data": said.data}
        )
        return said.row

    def _record_piece(self, piece: Piece) -> None:
        self.load.unsent.add(piece, self._cut)

    def _cut(self, piece: Piece) -> list[Piece]:
        """Cut a piece that is too large for a payload, as it was decided before if this is a replay.

        With a folder none is, and an execution that was written before this was done has it whole. So a patch marks those that
        are cut, and those alone.
        """
        self._way.pieces += 1
        if self.house.address.blobs is not None and not workflow.unsafe.is_replaying():
            return [piece]
        name = self._way.pieces
        return cut(piece, name) if workflow.patched(f"holdfast.cut-{name}") else [piece]

    def _question(self, row: ApprovalRow) -> None:
        self.state.questions[row.id] = row
        self._record_piece(["?", asdict(row)])

    # Errands: what is asked of the cluster for other runs

    def errand(self, work: Coroutine[Any, Any, None]) -> None:
        self._errands += 1

        async def do() -> None:
            try:
                await work
            finally:
                self._errands -= 1
                self._go_on()

        with Placed(None):
            _ = self.loop.create_task(do())

    async def _did(self, work: Coroutine[Any, Any, None]) -> None:
        """Have an errand done, and all others; a cancel of Temporal's is heard meanwhile."""
        self.errand(work)
        while self._errands:
            await self._until_told()

    async def _tell(self, run: str, said: Mapping[str, Any]) -> None:
        """Send a signal to another run; one that has ended need not hear it, and one that begins just now hears it then."""
        if run in self._way.births and self._names_requests():
            await workflow.wait_condition(lambda: run not in self._way.births)
        await self.load.room(weight(said))
        with contextlib.suppress(FailureError):
            await workflow.get_external_workflow_handle(run).signal(ARRIVE, said)

    def _pass_on(self, kind: str, data: dict[str, Any], signal_id: str) -> None:
        if data.get("family", True):
            for child, ended in self.state.children.items():
                if ended is None:
                    self.errand(self._tell(child, {"id": f"{signal_id}:{child}", "kind": kind, "data": data}))

    async def _end_below(self, reason: str) -> None:
        for child in await self.open_below(self.row.id):
            data = {"by": f"run {self.row.id}", "reason": reason, "until": self.clock.now()}
            for nth in range(2):  # at once: a second request ends it
                said = {"id": f"end:{self.row.uid}:{nth}", "kind": "run.cancelling", "data": data}
                await self._tell(child, said)

    def _start_child(self, child: Any, blobs: Mapping[str, bytes]) -> None:
        if child.id in self.state.children:
            return
        self.state.children[child.id] = None
        child.input = _unspilled(child.input, blobs)
        own = self._start
        if child.lane.limit_key or child.lane.rate_key or (child.budget is not None and not own.side):
            self._child_failed(child.id, Unsupported(_why(child)))
            return
        above = [*own.above, self.row.id]
        start = Start.of(
            child, own.path, own.starters, own.longest, self.clock.now(), above, side=own.side, budgets=own.held()
        )
        self._way.births.add(child.id)
        self.errand(self._begin_child(start))

    def _hold_child(self, child: str, append: Append) -> None:
        """Have a new child paused whose parent's family is being paused: the engine had not seen that, or takes it up just now."""
        state = self.state
        asked = [signal.data for signal in state.signals if signal.kind == "run.pausing"]
        asked += [event.data for event in append.events if event.kind == "run.pausing"]
        for data in asked:
            request = data.get("request", "")
            if data.get("family", False) and request in state.pauses and self._names_requests():
                came = next((known for known in state.known if f"{known}:".startswith(f"{request}:")), request)
                passed = {**data, "depth": data.get("depth", 0) + 1}
                self.errand(self._tell(child, {"id": f"{came}:{child}", "kind": "run.pausing", "data": passed}))

    async def _begin_child(self, start: Start) -> None:
        row, text = start.row, start.text()
        travels = weight(text)
        if self._is_refused(travels):
            self._way.births.discard(row.id)
            self._child_failed(row.id, NotStorable(escaped(row.input, travels)))
            return
        await self.load.room(travels)
        try:
            handle = await workflow.start_child_workflow(
                RUN, args=[text, None], id=row.id, parent_close_policy=ParentClosePolicy.ABANDON, result_type=str,
                task_queue=self.house.address.task_queue(row.agent, row.version, row.queue),
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE, memo=first_memo(row),
                search_attributes=first_attributes(row), task_timeout=self.house.task_timeout,
            )  # fmt: skip
        except WorkflowAlreadyStartedError as error:
            self._child_failed(row.id, error)
        else:
            handle.add_done_callback(lambda task: task.cancelled() or task.exception(), context=self.outside)
        finally:
            self._way.births.discard(row.id)

    def _is_refused(self, travels: int) -> bool:
        """Decide whether arguments are too large for a payload, as it was decided before if this is a replay.

        A folder may be named later, and executions that were written before this was looked at began such children. So a patch
        marks those that were refused, and those alone.
        """
        if travels <= PAYLOADS:
            return False
        self._way.large += 1
        if self.house.address.blobs is not None and not workflow.unsafe.is_replaying():
            return False
        return workflow.patched(f"holdfast.too-large-{self._way.large}")

    def _child_failed(self, child: str, error: Exception) -> None:
        told = {
            "type": type(error).__name__,
            "message": str(error),
            "kind": "other",
            "attempts": 1,
            "args": None,
            "traceback": "",
        }
        data = {"child": child, "status": "failed", "error": told}
        self.arrive({"id": f"unstarted:{child}", "kind": "child.ended", "topic": child, "data": data})

    # The store: the owner's writes

    def post(self, append: Append, told: Told, *, alone: bool = False) -> None:
        if self._beside.takes(append):
            self._beside.post(append, told)
        else:
            self.accept(append, told, alone=alone)

    def accept(self, append: Append, told: Told, *, alone: bool = False) -> None:
        now = self.clock.now()
        error: BaseException | None = None
        transition, seen = append.transition, None if append.transition is None else append.transition.inbox_seen
        if seen is not None and self.row.inbox_count > seen:
            error = InboxMoved(f"run {self.row.id!r} has {self.row.inbox_count} signals, its owner has seen {seen}")
        elif append.announces or (not self._start.side and (append.talks or _streams(append))):
            what = "an announcement" if append.announces else "a conversation" if append.talks else "a stream"
            lacks = LACKS_STORE if append.announces else LACKS_START
            transition = Transition("paused", reason=f"run {self.row.id!r}: its agent uses {what}, {lacks}")
            self._way.left, error = transition, LeaseLost(transition.reason)
        elif append.expected_seq != self.row.next_seq:
            error = LeaseLost(
                f"run {self.row.id!r} is at {self.row.next_seq}, and this append at {append.expected_seq}"
            )
        else:
            self._write(append, now)
        if transition is not None and error is None:
            self._way.left = transition
        if alone and error is None:
            told(now, None)
        else:
            self.loop.call_soon(told, now, error, context=self.outside)

    def append(self, append: Append) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self.loop.create_future()
        self.post(append, lambda at, error: settle(future, at, error))
        return future

    def _write(self, append: Append, now: int) -> None:
        row, state, blobs = self.row, self.state, append.blobs or {}
        for event in append.events:
            event.at = now
            value = event.value if event.blob is None else blobs[event.blob].decode()
            kept = Event(event.seq, event.kind, event.key, event.data, value, None, now, append.epoch)
            state.events.append(kept)
            activity, text = self._results.pop(event.key or "", ("", ""))
            self._record_piece(listed(kept, activity if activity and text == value else None))
            row.steps += event.kind == "step.completed"
            row.next_seq = event.seq + 1
        if append.parts:
            state.parts.update(append.parts)
            self._record_piece(["#", dict(append.parts)])
        row.updated_at = now
        if append.checkpoint_seq is not None:
            row.checkpoint_seq = append.checkpoint_seq
            self._forget(append.events[0])
        if append.inbox_seen is not None:
            row.inbox_seen = append.inbox_seen
            state.signals = [signal for signal in state.signals if signal.position > append.inbox_seen]
        if append.transition is not None and append.transition.result is not None:
            append.transition.result = _unspilled(append.transition.result, blobs)
        for child in append.children:
            self._start_child(child, blobs)
            self._hold_child(child.id, append)
        for new in append.approvals:
            if new.about is None:  # what is asked about a budget lies beside the cluster
                self._ask(new, blobs, now)
        for gone in append.withdraws:
            asked = state.questions.get(gone)
            if asked is not None and asked.status == "open":
                asked.status, asked.decided_at = "withdrawn", now
                self._question(asked)
        if not self._way.moving and append.transition is None and self._is_long():
            self._way.moving = True
            with Placed(None):
                _ = self.loop.create_task(self._move_on())

    def _forget(self, checkpoint: Event) -> None:
        """Forget all events before a checkpoint, except the ones that it names."""
        named = {*checkpoint.data.get("chain", ())}
        ranges = checkpoint.data.get("waiting", ())
        events = self.state.events
        self.state.events = [
            event for event in events
            if event.seq >= checkpoint.seq or event.seq in named or any(a <= event.seq <= b for a, b in ranges)
        ]  # fmt: skip
        self.state.children = {
            child: ended
            for child, ended in self.state.children.items()
            if ended is None or len(self.state.children) < _KNOWN
        }

    def _is_long(self) -> bool:
        info, longest = workflow.info(), self._start.longest
        events, content, stayed = info.get_current_history_length(), info.get_current_history_size(), self._way.stayed
        if stayed is None:
            return events > longest or info.is_continue_as_new_suggested()
        full = (events > _FULL_EVENTS >= stayed[0]) or (content > _FULL_BYTES >= stayed[1])
        return full or events > stayed[0] + longest or content > stayed[1] + _GROWN_BYTES

    async def _move_on(self) -> None:
        """Stop where no body runs, because the history is long, as a worker does that gives a run back."""
        carried = self.carried
        while carried is None:
            await asyncio.sleep(0)
            carried = self.carried
        await carried.drain()

    def _ask(self, new: NewApproval, blobs: Mapping[str, bytes], now: int) -> None:
        row, shown = self.row, None if new.shown is None else _unspilled(new.shown, blobs)
        not_by = to_json(self._start.starters) if new.not_by_starter else None
        self._question(ApprovalRow(
            new.id, row.id, row.root_id, to_json(self._start.path), new.key, new.kind, new.question, shown, new.digest, new.schema,
            to_json(new.recipients), new.needs, "[]", "[]", None if new.expires_ms is None else now + new.expires_ms,
            new.fallback, new.remind_ms, "open", now, not_by=not_by,
        ))  # fmt: skip

    # The store: what the engine reads

    async def run(self, run: str) -> RunRow | None:
        ended = self.state.children.get(run, {})
        if run not in self.state.children:
            return None
        if ended is None:
            return RunRow(run, "", "", "running", "{}")
        error = None if ended.get("error") is None else to_json(ended["error"])
        return RunRow(run, "", "", ended["status"], "{}", result=ended.get("value"), error=error)

    async def journal(self, run: str, from_seq: int = 0) -> list[Event]:
        return [event for event in self.state.events if event.seq >= from_seq]

    async def events_at(self, run: str, seqs: Iterable[int]) -> list[Event]:
        wanted = set(seqs)
        return [event for event in self.state.events if event.seq in wanted]

    async def blob(self, digest: str) -> bytes:
        return self._blobs[digest]

    async def former(self, run: str) -> list[Any]:
        return []

    async def inbox(self, run: str, after: int) -> list[Signal]:
        return [signal for signal in self.state.signals if signal.position > after]

    def take(self, run: str, epoch: int, expected_seq: int, seen: int) -> None:
        """Return None: nothing is taken without the engine, which is here and need not be asked twice."""

    async def streams(self, run: str) -> list[Any]:
        return await self._beside.streams()

    # The store: the family, and its questions

    async def open_below(self, run: str) -> list[str]:
        return [child for child, ended in self.state.children.items() if ended is None]

    async def cancel(
        self, run: str, *, by: str, reason: str = "", grace_ms: int, request: str, insist: bool = True
    ) -> str:
        data = {"by": by, "reason": reason, "until": self.clock.now() + grace_ms}
        await self._tell(run, {"id": request, "kind": "run.cancelling", "data": data})
        return "running"

    async def approval(self, approval: str) -> ApprovalRow:
        return self.state.questions[approval]

    async def expire(self, approval: str) -> ApprovalRow:
        found = self.state.questions[approval]
        said = expired(self.clock.now(), found)
        return found if said is None else self._say(said)

    async def require(self, approval: str, digest: str, needs: int, value: str) -> ApprovalRow:
        found = self.state.questions[approval]
        then = required(self.clock.now(), found, digest, needs, value)
        if isinstance(then, Said):
            return self._say(then)
        if then is not found:
            self._question(then)
        return then

    def shuts_out(self, isolation: str) -> bool:
        raise Unsupported(
            "transaction= is the commit of a database of Holdfast's own, and this run is on Temporal: make the effect idempotent "
            "with holdfast.idempotency_key(), or use sqlite: or postgresql://"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in ASKED and self._start.side:
            return getattr(self._beside, name)
        raise Unsupported(f"{name} needs a database of Holdfast's own, and this run is on Temporal")

    # The host

    def pause(self, reason: str) -> None:
        assert self.carried is not None
        self.carried.pause(reason)

    def park_grace_s(self, run: str) -> None:
        """Temporal takes workflows out of memory by itself."""

    def serve(self, spec: AgentSpec) -> None:
        self.house.serve(spec)

    def new_task(self, make: Callable[[], T]) -> T:
        task: Any = make()
        task._log_destroy_pending = False  # as those of Temporal's own
        return task  # type: ignore[no-any-return]

    def patched(self, patch: str) -> bool | None:
        return None if workflow.patched(patch) else False

    def spec_of(self, agent: str) -> AgentSpec | None:
        return self.house.spec_of(agent)

    def replacement(self, spec: StepSpec) -> Callable[..., Any] | None:
        return self.house.replacement(spec)

    def overrides(self, root: str) -> Iterable[Override]:
        return self.house.overrides(root)

    @property
    def recorded(self) -> Callable[[Event], None] | None:
        heard = self.house.recorded
        if heard is None:
            return None
        return lambda event: None if workflow.unsafe.is_replaying() else heard(event)

    def body_runs(self, spec: StepSpec, key: str) -> None:
        """Do nothing: the performer of the body hears of it."""

    def body_ended(self, how: str, seconds: float) -> None:
        """Do nothing: the performer of the body knows."""

    def spent(self, agent: str, spendings: Sequence[Spent]) -> None:
        """Metrics of money are those of a worker of Holdfast's own."""

    def trusted(self, lease_until: float) -> bool:
        return True

    async def trust(self) -> None:
        """Do nothing: a run on Temporal has no lease, because only one workflow task of it can be completed."""

    def keep(self, stray: asyncio.Task[Any]) -> None:
        self.house.strays.append(stray)


def _unspilled(text: str, blobs: Mapping[str, bytes]) -> str:
    return blobs[text[10:74]].decode() if text.startswith('{"$blob":') and text[10:74] in blobs else text


def _why(child: NewRun) -> str:
    what = f"agent {child.agent!r} has"
    if child.lane.limit_key or child.lane.rate_key:
        return f"{what} a limit or a rate, which need a database of Holdfast's own, and this run is on Temporal"
    return f"{what} a budget, which needs a database beside the cluster, and this run was started without one (?side=)"


def _open_questions(asked: Iterable[ApprovalRow]) -> tuple[list[dict[str, Any]], bool]:
    """Tell of the open questions, as many as a memo takes; True: there are more, and the history has them."""
    told, room = list[dict[str, Any]](), _LARGE
    for row in asked:
        if row.status == "open":
            if len(row.shown or "") > room or (size := weight(said := asdict(row))) > room:
                return told, True
            told.append(said)
            room -= size
    return told, False


def _index(questions: Sequence[str]) -> tuple[str, ...]:
    """Return the questions by which a run is found, at most so many."""
    return (*questions[:_INDEXED], *([MORE] if len(questions) > _INDEXED else []))


def first_memo(row: RunRow, asked: Iterable[ApprovalRow] = ()) -> dict[str, Any]:
    """Tell of a run before any worker has it. That it runs is true in a moment, and a history tells if it is not."""
    status = row.status if row.status in _STAYS else "running"
    questions, more = _open_questions(asked)
    told = {"row": moving(row) | {"status": status}, "questions": questions} | ({"more": True} if more else {})
    return {"Holdfast": told, "HoldfastRun": _still(row)}


def _still(row: RunRow) -> dict[str, Any]:
    """Tell what of a run stays as it is."""
    still = {name: value for name, value in asdict(row).items() if name in LISTED and value is not None}
    if len(row.input) > _SHOWN:
        del still["input"]
    return still


def first_attributes(row: RunRow, asked: Iterable[ApprovalRow] = ()) -> TypedSearchAttributes:
    """Say by what a run is found."""
    labels = [f"{name}={value}" for name, value in json.loads(row.labels).items()]
    questions = [*_index([each.id for each in asked if each.status == "open"])]
    return TypedSearchAttributes([
        SearchAttributePair(AGENT_KEY, row.agent), SearchAttributePair(STATUS_KEY, "running"),
        SearchAttributePair(WAITS_KEY, "none"), SearchAttributePair(ROOT_KEY, row.root_id),
        SearchAttributePair(PARENT_KEY, row.parent_id or "none"), SearchAttributePair(LABELS_KEY, labels or ["none"]),
        *([SearchAttributePair(QUESTIONS_KEY, questions)] if questions else []),
    ])  # fmt: skip
