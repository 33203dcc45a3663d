"""The heartbeat: a thread that prolongs all leases of this process in one statement, whatever the loop is doing.

It beats every third of a lease. What the store answered goes to the loop, which uses it when it turns. Until when the
leases are surely ours is known here at once, by the time at which the last good heartbeat began: a loop that one agent
has kept for longer than a lease finds its leases prolonged, and goes on.

The heartbeat stops when the loop has not turned for `hang_limit_s`: then nobody works on these runs, and other workers
should have them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from holdfast.errors import StoreUnavailable
from holdfast.store.contract import Lease, Store
from holdfast.words.harmless import logger
from holdfast.worker.measures import Measures
from holdfast.worker.settings import Settings

_log = logger("holdfast")
T = TypeVar("T")


class Pulse(Generic[T]):
    """Beats in its own thread from `start` to `stop`.

    `carried` tells what there is to keep just before a heartbeat, None if nothing; `heard` gets that again on the loop,
    with the store's answer and until when that can be trusted. `hung_s` tells for how long the loop has not turned.
    """

    def __init__(
        self, store: Store, settings: Settings, measures: Measures, *, carried: Callable[[], T | None],
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
        """Beat now: somebody waits to be told."""
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
        """One heartbeat, if there is a reason for one; returns in how many seconds the next one comes."""
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
