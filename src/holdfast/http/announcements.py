"""Announcements over HTTP: publishing one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import Field

from holdfast.http.routes import Answer, Call, Input, Nothing


class NewAnnouncement(Input):
    """An announcement to be published."""

    name: str = Field(description="The name under which others wait for it, such as `order.paid`.")
    value: Any = None
    key: str | None = Field(None, description="The same name and key twice, within 30 days, is one announcement.")


@dataclass(frozen=True, slots=True)
class Published:
    """An announcement that was published: by this request, or before, and then when and whether with another value, which holds."""

    id: str
    name: str
    created: bool
    before: datetime | None
    differs: bool | None


async def publish(call: Call[Nothing, NewAnnouncement]) -> Answer:
    """Publish an announcement."""
    told = call.body
    done = await call.hf.publish(told.name, told.value, key=told.key)
    document = Published(str(done), told.name, done.created, done.before, done.differs)
    return Answer(201 if done.created else 200, document)
