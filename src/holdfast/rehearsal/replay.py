"""Replays: the code of an agent against the journal of one run. No body runs, nothing is written, nobody is told.

Look here for what `holdfast replay`, `holdfast check` and `holdfast.testing.replay` have in common.

The engine itself replays (`engine/rehearsal.py`). It stands on another ground here: `_Record` is a store that reads and never
writes, `_Host` is a host that performs nothing. What the code did up to the edge is the answer. All of it happens in a quarantine,
so that code which never awaits keeps nobody else waiting.

A replay that is to stop earlier gets a journal that ends earlier. The edge is then at that point, and the frames of the agent's
code are those of the moment at which the run had seen that much.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final, Literal, NamedTuple, NoReturn, Protocol, TypeVar

from holdfast.engine.host import Ended, Work
from holdfast.engine.rehearsal import Stacks, Tried, tried
from holdfast.engine.slots import Freed
from holdfast.errors import BadArguments, HoldfastError, NotStorable, StoreUnavailable
from holdfast.rehearsal import LIMIT_S
from holdfast.rehearsal.debugger import Debugger
from holdfast.rehearsal.frames import Frame, Room, frames
from holdfast.rehearsal.quarantine import AtHome, Kept, Quarantine
from holdfast.runtime import AgentSpec, StepSpec
from holdfast.store.appends import Append, Told
from holdfast.store.blobs import unspilled
from holdfast.store.checkpoints import state_text
from holdfast.store.conversations import MessageRow
from holdfast.store.forks import Done
from holdfast.store.streams import Piece
from holdfast.values import failures
from holdfast.values.codec import DEFAULT_LIMIT_BYTES, preview
from holdfast.values.failures import is_users
from holdfast.values.text import cut, is_whole, near, short, type_name
from holdfast.words.clock import SystemClock, Timer
from holdfast.words.harmless import silent
from holdfast.words.model import FINISHED, OUTCOMES, Claimed, Event, RunRow, Signal
from holdfast.words.notices import Notice, notices
from holdfast.words.overrides import Override
from holdfast.worker.agents import Served
from holdfast.worker.drain import end_strays

T = TypeVar("T")
Verdict = Literal["fits", "diverges", "unfit", "differs", "unknown", "unsure"]
PATIENCE_S: Final = 2.0  # for what the code waits for and no journal has
_AGAIN: Final = 0.1  # of that, but a second, for code of an agent that has kept its loop before
_FIELDS: Final = tuple(each.name for each in dataclasses.fields(RunRow))
_ADVICE: Final = (
    "Guard the change with holdfast.patched('name'), give the agent a version=, or let the runs end with the old code"
)
_UNFIT_ADVICE: Final = (
    "Bring the old type back, give new fields a default, or say with migrate= what became of old ones"
)


_MISFIT: Final = "NondeterminismError: "
_CLOSE_S: Final = 3.0
_MOST_CHILDREN: Final = 100  # that are looked through for a call


@dataclass(frozen=True, slots=True)
class Replay:
    """The code of an agent, seen against the record of one run.

    Attributes:
        run: The run.
        agent: The name of its agent.
        status: The state of the run.
        verdict: "fits"; "diverges": the code does not make the calls that are recorded; "unfit": a recorded value does not fit
            its type; "differs": the code makes the same calls and ends otherwise, or ends where the run waits; "unknown": there
            is no code for it; "unsure": the code waits for something that no record has, such as raw I/O, or keeps the event
            loop.
        seen: How many outcomes the code has seen.
        of: How many there are.
        key: The call at which it parts.
        line: The line of the user's code that has come to it, as file:line.
        recorded: What the record has there.
        present: What the code does there now.
        advice: What to do about it.
        reason: All of that in one text; empty if it fits.
        result: The value that the code returned, if it came to its end.
        error: The type and text of the exception that it raised in the end.
        notices: Changes that stop no run: another prompt, another schema of a tool.
        frames: Where the code is, and what its variables hold.

    Example:
        ```python
        replayed = await hf.replay("r-1", [report])
        assert replayed.fits, replayed.reason
        ```
    """

    run: str
    agent: str
    status: str
    verdict: Verdict = "fits"
    seen: int = 0
    of: int = 0
    key: str = ""
    line: str = ""
    recorded: str = ""
    present: str = ""
    advice: str = ""
    reason: str = ""
    result: Any = None
    error: str | None = None
    notices: tuple[Notice, ...] = ()
    frames: tuple[Frame, ...] = field(default=(), repr=False)

    @property
    def fits(self) -> bool:
        """Does the code do what was recorded?"""
        return self.verdict == "fits"

    @property
    def stops(self) -> bool:
        """Would the run not go on with the code, or can that not be told? One that is over and ends otherwise needs nothing.

        A run that waits, and that the code would end with an error at once, does not go on.
        """
        if self.verdict == "unknown":
            return self.status not in FINISHED
        if self.verdict == "differs":
            return self.status not in FINISHED and self.error is not None
        return self.verdict in ("diverges", "unfit", "unsure")


class Folded(NamedTuple):
    """The state that events of a reducer come to, folded again."""

    events: int  # that were folded, from the beginning of the run on
    text: str  # of the state
    replay: Replay


class Source(Protocol):
    """A place to read runs from: a store, or a bundle."""

    async def run(self, run: str) -> RunRow | None: ...
    async def journal(self, run: str, from_seq: int = 0) -> list[Event]: ...
    async def events_at(self, run: str, seqs: Iterable[int]) -> list[Event]: ...
    async def blob(self, digest: str) -> bytes: ...
    async def streams(self, run: str) -> list[Piece]: ...
    async def pieces(self, run: str, stream: str, after: int) -> Sequence[Piece]: ...
    async def said(self, conversation: str, first: int, end: int) -> list[MessageRow]: ...


class _Record:
    """A store that an attempt can read, and that takes no write: it has nothing to write to."""

    def __init__(self, source: Source) -> None:
        self.run, self.journal, self.blob, self.events_at = source.run, source.journal, source.blob, source.events_at
        self.streams, self.pieces, self.said = source.streams, source.pieces, source.said

    async def inbox(self, run: str, after: int) -> list[Signal]:
        return []  # what is not recorded has not happened here

    async def former(self, run: str) -> list[Done]:
        return []  # what was done behind the point where a fork began matters to bodies, and none runs here

    def post(self, append: Append, told: Told, *, alone: bool = False) -> None:
        """Take a write and forget it. The only one there is says that the run is to be paused, because it does not fit."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"a replay asked its store for {name!r}, and nothing is done in a replay")


class _Patience(SystemClock):
    """The computer's clock, except for graces: here nothing waits for raw I/O for minutes."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s

    def after(self, grace_s: float, callback: Callable[[], object]) -> Timer:
        return super().after(min(grace_s, self._patience_s), callback)


class _Host:
    """A host for replays: it has the code of agents, and performs nothing."""

    value_limit_bytes, recorded, inputs = DEFAULT_LIMIT_BYTES, None, None

    def __init__(self, source: Source, served: Served, patience_s: float) -> None:
        self.source = source
        self.store: Any = _Record(source)
        self.clock, self.slots = _Patience(patience_s), Freed()
        self._served = served
        self._strays: set[asyncio.Task[Any]] = set()

    ahead_ms = 0

    @property
    def resources(self) -> Any:
        raise AssertionError("no resource is opened in a replay")

    @property
    def threads(self) -> Executor:
        raise AssertionError("no thread is started in a replay")

    def park_grace_s(self, run: str) -> None:
        return None

    def serve(self, spec: AgentSpec) -> None:
        self._served.add(spec)

    def spec_of(self, agent: str, version: str | None = None) -> AgentSpec | None:
        return self._served.spec_of(agent, version)

    async def perform(self, work: Work) -> Ended:
        raise AssertionError(f"the body of {work.spec.name!r} was to run in a replay")

    def new_task(self, make: Callable[[], T]) -> T:
        return make()

    def patched(self, patch: str) -> bool | None:
        return None

    def replacement(self, spec: StepSpec) -> Callable[..., Any] | None:
        return None

    def overrides(self, root: str) -> Iterable[Override]:
        return ()

    def body_runs(self, spec: StepSpec, key: str) -> None:
        raise AssertionError(f"the body of {spec.name!r} was to run in a replay")

    def body_ended(self, how: str, seconds: float) -> None: ...
    def spent(self, agent: str, spendings: Sequence[Any]) -> None: ...
    def trusted(self, lease_until: float) -> bool:
        return False

    async def trust(self) -> None:
        await asyncio.Event().wait()

    def keep(self, stray: asyncio.Task[Any]) -> None:
        self._strays.add(stray)
        stray.add_done_callback(self._strays.discard)

    async def close(self) -> None:
        """End what agents' code has left behind, also what swallows that."""
        await end_strays(self._strays)


class Ground:
    """Replays of many runs with the same code, one after the other."""

    def __init__(
        self,
        source: Source,
        specs: Iterable[AgentSpec],
        *,
        limit_s: float | None = None,
        patience_s: float = PATIENCE_S,
        debugger: Debugger | None = None,
    ) -> None:
        self.source, self._served = source, Served(specs)
        self._limit_s, self._patience_s = limit_s or LIMIT_S, patience_s
        self._apart: tuple[Quarantine, _Host] | None = None
        self._kept: set[str] = set()  # agents whose code has kept its loop
        self._debugger = debugger

    async def replay(
        self, row: RunRow, *, to: int | None = None, at: str | None = None, look: Room | None = None
    ) -> Replay:
        """Replay a run: all of it, up to an event, or up to the call of a key; `look` shows what variables hold."""
        spec = self._served.spec_of(row.agent, row.version)
        if spec is None:
            version = "" if row.version is None else f", version {row.version!r}"
            reason = f"there is no code for agent {row.agent!r}{version} among what was given"
            return Replay(row.id, row.agent, row.status, "unknown", reason=reason)
        whole = await self.source.journal(row.id, 0 if to is not None or at is not None else row.checkpoint_seq or 0)
        if at is not None and _first_of(whole, at) is None:
            await self._point_at_child(row.id, whole, at)
        events, debugger = _cut(row.id, whole, to, at), self._debugger
        replayed = await self._replayed(row, spec, events, len(whole), look)
        if debugger is None:
            return replayed if to is not None or at is not None else await self._refolded(row, spec, replayed)
        code = _code(spec)
        if to is None and at is None and replayed.fits:
            debugger.aim_at(code)
        else:
            first = None if at is None else _first_of(whole, at)
            debugger.aim(replayed.frames, "" if first is None else (first.key or "").rpartition("/")[0], code)
        debugger.opens = True
        return await self._replayed(row, spec, whole, len(whole), look)

    async def fold(self, row: RunRow, *, since: int = 0, until: int | None = None) -> Folded:
        """Fold a reducer's events again: from the beginning or a checkpoint on, up to an event."""
        spec = self._served.spec_of(row.agent, row.version)
        assert spec is not None
        whole = await self.source.journal(row.id, since)
        events = [event for event in whole if until is None or event.seq <= until]
        return await self._folded(row, spec, events, len(whole))

    async def _folded(
        self, row: RunRow, spec: AgentSpec, events: list[Event], of: int, to: int | None = None
    ) -> Folded:
        """Replay a reducer, and keep the last state; or the one that so many events came to."""
        folding, kept = spec.folding, list[tuple[int, Any]]()
        assert folding is not None

        def watch(folded: int, state: Any) -> None:
            if to is None or folded <= to:
                kept[:] = [(folded, state)]

        replayed = await self._replayed(row, dataclasses.replace(spec, fn=folding.watched(watch)), events, of, None)
        folded, state = kept[0] if kept else (0, None)
        return Folded(folded, folding.state.text(state, "state") if kept else "null", replayed)

    async def _refolded(self, row: RunRow, spec: AgentSpec, replayed: Replay) -> Replay:
        """Fold the events before the last checkpoint of a reducer too, and compare with the states that were stored.

        Each era is folded from the state with which it began. So a difference is told where the function makes it, and once. None
        of them stops the run, which goes on from its last state.
        """
        if spec.folding is None or row.checkpoint_seq is None or not replayed.fits:
            return replayed
        loop = asyncio.get_running_loop()
        began, at, events = loop.time(), 0, await self.source.journal(row.id)
        for place, event in enumerate(events):
            if event.kind != "checkpoint" or "reducer" not in event.data.get("choices", {}):
                continue
            count = int(event.data["choices"]["reducer"]["folded"])
            era = [dataclasses.replace(each) for each in events[at:place]]
            recorded, at = await state_text(self.source, row.id, event), place
            came = await self._folded(row, spec, era, len(era) + 1, count)
            if came.replay.fits and came.events == count and _same(spec.folding.state, recorded, came.text):
                if loop.time() > began + self._limit_s:
                    break  # of a long history as much as there is time for; the newest was replayed first
                continue
            return self._differs(row, spec, replayed, event, count, recorded, came)
        return replayed

    def _differs(
        self, row: RunRow, spec: AgentSpec, replayed: Replay, event: Event, count: int, recorded: str, came: Folded
    ) -> Replay:
        was, where = f"the state {preview(recorded)}", f"after {count} of its events (event {event.seq})"
        present = f"the function comes to {preview(came.text)}"
        if not came.replay.fits or came.events != count:
            was, where = came.replay.recorded or "that it went on", f"before its event {count} (event {event.seq})"
            raised = f"the function raises {came.replay.error}" if came.replay.error else ""
            present = came.replay.present or raised or came.replay.reason or f"it stops behind event {came.events}"
        reason = f"run {row.id!r}: {where} the history has {was}, and now {present}"
        advice = "If that is meant, nothing is to be done: the run goes on from its last state, as it was stored"
        return dataclasses.replace(
            replayed, verdict="differs", key=event.key or "", line=came.replay.line if came.replay.key else _first_line(spec),
            recorded=f"{was} {where}", present=present, advice=advice, reason=reason,
        )  # fmt: skip

    async def _replayed(self, row: RunRow, spec: AgentSpec, events: list[Event], of: int, look: Room | None) -> Replay:
        """Replay these events, in a quarantine."""
        if self._apart is None or self._apart[0].lost:
            self._apart = Quarantine(), _Host(AtHome(self.source), self._served, self._patience_s)
        quarantine, host = self._apart
        debugger = self._debugger
        limit_s = None if debugger is not None and debugger.opens else self._limit_s
        if limit_s is not None and row.agent in self._kept:
            limit_s = min(limit_s, max(1.0, limit_s * _AGAIN))
        replaying = _Replaying(host, row, spec, events, len(events) < of, look, debugger)
        try:
            return await quarantine.run(lambda: replaying.result(limit_s), limit_s)
        except Kept as kept:
            if debugger is not None and debugger.left:
                return Replay(row.id, row.agent, row.status, "unsure", reason=f"run {row.id!r}: the debugger was left")
            self._kept.add(row.agent)
            line = kept.line or _first_line(spec)
            return Replay(row.id, row.agent, row.status, "unsure", line=line, reason=f"run {row.id!r}: {kept}")

    async def _point_at_child(self, run: str, events: list[Event], at: str) -> None:
        """Say so if a child of the run made the call: it is a run of its own."""
        children = [str(event.data["child"]) for event in events if event.kind in ("child.started", "child.spawned")]
        for child in list(dict.fromkeys(children))[:_MOST_CHILDREN]:
            first = _first_of(await self.source.journal(child), at)
            if first is not None:
                raise BadArguments(
                    f"run {run!r} has no call {at!r}, but its child {child!r} has: replay {child!r} up to {first.key!r}, with the "
                    "code of its agent"
                )

    async def close(self) -> None:
        """End what agents' code has left behind, also what swallows that."""
        if self._apart is None:
            return
        quarantine, host = self._apart
        with contextlib.suppress(Kept):
            if not quarantine.lost:
                await quarantine.run(host.close, _CLOSE_S)
        await quarantine.close()


@contextlib.contextmanager
def _unheard() -> Iterator[list[Notice]]:
    """Log nothing of what is only tried; collect what is noticed."""
    noticed: list[Notice] = []
    quiet, hears = silent.set(True), notices.set(noticed)
    try:
        yield noticed
    finally:
        silent.reset(quiet)
        notices.reset(hears)


@dataclass(slots=True)
class _Replaying:
    """One replay, from loading the run to what is said of it."""

    host: _Host
    row: RunRow
    spec: AgentSpec
    events: list[Event]
    is_cut: bool  # it stops before the record does
    looks: Room | None  # at variables
    debugger: Debugger | None
    frames: list[Frame] = field(default_factory=list)

    async def result(self, limit_s: float | None) -> Replay:
        """Replay it. What keeps one run from being set up must not keep others from being tried."""
        row = self.row
        with _unheard() as noticed:
            try:
                return dataclasses.replace(await self._made(limit_s), notices=tuple(dict.fromkeys(noticed)))
            except StoreUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is
                reason = f"run {row.id!r} cannot be set up: {type_name(type(error))}: {cut(str(error), 300)}"
                return Replay(row.id, row.agent, row.status, "unsure", reason=reason)

    async def _made(self, limit_s: float | None) -> Replay:
        row = {name: getattr(self.row, name) for name in _FIELDS}
        # No signal that waits is read: to this run it has not come yet.
        row |= {"inbox_count": 0, "inbox_seen": 0, "lease_epoch": self.row.lease_epoch + 1}
        claimed = Claimed(**row, journal=self.events)
        begins = (lambda: None) if self.debugger is None else self.debugger.begin
        came = await tried(self.host, claimed, self.spec, limit_s=limit_s, look=self._look, begins=begins)
        return await self._verdict(came)

    def _look(self, stacks: Stacks) -> None:
        if self.debugger is not None:
            self.debugger.end()
        self.frames = frames(stacks, self.looks)

    async def _verdict(self, came: Tried) -> Replay:
        row = self.row
        line = (
            next((frame.place for frame in reversed(self.frames)), "")
            or _raised_at(came.error)
            or _first_line(self.spec)
        )
        shown = tuple(self.frames) if self.looks else ()
        made = Replay(row.id, row.agent, row.status, seen=came.seen, of=came.of, line=line, frames=shown)
        if came.how == "unfit":
            said = came.reason.removeprefix(_MISFIT).removeprefix(f"run {row.id!r}: ")
            said = said.partition(". Nothing was done")[0].partition(". Bring the old")[0]
            return dataclasses.replace(
                made, verdict="unfit", key=came.key, recorded=came.recorded, present=said, advice=_UNFIT_ADVICE,
                reason=came.reason,
            )  # fmt: skip
        if came.found:
            present = (
                came.found if came.error is None else f"{came.found}: it raised {_told(failures.record(came.error))}"
            )
            return dataclasses.replace(
                made, verdict="diverges", key=came.key, recorded=came.recorded, present=present, advice=_ADVICE,
                reason=came.reason.removeprefix(_MISFIT),
            )  # fmt: skip
        if came.how == "paused" and came.reason.startswith(_MISFIT):
            present = (
                came.reason.removeprefix(_MISFIT).removeprefix(f"run {row.id!r}: ").partition(". Nothing was done")[0]
            )
            return dataclasses.replace(
                made, verdict="diverges", present=present, advice=_ADVICE, reason=came.reason.removeprefix(_MISFIT)
            )
        if came.how != "edge":
            reason = came.reason or (
                f"run {row.id!r}: the code waits at {line} for something that no record has, such as raw I/O or a thread; "
                "put it into a step"
            )
            return dataclasses.replace(made, verdict="unsure", reason=reason)
        if came.ended:
            return await self._compared(came, made)
        if row.status in ("completed", "failed") and not self.is_cut:
            present = f"the code goes on{came.asks}" if came.asks else "the code waits"
            reason = f"run {row.id!r} had {row.status} here, but {present}"
            return dataclasses.replace(
                made, verdict="diverges", recorded=f"run.{row.status}", present=present, advice=_ADVICE, reason=reason
            )
        return made

    async def _compared(self, came: Tried, made: Replay) -> Replay:
        """The code came to its end: compare that with the recorded end, if there is one."""
        row, returns = self.row, self.spec.signature.returns
        error, text = came.error, ""
        if error is None:
            try:
                text, _ = returns.store(came.value, "result")
            except NotStorable as problem:
                error = problem
        now = "" if error is None else _told(failures.record(error))
        made = dataclasses.replace(made, result=came.value if error is None else None, error=now or None)
        if row.status == "waiting" and not self.is_cut:
            present = f"the code fails with {now}" if now else f"the code returns {preview(text)}"
            reason = f"run {row.id!r} waits here, and now {present}"
            return dataclasses.replace(
                made, verdict="differs", recorded="it waits", present=present, advice=_ADVICE, reason=reason
            )
        made = dataclasses.replace(made, line="")
        if self.is_cut or row.status not in ("completed", "failed"):
            return made
        recorded = await unspilled(self.host.source, row.result) or "null"
        then = _told(json.loads(row.error)) if row.status == "failed" and row.error else ""
        if then == now and (now or _same(returns, recorded, text)):
            return made
        was = f"it failed with {then}" if then else f"it returned {preview(recorded)}"
        present = f"the code fails with {now}" if now else f"the code returns {preview(text)}"
        advice = "If that is meant, nothing is to be done: the run is over"
        reason = f"run {row.id!r}: {was}, and now {present}, after the same calls"
        return dataclasses.replace(
            made,
            verdict="differs",
            line=_first_line(self.spec),
            recorded=was,
            present=present,
            advice=advice,
            reason=reason,
        )


def _told(error: dict[str, Any]) -> str:
    return cut(f"{error.get('type')}: {error.get('message')}", 2_000)


def _same(returns: Any, recorded: str, text: str) -> bool:
    """Is it the recorded value? Also if it is written otherwise, because the type has other fields by now."""
    if recorded == text:
        return True
    try:
        again, _ = returns.store(returns.load(recorded), "result")
    except HoldfastError:
        return False
    return bool(again == text)


def _code(spec: AgentSpec) -> CodeType | None:
    """The code that the user wrote: of a reducer, its function."""
    return getattr(spec.fn if spec.folding is None else spec.folding.fn, "__code__", None)


def _first_line(spec: AgentSpec) -> str:
    code = _code(spec)
    return "" if code is None else Frame("", "", code.co_filename, code.co_firstlineno).place


def _raised_at(error: BaseException | None) -> str:
    """The line of the user's code that raised an error, or led to it; empty if none did."""
    found, trace = "", None if error is None else error.__traceback__
    while trace is not None:
        if is_users(trace.tb_frame.f_code.co_filename):
            found = Frame("", "", trace.tb_frame.f_code.co_filename, trace.tb_lineno).place
        trace = trace.tb_next
    return found or (_raised_at(error.__cause__) if error is not None else "")


# Where a replay stops


def _cut(run: str, events: list[Event], to: int | None, at: str | None) -> list[Event]:
    """Return the events that a replay sees: all, the ones up to a number, or the ones before a call was made."""
    if to is not None and at is not None:
        raise BadArguments("a replay stops at an event or at a call: give to= or at=, not both")
    if to is not None:
        if not is_whole(to, 0) or (events and to > events[-1].seq) or not events:
            last = f"from 0 to {events[-1].seq}" if events else "none"
            raise BadArguments(f"run {run!r} has no event {short(to)}; its events have the numbers {last}")
        return [event for event in events if event.seq <= to]
    return events if at is None else _before(run, events, at)


def _before(run: str, events: list[Event], at: str) -> list[Event]:
    """The events that the run had seen when it made a call, which its first event tells."""
    first = _first_of(events, at)
    if first is None:
        keys = list(dict.fromkeys(event.key for event in events if event.key))
        meant = near(at, keys) or near(at, [key.rpartition("/")[2] for key in keys])
        listed = (
            f"did you mean {meant!r}?"
            if meant
            else f"its calls begin with {', '.join(keys[:5])}"
            if keys
            else "it made none"
        )
        raise BadArguments(f"run {run!r} has no call {at!r}; {listed}")
    asked = first.data.get("asked")
    if asked is None:
        return [event for event in events if event.seq < first.seq]
    seen = 0
    for event in events:
        if event.kind == "checkpoint" and event.seq < first.seq:
            seen = event.data["delivered"]
        elif event.kind in OUTCOMES:
            if seen == asked:
                return [each for each in events if each.seq < event.seq]
            seen += 1
    return events


def _first_of(events: list[Event], at: str) -> Event | None:
    """The first event of a call, by its key or its name."""
    first = next((event for event in events if event.key == at), None)
    return first or next((event for event in events if event.key and _is_named(event, at)), None)


def _is_named(event: Event, name: str) -> bool:
    last = (event.key or "").rpartition("/")[2]
    return name in (event.data.get("name"), last, last.rpartition("#")[0])


def is_over(row: RunRow) -> bool:
    """Has the run ended?"""
    return row.status in FINISHED
