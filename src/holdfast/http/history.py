"""A run from inside: its calls page by page and one by one, what it has come to, and the state it stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import Field

from holdfast.client.history import Snapshot, StepInfo
from holdfast.client.outline import Outline
from holdfast.http.routes import Call, Input, Nothing


class Behind(Input):
    after: int = Field(-1, ge=-1, description="The `next` of the page before.")
    limit: int = Field(100, ge=1, le=1000, description="At most so many.")
    dropped: bool = Field(False, description="Also calls that a retry took out of the history.")


class At(Input):
    at: int | None = Field(None, ge=0, description="Up to this event; unless given, up to now.")


class Pieces(Input):
    buckets: int = Field(
        240, ge=1, le=1000, description="In how many pieces the time is cut, in which calls are counted."
    )
    under: str | None = Field(None, max_length=10_000, description="The key of a group, to see what is in it.")


@dataclass(frozen=True, slots=True)
class Steps:
    steps: list[StepInfo]
    next: int | None


@dataclass(frozen=True, slots=True)
class WholeStep:
    step: StepInfo
    arguments: Any
    result: Any


@dataclass(frozen=True, slots=True)
class WholeSnapshot:
    snapshot: Snapshot
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredState:
    seq: int
    era: int
    at: datetime
    folded: int | None
    value: Any


@dataclass(frozen=True, slots=True)
class OneState:
    state: StoredState | None


async def steps(call: Call[Behind, None]) -> Steps:
    run, query = call.hf.get(call["id"]), call.query
    found = [each async for each in run.steps(after=query.after, limit=query.limit, dropped=query.dropped)]
    return Steps(found, found[-1].seq if len(found) == query.limit else None)


async def step(call: Call[Nothing, None]) -> WholeStep:
    which = call["step"]
    number = which.isascii() and which.isdigit() and len(which) <= 18
    found = await call.hf.get(call["id"]).step(int(which) if number else which)
    return WholeStep(found, await found.arguments(), await found.result())


async def snapshot(call: Call[Nothing, None]) -> WholeSnapshot:
    run = call.hf.get(call["id"])
    return WholeSnapshot(await run.snapshot(), await run.arguments())


async def state(call: Call[At, None]) -> OneState:
    found = await call.hf.get(call["id"]).state(call.query.at)
    if found is None:
        return OneState(None)
    return OneState(StoredState(found.seq, found.era, found.at, found.folded, await found.value()))


async def outline(call: Call[Pieces, None]) -> Outline:
    return await call.hf.get(call["id"]).outline(buckets=call.query.buckets, under=call.query.under)
