"""The leases of one worker: which runs are surely ours, and what becomes of runs that are lost, or that no task here carries.

Look here when two workers seem to have one run, or none has it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from holdfast.engine.carried import Carried
from holdfast.errors import HoldfastError, LeaseLost, StoreUnavailable
from holdfast.store.appends import Append, Transition
from holdfast.store.contract import WorkerStore
from holdfast.store.leases import Lease
from holdfast.words.harmless import logger
from holdfast.worker.hangs import Hangs
from holdfast.worker.measures import Measures
from holdfast.worker.settings import Settings

# The heartbeat: a thread that prolongs all leases of this process in one statement, whatever the loop is doing.
#
# It beats every third of a lease. What the store answered goes to the loop, which uses it when it turns. Until when the
# leases are surely ours is known here at once, by the time at which the last good heartbeat began: a loop that one agent
# has kept for longer than a lease finds its leases prolonged, and goes on.
#
# The heartbeat stops when the loop has not turned for `hang_limit_s`: then nobody works on these runs, and other workers
# should have them.

_log = logger("holdfast")
T = TypeVar("T")


class Pulse(Generic[T]):
    """Beats in its own thread from `start` to `stop`.

    `carried` tells what there is to keep just before a heartbeat, None if nothing; `heard` gets that again on the loop,
    with the store's answer and until when that can be trusted. `hung_s` tells for how long the loop has not turned.
    """

    def __init__(
        self, store: WorkerStore, settings: Settings, measures: Measures, *, carried: Callable[[], T | None],
        heard: Callable[[T, list[Lease], float], None], hung_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self._store, self._settings, self._measures = store, settings, measures
        self._carried, self._heard, self._hung_s = carried, heard, hung_s
        self._wake, self._stopped = threading.Event(), False
        self._thread = threading.Thread(target=self._main, name="holdfast-pulse", daemon=True)

    def start(self) -> None:
        """Begin; on the loop that is to hear."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def hurry(self) -> None:
        """Beat now: a task waits to be told."""
        self._wake.set()

    def stop(self) -> None:
        """Beat no more; one that is on its way may still come through."""
        self._stopped = True
        self._wake.set()

    # In its thread

    def _main(self) -> None:
        wait_s = self._settings.lease_ttl_s / 3
        while not self._stopped:
            self._wake.wait(wait_s)
            self._wake.clear()
            if not self._stopped:
                wait_s = self._beat()

    def _beat(self) -> float:
        """Send one heartbeat, if there is a reason for one; returns in how many seconds the next one comes."""
        settings, began = self._settings, time.monotonic()
        every_s = settings.lease_ttl_s / 3
        carried = self._carried()
        if carried is None or self._hung_s() > settings.hang_limit_s:
            return every_s
        try:
            leases = self._store.heartbeat(round(settings.lease_ttl_s * 1000))
            self._measures.heartbeat()
            self._loop.call_soon_threadsafe(self._heard, carried, leases, began + settings.trust_s)
        except StoreUnavailable as problem:
            _log.debug("the leases could not be prolonged; trying again: %s", problem)
            return every_s / 3
        except Exception:  # whatever it is, the thread must go on
            if not self._stopped and not self._loop.is_closed():
                _log.exception("the heartbeat failed; no new effect begins until one succeeds")
            return every_s / 3
        return max(0.0, began + every_s - time.monotonic())


_IDLE_BEATS = 3
Astray = set[tuple[str, int]]  # (run, epoch): perhaps leased to us, and nobody here carries it


class Leases:
    """The leases of one worker. `attempts` and `loading` are the worker's own and change under way."""

    def __init__(
        self,
        store: WorkerStore,
        settings: Settings,
        measures: Measures,
        attempts: dict[str, Carried],
        loading: dict[str, bool],
    ) -> None:
        self._store, self._attempts, self._loading = store, attempts, loading
        self._astray: Astray = set()
        self._missing: Astray = set()  # ours at the last heartbeat, and not here
        self._idle_beats = 0
        self._renewed = asyncio.Event()
        self._returns: set[asyncio.Task[None]] = set()
        self._hangs = Hangs(settings, measures, attempts)
        self._pulse = Pulse(
            store, settings, measures, carried=self._carried, heard=self._heard, hung_s=self._hangs.hung_s
        )

    def start(self) -> None:
        """Keep them from now on."""
        self._pulse.start()
        self._hangs.start()

    def stop(self) -> None:
        """Keep them no more."""
        self._pulse.stop()
        self._hangs.stop()

    def hurry(self) -> None:
        """Prolong them now."""
        self._pulse.hurry()

    def trusted(self, lease_until: float) -> bool:
        """Is a lease claimed or renewed until then (of time.monotonic()) surely ours?"""
        return time.monotonic() < lease_until

    async def trust(self) -> None:
        """Wait for the next heartbeat to tell."""
        self._renewed.clear()
        self._pulse.hurry()
        await self._renewed.wait()

    def lead_astray(self, run: str, epoch: int) -> None:
        """Note that no task carries this run, though it may still be ours: it is given back when that is known."""
        self._astray.add((run, epoch))

    def _carried(self) -> tuple[dict[str, Carried], Astray] | None:
        """Copy what is carried, in the thread of the heartbeat, which can tell only about what there was before.

        A worker that carries nothing beats more seldom, to find what it does not know of.
        """
        carried = self._attempts.copy(), self._astray.copy()
        self._idle_beats = 0 if any(carried) or self._loading else self._idle_beats + 1
        return carried if self._idle_beats % _IDLE_BEATS == 0 else None

    def _heard(self, carried: tuple[dict[str, Carried], Astray], leases: list[Lease], until: float) -> None:
        """Use what the heartbeat told: runs that are lost, and runs that have something in their inbox.

        It tells of runs that were here when it began. A run claimed since has its own time, of its claim.
        """
        held = {(lease.run, lease.epoch): lease for lease in leases}
        attempts, astray = carried
        for name, attempt in attempts.items():
            lease = held.get((name, attempt.run.lease_epoch))
            attempt.leased(None if lease is None else until)
            if lease is not None:
                attempt.notice_after(lease.inbox_count)
        self._renewed.set()
        # A claim whose commit was unknown may have happened after all, when it had been given up: then a run is ours
        # and no task carries it. A run that is claimed at this moment is not here yet either, so it must be missing
        # twice.
        missing = {key for key in held if key[0] not in self._attempts and key[0] not in self._loading}
        astray |= missing & self._missing
        self._missing = missing
        self._astray -= astray
        for run, epoch in astray & held.keys():
            giving = asyncio.get_running_loop().create_task(self._give_back(run, epoch))
            self._returns.add(giving)
            giving.add_done_callback(self._returns.discard)

    async def _give_back(self, run: str, epoch: int) -> None:
        """Give back a run that could not be loaded or written, whatever the reason; else it would be ours for ever."""
        try:
            row = await self._store.run(run)
            if row is not None and row.lease_epoch == epoch:
                await self._store.append(Append(run, epoch, row.next_seq, transition=Transition("ready")))
        except LeaseLost:
            _log.debug("run %r was taken over", run)
        except HoldfastError as problem:
            self._astray.add((run, epoch))
            _log.debug("run %r could not be given back, it is tried again: %s", run, problem)
