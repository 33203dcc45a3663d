"""A worker: claims what is due, runs many runs on one loop, and gives them back when it stops.

One loop decides (`_work`): claim what is due, then sleep until something changes or the next run is due. Everything else
reacts: a heartbeat keeps the leases, changes of the store wake runs that wait for a message, and dead workers' runs are
taken over the moment their lock can be had.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast.declaring import Step
from holdfast.engine import parking
from holdfast.engine.execute import begin
from holdfast.engine.execution import Execution
from holdfast.engine.tasks import RunTask, install
from holdfast.errors import BadArguments, HoldfastError, LeaseLost, StoreUnavailable
from holdfast.model import RunRow
from holdfast.resources import OpenResources
from holdfast.runtime import AgentSpec, StepSpec
from holdfast.store.base import Append, Change, News, Store, Transition
from holdfast.worker import suspects
from holdfast.worker.measures import Measures
from holdfast.worker.publishing import schema_of
from holdfast.worker.reach import called_by
from holdfast.worker.settings import Settings

_log = logging.getLogger("holdfast")
_LONGEST_SLEEP_S = 5.0
_RECOVER_EVERY_S = 1.0
_AGAIN_S = 1.0
_LONGEST_GRACE_S = 60.0
_MOST_GRACES = 1_000  # remembered; runs that wait elsewhere, or for ever, must not cost memory here


class Worker:
    """Serves agents out of a store. It is the `Host` of the runs it carries."""

    def __init__(self, store: Store, specs: Iterable[AgentSpec], settings: Settings | None = None) -> None:
        self.store, self.clock = store, store.clock
        self.settings, self.measures = settings or Settings(), Measures()
        self.value_limit_bytes = self.settings.value_limit_bytes
        steps = {key: value for key, value in self.settings.replace.items() if isinstance(key, Step)}
        self._replace = {key.spec: value.fn if isinstance(value, Step) else value for key, value in steps.items()}
        self.resources = OpenResources(self.settings.replace)
        self.threads = ThreadPoolExecutor(self.settings.threads, thread_name_prefix="holdfast-step")
        self.executions: dict[str, Execution] = {}
        self.loading: dict[str, bool] = {}  # claimed and not yet running; True: a signal came meanwhile
        self._meanwhile: set[str] = set()  # runs that changed while a claim was on its way: it may have taken them
        self._carriers: set[asyncio.Task[None]] = set()
        self._strays: set[asyncio.Task[Any]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._graces: dict[str, float] = {}
        self._agents: dict[str, AgentSpec] = {}
        self._unpublished: list[AgentSpec] = []
        self._look = asyncio.Event()
        self._sure = False  # the time has come at which a run is due
        self._stopping = False
        self._lease_until = 0.0
        self._solo: str | None = None
        self._suspect = suspects.Wait()
        self._astray: set[tuple[str, int]] = set()  # (run, epoch): perhaps leased to us, and nobody here carries it
        self._renewed = asyncio.Event()
        for spec in specs:
            self.serve(spec)

    # Life

    async def start(self) -> None:
        """Take over what dead workers left, then work."""
        install(asyncio.get_running_loop())
        self._loop = asyncio.get_running_loop()
        self.store.on_change(self._changed)
        self.store.observe(self.measures.commit)
        await self._publish()
        self.measures.recovered += await self.store.recover()
        for work in (self._work(), self._keep_leases(), self._recover()):
            self._tasks.append(self._loop.create_task(work))

    async def stop(self, grace_s: float | None = None) -> None:
        """Stop at a safe point: bodies that run may end and are recorded, then every run is given back."""
        if self._stopping:
            return
        self._stopping = True
        grace_s = self.settings.stop_grace_s if grace_s is None else grace_s
        self._tasks[0].cancel()  # claim no more; leases are kept until the last run is given back
        await asyncio.gather(self._tasks[0], return_exceptions=True)
        releases = [parking.release(execution, grace_s) for execution in list(self.executions.values())]
        for problem in await asyncio.gather(*releases, return_exceptions=True):
            if isinstance(problem, Exception) and not isinstance(problem, StoreUnavailable):
                _log.error("a run could not be given back: %r", problem)
        await self._put_down()

    async def abandon(self) -> None:
        """Drop everything as a killed process would: nothing is given back."""
        self._stopping = True
        for execution in list(self.executions.values()):
            execution.close("lost")
        await self._put_down()

    async def _put_down(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._carriers, return_exceptions=True)
        for last in (False, True):
            for stray in list(self._strays):
                if last and isinstance(stray, RunTask):
                    stray.scope.execution.given_up = True
                stray.cancel()
            if self._strays:
                await asyncio.wait(self._strays, timeout=0.5)
        self.threads.shutdown(wait=False, cancel_futures=True)
        try:
            await self.resources.close()
        except ExceptionGroup as problems:
            _log.warning("a resource did not close: %s", problems.exceptions)

    @property
    def draining(self) -> bool:
        """Was it told to stop?"""
        return self._stopping

    # The loop

    async def _work(self) -> None:
        while True:
            self._look.clear()
            try:
                claimed = await self._claim()
                self.measures.claim(claimed)
                for run in claimed:
                    self._carry(run)
                await asyncio.sleep(0)  # what was claimed begins before anything else is looked for
                if not claimed or self._full():
                    await self._sleep()
            except StoreUnavailable as problem:  # what cannot be read now may be readable again soon
                _log.warning("looking for work failed; trying again: %s", problem)
                await asyncio.sleep(_AGAIN_S)
            except HoldfastError:
                _log.exception("looking for work failed; trying again")
                await asyncio.sleep(_AGAIN_S)

    def _carried(self) -> int:
        """How many runs are here, those included that are still being loaded."""
        return len(self.executions) + len(self.loading)

    def _full(self) -> bool:
        return self._carried() >= self.settings.concurrency or self._solo is not None

    async def _claim(self) -> list[RunRow]:
        """Take due runs. A suspect is taken only when nothing else runs here, or has run here for too long."""
        self._meanwhile.clear()
        self._check_solo()
        free = self.settings.concurrency - self._carried()
        if self._solo is not None or free <= 0:
            return []
        await self._publish()
        ttl_ms = round(self.settings.lease_ttl_s * 1000)
        started = self._loop.time()
        names = list(self._agents)
        root, claimed, overdue = self.settings.root, list[RunRow](), self._suspect.over(started)
        if not overdue:
            sure, self._sure = self._sure, False
            claimed = await self.store.claim(names, min(free, 100), ttl_ms, root=root, sure=sure)
        if overdue or (not claimed and not self._carried()):
            claimed = await self.store.claim(names, 1, ttl_ms, root=root, alone=True)
            if claimed and claimed[0].crash_count >= suspects.CRASHES_ALONE:
                self._solo = claimed[0].id
                self._suspect = suspects.Wait()
        self._claimed_until = started + self.settings.trust_s
        return claimed

    def _check_solo(self) -> None:
        """A run that was suspected and has made progress is one like all others."""
        if self._solo is not None and self._solo not in self.loading:
            execution = self.executions.get(self._solo)
            if execution is None or execution.new_outcomes:
                self._solo = None

    async def _sleep(self) -> None:
        """Until a change, or until the next run is due. Polling is the truth; being told only shortens it."""
        timer = None
        if not self._full():
            alone = not self._carried()
            due = await self.store.next_due(list(self._agents), root=self.settings.root, alone=alone)
            if due is not None:  # it may have become due since the claim: then the timer fires at once
                timer = self.clock.call_at(due, self._is_due)
        try:
            async with asyncio.timeout(_LONGEST_SLEEP_S):
                await self._look.wait()
        except TimeoutError:
            pass
        finally:
            if timer is not None:
                timer.cancel()

    def _is_due(self) -> None:
        self._sure = True
        self._look.set()

    def _changed(self, change: Change) -> None:
        if change.news < News.DUE:
            return
        execution = self.executions.get(change.run)
        if execution is not None and not execution.closing:
            parking.notice(execution)
            return
        if change.run in self.loading:
            self.loading[change.run] = True
        else:
            self._meanwhile.add(change.run)
        if not change.run:
            self.loading = dict.fromkeys(self.loading, True)
            for execution in self.executions.values():
                if any(wait.token is not None for wait in execution.waits.values()):
                    parking.notice(execution)
        self._look.set()

    # One run

    def _carry(self, run: RunRow) -> None:
        self.loading[run.id] = run.id in self._meanwhile or "" in self._meanwhile
        carrier = self._loop.create_task(self._carry_on(run, self._claimed_until))
        self._carriers.add(carrier)
        carrier.add_done_callback(self._carriers.discard)

    async def _carry_on(self, run: RunRow, lease_until: float) -> None:
        execution: Execution | None = None
        try:
            try:
                if run.crash_count >= suspects.CRASHES_PAUSED:
                    await suspects.pause(self.store, run)
                    return
                execution = await begin(self, run, self._agents[run.agent])
                execution.lease_until = lease_until
                self.executions[run.id] = execution
            finally:
                came = self.loading.pop(run.id)
            if came:
                parking.notice(execution)
            if self._stopping:  # it was being loaded when the worker was told to stop
                await parking.release(execution, 0.0)
            outcome = await execution.ended
            self.measures.left[outcome] += 1
            self._remember(execution, outcome)
            if outcome == "lost":
                self._astray.add((run.id, run.lease_epoch))
        except StoreUnavailable as problem:
            self._astray.add((run.id, run.lease_epoch))
            if not self._stopping:
                _log.warning("run %r could not be carried on; it will be tried again: %s", run.id, problem)
        except Exception:
            self._astray.add((run.id, run.lease_epoch))
            _log.exception("run %r could not be carried on; it will be tried again", run.id)
        finally:
            was_full = self._full()
            if self.executions.get(run.id) is execution:
                self.executions.pop(run.id, None)
            if was_full or not self._carried():  # there is room again, or for a suspect
                self._look.set()
            if execution is not None:
                execution.close("lost")
                await execution.unwound()

    def _remember(self, execution: Execution, outcome: str) -> None:
        """A park that brought nothing new doubles the next one's grace, so that a run does not flap."""
        run = execution.run.id
        if outcome != "parked" or execution.new_outcomes:
            self._graces.pop(run, None)
        elif self.settings.park_grace_s > 0:
            self._graces[run] = min(self.park_grace_s(run) * 2, _LONGEST_GRACE_S)
            if len(self._graces) > _MOST_GRACES:
                del self._graces[next(iter(self._graces))]

    # Leases

    async def _keep_leases(self) -> None:
        while True:
            await asyncio.sleep(self.settings.lease_ttl_s / 3)
            if self._carried() or self._astray:
                await self._renew()

    async def _renew(self) -> None:
        started = self._loop.time()
        before = dict(self.executions)
        try:
            leases = await asyncio.to_thread(self.store.heartbeat, round(self.settings.lease_ttl_s * 1000))
        except StoreUnavailable:
            return
        except HoldfastError:
            _log.exception("the heartbeat failed; no new effect begins until one succeeds")
            return
        self._lease_until = started + self.settings.trust_s
        self.measures.heartbeat()
        held = {(lease.run, lease.epoch): lease for lease in leases}
        for name, execution in before.items():
            lease = held.get((name, execution.run.lease_epoch))
            if lease is None:
                if execution.live or not execution.closing:
                    execution.close("lost")
            elif lease.inbox_count > execution.inbox_seen:
                parking.notice(execution)
        self._renewed.set()
        astray, self._astray = self._astray, set()
        for run, epoch in astray & held.keys():
            await self._give_back(run, epoch)

    async def _give_back(self, run: str, epoch: int) -> None:
        """A run that could not be loaded or written, for whatever reason, is free again; it would be ours for ever."""
        try:
            row = await self.store.run(run)
            if row is not None and row.lease_epoch == epoch:
                await self.store.append(Append(run, epoch, row.next_seq, transition=Transition("ready")))
        except LeaseLost:
            _log.debug("run %r was taken over", run)
        except HoldfastError as problem:
            self._astray.add((run, epoch))
            _log.debug("run %r could not be given back, it is tried again: %s", run, problem)

    def trusted(self, lease_until: float) -> bool:
        """Is a lease claimed until then, or renewed since, surely ours?"""
        return self._loop.time() < max(self._lease_until, lease_until)

    async def trust(self) -> None:
        """Wait for the next heartbeat to tell."""
        self._renewed.clear()
        renewing = self._loop.create_task(self._renew())
        await self._renewed.wait()
        await renewing

    async def _recover(self) -> None:
        while True:
            await asyncio.sleep(_RECOVER_EVERY_S)
            try:
                if recovered := await self.store.recover():
                    self.measures.recovered += recovered
                    self._look.set()
                await self._look_for_suspects()
            except StoreUnavailable as problem:
                _log.debug("looking for dead workers failed; trying again: %s", problem)
            except HoldfastError:
                _log.exception("looking for dead workers failed; trying again")

    async def _look_for_suspects(self) -> None:
        if not self._carried():
            self._suspect = suspects.Wait()
            return
        names, root = list(self._agents), self.settings.root
        first, other = [await self.store.next_due(names, root=root, alone=alone) for alone in (True, False)]
        self._suspect.look(self._loop.time(), first, other, self.clock.now())
        if self._suspect.over(self._loop.time()):
            self._look.set()

    # What a run needs of its host

    def park_grace_s(self, run: str) -> float:
        grace_s = self._graces.get(run, self.settings.park_grace_s)
        return 0.0 if self._full() else grace_s

    def serve(self, spec: AgentSpec) -> None:
        known = self._agents.get(spec.name)
        if known is None:
            for each in (spec, *called_by(spec)):
                if each.name not in self._agents:
                    self._agents[each.name] = each
                    self._unpublished.append(each)
            self._look.set()
        elif known.fn is not spec.fn:
            raise BadArguments(
                f"two agents are named {spec.name!r}: {known.fn.__module__}.{known.fn.__qualname__} and "
                f"{spec.fn.__module__}.{spec.fn.__qualname__}; give one another name with @agent(name=...)"
            )

    async def _publish(self) -> None:
        if self._unpublished:
            specs, self._unpublished = self._unpublished, []
            await self.store.publish([(spec.name, spec.version, schema_of(spec)) for spec in specs])

    def spec_of(self, agent: str) -> AgentSpec | None:
        return self._agents.get(agent)

    def replacement(self, spec: StepSpec) -> Callable[..., Any] | None:
        return self._replace.get(spec)

    def body_runs(self, spec: StepSpec, key: str) -> None:
        if self.settings.observe is not None:
            self.settings.observe(spec, key)

    def body_ended(self, how: str, seconds: float) -> None:
        self.measures.body(how, seconds)

    def keep(self, stray: asyncio.Task[Any]) -> None:
        self._strays.add(stray)
        stray.add_done_callback(self._strays.discard)
