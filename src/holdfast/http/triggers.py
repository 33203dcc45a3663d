"""Triggers over HTTP: all that starts agents by itself, the deliveries for them, and how these ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from holdfast.client.documents import body_text
from holdfast.client.edge import Edge
from holdfast.client.schedules import ScheduleInfo
from holdfast.client.triggers import DeliveryInfo, TriggerInfo, is_dismissed
from holdfast.errors import BadArguments, UnknownTrigger
from holdfast.http.routes import Call, Input, Nothing


class Which(Input):
    status: Literal["new", "done", "dead"] | None = Field(None, description="Only deliveries in this state.")
    limit: int = Field(100, ge=1, le=1000, description="At most so many.")


class Replay(Input):
    delivery: str | None = Field(None, description="The id of a delivery; or `dead`.")
    dead: bool = Field(False, description="All that are dead.")


class Dismiss(Input):
    delivery: str = Field(description="The id of a delivery.")


@dataclass(frozen=True, slots=True)
class Triggers:
    triggers: list[TriggerInfo]
    schedules: list[ScheduleInfo]


@dataclass(frozen=True, slots=True)
class OneTrigger:
    trigger: TriggerInfo


@dataclass(frozen=True, slots=True)
class Deliveries:
    deliveries: list[DeliveryInfo]


@dataclass(frozen=True, slots=True)
class WholeDelivery:
    delivery: DeliveryInfo
    headers: dict[str, str]
    body: str
    encoding: Literal["utf-8", "base64"]


@dataclass(frozen=True, slots=True)
class Replayed:
    replayed: int


@dataclass(frozen=True, slots=True)
class Dismissed:
    dismissed: int


@dataclass(frozen=True, slots=True)
class Forgotten:
    deleted: str


async def listed(call: Call[Nothing, None]) -> Triggers:
    return Triggers(await call.hf.triggers(), await call.hf.schedules())


async def shown(call: Call[Nothing, None]) -> OneTrigger:
    found = [each for each in await call.hf.triggers() if each.name == call["name"]]
    if not found:
        raise UnknownTrigger(f"there is no trigger {call['name']!r}: no worker has declared one")
    return OneTrigger(found[0])


async def forget(call: Call[Nothing, None]) -> Forgotten:
    await call.hf.delete_trigger(call["name"])
    return Forgotten(call["name"])


async def deliveries(call: Call[Which, None]) -> Deliveries:
    asked = call.query
    return Deliveries(await call.hf.deliveries(trigger=call["name"], status=asked.status, limit=asked.limit))


async def delivery(call: Call[Nothing, None]) -> WholeDelivery:
    info, whole = await Edge(call.hf).delivery(call["name"], call["delivery"])
    return WholeDelivery(info, dict(whole.headers), *body_text(whole.body))


async def replay(call: Call[Nothing, Replay]) -> Replayed:
    asked = call.body
    if (asked.delivery is not None) == asked.dead:
        raise BadArguments('say which: {"delivery": "ID"}, or {"dead": true} for all that are dead')
    if asked.delivery is None:
        return Replayed(await call.hf.replay_dead(call["name"]))
    return Replayed(int((await call.hf.replay_delivery(call["name"], asked.delivery)).status == "new"))


async def dismiss(call: Call[Nothing, Dismiss]) -> Dismissed:
    return Dismissed(int(is_dismissed(await call.hf.dismiss_delivery(call["name"], call.body.delivery))))
