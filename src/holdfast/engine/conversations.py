"""Conversations: memory that outlives runs. What was said is in the store once; a journal holds only which part was read.

To enter is to ask the store (`conversation.asked`), whose answer is a signal to this run, at once or when its turn has come;
so it waits as for a message, and may leave memory. From then on nobody else adds to the conversation, so the run knows how
long it is, and every slice it names is fixed. What it adds is written with the event that says so.

Messages never change. A read is recorded as positions and a digest, and when the run is loaded the messages are read again
(`recollect`), before its code runs: replay waits for no database.

A run that failed has left its conversations. When it is retried from inside one, it stands in line again (`regain`), and what
it adds comes after all that was said meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

from holdfast.engine.calls import Call, Wait, tagged
from holdfast.engine.divergence import pause, unfit
from holdfast.errors import ConversationBusy, NotStorable, Suspended
from holdfast.runtime import Placed
from holdfast.store.blobs import spilled, unspilled
from holdfast.store.contract import EngineStore
from holdfast.store.conversations import Enter, Leave, Say
from holdfast.values.codec import Shape, digest, hashed
from holdfast.words.model import Event

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution


class Talk:
    """A conversation that this run has, or asks for."""

    __slots__ = ("_execution", "_kept", "conversation", "entered", "held", "left", "length", "request", "said")

    def __init__(self, execution: Execution, conversation: str) -> None:
        self._execution, self.conversation, self.request = execution, conversation, ""
        self.entered = -1  # where the journal says so
        self.length = 0  # messages, as far as the agent has seen
        self.said = 0  # and those on their way
        self.held = self.left = False
        self._kept: list[Callable[[], None]] = []

    def taken(self, event: Event) -> None:
        """The conversation is this run's, from where this says so."""
        self.request, self.entered = event.data["request"], event.seq
        self.length = self.said = event.data["length"]
        self.held = True
        self._execution.waits.pop(_waiting(self.conversation), None)
        kept, self._kept = self._kept, []
        with Placed(None):
            for write in kept:
                write()

    def once_held(self, write: Callable[[], None]) -> None:
        """Write this now, or when the run has the conversation again."""
        if self.held:
            write()
        else:
            self._kept.append(write)

    def regain(self, retried: int) -> None:
        """Stand in line again. Whoever repeats this asks by the same request, which the store answers once."""
        self.held = False
        request = f"c-{self._execution.derived(f'{self.conversation}:{retried}')[:16]}"
        self._execution.waits[_waiting(self.conversation)] = Wait("conversation", None, f"conversation:{request}")
        data = {"conversation": self.conversation, "request": request, "again": True}
        enter = Enter(self.conversation, request, None, True)
        self._execution.record("conversation.asked", None, data, talks=[enter])


def _waiting(conversation: str) -> str:
    return f"conversation:{conversation}"


class EnterCall(Call):
    """Waits until the conversation is this run's."""

    of = "conversation"
    __slots__ = ("_requests", "_talk", "_waits")

    def prepare(self, talk: Talk, waits: bool) -> None:
        self._talk, self._waits = talk, waits
        self._requests: list[str] = []

    def wait(self) -> Generator[Any, Any, Any]:
        execution = self.execution
        self.ask()
        if execution.closing:
            yield from execution.refusal()
        if not self.begun:
            for asked in self._asked():
                self._listen(asked.data["request"])
        try:
            event = yield from execution.rest(self)
        except asyncio.CancelledError:
            for request in self._requests:
                execution.mailbox.forget("conversation", request, self.future)
            execution.mailbox.talks.pop(self._talk.conversation, None)
            execution.withdraw(self)
            raise
        finally:
            execution.drop(self)
        return self.read(event)

    def _asked(self) -> list[Event]:
        return [event for event in self.past() if event.kind == "conversation.asked"]

    def _listen(self, request: str) -> None:
        self._requests.append(request)
        self.execution.mailbox.wait("conversation", request, self.future)

    def begin(self) -> None:
        execution, conversation = self.execution, self._talk.conversation
        # A run that has failed since does not stand in line any more.
        asked = [event.data["request"] for event in self._asked() if event.seq > execution.journal.retried]
        request = asked[-1] if asked else f"c-{execution.derived(f'{self.key}:{execution.next_seq}')[:16]}"
        execution.waits[self.key] = Wait("conversation", None, f"conversation:{request}")
        if not asked:
            self._listen(request)
            enter = Enter(conversation, request, self.key, self._waits)
            data = self.facts(conversation=conversation, request=request)
            execution.record("conversation.asked", self.key, data, talks=[enter])

    def read(self, event: Event) -> Talk:
        talk, data = self._talk, event.data
        if event.kind == "conversation.entered":
            talk.taken(event)
            return talk
        self.execution.mailbox.talks.pop(talk.conversation, None)
        reason = f"conversation {talk.conversation!r} is taken by run {data['by']!r}"
        advice = "; enter it with busy='wait', or later"
        if data["has"] is not None:
            advice = (
                f", and a run that has a conversation (here {data['has']!r}), or was started by one that has, does not wait "
                "for another: two of them could wait for each other for ever. Leave the first one before, or try again later"
            )
        raise tagged(
            ConversationBusy(reason + advice, conversation=talk.conversation, run=data["by"]), self.key, event.seq
        )

    def abandon(self) -> None:
        self.execution.waits.pop(self.key, None)
        withdraw(self.execution, self.key, self._talk.conversation, self._requests[-1])

    def forsake(self) -> None:
        past = self.past()
        if past and past[-1].kind == "conversation.asked":
            unwanted = (self.key, self._talk.conversation, past[-1].data["request"])
            self.execution.mailbox.unwanted = (*self.execution.mailbox.unwanted, unwanted)


class ReadCall(Call):
    """Reads a slice of what was said."""

    of = "conversation"
    __slots__ = ("_end", "_first", "_shape", "_talk", "_texts")

    def prepare(self, talk: Talk, shape: Shape, first: int, end: int) -> None:
        self._talk, self._shape, self._first, self._end = talk, shape, first, end
        self._texts: list[str] | None = None

    def begin(self) -> None:
        _ = self.execution.start_driver(self._fetch)

    async def _fetch(self) -> None:
        conversation = self._talk.conversation
        found = await _texts(self.execution.store, conversation, self._first, self._end)
        self._texts = list(found.values())
        if not self.withdrawn:
            self.numbered = True
            where = {"conversation": conversation, "first": self._first, "end": self._end}
            self.execution.record("conversation.read", self.key, self.facts(**where, hash=_hash(self._texts)))

    def read(self, event: Event) -> list[Any]:
        conversation, texts, known = self._talk.conversation, self._texts, self.execution.texts
        if texts is None:
            places = [_place(conversation, position) for position in range(self._first, self._end)]
            texts = [known[place] for place in places if place in known]
        if _hash(texts) != event.data["hash"]:
            self._stop("what it has read there is not in the store any more: the conversation was deleted meanwhile. It cannot "
                       "go on; start another run")  # fmt: skip
        try:
            return [self._shape.load(text, f"messages[{n}]") for n, text in enumerate(texts, self._first)]
        except NotStorable as error:
            unfit(
                self.execution,
                f"run {self.execution.run.id!r}: conversation {conversation!r}: what was said there does not fit its type: "
                f"{error}. Name the type it was added with, or give new fields a default, then resume the run",
            )
            raise Suspended from None

    def _stop(self, why: str) -> None:
        run, conversation = self.execution.run.id, self._talk.conversation
        pause(self.execution, f"run {run!r}: conversation {conversation!r}: {why}")
        raise Suspended


class AddCall(Call):
    """Adds messages, in one transaction with the event that says so."""

    of = "conversation"
    __slots__ = ("_talk", "_texts", "_thin", "_varies")

    def prepare(self, talk: Talk, texts: list[str], varies: bool, thin: str) -> None:
        self._talk, self._texts, self._varies, self._thin = talk, texts, varies, thin

    def weigh(self) -> str:
        return digest(f"[{','.join(self._texts)}]")

    def thin(self) -> str:
        return self._thin

    def begin(self) -> None:
        self._talk.once_held(self._write)

    def _write(self) -> None:
        if self.withdrawn:
            return
        self.numbered = True
        talk = self._talk
        self.whole = self.weigh() if self._varies else ""
        self.lean = "" if self._thin == self.digest else self._thin
        say = Say(talk.conversation, talk.request, talk.said, [])
        for text in self._texts:
            kept, blobs = spilled(text)
            say.texts.append(kept)
            say.blobs.update(blobs)
        talk.said += len(say.texts)
        where = {"conversation": talk.conversation, "first": say.first, "end": talk.said}
        self.execution.record("conversation.added", self.key, self.facts(**where), talks=[say])

    def settle(self, event: Event) -> None:
        self._talk.length = event.data["end"]
        self._talk.said = max(self._talk.said, event.data["end"])
        super().settle(event)


class LeaveCall(Call):
    """Gives the conversation to the next."""

    of = "conversation"
    __slots__ = ("_talk",)

    def prepare(self, talk: Talk) -> None:
        self._talk, talk.left = talk, True

    def wait(self) -> Generator[Any, Any, Any]:
        try:
            return (yield from super().wait())
        except asyncio.CancelledError:
            self._gone()  # it is left all the same; nobody waits to hear so
            raise

    def forsake(self) -> None:
        left = (self.key, self._talk.conversation, self._talk.request)
        self.execution.mailbox.unwanted = (*self.execution.mailbox.unwanted, left)

    def _gone(self) -> None:
        talks = self.execution.mailbox.talks
        if talks.get(self._talk.conversation) is self._talk:  # else it was entered again meanwhile
            del talks[self._talk.conversation]

    def begin(self) -> None:
        self._talk.once_held(self._write)

    def _write(self) -> None:
        self.numbered = True
        talk = self._talk
        leave = Leave(talk.conversation, talk.request)
        self.execution.record("conversation.left", self.key, self.facts(conversation=talk.conversation), talks=[leave])

    def settle(self, event: Event) -> None:
        self._gone()
        super().settle(event)


def withdraw(execution: Execution, key: str, conversation: str, request: str) -> None:
    """Nobody waits for this conversation any more: out of the line, or on to the next."""
    data = {"conversation": conversation, "request": request}
    execution.record("conversation.withdrawn", key, data, talks=[Leave(conversation, request)])


def go_live(execution: Execution) -> None:
    """What an earlier life asked for and this one was seen not to wait for is given up; what was lost is asked for again."""
    unwanted, execution.mailbox.unwanted = execution.mailbox.unwanted, ()
    for asked in unwanted:
        withdraw(execution, *asked)
    for talk in execution.mailbox.talks.values():
        if 0 <= talk.entered < execution.journal.retried:
            talk.regain(execution.journal.retried)


# Reading again what was read before


async def recollect(store: EngineStore, events: Iterable[Event]) -> dict[str, str]:
    """The messages that these events say were read, by their places. Each is read once, however often the run read it."""
    read: dict[str, list[tuple[int, int]]] = {}
    for event in events:
        if event.kind == "conversation.read":
            read.setdefault(event.data["conversation"], []).append((event.data["first"], event.data["end"]))
    found: dict[str, str] = {}
    for conversation, slices in read.items():
        for first, end in joined(slices):
            found.update(await _texts(store, conversation, first, end))
    return found


def joined(slices: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same positions in as few slices as possible."""
    made: list[tuple[int, int]] = []
    for first, end in sorted(slices):
        if made and first <= made[-1][1]:
            made[-1] = made[-1][0], max(made[-1][1], end)
        else:
            made.append((first, end))
    return made


async def _texts(store: EngineStore, conversation: str, first: int, end: int) -> dict[str, str]:
    rows = await store.said(conversation, first, end) if first < end else []
    return {_place(conversation, row.position): await unspilled(store, row.value) or "" for row in rows}


def _place(conversation: str, position: int) -> str:
    """A name among the texts of a run, whose others are named by digests."""
    return f"{position}@{conversation}"


def _hash(texts: list[str]) -> str:
    return hashed("\n".join(texts))
