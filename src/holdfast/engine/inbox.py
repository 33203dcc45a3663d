"""What has arrived at a run: messages by topic, ends of children, decisions of people.

Arrivals come through the gate in journal order, so what is in the mailbox at any line of the agent is the same on every
replay, and taking from it needs no record.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.words.model import Event

if TYPE_CHECKING:
    from holdfast.engine.conversations import Talk


@dataclass(slots=True)
class Mailbox:
    """Arrivals, and who waits for them. A waiter is a future that gets the event."""

    letters: dict[str, deque[Event]] = field(default_factory=dict)
    ended: dict[str, Event] = field(default_factory=dict)
    decided: dict[str, Event] = field(default_factory=dict)
    hearers: dict[str, Callable[[], None]] = field(default_factory=dict)  # of votes, by question
    forsaken: dict[str, str] = field(default_factory=dict)  # questions that nobody waits for, and their calls
    # Conversations nobody waits for: call, id, request.
    unwanted: tuple[tuple[str, str, str], ...] = ()
    talks: dict[str, Talk] = field(default_factory=dict)  # conversations that the run has or asks for
    _said: dict[str, list[Event]] = field(default_factory=dict)
    _waiters: dict[tuple[str, str], deque[asyncio.Future[Any]]] = field(default_factory=dict)

    def deliver(self, event: Event) -> None:
        """Give an arrival to whoever waits for it, or keep it."""
        if event.kind == "message.received":
            topic = event.data["topic"]
            if not self._wake_one("message", topic, event):
                self._box(topic).append(event)
        elif event.kind == "child.ended":
            self.ended[event.data["child"]] = event
            while self._wake_one("child", event.data["child"], event):
                pass
        elif event.kind in ("approval.decided", "approval.expired"):
            self.decided[event.data["approval"]] = event
            while self._wake_one("approval", event.data["approval"], event):
                pass
        elif event.kind.startswith("conversation."):
            talk = self.talks.get(event.data["conversation"])
            if (
                not self._wake_one("conversation", event.data["request"], event)
                and talk is not None
                and talk.entered >= 0
            ):
                talk.taken(event)  # nobody asked for it but the run itself, which had lost it
        else:
            self._said.setdefault(event.data["approval"], []).append(event)
            if event.data["approval"] in self.hearers:
                self.hearers[event.data["approval"]]()

    def _box(self, topic: str) -> deque[Event]:
        return self.letters.setdefault(topic, deque())

    def said(self, approval: str) -> list[Event]:
        """What people have said to a question without deciding it."""
        return self._said.get(approval, [])

    def _wake_one(self, kind: str, name: str, event: Event) -> bool:
        waiting = self._waiters.get((kind, name))
        while waiting:
            future = waiting.popleft()
            if not future.done():
                future.set_result(event)
                return True
        return False

    def wait(self, kind: str, name: str, future: asyncio.Future[Any]) -> None:
        """Have this future resolved by the next arrival of the kind and name."""
        self._waiters.setdefault((kind, name), deque()).append(future)

    def forget(self, kind: str, name: str, future: asyncio.Future[Any]) -> None:
        """The waiter is gone; a message it was given but never saw goes to the next one, or back to the front."""
        waiting = self._waiters.get((kind, name))
        if waiting is not None and future in waiting:
            waiting.remove(future)
        if kind == "message" and future.done() and not future.cancelled() and future.exception() is None:
            letter = future.result()
            if not self._wake_one(kind, name, letter):
                self._box(name).appendleft(letter)

    def take(self, topic: str) -> Event | None:
        """The oldest message of a topic that nobody has received."""
        box = self.letters.get(topic)
        return box.popleft() if box else None

    def take_all(self, topic: str) -> list[Event]:
        """Every message of a topic that nobody has received."""
        return list(self.letters.pop(topic, ()))

    def put_back(self, topic: str, letters: list[Event]) -> None:
        """Messages that were taken and not received after all: the next ones again."""
        self._box(topic).extendleft(reversed(letters))

    def kept(self) -> list[Event]:
        """Every arrival that may still be asked for."""
        return [*self.unread(), *self.ended.values(), *self.decided.values()]

    def unread(self) -> list[Event]:
        """Every message that nobody has received, in order of arrival: what a checkpoint carries over."""
        return sorted((event for box in self.letters.values() for event in box), key=lambda event: event.seq)
