"""The schedule of one worker: which runs it claims, and when it looks for the next.

Look here when a run that is due is not claimed, or is claimed late.

The store knows what is due; a worker asks it (`claim`), then sleeps until something changes or the next run is due (`rest`).
Polling is the truth, and a notification only shortens the sleep. A claim takes no more runs than the worker carries already:
workers that wake up together share what there is, and a busy one still claims much. Of runs that it heard of by name,
and of runs that its own process has made due, it takes its share at once: a hundred that a schedule begins are one
claim, and not five that each wait for the runs before them to begin. Suspects (suspects.py) are claimed apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from typing import Any, Final

from holdfast.engine.carried import Carried
from holdfast.engine.host import EARLY_MS
from holdfast.store.changes import Changes, News
from holdfast.store.contract import WorkerStore
from holdfast.words.model import RunRow
from holdfast.worker import suspects
from holdfast.worker.agents import Served
from holdfast.worker.settings import Settings

_LONGEST_SLEEP_S: Final = 5.0
_MOST_CLAIMED: Final = 100  # at once
_FIRST_CLAIMED: Final = 10
_MOST_KNOWN: Final = 10_000  # names of runs that are due; a worker that is full claims none of them
_BEGIN_S: Final = 0.005  # for what was claimed to begin


class Scheduler:
    """Decides what a worker carries next. `attempts` and `loading` are the worker's own and change under way."""

    def __init__(
        self,
        store: WorkerStore,
        served: Served,
        settings: Settings,
        attempts: dict[str, Carried],
        loading: dict[str, bool],
    ) -> None:
        self._store, self._served, self._settings = store, served, settings
        self._attempts, self._loading = attempts, loading
        self._ours: dict[str, Any] = {"root": settings.root, "queues": settings.queues}  # what may be claimed
        self._look, self._asleep = asyncio.Event(), False
        self._meanwhile: set[str] = set()  # runs that changed while a claim was on its way: it may have taken them
        self._sure = False  # the time has come at which a run is due, so the store need not look before it claims
        self._asked_for = 1
        self._due: set[str] = set()  # runs that became due since the last claim, as far as they were named
        self._workers: int | None = None  # that are there, to share with; None: not known yet
        self._group, self._suspect = suspects.Group(), suspects.Wait()
        self._suspected = True  # a suspect may be due
        self.lease_until = 0.0  # of what was claimed last, in the time of time.monotonic()

    @property
    def asleep(self) -> bool:
        """Is nothing due, as far as the worker knows?"""
        return self._asleep and not self._look.is_set()

    @property
    def carried(self) -> int:
        """The number of runs here, those included that are still being loaded."""
        return len(self._attempts) + len(self._loading)

    @property
    def full(self) -> bool:
        return self.carried >= self._settings.concurrency or bool(self._group)

    def wake(self) -> None:
        """Look for work as soon as possible."""
        self._look.set()

    # Claiming

    async def claim(self) -> list[RunRow]:
        """Take due runs. Suspects are taken only when nothing else runs here, or has run here for too long."""
        self._look.clear()
        self._meanwhile.clear()
        self._group.look(self._under_suspicion, time.monotonic())
        free = self._settings.concurrency - self.carried
        if self._group or free <= 0:
            return []
        await self._served.publish(self._store)
        ttl_ms = round(self._settings.lease_ttl_s * 1000)
        started = time.monotonic()
        claimed: list[RunRow] = []
        overdue = self._suspect.over(started)
        if not overdue:
            sure, self._sure = self._sure, False
            self._asked_for = min(free, max(_FIRST_CLAIMED, self.carried, self._share()), _MOST_CLAIMED)
            claimed = await self._store.claim(self._served.names, self._asked_for, ttl_ms, sure=sure,
                                              early_ms=EARLY_MS, **self._ours)  # fmt: skip
        if overdue or (not claimed and not self.carried and self._suspected):
            self._suspected = False
            claimed = await self._store.claim(self._served.names, free, ttl_ms, alone=True, **self._ours)
            if self._group.watch(claimed, started):
                self._suspect = suspects.Wait()
        self.lease_until = started + self._settings.trust_s
        return claimed

    def _share(self) -> int:
        """Return this worker's share of the runs that are known to be due, and forget them: they are claimed now."""
        known, self._due = len(self._due), set()
        return 0 if self._workers is None else math.ceil(known / max(self._workers, 1))

    def _under_suspicion(self, run: str) -> bool:
        """A run that was suspected and has made progress is one like all others."""
        attempt = self._attempts.get(run)
        return run in self._loading or (attempt is not None and not attempt.progressed)

    def changed_meanwhile(self, run: str) -> bool:
        """Did news of this run come while it was being claimed?"""
        return run in self._meanwhile or "" in self._meanwhile

    # Sleeping

    async def rest(self, claimed: int) -> None:
        """Sleep until a change, or until the next run is due; not at all if the last claim left runs that are due.

        Runs that were just claimed begin first, because what they do may change when the next one is due.
        """
        if claimed >= self._asked_for and not self.full:
            await asyncio.sleep(0)
            return
        if claimed and await self._woken(_BEGIN_S):
            return
        timer = None
        if not self.full:
            due = await self._next_due(alone=not self.carried)
            if due is not None:  # it may have become due since the claim, or is a suspect: then the timer fires at once
                now, early = self._store.clock.now(), due - EARLY_MS
                self._suspected = due <= now
                timer = self._store.clock.call_at(early if early > now else due, self._is_due)
        try:
            self._asleep = True
            await self._woken(_LONGEST_SLEEP_S)
        finally:
            self._asleep = False
            if timer is not None:
                timer.cancel()

    async def _woken(self, within_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                return await self._look.wait()
        return False

    def _is_due(self) -> None:
        self._sure = True
        self._look.set()

    async def _next_due(self, **which: Any) -> int | None:
        return await self._store.next_due(self._served.names, **which, **self._ours)

    # News

    def changed(self, changes: Changes) -> None:
        """Tell runs that are here what the store has for them, and look for the other runs."""
        for run, news in changes.items():
            if news >= News.DUE:
                self._heard_of(run)
            elif news == News.STOPPED and run in self._attempts:
                self._attempts[run].stopped()

    def _heard_of(self, run: str) -> None:
        attempt = self._attempts.get(run)
        if attempt is not None and not attempt.leaves:
            attempt.notice(sure=True)
            return
        if run in self._loading:
            self._loading[run] = True
        else:
            self._meanwhile.add(run)
            if run and len(self._due) < _MOST_KNOWN:
                self._due.add(run)
        if not run:  # any run may have changed
            for each in self._loading:
                self._loading[each] = True
            for attempt in self._attempts.values():
                if attempt.awaits_signal:
                    attempt.notice()
        self._look.set()

    def left(self, *, was_full: bool) -> None:
        """Look again after a run has left memory, if that makes room for another, or for a suspect."""
        if was_full or (self._suspect.waits and not self.carried):
            self._look.set()

    async def look_around(self) -> None:
        """Look, now and then, for suspects that wait too long, for runs that a limit held back, and how many workers there are."""
        await self._look_for_suspects()
        self._workers = await self._store.count_workers()
        if not self.full and await self._store.let_in(self._served.names, **self._ours):
            self._look.set()

    async def _look_for_suspects(self) -> None:
        if not self.carried:
            self._suspect = suspects.Wait()
            due = await self._next_due()
            if due is not None and due <= self._store.clock.now():
                self._look.set()
            return
        first, other = [await self._next_due(alone=alone) for alone in (True, False)]
        self._suspect.look(time.monotonic(), first, other, self._store.clock.now())
        if self._suspect.over(time.monotonic()):
            self._look.set()
