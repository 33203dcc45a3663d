"""`conversation`: memory across runs. One run at a time has it; what is said in it stays, whatever becomes of the run."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, overload

from holdfast.errors import BadArguments, HoldfastError
from holdfast.runtime import (
    AddToConversation,
    Called,
    EnterConversation,
    LeaveConversation,
    ReadConversation,
    Talk,
    current,
)  # fmt: skip
from holdfast.values.codec import UNTYPED, Shape, shape_of
from holdfast.values.text import is_whole, short
from holdfast.words.model import checked_conversation_id

T = TypeVar("T")


@overload
def conversation(id: str, type: type[T], /, *, busy: Literal["wait", "refuse"] = "wait") -> Conversation[T]: ...
@overload
def conversation(id: str, type: Any = ..., /, *, busy: Literal["wait", "refuse"] = "wait") -> Conversation[Any]: ...
def conversation(id: str, type: Any = Any, /, *, busy: Literal["wait", "refuse"] = "wait") -> Conversation[Any]:
    """Name a conversation, to be entered with `async with`. While another run has it, this one waits for its turn.

    Args:
        id: The conversation, such as a customer.
        type: The type of the messages; without one they are plain data.
        busy: "wait" waits for the turn, without a worker; "refuse" raises `ConversationBusy` instead.

    Raises:
        ConversationBusy: Another run has it, and this one does not wait, or has or inherits another conversation.
        BadArguments: The id or an option cannot be used.

    Example:
        ```python
        async with holdfast.conversation("user-42", str) as talk:
            history = await talk.messages(last=20)
            await talk.add("price?", f"You have asked {len(history)} times.")
        ```
    """
    if busy not in ("wait", "refuse"):
        raise BadArguments(f"busy={busy!r}: found neither 'wait' nor 'refuse'")
    return Conversation(checked_conversation_id(id), UNTYPED if type is Any else shape_of(type), busy == "wait")


class Conversation(Generic[T]):
    """A conversation inside an agent. It is this run's from the beginning of the block to its end.

    Example:
        ```python
        async with holdfast.conversation("user-42", str) as talk:
            await talk.add("hello")
            length = len(talk)
        ```
    """

    def __init__(self, id: str, shape: Shape, wait: bool) -> None:
        self.id, self._shape, self._wait = id, shape, wait
        self._talk: Talk | None = None

    async def __aenter__(self) -> Self:
        if self._talk is not None:
            raise BadArguments("a conversation can be entered once; make a new one")
        self._talk = await current("conversation").call(EnterConversation(self.id, self._wait))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await current("conversation").call(LeaveConversation(self._entered()))

    def __len__(self) -> int:
        """Count its messages."""
        return self._entered().length

    def __bool__(self) -> bool:
        return True  # an empty one is a conversation too

    def messages(self, *, last: int | None = None, after: int = 0, limit: int | None = None) -> Called[list[T]]:
        """Read what was said, oldest first: all of it, the `last` few, or up to `limit` after the first `after`.

        Raises:
            BadArguments: A count cannot be used, or `last` was given beside the others.

        Example:
            ```python
            async with holdfast.conversation("user-42", str) as talk:
                last = await talk.messages(last=20)
            ```
        """
        length = self._entered().length
        first, end = slice_of(length, last, after, limit)
        return current("conversation.messages").call(ReadConversation(self._entered(), self._shape, first, end))

    def add(self, *messages: T) -> Called[None]:
        """Say this. Once it returns, the messages are stored, once, whatever happens to the run.

        Raises:
            NotStorable: A message is not of the conversation's type.

        Example:
            ```python
            async with holdfast.conversation("user-42", str) as talk:
                await talk.add("price?", "5 euros")
            ```
        """
        return current("conversation.add").call(AddToConversation(self._entered(), self._shape, messages))

    def _entered(self) -> Talk:
        if self._talk is None:
            raise HoldfastError(
                f"conversation {self.id!r} was not entered: write `async with holdfast.conversation({self.id!r}) as talk:`"
            )
        return self._talk


def slice_of(length: int, last: int | None, after: int, limit: int | None) -> tuple[int, int]:
    """The positions from the first to before the last that these name."""
    for name, number in (("last", last), ("after", after), ("limit", limit)):
        if number is not None and not is_whole(number, 0):
            raise BadArguments(f"{name}={short(number)}: found something else than a count of messages, 0 or more")
    if last is not None and (after or limit is not None):
        raise BadArguments("messages takes either last=, or after= and limit=")
    first = min(after, length) if last is None else max(length - last, 0)
    return first, length if limit is None else min(first + limit, length)
