"""Runs that may have ended their process: with how many others they are carried, how long they wait, how they are stopped.

When a process dies, any of the runs in it may have ended it. One death says little against each of two hundred. So nothing is
done after the first. After the second, without progress in between, a run is a suspect and is carried apart: with suspects
only, and with half as many of them as died with it, at most. Each further death halves that again, and a group in which
nothing dies makes progress and is free of suspicion. What really ends processes is alone soon: in a fleet of two hundred runs
after eight deaths. If it was alone when its process died, and that was the fifth time, it is paused.

Groups are claimed like other runs, so workers carry theirs beside each other. A process carries one group at a time and
nothing else until all of it made progress, or for a while if it is no single run. A process that is never empty would never
carry one; after a few seconds it is carried beside what is there already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.errors import LeaseLost
from holdfast.store.appends import Append, Transition
from holdfast.store.contract import WorkerStore
from holdfast.words.harmless import logger
from holdfast.words.model import CRASHES_APART, CRASHES_AT_MOST, CRASHES_PAUSED, RunRow

_log = logger("holdfast")
LONGEST_WAIT_S = 5.0
LONGEST_WATCH_S = 30.0


class Wait:
    """The wait of a suspect that is due while others keep this process busy."""

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


class Group:
    """The suspects that this process carries."""

    def __init__(self) -> None:
        self._runs: set[str] = set()
        self._single, self._until_s = False, 0.0

    def __bool__(self) -> bool:
        return bool(self._runs)

    def watch(self, claimed: Iterable[RunRow], now_s: float) -> bool:
        """Watch the suspects among these runs from now on; tells whether there are any."""
        self._runs = {run.id for run in claimed if run.crash_count >= CRASHES_APART}
        self._single, self._until_s = len(self._runs) == 1, now_s + LONGEST_WATCH_S
        return bool(self._runs)

    def look(self, under_suspicion: Callable[[str], bool], now_s: float) -> None:
        """Forget suspects that made progress or left. A group is forgotten after a while too, a single run is not."""
        self._runs = {run for run in self._runs if under_suspicion(run)}
        if not self._single and now_s > self._until_s:
            self._runs = set()


def guilty(run: RunRow) -> bool:
    """Has this run ended its process often enough to be stopped? Not if others died with it, unless that goes on and on."""
    alone = not run.company
    return run.crash_count >= (CRASHES_PAUSED if alone else CRASHES_AT_MOST)


async def pause(store: WorkerStore, run: RunRow) -> None:
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
