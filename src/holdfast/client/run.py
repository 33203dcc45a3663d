"""One run, from outside: its state, its result, its history, and what one can do to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import ModuleType
from typing import Any, BinaryIO, Final, Generic, Literal, NoReturn, TypeVar, overload

from holdfast.client import forks
from holdfast.client.approvals import Approval, Questions, stored_text
from holdfast.client.aside import aside
from holdfast.client.base import Base
from holdfast.client.bundles import Bundle, MoveReceipt
from holdfast.client.calls import OpenCall
from holdfast.client.forks import ForkInfo
from holdfast.client.history import (
    CheckpointInfo,
    Snapshot,
    State,
    StepInfo,
    checked_count,
    checkpoints,
    event_at,
    snapshot,
    state,
    step_at,
    steps,
    value_at,
)
from holdfast.client.info import RunEvent, RunInfo, bury_owners, infos_of, wants_worker
from holdfast.client.keys import Keys
from holdfast.client.outline import Outline, outline
from holdfast.client.streams import Chunk, StreamInfo, checked_offset, chunks, streams
from holdfast.declare import Agent
from holdfast.errors import (
    BadArguments,
    HoldfastError,
    NondeterminismError,
    RunActive,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunPaused,
)
from holdfast.store.blobs import spilled, unspilled
from holdfast.store.changes import News
from holdfast.store.inbox import Send
from holdfast.store.journal import Sought
from holdfast.values.codec import UNTYPED, Shape
from holdfast.values.text import cut, short
from holdfast.verbs.messages import checked_topic
from holdfast.verbs.reducers import TOPIC, checked_event
from holdfast.verbs.streams import checked_stream
from holdfast.words.announcements import event_of
from holdfast.words.budget import Budget, checked_budget
from holdfast.words.durations import Duration, milliseconds, seconds, spoken
from holdfast.words.events import error_line
from holdfast.words.forks import advised
from holdfast.words.harmless import logger
from holdfast.words.model import (
    FINISHED,
    RunRow,
    checked_kinds,
    checked_place,
    checked_statuses,
    is_served,
    where_it_went,
)
from holdfast.words.people import Actor, Author, checked_note, checked_text

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

_log = logger("holdfast")
_KEY_LENGTH: Final = 1_000  # of a message
_CALL_LENGTH: Final = 10_000  # of the key of a call
_SEARCH_LENGTH: Final = 1_000
_BEFORE: Final = 100  # events before one, unless it is said how many
UNSERVED_S: Final = 4.0  # that nobody serves a run is no news while a worker may be starting
_WHY_S: Final = 2.0  # to find out why a wait was in vain
_LOOK_EVERY_S: Final = 0.02
_WAITS: Final = ("person", "message", "child", "conversation", "retry", "timer", "rate", "slot", "worker", "group")


@dataclass(frozen=True, slots=True)
class Receipt:
    """The confirmation that a message is in the inbox of its run.

    Attributes:
        run: The run.
        position: Its place in the inbox; 0 on a Temporal cluster, which does not tell it.

    Example:
        ```python
        receipt = await run.send("orders", "look at the gate", key="order-7")
        ```
    """

    run: Run[Any]
    position: int

    async def seen_at(self) -> int | None:
        """Find the number of the event with which the message came into the run's history; None while it has not.

        Example:
            ```python
            receipt = await run.send("orders", "look at the gate")
            seen = await receipt.seen_at()
            ```
        """
        row, store = await self.run._row(), self.run._client.store
        fork = await store.origin(self.run.id)  # what it shares came to the inbox of another run
        after = (0 if fork is None else fork[1]) if row.inbox_seen >= self.position else row.next_seq
        while page := await store.journal(self.run.id, after, 500):
            for event in page:
                if event.kind == "message.received" and event.data.get("position") == self.position:
                    return event.seq
            after = page[-1].seq + 1
        return None


class _Lonely:
    """Says in the log, once for each wait, that nobody serves the run that is waited for."""

    __slots__ = ("_run", "_since", "_told")

    def __init__(self, run: Run[Any]) -> None:
        self._run, self._since, self._told = run, time.monotonic(), False

    async def look(self, row: RunRow) -> None:
        """Look for a worker, now and then."""
        if self._told or time.monotonic() < self._since + UNSERVED_S:
            return
        self._since = time.monotonic()
        why = await self._run._unserved(row)
        if why is not None:
            self._told = True
            _log.warning("run %r is waited for, and %s", row.id, why)


def new_pause() -> str:
    """The name of a request to pause: the same one however often it must be made, and kept by each run that it pauses."""
    return f"pause:{secrets.token_hex(8)}"


class Run(Generic[R_co]):
    """A handle to a run, made by `hf.start` and `hf.get`. It holds nothing open.

    `created` is true for the `start` that made the run, and for no other.

    Example:
        ```python
        run = hf.get("r-1")
        print((await run.info()).status)
        ```
    """

    def __init__(
        self, client: Questions, id: str, agent: Agent[..., Any] | None = None, *, created: bool = False
    ) -> None:
        self._client, self.id, self._agent, self.created = client, id, agent, created

    def __await__(self) -> NoReturn:
        raise BadArguments("a run is a handle and cannot be awaited; write `await run.result()`")

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    def _row(self) -> Coroutine[Any, Any, RunRow]:
        return self._client._run_row(self.id)

    async def _in_time(self, timeout: Duration | None, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if timeout is None:
            return await work()
        limit = asyncio.timeout(seconds(timeout))
        try:
            async with limit:
                return await work()
        except TimeoutError:
            if not limit.expired():
                raise
            why, told = None, f"run {self.id!r} did not come so far within {spoken(seconds(timeout))}"
            with contextlib.suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(_WHY_S):
                    row = await self._row()
                    why = await self._unserved(row) or _needs(row, await self.approvals())
            told += "; it goes on all the same, and can be asked again" if why is None else f": {why}"
            raise TimeoutError(told) from None

    async def _unserved(self, row: RunRow) -> str | None:
        """Say why nothing happens to it, and what to do, if no live worker has its code."""
        store = self._client.store
        if not wants_worker(row, store.clock.now()) or is_served(row, await store.agents()):
            return None
        version = "" if row.version is None else f" in version {row.version!r}"
        return (
            f"no worker that lives serves agent {row.agent!r}{version}: start one with `holdfast worker FILE.py`, or open a "
            f"client with agents=[{row.agent}]"
        )

    async def info(self) -> RunInfo:
        """Read its state now.

        Raises:
            UnknownRun: There is no such run.

        Example:
            ```python
            info = await run.info()
            ```
        """
        row = await self._row()
        if await bury_owners(self._client.store, [row]):
            row = await self._row()
        return await self._info(row)

    async def _info(self, row: RunRow) -> RunInfo:
        (info,) = await infos_of(self._client.store, [row])
        return info

    async def open_calls(self) -> list[OpenCall]:
        """List the steps whose bodies have run for longer than a second, the longest first, as its worker last said.

        Workers tell it once a second, so it is a second old at most; of more than 50 the oldest are told.

        Raises:
            UnknownRun: There is no such run.

        Example:
            ```python
            for call in await run.open_calls():
                print(call.name, call.input, call.attempt, call.began)
            ```
        """
        told = (await self._client.store.open_calls([self.id])).get(self.id)
        if told is None:
            await self._row()
        return [] if told is None else [OpenCall.of(call) for call in told.calls]

    async def arguments(self) -> dict[str, Any]:
        """Read what its agent was called with, by name, as plain data; those at their defaults too.

        Raises:
            UnknownRun: There is no such run.

        Example:
            ```python
            assert await run.arguments() == {"topic": "otters"}
            ```
        """
        row = await self._row()
        text = await unspilled(self._client.store, row.input) or "{}"
        found: dict[str, Any] = await aside(text, UNTYPED.load, text)
        return found

    async def wait(
        self, *states: str, waits_for: str | Iterable[str] | None = None, timeout: Duration | None = None
    ) -> RunInfo:
        """Wait until it is in one of these states; in any finished one if none is named.

        Args:
            states: The states to wait for.
            waits_for: What a "waiting" run must wait for, such as "message".
            timeout: How long to wait.

        Raises:
            RunFinished: It has ended and will never be in such a state.
            TimeoutError: It did not come so far in time. The text says what it needs.
            UnknownRun: There is no such run.
            BadArguments: There is no such state.

        Example:
            ```python
            info = await run.wait("waiting", waits_for="person")
            ```
        """
        wanted = set(checked_statuses(states)) or FINISHED
        what = None if waits_for is None else _checked_waits(waits_for, wanted)
        return await self._in_time(timeout, lambda: self._until(wanted, what))

    async def _until(self, wanted: AbstractSet[str], what: AbstractSet[str] | None) -> RunInfo:
        lonely = _Lonely(self)
        with self._client._listening(self.id) as heard:
            while True:
                heard.clear()
                row = await self._row()
                info = await self._info(row)
                if info.status in wanted and (what is None or info.status != "waiting" or info.waits_for in what):
                    return info
                if info.status in FINISHED:
                    meant = " or ".join(sorted(wanted)) + (
                        "" if what is None else f" for a {' or '.join(sorted(what))}"
                    )
                    raise RunFinished(f"run {self.id!r} is {info.status} and will never be {meant}{_because(row)}")
                await lonely.look(row)
                await self._client._pause_for(heard)

    async def wait_for_question(self, *, timeout: Duration | None = None) -> Approval:
        """Wait until it, or a run below it, asks a person; returns the question.

        Raises:
            RunFinished: It has ended and will not ask.
            RunPaused: It is paused.
            TimeoutError: It did not ask in time.

        Example:
            ```python
            question = await run.wait_for_question()
            ```
        """
        return await self._in_time(timeout, self._question)

    async def _question(self) -> Approval:
        lonely = _Lonely(self)
        with self._client._listening("", News.GREW) as heard:  # of any run: it may be one below that asks
            while True:
                heard.clear()
                row = await self._row()
                if asked := await self.approvals():
                    return asked[0]
                if row.status == "paused":
                    await self._outcome(row)
                if row.status in FINISHED:
                    raise RunFinished(f"run {self.id!r} is {row.status} and will never ask{_because(row)}")
                await lonely.look(row)
                await self._client._pause_for(heard)
                await asyncio.sleep(_LOOK_EVERY_S)  # in a store in which much happens

    async def result(self, *, timeout: Duration | None = None) -> R_co:
        """Wait for what the agent returned.

        Raises:
            RunFailed: The agent raised.
            RunCancelled: The run was cancelled.
            RunFinished: The run was moved to another store.
            RunPaused: The run is paused.
            NondeterminismError: The run is paused because its code no longer fits its journal.
            TimeoutError: It did not end in time. The text says what it needs.
            UnknownRun: There is no such run.

        Example:
            ```python
            await hf.approve(question, by="ana")
            assert await run.result(timeout="1m") == "published"
            ```
        """
        return await self._in_time(timeout, self._result)

    async def _result(self) -> R_co:
        lonely = _Lonely(self)
        with self._client._listening(self.id, News.STOPPED) as heard:
            while True:
                heard.clear()
                row = await self._row()
                if row.status in FINISHED or row.status == "paused":
                    result: R_co = await self._outcome(row)
                    return result
                await lonely.look(row)
                await self._client._pause_for(heard)

    async def _outcome(self, row: RunRow) -> Any:
        if row.status == "completed":
            text, shape = await unspilled(self._client.store, row.result) or "null", self._returns(row)
            # The code of a type expects the loop's thread.
            return await aside(text, shape.load, text) if shape is UNTYPED else shape.load(text)
        if row.status == "paused":
            reason = row.reason or f"run {self.id!r} is paused"
            if reason.startswith("NondeterminismError: "):
                raise NondeterminismError(reason.removeprefix("NondeterminismError: "))
            raise RunPaused(reason)
        if row.status == "cancelled":
            raise RunCancelled(f"run {self.id!r} was cancelled" + (f": {row.reason}" if row.reason else ""))
        if row.status == "moved":
            raise RunFinished(f"run {self.id!r} is not here any more: it was {row.reason}")
        error = json.loads(row.error or "{}")
        message, kind = error.get("message", ""), error.get("type", "")
        raise RunFailed(message, run=self.id, type=kind, traceback=error.get("traceback", ""))

    def _returns(self, row: RunRow) -> Shape:
        if self._agent is not None:
            if self._agent.name != row.agent:
                raise BadArguments(f"run {self.id!r} is of agent {row.agent!r}, not of {self._agent.name!r}")
            return self._agent.spec.signature.returns
        spec = self._client._spec(row.agent, row.version)
        return spec.signature.returns if spec is not None else UNTYPED

    async def events(
        self,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        kinds: str | Iterable[str] | None = None,
        key: str | None = None,
        search: str | None = None,
        dropped: bool = False,
        follow: bool = True,
    ) -> AsyncIterator[RunEvent]:
        """Iterate over its history, live until it ends.

        Args:
            after: How many events were seen already.
            before: Only events before this one, which are not followed: the last of them, if there are more than `limit`, which
                is 100 unless given.
            limit: How many at most.
            kinds: One kind or several; "approval" is all that happens to questions.
            key: Only events of this call.
            search: Only events with this text in their kind, key or data, or at the beginning of their value.
            dropped: Whether events are listed too that a retry took out of the history.
            follow: Whether to wait for more.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: `after` is beyond its history, or a filter cannot be used.

        Example:
            ```python
            async for event in run.events(follow=False):
                print(event.seq, event.kind, event.key)
            ```
        """
        sought: Sought = {
            "kinds": None if kinds is None else checked_kinds(kinds),
            "key": None if key is None else checked_text(key, "key", _CALL_LENGTH),
            "search": None if search is None else checked_text(search, "search", _SEARCH_LENGTH),
        }
        lonely, place, size, left = _Lonely(self), checked_place(after), 32, checked_count(limit)
        with self._client._listening(self.id, News.GREW) as heard:
            while left is None or left > 0:
                heard.clear()
                row = await self._row()
                if place > row.next_seq:
                    raise BadArguments(f"after={after}: run {self.id!r} has a history of {row.next_seq} events")
                size = min(size, left or size) if before is None else left or _BEFORE
                page = await self._client.store.lines(
                    self.id, place, size, None if before is None else checked_place(before, "before"), dropped, **sought
                )
                for line in page:
                    place = line.seq + 1
                    yield RunEvent.of(line)
                if before is not None:
                    return
                left = None if left is None else left - len(page)
                if len(page) < size:
                    place = max(place, row.next_seq)  # what was there and does not fit is not looked at again
                    if not follow or (not page and row.status in FINISHED):
                        return
                    if not page:
                        await lonely.look(row)
                        await self._client._pause_for(heard)
                size = min(size * 2, 500)  # few first: a reader that stops early, or is slow, holds no more

    async def event(self, seq: int) -> RunEvent:
        """Find one event of its history; `run.value(seq)` reads the value that it holds.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: It has no such event.

        Example:
            ```python
            asked = await run.event(1)
            assert asked.kind == "approval.asked"
            ```
        """
        return await event_at(self._client, self.id, seq)

    async def value(self, seq: int) -> Any:
        """Read the value that an event of its history holds, as plain data; None if it holds none.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: It has no such event.
            NotStorable: The value is damaged.

        Example:
            ```python
            first = await run.value(0)
            ```
        """
        await self.event(seq)
        return await value_at(self._client, self.id, seq)

    async def checkpoints(self) -> list[CheckpointInfo]:
        """List the checkpoints of its history, the first first; `run.state(at)` has the state of one.

        Raises:
            UnknownRun: There is no such run.

        Example:
            ```python
            eras = [checkpoint.era for checkpoint in await run.checkpoints()]
            ```
        """
        return await checkpoints(self._client, self.id)

    async def outline(self, *, buckets: int = 240, under: str | None = None) -> Outline:
        """Look at its history in groups of calls, however long it is: how many of each name, and when they ended.

        Args:
            buckets: In how many pieces the time is cut, in which calls are counted.
            under: The key of a group, to see what is in it; all of the run unless given.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: `buckets` or `under` cannot be used.

        Example:
            ```python
            for group in (await run.outline()).groups:
                print(group.name, group.count, group.failed)
            ```
        """
        return await outline(self._client, self.id, buckets, under)

    def steps(self, *, after: int = -1, limit: int | None = None, dropped: bool = False) -> AsyncIterator[StepInfo]:
        """Iterate over its calls, in the order in which they were first recorded. Values are read when they are asked for.

        Args:
            after: The `seq` of the last call of the page before.
            limit: How many at most.
            dropped: Whether calls are listed too that a retry took out of the history.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: `after` is beyond its history, or `limit` is no number.

        Example:
            ```python
            async for step in run.steps(limit=100):
                print(step.seq, step.key, step.status, step.worker)
            ```
        """
        return steps(self._client, self.id, after=after, limit=limit, dropped=dropped)

    async def step(self, which: int | str) -> StepInfo:
        """Find one of its calls, by its key, by its name if it was called once, or by the place of its first event.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: It has no such call, or several with that name: the text says which keys there are.

        Example:
            ```python
            first = [step async for step in run.steps(limit=1)][0]
            assert (await run.step(first.key)).seq == first.seq
            ```
        """
        return await step_at(self._client, self.id, which)

    async def snapshot(self) -> Snapshot:
        """Look at all that it has come to: its goal and plan, what it waits for, what it spent, and the runs below it.

        Raises:
            UnknownRun: There is no such run.

        Example:
            ```python
            snapshot = await run.snapshot()
            print(snapshot.goal, [waits.kind for waits in snapshot.pending])
            ```
        """
        row = await self._row()
        if await bury_owners(self._client.store, [row]):
            row = await self._row()
        return await snapshot(self._client, row, self._info, await self.approvals())

    async def state(
        self, at: int | None = None, *, agents: Iterable[Agent[..., Any] | ModuleType] | None = None
    ) -> State | None:
        """Find the state that its agent stored last by `checkpoint`; None if it never did.

        Of a reducer whose code is here it is the very state that held: its events are folded again, and nothing is written.

        Args:
            at: Up to this event of its history; unless given, up to now.
            agents: The code to fold a reducer's events with: agents, or modules with agents. Unless given, that of the client.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: It has no such event, or its reducer is not among the agents.
            NondeterminismError: The code of the reducer does not fit what was recorded.

        Example:
            ```python
            state = await run.state()
            print("nothing stored" if state is None else await state.value())
            ```
        """
        return await state(self._client, self.id, at, agents)

    def stream(self, name: str, after: int = 0, *, follow: bool = True) -> AsyncIterator[Chunk]:
        """Iterate over what it writes to a stream: a `Chunk` at a time, live until the run is over.

        Args:
            name: The stream.
            after: The offset of the last chunk seen.
            follow: Whether to wait for more.

        Raises:
            UnknownRun: There is no such run.
            BadArguments: The name or offset cannot be used.

        Example:
            ```python
            async for chunk in run.stream("answer", follow=False):
                print(chunk.data, end="")
            ```
        """
        return chunks(self._client, self.id, checked_stream(name), checked_offset(after), follow)

    async def streams(self) -> list[StreamInfo]:
        """List the streams it has written to.

        Raises:
            UnknownRun: There is no such run.

        Example:
            ```python
            names = [stream.name for stream in await run.streams()]
            ```
        """
        return await streams(self._client, self.id)

    @overload
    async def send(self, topic: str, value: Any = None, *, key: str | None = None) -> Receipt: ...
    @overload
    async def send(self, topic: object, *, key: str | None = None) -> Receipt: ...
    async def send(self, topic: Any, value: Any = None, *, key: str | None = None) -> Receipt:
        """Send it a message, or an event if its agent is a reducer. When this returns, the message is kept for the run.

        Args:
            topic: The topic, as the agent receives it. For a reducer: the event itself, alone.
            value: The message.
            key: The same message sent twice with one key is one message.

        Raises:
            RunFinished: It has ended and takes no messages.
            UnknownRun: There is no such run.
            NotStorable: The message cannot be stored.
            BadArguments: The topic cannot be used, or the reducer takes no such event.

        Example:
            ```python
            receipt = await run.send("orders", "look at the gate", key="order-7")
            ```
        """
        author = self._client._author()
        if isinstance(topic, str):
            put = await message(self._client, self.id, topic, value, key, author)
        elif value is None:
            put = _sent(self._client, self.id, TOPIC, await self._event_text(topic), key, author)
        else:
            raise BadArguments(
                f"send({short(topic)}, {short(value)}): the first is not a topic, which is a text; give a topic and a value, or an "
                "event of a reducer alone"
            )
        write = self._client.store.send(
            self.id, put.signal_id, put.kind, put.topic, put.value, put.data, put.blobs, **author
        )
        again = "Its history says whether it came" if key is None else "Sending it again with the same key is safe"
        return Receipt(self, await self._client._written(write, again))

    async def _event_text(self, event: object) -> str:
        """The text of an event; held against what the reducer takes, if its code is here."""
        spec = None if self._agent is None else self._agent.spec
        if spec is None:
            row = await self._row()
            spec = self._client._spec(row.agent, row.version)
        if spec is not None and spec.folding is None:
            raise BadArguments(
                f"run {self.id!r} is one of {spec.name!r}, which is no reducer; name the topic of the message: "
                "`await run.send(topic, value)`"
            )
        folding, name = (None, "") if spec is None else (spec.folding, spec.name)
        return await aside(event, checked_event, folding, name, event)

    async def approvals(self) -> list[Approval]:
        """List its open questions and those of the runs below it.

        Example:
            ```python
            (question,) = await run.approvals()
            ```
        """
        return await self._client.approvals(run=self.id)

    async def pause(self, *, reason: str = "", by: str = "", family: bool = True, now: bool = False) -> None:
        """Stop it and all runs below it at the next safe point, until it is resumed. Messages still reach it.

        Args:
            reason: Why.
            by: The person who pauses it.
            family: With False only this run is paused.
            now: Stop bodies that are running, instead of letting them end; they are in doubt, as after a crash.

        Raises:
            RunFinished: It has ended.
            RunActive: It is about to stop.
            UnknownRun: There is no such run.

        Example:
            ```python
            await run.pause(by="ana", reason="lunch")
            ```
        """
        await self._pause(new_pause(), reason, by, family=family, now=now)

    async def _pause(self, request: str, reason: str, by: str, *, family: bool, now: bool) -> None:
        """Pause it as part of a request to several runs, which a resume of one of them undoes in all below it."""
        why = checked_note(reason)
        author = self._client._author(by)
        write = self._client.store.pause(self.id, **author, reason=why, request=request, family=family, now=now)
        await self._written(write)

    async def cancel(self, *, reason: str = "", by: str = "", grace: Duration = "30s") -> None:
        """Stop it for good: its children first, then its agent gets `asyncio.CancelledError` and may tidy up with further steps.

        When the grace is over, or at a second call, it ends whatever its code does.

        Args:
            reason: Why.
            by: The person who cancels it.
            grace: How long the agent may tidy up.

        Raises:
            RunFinished: It has ended, and was not cancelled.
            UnknownRun: There is no such run.

        Example:
            ```python
            await run.cancel(by="ben", reason="no budget left", grace="5m")
            ```
        """
        grace_ms = milliseconds(grace)
        request = f"cancel:{secrets.token_hex(8)}"  # this call, however often it must be made
        why = checked_note(reason)
        author = self._client._author(by)
        write = self._client.store.cancel(self.id, **author, reason=why, grace_ms=grace_ms, request=request)
        await self._written(write)

    async def resume(self, *, by: str = "", family: bool = True) -> None:
        """Let a paused run go on, and with it the runs below it that were paused by the same request.

        Raises:
            RunActive: It is not paused.
            RunFinished: It has ended.
            UnknownRun: There is no such run.

        Example:
            ```python
            await run.pause(by="ana")
            await run.resume(by="ana")
            ```
        """
        await self._go_on(await self._row(), by, family=family)

    async def fork(
        self,
        *,
        at: int | str | None = None,
        replace: Mapping[str, Any] | None = None,
        effects: Literal["ask", "new", "refuse"] = "ask",
        id: str | None = None,
        by: str | Actor = "",
    ) -> Run[R_co]:
        """Make a run that shares the history of this one up to a point, and goes on from there by itself.

        Everything up to the point is as it was, without being done again. What was open there begins anew; children that had
        ended are shared. This run is not touched, and whatever becomes of it does not change the fork.

        Args:
            at: The first event that is not shared, by its number; a call, by its key or the name of a step that was called once,
                which is then made again; or "checkpoint", to go on from the last one. Unless given: the end of what there is,
                or before its failure.
            replace: What calls get instead of what they would do, by their keys. For a step it is the result, for a question
                true, false or the answer. `"arguments"` has the arguments to change, by name; `"message:12"` is sent
                instead of the message of event 12. The point is then before the first of these.
            effects: What happens to steps that this run did behind the point: "ask" a person, "new" does them again with new
                idempotency keys, "refuse" fails them. Steps that only read (`@step(effects=False)`) always run.
            id: The id of the fork; random unless given. The same request with the same id is the same fork.
            by: The person who forks it.

        Raises:
            BadArguments: There is no such event or call, or a value cannot be used.
            NotAllowed: A question is replaced that is not this person's to decide.
            NotStorable: A value cannot be stored.
            RunExists: The id is that of a fork from another point, or with other replacements or effects.
            UnknownRun: There is no such run.

        Example:
            ```python
            again = await run.fork(at=0, by="ana")
            assert again.id != run.id
            ```
        """
        actor = Actor.of(by) if by else Actor.of(self._client._author()["by"])
        author = self._client._author(actor.name)
        made, created = await forks.fork(
            self._client, await self._row(), at, replace, effects, id, actor, actor.via or author["via"]
        )
        return Run(self._client, made, self._agent, created=created)

    async def forks(self) -> list[ForkInfo]:
        """List the tree of forks that it is in: the first run, then each fork behind the one that it was made from.

        Raises:
            UnknownRun: There is no such run.

        Example:
            ```python
            first, *others = await run.forks()
            ```
        """
        return await forks.tree(self._client, self.id)

    async def retry(
        self,
        *,
        by: str = "",
        budget: Budget | None = None,
        at: int | str | None = None,
        effects: Literal["ask", "new", "refuse"] = "ask",
    ) -> None:
        """Let a failed run go on from its failure: what was recorded before stays, and the failed step runs again.

        Failed children are retried with it, unless the agent had dealt with their failure before. A paused run is resumed.

        Args:
            by: The person who retries it.
            budget: Replaces the run's own; what was spent is spent.
            at: An earlier point to go on from, as for `fork`. Work asked for after it is dropped, and stays in the history
                so marked.
            effects: What happens then to steps that were done behind that point, as for `fork`. They keep their idempotency keys
                unless it is "new".

        Raises:
            RunActive: It has not ended.
            RunFinished: It has ended, and has not failed.
            BadArguments: There is no such event or call.
            UnknownRun: There is no such run.

        Example:
            ```python
            failed = await hf.start(broken)
            await failed.wait("failed")
            await failed.retry(by="ana")
            ```
        """
        checked_budget(budget)
        point, policy = forks.checked_point(at), forks.checked_effects(effects)
        back = None if point is None else (point, policy)
        row = await self._row()
        if row.status == "paused" and back is not None:
            raise RunActive(
                f"run {self.id!r} is paused; only a failed run goes back to an earlier point. Fork it instead"
            )
        if row.status == "paused":
            await self._go_on(row, by, budget=budget)
            return
        if row.status != "failed":
            kind = RunFinished if row.status in FINISHED else RunActive
            raise kind(
                f"run {self.id!r} is {row.status}; only a failed or paused run can be retried{where_it_went(row)}"
            )
        await self._go_on(row, by, retry=True, budget=budget, back=back)

    async def _go_on(
        self,
        row: RunRow,
        by: str,
        *,
        retry: bool = False,
        budget: Budget | None = None,
        family: bool = True,
        back: tuple[int | str, str] | None = None,
    ) -> None:
        """Make it ready again. If somebody did just that since it was looked at, perhaps we ourselves, it is done."""
        try:
            limits = None if budget is None else json.dumps(budget.published())
            author = self._client._author(by)
            at, effects = (None, None) if back is None else back
            write = self._client.store.resume(
                self.id, **author, retry=retry, budget=limits, family=family, at=at, effects=effects
            )
            await self._written(write)
        except RunActive:
            since = await self._client.store.journal(self.id, row.next_seq, 1)
            if not since or since[0].kind not in ("run.resumed", "run.retried"):
                raise

    async def export(
        self,
        to: str | os.PathLike[str] | BinaryIO,
        *,
        move: str | None = None,
        effects: str = "ask",
        key: str | None = None,
        recipient: str | None = None,
        keys: str | os.PathLike[str] | Keys | None = None,
        now: bool = False,
        timeout: Duration | None = None,
        by: str = "",
    ) -> Bundle:
        """Write it and all runs below it to one signed file, a bundle, which another store can import.

        A copy leaves the run as it is. A move makes it "moved" here, as soon as the file is flushed: from then on only the store
        that it names can go on with it, and the same call writes the same file again until `confirm_move`.

        Args:
            to: The name of a new file; of a copy also a binary file that is open.
            move: The id of the store that the run moves to; a copy unless given.
            effects: Of a copy: what becomes of calls that were going on: "ask" a person, run them with "new" keys, or "refuse".
            key: The name of the key that signs; the only one there is unless given.
            recipient: The name of the key it is encrypted for; nobody unless given.
            keys: The folder of keys; `Keys` says which it is unless given.
            now: Of a move: stop bodies that are running, instead of letting them end; they are in doubt, as after a crash.
            timeout: Of a move: how long to wait until bodies have ended.
            by: The person who exports it.

        Raises:
            BadArguments: It is not a root run, there is no key, or the file is there already.
            RunFinished: It has ended, or was moved elsewhere.
            RunActive: It is about to stop.
            TimeoutError: Bodies did not end in time. Nothing was moved.
            UnknownRun: There is no such run.

        Example:
            ```python
            holdfast.Keys("keys").new("ana")
            bundle = await run.export("r-1.bundle", keys="keys")
            print(bundle.summary["pending"], bundle.summary["asks"])
            ```
        """
        how = {"move": move, "effects": effects, "key": key, "recipient": recipient, "keys": keys, "now": now}
        bundle: Bundle = await self._client._export(self.id, to, **how, timeout=timeout, by=by)
        return bundle

    async def confirm_move(
        self,
        receipt: str | os.PathLike[str] | MoveReceipt | None = None,
        *,
        keys: str | os.PathLike[str] | Keys | None = None,
        by: str = "",
    ) -> None:
        """Note that the store it was moved to has it: its bundle is not kept here any longer, and the run can be deleted.

        From then on its bundle is not written again, and the move cannot be undone. Without a receipt it is your word, and the
        audit has that.

        Args:
            receipt: The receipt of the destination, as `hf.import_run(receipt=...)` writes it and `run.move_receipt()` gives it,
                or its file. It must be of this very move, and signed by a key that is trusted here for bundles.
            keys: The folder of keys; `Keys` says which it is unless given.
            by: The person who confirms it.

        Raises:
            BadBundle: It is no receipt, not signed by anybody who is trusted, or of another move. Nothing was changed.
            RunActive: It was not moved, or was taken back.
            UnknownRun: There is no such run.

        Example:
            ```python
            holdfast.Keys("keys").new("ana")
            async with holdfast.open("sqlite:other.db") as other:
                await run.export("r-1.bundle", move=await other.store_id(), keys="keys")
                await other.import_run("r-1.bundle", receipt="r-1.receipt", keys="keys")
            await run.confirm_move("r-1.receipt", keys="keys")
            ```
        """
        await self._client._confirm_move(self.id, receipt, keys=keys, by=by)

    async def move_receipt(
        self, *, key: str | None = None, keys: str | os.PathLike[str] | Keys | None = None
    ) -> MoveReceipt:
        """Sign that it was moved into this store, for the store it came from; also of a run that is not here any more.

        Args:
            key: The name of the key that signs; the only one there is unless given.
            keys: The folder of keys; `Keys` says which it is unless given.

        Raises:
            UnknownRun: No such run was ever moved here.
            BadArguments: There is no key to sign with, or there are several.

        Example:
            ```python
            holdfast.Keys("keys").new("ana")
            async with holdfast.open("sqlite:other.db") as other:
                await run.export("r-1.bundle", move=await other.store_id(), keys="keys")
                await other.import_run("r-1.bundle", keys="keys")
                receipt = await other.get("r-1").move_receipt(keys="keys")
            await run.confirm_move(receipt, keys="keys")
            ```
        """
        receipt: MoveReceipt = await self._client._move_receipt(self.id, key=key, keys=keys)
        return receipt

    async def take_back(self, *, force: bool = False, by: str = "") -> None:
        """Go on with it here although it was moved to another store. The audit has that you did.

        Args:
            force: You know that its bundle was not imported there, and never will be: else two stores go on with it.
            by: The person who takes it back.

        Raises:
            BadArguments: `force` is not given.
            RunActive: It was not moved.
            RunFinished: The other store is known to have it.
            UnknownRun: There is no such run.

        Example:
            ```python
            holdfast.Keys("keys").new("ana")
            async with holdfast.open("sqlite:other.db") as other:
                await run.export("r-1.bundle", move=await other.store_id(), keys="keys")
            await run.take_back(force=True, by="ana")
            ```
        """
        await self._client._take_back(self.id, force=force, by=by)

    async def delete(self) -> int:
        """Delete a finished run with its children; returns how many runs went.

        Raises:
            RunActive: It has not ended.
            UnknownRun: There is no such run.

        Example:
            ```python
            await run.cancel()
            await run.wait()
            many = await run.delete()
            ```
        """
        return await self._written(self._client.store.delete(self.id, **self._client._author()))

    async def _written(self, write: Awaitable[T]) -> T:
        return await self._client._written(write, f"`await hf.get({self.id!r}).info()` says how the run stands")


def _needs(row: RunRow, asked: Sequence[Approval]) -> str | None:
    """Say what a person must do for a run to go on, and how; None if it goes on by itself."""
    if asked:
        first = asked[0]
        where = "" if first.run == row.id else f", of run {first.run!r}"
        more = f", and {len(asked) - 1} more" if len(asked) > 1 else ""
        how = f"`hf.approve({first.id!r}, by=...)`, `hf.deny` or `holdfast approve {first.id}`"
        if first.kind != "approve":
            how = f"`hf.answer({first.id!r}, ..., by=...)` or `holdfast answer {first.id} VALUE`"
        return (
            f"it waits for a person (question {first.id!r}{where}: {cut(first.question, 200)}{more}); {how} decides it"
        )
    if row.status == "paused":
        if advised(row.reason) is not None:
            return f"it is stopped, {row.reason}"
        again = f"`hf.get({row.id!r}).resume()` or `holdfast resume {row.id}`"
        return f"it is stopped, {row.reason or 'paused'}; {again} lets it go on"
    tokens = json.loads(row.awaits or "[]") if row.status == "waiting" and row.waits_for == "message" else ()
    topic = next((each for each in tokens if not each.startswith(("approval:", "child:", "conversation:"))), None)
    name = None if topic is None else event_of(topic)
    if name is not None:
        how = f"`hf.publish({name!r}, ...)` or `holdfast publish {name} VALUE`"
        return f"it waits for an announcement {name!r}; {how} publishes one"
    if topic is not None:
        how = f"`hf.get({row.id!r}).send({topic!r}, ...)` or `holdfast send {row.id} {topic} VALUE`"
        return f"it waits for a message on {topic!r}; {how} sends one"
    if row.status == "waiting" and row.waits_for in ("child", "conversation"):
        return f"it waits for a {row.waits_for}; `holdfast show {row.id}` says how it stands"
    return None


def _because(row: RunRow) -> str:
    """Say why a run that has ended will not do what a caller waits for; nothing if it simply returned."""
    why = error_line(json.loads(row.error)) if row.error else row.reason
    return f": {why}" if why else ""


def _checked_waits(waits_for: str | Iterable[str], wanted: AbstractSet[str]) -> AbstractSet[str]:
    found = {waits_for} if isinstance(waits_for, str) else set(waits_for)
    if not found or not found.issubset(_WAITS):
        raise BadArguments(f"waits_for={waits_for!r}: nothing that a run waits for; there are: {', '.join(_WAITS)}")
    if "waiting" not in wanted:
        raise BadArguments(
            f'only a run that is waiting waits for something: write `wait("waiting", waits_for={waits_for!r})`'
        )
    return found


async def message(client: Base, run: str, topic: str, value: Any, key: str | None, author: Author) -> Send:
    """Make the work that sends a message to a run. Messages with one key are one message."""
    return _sent(client, run, checked_topic(topic), await aside(value, stored_text, value), key, author)


def _sent(client: Base, run: str, topic: str, text: str, key: str | None, author: Author) -> Send:
    client._sized(text, "the message")
    stored, blobs = spilled(text)
    signal = f"key:{checked_text(key, 'key', _KEY_LENGTH)}" if key is not None else f"id:{secrets.token_hex(8)}"
    return Send(run, signal, "message.received", topic, stored, {}, blobs, **author)
