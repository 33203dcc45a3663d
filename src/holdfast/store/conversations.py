"""Conversations: what was said, and which run may add to it.

What is said in a conversation is numbered from 0 and never changes. One run at a time has the conversation and may add to
it; others stand in line, in the order in which they asked. Asking, adding and leaving are written with the appends that
record them. A run that asked is told by a signal to its inbox, at once or when its turn has come, so it waits as for a
message.

`conversations.run_id` has the conversation, by `request`. The runs in line behind it are rows of `conversation_line`;
there are none while no run has it, because a run that leaves passes it on in the same transaction. So no run polls, and
no wake-up is lost.

No circle of waiting. A run that has a conversation, or was started by one that has or waits for one, does not wait for another:
if that is taken, it is refused. Otherwise two runs that want two conversations in opposite order would wait for ever, and so
would a parent and the child that wants what its parent has. A child that waits has asked before its parent did, and a
run that has a conversation asked before the runs that wait for it: around a circle each would have asked before itself.

Lock order: the rows of runs, then those of conversations, in the order of their ids, then the row of the run that comes
next. That one is locked with the others where it is known before (`lock_runs`); where it is not, and two transactions meet,
PostgreSQL ends one of them, and it is done again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.errors import ConversationBusy
from holdfast.store import audit
from holdfast.store.blobs import NAMED_BLOB, delete_blobs, insert_blobs, spilled
from holdfast.store.inbox import put_signal
from holdfast.store.work import Asking, Count, Feature, Transaction, rows, to_json
from holdfast.values.codec import hashed

_SAID_AT_A_GLANCE: Final = 50  # messages


# A conversation, as of when (None: now) and how long it was at the most.
Copied = tuple[str, int | None, int | None]


def copy_of(conversation: str, run: str) -> str:
    """Name the copy that a fork has of a conversation."""
    name = f"{conversation}@{run}"
    return name if len(name) <= 200 else f"{conversation[:100]}@{hashed(name)}"


@dataclass(slots=True)
class Enter:
    """A run asks for a conversation. `request` names this asking; the answer is a signal with that topic."""

    conversation: str
    request: str
    key: str | None
    wait: bool  # in line, if another run has it
    copied: Sequence[Copied] | None = (
        None  # if there is no such conversation yet: what it is made of, the first that is there
    )


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
    """A message of a conversation."""

    position: int
    value: str
    run: str
    at: int


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation as the store keeps it."""

    id: str
    length: int
    run: str | None  # that has it
    waiting: int  # how many runs stand in line
    created_at: int
    updated_at: int  # when something was said last


class Conversations(Feature):
    """Conversations, read and deleted. They belong to no run: deleting and pruning runs leaves them alone."""

    async def said(self, conversation: str, first: int, end: int) -> list[MessageRow]:
        """Read the messages at these positions, as far as they are there, in order."""
        read = self._glance if end - first <= _SAID_AT_A_GLANCE else self._read
        found = await read(rows, "said", conversation=conversation, first=first, end=end)
        return [MessageRow(*row) for row in found]

    async def conversations(
        self, *, conversation: str | None = None, after: str = "", limit: int = 100
    ) -> list[ConversationRow]:
        """Read conversations in the order of their ids, after one; or the one that is named."""
        if conversation is None:
            found = await self._read(rows, "conversations", after=after, limit=limit)
        else:
            found = await self._glance(rows, "conversation", conversation=conversation)
        return [ConversationRow(*row) for row in found]

    async def conversations_held(self, run: str) -> list[str]:
        """List the conversations that a run has."""
        return [conversation for (conversation,) in await self._glance(rows, "conversations_held", run=run)]

    async def fill_conversation(self, conversation: str, said: list[tuple[str, str, int]]) -> None:
        """Begin a conversation that is not there yet with what was said elsewhere: texts, each with its run and its time."""
        await self._submit(lambda tx: _fill(tx, conversation, said))

    async def delete_conversation(self, conversation: str, *, by: str = "", via: str = "") -> int:
        """Delete a conversation with all that was said in it, and the large values that nothing else names.

        Returns how many messages that was. `ConversationBusy` if a run has it.
        """
        return await self._submit(lambda tx: _delete(tx, conversation, by, via))


def converse(tx: Transaction, run: str, talking: Talking) -> Asking[bool]:
    """Do what a run does in a conversation; False if the run does not have it, or it is not as the run believes."""
    if isinstance(talking, Say):
        return (yield from _say(tx, run, talking))
    if isinstance(talking, Enter):
        yield from enter(tx, run, talking)
    else:
        yield from _leave(tx, talking)
    return True


def enter(tx: Transaction, run: str, asked: Enter) -> Asking[None]:
    """Take a conversation for a run, or let the run stand in line, or refuse it; the run is told by a signal."""
    which = {"conversation": asked.conversation, "run": run, "request": asked.request}
    if asked.copied:
        yield from _copy(tx, asked.conversation, asked.copied)
    owner, length = yield from tx.row("enter_conversation", **which)
    if owner == run:
        yield from _tell(tx, run, asked, length)
        return
    above = yield from tx.row("conversations_above", run=run)
    if asked.wait and above is None:
        yield from tx.rows("stand_in_line", key=asked.key, **which)
        return
    data = {"conversation": asked.conversation, "key": asked.key, "by": owner, "has": above and above[0]}
    yield from put_signal(tx, run, _signal(asked.request), "conversation.refused", asked.request, None, data)


def _copy(tx: Transaction, conversation: str, copied: Sequence[Copied]) -> Asking[None]:
    """Make the conversation of a fork, unless it is there: a copy of the first of these that is, as it was then."""
    if (yield from tx.row("conversation", conversation=conversation)) is not None:
        return
    for base, as_of, most in copied:
        held = yield from tx.row("hold_conversation", conversation=base)  # or it might be deleted while it is read
        if held is None:
            continue
        length = held[1]
        if as_of is not None:
            ((length,),) = yield from tx.rows("said_by", conversation=base, before=as_of)
        length = length if most is None else min(length, most)
        yield from tx.rows("insert_conversation", conversation=conversation, end=length)
        yield from tx.rows("copy_messages", conversation=conversation, name=base, end=length)
        return


def _tell(tx: Transaction, run: str, asked: Enter, length: int) -> Asking[bool]:
    """Tell a run, once, that the conversation is its own. False if there is no such run any more."""
    signal = _signal(asked.request)
    if (yield from tx.row("signal_position", run=run, signal_id=signal)) is not None:
        return True
    data = {"conversation": asked.conversation, "key": asked.key, "length": length}
    told = yield from put_signal(tx, run, signal, "conversation.entered", asked.request, None, data)
    return told is not None


def _signal(request: str) -> str:
    return f"conversation:{request}"


def _say(tx: Transaction, run: str, say: Say) -> Asking[bool]:
    if not say.texts:
        return True
    end = say.first + len(say.texts)
    which = {"conversation": say.conversation, "request": say.request, "first": say.first, "end": end}
    if (yield from tx.row("lengthen", **which)) is None:
        return False
    yield from insert_blobs(tx, say.blobs)
    messages = [[say.conversation, say.first + n, text, run, tx.now] for n, text in enumerate(say.texts)]
    yield Count("insert_message", messages)
    return True


def _leave(tx: Transaction, left: Leave) -> Asking[None]:
    """Pass the conversation on to the run that has waited longest, or go out of the line."""
    held = yield from tx.row("hold_conversation", conversation=left.conversation)
    if held is None or held[0] != left.request:
        yield from tx.rows("leave_line", conversation=left.conversation, request=left.request)
        return
    while True:
        found = yield from tx.row("next_in_line", conversation=left.conversation)
        run, request, key = found or (None, None, None)
        yield from tx.rows("pass_on", conversation=left.conversation, run=run, request=request)
        if run is None or request is None:
            return
        yield from tx.rows("leave_line", conversation=left.conversation, request=request)
        if (yield from _tell(tx, run, Enter(left.conversation, request, key, True), held[1])):
            return


def leave_all(tx: Transaction, runs: Iterable[str]) -> Asking[None]:
    """Leave what these runs, which have ended, had or waited for."""
    for conversation, request in (yield from tx.rows("conversations_of", ids=to_json(list(runs)))):
        yield from _leave(tx, Leave(conversation, request))


def _fill(tx: Transaction, conversation: str, said: list[tuple[str, str, int]]) -> Asking[None]:
    _, length = yield from tx.row("enter_conversation", conversation=conversation, run="", request="")
    if length == 0 and said:
        yield from tx.rows("lengthen", conversation=conversation, request="", first=0, end=len(said))
        messages = []
        for position, (text, run, at) in enumerate(said):
            stored, blobs = spilled(text)
            yield from insert_blobs(tx, blobs)
            messages.append([conversation, position, stored, run, at])
        yield Count("insert_message", messages)
    yield from tx.rows("pass_on", conversation=conversation, run=None, request=None)


def _delete(tx: Transaction, conversation: str, by: str, via: str) -> Asking[int]:
    held = yield from tx.row("hold_conversation", conversation=conversation)
    if held is None:
        return 0
    if held[0] is not None:
        raise ConversationBusy(
            f"conversation {conversation!r} cannot be deleted while run {held[2]!r} has it; cancel the run, or wait for "
            "its end",
            conversation=conversation,
            run=held[2],
        )
    digests: set[str] = set()
    for (text,) in (yield from tx.rows("blobs_said", conversation=conversation)):
        digests.update(NAMED_BLOB.findall(text))
    yield from tx.rows("delete_messages", conversation=conversation)
    yield from tx.rows("delete_conversation", conversation=conversation)
    yield from delete_blobs(tx, digests)
    length: int = held[1]
    yield from audit.note(tx, "", by, via, "delete_conversation", {"conversation": conversation, "messages": length})
    return length
