"""Announcements: publishing one, and waiting for the next.

To publish is an outcome, and the announcement is written with it. To wait is a subscription, which is written with an event at
the first call for a name and a match, and then a `receive` on a topic of its own: what comes is a message, so it is kept, carried
over checkpoints and replayed like any other. Which topics the run has subscribed to is a choice that checkpoints carry.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from typing import Any, Final

from holdfast.engine.attempt import Call, Site
from holdfast.engine.calls import ReceiveCall, opened
from holdfast.errors import NotInRun
from holdfast.runtime import NextEvent, Publish, Receive
from holdfast.store.announcements import NewAnnouncement, NewSubscription
from holdfast.values.codec import digest, preview
from holdfast.words.announcements import Announcement, keyed_id, nth_id, told_match, topic_of
from holdfast.words.durations import moment
from holdfast.words.model import Event

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


class NextEventCall(ReceiveCall):
    """Waits for the next announcement."""

    __slots__ = ("_event", "_subscribe")

    def __init__(self, site: Site, request: NextEvent) -> None:
        topic, self._event = topic_of(request.name, request.match), request.name
        known = topic in site.attempt.kept.choices.get(_CHOICE, ())
        self._subscribe = None if known else SubscribeCall(site, request)
        super().__init__(site, Receive(topic, request.shape, request.timeout_ms))

    def wait(self) -> Generator[Any, Any, Any]:
        if self._subscribe is not None:
            yield from self._subscribe.wait()
            choices = self.attempt.kept.choices
            choices[_CHOICE] = sorted({*choices.get(_CHOICE, ()), self._topic})
        return (yield from super().wait())

    def open(self, event: Event) -> Announcement[Any]:
        value = opened(self.attempt, self._topic, self._shape, event)
        data = event.data  # a message that a fork was given in its place says nothing of these
        id, at = data.get("announcement", ""), moment(data.get("at", event.at))
        return Announcement(self._event, value, id, at, data.get("run"))

    @property
    def late(self) -> str:
        return f"no announcement {self._event!r} came in time"
