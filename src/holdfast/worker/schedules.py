"""Schedules in a worker: it declares those of its agents, and begins the runs whose times have come.

Look here when a run that has a schedule does not begin, or begins late.

Every worker does this, whichever agents it serves. The store knows what is due; the worker sleeps until then, or until it hears of
a change. As everywhere, polling is the truth, and news only shorten the sleep.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterable
from typing import Final

from holdfast.errors import BadArguments, StoreUnavailable
from holdfast.runtime import AgentSpec
from holdfast.store.changes import Changes
from holdfast.store.contract import WorkerStore
from holdfast.store.runs import NewRun
from holdfast.store.schedules import LONGEST_INPUT, NEWS, Declared, template
from holdfast.values.codec import hashed
from holdfast.words.harmless import logger
from holdfast.words.limits import lane_of
from holdfast.words.schedules import stored
from holdfast.worker.measures import Measures

_log = logger("holdfast")
_LONGEST_SLEEP_S: Final = 5.0
_SHORTEST_SLEEP_S: Final = 0.02
_DECLARE_EVERY_S: Final = 30.0
_AGAIN_S: Final = 1.0


def declared_by(spec: AgentSpec) -> Declared:
    """Write down what an agent declares; without a schedule that is that it has none."""
    if spec.schedule is None:
        return Declared(spec.name, spec.name, "", "", "")
    given = spec.signature.bind((), dict(spec.schedule.args)).input
    if len(given.text) > LONGEST_INPUT:
        raise BadArguments(
            f"agent {spec.name!r}: the arguments of a schedule are longer than {LONGEST_INPUT:,} characters"
        )
    run = NewRun("", "", spec.name, given.text, spec.version, spec.flow.queue or "default")
    run.lane, run.identity = lane_of(spec.flow, spec.signature, given.identity), given.digest
    run.budget = None if spec.budget is None else json.dumps(spec.budget.published())
    times, made = stored(spec.schedule), template(run)
    return Declared(spec.name, spec.name, times, made, hashed(times + made))


class Schedules:
    """One worker's part in schedules."""

    def __init__(self, store: WorkerStore, measures: Measures) -> None:
        self._store, self._measures, self._look = store, measures, asyncio.Event()
        self._declared: list[Declared] = []
        self._declare_at = 0.0  # in the time of time.monotonic()
        self._resting = False

    def declare(self, specs: Iterable[AgentSpec]) -> None:
        """Declare these agents' schedules from now on. `BadArguments` if the arguments of one do not fit its agent."""
        self._declared, self._declare_at = [declared_by(spec) for spec in specs], 0.0
        self.wake()

    def changed(self, changes: Changes) -> None:
        """Hear of a commit."""
        if NEWS in changes:
            self.wake()

    def wake(self) -> None:
        """Look now at what is due."""
        self._look.set()

    @property
    def asleep(self) -> bool:
        """Is nothing due that is known here?"""
        return self._resting and not self._look.is_set()

    async def keep(self) -> None:
        """Begin what is due, for ever."""
        while True:
            try:
                self._look.clear()
                if time.monotonic() >= self._declare_at:
                    await self._store.declare_schedules(self._declared)
                    self._declare_at = time.monotonic() + _DECLARE_EVERY_S
                due = await self._store.next_schedule()
                if due is None or not await self._begin(due):
                    await self._rest(due)
            except StoreUnavailable as problem:
                _log.warning("schedules could not be looked at; trying again: %s", problem)
                await asyncio.sleep(_AGAIN_S)
            except BadArguments as problem:  # a row of another worker needs what is not installed here
                _log.warning("this worker cannot begin all that is due: %s", problem)
                await asyncio.sleep(_DECLARE_EVERY_S)
            except Exception:
                _log.exception("schedules could not be looked at; trying again")
                await asyncio.sleep(_AGAIN_S)

    async def _begin(self, due: int) -> bool:
        """Begin what is due, if the first is; were there any runs?"""
        late_ms = self._store.clock.now() - due
        if late_ms < 0 or not (begun := await self._store.begin_due()):
            return False
        self._measures.begin(len(begun), late_ms / 1000)
        return True

    async def _rest(self, due: int | None) -> None:
        """Sleep until the first is due, but not long, because clocks are set; nor not at all: another worker may be at it."""
        left_s = _LONGEST_SLEEP_S if due is None else (due - self._store.clock.now()) / 1000
        self._resting = True
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(left_s, _SHORTEST_SLEEP_S), _LONGEST_SLEEP_S)):
                    await self._look.wait()
        finally:
            self._resting = False
