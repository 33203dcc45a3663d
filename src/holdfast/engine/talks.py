"""The conversations that a run has, or asks for: its right to write, and how long each is as the agent has seen it.

The calls that enter, read, add and leave are in `conversations.py`.

A run that is retried inside a conversation has lost it (`Talks.rejoin`). It asks for what it has lost, one conversation after the
other in the order in which it had entered them, and until it has all of them nothing begins that needs its turn. It waits for
the first only: a run that has one does not wait for another, and is refused if that is taken. Then the run fails as it had
before the retry, and may be retried later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from holdfast.engine.bodies import TURN, Bodies
from holdfast.engine.identity import Identity
from holdfast.engine.inbox import Mailbox
from holdfast.engine.journal import Journal
from holdfast.engine.parking import Parking, Wait
from holdfast.engine.recorder import Recorder
from holdfast.errors import ConversationBusy
from holdfast.store.conversations import Copied, Enter, Leave, copy_of
from holdfast.words.model import Event


class Talk:
    """A conversation that this run has, or asks for."""

    __slots__ = ("conversation", "entered", "left", "length", "refused", "request", "said", "where")

    def __init__(self, conversation: str) -> None:
        self.conversation, self.request = conversation, ""
        self.where = conversation  # its name in the store, which is another one for the copy that a fork has
        self.entered = -1  # where the journal says so
        self.refused = -1  # where it says that a retried run did not get it again
        self.length = 0  # messages, as far as the agent has seen
        self.said = 0  # and those on their way
        self.left = False

    def taken(self, event: Event) -> None:
        """Note that the conversation is this run's, from this event on."""
        self.request, self.entered = event.data["request"], event.seq
        self.where = event.data["conversation"]
        self.length = self.said = event.data["length"]

    def leave(self) -> None:
        """Note that the agent has no more to do with it."""
        self.left = True

    def say(self, count: int) -> int:
        """So many messages are on their way; returns where the first of them stands."""
        first, self.said = self.said, self.said + count
        return first

    def heard(self, end: int) -> None:
        """The agent sees that it is so long now."""
        self.length = end
        self.said = max(self.said, end)


class Talking(Protocol):
    """The owner of conversations: one attempt at a run."""

    def fail(self, error: Exception) -> None:
        """End the run where it is: a retried run does not get a conversation again."""


class Talks:
    """All conversations of one attempt."""

    __slots__ = (
        "_bodies", "_identity", "_journal", "_lost", "_mailbox", "_owner", "_parking", "_pen", "_unwanted", "copies", "open",
    )  # fmt: skip

    def __init__(
        self, journal: Journal, identity: Identity, pen: Recorder, bodies: Bodies, mailbox: Mailbox, parking: Parking,
        owner: Talking,
    ) -> None:  # fmt: skip
        self._journal, self._identity, self._pen, self._bodies = journal, identity, pen, bodies
        self._mailbox, self._parking, self._owner = mailbox, parking, owner
        self.open: dict[str, Talk] = {}
        self._lost: Sequence[Talk] = ()  # that the run asks for again, one after the other
        self.copies: list[list[Any]] = []  # of a fork: under whose names it has copies, and as of when; the last counts
        self._unwanted: tuple[tuple[str, str, str], ...] = ()  # that nobody waits for: call, conversation, request

    def enter(self, conversation: str) -> Talk:
        """Ask for one."""
        talk = self.open[conversation] = Talk(conversation)
        return talk

    def copy(self, copies: list[list[Any]]) -> None:
        """Write to these copies from here on: the run is a fork."""
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
        if asked or talk is None or talk.entered < 0:
            return
        if event.kind == "conversation.entered":
            talk.taken(event)
            self.waits_no_more(talk)
            return
        talk.refused = event.seq
        if talk in self._lost:
            self._owner.fail(busy(talk.conversation, event))

    def forsake(self, key: str, conversation: str, request: str) -> None:
        """An earlier life asked for this, and the one that is replayed now was seen not to wait for it."""
        self._unwanted = (*self._unwanted, (key, conversation, request))

    def withdraw(self, key: str, conversation: str, request: str) -> None:
        """Leave a conversation that no call waits for any more: out of the line, or on to the next run."""
        data = {"conversation": conversation, "request": request}
        self._pen.record("conversation.withdrawn", key, data, talks=[Leave(conversation, request)])

    def rejoin(self) -> None:
        """The run is live: give up what it does not wait for any more, and ask again for what it has lost."""
        if not (self.open or self._unwanted):
            return
        unwanted, self._unwanted = self._unwanted, ()
        for asked in unwanted:
            self.withdraw(*asked)
        retried = self._journal.retried
        self._lost = [talk for talk in self.open.values() if 0 <= talk.entered < retried and not talk.left]
        if self._lost:
            self._bodies.hold(TURN)
            self._ask_again(self._lost[0])

    def _ask_again(self, talk: Talk) -> None:
        """Stand in line again. To repeat this is to ask by the same request, which the store answers once."""
        since = max(self._journal.retried, talk.refused)
        request = f"c-{self._identity.derived(f'{talk.conversation}:{since}')[:16]}"
        where, copied = self.where(talk.conversation), None
        if where != talk.where:
            copied = [(talk.where, None, talk.length)]  # as it was where the fork began
        talk.where, talk.request = where, request
        self._parking.waits[_waiting(talk)] = Wait("conversation", None, f"conversation:{request}")
        data = {"conversation": where, "request": request, "again": True}
        self._pen.record("conversation.asked", None, data, talks=[Enter(where, request, None, True, copied)])

    def waits_no_more(self, talk: Talk) -> None:
        """The run has a conversation that it had lost, or has left it: the next is asked for, or the run has its turn."""
        if talk not in self._lost:
            return
        self._parking.waits.pop(_waiting(talk), None)
        waited = talk is self._lost[0]
        self._lost = [each for each in self._lost if each is not talk]
        if not self._lost:
            self._bodies.allow(TURN)
        elif waited:
            self._ask_again(self._lost[0])


def _waiting(talk: Talk) -> str:
    return f"conversation:{talk.conversation}"


def busy(conversation: str, refused: Event) -> ConversationBusy:
    """Say why a run does not get a conversation."""
    by, has = refused.data["by"], refused.data["has"]
    advice = "; enter it with busy='wait', or later"
    if has is not None:
        advice = (
            f", and a run that has a conversation (here {has!r}), or was started by one that has or waits, does not wait "
            "for another: two of them could wait for each other for ever. Leave the first one before, or try again later"
        )
    return ConversationBusy(
        f"conversation {conversation!r} is taken by run {by!r}{advice}", conversation=conversation, run=by
    )
