"""Announcements in a worker: it declares which start its agents, and passes on what was published.

Look here when an announcement reaches nobody, or late.

Every worker passes on what waits, whichever agents it serves. What comes to its own agents are deliveries, and it maps them like
any other (triggers.py). To serve an agent without `on=`, where it had one, is a declaration too: then nothing starts it any more.
"""

from __future__ import annotations

import time
from typing import Final

from holdfast.store.announcements import NEWS
from holdfast.store.contract import WorkerStore
from holdfast.store.triggers import RETENTION_MS, DeclaredTrigger
from holdfast.verbs.announcements import subscribed
from holdfast.words.announcements import KIND
from holdfast.worker.agents import Served
from holdfast.worker.rounds import AT_ONCE, Round
from holdfast.worker.triggers import declared_by

_DECLARE_EVERY_S: Final = 30.0
_PRUNE_EVERY_S: Final = 3600.0
_BUSY_MS: Final = 100  # after which to look again, if another worker passes on


class Announcements(Round):
    """One worker's part in announcements."""

    what, news = "announcements", NEWS

    def __init__(self, store: WorkerStore) -> None:
        super().__init__(store.clock)
        self._store = store
        self._declared: list[DeclaredTrigger] = []
        self._declare_at = self._prune_at = 0.0  # in the time of time.monotonic()

    def serve(self, served: Served) -> None:
        """Declare what starts these agents from now on."""
        self._declared = [
            DeclaredTrigger(spec.name, KIND, "", "") if spec.on is None else declared_by(subscribed(spec))
            for spec in served.newest
        ]
        self._declare_at = 0.0
        self.wake()

    async def declare(self) -> None:
        """Declare what starts the agents: what is published once the worker has begun reaches them."""
        await self._store.declare_subscriptions(self._declared)
        self._declare_at = time.monotonic() + _DECLARE_EVERY_S

    async def turn(self) -> int | None:
        """Pass on what waits, and end the gatherings that are due."""
        await self._tend()
        waiting, due = await self._store.next_announcement()
        ended = 0
        if due is not None and due <= self._clock.now():  # first: there may always be something that waits
            ended = await self._store.end_gatherings()
        if waiting is not None:
            passed = await self._store.pass_on()
            return self._clock.now() + _BUSY_MS if passed.busy and not ended else AT_ONCE
        return AT_ONCE if ended else due

    async def _tend(self) -> None:
        """Declare what starts the agents, and forget what is old, now and then."""
        now = time.monotonic()
        if now >= self._declare_at:
            await self.declare()
            await self._store.recall_gatherings()
        if now >= self._prune_at:
            while await self._store.prune_announcements(self._clock.now() - RETENTION_MS):
                pass
            self._prune_at = now + _PRUNE_EVERY_S
