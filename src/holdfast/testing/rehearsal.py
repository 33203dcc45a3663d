"""Runs of production as tests: replayed with the code of today, or run again with one thing changed.

A rehearsal is a run from its beginning, in a store of its own that is gone afterwards. A worker carries it as any run, and a call
begins as any call; but where a body would run, the record answers. Time is that of the record: it stands still until everything
waits, and then jumps to the moment of the next recorded outcome, message or decision, so that things come in the order in which
they came. The run has the uid of the original, so random numbers and ids are the same.

A call is answered by the record if the record has the same call with the same input. For a new input there is a rule: a request
to a model may be made, others get what the test says, and everything else ends the rehearsal. Other bodies do not run; the
agent's own code does, in a quarantine, because it may never give its loop back.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import dataclasses
import functools
import heapq
import inspect
import itertools
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

from holdfast.client.bundles import is_bundle
from holdfast.client.client import Client
from holdfast.client.edge import describe, open_bundle, open_existing, user
from holdfast.client.history import input_text
from holdfast.client.keys import Keys
from holdfast.client.rehearsal import told
from holdfast.client.run import Run
from holdfast.declare import Agent, Step, step_names
from holdfast.engine.carried import Asked, Carried
from holdfast.engine.host import Ended, Work
from holdfast.engine.performer import perform
from holdfast.errors import (
    BadArguments,
    NondeterminismError,
    NotStorable,
    RunFinished,
    StepFailed,
    UnknownAgent,
    UnknownRun,
)
from holdfast.rehearsal.difference import Difference, Told, compare
from holdfast.rehearsal.quarantine import AtHome, Kept, Quarantine
from holdfast.rehearsal.replay import Replay
from holdfast.store.blobs import spilled, unspilled
from holdfast.store.runs import NewRun
from holdfast.store.sqlite.store import SQLiteStore
from holdfast.store.store import Store
from holdfast.testing.clock import JumpClock
from holdfast.values import failures
from holdfast.values.codec import UNTYPED
from holdfast.values.parts import Growing
from holdfast.values.text import cut, near
from holdfast.words import overrides
from holdfast.words.budget import Budget
from holdfast.words.calls import Call, Calls
from holdfast.words.durations import Duration, seconds
from holdfast.words.harmless import silent
from holdfast.words.model import FINISHED, OUTCOMES, Event, RunRow, checked_run_id
from holdfast.words.overrides import Override
from holdfast.words.people import PYTHON, Actor
from holdfast.words.spent import NOTHING, Spent
from holdfast.worker.agents import specs_of
from holdfast.worker.settings import Settings
from holdfast.worker.worker import Worker

_LOOK_EVERY_S: Final = 0.001
_QUIET_LOOKS: Final = 3
_LATE_MS: Final = 10_000
_MOST_RUNS: Final = 10_000  # of one family
_MOST_NAMES: Final = 20  # of steps that are listed
_KEPT_S: Final = 60.0  # that code may keep its loop
Origin = Literal["recorded", "asked", "scripted"]


def replay(
    store: str | os.PathLike[str],
    run: str | None = None,
    agents: Iterable[Agent[..., Any] | ModuleType] = (),
    *,
    to: int | str | None = None,
) -> Replay:
    """Replay a recorded run with the code of today, in a plain test. No body runs, and nothing is written.

    Args:
        store: The URL of the store that has the run, such as "sqlite:orders.db"; or the name of a bundle, whose signer is trusted
            here (`holdfast.Keys`).
        run: The run; of a bundle, unless given, the one above all others.
        agents: Its agent, and those it calls, or modules with agents.
        to: Stop when the run has seen this event, or where it makes the call of this key.

    Raises:
        NondeterminismError: The code does not make the calls that are recorded, does not take the recorded values, or ends
            otherwise. The message says where, with the line of the code.
        UnknownRun: The store has no such run.
        StoreUnavailable: There is no such store.
        BadBundle: The bundle is not whole, or no trusted person has signed it.

    Example:
        ```python
        def test_the_run_of_last_tuesday() -> None:
            replayed = holdfast.testing.replay("sqlite:runs.db", "r-1", [research])
            assert replayed.result == "published"
        ```
    """
    place = os.fspath(store)
    if run is None and not is_bundle(place):
        raise BadArguments(f"{place!r} is no bundle, so the run must be named: replay({place!r}, 'ID', [agent])")

    async def replayed() -> Replay:
        async with _looked_into(place) as hf:
            return await hf.replay(describe(place).run if run is None else run, agents, to=to)

    with ThreadPoolExecutor(1) as alone:  # a loop of its own: the caller may be on one
        found = alone.submit(asyncio.run, replayed()).result()
    if not found.fits:
        raise NondeterminismError(f"{found.line}: {found.reason}" if found.line else found.reason)
    return found


def _looked_into(place: str) -> contextlib.AbstractAsyncContextManager[Client]:
    """Open a store that is there, or a bundle as if it were one."""
    if not is_bundle(place):
        return open_existing(place, Actor(user()), PYTHON, only_looks=True)
    return open_bundle(place, Actor(user()), PYTHON, Keys().own)


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """A run that was run again with one thing changed.

    Attributes:
        run: The run.
        difference: The original beside the rehearsal.
        answers: How calls of steps were answered: by "recorded" results, "asked" of a model, "scripted" by the test.
        stopped: Why the rehearsal did not come to an end of its own; empty if it did.
        spent: What requests to models have really spent.

    Example:
        ```python
        (rehearsed,) = await holdfast.testing.rehearse(hf, ["r-1"], [report])
        assert rehearsed.difference.same
        ```
    """

    run: str
    difference: Difference
    answers: dict[str, int]
    stopped: str = ""
    spent: Spent = NOTHING


async def rehearse(
    hf: Client,
    runs: Iterable[str],
    agents: Iterable[Agent[..., Any] | ModuleType],
    *,
    model: Any = None,
    prompts: Mapping[str, str] | None = None,
    replace: Mapping[Step[..., Any], Callable[..., Any]] | None = None,
    live: Iterable[Step[..., Any] | str] = (),
    answers: Mapping[Any, Callable[..., Any]] | None = None,
    decide: bool = False,
    budget: Budget | None = None,
    timeout: Duration = "5m",
) -> list[Rehearsed]:
    """Run recorded runs again with one thing changed, and compare. No body of a step runs except the ones named here.

    The store is only read. The code runs in a thread with an event loop of its own.

    Args:
        hf: The client of the store that has the runs.
        runs: The runs, each with all below it.
        agents: The code: agents, or modules with agents.
        model: A model that replaces the models of all Pydantic AI agents, or its name.
        prompts: Instructions that replace the ones of Pydantic AI agents, by the names of the agents.
        replace: Functions instead of the bodies of steps; they answer every call of these steps.
        live: Steps, or their names, whose bodies run for every call, because they ask a model and do nothing else.
        answers: Functions, by step or its name, that answer calls which the record has not with that input.
        decide: Decide a question that shows another value than it did as it was decided then; else it ends the rehearsal.
        budget: What requests to models may spend in all. Without it none is made, whatever the model.
        timeout: How long each rehearsal may take; one that is not at its end by then is stopped. So is code that keeps the event
            loop for as long, or for a minute.

    Raises:
        UnknownRun: One of the runs is not there.
        UnknownAgent: The code has no agent of that name.
        BadArguments: The model, a prompt or a function has nothing to take the place of, there is no step of a name in `live` or
            `answers`, or the timeout is no time.

    Example:
        ```python
        (rehearsed,) = await holdfast.testing.rehearse(hf, ["r-1"], [report])
        print(rehearsed.difference.parted, rehearsed.answers)
        ```
    """
    code, replaced = list(agents), dict(replace or {})
    specs = specs_of(code)
    changed = overrides.made("model", None, model) if model is not None else ()
    for name, text in (prompts or {}).items():
        changed += overrides.made("instructions", name, text)
    by_name = {str(getattr(step, "name", step)): function for step, function in (answers or {}).items()}
    asked = frozenset(str(getattr(step, "name", step)) for step in live)
    rules = _Rules(changed, replaced, asked, by_name, decide, budget, limit_s=seconds(timeout))
    rows = [await hf._run_row(checked_run_id(run)) for run in dict.fromkeys(runs)]
    for row in rows:
        if not any((spec.name, spec.version if row.version else None) == (row.agent, row.version) for spec in specs):
            raise UnknownAgent(f"run {row.id!r} is one of agent {row.agent!r}, which is not in the code that was given")
    named = _Named(asked | by_name.keys())
    if not overrides.agents():  # tools of a framework's agents are known when they are called
        await named.check(hf, rows)
    apart: Quarantine | None = None
    found: list[Rehearsed] = []
    try:
        for row in rows:
            apart = Quarantine() if apart is None or apart.lost else apart
            found.append(await _rehearsed(hf, row, code, rules, apart))
    finally:
        if apart is not None:
            await apart.close()
    named.known |= rules.called
    await named.check(hf, rows)
    return found


class _Named:
    """Steps that a rehearsal names. A name that no step has is a mistake, and what was meant would be lost."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names, self.known = names, set(step_names)

    async def check(self, hf: Client, rows: Sequence[RunRow]) -> None:
        """Refuse a name that neither the code nor the records have."""
        recorded: set[str] = set()
        if self.names - self.known:
            for row in rows:
                family = (await _Record.of(hf, row)).runs.values()
                recorded |= {call.name for each in family for call in each.calls if call.sort == "step"}
        if unknown := sorted(self.names - self.known - recorded):
            listed = ", ".join(sorted(recorded)[:_MOST_NAMES]) or "none"
            meant = near(unknown[0], recorded | self.known)
            hint = f"did you mean {meant!r}? " if meant else ""
            raise BadArguments(f"there is no step {unknown[0]!r}; {hint}steps of the recorded runs: {listed}")


@dataclass
class _Rules:
    """Rules of a rehearsal: the things that are changed, and what answers a call with a new input."""

    overrides: tuple[Override, ...]
    replace: dict[Step[..., Any], Callable[..., Any]]
    live: frozenset[str]  # names of steps
    answers: dict[str, Callable[..., Any]]
    decide: bool
    budget: Budget | None
    limit_s: float  # for one rehearsal
    spent: Spent = NOTHING
    called: set[str] = field(default_factory=set)  # names of steps

    @property
    def may_ask(self) -> bool:
        """May a request to a model be made?"""
        return self.budget is not None and not self._used_up

    @property
    def _used_up(self) -> bool:
        limits, spent = self.budget, self.spent
        assert limits is not None
        pairs = ((limits.usd, spent.usd), (limits.tokens, spent.tokens), (limits.model_calls, spent.model_calls))
        return any(limit is not None and used >= limit for limit, used in pairs)


async def _rehearsed(hf: Client, row: RunRow, code: Sequence[Any], rules: _Rules, apart: Quarantine) -> Rehearsed:
    """Rehearse a run in a quarantine: of code that keeps its loop, as far as it came."""
    record = await _Record.of(hf, row)
    record.refuse_fork()
    first, director = await told(hf.store, row, record.ends_at), _Director(record, rules)
    with tempfile.TemporaryDirectory(prefix="holdfast-", ignore_cleanup_errors=True) as folder:
        stage = _Stage(Path(folder) / "rehearsal.db", code, director)
        try:
            second = await apart.run(lambda: _played(stage, row.id), min(rules.limit_s, _KEPT_S))
        except Kept as kept:
            director.stopped = director.stopped or str(kept)
            second = director.so_far(first.input)
            stage.drop()
    so_far = not record.is_over
    found = compare(first, second, so_far=so_far)
    return Rehearsed(row.id, found, dict(director.origins), director.stopped, director.spent)


async def _played(stage: _Stage, run: str) -> Told:
    quiet = silent.set(True)
    try:
        async with stage:
            await stage.play()
            return await stage.told(run)
    finally:
        silent.reset(quiet)


# The record


@dataclass
class _Recorded:
    """One recorded run: its calls, each of which answers once."""

    row: RunRow
    events: list[Event]
    calls: list[Call] = field(default_factory=list)
    used: set[int] = field(default_factory=set)

    def alike(self, call: Asked) -> Iterator[tuple[int, Call]]:
        """List recorded calls that this one may be: in its place, and then anywhere, with the same name and input."""
        for place in (True, False):
            for nth, recorded in enumerate(self.calls):
                if nth not in self.used and (recorded.key == call.key) is place and _is_same(call, recorded):
                    yield nth, recorded


def _is_same(call: Asked, recorded: Call) -> bool:
    """Has the record this very call? Also if only a default has become what the code gives, or a field was added."""
    if (recorded.sort, recorded.name) != ("step", call.name):
        return False
    digest = recorded.digest
    whole, lean = recorded.fact("whole_digest", digest), recorded.fact("lean_digest", digest)
    return call.digest == digest or call.whole == whole or call.lean == lean


@dataclass
class _Inputs:
    """Whole inputs of recorded calls."""

    hf: Client

    async def text(self, run: str, call: Call) -> str | None:
        return await input_text(self.hf, run, call)


@dataclass
class _Record:
    """A run and all below it, as they were recorded."""

    store: Any  # that has them, as it can be read from a quarantine
    inputs: Any  # of its calls, likewise
    root: RunRow
    runs: dict[str, _Recorded]
    ends_at: int

    @classmethod
    async def of(cls, hf: Client, root: RunRow) -> _Record:
        store = hf.store
        family = await store.runs(root=root.root_id or root.id, limit=_MOST_RUNS)
        runs = {root.id: _Recorded(root, [])}
        grown = True
        while grown:  # lists of a family come in no order
            below = [row for row in family if row.parent_id in runs and row.id not in runs]
            runs.update({row.id: _Recorded(row, []) for row in below})
            grown = bool(below)
        for run, recorded in runs.items():
            recorded.events = await store.journal(run)
            recorded.calls = [call for call in Calls(recorded.events).made if call.dropped is None]
        last = max((each.events[-1].at for each in runs.values() if each.events), default=root.created_at)
        return cls(AtHome(store), AtHome(_Inputs(hf)), root, runs, max(last, root.finished_at or 0))

    def refuse_fork(self) -> None:
        """Refuse a run that has no beginning of its own: what it shares was made under another identity than the rest."""
        forked = [event for event in self.runs[self.root.id].events if event.kind == "run.forked"]
        if forked:
            of, run = forked[-1].data["of"], self.root.id
            raise BadArguments(
                f"run {run!r} is a fork or a copy of {of!r}, and has no beginning of its own to be run again from. Rehearse {of!r} "
                f"where it is. `holdfast diff {of} {run}` compares the two; `holdfast replay {run}` and `holdfast check` take forks"
            )

    def of_run(self, run: RunRow) -> _Recorded | None:
        """Find the record of a run: by its id, or, if a call stands elsewhere now, by its agent and arguments."""
        found = self.runs.get(run.id)
        if found is None:
            alike = [
                each for each in self.runs.values() if (each.row.agent, each.row.identity) == (run.agent, run.identity)
            ]
            found = next((each for each in alike if each.row.parent_id is not None), None)
            if found is not None:
                self.runs[run.id] = found
        return found

    @property
    def is_over(self) -> bool:
        """Has the run ended in the record? One that went to another store has not."""
        return self.root.status in FINISHED and self.root.status != "moved"

    @functools.cached_property
    def models(self) -> frozenset[str]:
        """The names of steps that have asked models."""
        return frozenset(call.name for recorded in self.runs.values() for call in recorded.calls if call.is_model)

    @functools.cached_property
    def times(self) -> list[int]:
        """The times at which outcomes were recorded."""
        return sorted({each.at for recorded in self.runs.values() for each in recorded.events if each.kind in OUTCOMES})

    async def text(self, event: Event) -> str | None:
        """Read the value of an event, wherever it is kept."""
        return event.value if event.blob is None else (await self.store.blob(event.blob)).decode()


# The stage


class _Clock(JumpClock):
    """Durable time that stands still until it is told."""

    def __init__(self, now: int) -> None:
        super().__init__()
        self._now = now

    def now(self) -> int:
        return self._now

    def jump_to(self, when: int) -> None:
        self._now = max(self._now, when)
        self.fire()


class _Understudy(Worker):
    """A worker that performs nothing by itself."""

    director: _Director

    async def perform(self, work: Work) -> Ended:
        return await self.director.answered(self.attempts, work)


class _Stage(Client):
    """A client over a store of its own in which one run is run again."""

    def __init__(self, path: Path, code: Sequence[Any], director: _Director) -> None:
        rules = director.rules
        settings = Settings(
            park_grace_s=3600.0, lease_ttl_s=3600.0, replace=rules.replace, observer=director,
            overrides=lambda _: rules.overrides,
        )  # fmt: skip
        super().__init__(f"sqlite:{path}", agents=code, settings=settings)
        self.path, self.director = path, director

    def _make_store(self) -> Store:
        return SQLiteStore(self.path, durability="none", clock=self.director.clock)

    async def _work(self, store: Store) -> None:
        specs = [dataclasses.replace(spec, schedule=None) for spec in self._code.specs]  # nothing begins by itself here
        worker = _Understudy(store, specs, self._settings)
        worker.director = self.director
        worker.rounds.clear()  # nor is anything taken in or sent out
        await worker.start()
        self._worker = worker

    async def __aexit__(self, *exc: object) -> None:
        """Leave everything as it is: nobody goes on with this store, and a body that waits for nothing is not waited for."""
        store, worker = self._store, self._worker
        self._store = self._worker = None
        if store is not None:
            store.abandon()
        if worker is not None:
            await worker.abandon()

    def drop(self) -> None:
        """Let go of the store from another thread, because nothing more comes from that of the loop."""
        if self._store is not None:
            self._store.abandon()

    def _begins(self, run: str) -> None:
        """Let the run begin: its overrides are made for it."""

    async def told(self, run: str) -> Told:
        """Read the run as it stands in the end."""
        return await told(self.store, await self._run_row(run), self.director.clock.now())

    async def play(self) -> None:
        """Have the director play the run here."""
        assert self._worker is not None
        await self.director.play(self.get(self.director.record.root.id), self.store, self._worker)


class _Director:
    """One run that is run again: what answers its calls, and when."""

    def __init__(self, record: _Record, rules: _Rules) -> None:
        self.record, self.rules = record, rules
        self.clock = _Clock(record.root.created_at)
        self.origins: Counter[str] = Counter()
        self.stopped, self.spent = "", NOTHING
        self._parted = False  # something was answered otherwise than by the record
        self._order: list[tuple[int, int, int, asyncio.Future[None]]] = []  # answers that wait for their time
        self._count = itertools.count()
        self._sending: set[asyncio.Task[None]] = set()
        self._events: list[Event] = []  # of the run itself
        self._nothing_comes = asyncio.Event()

    async def play(self, run: Run[Any], store: Store, worker: Worker) -> None:
        """Start the run as it was started, and go on until it has ended, or nothing more can come."""
        row = self.record.root
        text, blobs = spilled(await unspilled(self.record.store, row.input) or "{}")
        await self._fill_conversations(store)
        new = NewRun(
            row.id, row.uid, row.agent, text, row.version, row.queue, row.labels, budget=row.budget, identity=row.identity
        )  # fmt: skip
        await store.create(new, blobs)
        self._store = store
        self._announce()
        over = asyncio.create_task(run.wait(*FINISHED, "paused"))
        others = [asyncio.create_task(self._nothing_comes.wait()), asyncio.create_task(self._pass_time(store, worker))]
        try:
            limit_s = self.rules.limit_s
            done, _ = await asyncio.wait([over, *others], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                self.stop(
                    f"it is not at its end after {limit_s:g} s; if that is too short, --timeout (timeout=) gives it longer"
                )
        finally:
            for task in (over, *others):
                task.cancel()
            ended = await asyncio.gather(over, *others, return_exceptions=True)
        if isinstance(ended[2], Exception):
            raise ended[2]
        now = await store.run(row.id)
        if now is not None and now.status == "paused":
            self.stop(now.reason or "it was paused")

    # Arrivals from outside

    def _announce(self) -> None:
        """Have messages and requests to stop come when they came."""
        for run, recorded in list(self.record.runs.items()):
            for event in recorded.events:
                if event.kind == "message.received":
                    self.clock.call_at(event.at, functools.partial(self._send, self._message, run, event))
                elif event.kind == "run.cancelling" and run == self.record.root.id:
                    self.clock.call_at(event.at, functools.partial(self._send, self._cancel, run, event))

    def _send(self, send: Callable[..., Any], *what: Any) -> None:
        task = asyncio.get_running_loop().create_task(send(*what))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _message(self, run: str, event: Event) -> None:
        data = {name: value for name, value in event.data.items() if name not in ("topic", "position")}
        await self._signal(run, f"recorded:{event.seq}", event, event.data["topic"], data)

    async def _signal(self, run: str, signal: str, event: Event, topic: str, data: dict[str, Any]) -> None:
        text = await self.record.text(event)
        stored, blobs = (None, {}) if text is None else spilled(text)
        with contextlib.suppress(UnknownRun, RunFinished):
            await self._store.send(run, signal, event.kind, topic, stored, data, blobs)

    async def _cancel(self, run: str, event: Event) -> None:
        grace_ms = max(0, event.data["until"] - event.at)
        with contextlib.suppress(UnknownRun, RunFinished):
            await self._store.cancel(
                run,
                by=event.data["by"],
                reason=event.data["reason"],
                grace_ms=grace_ms,
                request=f"recorded:{event.seq}",
            )

    def recorded(self, event: Event) -> None:
        """An event is durable: a question that was asked then has the answer it had then, when it had it."""
        if event.run == self.record.root.id:
            self._events.append(event)
        if event.kind != "approval.asked":
            return
        asked = self._asked(event)
        if asked is None:
            self.stop(self._new_question(event))
            return
        decided = next((each for each in asked.events if each.kind == "approval.decided"), None)
        if decided is not None:
            data = {name: value for name, value in decided.data.items() if name != "approval"}
            approval = event.data["approval"]
            send = functools.partial(
                self._send, self._signal, event.run, f"decided:{approval}", decided, approval, data
            )
            self.clock.call_at(max(decided.at, self.clock.now()), send)

    def _asked(self, event: Event) -> Call | None:
        """Find the question in the record: in its place, with the same value unless that does not matter."""
        recorded = self.record.runs.get(event.run)
        for call in recorded.calls if recorded is not None else ():
            same = self.rules.decide or call.digest == event.data.get("digest")
            if call.key == event.key and same and call.fact("kind") == event.data["kind"]:
                return call
        return None

    def _new_question(self, event: Event) -> str:
        """Tell how a question differs from the one that was asked in its place, and what helps."""
        asks, kind = cut(event.data["question"], 200), event.data["kind"]
        recorded = self.record.runs.get(event.run)
        then = next((each for each in recorded.calls if each.key == event.key), None) if recorded is not None else None
        if then is None or then.fact("kind") != kind:
            return f"{event.key} asks {asks!r}, which nobody was asked there, so there is no answer to it"
        was = cut(str(then.fact("question", "")), 200)
        told = f"asks {asks!r}, and not {was!r} as then" if was != asks else f"asks {asks!r} and shows another value"
        return f"{event.key} {told}; --decide (decide=True) takes the answer that was given then"

    def left(self, run: str, status: str, why: str) -> None:
        """A run left memory: nothing to do."""

    async def _fill_conversations(self, store: Store) -> None:
        """Have the conversations as they were when the run entered them."""
        known: set[str] = set()
        for recorded in list(self.record.runs.values()):
            for event in recorded.events:
                if event.kind == "conversation.entered" and event.data["conversation"] not in known:
                    name, length = event.data["conversation"], event.data["length"]
                    known.add(name)
                    rows = await self.record.store.said(name, 0, length)
                    texts = [(await unspilled(self.record.store, row.value) or "", row.run, row.at) for row in rows]
                    await store.fill_conversation(name, texts)

    # Answers

    async def answered(self, attempts: Mapping[str, Carried], work: Work) -> Ended:
        """Answer a call of a step instead of its body."""
        assert work.context.run is not None
        attempt = attempts[work.context.run.id]
        call, recorded = attempt.asked(work.context.key), self.record.of_run(attempt.run)
        self.rules.called.add(work.spec.name)
        if work.spec.probe is not None and work.fn is work.spec.probe:
            self.stop(f"{call.key} would look whether it has happened, and no probe runs in a rehearsal")
            return await self._never(attempt)
        if work.fn is not work.spec.fn:
            return await self._performed(attempt, work, "scripted")
        changed = recorded is None or work.spec.name in self.rules.live or self._is_changed(work)
        found = None if recorded is None or changed else await self._taken(recorded, call, work)
        if found is not None:
            return await self._from_record(attempt, work, found)
        function = self.rules.answers.get(work.spec.name)
        if function is not None:
            threaded = not inspect.iscoroutinefunction(function)
            return await self._performed(attempt, dataclasses.replace(work, fn=function, threaded=threaded), "scripted")
        if self._asks_model(work):
            if self.rules.may_ask:
                return await self._performed(attempt, work, "asked")
            why = "the budget is used up" if self.rules.budget is not None else "no budget was given"
            self.stop(
                f"{call.key} would ask a model with a new input, and {why}; --budget tokens=20000 (budget=) says what "
                "requests may spend"
            )
        else:
            asks = "" if work.spec.name not in self.record.models else (
                f". It has asked a model, but may do more than that: --live {call.name} (live=) runs its body, and so does a "
                "budget if the step says effects=False"
            )  # fmt: skip
            self.stop(
                f"{call.key} is called with an input that the record does not have: {call.name}({call.preview}); --answer "
                f"{call.name}=JSON (answers=) says what it returns{asks}"
            )
        return await self._never(attempt)

    def _asks_model(self, work: Work) -> bool:
        """Is this the step of a request to a model? It is if it is to be asked, or has paid for one and says that it only reads."""
        name = work.spec.name
        only_asks = name in self.record.models and not work.spec.effects
        return name in self.rules.live or only_asks or _is_framework(work)

    def _is_changed(self, work: Work) -> bool:
        """Is this a request of a framework for an agent of which something is changed?"""
        agent = work.spec.name.rpartition(".")[0]
        return _is_framework(work) and any(override.agent == agent for override in self.rules.overrides)

    async def _taken(self, recorded: _Recorded, call: Asked, work: Work) -> Call | None:
        """Find the recorded call that this one is, and let it answer no other."""
        for nth, found in recorded.alike(call):
            if (not _is_framework(work) or await self._is_request(recorded, found, work)) and nth not in recorded.used:
                recorded.used.add(nth)
                return found
        return None

    async def _is_request(self, recorded: _Recorded, found: Call, work: Work) -> bool:
        """Was the model asked this very thing? The step that asks is known by its last words only; the whole is kept beside it."""
        if found.inputs is None or not callable(work.spec.inputs):
            return not self._parted
        then = await self.record.inputs.text(recorded.row.id, found)
        made = work.spec.inputs(*work.args, **work.kwargs)
        now = made.text() if isinstance(made, Growing) else UNTYPED.text(made, "inputs")
        if then is None or json.loads(then) != json.loads(now):
            return False
        version = getattr(work.spec.inputs, "version", None)
        if version is None or found.outcome is None or found.outcome.kind != "step.completed":
            return True
        answer = json.loads(await self.record.text(found.outcome) or "{}")
        return bool(answer.get("version") == version(*work.args, **work.kwargs))

    async def _performed(self, attempt: Carried, work: Work, origin: Origin) -> Ended:
        self._parted = True
        self.origins[origin] += 1
        known = len(work.context.spendings)
        ended = await perform(work)
        new = sum((spent for spent, _ in work.context.spendings[known:]), NOTHING)
        if origin == "asked":
            self.spent += new
            self.rules.spent += new
        return ended

    async def _from_record(self, attempt: Carried, work: Work, found: Call) -> Ended:
        outcome = found.outcome
        if outcome is None and any(event.kind == "approval.asked" for event in found.events):
            self.stop(
                f"{found.key} is in doubt in the record too: a person is asked what became of it. Decide that first"
            )
        if outcome is None or outcome.kind == "step.cancelled":
            return await self._never(attempt)  # it had no outcome then; its waiters stop waiting, or do not
        self.origins["recorded"] += 1
        if work.spec.transaction is None:  # one that waits would keep all others from being recorded
            await self._until(attempt, outcome)
        for event in found.events:
            if spent := event.data.get("spent"):
                models = spent.get("models") or [None]
                work.context.spendings.append((dataclasses.replace(Spent.of(spent), steps=0), models[0]))
        if outcome.kind == "step.failed":
            return Ended(error=_failure(outcome.data["error"], work), final=True)
        text = await self.record.text(outcome)
        try:
            return Ended(work.spec.signature.returns.load(text or "null", migrate=work.spec.migrate))
        except NotStorable as error:
            self.stop(f"the recorded result of {found.key} does not fit its type: {error}")
            return await self._never(attempt)

    async def _until(self, attempt: Carried, outcome: Event) -> None:
        """Wait until it is the time at which this was recorded, and all that came before is through."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._order, (outcome.at, outcome.seq, next(self._count), turn))
        with attempt.dozing():
            await turn

    async def _never(self, attempt: Carried) -> Ended:
        with attempt.dozing():
            await asyncio.get_running_loop().create_future()
        raise AssertionError("unreachable")

    def stop(self, why: str) -> None:
        """End the rehearsal here; the first reason counts."""
        self.stopped = self.stopped or why
        self._nothing_comes.set()

    def so_far(self, given: str) -> Told:
        """Tell the run as far as it came, without asking the store of the rehearsal."""
        row = dataclasses.replace(self.record.root, status="running", result=None, error=None, finished_at=None)
        return Told(row, given, "", "", Calls(self._events).made, self.clock.now())

    # Time

    def _is_idle(self, worker: Worker) -> bool:
        """Does nothing move: no body, no write on its way, nothing that is being sent?"""
        if self._sending or worker.loading or not worker.scheduler.asleep:
            return False
        return all(attempt.is_idle for attempt in worker.attempts.values())

    async def _pass_time(self, store: Store, worker: Worker) -> None:
        """Whenever everything waits: let the next recorded outcome come, or the next timer fire, until nothing more will."""
        quiet = 0
        while True:
            await asyncio.sleep(0 if self._order else _LOOK_EVERY_S)
            quiet = quiet + 1 if self._is_idle(worker) else 0
            if quiet < _QUIET_LOOKS:
                continue
            quiet = 0
            parked, inside = await store.next_due(worker.serves), self.clock.next_timer()
            due = min((each for each in (parked, inside) if each is not None), default=None)
            if not self._is_idle(worker):
                continue
            if self._order and (due is None or self._order[0][0] <= due):
                at, _, _, turn = heapq.heappop(self._order)
                self.clock.jump_to(at)
                if not turn.done():
                    turn.set_result(None)
            elif due is None or self._is_beyond(due):
                now = await store.run(self.record.root.id)
                if self.record.is_over and now is not None and now.status not in (*FINISHED, "paused"):
                    self.stop("it waits for something that the record does not have")
                return
            else:
                self.clock.jump_to(self._as_late(due))
                worker.scheduler.wake()

    def _is_beyond(self, due: int) -> bool:
        """Is this after the end of the record of a run that has not ended? Then it has not come."""
        return not (self.record.is_over or self._parted) and due > self.record.ends_at

    def _as_late(self, due: int) -> int:
        """A timer fires a little late; it fires when it did then, so that the agent sees the same time."""
        times = self.record.times
        later = times[bisect.bisect_left(times, due) :][:1]
        return later[0] if later and later[0] - due < _LATE_MS else due


def _is_framework(work: Work) -> bool:
    """Is this a request to a model that a framework makes? What it sends is given to the body, and not to the step."""
    return work.spec.name.endswith(".model") and any(each.local for each in work.spec.signature.parameters)


def _failure(record: dict[str, Any], work: Work) -> Exception:
    """An exception that is recorded as this one was: one of a class that nobody declared has that class's name again."""
    error = failures.rebuild(record, work.spec.raises)
    if record.get("kind") in ("builtin", "declared") or type(error) is not StepFailed:
        return error
    module, _, name = str(record.get("type", "Exception")).rpartition(".")
    kind = type(name, (Exception,), {"__module__": module or "builtins", "__qualname__": name})
    made: Exception = kind(str(record.get("message", "")))
    return made
