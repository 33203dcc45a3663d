"""Conversations over HTTP: listed, and read from either end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from holdfast.client.approvals import LISTED_BYTES, Room
from holdfast.client.conversations import ConversationInfo, Message
from holdfast.client.edge import Edge
from holdfast.http.errors import Refused
from holdfast.http.routes import Call, Input, Nothing


class Which(Input):
    """A page of the list."""

    after: str = Field("", description="The `next` of the page before.")
    limit: int = Field(100, ge=1, le=1000, description="At most so many.")


class Part(Input):
    """A part of a conversation."""

    after: int = Field(
        0, ge=0, le=2**63 - 1, description="How many messages were seen already; the `next` of the page before."
    )
    last: int | None = Field(None, ge=1, le=1000, description="The last so many, instead of those after a place.")
    limit: int = Field(100, ge=1, le=1000, description="At most so many.")


@dataclass(frozen=True, slots=True)
class Conversations:
    """A page of the list."""

    conversations: list[ConversationInfo]
    next: str | None


@dataclass(frozen=True, slots=True)
class OneConversation:
    """The state of a conversation."""

    conversation: ConversationInfo


@dataclass(frozen=True, slots=True)
class Said:
    """A part of a conversation, oldest first."""

    messages: list[Message[Any]]
    next: int


async def listed(call: Call[Which, None]) -> Conversations:
    """List conversations."""
    found = await call.hf.conversations(after=call.query.after, limit=call.query.limit)
    return Conversations(found, found[-1].id if len(found) == call.query.limit else None)


async def shown(call: Call[Nothing, None]) -> OneConversation:
    """Show one conversation."""
    return OneConversation(await _info(call))


async def messages(call: Call[Part, None]) -> Said:
    """Read a part of a conversation."""
    info, part = await _info(call), call.query
    first = min(part.after, info.messages) if part.last is None else max(info.messages - part.last, 0)
    count = part.limit if part.last is None else part.last
    found = await Edge(call.hf).messages(Room(LISTED_BYTES), info.id, first, first + count)
    return Said(found, found[-1].position + 1 if found else first)


async def _info(call: Call[Any, None]) -> ConversationInfo:
    found = await call.hf.conversation(call["id"]).info()
    if found is None:
        raise Refused("unknown_conversation", f"there is no conversation {call['id'][:200]!r}")
    return found
