"""The inbox of a run: how what was sent to it becomes events of its journal, and what of that nobody has used yet.

`Mailbox` keeps what has arrived: messages by topic, ends of children, decisions of people. Arrivals come through the gate in
journal order, so what is in the mailbox at any line of the agent is the same on every replay, and taking from it needs no
record.

`Inbox` fetches. A signal becomes an event, and the run sees it once that is durable. If the run only waits, the store does both
at once (`take`): as long as that takes nothing new begins, because neither what comes is known nor which numbers it gets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from holdfast.engine.bodies import Bodies
from holdfast.engine.host import Host
from holdfast.engine.journal import Journal
from holdfast.engine.life import Life
from holdfast.engine.loop import Tasks
from holdfast.engine.recorder import Recorder
from holdfast.errors import LeaseLost, StoreUnavailable
from holdfast.store.blobs import unspilled
from holdfast.store.inbox import Taken
from holdfast.words.harmless import logger
from holdfast.words.model import Event, Signal

_log = logger("holdfast")


@dataclass(slots=True)
class Mailbox:
    """Arrivals, and the calls that wait for them. A waiter is a future that gets the event."""

    letters: dict[str, deque[Event]] = field(default_factory=dict)
    ended: dict[str, Event] = field(default_factory=dict)
    decided: dict[str, Event] = field(default_factory=dict)
    stand_ins: dict[str, str] = field(default_factory=dict)  # of a fork: by a child that its code knows, the one it has
    hearers: dict[str, Callable[[], None]] = field(default_factory=dict)  # of votes, by question
    _forsaken: dict[str, str] = field(default_factory=dict)  # questions that nobody waits for, and their calls
    _said: dict[str, list[Event]] = field(default_factory=dict)
    _waiters: dict[tuple[str, str], deque[asyncio.Future[Any]]] = field(default_factory=dict)

    # What arrives

    def message(self, event: Event) -> None:
        """A message: for the first that waits for its topic, or kept."""
        topic = event.data["topic"]
        if not self.wake_one("message", topic, event):
            self._box(topic).append(event)

    def child_ended(self, event: Event) -> None:
        """Give the end of a child to its waiters."""
        child: str = event.data["child"]
        if self.stand_ins:
            child = next((known for known, own in self.stand_ins.items() if own == child), child)
        self.ended[child] = event
        while self.wake_one("child", child, event):
            pass

    def stand_in(self, children: dict[str, str]) -> None:
        """Children that had not ended where a fork began have others in their places, which the code knows by the old names."""
        self.stand_ins = self.stand_ins | children

    def decision(self, event: Event) -> None:
        """Give the end of a question, by an answer or by time, to its waiters."""
        self.decided[event.data["approval"]] = event
        while self.wake_one("approval", event.data["approval"], event):
            pass

    def said(self, event: Event) -> None:
        """Keep what a person said to a question without deciding it."""
        self._said.setdefault(event.data["approval"], []).append(event)
        if event.data["approval"] in self.hearers:
            self.hearers[event.data["approval"]]()

    def _box(self, topic: str) -> deque[Event]:
        return self.letters.setdefault(topic, deque())

    # Waiters

    def wait(self, kind: str, name: str, future: asyncio.Future[Any]) -> None:
        """Have this future resolved by the next arrival of the kind and name."""
        self._waiters.setdefault((kind, name), deque()).append(future)

    def wake_one(self, kind: str, name: str, event: Event) -> bool:
        """Give an arrival to the first future that waits for it; False if none does."""
        waiting = self._waiters.get((kind, name))
        while waiting:
            future = waiting.popleft()
            if not future.done():
                future.set_result(event)
                return True
        return False

    def forget(self, kind: str, name: str, future: asyncio.Future[Any]) -> None:
        """The waiter is gone; a message it was given but never saw goes to the next one, or back to the front."""
        waiting = self._waiters.get((kind, name))
        if waiting is not None and future in waiting:
            waiting.remove(future)
        if kind == "message" and future.done() and not future.cancelled() and future.exception() is None:
            letter = future.result()
            if not self.wake_one(kind, name, letter):
                self._box(name).appendleft(letter)

    # What is kept

    def votes(self, approval: str) -> list[Event]:
        """Votes by which people have not decided a question yet."""
        return self._said.get(approval, [])

    def forsake(self, approval: str, key: str) -> None:
        """Note a question that an earlier life asked, and for whose answer the replayed code was seen not to wait."""
        self._forsaken[approval] = key

    def forsaken(self) -> list[tuple[str, str]]:
        """Return the forsaken questions that nobody has decided, each with its call; they are told once."""
        if not self._forsaken:
            return []
        forsaken, self._forsaken = self._forsaken, {}
        return [(approval, key) for approval, key in forsaken.items() if approval not in self.decided]

    def take(self, topic: str) -> Event | None:
        """Take the oldest message of a topic that no call has received."""
        box = self.letters.get(topic)
        return box.popleft() if box else None

    def take_all(self, topic: str) -> list[Event]:
        """Take every message of a topic that no call has received."""
        return list(self.letters.pop(topic, ()))

    def forget_ended(self) -> None:
        """Forget the ends of children that came so far."""
        self.ended.clear()

    def put_back(self, topic: str, letters: list[Event]) -> None:
        """Put back messages that were taken and not received after all: they are the next ones again."""
        self._box(topic).extendleft(reversed(letters))

    def kept(self) -> list[Event]:
        """List every arrival that may still be asked for."""
        return [*self.unread(), *self.ended.values(), *self.decided.values()]

    def count(self) -> int:
        """Count the messages that no call has received."""
        return sum(map(len, self.letters.values()))

    def unread(self) -> list[Event]:
        """List every message that no call has received, in order of arrival: a checkpoint carries these over."""
        return sorted((event for box in self.letters.values() for event in box), key=lambda event: event.seq)


REQUESTED: Final = ("run.pausing", "run.resumed", "run.cancelling")  # signals that are no arrivals: `Control` has them


class Receiving(Protocol):
    """The owner of an inbox: one attempt at a run."""

    def requested(self, signal: Signal) -> None:
        """The run is to pause, to go on or to stop."""


class Inbox:
    """Fetches the signals of one run while it is in memory."""

    __slots__ = (
        "_bodies", "_host", "_journal", "_life", "_noticed", "_owner", "_pen", "_singly", "_tasks",
        "fetching", "mailbox", "seen", "signals",
    )  # fmt: skip

    def __init__(
        self,
        life: Life,
        host: Host,
        journal: Journal,
        pen: Recorder,
        bodies: Bodies,
        tasks: Tasks,
        signals: Sequence[Signal],
        owner: Receiving,
    ) -> None:
        self._owner, self._life, self._host, self._journal, self._pen = owner, life, host, journal, pen
        self._bodies, self._tasks = bodies, tasks
        self.mailbox = Mailbox()
        self.signals = signals  # that came before the run was loaded; they become events when it goes live
        self.seen = life.run.inbox_seen  # signals up to this one are events, or on their way to be
        self.fetching = self._noticed = False  # reading the inbox; told that there is something in it
        self._singly = False  # the run was asked to stop: what comes is looked at before it is an event

    @property
    def idle(self) -> bool:
        """Is all that is known to have come taken in?"""
        return not (self.fetching or self._noticed)

    def arrive(self, signal: Signal) -> None:
        """A signal becomes an event of the journal, and is seen once that is durable."""
        self.seen = max(self.seen, signal.position)
        if signal.kind in REQUESTED:
            self._owner.requested(signal)
            return
        data = signal.recorded()
        if data is None:
            return
        if signal.kind == "message.received":
            data["position"] = signal.position  # so that a receipt finds it
        self._pen.record(signal.kind, None, data, signal.value, inbox_seen=signal.position)

    def look_at_each(self) -> None:
        """Look at each signal, because the run was asked to stop: the store puts none into the journal by itself."""
        self._singly = True

    def take_signals(self) -> Sequence[Signal]:
        """Take the signals that came before the run was loaded: they arrive now."""
        signals, self.signals = self.signals, ()
        return signals

    def look(self) -> None:
        """Fetch the signals that came while the run was loaded or replayed: it is live now."""
        if self._noticed:
            self.notice()

    def notice(self, *, sure: bool = False) -> None:
        """Fetch signals that may have come (`sure`: have come), now or when the run is live and no other fetch goes on."""
        self._noticed = True
        if self._life.live and not self._life.closing and not self.fetching:
            self.fetching = True
            if not (sure and self._take()):
                _ = self._bodies.start(self._fetch)

    def _take(self) -> bool:
        """Have the store put new signals into the journal, if the run only waits."""
        life, pen, bodies, tasks = self._life, self._pen, self._bodies, self._tasks
        busy = bodies.drivers or pen.unacked or self._journal.ready or pen.is_held
        if busy or bodies.holding or not tasks.resting or tasks.gate.pumping or self._singly:
            return False
        try:
            taking = self._host.store.take(life.run.id, life.run.lease_epoch, pen.next_seq, self.seen)
        except StoreUnavailable:
            return False
        if taking is None:
            return False
        self._noticed = False
        bodies.hold("taking")
        pen.expect()
        taking.add_done_callback(self._taken, context=life.outside)
        return True

    def _taken(self, future: asyncio.Future[Taken]) -> None:
        life, pen = self._life, self._pen
        error = future.exception()
        events, more = future.result() if error is None else Taken([], False)
        pen.make_way(events)
        pen.let_go(lost=error is not None)
        self.fetching = False
        if error is not None:
            if not isinstance(error, LeaseLost | StoreUnavailable):
                _log.error("run %r: what came to it could not be taken: %r", life.run.id, error)
            life.close("lost")
            return
        self.seen += len(events)
        for event in events:
            pen.landed(event)
        if life.closing:
            return
        self._bodies.allow("taking")
        if more or self._noticed:
            self.notice()

    async def _fetch(self) -> None:
        store = self._host.store
        try:
            self._noticed = False
            signals = await store.inbox(self._life.run.id, self.seen)
            for signal in signals:
                signal.value = await unspilled(store, signal.value)
                if signal.position > self.seen:
                    self.arrive(signal)
        finally:
            self.fetching = False
            if self._noticed:
                self.notice()
            self._pen.progress.set()
            self._tasks.gate.kick()
