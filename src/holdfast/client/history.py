"""History: a run from inside. Its calls one by one, what it has come to and waits for, and its state at any event.

Look here when something is in the journal and a list does not show it. The journal is folded by `words/calls.py`; whole inputs
are put together by `values/parts.py`. Lists hold no values: these are read when they are asked for, because one of them may be
large, and a list has many.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import ModuleType
from typing import Any, Final

from holdfast.client.aside import aside
from holdfast.client.base import Base
from holdfast.client.forks import shared_below, shared_child
from holdfast.client.info import RunEvent, RunInfo, is_put_off, shared_info, wants_worker
from holdfast.client.streams import StreamInfo, streams
from holdfast.declare import Agent
from holdfast.errors import BadArguments, NondeterminismError, NotStorable
from holdfast.runtime import AgentSpec
from holdfast.store.blobs import unspilled
from holdfast.store.checkpoints import state_text
from holdfast.store.forks import keys_named
from holdfast.values.codec import UNTYPED, preview
from holdfast.values.parts import ARGUMENTS, bases, expanded, filled, needed, parsed
from holdfast.values.text import cut, is_whole, short, show
from holdfast.words.announcements import event_of
from holdfast.words.calls import ARRIVALS, BEGUN, Call, Calls, key_of
from holdfast.words.durations import moment
from holdfast.words.events import error_line
from holdfast.words.model import FINISHED, Event, Published, RunRow, Signal, checked_place, is_served
from holdfast.words.people import checked_text
from holdfast.words.spent import NOTHING, Spent
from holdfast.worker.agents import Served, specs_of

_CHUNK: Final = 500  # events that are read together
_WINDOW: Final = 1_000  # events before one whose inputs are needed that are looked at with it
_GOAL_CHARACTERS: Final = 500
_MESSAGES: Final = 20  # that a snapshot shows, the last
_STEPS_BY_COST: Final = 10
_RUNS: Final = 200  # of a family that a snapshot looks at
_DEPTH: Final = 20
_KEYS: Final = 5  # in an error
_ARRIVED: Final = frozenset({"child", "question", "conversation"})  # calls that an arrival ends
_ASKED: Final = frozenset({"approval.asked", "approval.withdrawn"})
_NOT_TOPICS: Final = ("approval:", "child:", "conversation:")


# One call


class _Inside:
    """Room for the client and what an object was made of, outside its fields: no serialiser shows them."""

    __slots__ = ("_client", "_of")

    _client: Base
    _of: Any


def _with(made: Any, client: Base, of: Any) -> Any:
    object.__setattr__(made, "_client", client)
    object.__setattr__(made, "_of", of)
    return made


@dataclass(frozen=True, slots=True)
class StepInfo(_Inside):
    """One call of a run: a step, or a verb such as `sleep` or `approve`.

    Attributes:
        run: The run.
        seq: The place of its first event in the run's history.
        key: Its identity in the run.
        kind: "step", "timer", "child", "question", "conversation", "note", "progress", "plan", "checkpoint", "stream" or "tick".
        name: The name of the step, of the child's agent, or of the verb with a colon before it.
        status: "running", "waiting", "completed", "failed" or "cancelled".
        input: Its arguments in a line, cut to 120 characters.
        kept: Whether its whole arguments are in the history: `arguments()` reads them. If not, it returns None.
        attempts: How many bodies ran.
        failures: The attempts that failed and were tried again: type and text of each error.
        error: The type and text of the error it failed with.
        began_at: When its last body began; if that is not known, when it was first recorded.
        ended_at: When its outcome was recorded.
        worker: The worker that recorded it last; None in histories of versions that did not say.
        spent: What all its attempts have spent.
        child: The run it started.
        dropped: The event of the retry that took it out of the history.

    Example:
        ```python
        async for step in run.steps():
            print(step.key, step.status, await step.result())
        ```
    """

    run: str
    seq: int
    key: str
    kind: str
    name: str
    status: str
    input: str
    kept: bool
    attempts: int
    failures: tuple[str, ...]
    error: str | None
    began_at: datetime
    ended_at: datetime | None
    worker: str | None
    spent: Spent
    child: str | None
    dropped: int | None

    async def arguments(self) -> Any:
        """Read its whole arguments by name, as plain data; None if the history has only their digest and `input`.

        Steps keep them with `inputs="full"`, model requests by default. What a question showed and the arguments of a child are
        always there.

        Raises:
            NotStorable: They name what is not in the store any more, or are damaged.

        Example:
            ```python
            requests = [await step.arguments() async for step in run.steps() if step.kept]
            ```
        """
        call: Call = self._of
        if call.sort == "child" and self.child is not None:
            row = await shared_child(self._client, self.run, self.child)
            text = None if row is None else await unspilled(self._client.store, row.input)
        elif call.sort == "step":
            text = await input_text(self._client, self.run, call)
        elif call.sort == "question":
            asked = next((event for event in call.events if event.kind == "approval.asked"), None)
            shown = None if asked is None else await _value(self._client, self.run, asked.seq)
            return None if asked is None else {"question": asked.data.get("question"), "show": shown}
        else:
            return _facts(call) or None
        return None if text is None else await aside(text, UNTYPED.load, text)

    async def result(self) -> Any:
        """Read what it came to, as plain data: what a step returned, a child's result, an answer; None if there is nothing.

        Raises:
            NotStorable: It is damaged.

        Example:
            ```python
            results = {step.key: await step.result() async for step in run.steps()}
            ```
        """
        call: Call = self._of
        if call.outcome is None or call.state == "failed":
            return None
        return await _value(self._client, self.run, call.outcome.seq)


def _info(client: Base, run: str, call: Call) -> StepInfo:
    made = StepInfo(
        run, call.seq, call.key, call.sort, call.name, call.state, call.input, _keeps(call), call.attempts,
        tuple(error_line(event.data.get("error")) for event in call.failures),
        None if call.error is None else error_line(call.error), moment(call.began),
        None if call.ended is None else moment(call.ended), call.worker, call.spent, call.child, call.dropped,
    )  # fmt: skip
    found: StepInfo = _with(made, client, call)
    return found


def _keeps(call: Call) -> bool:
    if call.sort == "step":
        return call.inputs is not None or bool(call.fact("given"))
    if call.sort == "child":
        return not call.fact("replaced")  # there was none
    return call.sort == "question" or bool(_facts(call))


def _facts(call: Call) -> dict[str, Any]:
    """Read how a verb was called, as far as its events say it."""
    told = ("ms", "until", "conversation", "first", "end", "done", "total", "text", "items")
    return {name: value for name in told if (value := call.fact(name)) is not None}


async def _value(client: Base, run: str, seq: int) -> Any:
    text = await _text_at(client, run, seq)
    return None if text is None else await aside(text, UNTYPED.load, text)


async def _text_at(client: Base, run: str, seq: int) -> str | None:
    found = await client.store.events_at(run, [seq])
    if found and found[0].data.get("chain"):
        return await state_text(client.store, run, found[0])
    return (await _texts(client, found)).get(seq)


async def _texts(client: Base, events: Sequence[Event]) -> dict[int, str]:
    """Read the values of events, wherever they are kept."""
    texts: dict[int, str] = {}
    for event in events:
        text = event.value
        if event.blob is not None:
            text = (await client.store.blob(event.blob)).decode()
        elif text is not None:
            text = await unspilled(client.store, text)
        if text is not None:
            texts[event.seq] = text
    return texts


async def input_text(client: Base, run: str, call: Call) -> str | None:
    """Put the whole input of a step together, as the codec wrote it; None if it was not kept."""
    holder = next((event for event in call.events if "inputs" in event.data), None)
    if holder is None:
        return await _given(client, run, call)
    seq, told = holder.seq, holder.data["inputs"]
    tree = expanded(seq, told, await _inputs_before(client, run, seq, told))
    parts: dict[str, Any] = {}
    while lacking := needed(tree, parts).parts:
        found = await client.store.parts(lacking)
        if missing := lacking - found.keys():
            raise NotStorable(f"the part {min(missing)} of the inputs of {call.key!r} is not in the store any more")
        parts |= {digest: parsed(digest, text) for digest, text in found.items()}
    seqs = needed(tree, parts).values
    texts = await _texts(client, await client.store.events_at(run, seqs - {ARGUMENTS}))
    if ARGUMENTS in seqs:
        texts[ARGUMENTS] = await unspilled(client.store, (await client._run_row(run)).input) or "{}"
    return await aside(texts, lambda: filled(tree, parts, {seq: json.loads(text) for seq, text in texts.items()}))


async def _inputs_before(client: Base, run: str, seq: int, told: Any) -> dict[int, Any]:
    """Read the inputs that one names, the inputs that these name, and so on: most are near, so all between is read too."""
    known: dict[int, Any] = {}
    ahead, seen = list(bases(told)), set[int]()
    while ahead:
        base = ahead.pop()
        if base in seen or not 0 <= base < seq:  # `expanded` says what is wrong
            continue
        seen.add(base)
        if base not in known:
            for event in await client.store.inputs_between(run, max(base - _WINDOW, 0), base + 1):
                known[event.seq] = event.data["inputs"]
        ahead += bases(known.get(base))
    return known


async def _given(client: Base, run: str, call: Call) -> str | None:
    """Read the arguments that a call keeps because a default that changes could change them."""
    for event in call.events:
        if event.kind in ("step.started", "step.held", "step.progress", "step.retrying") or event.data.get("given"):
            return await _text_at(client, run, event.seq)
    return None


# All calls, page by page


def checked_count(limit: int | None) -> int | None:
    """Check how many calls are listed at most; else `BadArguments`."""
    if limit is not None and not is_whole(limit, 1):
        raise BadArguments(f"limit={short(limit)}: give a whole number from 1 on, or leave it out")
    return limit


async def steps(
    client: Base, run: str, *, after: int = -1, limit: int | None = None, dropped: bool = False
) -> AsyncIterator[StepInfo]:
    """Iterate over the calls of a run in the order of their first events."""
    place, left = checked_place(after) + 1, checked_count(limit)
    row = await client._run_row(run)
    if place > row.next_seq:
        raise BadArguments(f"after={after}: run {run!r} has a history of {row.next_seq} events")
    calls, passed = Calls(), set[tuple[str, int | None]]()
    begins = place == 0
    while left is None or left > 0:
        size = _CHUNK if left is None else min(max(2 * left, 32), _CHUNK)
        page = await client.store.outline(run, place, size, dropped)
        if not page:
            return
        end = page[-1].seq + 1
        if not begins:  # a call that began before is on a page before
            keys = {key for event in page if (key := key_of(event)) is not None}
            passed = await client.store.begun_before(run, place, keys, BEGUN)
            begins = True
        made = [call for event in page if (call := _added(calls, event, passed)) is not None]
        await _complete(client, run, made, end, dropped)
        await _name_workers(client, run, calls, made)
        for call in made:
            yield _info(client, run, call)
            left = None if left is None else left - 1
            if left == 0:
                return
        passed |= {(call.key, call.dropped) for call in made if call.outcome is None or call.outcome.seq >= end}
        calls.forget(made)
        place = end


def _added(calls: Calls, event: Event, passed: set[tuple[str, int | None]]) -> Call | None:
    """Take in an event of a page; returns the call that begins with it, if one does."""
    key = key_of(event)
    if key is not None and (key, event.dropped) in passed:
        return None
    call = calls.add(event)
    return call if call is not None and call.events[0] is event else None


async def _complete(client: Base, run: str, made: Sequence[Call], end: int, dropped: bool) -> None:
    """Look up the later events of calls that are open where a page ends."""
    open_calls = [call for call in made if call.outcome is None]
    still = {call.key: call for call in open_calls}
    if not still:
        return
    children = {call.child: call for call in still.values() if call.child is not None}
    asked = {question: call for call in open_calls if (question := call.fact("approval")) is not None}
    kinds = ARRIVALS if any(call.sort in _ARRIVED for call in still.values()) else frozenset[str]()
    for event in await client.store.outline_of(run, still, kinds, from_seq=end, dropped=dropped):
        call = (
            children.get(str(event.data.get("child")))
            if event.kind == "child.ended"
            else asked.get(str(event.data.get("approval"))) or still.get(key_of(event) or "")
        )
        if call is not None and call.outcome is None and (event.dropped == call.dropped or event.kind in ARRIVALS):
            call.add(event)
            call.worker = event.data.get("worker")


async def _name_workers(client: Base, run: str, calls: Calls, made: Iterable[Call]) -> None:
    """Look up the workers of claims whose first events are elsewhere."""
    known: dict[int, str | None] = {}
    for call in made:
        last = call.events[-1]
        if call.worker is None:
            if last.epoch not in known:
                known[last.epoch] = await client.store.worker_at(run, last.seq, last.epoch)
            call.worker = known[last.epoch]
    for epoch, worker in known.items():
        if worker is not None:
            calls.workers.setdefault(epoch, worker)


async def step_at(client: Base, run: str, which: int | str) -> StepInfo:
    """Find one call by the place of its first event, by its key, or by its name if it is the only one. `BadArguments` if not."""
    row = await client._run_row(run)
    if isinstance(which, int):
        if 0 <= checked_place(which, "step") < row.next_seq:
            async for found in steps(client, run, after=which - 1, limit=1, dropped=True):
                if found.seq == which:
                    return found
        raise BadArguments(f"run {run!r} has no call that begins with event {which}; `holdfast steps {run}` lists them")
    call = await _call_at(client, run, checked_text(which, "step"))
    if call is None:
        named = keys_named(await client.store.keys_like(run, which), which)
        if len(named) > 1:
            told = ", ".join(map(repr, named[:_KEYS])) + (
                f" and {len(named) - _KEYS} more" if len(named) > _KEYS else ""
            )
            raise BadArguments(f"run {run!r} called {short(which)} {len(named)} times: name one of {told}")
        call = await _call_at(client, run, named[0]) if named else None
    if call is None:
        raise BadArguments(f"run {run!r} has no call {short(which)}; `holdfast steps {run}` lists their keys")
    return _info(client, run, call)


async def _call_at(client: Base, run: str, key: str) -> Call | None:
    calls = Calls(await client.store.outline_of(run, [key], ARRIVALS))
    call = calls.find(key)
    if call is not None:
        await _name_workers(client, run, calls, [call])
    return call


# Events and checkpoints


async def event_at(client: Base, run: str, seq: int) -> RunEvent:
    """Find one event; `BadArguments` if there is none at this place."""
    row = await client._run_row(run)
    if 0 <= checked_place(seq, "seq") < row.next_seq:
        found = await client.store.lines(run, seq, 1, dropped=True)
        if found and found[0].seq == seq:
            return RunEvent.of(found[0])
    raise BadArguments(f"run {run!r} has no event {seq}; its history has {row.next_seq}, from 0 on")


async def value_at(client: Base, run: str, seq: int) -> Any:
    """Read the value that an event holds, as plain data; None if it holds none."""
    return await _value(client, run, seq)


async def value_text(client: Base, run: str, seq: int) -> str | None:
    """Read the value that an event holds, as the text that is stored; None if it holds none."""
    return await _text_at(client, run, seq)


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A stored state of a run, from which replay starts.

    Attributes:
        era: Which one it is, from 1 on.
        seq: The event that has it: `run.state(seq)` is its state.
        at: When it was stored.
        size: The bytes that this checkpoint added to the store.

    Example:
        ```python
        eras = [checkpoint.era for checkpoint in await run.checkpoints()]
        ```
    """

    era: int
    seq: int
    at: datetime
    size: int


async def checkpoints(client: Base, run: str) -> list[CheckpointInfo]:
    """List the checkpoints of a run, the first first."""
    row, made, place = await client._run_row(run), list[CheckpointInfo](), 0
    while place < row.next_seq:
        page = await client.store.lines(run, place, _CHUNK, kinds=["checkpoint"])
        made += [
            CheckpointInfo(int(line.data.get("era", 0)), line.seq, moment(line.at), line.size or 0) for line in page
        ]
        if len(page) < _CHUNK:
            break
        place = page[-1].seq + 1
    return made


# State


@dataclass(frozen=True, slots=True)
class State(_Inside):
    """The state of an agent, as it stored it by `checkpoint`; or of a reducer, folded from its events.

    Attributes:
        run: The run.
        seq: The event that has it, or the last one that was folded into it.
        era: Which checkpoint it is, from 1 on; of a state that was folded, the one before it, or 0.
        at: When it was stored, or that event came.
        folded: Of a reducer: how many of its events the state is made of.

    Example:
        ```python
        state = await run.state()
        print("nothing stored" if state is None else await state.value())
        ```
    """

    run: str
    seq: int
    era: int
    at: datetime
    folded: int | None = None

    async def value(self) -> Any:
        """Read the state itself, as plain data.

        Example:
            ```python
            state = await run.state()
            if state is not None:
                print(await state.value())
            ```
        """
        if self._of is not None:
            return await aside(self._of, UNTYPED.load, self._of)
        return await _value(self._client, self.run, self.seq)


async def state(
    client: Base, run: str, at: int | None = None, agents: Iterable[Agent[..., Any] | ModuleType] | None = None
) -> State | None:
    """Find the state that held at an event: that of the last checkpoint up to it; of a reducer whose code is here, the very one."""
    row = await client._run_row(run)
    seq = row.checkpoint_seq
    if at is not None:
        if not 0 <= checked_place(at, "at") < max(row.next_seq, 1):
            raise BadArguments(
                f"at={at}: run {run!r} has a history of {row.next_seq} events, the last is {row.next_seq - 1}"
            )
        seq = await client.store.last_of_kind(run, "checkpoint", at)
    event = None if seq is None else next(iter(await client.store.outline(run, seq, 1)), None)
    spec = client._spec(row.agent, row.version)
    if agents is not None:
        spec = Served(specs_of(agents)).spec_of(row.agent, row.version)
        if spec is None:
            raise BadArguments(f"run {run!r} is one of {row.agent!r}, which is not among the agents that were given")
    if spec is not None and spec.folding is not None:
        return await _folded(client, row, spec, event, at)
    return _stored(client, run, event)


async def _checkpoint(client: Base, row: RunRow) -> Event | None:
    """The last checkpoint of a run."""
    seq = row.checkpoint_seq
    return None if seq is None else next(iter(await client.store.outline(row.id, seq, 1)), None)


def _stored(client: Base, run: str, event: Event | None) -> State | None:
    if event is None:
        return None
    era, folded = int(event.data.get("era", 0)), event.data.get("choices", {}).get("reducer", {}).get("folded")
    made: State = _with(State(run, event.seq, era, moment(event.at), folded), client, None)
    return made


async def _folded(client: Base, row: RunRow, spec: AgentSpec, stored: Event | None, at: int | None) -> State:
    """Fold the events of a reducer up to a place, from the state that was stored last before it."""
    from holdfast.rehearsal.replay import Ground  # noqa: PLC0415 - loaded when code is tried

    ground, since = Ground(client.store, [spec]), 0 if stored is None else stored.seq
    try:
        came = await ground.fold(row, since=since, until=at)
    finally:
        await ground.close()
    if came.replay.verdict not in ("fits", "differs"):
        raise NondeterminismError(
            f"the state of run {row.id!r} cannot be folded with this code: {came.replay.reason}. Use the code that the run had, or "
            "look at what is stored (`holdfast state` without --code)"
        )
    last = row.next_seq - 1 if at is None else at
    seen = next(iter(await client.store.outline(row.id, last, 1)), None) if last >= 0 else None
    made = State(
        row.id, max(last, 0), 0 if stored is None else int(stored.data.get("era", 0)),
        moment(row.created_at if seen is None else seen.at), came.events,
    )  # fmt: skip
    folded: State = _with(made, client, came.text)
    return folded


# Snapshots


@dataclass(frozen=True, slots=True)
class Pending:
    """Something that a run waits for.

    Attributes:
        kind: "question", "timer", "message", "announcement", "child", "rate", "slot", "retry", "conversation" or "step"; "start"
            of a run that begins later, "worker" of one that nobody carries, "resume" of a paused one.
        what: Its name: the id of the question or the child, the topic, the announcement, the rate, the step, the agent.
        text: What people read: the question, the reason of a pause.
        to: People and groups who may decide a question; empty: anybody.
        key: The call that waits, if the journal has it.
        since: Since when.
        until: When it goes on by itself, or expires.

    Example:
        ```python
        (question,) = (await run.snapshot()).pending
        assert (question.kind, question.what) == ("question", (await run.approvals())[0].id)
        ```
    """

    kind: str
    what: str
    text: str = ""
    to: tuple[str, ...] = ()
    key: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class MessageInfo(_Inside):
    """A message that was sent to a run.

    Attributes:
        topic: Its topic.
        position: Its place in the run's inbox, from 1 on.
        sent_at: When it was sent.
        taken: Whether it is in the run's history; else it waits for a worker to take it there.

    Example:
        ```python
        values = [await message.value() for message in (await run.snapshot()).messages]
        ```
    """

    topic: str
    position: int
    sent_at: datetime
    taken: bool

    async def value(self) -> Any:
        """Read the message itself, as plain data.

        Example:
            ```python
            values = [await message.value() for message in (await run.snapshot()).messages]
            ```
        """
        text = await unspilled(self._client.store, self._of)
        return None if text is None else await aside(text, UNTYPED.load, text)


@dataclass(frozen=True, slots=True)
class Snapshot(_Inside):
    """All that a run has come to at a moment: its goal, its plan, what it waits for, and the runs below it.

    Attributes:
        run: The run as lists show it, with its progress, what it spent and what it may spend.
        goal: Its agent and arguments in a line; `run.arguments()` reads them.
        plan: What it means to do, and whether that is done.
        pending: What it waits for.
        messages: The last messages that were sent to it.
        messages_sent: How many messages were sent to it in all.
        conversations: The conversations it has now.
        request: The last request to a model: its arguments are the conversation so far.
        state: The state of its last checkpoint.
        streams: The streams it has written to.
        spent_by: Which steps spent most, with those of the runs below.
        children: The runs it started, in the order in which it did.
        left_out: How many runs below it are not shown, because there are too many.

    Example:
        ```python
        snapshot = await run.snapshot()
        print(snapshot.goal, [each.kind for each in snapshot.pending])
        ```
    """

    run: RunInfo
    goal: str
    plan: tuple[tuple[str, bool], ...]
    pending: tuple[Pending, ...]
    messages: tuple[MessageInfo, ...]
    messages_sent: int
    conversations: tuple[str, ...]
    request: StepInfo | None
    state: State | None
    streams: tuple[StreamInfo, ...]
    spent_by: tuple[tuple[str, Spent], ...]
    children: tuple[Snapshot, ...] = ()
    left_out: int = 0


@dataclass(slots=True)
class _Family:
    """The runs of a snapshot: those below each, and how many more may be looked at."""

    client: Base
    info: Callable[[RunRow], Coroutine[Any, Any, RunInfo]]
    questions: dict[str, Any]
    served: Published
    left: int
    fork: str  # the run itself
    below: dict[str | None, list[RunRow]] = field(default_factory=dict)
    shared: dict[str | None, list[RunRow]] = field(
        default_factory=dict
    )  # runs that a fork has from another, in the same way


async def snapshot(
    client: Base, row: RunRow, info: Callable[[RunRow], Coroutine[Any, Any, RunInfo]], asked: Iterable[Any]
) -> Snapshot:
    """Look into a run and those below it. `asked` are their open questions."""
    served = await client.store.agents()
    family = _Family(client, info, {each.id: each for each in asked}, served, _RUNS, row.id)
    family.shared = await shared_below(client, row.id)
    found = await client.store.runs(root=row.root_id or row.id, limit=5 * _RUNS)
    for each in sorted(found, key=lambda each: (each.created_at, each.id)):
        family.below.setdefault(each.parent_id, []).append(each)
    return await _snapshot(family, row, 0)


async def _snapshot(family: _Family, row: RunRow, depth: int) -> Snapshot:
    family.left -= 1
    client, run = family.client, row.id
    info = await family.info(row)
    said = (await client.store.progress([run])).get(run, {})
    plan = tuple((str(name), bool(done)) for name, done in said.get("plan", {}).get("items", ()))
    open_calls = await _open_calls(client, row) if row.status not in FINISHED else []
    children, left_out = await _shared_snapshots(family, run, depth)
    for child in family.below.get(run, ()):
        if depth < _DEPTH and family.left > 0:
            children.append(await _snapshot(family, child, depth + 1))
        else:
            left_out += 1
    messages, sent = await _messages(client, row)
    made = Snapshot(
        run=info, goal=await _goal(client, row), plan=plan, pending=tuple(_pending(family, row, open_calls)),
        messages=tuple(messages), messages_sent=sent,
        conversations=tuple(await client.store.conversations_held(run)) if row.status not in FINISHED else (),
        request=await _last_request(client, row), state=_stored(client, run, await _checkpoint(client, row)),
        streams=tuple(await streams(client, run)),
        spent_by=tuple(await client.store.spent_by(run, _STEPS_BY_COST)), children=tuple(children),
        left_out=left_out + sum(each.left_out for each in children),
    )  # fmt: skip
    found: Snapshot = _with(made, client, row)
    return found


async def _shared_snapshots(family: _Family, run: str, depth: int) -> tuple[list[Snapshot], int]:
    """Look into the runs that a fork has from another, below one; and count the runs that are left out.

    They have ended, and may be deleted: what there is to say is in their rows and histories.
    """
    made, left_out, store = list[Snapshot](), 0, family.client.store
    for row in family.shared.get(run, ()):
        if depth >= _DEPTH or family.left <= 0:
            left_out += 1
            continue
        family.left -= 1
        events = [event for event in await store.journal_below(family.fork, row.id) if event.dropped is None]
        info = shared_info(row, events, store.clock.now())
        plan = next((event.data["items"] for event in reversed(events) if event.kind == "plan"), ())
        by = dict[str, Spent]()
        for event in events:
            if "spent" in event.data:
                name = str(event.data.get("name", ""))
                by[name] = by.get(name, NOTHING) + Spent.of(event.data["spent"])
        children, more = await _shared_snapshots(family, row.id, depth + 1)
        each = Snapshot(
            run=info, goal=await _goal(family.client, row), plan=tuple((str(name), bool(done)) for name, done in plan),
            pending=(), messages=(), messages_sent=sum(event.kind == "message.received" for event in events), conversations=(),
            request=None, state=None, streams=(), spent_by=tuple(by.items())[:_STEPS_BY_COST], children=tuple(children),
            left_out=more,
        )  # fmt: skip
        made.append(_with(each, family.client, row))
        left_out += more
    return made, left_out


async def _goal(client: Base, row: RunRow) -> str:
    """Write what the agent was called with in a line."""
    text = await unspilled(client.store, row.input) or "{}"
    return f"{row.agent}({cut(await aside(text, _arguments_line, text), _GOAL_CHARACTERS)})"


def _arguments_line(text: str) -> str:
    try:
        arguments = UNTYPED.load(text)
    except NotStorable:
        return preview(text)
    if not isinstance(arguments, dict):
        return preview(text)
    return ", ".join(f"{name}={show(value, _GOAL_CHARACTERS)}" for name, value in arguments.items())


async def _open_calls(client: Base, row: RunRow) -> list[Call]:
    """Find the calls that were begun since the last checkpoint and have not ended."""
    first = row.checkpoint_seq or 0
    begun = await client.store.outline_of(row.id, (), BEGUN, from_seq=first)
    keys = {key for event in begun if (key := key_of(event)) is not None}
    if not keys:
        return []
    found = Calls(await client.store.outline_of(row.id, keys, ARRIVALS | _ASKED, from_seq=first))
    return [call for call in found if call.outcome is None]


def _pending(family: _Family, row: RunRow, calls: Sequence[Call]) -> list[Pending]:
    """Say what a run waits for: by its row first, then by its open calls."""
    now, made = family.client.store.clock.now(), list[Pending]()
    due = None if row.due_at is None else moment(row.due_at)
    if row.status in FINISHED:
        return []
    if row.status == "paused":
        made.append(Pending("resume", row.id, row.reason or "", since=moment(row.updated_at)))
    elif is_put_off(row, now):
        made.append(Pending("start", row.agent, since=moment(row.created_at), until=due))
    elif row.status == "ready" and row.waits_for in ("slot", "rate"):
        what = row.limit_key if row.waits_for == "slot" else row.rate_key
        made.append(Pending(row.waits_for, what or "", since=moment(row.updated_at), until=due))
    elif wants_worker(row, now) and not is_served(row, family.served):
        made.append(Pending("worker", row.agent, since=due or moment(row.updated_at)))
    for call in calls:
        waits = call.pending
        assert waits is not None
        asked = family.questions.get(waits.what) if waits.sort == "question" else None
        until = None if waits.until is None else moment(waits.until)
        text, to = ("", ()) if asked is None else (asked.question, asked.to)
        made.append(
            Pending(
                waits.sort, waits.what, text, to, call.key, moment(waits.since), asked.expires_at if asked else until
            )
        )
    known = {each.what for each in made}
    for token in json.loads(row.awaits or "[]") if row.status == "waiting" else ():
        kind, what = _token(token)
        if kind != "conversation" and what not in known:  # of that the token names the request alone
            made.append(Pending(kind, what, since=moment(row.updated_at)))
    return made


def _token(token: str) -> tuple[str, str]:
    for prefix in _NOT_TOPICS:
        if token.startswith(prefix):
            kind = prefix.removesuffix(":")
            return ("question" if kind == "approval" else kind), token.removeprefix(prefix)
    name = event_of(token)
    return ("message", token) if name is None else ("announcement", name)


async def _messages(client: Base, row: RunRow) -> tuple[list[MessageInfo], int]:
    """List the last messages to a run, and count all."""
    found = await client.store.last_messages(row.id, _MESSAGES)
    await _recall_messages(client, row.id, {each.position: each for each in found if each.value is None})
    made = [
        _with(
            MessageInfo(each.topic, each.position, moment(each.sent_at), each.position <= row.inbox_seen),
            client,
            each.value,
        )
        for each in reversed(found)
    ]
    return made, await client.store.count_messages(row.id) if len(found) == _MESSAGES else len(found)


async def _recall_messages(client: Base, run: str, released: dict[int, Signal]) -> None:
    """Read messages of which the inbox has no copy any more from the journal, because a checkpoint came behind them."""
    if released:
        received = await client.store.outline_of(run, (), ("message.received",))
        places = {event.seq: released.get(int(event.data.get("position", 0))) for event in received}
        events = await client.store.events_at(run, [seq for seq, signal in places.items() if signal is not None])
        for seq, text in (await _texts(client, events)).items():
            signal = places[seq]
            if signal is not None:
                signal.value = text


async def _last_request(client: Base, row: RunRow) -> StepInfo | None:
    seq = await client.store.last_request(row.id)
    if seq is None:
        return None
    (event,) = await client.store.outline(row.id, seq, 1)
    call = await _call_at(client, row.id, event.key or "")
    return None if call is None else _info(client, row.id, call)
