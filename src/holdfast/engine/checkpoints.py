"""Checkpoints: the agent's state, stored once, from which a resumed run starts.

A checkpoint opens a new era: counters start again, and keys, seeds and idempotency keys carry its number. It is taken in
the root task with nothing open, because whatever is open would be unknown to the era that follows. What the run has been given
and not used (unread messages, patches) is carried along in the event itself.

Where the agent's state may be told by what changed in it (a reducer's), a checkpoint names those before it that it is made of
(`chain`): the last one that stored the state whole, and the changes since (values/deltas.py).

Such a checkpoint names the messages that nobody has received (`waiting`) instead of carrying them: there may be very many.

With a checkpoint messages leave the inbox, because the journal has them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from holdfast.engine import forks
from holdfast.engine.attempt import Attempt, Call, Site
from holdfast.errors import HoldfastError
from holdfast.runtime import Checkpoint, Restore
from holdfast.store.checkpoints import state_texts
from holdfast.values.deltas import Chain, ranges, whole
from holdfast.words.model import Event

_COPIES: Final = 100  # of the last messages stay in the inbox, for people to look at


class RestoreCall:
    """Gives the state of the last checkpoint, or the first one. Nothing is recorded."""

    __slots__ = ("_attempt", "_request")

    def __init__(self, site: Site, request: Restore) -> None:
        self._attempt, self._request = site.attempt, request

    def wait(self) -> Generator[Any, Any, Any]:
        attempt, request = self._attempt, self._request
        yield from attempt.enter(None)
        resumes = attempt.journal.awaits_restore
        if attempt.kept.shape is not None or (attempt.kept.asked_any and not resumes):
            raise HoldfastError(
                "restore must be the first durable call of an agent, and called once; call it at the top"
            )
        attempt.kept.has_state(request.shape)
        if resumes:
            return attempt.loaded(request.shape, _resumed(attempt), "the state of a checkpoint", request.migrate)
        if request.build is not None:
            attempt.kept.ask()
            return (yield from request.build().__await__())
        return request.shape.store(request.first, "state")[1]


class CheckpointCall(Call):
    """Stores the state; when it is delivered, a new era begins."""

    of = "checkpoint"
    __slots__ = ("_by_change", "_copy", "_path", "_state", "_text")

    def __init__(self, site: Site, request: Checkpoint) -> None:
        super().__init__(site.attempt, site.key(":checkpoint"), ":checkpoint", "", "")
        self._path, self._state, self._by_change = site.path, request.state, request.by_change
        self._copy: Any = None

    def begin(self) -> None:
        self.numbered = True
        attempt, text, before = self.attempt, self._text, self.attempt.kept.stored
        releases = attempt.kept.release(attempt.inbox.seen - _COPIES)
        data = _carried(attempt, by_place=self._by_change)
        if self._by_change and before is not None and (changed := before.told(text)) is not None:
            data["chain"], text = before.events, changed
        attempt.pen.record("checkpoint", self.key, data, text, checkpoint=True, releases=releases)

    def wait(self) -> Generator[Any, Any, Any]:
        problem = self._problem()
        if problem:
            raise HoldfastError(f"checkpoint: {problem}")
        attempt = self.attempt
        assert attempt.kept.shape is not None
        # Before it is asked for: what cannot be stored is the agent's error in every life.
        self._text, self._copy = attempt.pen.stored(attempt.kept.shape, self._state, "state")
        return (yield from super().wait())

    def _problem(self) -> str | None:
        attempt = self.attempt
        if attempt.kept.shape is None:
            return "call `state = await restore(...)` first, so that a resumed run knows where its state goes"
        if self._path:
            return f"it can be taken only in the root of the agent, not in the task or scope {self._path!r}"
        if attempt.identity.open_scopes:
            return f"the scope {min(attempt.identity.open_scopes)!r} is open; leave it first"
        others = [task.scope.path for task in attempt.tasks.alive if task.scope.path and not task.done()]
        if others:
            return f"other tasks are alive ({', '.join(sorted(others)[:3])}); wait for them first"
        if attempt.streams.open_here:
            return f"the stream {min(attempt.streams.open_here)!r} is open; leave its block first"
        open_calls = [key for key, call in attempt.calls.items() if not call.withdrawn]
        if open_calls:
            return f"{open_calls[0]!r} is open (a timeout, a timer or a call that was not awaited); end it first"
        if attempt.talks.open:
            return f"the conversation {min(attempt.talks.open)!r} is open; leave it first"
        if attempt.unawaited:
            names = sorted({call.__name__ for call in attempt.unawaited.values()})
            return f"{', '.join(names[:3])} was called and is not awaited yet; await it first"
        return None

    def settle(self, event: Event) -> None:
        if self._by_change:
            kept, told = self.attempt.kept, "chain" in event.data
            before = kept.stored if told else None
            size = 0 if before is None else before.size + len(self.attempt.pen.text_of(event))
            kept.stores(Chain(self._text, [*event.data.get("chain", ()), event.seq], size))
        self.attempt.journal.begin_era(event)
        _enter_era(self.attempt, event)
        super().settle(event)

    def read(self, event: Event) -> Any:
        assert self.attempt.kept.shape is not None
        if self._copy is not None:
            return self._copy
        return self.attempt.kept.shape.load(self.attempt.pen.text_of(event))


async def recall(attempt: Attempt) -> None:
    """Read what a reducer's checkpoint only names: the rest of a state that is told by changes, and unread messages."""
    event = attempt.journal.checkpoint
    if event is None or attempt.spec.folding is None:
        return
    texts = await state_texts(attempt.host.store, attempt.run.id, event)
    event.value, event.blob = whole(texts), None
    attempt.kept.stores(Chain(event.value, [*event.data.get("chain", ()), event.seq], sum(map(len, texts[1:]))))
    places = event.data.get("waiting", ())
    waiting = [seq for first, last in places for seq in range(first, min(last + 1, event.seq))]
    letters = await attempt.host.store.events_at(attempt.run.id, waiting) if waiting else []
    for letter in letters:
        if letter.blob is not None:
            attempt.pen.texts[letter.blob] = (await attempt.host.store.blob(letter.blob)).decode()
    attempt.kept.recall(letters)


def _carried(attempt: Attempt, *, by_place: bool) -> dict[str, Any]:
    """All that the next era must know besides the state: also messages in the journal that are on their way to the agent."""
    pen = attempt.pen
    coming = [event for event in pen.undelivered.values() if event.kind == "message.received"]
    letters = [*attempt.inbox.mailbox.unread(), *coming]
    kept = {"era": attempt.identity.era + 1, "delivered": pen.numbered + 1, "patches": attempt.patches.answers}
    if by_place:
        kept |= {"unread": [], "waiting": ranges(event.seq for event in letters)}
    else:
        kept["unread"] = [[event.seq, event.data, pen.text_of(event), event.at] for event in letters]
    kept |= attempt.kept.carried()
    if attempt.kept.former is not None:
        kept |= {"former": attempt.kept.former.carried(), "stand_ins": attempt.inbox.mailbox.stand_ins}
    stopping = attempt.control.carried()
    return kept if stopping is None else {**kept, "cancelling": stopping}


def _resumed(attempt: Attempt) -> Event:
    """Go on from the checkpoint the journal begins with."""
    event = attempt.journal.restore()
    _enter_era(attempt, event)
    attempt.control.restore(event.data.get("cancelling"))
    attempt.kept.restore(event.data)
    origin = event.data.get("former", {}).get("origin")
    if origin is not None:
        forks.become(attempt, origin)
        attempt.inbox.mailbox.stand_in(event.data["stand_ins"])
    for letter in attempt.kept.letters:
        attempt.inbox.mailbox.message(letter)
    attempt.kept.recall(())
    for seq, data, text, at in event.data["unread"]:
        attempt.inbox.mailbox.message(Event(seq, "message.received", None, data, text, at=at))
    return event


def _enter_era(attempt: Attempt, event: Event) -> None:
    """Keys and the order of sets start again, live and resumed alike: only the root is there, and no call is open."""
    attempt.identity.enter_era(event.data["era"])
    attempt.tasks.restart_time()
    for guard in attempt.guards:
        guard.begin_era()
    # A resumed run knows nothing of children that ended before: a call that awaits one looks for its end, and records it again.
    attempt.inbox.mailbox.forget_ended()
    if attempt.life.live:  # large values and texts that nobody can ask for any more
        attempt.streams.texts.clear()
        arrivals = (*attempt.inbox.mailbox.kept(), *attempt.pen.undelivered.values())
        attempt.pen.keep_only({event.blob, *(arrival.blob for arrival in arrivals)})
