"""Runs that may have ended their process: how long they wait to run alone, and how they are stopped.

A crash is everybody's who was in the process. So a run with two of them since its last progress is a suspect: it runs
when nothing else runs here, and nothing else is claimed until it has made progress. With five it is paused. A process
that is never empty would never run it; after a while it is run beside what is there already.
"""

from __future__ import annotations

import logging

from holdfast.errors import LeaseLost
from holdfast.model import RunRow
from holdfast.store.base import Append, Store, Transition

_log = logging.getLogger("holdfast")
CRASHES_ALONE = 2
LONGEST_WAIT_S = 30.0


class Wait:
    """How long a suspect has been due while others kept this process busy."""

    def __init__(self) -> None:
        self._since: float | None = None

    def look(self, now_s: float, suspect_due: int | None, other_due: int | None, now: int) -> None:
        """Take note of when a suspect and when any other run is due: a suspect waits if it comes first."""
        waits = suspect_due is not None and suspect_due <= now and (other_due is None or suspect_due < other_due)
        self._since = (self._since or now_s) if waits else None

    @property
    def waits(self) -> bool:
        return self._since is not None

    def over(self, now_s: float) -> bool:
        """Has it waited long enough?"""
        return self._since is not None and now_s - self._since > LONGEST_WAIT_S


async def pause(store: Store, run: RunRow) -> None:
    """Stop a run that was just claimed; only a person lets it go on."""
    reason = (
        f"run {run.id!r} ended its process {run.crash_count} times without any progress in between, in the end while "
        "it ran alone, where that was possible. Look at what its step does (memory, a native crash, os._exit), then "
        "resume the run"
    )
    _log.error("%s", reason)
    transition = Transition("paused", reason=reason)
    try:
        await store.append(Append(run.id, run.lease_epoch, run.next_seq, transition=transition))
    except LeaseLost:
        _log.info("run %r was taken over", run.id)
