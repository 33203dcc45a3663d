"""Conversations from outside: listed, read and deleted from any process."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from holdfast.client.base import Base
from holdfast.errors import BadArguments, NotStorable
from holdfast.store.blobs import unspilled
from holdfast.values.codec import UNTYPED, Shape, shape_of
from holdfast.verbs.conversations import slice_of
from holdfast.words.durations import moment
from holdfast.words.model import checked_conversation_id, checked_limit

if TYPE_CHECKING:
    from holdfast.store.conversations import ConversationRow

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Message(Generic[T]):
    """A message of a conversation.

    Attributes:
        position: Its place, from 0 on.
        value: What was said.
        run: The run that said it.
        at: When.

    Example:
        ```python
        for message in await hf.conversation("user-42", str).messages():
            print(message.position, message.value)
        ```
    """

    position: int
    value: T
    run: str  # that said it
    at: datetime


@dataclass(frozen=True, slots=True)
class ConversationInfo:
    """A conversation in a list.

    Attributes:
        id: The conversation.
        messages: How many it has.
        run: The run that has it now.
        waiting: How many runs wait for it.
        created_at: When it was first entered.
        updated_at: When something was said last.

    Example:
        ```python
        info = await hf.conversation("user-42").info()
        free = info is None or info.run is None
        ```
    """

    id: str
    messages: int
    run: str | None  # that has it now
    waiting: int  # how many runs wait for it
    created_at: datetime
    updated_at: datetime  # when something was said last

    @classmethod
    def of(cls, row: ConversationRow) -> ConversationInfo:
        return cls(row.id, row.length, row.run, row.waiting, moment(row.created_at), moment(row.updated_at))


class Conversations(Base):
    """The part of a client that has to do with conversations."""

    @overload
    def conversation(self, id: str, type: type[T], /) -> Transcript[T]: ...
    @overload
    def conversation(self, id: str, type: Any = ..., /) -> Transcript[Any]: ...
    def conversation(self, id: str, type: Any = Any, /) -> Transcript[Any]:
        """Name a conversation, to be read or deleted: a `Transcript`. Nothing is looked up before it is used.

        Raises:
            BadArguments: It cannot be the id of a conversation.

        Example:
            ```python
            messages = await hf.conversation("user-42", str).messages(last=20)
            ```
        """
        return Transcript(self, checked_conversation_id(id), UNTYPED if type is Any else shape_of(type))

    async def conversations(self, *, after: str = "", limit: int = 100) -> list[ConversationInfo]:
        """List conversations in the order of their ids; `after` is the last id of the page before.

        Raises:
            BadArguments: The limit cannot be used.

        Example:
            ```python
            for info in await hf.conversations():
                print(info.id, info.messages)
            ```
        """
        return [
            ConversationInfo.of(row) for row in await self.store.conversations(after=after, limit=checked_limit(limit))
        ]


class Transcript(Generic[T]):
    """A conversation seen from outside, made by `hf.conversation`.

    Example:
        ```python
        talk = hf.conversation("user-42", str)
        texts = [message.value for message in await talk.messages()]
        ```
    """

    def __init__(self, client: Conversations, id: str, shape: Shape) -> None:
        self.id, self._client, self._shape = id, client, shape

    async def info(self) -> ConversationInfo | None:
        """Tell how long it is and which run has it; None if no run ever entered it.

        Example:
            ```python
            info = await hf.conversation("user-42").info()
            ```
        """
        found = await self._client.store.conversations(conversation=self.id)
        return ConversationInfo.of(found[0]) if found else None

    async def messages(self, *, last: int | None = None, after: int = 0, limit: int | None = None) -> list[Message[T]]:
        """Read what was said, oldest first: all of it, the `last` few, or up to `limit` after the first `after`.

        Raises:
            BadArguments: A count cannot be used, or the messages are of another type.

        Example:
            ```python
            last = await hf.conversation("user-42", str).messages(last=20)
            ```
        """
        store, info = self._client.store, await self.info()
        first, end = slice_of(info.messages if info else 0, last, after, limit)
        found = []
        for row in await store.said(self.id, first, end):
            text = await unspilled(store, row.value) or ""
            try:
                value = self._shape.load(text, f"messages[{row.position}]")
            except NotStorable as error:
                raise BadArguments(f"conversation {self.id!r} has messages of another type: {error}") from None
            found.append(Message(row.position, value, row.run, moment(row.at)))
        return found

    async def delete(self) -> int:
        """Delete it for good; returns how many messages it had.

        Raises:
            ConversationBusy: A run has it.

        Example:
            ```python
            many = await hf.conversation("user-42").delete()
            ```
        """
        author = self._client._author()
        write = self._client.store.delete_conversation(self.id, **author)
        look = f"`await hf.conversation({self.id!r}).info()` says whether it is there"
        return await self._client._written(write, look)
