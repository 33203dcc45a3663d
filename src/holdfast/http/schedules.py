"""Schedules over HTTP: what begins by itself, made, paused and begun by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from holdfast.client.schedules import ScheduleInfo
from holdfast.http.routes import Call, Input, Moment, Nothing
from holdfast.words.schedules import Schedule


class Make(Input):
    agent: str = Field(description="The agent whose runs begin.")
    cron: str | None = Field(None, description="Its times, such as `0 7 * * mon-fri`; or `every`.")
    every: str | None = Field(None, description="The length of time from one to the next, such as `15m`.")
    tz: str = Field("UTC", description="The time zone of `cron`.")
    jitter: str | float = Field(0, description="Each run begins up to so much later.")
    overlap: Literal["skip", "queue", "cancel", "allow"] = "skip"
    catch_up: Literal["last", "all", "none"] = "last"
    args: dict[str, Any] = Field(default_factory=dict, description="The arguments of each run.")


class Between(Input):
    start: Moment = Field(description="With its time zone; a date alone is its midnight in UTC.")
    end: Moment = Field(description="As well.")


@dataclass(frozen=True, slots=True)
class Schedules:
    schedules: list[ScheduleInfo]


@dataclass(frozen=True, slots=True)
class OneSchedule:
    schedule: ScheduleInfo


@dataclass(frozen=True, slots=True)
class Begun:
    runs: list[str]


@dataclass(frozen=True, slots=True)
class Gone:
    deleted: str


async def listed(call: Call[Nothing, None]) -> Schedules:
    return Schedules(await call.hf.schedules())


async def shown(call: Call[Nothing, None]) -> OneSchedule:
    return OneSchedule(await call.hf.get_schedule(call["name"]).info())


async def make(call: Call[Nothing, Make]) -> OneSchedule:
    told = call.body
    schedule = Schedule(
        told.cron, every=told.every, tz=told.tz, jitter=told.jitter, overlap=told.overlap, catch_up=told.catch_up, args=told.args
    )  # fmt: skip
    return OneSchedule(await (await call.hf.schedule(call["name"], told.agent, schedule)).info())


async def delete(call: Call[Nothing, None]) -> Gone:
    await call.hf.get_schedule(call["name"]).delete()
    return Gone(call["name"])


async def pause(call: Call[Nothing, None]) -> OneSchedule:
    return OneSchedule(await call.hf.get_schedule(call["name"]).pause())


async def resume(call: Call[Nothing, None]) -> OneSchedule:
    return OneSchedule(await call.hf.get_schedule(call["name"]).resume())


async def trigger(call: Call[Nothing, None]) -> Begun:
    return Begun([await call.hf.get_schedule(call["name"]).trigger()])


async def backfill(call: Call[Nothing, Between]) -> Begun:
    return Begun(await call.hf.get_schedule(call["name"]).backfill(call.body.start, call.body.end))
