"""The part of the contract with a database that has to do with conversations: what was said, and whose turn it is.

What is said in a conversation is numbered from 0 and never changes. One run at a time has the conversation and may add to
it; others stand in line, in the order in which they asked. Asking, adding and leaving are written with the events that
record them. Who asks is told by a signal to its inbox, at once or when its turn has come, so it waits as for a message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class Enter:
    """A run asks for a conversation. `request` names this asking; the answer is a signal with that topic."""

    conversation: str
    request: str
    key: str | None
    wait: bool  # in line, if another run has it


@dataclass(slots=True)
class Say:
    """Messages of the run that has the conversation by this request, to stand at `first` and after it."""

    conversation: str
    request: str
    first: int
    texts: list[str]  # large ones name blobs
    blobs: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Leave:
    """The run needs the conversation no longer, or does not wait for it any more."""

    conversation: str
    request: str


Talking = Enter | Say | Leave


@dataclass(frozen=True, slots=True)
class MessageRow:
    """Something that was said."""

    position: int
    value: str
    run: str
    at: int


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation as the store keeps it."""

    id: str
    length: int
    run: str | None  # who has it
    waiting: int  # how many runs stand in line
    created_at: int
    updated_at: int  # when something was said last


class ConversationStore(Protocol):
    """Where conversations are kept. They belong to no run: deleting and pruning runs leaves them alone."""

    async def said(self, conversation: str, first: int, end: int) -> list[MessageRow]:
        """The messages at these positions, as far as they are there, in order."""
        ...

    async def conversations(
        self, *, conversation: str | None = None, after: str = "", limit: int = 100
    ) -> list[ConversationRow]:
        """Conversations in the order of their ids, after one; or the one that is named."""
        ...

    async def delete_conversation(self, conversation: str, *, by: str = "", via: str = "") -> int:
        """Delete a conversation with all that was said in it; returns how much. `ConversationBusy` if a run has it."""
        ...
