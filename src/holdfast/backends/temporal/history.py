"""Histories of Temporal's, read as journals: what clients see of a run, without the code of its agent."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from temporalio.api.common.v1 import Payload
from temporalio.api.common.v1 import WorkflowExecution as WorkflowExecutionId
from temporalio.api.enums.v1 import PendingWorkflowTaskState, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowHistoryEventFilterType,
)
from temporalio.service import RPCError

from holdfast.backends.temporal.address import ARRIVE, KEEP, RUN, SIDE, is_missing
from holdfast.backends.temporal.pauses import hold, is_stopping, undo
from holdfast.backends.temporal.records import Piece, Start, State, event_of, joined, moved
from holdfast.store.work import to_json
from holdfast.words.model import FINISHED, ApprovalRow, Event, RunRow

_MOST: Final = 1_000  # executions of one run that are looked at
_PAGE: Final = 100  # events of a history that are read at once, from its end
_BESIDE: Final = ("?", "#")  # pieces that are no events
_UNTAKEN: Final = 2  # events of a workflow of which no worker has taken a task
_BEGUN: Final = ("child.started", "child.spawned")
_GOES_ON: Final = (None, WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW)
_STOPPED: Final = (WorkflowExecutionStatus.TERMINATED, WorkflowExecutionStatus.CANCELED)
_ENDED: Final = "holdfast.cancelled"  # the key of the details that a client gives
MISFIT: Final = "NondeterminismError: "  # begins the reason of a run whose code does not fit
_OTHER: Final = re.compile(
    r"Activity id of scheduled event '(?P<key>.*) \w+( ~\d+)?' does not match activity id of activity command "
    r"'(?P<now>.*) \w+( ~\d+)?'"
)
_SERVER: Final = "history-service"  # the name under which the server ends a workflow by itself


@dataclass(slots=True)
class Found:
    """A run as a cluster has it."""

    row: RunRow
    start: Start | None = None
    events: list[Event] = field(default_factory=list)
    questions: dict[str, ApprovalRow] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    inbox: list[tuple[Any, ...]] = field(default_factory=list)  # rows of it, where they are asked for
    left_open: dict[str, ApprovalRow] = field(default_factory=dict)  # questions that nobody withdrew before it ended
    more: bool = False  # it has open questions that its memo does not tell
    ended: dict[str, Any] | None = None  # by whom and why, if a client ended it because no worker did

    @property
    def children(self) -> list[str]:
        return [event.data["child"] for event in self.events if event.kind in _BEGUN]


@dataclass(slots=True)
class _Execution:
    """One execution of the workflow of a run."""

    start: Start
    state: State
    pieces: list[Piece]
    results: dict[str, str]
    result: str | None
    before: str  # the execution that it goes on from


async def told(client: Client, execution: WorkflowExecution) -> Found | None:
    """A run as its memo tells of it; None if it is none of ours."""
    memo: Mapping[str, Any] = await execution.memo()
    said, still = memo.get("Holdfast"), memo.get("HoldfastRun")
    if execution.workflow_type != RUN or said is None or still is None:
        return None
    row = moved(RunRow(**{"input": "", **still}, status="ready"), said["row"])
    row.updated_at = row.updated_at or row.created_at  # one that has recorded nothing was changed when it was made
    if row.status == "running" and 0 < execution.history_length <= _UNTAKEN:
        row.status = "ready"
    elif execution.history_length and is_new(row):
        row.due_at = None
    ended = None
    if row.status not in FINISHED and execution.status not in _GOES_ON:
        ended = await _judge(client, row, execution)
    questions = {each["id"]: ApprovalRow(**each) for each in said["questions"]}
    return Found(row, None, [], {} if row.status in FINISHED else questions, more="more" in said, ended=ended)


def is_new(row: RunRow) -> bool:
    """Is it told as it was started? One that a worker has taken, and that has told nothing yet, is told so too."""
    return row.status == "running" and row.due_at is not None


def is_untaken(described: WorkflowExecutionDescription) -> bool:
    """Has no worker ever taken it?"""
    return 0 < described.history_length <= _UNTAKEN


async def _judge(client: Client, row: RunRow, execution: WorkflowExecution) -> dict[str, Any] | None:
    """Tell the end of an execution that the engine did not end: a person did, or it ran into a limit of the server's.

    A client ends a run that no worker serves, and says by whom and why in the details: these are returned.
    """
    assert execution.status is not None
    how, ended = execution.status.name.lower().replace("_", " "), execution.close_time
    row.finished_at = None if ended is None else int(ended.timestamp() * 1000)
    row.waits_for = row.due_at = None
    who, why, details = await _end_of(client, execution)
    if isinstance(details, dict) and _ENDED in details:
        data: dict[str, Any] = details[_ENDED]
        row.status, row.reason, row.updated_at = "cancelled", why, row.finished_at or row.updated_at
        return data
    because = f": {why}" if why else ""
    if execution.status in _STOPPED and who != _SERVER:
        row.status, row.reason = "cancelled", f"{how} on Temporal{because}"
        return None
    message = (
        f"the server {how} the workflow{because}" if who == _SERVER else f"the workflow {how} on Temporal{because}"
    )
    row.status, row.error = "failed", to_json({"type": "TemporalError", "message": message, "traceback": ""})
    return None


def details_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Write what the end of a run says that a client ends, by whom and why."""
    return {_ENDED: dict(data)}


def _end(found: Found, events: dict[int, Event]) -> None:
    """Add the event that nobody was there to record: a client has ended the run."""
    if found.ended is not None:
        seq, row = max(events, default=-1) + 1, found.row
        events[seq] = Event(
            seq, "run.cancelled", None, found.ended, None, None, row.finished_at or row.updated_at, row.lease_epoch
        )


async def _end_of(client: Client, execution: WorkflowExecution) -> tuple[str, str, Any]:
    """Read the identity that ended an execution, what the cluster says of it, and the details that were given with it."""
    handle, last = client.get_workflow_handle(execution.id, run_id=execution.run_id), None
    with contextlib.suppress(RPCError):  # it may be forgotten
        async for event in handle.fetch_history_events(event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT):
            last = event
    if last is None:
        return "", "", None
    stopped, failed = (
        last.workflow_execution_terminated_event_attributes,
        last.workflow_execution_failed_event_attributes,
    )
    details = await client.data_converter.decode(stopped.details.payloads)
    return stopped.identity, stopped.reason or failed.failure.message, details[0] if details else None


async def read(client: Client, described: WorkflowExecutionDescription) -> Found | None:
    """All that the cluster has of a run, as far back as it keeps it."""
    found = await told(client, described)
    if found is None:
        return None
    execution = await _read(client, described.id, described.run_id)
    if execution is None:
        return found
    row, state = found.row, execution.state
    for name in ("uid", "input"):
        setattr(row, name, getattr(execution.start.row, name))
    events = {event.seq: event for event in (*state.events, *state.dropped)}
    questions, parts = dict(state.questions), dict(state.parts)
    for piece in execution.pieces:
        if piece[0] == "?":
            questions[piece[1]["id"]] = ApprovalRow(**piece[1])
        elif piece[0] == "#":
            parts.update(piece[1])
        else:
            events[piece[0]] = event_of(piece, execution.results)
    row.next_seq = max(events, default=row.next_seq - 1) + 1
    row.steps = state.row.get("steps", 0) + sum(piece[1] == "step.completed" for piece in execution.pieces)
    if row.status == "completed":
        row.result = execution.result
    before, looks = execution.before, 0
    while before and len(events) < row.next_seq and looks < _MOST:
        older = await _read(client, described.id, before)
        if older is None:
            break
        for event in (*older.state.events, *older.state.dropped):
            events.setdefault(event.seq, event)
        asked = dict[str, ApprovalRow]()
        for piece in older.pieces:
            if piece[0] == "?":
                asked[piece[1]["id"]] = ApprovalRow(**piece[1])
            elif piece[0] != "#":
                events.setdefault(piece[0], event_of(piece, older.results))
        questions = {**asked, **questions}
        before, looks = older.before, looks + 1
    _end(found, events)
    row.next_seq = max(events, default=row.next_seq - 1) + 1
    for event in events.values():
        event.run = row.id
    if row.status in FINISHED:
        for question in questions.values():
            if question.status == "open":
                found.left_open[question.id] = replace(question)
                question.status, question.note, question.decided_at = "withdrawn", row.status, row.finished_at
    journal = [events[seq] for seq in sorted(events)]
    return Found(row, execution.start, journal, questions, parts, left_open=found.left_open)


async def since(client: Client, described: WorkflowExecutionDescription, seq: int) -> Found | None:
    """Read the events of a run from a place on: from the end of its history, and no further back than is needed."""
    found = await told(client, described)
    if found is None:
        return None
    events: dict[int, Event] = {}
    before, looks = described.run_id, 0
    while before and looks < _MOST and not (events and all(at in events for at in range(seq, max(events)))):
        execution = await _back(client, described.id, before, seq)
        for event in execution.events():
            events.setdefault(event.seq, event)
        before, looks = execution.before, looks + 1
    _end(found, events)
    for event in events.values():
        event.run = found.row.id
    found.events = [events[at] for at in sorted(events) if at >= seq or events[at].dropped is not None]
    return found


class Asked(NamedTuple):
    """Requests to a run that count, whether a worker has taken them up or not."""

    pause: bool
    stop: bool


async def asked(client: Client, described: WorkflowExecutionDescription) -> Asked:
    """Decide from its history what a run was asked to do: by the rule of its workflow, over the signals in their order.

    What came while a worker had a workflow task (`task_of`) is not in the history before that task is done.
    """
    found = told_by(*await _came(client, described))
    return Asked(False, stop=True) if is_told_to_stop(described) else found


def is_told_to_stop(described: WorkflowExecutionDescription) -> bool:
    """Was a cancel of Temporal's asked for? The cluster tells it at once, whatever a worker does."""
    return described.raw_description.workflow_extended_info.cancel_requested


async def stops(client: Client, described: WorkflowExecutionDescription) -> list[tuple[str, dict[str, Any]]]:
    """Read the requests to stop that a run has, each with its id as far as that is known: the engine may have taken them up."""
    state, signals = await _came(client, described)
    found = [("", signal.data) for signal in state.signals if signal.kind == "run.cancelling"]
    for event in state.events:
        data = event.data.get("cancelling") if event.kind == "checkpoint" else event.data
        if event.kind in ("run.cancelling", "checkpoint") and data:
            found.append(("", data))
    found += [(said["id"], said.get("data") or {}) for said in signals if said["kind"] == "run.cancelling"]
    return found or ([("", {})] if is_told_to_stop(described) else [])


async def _came(client: Client, described: WorkflowExecutionDescription) -> tuple[State, list[dict[str, Any]]]:
    """Read what an execution began with, and the signals that have come since."""
    handle, state = client.get_workflow_handle(described.id, run_id=described.run_id), State()
    signals: list[Payload] = []
    async for event in handle.fetch_history_events(page_size=1000):
        begun, signal = (
            event.workflow_execution_started_event_attributes,
            event.workflow_execution_signaled_event_attributes,
        )
        if len(begun.input.payloads) > 1 and begun.input.payloads[1].data:
            (content,) = await client.data_converter.decode([begun.input.payloads[1]])
            state = State() if content is None else State.unpack(content)
        if signal.signal_name == ARRIVE:
            signals.append(signal.input.payloads[0])
    return state, await client.data_converter.decode(signals)


def task_of(described: WorkflowExecutionDescription) -> tuple[Any, ...] | None:
    """Return what tells the workflow task that a worker has now from any other; None if no worker has one."""
    told = described.raw_description.pending_workflow_task
    if told.state != PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED:
        return None
    return described.run_id, told.started_time.ToNanoseconds(), told.attempt


def is_due(described: WorkflowExecutionDescription) -> bool:
    """Is there a workflow task that no worker has taken yet?"""
    told = described.raw_description.pending_workflow_task  # one that was ended keeps the last one
    is_open = described.status == WorkflowExecutionStatus.RUNNING
    return is_open and told.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED


class Failure(NamedTuple):
    """Why the workflow tasks of a run fail."""

    misfit: bool  # the code does not do what the history says that it did
    message: str


def is_failing(described: WorkflowExecutionDescription) -> bool:
    """Did the last workflow task fail, so that it is tried again?"""
    is_open = described.status == WorkflowExecutionStatus.RUNNING
    return is_open and described.raw_description.pending_workflow_task.attempt > 1


async def failure(client: Client, described: WorkflowExecutionDescription) -> Failure | None:
    """Read why the workflow tasks of a run fail: the server notes the first failure, and none that follows."""
    if not is_failing(described):
        return None
    page = await client.workflow_service.get_workflow_execution_history_reverse(
        _reversed(client, described.id, described.run_id)
    )
    for event in page.history.events:
        if event.HasField("workflow_task_completed_event_attributes"):
            return None  # nobody took it, or its worker died
        if event.HasField("workflow_task_failed_event_attributes"):
            failed = event.workflow_task_failed_event_attributes
            cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR
            return Failure(failed.cause == cause, failed.failure.message)
    return None


def misfit(run: str, message: str) -> str:
    """Say that the code of a run does not fit its history, as a paused run of a database says it."""
    other = _OTHER.search(message)
    if other is None:
        what = message.removeprefix("[TMPRL1100] Nondeterminism error: ")
    elif other["key"] == other["now"]:
        what = f"the history has a call under the key {other['key']!r}, but the code gives it another input now"
    else:
        what = f"the history has a call under the key {other['key']!r}, but the code asks for {other['now']!r} there"
    return (
        f"{MISFIT}run {run!r}: {what}. The code changed since this was recorded, or it depends on something that is not recorded. "
        "Nothing was done and nothing was written. Go on with the code that wrote the history, serve both as @agent(version=), or "
        "guard the change with holdfast.patched('name'). With code that fits, the run goes on by itself within some minutes"
    )


def told_by(state: State, signals: Iterable[Mapping[str, Any]]) -> Asked:
    """Tell what a run was asked to do that began an execution with this, and to which these signals have come since."""
    stops = is_stopping(state)
    for said in signals:
        kind, data = said["kind"], said.get("data") or {}
        if said["id"] in state.known or stops:
            continue
        if kind == "run.cancelling":
            stops = True
        elif kind == "run.resumed":
            undo(state, data)
        elif kind == "run.pausing" and hold(state, data):
            state.known[said["id"]] = [0, kind, "", 0]
    return Asked(bool(state.pauses) and not stops, stops)


@dataclass(slots=True)
class _Back:
    """The end of an execution, as far as it was looked at; all of it, if it was looked at to its beginning."""

    pieces: list[Piece] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    state: State | None = None
    before: str = ""

    def events(self) -> list[Event]:
        """Return all events, with the ones that it began with."""
        own = [event_of(piece, self.results) for piece in joined(self.pieces) if piece[0] not in _BESIDE]
        return own if self.state is None else [*own, *self.state.events, *self.state.dropped]

    def reaches(self, seq: int) -> bool:
        """Has it all from this place on, with the results that it names?"""
        own = [piece for piece in joined(self.pieces) if piece[0] not in _BESIDE]
        named = {piece[7] for piece in own if len(piece) > 7 and piece[0] >= seq}
        return any(piece[0] <= seq for piece in own) and named <= self.results.keys()


def _reversed(client: Client, run: str, execution: str | None) -> GetWorkflowExecutionHistoryReverseRequest:
    of = WorkflowExecutionId(workflow_id=run, run_id=execution or "")
    return GetWorkflowExecutionHistoryReverseRequest(namespace=client.namespace, execution=of, maximum_page_size=_PAGE)


async def _back(client: Client, run: str, execution: str, seq: int) -> _Back:
    found, ended = _Back(), dict[int, Payload]()
    asked = _reversed(client, run, execution)
    wanted: list[tuple[str, Any, Payload]] = []
    while True:
        try:
            page = await client.workflow_service.get_workflow_execution_history_reverse(asked)
        except RPCError as error:
            if is_missing(error):
                return found  # the cluster has forgotten it
            raise
        for event in page.history.events:
            _look_back(event, ended, lambda *what: wanted.append(what))
            if event.HasField("workflow_execution_started_event_attributes"):
                found.before = event.workflow_execution_started_event_attributes.continued_execution_run_id
        values = await client.data_converter.decode([payload for _, _, payload in wanted])
        for (what, about, _), value in zip(wanted, values, strict=True):
            if what == "pieces":
                found.pieces += value
            elif what == "result":
                found.results[about] = value.get("text", "")
            elif what == "state":
                found.state = State.unpack(value)
        wanted.clear()
        if not page.next_page_token or found.reaches(seq):
            return found
        asked.next_page_token = page.next_page_token


def _look_back(event: HistoryEvent, ended: dict[int, Payload], want: Any) -> None:
    """Look at an event as `_look` does, from the end: how an activity ended comes before what it was."""
    kind = event.WhichOneof("attributes")
    if kind == "activity_task_completed_event_attributes":
        done = event.activity_task_completed_event_attributes
        if done.result.payloads and done.result.payloads[0].data not in (b"", b"null"):
            ended[done.scheduled_event_id] = done.result.payloads[0]
        return
    names: dict[int, str] = {}
    _look(event, names, want)
    for scheduled, name in names.items():
        if scheduled in ended:
            want("result", name, ended[scheduled])


async def _read(client: Client, run: str, execution: str) -> _Execution | None:
    handle = client.get_workflow_handle(run, run_id=execution)
    try:
        history = [event async for event in handle.fetch_history_events(page_size=1000)]
    except RPCError as error:
        if is_missing(error):
            return None  # the cluster has forgotten it
        raise
    if not history:
        return None
    payloads: list[Payload] = []
    places: list[tuple[str, Any]] = []

    def want(what: str, about: Any, payload: Payload) -> None:
        places.append((what, about))
        payloads.append(payload)

    names: dict[int, str] = {}
    for event in history:
        _look(event, names, want)
    values = await client.data_converter.decode(payloads)
    begun = history[0].workflow_execution_started_event_attributes
    start, state, result = "", None, None
    pieces: list[Piece] = []
    results: dict[str, str] = {}
    for (what, about), value in zip(places, values, strict=True):
        if what == "start":
            start = value
        elif what == "state":
            state = value
        elif what == "pieces":
            pieces += value
        elif what == "result":
            results[about] = value.get("text", "")
        else:
            result = value
    return _Execution(
        Start.read(start), State() if state is None else State.unpack(state), joined(pieces), results, result,
        begun.continued_execution_run_id,
    )  # fmt: skip


def _look(event: HistoryEvent, names: dict[int, str], want: Any) -> None:
    """Find the payloads of an event that say something of the journal."""
    kind = event.WhichOneof("attributes")
    if kind == "workflow_execution_started_event_attributes":
        given = event.workflow_execution_started_event_attributes.input.payloads
        want("start", None, given[0])
        if len(given) > 1 and given[1].data:
            want("state", None, given[1])
    elif kind == "activity_task_scheduled_event_attributes":
        asked = event.activity_task_scheduled_event_attributes
        given, named = asked.input.payloads, asked.activity_type.name
        if named == KEEP:
            want("pieces", None, given[0])
        elif named != SIDE:
            names[event.event_id] = asked.activity_id
            want("pieces", None, given[1])
    elif kind == "activity_task_completed_event_attributes":
        done = event.activity_task_completed_event_attributes
        name = names.get(done.scheduled_event_id)
        if name is not None and done.result.payloads and done.result.payloads[0].data not in (b"", b"null"):
            want("result", name, done.result.payloads[0])
    elif kind == "workflow_properties_modified_event_attributes":
        fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
        if "HoldfastJournal" in fields:
            want("pieces", None, fields["HoldfastJournal"])
    elif kind == "workflow_execution_completed_event_attributes":
        payloads = event.workflow_execution_completed_event_attributes.result.payloads
        if payloads:
            want("end", None, payloads[0])
