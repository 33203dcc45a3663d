"""Announcements: publishing one, and waiting for the next.

To publish is an outcome, and the announcement is written with it. To wait is a subscription, which is written with an event at
the first call for a name and a match, and then a `receive` on a topic of its own: what comes is a message, so it is kept, carried
over checkpoints and replayed like any other. Which topics the run has subscribed to is a choice that checkpoints carry.

A value that is not of the type that the agent waits for is passed over, because its publisher knows nothing of this run. A note in
the history says so, under a key that has the number of the message. What was passed over once stays so, also for code whose type
it would fit: nothing may happen in the middle of what is recorded.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from typing import Any, Final

from holdfast.engine.attempt import Call, Site
from holdfast.engine.calls import PASSED_OVER, NoteCall, ReceiveCall, contents
from holdfast.engine.loop import GateFuture
from holdfast.errors import NotInRun, NotStorable
from holdfast.runtime import NextEvent, Publish, Receive
from holdfast.store.announcements import NewAnnouncement, NewSubscription
from holdfast.values.codec import UNTYPED, digest, preview
from holdfast.words.announcements import Announcement, keyed_id, nth_id, told_match, topic_of
from holdfast.words.durations import moment
from holdfast.words.harmless import logger
from holdfast.words.model import Event

_log = logger("holdfast")
_CHOICE: Final = "awaits"
_lock: Final = threading.Lock()  # a body may publish from several threads


def _new(request: Publish, call: str, nth: int = 0) -> NewAnnouncement:
    id = nth_id(call, nth) if request.key is None else keyed_id(request.name, request.key)
    return NewAnnouncement(id, request.name, request.text)


class Outgoing:
    """Announcements that the body of a step has made in one attempt: they go out with the outcome, or never."""

    __slots__ = ("_call", "_over", "made")

    def __init__(self, idempotency_key: Callable[[], str]) -> None:
        self._call, self._over = idempotency_key, False
        self.made: tuple[NewAnnouncement, ...] = ()

    def __call__(self, request: Publish) -> str:
        """Keep it for the outcome; in whatever thread the body is."""
        if self._over:
            raise NotInRun(
                f"publish({request.name!r}) was called after the body of its step had ended; await all that the body begins"
            )
        with _lock:
            new = _new(request, self._call(), len(self.made))
            self.made = (*self.made, new)
        return new.id

    def end(self) -> None:
        """The body has ended."""
        self._over = True


class PublishCall(Call):
    """Publishes an announcement."""

    of = "announcement"
    __slots__ = ("_request",)

    def __init__(self, site: Site, request: Publish) -> None:
        self._request, label = request, ":publish"
        named = json.dumps([request.name, request.key])
        super().__init__(
            site.attempt, site.key(label), label, digest(f"[{named},{request.text}]"),
            f"{request.name}, {preview(request.text, 100)}",
        )  # fmt: skip

    def begin(self) -> None:
        self.numbered = True
        new = _new(self._request, self.attempt.identity.idempotency_key(self.key, self.digest))
        data = self.facts(event=new.name, announcement=new.id)
        self.attempt.pen.record("announcement.published", self.key, data, new.value, announces=[new])

    def read(self, event: Event) -> str:
        return str(event.data["announcement"])


class SubscribeCall(Call):
    """Has the run hear of announcements from here on."""

    of = "announcement"
    __slots__ = ("_request",)

    def __init__(self, site: Site, request: NextEvent) -> None:
        self._request, label = request, ":subscribe"
        told = json.dumps({"name": request.name, "match": request.match}, sort_keys=True)
        super().__init__(
            site.attempt, site.key(label), label, digest(told), f"{request.name} {told_match(request.match)}".rstrip()
        )

    def begin(self) -> None:
        self.numbered = True
        name, match = self._request.name, self._request.match
        data = self.facts(event=name, match=match)
        self.attempt.pen.record("announcement.awaited", self.key, data, announces=[NewSubscription(name, match)])


class PassOverCall(NoteCall):
    """Notes that an announcement was passed over. Which one it was identifies the call: the reason may read otherwise later."""

    __slots__ = ()

    def __init__(self, site: Site, label: str, event: str, id: str, why: str) -> None:
        text = f"announcement {event!r}, {id}, was passed over: {why}"
        self._stored = UNTYPED.store({"text": text, "data": {"announcement": id}}, "note")[0]
        self._data = {"text": text[:2000]}
        Call.__init__(self, site.attempt, site.key(label), label, digest(json.dumps([event, id])), f"{event}, {id}")


class NextEventCall(ReceiveCall):
    """Waits for the next announcement."""

    __slots__ = ("_event", "_site", "_subscribe")

    def __init__(self, site: Site, request: NextEvent) -> None:
        topic, self._event, self._site = topic_of(request.name, request.match), request.name, site
        known = topic in site.attempt.kept.choices.get(_CHOICE, ())
        self._subscribe = None if known else SubscribeCall(site, request)
        super().__init__(site, Receive(topic, request.shape, request.timeout_ms))

    def wait(self) -> Generator[Any, Any, Any]:
        if self._subscribe is not None:
            yield from self._subscribe.wait()
            choices = self.attempt.kept.choices
            choices[_CHOICE] = sorted({*choices.get(_CHOICE, ()), self._topic})
        return (yield from super().wait())

    def open(self, event: Event) -> Generator[Any, Any, Any]:
        """Read an announcement; pass over one whose value is not of the type, or that was passed over before."""
        attempt, label, why = self.attempt, f":passed.{event.seq}", ""
        if attempt.identity.coming(self._site.path, label) not in attempt.journal.closed:
            try:
                return self._announcement(event, contents(attempt, self._shape, event))
            except NotStorable as error:
                why = str(error)
        id = event.data.get("announcement", "")
        if attempt.life.live:
            _log.warning(
                "run %r: announcement %r, %s, was passed over, and the next one is waited for: %s",
                attempt.run.id,
                self._event,
                id,
                why,
            )
        self.future = GateFuture(loop=attempt.life.loop)  # for the next one; the time of both is one
        yield from PassOverCall(self._site, label, self._event, id, why).wait()
        return PASSED_OVER

    def _announcement(self, event: Event, value: Any) -> Announcement[Any]:
        data = event.data  # a message that a fork was given in its place says nothing of these
        id, at = data.get("announcement", ""), moment(data.get("at", event.at))
        return Announcement(self._event, value, id, at, data.get("run"))

    @property
    def late(self) -> str:
        return f"no announcement {self._event!r} came in time"
