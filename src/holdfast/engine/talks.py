"""The conversations that a run has, or asks for: who may write to each, and how long it is as far as the agent has seen.

The calls that enter, read, add and leave are in `conversations.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.engine.identity import Identity
from holdfast.engine.inbox import Mailbox
from holdfast.engine.journal import Journal
from holdfast.engine.parking import Parking, Wait
from holdfast.engine.recorder import Recorder
from holdfast.runtime import Placed
from holdfast.store.conversations import Copied, Enter, Leave, copy_of
from holdfast.words.model import Event


class Talk:
    """A conversation that this run has, or asks for."""

    __slots__ = ("_kept", "_talks", "conversation", "entered", "held", "left", "length", "request", "said", "where")

    def __init__(self, talks: Talks, conversation: str) -> None:
        self._talks, self.conversation, self.request = talks, conversation, ""
        self.where = conversation  # its name in the store, which is another one for the copy that a fork has
        self.entered = -1  # where the journal says so
        self.length = 0  # messages, as far as the agent has seen
        self.said = 0  # and those on their way
        self.held = self.left = False
        self._kept: list[Callable[[], None]] = []

    def taken(self, event: Event) -> None:
        """The conversation is this run's, from where this says so."""
        self.request, self.entered = event.data["request"], event.seq
        self.where = event.data["conversation"]
        self.length = self.said = event.data["length"]
        self.held = True
        self._talks.parking.waits.pop(_waiting(self.conversation), None)
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

    def leave(self) -> None:
        """The agent has no more to do with it."""
        self.left = True

    def say(self, count: int) -> int:
        """So many messages are on their way; returns where the first of them stands."""
        first, self.said = self.said, self.said + count
        return first

    def heard(self, end: int) -> None:
        """The agent sees that it is so long now."""
        self.length = end
        self.said = max(self.said, end)

    def regain(self, retried: int) -> None:
        """Stand in line again. To repeat this is to ask by the same request, which the store answers once."""
        self.held = False
        talks = self._talks
        request = f"c-{talks.identity.derived(f'{self.conversation}:{retried}')[:16]}"
        talks.parking.waits[_waiting(self.conversation)] = Wait("conversation", None, f"conversation:{request}")
        where, copied = talks.where(self.conversation), None
        if where != self.where:
            copied = [(self.where, None, self.length)]  # as it was where the fork began
        data = {"conversation": where, "request": request, "again": True}
        enter = Enter(where, request, None, True, copied)
        talks.pen.record("conversation.asked", None, data, talks=[enter])


def _waiting(conversation: str) -> str:
    return f"conversation:{conversation}"


class Talks:
    """All conversations of one attempt."""

    __slots__ = ("_journal", "_mailbox", "_unwanted", "copies", "identity", "open", "parking", "pen")

    def __init__(self, journal: Journal, identity: Identity, pen: Recorder, mailbox: Mailbox, parking: Parking) -> None:
        self._journal, self.identity, self.pen, self._mailbox, self.parking = journal, identity, pen, mailbox, parking
        self.open: dict[str, Talk] = {}
        self.copies: list[list[Any]] = []  # of a fork: under whose names it has copies, and as of when; the last counts
        self._unwanted: tuple[tuple[str, str, str], ...] = ()  # that nobody waits for: call, conversation, request

    def enter(self, conversation: str) -> Talk:
        """Ask for one."""
        talk = self.open[conversation] = Talk(self, conversation)
        return talk

    def copy(self, copies: list[list[Any]]) -> None:
        """The run is a fork from here on: it writes to copies of its own."""
        self.copies = copies

    def where(self, conversation: str) -> str:
        """Name the conversation in the store: itself, or the copy of a fork."""
        return copy_of(conversation, self.copies[-1][0]) if self.copies else conversation

    def copied(self, conversation: str, said: Mapping[str, int]) -> list[Copied] | None:
        """Tell what a copy is made of, the nearest first. `said`: where others went on behind the point."""
        if not self.copies:
            return None
        names = [conversation, *(copy_of(conversation, fork) for fork, _ in self.copies[:-1])]
        times = [at for _, at in self.copies]
        return [(name, at, said.get(name)) for name, at in reversed(list(zip(names, times, strict=True)))]

    def arrive(self, event: Event) -> None:
        """The store has answered a request: for the call that made it, or for the run itself, which had lost it."""
        where = event.data["conversation"]
        talk = next(
            (each for each in self.open.values() if where in (each.conversation, self.where(each.conversation))), None
        )
        asked = self._mailbox.wake_one("conversation", event.data["request"], event)
        if not asked and talk is not None and talk.entered >= 0:
            talk.taken(event)

    def forsake(self, key: str, conversation: str, request: str) -> None:
        """An earlier life asked for this, and the one that is replayed now was seen not to wait for it."""
        self._unwanted = (*self._unwanted, (key, conversation, request))

    def withdraw(self, key: str, conversation: str, request: str) -> None:
        """Nobody waits for this conversation any more: out of the line, or on to the next."""
        data = {"conversation": conversation, "request": request}
        self.pen.record("conversation.withdrawn", key, data, talks=[Leave(conversation, request)])

    def rejoin(self) -> None:
        """The run is live: give up what it does not wait for any more, and ask again for what it has lost."""
        unwanted, self._unwanted = self._unwanted, ()
        for asked in unwanted:
            self.withdraw(*asked)
        for talk in self.open.values():
            if 0 <= talk.entered < self._journal.retried:
                talk.regain(self._journal.retried)
