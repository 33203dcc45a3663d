"""Notifications over HTTP: which receivers are told of which events; made, steered and tried."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from holdfast.client.notifications import NotificationInfo
from holdfast.client.triggers import DeliveryInfo
from holdfast.http.routes import Call, Input, Nothing
from holdfast.words.notifications import VARIABLES, check_named


class Notify(Input):
    url: str = Field(
        description="An address on the web, `mailto:ADDRESS`, or `env:HOLDFAST_NOTIFY_URL_…`: a variable of the workers."
    )
    kinds: list[str] = Field(
        description="Kinds of events, such as `run.failed`; `approval` is all that happens to questions."
    )
    secret: str | list[str] | None = Field(
        None, description="Where the secret is that signs messages: `env:HOLDFAST_NOTIFY_SECRET_…`."
    )
    format: Literal["json", "slack", "mail"] | None = None
    agent: str | None = Field(None, description="Only runs of this agent.")
    labels: dict[str, str] = Field(default_factory=dict, description="Only runs with these labels.")
    base_url: str | None = Field(None, description="Where this server is reached, for links.")


class WhichMessages(Input):
    status: Literal["new", "done", "dead"] | None = None
    limit: int = 100


class SendAgain(Input):
    id: str = Field(description="The id of the message.")


@dataclass(frozen=True, slots=True)
class Notifications:
    notifications: list[NotificationInfo]


@dataclass(frozen=True, slots=True)
class OneNotification:
    notification: NotificationInfo


@dataclass(frozen=True, slots=True)
class Messages:
    deliveries: list[DeliveryInfo]


@dataclass(frozen=True, slots=True)
class OneMessage:
    delivery: DeliveryInfo


@dataclass(frozen=True, slots=True)
class Tested:
    message: str


@dataclass(frozen=True, slots=True)
class Untold:
    deleted: str


async def listed(call: Call[Nothing, None]) -> Notifications:
    return Notifications(await call.hf.notifications())


async def shown(call: Call[Nothing, None]) -> OneNotification:
    return OneNotification(await call.hf.get_notification(call["name"]).info())


async def make(call: Call[Nothing, Notify]) -> OneNotification:
    told = call.body
    secrets = [told.secret] if isinstance(told.secret, str) else told.secret or []
    check_named(told.url, secrets, os.environ.get(VARIABLES, ""))
    handle = await call.hf.notify(
        told.url, told.kinds, secret=told.secret, name=call["name"], format=told.format, agent=told.agent, labels=told.labels,
        base_url=told.base_url,
    )  # fmt: skip
    return OneNotification(await handle.info())


async def delete(call: Call[Nothing, None]) -> Untold:
    await call.hf.get_notification(call["name"]).delete()
    return Untold(call["name"])


async def pause(call: Call[Nothing, None]) -> OneNotification:
    return OneNotification(await call.hf.get_notification(call["name"]).pause())


async def resume(call: Call[Nothing, None]) -> OneNotification:
    return OneNotification(await call.hf.get_notification(call["name"]).resume())


async def test(call: Call[Nothing, None]) -> Tested:
    return Tested(await call.hf.get_notification(call["name"]).test())


async def deliveries(call: Call[WhichMessages, None]) -> Messages:
    handle = call.hf.get_notification(call["name"])
    await handle.info()
    return Messages(await handle.deliveries(status=call.query.status, limit=call.query.limit))


async def replay(call: Call[Nothing, SendAgain]) -> OneMessage:
    return OneMessage(await call.hf.get_notification(call["name"]).replay(call.body.id))
