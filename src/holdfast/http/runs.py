"""Runs and agents: listed, started, looked at, followed, and told what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import Field, StrictInt, field_validator

from holdfast.client.calls import OpenCall
from holdfast.client.client import Client
from holdfast.client.edge import Edge
from holdfast.client.filter import place_of
from holdfast.client.forks import ForkInfo
from holdfast.client.info import AgentInfo, RunInfo
from holdfast.client.needs import Needs
from holdfast.client.run import Run
from holdfast.client.streams import Chunk, StreamInfo
from holdfast.errors import BadArguments, RunExists
from holdfast.http.events import PAGE, Behind, read_or_follow
from holdfast.http.follow import Source
from holdfast.http.routes import Answer, Call, Input, Moment, Nothing
from holdfast.words.budget import Budget
from holdfast.words.durations import moment
from holdfast.words.model import FINISHED, Status, WaitsFor

# What is taken


class Fits(Input):
    status: list[Status] = Field([], description="Only runs in this state; may be given several times.")
    agent: list[str] = Field([], max_length=100, description="Only runs of this agent; may be given several times.")
    label: list[str] = Field(
        [], max_length=100, description="Only runs with this label, as name=value; may be given several times."
    )
    since: Moment | None = Field(
        None,
        description="Only runs started since this moment, with its time zone; a date alone is its midnight in UTC.",
    )
    until: Moment | None = Field(
        None,
        description="Only runs started until this moment, with its time zone; a date alone is its midnight in UTC.",
    )
    search: str | None = Field(
        None, description="Only runs with this text in their id, agent, labels, arguments, reason or error."
    )
    parent: str | None = Field(None, description="Only runs that this run has started.")
    waits_for: list[WaitsFor] = Field([], description="Only runs that wait for this; may be given several times.")
    queue: list[str] = Field([], max_length=100, description="Only runs in this queue; may be given several times.")
    version: str | None = Field(None, description="Only runs that are pinned to this version of their agent.")
    root: bool | None = Field(None, description="true: only runs that no run has started; false: only the others.")
    stuck: bool | None = Field(None, description="true: only runs that do not go on by themselves.")
    needs: bool | None = Field(None, description="true: only runs that need a person: stuck, or with an open question.")
    cost: float | None = Field(
        None, ge=0, le=1e9, description="Only runs that have spent so many US dollars at least, with all below them."
    )
    attempt: int | None = Field(
        None, ge=1, le=2**31, description="Only runs with a step that is at this attempt, or a later one."
    )

    @field_validator("status", "agent", "label", "waits_for", "queue", mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        """Take one alone for a list of one."""
        return [given] if isinstance(given, str) else given

    def which(self) -> dict[str, Any]:
        """Write it as `hf.runs` takes it."""
        labels = dict(_label(text) for text in self.label)
        told = self.model_dump(exclude={"label", "limit", "after", "order"})
        return {name: None if value == [] else value for name, value in told.items()} | {"labels": labels or None}


class Which(Fits):
    order: Literal["newest", "oldest", "updated"] = Field(
        "newest", description="By when they were started, or those first that changed last."
    )
    limit: int = PAGE
    after: str | None = Field(None, description="The `next` of the page before.")


class Few(Input):
    limit: int = Field(20, ge=1, le=1000, description="At most so many.")


class Start(Input):
    agent: str = Field(description="The name of a published agent.")
    args: list[Any] = Field([], description="Its arguments by position.")
    kwargs: dict[str, Any] = Field({}, description="Its arguments by name.")
    id: str | None = Field(
        None, description="The id of the run; the same one again is the same run. Default: a new one."
    )
    labels: dict[str, str] = Field({}, description="For lists.")
    after: str | float | None = Field(None, description="Not before this long from now: '2h', or seconds.")
    budget: Budget | None = Field(None, description="What it may spend; instead of what its agent declares.")


class Within(Input):
    timeout: float = Field(0, ge=0, le=60, description="How many seconds to wait for the end of the run.")


class Why(Input):
    reason: str = Field("", description="It is shown and kept.")


class Pause(Why):
    family: bool = Field(True, description="With all below it.")
    now: bool = Field(False, description="Stop steps that run; they are in doubt then, as after a crash.")


class Resume(Input):
    family: bool = Field(True, description="With those below it that were paused by the same request.")


class Cancel(Why):
    grace: str | float = Field("30s", description="How long the agent may tidy up.")


_POINT: Final = "an event by its number, a call by its key or the name of its step, or 'checkpoint'."
_EFFECTS: Final = "For steps that were done behind the point: ask a person, do them anew, or fail them."


class Retry(Input):
    budget: Budget | None = Field(
        None, description="What it may spend instead of its declared budget; grants stay on top."
    )
    at: StrictInt | str | None = Field(None, description=f"Go back further, to before this point: {_POINT}")
    effects: Literal["ask", "new", "refuse"] = Field("ask", description=_EFFECTS)


class Fork(Input):
    at: StrictInt | str | None = Field(
        None, description=f"The first that is not shared: {_POINT} Default: the end of what there is."
    )
    replace: dict[str, Any] = Field(
        {},
        description="What calls get, by their keys; also `arguments`, and `message:EVENT`. To replace a decision needs 'decide'.",
    )
    effects: Literal["ask", "new", "refuse"] = Field("ask", description=_EFFECTS)
    id: str | None = Field(
        None, description="The id of the fork; the same one again is the same fork. Default: a new one."
    )


class Message(Input):
    topic: str
    value: Any = None
    key: str | None = Field(None, description="The same key twice is one message.")


# What is answered


@dataclass(frozen=True, slots=True)
class Runs:
    runs: list[RunInfo]
    next: str | None
    position: int  # of GET /api/events: a follower from there misses nothing that these rows do not tell


@dataclass(frozen=True, slots=True)
class Counts:
    counts: dict[Status, int]
    needs: int
    exact: bool
    now: datetime


@dataclass(frozen=True, slots=True)
class OneRun:
    run: RunInfo


@dataclass(frozen=True, slots=True)
class WholeRun:
    run: RunInfo
    arguments: dict[str, Any]
    streams: list[StreamInfo]
    open: list[OpenCall]
    now: datetime


@dataclass(frozen=True, slots=True)
class Result:
    run: str
    result: Any


@dataclass(frozen=True, slots=True)
class Chunks:
    chunks: list[Chunk]
    next: int


@dataclass(frozen=True, slots=True)
class Sent:
    run: str
    topic: str
    position: int


@dataclass(frozen=True, slots=True)
class Deleted:
    deleted: int


@dataclass(frozen=True, slots=True)
class Forks:
    forks: list[ForkInfo]


@dataclass(frozen=True, slots=True)
class Agents:
    agents: list[AgentInfo]


# What is done


async def listed(call: Call[Which, None]) -> Runs:
    which = call.query
    position = await Edge(call.hf).sure_position()
    found = await call.hf.runs(order=which.order, limit=which.limit, after=which.after, **which.which())
    following = place_of(found[-1], which.order) if len(found) == which.limit else None
    return Runs(found, following, position)


async def counted(call: Call[Fits, None]) -> Counts:
    found = await call.hf.run_counts(**call.query.which())
    counts: dict[Any, int] = found.counts
    return Counts(counts, found.needs, found.exact, moment(Edge(call.hf).now()))


async def counted_or_shown(call: Call[Fits, None]) -> Counts | WholeRun:
    edge = Edge(call.hf)
    if await edge.sees("counts") and await edge.find("counts") is not None:
        return await _whole(call.hf, "counts")
    return await counted(call)


async def needing(call: Call[Few, None]) -> Needs:
    found = await call.hf.needs(call.query.limit, by=call.by)
    if call.decides:
        return found
    return replace(found, needs=tuple(replace(each, mine=False) for each in found.needs))


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise BadArguments(f"label={text!r} is not of the form name=value")
    return name, value


async def start(call: Call[Nothing, Start]) -> Answer:
    given, edge = call.body, Edge(call.hf)
    labels = call.labelled(given.labels)
    if given.id is not None and not await edge.sees(given.id) and await edge.find(given.id) is not None:
        raise RunExists(f"a run {given.id!r} exists, and is not one of those that are there for this token")
    run: Run[Any] = await call.hf.start(
        given.agent, *given.args, id=given.id, labels=labels, kwargs=given.kwargs, after=given.after,
        budget=given.budget,
    )  # fmt: skip
    if not run.created and not await edge.sees(run.id):  # of an agent that has one run at a time
        raise RunExists(
            f"{given.agent!r} has one run at a time, and that is not one of those that are there for this token"
        )
    return Answer(201 if run.created else 200, await _told(run))


async def _told(run: Run[Any]) -> OneRun:
    return OneRun(await run.info())


async def shown(call: Call[Nothing, None]) -> WholeRun:
    return await _whole(call.hf, call["id"])


async def _whole(hf: Client, id: str) -> WholeRun:
    run = hf.get(id)
    info = await run.info()
    told = await run.arguments(), await run.streams(), await run.open_calls()
    return WholeRun(info, *told, moment(Edge(hf).now()))


async def result(call: Call[Within, None]) -> Result | Answer:
    run = call.hf.get(call["id"])
    ending = asyncio.ensure_future(run.wait(*FINISHED, "paused"))
    closing = asyncio.ensure_future(call.followers.closing.wait())
    try:
        if (await run.info()).status not in {*FINISHED, "paused"}:
            async with call.away(), call.followers.watched(call.allowed) as lost:
                coming = [ending, closing, lost]
                await asyncio.wait(coming, timeout=call.query.timeout, return_when=asyncio.FIRST_COMPLETED)
                if lost.done():
                    raise lost.result()
            if not ending.done():
                return Answer(202, await _told(run))
        return Result(run.id, await run.result())
    finally:
        ending.cancel()
        closing.cancel()


async def stream(call: Call[Behind, None]) -> Any:
    run, name = call.hf.get(call["id"]), call["name"]

    async def read(after: int, follow: bool) -> AsyncGenerator[tuple[int, Chunk], None]:
        async for chunk in run.stream(name, after, follow=follow):
            yield chunk.offset, chunk

    return await read_or_follow(call, Chunks, run, Source(("stream", run.id, name), read), call.query.after)


async def pause(call: Call[Nothing, Pause]) -> OneRun:
    run, body = call.hf.get(call["id"]), call.body
    await run.pause(reason=body.reason, by=call.by.name, family=body.family, now=body.now)
    return await _told(run)


async def resume(call: Call[Nothing, Resume]) -> OneRun:
    run = call.hf.get(call["id"])
    await run.resume(by=call.by.name, family=call.body.family)
    return await _told(run)


async def cancel(call: Call[Nothing, Cancel]) -> OneRun:
    run = call.hf.get(call["id"])
    await run.cancel(reason=call.body.reason, by=call.by.name, grace=call.body.grace)
    return await _told(run)


async def retry(call: Call[Nothing, Retry]) -> OneRun:
    run = call.hf.get(call["id"])
    await run.retry(by=call.by.name, budget=call.body.budget, at=call.body.at, effects=call.body.effects)
    return await _told(run)


async def fork(call: Call[Nothing, Fork]) -> Answer:
    body = call.body
    if any(key.rpartition("/")[2].startswith((":approve", ":ask")) for key in body.replace):
        await call.allows("decide")
    made = await call.hf.get(call["id"]).fork(
        at=body.at, replace=body.replace, effects=body.effects, id=body.id, by=call.by
    )
    return Answer(201 if made.created else 200, await _told(made))


async def forks(call: Call[Nothing, None]) -> Forks:
    edge, found = Edge(call.hf), await call.hf.get(call["id"]).forks()
    hidden = {each.id for each in found if not await edge.sees(each.id)}
    return Forks([replace(each, of=None if each.of in hidden else each.of) for each in found if each.id not in hidden])


async def send(call: Call[Nothing, Message]) -> Sent:
    said = call.body
    receipt = await call.hf.get(call["id"]).send(said.topic, said.value, key=said.key)
    return Sent(receipt.run.id, said.topic, receipt.position)


async def delete(call: Call[Nothing, None]) -> Deleted:
    return Deleted(await call.hf.get(call["id"]).delete())


async def agents(call: Call[Nothing, None]) -> Agents:
    return Agents(await call.hf.agents())
