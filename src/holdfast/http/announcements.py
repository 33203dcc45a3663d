"""Announcements over HTTP: publishing one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from holdfast.http.routes import Call, Input, Nothing


class NewAnnouncement(Input):
    """An announcement to be published."""

    name: str = Field(description="The name under which others wait for it, such as `order.paid`.")
    value: Any = None
    key: str | None = Field(None, description="The same name and key twice, within 30 days, is one announcement.")


@dataclass(frozen=True, slots=True)
class Published:
    """An announcement that was published."""

    id: str
    name: str


async def publish(call: Call[Nothing, NewAnnouncement]) -> Published:
    """Publish an announcement."""
    told = call.body
    return Published(await call.hf.publish(told.name, told.value, key=told.key), told.name)
