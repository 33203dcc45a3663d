"""Conversations: memory that outlives runs. What was said is in the store once; a journal holds only which part was read.

To enter is to ask the store (`conversation.asked`), whose answer is a signal to this run, at once or when its turn has come;
so it waits as for a message, and may leave memory. From then on nobody else adds to the conversation, so the run knows how
long it is, and every slice it names is fixed. What it adds is written with the event that says so.

Messages never change. A read is recorded as positions and a digest, and when the run is loaded the messages are read again
(`recollect`), before its code runs: replay waits for no database.

A run that failed has left its conversations. When it is retried from inside one, it stands in line again (`Talks.rejoin`) and
begins nothing until it has its turn; what it adds comes after all that was said meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from typing import Any

from holdfast.engine.attempt import Call, Site, tagged
from holdfast.engine.parking import Wait
from holdfast.engine.talks import Talk, busy
from holdfast.errors import HoldfastError, NotStorable, Suspended
from holdfast.runtime import AddToConversation, EnterConversation, LeaveConversation, ReadConversation
from holdfast.store.blobs import spilled, unspilled
from holdfast.store.contract import EngineStore
from holdfast.store.conversations import Enter, Leave, Say
from holdfast.values.codec import digest, hashed, preview
from holdfast.words.model import Event


def _inside(talk: Talk) -> Talk:
    if talk.left:
        raise HoldfastError(f"conversation {talk.conversation!r} was left; what belongs to it goes inside its block")
    return talk


class EnterCall(Call):
    """Waits until the conversation is this run's."""

    of = "conversation"
    __slots__ = ("_requests", "_talk", "_waits")

    def __init__(self, site: Site, request: EnterConversation) -> None:
        talks, conversation, label = site.attempt.talks, request.conversation, ":conversation"
        if conversation in talks.open:
            raise HoldfastError(
                f"this run has conversation {conversation!r}, or waits for it, already; hand on the one that was entered"
            )
        self._talk, self._waits = talks.enter(conversation), request.wait
        super().__init__(site.attempt, site.key(label), label, digest(f'"{conversation}"'), conversation)
        self._requests: list[str] = []

    def wait(self) -> Generator[Any, Any, Any]:
        attempt = self.attempt
        self.ask()
        if attempt.life.closing:
            yield from attempt.tasks.refusal()
        if not self.begun:
            for asked in self._asked():
                self._listen(asked.data["request"])
        try:
            event = yield from attempt.rest(self)
        except asyncio.CancelledError:
            for request in self._requests:
                attempt.inbox.mailbox.forget("conversation", request, self.future)
            attempt.talks.open.pop(self._talk.conversation, None)
            attempt.withdraw(self)
            raise
        finally:
            attempt.drop(self)
        return self.read(event)

    def _asked(self) -> list[Event]:
        return [event for event in self.past() if event.kind == "conversation.asked"]

    def _listen(self, request: str) -> None:
        self._requests.append(request)
        self.attempt.inbox.mailbox.wait("conversation", request, self.future)

    def begin(self) -> None:
        attempt, conversation = self.attempt, self._talk.conversation
        # A run that has failed since does not stand in line any more.
        asked = [event.data["request"] for event in self._asked() if event.seq > attempt.journal.retried]
        request = asked[-1] if asked else f"c-{attempt.identity.derived(f'{self.key}:{attempt.pen.next_seq}')[:16]}"
        attempt.parking.waits[self.key] = Wait("conversation", None, f"conversation:{request}")
        if not asked:
            self._listen(request)
            former = attempt.kept.former
            where, copied = (
                attempt.talks.where(conversation),
                attempt.talks.copied(conversation, former.said if former else {}),
            )
            enter = Enter(where, request, self.key, self._waits, copied)
            data = self.facts(conversation=where, request=request)
            attempt.pen.record("conversation.asked", self.key, data, talks=[enter])

    def read(self, event: Event) -> Talk:
        talk = self._talk
        if event.kind == "conversation.entered":
            talk.taken(event)
            return talk
        self.attempt.talks.open.pop(talk.conversation, None)
        raise tagged(busy(talk.conversation, event), self.key, event.seq)

    def abandon(self) -> None:
        self.attempt.parking.waits.pop(self.key, None)
        self.attempt.talks.withdraw(self.key, self.attempt.talks.where(self._talk.conversation), self._requests[-1])

    def forsake(self) -> None:
        past = self.past()
        if past and past[-1].kind == "conversation.asked":
            self.attempt.talks.forsake(self.key, past[-1].data["conversation"], past[-1].data["request"])


class ReadCall(Call):
    """Reads a slice of what was said."""

    of = "conversation"
    __slots__ = ("_end", "_first", "_shape", "_talk", "_texts")

    def __init__(self, site: Site, request: ReadConversation) -> None:
        talk, first, end = _inside(request.talk), request.first, request.end
        label, what = ":conversation.messages", f'{{"first": {first}, "end": {end}}}'
        super().__init__(site.attempt, site.key(label), label, digest(f'["{talk.conversation}", {what}]'), what)
        self._talk, self._shape, self._first, self._end = talk, request.shape, first, end
        self._texts: list[str] | None = None

    def begin(self) -> None:
        _ = self.attempt.bodies.start(self._fetch)

    async def _fetch(self) -> None:
        conversation = self._talk.where
        found = await _texts(self.attempt.host.store, conversation, self._first, self._end)
        self._texts = list(found.values())
        if not self.withdrawn:
            self.numbered = True
            where = {"conversation": conversation, "first": self._first, "end": self._end}
            self.attempt.pen.record("conversation.read", self.key, self.facts(**where, hash=_hash(self._texts)))

    def read(self, event: Event) -> list[Any]:
        conversation, texts, known = event.data["conversation"], self._texts, self.attempt.pen.texts
        if texts is None:
            places = [_place(conversation, position) for position in range(self._first, self._end)]
            texts = [known[place] for place in places if place in known]
        if _hash(texts) != event.data["hash"]:
            self._stop("what it has read there is not in the store any more: the conversation was deleted meanwhile. It cannot "
                       "go on; start another run")  # fmt: skip
        try:
            return [self._shape.load(text, f"messages[{n}]") for n, text in enumerate(texts, self._first)]
        except NotStorable as error:
            self.attempt.life.does_not_fit(
                f"run {self.attempt.run.id!r}: conversation {conversation!r}: what was said there does not fit its type: "
                f"{error}. Name the type it was added with, or give new fields a default, then resume the run"
            )
            raise Suspended from None

    def _stop(self, why: str) -> None:
        run, conversation = self.attempt.run.id, self._talk.conversation
        self.attempt.pause(f"run {run!r}: conversation {conversation!r}: {why}")
        raise Suspended


class AddCall(Call):
    """Adds messages, in one transaction with the event that says so."""

    of = "conversation"
    __slots__ = ("_talk", "_texts", "_thin", "_varies")

    def __init__(self, site: Site, request: AddToConversation) -> None:
        talk, shape = _inside(request.talk), request.shape
        said = [(each, f"messages[{n}]") for n, each in enumerate(request.messages)]
        texts = [site.attempt.pen.stored(shape, each, where)[0] for each, where in said]
        named = [shape.identity(each, where) for each, where in said]
        label, what = ":conversation.add", digest(f"[{','.join(named)}]")
        super().__init__(site.attempt, site.key(label), label, what, preview(texts[-1]) if texts else "")
        self._talk, self._texts, self._varies, self._thin = talk, texts, texts != named, what
        if shape.telling:
            self._thin = digest(f"[{','.join(shape.lean(each, where) for each, where in said)}]")

    def weigh(self) -> str:
        return digest(f"[{','.join(self._texts)}]")

    def thin(self) -> str:
        return self._thin

    def begin(self) -> None:
        self.numbered = True
        talk = self._talk
        self.whole = self.weigh() if self._varies else ""
        self.lean = "" if self._thin == self.digest else self._thin
        say = Say(talk.where, talk.request, talk.say(len(self._texts)), [])
        for text in self._texts:
            kept, blobs = spilled(text)
            say.texts.append(kept)
            say.blobs.update(blobs)
        where = {"conversation": talk.where, "first": say.first, "end": talk.said}
        self.attempt.pen.record("conversation.added", self.key, self.facts(**where), talks=[say])

    def settle(self, event: Event) -> None:
        self._talk.heard(event.data["end"])
        super().settle(event)


class LeaveCall(Call):
    """Gives the conversation to the next."""

    of = "conversation"
    __slots__ = ("_talk",)

    def __init__(self, site: Site, request: LeaveConversation) -> None:
        talk = self._talk = _inside(request.talk)
        label, name = ":conversation.leave", talk.conversation
        super().__init__(site.attempt, site.key(label), label, digest(f'"{name}"'), name)
        talk.leave()

    def wait(self) -> Generator[Any, Any, Any]:
        try:
            return (yield from super().wait())
        except asyncio.CancelledError:
            self._gone()  # it is left all the same; nobody waits to hear so
            raise

    def forsake(self) -> None:
        self.attempt.talks.forsake(self.key, self._talk.where, self._talk.request)

    def _gone(self) -> None:
        talks = self.attempt.talks.open
        if talks.get(self._talk.conversation) is self._talk:  # else it was entered again meanwhile
            del talks[self._talk.conversation]

    def needs_turn(self) -> bool:
        return False  # a run that waits for its turn goes out of the line

    def begin(self) -> None:
        self.numbered = True
        talk = self._talk
        leave = Leave(talk.where, talk.request)
        self.attempt.pen.record("conversation.left", self.key, self.facts(conversation=talk.where), talks=[leave])
        self.attempt.talks.waits_no_more(talk)

    def settle(self, event: Event) -> None:
        self._gone()
        super().settle(event)


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
    """Join slices that touch: the same positions in as few slices as possible."""
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
