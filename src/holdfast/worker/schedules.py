"""Schedules in a worker: it declares those of its agents, and begins the runs whose times have come.

Look here when a run that has a schedule does not begin, or begins late.

Every worker does this, whichever agents it serves, as one of its rounds (rounds.py).
"""

from __future__ import annotations

import json
import time
from typing import Final

from holdfast.errors import BadArguments
from holdfast.runtime import AgentSpec
from holdfast.store.changes import Changes, News
from holdfast.store.contract import WorkerStore
from holdfast.store.runs import NewRun
from holdfast.store.schedules import LONGEST_INPUT, NEWS, Declared, template
from holdfast.values.codec import hashed
from holdfast.words.harmless import logger
from holdfast.words.limits import lane_of
from holdfast.words.schedules import stored
from holdfast.worker.agents import Served
from holdfast.worker.measures import Measures
from holdfast.worker.rounds import AT_ONCE, Round

_log = logger("holdfast")
_DECLARE_EVERY_S: Final = 30.0
_MOST_BEHIND: Final = 1_000  # runs that are listened for; of others a later look finds that they have ended


def declared_by(spec: AgentSpec) -> Declared:
    """Write down what an agent declares; without a schedule that is that it has none."""
    if spec.schedule is None:
        return Declared(spec.name, spec.name, "", "", "")
    given = spec.signature.bind((), dict(spec.schedule.args)).input
    if len(given.text) > LONGEST_INPUT:
        raise BadArguments(
            f"agent {spec.name!r}: the arguments of a schedule are at most {LONGEST_INPUT:,} characters; these are "
            f"{len(given.text):,}. Give where the data is, and let the agent read it"
        )
    run = NewRun("", "", spec.name, given.text, spec.version, spec.flow.queue or "default")
    run.lane, run.identity = lane_of(spec.flow, spec.signature, given.identity), given.digest
    run.budget = None if spec.budget is None else json.dumps(spec.budget.published())
    times, made = stored(spec.schedule), template(run)
    return Declared(spec.name, spec.name, times, made, hashed(times + made))


class Schedules(Round):
    """One worker's part in schedules."""

    what, news, listens = "schedules", NEWS, True

    def __init__(self, store: WorkerStore, measures: Measures) -> None:
        super().__init__(store.clock)
        self._store, self._measures = store, measures
        self._declared: list[Declared] = []
        self._declare_at = 0.0  # in the time of time.monotonic()
        self._unread: dict[str, str] = {}  # times of schedules that this process cannot read, and why
        self._behind: dict[str, str] = {}  # schedules that wait for the end of a run, by that run
        self._freed: set[str] = set()  # those of them whose run has ended

    def serve(self, served: Served) -> None:
        """Declare the schedules of these agents from now on. `BadArguments` if the arguments of one do not fit its agent."""
        self._declared, self._declare_at = [declared_by(spec) for spec in served.newest], 0.0
        self.wake()

    def concerned(self, changes: Changes) -> bool:
        """Wake this too when a run has stopped that a schedule waits for."""
        if self._behind and not self._behind.keys().isdisjoint(changes):
            self._freed |= {name for run, name in self._behind.items() if changes.get(run, News.GREW) >= News.STOPPED}
        return bool(self._freed)

    async def turn(self) -> int | None:
        """Begin what is due."""
        if time.monotonic() >= self._declare_at:
            await self._store.declare_schedules(self._declared)
            self._declare_at = time.monotonic() + _DECLARE_EVERY_S
        due = await self._store.next_schedule(self._unread)
        return due if due is None or not await self._begin(due) else AT_ONCE

    async def _begin(self, due: int) -> bool:
        """Begin what is due, if the first is, or waits no more; was anything done, so that there may be more?"""
        late_ms = self._store.clock.now() - due
        if late_ms < 0 and not self._freed:
            return False
        known, freed, self._freed = len(self._unread), sorted(self._freed), set()
        runs, missed, behind = await self._store.begin_due(self._unread, freed)
        for times, problem in list(self._unread.items())[known:]:
            _log.warning(
                "this worker leaves schedules with the times %s to others, which begin their runs: %s", times, problem
            )
        self._behind |= behind
        while len(self._behind) > _MOST_BEHIND:
            del self._behind[next(iter(self._behind))]
        self._measures.begin(len(runs), missed, max(late_ms, 0) / 1000)
        return bool(runs or missed or behind) or len(self._unread) > known
