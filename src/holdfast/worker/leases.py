"""Which runs are surely ours, and what becomes of those that are not any more, or that nobody here carries."""

from __future__ import annotations

import asyncio
import time

from holdfast.engine import parking
from holdfast.engine.execution import Execution
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.store.contract import Append, Lease, Store, Transition
from holdfast.words.harmless import logger
from holdfast.worker.hangs import Hangs
from holdfast.worker.measures import Measures
from holdfast.worker.pulse import Pulse
from holdfast.worker.settings import Settings

_log = logger("holdfast")
_IDLE_BEATS = 3
Astray = set[tuple[str, int]]  # (run, epoch): perhaps leased to us, and nobody here carries it


class Leases:
    """The leases of one worker. `executions` and `loading` are the worker's own and change under way."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        measures: Measures,
        executions: dict[str, Execution],
        loading: dict[str, bool],
    ) -> None:
        self._store, self._executions, self._loading = store, executions, loading
        self._astray: Astray = set()
        self._missing: Astray = set()  # ours at the last heartbeat, and not here
        self._idle_beats = 0
        self._renewed = asyncio.Event()
        self._returns: set[asyncio.Task[None]] = set()
        self._hangs = Hangs(settings, measures, executions)
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

    def trusted(self, lease_until: float) -> bool:
        """Is a lease claimed or renewed until then (of time.monotonic()) surely ours?"""
        return time.monotonic() < lease_until

    async def trust(self) -> None:
        """Wait for the next heartbeat to tell."""
        self._renewed.clear()
        self._pulse.hurry()
        await self._renewed.wait()

    def lead_astray(self, run: str, epoch: int) -> None:
        """Nobody carries this run here any more, though it may still be ours: it is given back when that is known."""
        self._astray.add((run, epoch))

    def _carried(self) -> tuple[dict[str, Execution], Astray] | None:
        """In the thread of the heartbeat: copies, for it can tell only about what there was before.

        A worker that carries nothing beats more seldom, to find what it does not know of.
        """
        carried = self._executions.copy(), self._astray.copy()
        self._idle_beats = 0 if any(carried) or self._loading else self._idle_beats + 1
        return carried if self._idle_beats % _IDLE_BEATS == 0 else None

    def _heard(self, carried: tuple[dict[str, Execution], Astray], leases: list[Lease], until: float) -> None:
        """What the heartbeat told: runs that are lost, and runs that have something in their inbox.

        It tells of those that were here when it began. One that came since has its own time, of its claim.
        """
        held = {(lease.run, lease.epoch): lease for lease in leases}
        executions, astray = carried
        for name, execution in executions.items():
            lease = held.get((name, execution.run.lease_epoch))
            execution.unsure = lease is None
            if lease is None:
                # One that is just ending or being given back has no lease any more: its write on the way tells.
                if not (execution.unacked or execution.holding):
                    execution.close("lost")
                continue
            execution.lease_until = max(execution.lease_until, until)
            if lease.inbox_count > execution.inbox_seen:
                parking.notice(execution)
        self._renewed.set()
        # A claim whose commit was unknown may have happened after all, when it had been given up: then a run is ours and
        # nobody carries it. One that is claimed at this moment is not here yet either, so it must be missing twice.
        missing = {key for key in held if key[0] not in self._executions and key[0] not in self._loading}
        astray |= missing & self._missing
        self._missing = missing
        self._astray -= astray
        for run, epoch in astray & held.keys():
            giving = asyncio.get_running_loop().create_task(self._give_back(run, epoch))
            self._returns.add(giving)
            giving.add_done_callback(self._returns.discard)

    async def _give_back(self, run: str, epoch: int) -> None:
        """A run that could not be loaded or written, for whatever reason, is free again; it would be ours for ever."""
        try:
            row = await self._store.run(run)
            if row is not None and row.lease_epoch == epoch:
                await self._store.append(Append(run, epoch, row.next_seq, transition=Transition("ready")))
        except LeaseLost:
            _log.debug("run %r was taken over", run)
        except HoldfastError as problem:
            self._astray.add((run, epoch))
            _log.debug("run %r could not be given back, it is tried again: %s", run, problem)
