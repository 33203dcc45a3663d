"""Conversations of runs on Temporal: they lie in the database beside the cluster. `store/conversations.py` has the rules.

What a run does in one is an activity of its workflow, done until it is known to be done. There is no inbox in that
database that a run would look into, so the run that asked is told by the answer, and the next run in line by a signal
to its workflow.

Crash points. A conversation that is passed on belongs to the next run from that commit on, and the line keeps its place until it
was told. So a run that does the same again, because its answer was lost, finds which run to tell. A run hears of one
request once. A run that an operator has ended leaves nothing; a run that comes to stand in line behind it finds that,
and leaves for it.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.errors import LeaseLost
from holdfast.store.blobs import insert_blobs, spilled
from holdfast.store.conversations import Enter, Leave, Say, Talking
from holdfast.store.store import Store
from holdfast.store.work import Asking, Count, Transaction, rows, to_json

Said = dict[str, Any]  # a signal, as a workflow takes it
Tell = Callable[[str, Said], Awaitable[bool]]  # a run; False: it has ended
_ROUNDS: Final = 1_000  # runs that were next in line and are gone


def asked_of(talking: Talking, whole: Callable[[str, Mapping[str, bytes]], str]) -> dict[str, Any]:
    """Tell what a run does, as it travels."""
    asked: dict[str, Any] = {"conversation": talking.conversation, "request": talking.request}
    if isinstance(talking, Enter):
        return asked | {"do": "enter", "key": talking.key, "wait": talking.wait}
    if isinstance(talking, Say):
        return asked | {
            "do": "say",
            "first": talking.first,
            "texts": [whole(text, talking.blobs) for text in talking.texts],
        }
    return asked | {"do": "leave"}


async def talk(store: Store, run: str, above: Sequence[str], asked: Mapping[str, Any], tell: Tell) -> Said | None:
    """Do what a run does in a conversation; returns what it is told at once, if it is. `above`: the runs it was started by."""
    conversation, request = asked["conversation"], asked["request"]
    if asked["do"] == "say":
        await store._submit(_Saying(run, conversation, request, asked["first"], asked["texts"]))
        return None
    if asked["do"] == "enter":
        work = _Entering(run, tuple(above), Enter(conversation, request, asked["key"], asked["wait"]))
        said = await store._submit(work)
        (there,) = await store.conversations(conversation=conversation)
        if there.run in (None, run) or await tell(there.run, {"id": "", "kind": ""}):
            return said
        await leave_all(store, there.run, tell)
        return await store._submit(work)
    await leave(store, Leave(conversation, request), tell)
    return None


async def leave(store: Store, left: Leave, tell: Tell) -> None:
    """Pass a conversation on, and tell the run that has it now."""
    for _ in range(_ROUNDS):
        found = await store._submit(_Leaving(left))
        if found is None:
            return
        run, said = found
        its = {"conversation": left.conversation, "request": said["topic"]}
        if await tell(run, said):
            await store._submit(functools.partial(Transaction.rows, query="leave_line", **its))
            return
        left = Leave(**its)  # it has ended, and needs it no longer


async def whole(store: Store, text: str) -> str:
    """A message that may name a large value, as it is."""
    return (await store.blob(text[10:74])).decode() if text.startswith('{"$blob":') else text


async def leave_all(store: Store, run: str, tell: Tell) -> None:
    """Leave all that a run which ends has, or waits for."""
    for conversation, request in await store._read(rows, "conversations_of", ids=to_json([run])):
        await leave(store, Leave(conversation, request), tell)


def _entered(asked: Enter, length: int) -> Said:
    data = {"conversation": asked.conversation, "key": asked.key, "length": length}
    return {"id": f"conversation:{asked.request}", "kind": "conversation.entered", "topic": asked.request, "data": data}


@dataclass(frozen=True, slots=True)
class _Entering:
    run: str
    above: Sequence[str]
    asked: Enter

    def __call__(self, tx: Transaction) -> Asking[Said | None]:
        asked, run = self.asked, self.run
        which = {"conversation": asked.conversation, "run": run, "request": asked.request}
        owner, length = yield from tx.row("enter_conversation", **which)
        if owner == run:
            return _entered(asked, length)
        has = [conversation for (conversation,) in (yield from tx.rows("conversations_held", run=run))]
        has += [
            conversation for conversation, _ in (yield from tx.rows("conversations_of", ids=to_json(list(self.above))))
        ]
        if asked.wait and not has:
            yield from tx.rows("stand_in_line", key=asked.key, **which)
            return None
        data = {"conversation": asked.conversation, "key": asked.key, "by": owner, "has": min(has, default=None)}
        return {
            "id": f"conversation:{asked.request}",
            "kind": "conversation.refused",
            "topic": asked.request,
            "data": data,
        }


@dataclass(frozen=True, slots=True)
class _Saying:
    run: str
    conversation: str
    request: str
    first: int
    texts: Sequence[str]

    def __call__(self, tx: Transaction) -> Asking[None]:
        if not self.texts:
            return
        end, messages, large = self.first + len(self.texts), [], dict[str, bytes]()
        for position, text in enumerate(self.texts, self.first):
            stored, blobs = spilled(text)
            large |= blobs
            messages.append([self.conversation, position, stored, self.run, tx.now])
        which = {"conversation": self.conversation, "request": self.request, "first": self.first, "end": end}
        if (yield from tx.row("lengthen", **which)) is None:
            there = yield from tx.rows("said", conversation=self.conversation, first=self.first, end=end)
            if [[self.conversation, *row[:3]] for row in there] != [message[:4] for message in messages]:
                raise LeaseLost(f"run {self.run!r} does not have conversation {self.conversation!r} any more")
            return  # our own, whose answer was lost
        yield from insert_blobs(tx, large)
        yield Count("insert_message", messages)


@dataclass(frozen=True, slots=True)
class _Leaving:
    left: Leave

    def __call__(self, tx: Transaction) -> Asking[tuple[str, Said] | None]:
        """Returns the run that has it now and may not know, and what to tell it."""
        conversation = self.left.conversation
        held = yield from tx.row("hold_conversation", conversation=conversation)
        yield from tx.rows("leave_line", conversation=conversation, request=self.left.request)
        if held is None:
            return None
        request, length, _ = held
        following = yield from tx.row("next_in_line", conversation=conversation)
        if request == self.left.request:
            run, its = (None, None) if following is None else following[:2]
            yield from tx.rows("pass_on", conversation=conversation, run=run, request=its)
        elif following is None or following[1] != request:
            return None  # the run that has it knows, or has it since before
        if following is None:
            return None
        return following[0], _entered(Enter(conversation, following[1], following[2], True), length)
