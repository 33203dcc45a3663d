"""Whose turn it is in a conversation, and what is said: pieces of work in a write transaction.

`conversations.run_id` has the conversation, by `request`. Those behind it are rows of `conversation_line`; there are none
while nobody has it, for whoever leaves passes it on in the same transaction. So nobody polls, and no wake-up is lost.

No circle of waiting. A run that has a conversation, or was started by one that has, does not wait for another: if that is
taken, it is refused. Otherwise two runs that want two conversations in opposite order would wait for ever, and so would a
parent and the child that wants what its parent has.

Lock order: the rows of runs, then those of conversations, in the order of their ids, then the row of who comes next. That
one is locked with the others where it is known before (`lock_runs`); where it is not, and two transactions meet, PostgreSQL
ends one of them, and it is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.errors import ConversationBusy
from holdfast.store import audit
from holdfast.store.blobs import NAMED_BLOB, delete_blobs
from holdfast.store.contract import Enter, Leave, Say, Talking
from holdfast.store.inbox import put_signal
from holdfast.store.transaction import Asking, Count, Transaction, to_json


def converse(tx: Transaction, run: str, talking: Talking) -> Asking[bool]:
    """Do what a run does in a conversation; False when it does not have it, or it is not as the run believes."""
    if isinstance(talking, Say):
        return (yield from _say(tx, run, talking))
    if isinstance(talking, Enter):
        yield from _enter(tx, run, talking)
    else:
        yield from _leave(tx, talking)
    return True


def _enter(tx: Transaction, run: str, asked: Enter) -> Asking[None]:
    which = {"conversation": asked.conversation, "run": run, "request": asked.request}
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


def _tell(tx: Transaction, run: str, asked: Enter, length: int) -> Asking[bool]:
    """The conversation is this run's: it hears so once. False if there is no such run any more."""
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
    for digest, content in say.blobs.items():
        yield from tx.rows("insert_blob", digest=digest, content=content)
    rows = [[say.conversation, say.first + n, text, run, tx.now] for n, text in enumerate(say.texts)]
    yield Count("insert_message", rows)
    return True


def _leave(tx: Transaction, left: Leave) -> Asking[None]:
    """Pass the conversation on to whoever has waited longest, or go out of the line."""
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
    """These runs have ended: what they had or waited for is for others."""
    for conversation, request in (yield from tx.rows("conversations_of", ids=to_json(list(runs)))):
        yield from _leave(tx, Leave(conversation, request))


def delete_conversation(conversation: str, by: str, via: str) -> Callable[[Transaction], Asking[int]]:
    """Delete all that was said, and the large values that nothing else names."""

    def work(tx: Transaction) -> Asking[int]:
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
        yield from audit.note(
            tx, "", by, via, "delete_conversation", {"conversation": conversation, "messages": length}
        )
        return length

    return work
