"""A worker: carries many runs on one loop, and gives them back when it stops.

Look here for what happens to a run between being claimed and leaving this process, as far as it is not the run's own affair
(engine/execute.py).

One loop decides (`_work`): claim what is due, carry it, rest until something changes (scheduler.py). Everything else reacts:
a thread keeps the leases (leases.py), changes of the store wake runs that wait for a message, the runs of dead workers are
taken over the moment their lock can be had, and a worker that is told to stop gives everything back (drain.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from holdfast.declare import Step
from holdfast.engine.carried import Carried
from holdfast.engine.execute import begin
from holdfast.engine.performer import perform
from holdfast.engine.slots import Freed
from holdfast.errors import LeaseLost, StoreUnavailable, Suspended
from holdfast.resources import OpenResources
from holdfast.runtime import AgentSpec, StepSpec, outside
from holdfast.store.contract import WorkerStore
from holdfast.values.text import cut, type_name
from holdfast.words.harmless import logger
from holdfast.words.model import Event, RunRow
from holdfast.words.overrides import Override
from holdfast.words.spent import Spent
from holdfast.words.triggers import TriggerSpec
from holdfast.worker import drain, suspects
from holdfast.worker.agents import Served
from holdfast.worker.announcements import Announcements
from holdfast.worker.calls import OpenCalls
from holdfast.worker.files import Files
from holdfast.worker.fleet import Member
from holdfast.worker.leases import Leases
from holdfast.worker.mappings import Mapper
from holdfast.worker.measures import Measures
from holdfast.worker.notifications import Notifications
from holdfast.worker.queues import Queues
from holdfast.worker.rounds import Round, listener
from holdfast.worker.scheduler import Scheduler
from holdfast.worker.schedules import Schedules, declared_by
from holdfast.worker.settings import Settings
from holdfast.worker.triggers import Apply, Deliveries

T = TypeVar("T")
_log = logger("holdfast")
_RECOVER_EVERY_S: Final = 1.0
_AGAIN_S: Final = 1.0
_ERASE_EVERY_S: Final = 3600.0
_LONGEST_GRACE_S: Final = 60.0
_MOST_GRACES: Final = 1_000  # remembered; runs that wait elsewhere, or for ever, must not cost memory here


class Worker:
    """Serves agents out of a store. It is the `Host` of the runs it carries."""

    probed = True  # probes can look at it
    ahead_ms = 0

    def __init__(
        self,
        store: WorkerStore,
        specs: Iterable[AgentSpec],
        settings: Settings | None = None,
        triggers: Iterable[TriggerSpec] = (),
        apply: Apply | None = None,
        *,
        listens: bool = True,
        measures: Measures | None = None,
        place: str = "",
    ) -> None:
        self.store, self.clock = store, store.clock
        self.settings, self.measures = settings or Settings(), measures or Measures()
        self.value_limit_bytes = self.settings.value_limit_bytes
        self.inputs = self.settings.inputs or store.inputs
        steps = {key: value for key, value in self.settings.replace.items() if isinstance(key, Step)}
        self._replace = {key.spec: value.fn if isinstance(value, Step) else value for key, value in steps.items()}
        self.resources, self.slots = OpenResources(self.settings.replace), Freed()
        self.threads = ThreadPoolExecutor(self.settings.threads, thread_name_prefix="holdfast-step")
        self.attempts: dict[str, Carried] = {}
        self.loading: dict[str, bool] = {}  # claimed and not yet running; True: a signal came meanwhile
        self._carriers: set[asyncio.Task[None]] = set()
        self._strays: set[asyncio.Task[Any]] = set()
        self._leases = Leases(store, self.settings, self.measures, self.attempts, self.loading)
        self.trusted, self.trust = self._leases.trusted, self._leases.trust
        observer = self.settings.observer
        self.recorded: Callable[[Event], None] | None = None if observer is None else observer.recorded
        self._tasks: list[asyncio.Task[None]] = []
        self._graces: dict[str, float] = {}
        self._served = Served(specs, triggers)
        self.scheduler = Scheduler(store, self._served, self.settings, self.attempts, self.loading)
        self.rounds: list[Round] = [Schedules(store, self.measures)]
        if apply is not None:
            mapper = Mapper()
            self.rounds += [Deliveries(store, self.measures, mapper, apply), Announcements(store)]
            self.rounds.append(Notifications(store, self.measures, mapper, apply))
            if listens:  # to brokers and folders; tests let things come by themselves
                self.rounds += [Queues(store, self.measures, mapper, apply), Files(store)]
        for each in self.rounds:
            each.place = place
            each.serve(self._served)
        store.code_version, store.queues = self.settings.version, self.settings.queues
        self._stopping = False

    # Life

    async def start(self) -> None:
        """Take over what dead workers left, then work."""
        self.store.on_change(self.scheduler.changed)
        self.store.on_change(listener(self.rounds))
        self.store.observe(self.measures.commit)
        await self._served.publish(self.store)
        if await self.store.held():
            _log.warning(
                "%s is a copy that was restored from a backup, and is held: no run is carried before it is activated, with"
                " `holdfast restore --activate` or `hf.activate()`", self.store.url,
            )  # fmt: skip
        self.measures.recovered += await self.store.recover()
        for each in self.rounds:
            await each.declare()
        self._leases.start()
        rounds, calls = (each.keep() for each in self.rounds), OpenCalls(self.store, self.attempts)
        member = Member(self.store, self.settings, self.measures, self.attempts, lambda: self._stopping)
        self.store.load = member.load
        for work in (self._work(), *rounds, self._recover(), self._erase(), calls.keep(), member.keep()):
            self._tasks.append(asyncio.create_task(work, context=outside()))

    async def stop(self, grace_s: float | None = None) -> None:
        """Stop at a safe point: bodies that run may end and are recorded, and every run is given back as soon as it can be.

        A body in a thread that must not run twice is waited for without limit: nothing can stop a thread.
        """
        if self._stopping:
            return
        self._stopping = True
        self._leases.hurry()  # the next heartbeat says that it stops
        grace_s = self.settings.stop_grace_s if grace_s is None else grace_s
        ending = 1 + len(self.rounds)  # claim and begin no more; leases are kept until the last run is given back
        for task in self._tasks[:ending]:
            task.cancel()
        await drain.release_all(self.attempts.values(), grace_s)
        await self._put_down(self._tasks[ending:])  # a second word would take the grace of what comes from outside

    async def abandon(self) -> None:
        """Drop everything as a killed process would: nothing is given back."""
        self._stopping = True
        self._leases.stop()
        for attempt in list(self.attempts.values()):
            attempt.abandon()
        for each in self.rounds:
            each.abandon()
        await self._put_down(self._tasks)

    async def _put_down(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._carriers, return_exceptions=True)
        self._leases.stop()
        await drain.end_strays(self._strays)
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
            try:
                claimed = await self.scheduler.claim()
                self.measures.claim(claimed)
                for run in claimed:
                    self._carry(run)
                await self.scheduler.rest(len(claimed))
            except StoreUnavailable as problem:  # what cannot be read now may be readable again soon
                if self._stopping:  # it was on its way when the store was closed
                    return
                _log.warning("looking for work failed; trying again: %s", problem)
                await asyncio.sleep(_AGAIN_S)
            except Exception:  # whatever it is: a worker that does not look any more would only seem to work
                _log.exception("looking for work failed; trying again")
                await asyncio.sleep(_AGAIN_S)

    # One run

    def _carry(self, run: RunRow) -> None:
        former = self.attempts.get(run.id)
        if former is not None:  # it lost the run, or nobody could have claimed it, and no heartbeat tells it any more
            former.abandon()
        self.loading[run.id] = self.scheduler.changed_meanwhile(run.id)
        carrier = asyncio.create_task(self._carry_on(run, self.scheduler.lease_until))
        self._carriers.add(carrier)
        carrier.add_done_callback(self._carriers.discard)

    async def _carry_on(self, run: RunRow, lease_until: float) -> None:
        attempt: Carried | None = None
        try:
            try:
                if suspects.guilty(run):
                    await suspects.pause(self.store, run)
                    return
                spec = self._served.spec_of(run.agent, run.version)
                assert spec is not None, f"run {run.id!r} was claimed, and no agent {run.agent!r} is served"
                attempt = await self._begun(run, spec)
                if attempt is None:
                    return
                attempt.leased(lease_until)
                self.attempts[run.id] = attempt
            finally:
                came = self.loading.pop(run.id)
            if came:
                attempt.notice()
            if self._stopping:  # it was being loaded when the worker was told to stop
                await attempt.release(0.0)
            outcome = await attempt.ended
            if attempt.left is not None and attempt.left.due_at is not None:
                self.scheduler.wake()  # it is due some time; when that was written, it was still here and not looked for
            await attempt.put_away()
            self._remember(attempt, outcome)
            if outcome == "unfit":
                _log.error("%s", attempt.unfit)
                await self.store.refuse(run, attempt.unfit)
            if outcome == "lost":
                self._leases.lead_astray(run.id, run.lease_epoch)
        except StoreUnavailable as problem:
            self._leases.lead_astray(run.id, run.lease_epoch)
            if not self._stopping:
                _log.warning("run %r could not be carried on; it will be tried again: %s", run.id, problem)
        except Exception:
            self._leases.lead_astray(run.id, run.lease_epoch)
            _log.exception("run %r could not be carried on; it will be tried again", run.id)
        finally:
            was_full = self.scheduler.full
            if self.attempts.get(run.id) is attempt:
                self.attempts.pop(run.id, None)
            self.scheduler.left(was_full=was_full)
            if attempt is not None:
                attempt.abandon()
                await attempt.unwound()

    async def _begun(self, run: RunRow, spec: AgentSpec) -> Carried | None:
        """The run, in memory; None when it cannot be set up by this code, and would fail in the same way each time."""
        try:
            return await begin(self, run, spec)
        except (StoreUnavailable, LeaseLost, Suspended, OSError, MemoryError):
            raise  # the store is away, another worker has the run, or there is no room now
        except Exception as error:
            told = f"{type_name(type(error))}: {cut(str(error), 300)}"
            reason = f"run {run.id!r} cannot be set up: {told}. Mend the cause and resume it, or cancel it"
            _log.exception("%s", reason)
            await self.store.refuse(run, reason)
            return None

    def _remember(self, attempt: Carried, outcome: str) -> None:
        """A park that brought nothing new doubles the next one's grace, so that a run does not flap."""
        run, left = attempt.run.id, attempt.left
        self.measures.left[outcome] += 1
        if outcome == "ended" and left is not None:
            self.measures.finished[attempt.run.agent, left.status] += 1
        if self.settings.observer is not None and left is not None and outcome in ("parked", "paused"):
            self.settings.observer.left(run, left.status, left.waits_for or left.reason or "")
        if outcome != "parked" or attempt.progressed:
            self._graces.pop(run, None)
        elif self.settings.park_grace_s > 0:
            self._graces[run] = min(self.park_grace_s(run) * 2, _LONGEST_GRACE_S)
            if len(self._graces) > _MOST_GRACES:
                del self._graces[next(iter(self._graces))]

    # Dead workers, and runs that end their process

    async def _recover(self) -> None:
        while True:
            await asyncio.sleep(_RECOVER_EVERY_S)
            try:
                if recovered := await self.store.recover():
                    self.measures.recovered += recovered
                    self.scheduler.wake()
                await self.store.reconsider()
                await self.scheduler.look_around()
            except StoreUnavailable as problem:
                _log.debug("looking for dead workers failed; trying again: %s", problem)
            except Exception:
                _log.exception("looking for dead workers failed; trying again")

    async def _erase(self) -> None:
        """Take values out of the audit when their time is over."""
        retention_s = self.settings.audit_retention_s
        while retention_s is not None:
            try:
                before = self.clock.now() - round(retention_s * 1000)
                await self.store.erase_audit(before=before, by="retention", via="worker")
            except StoreUnavailable as problem:
                _log.warning("values in the audit could not be erased; trying again: %s", problem)
            except Exception:
                _log.exception("values in the audit could not be erased; trying again")
            await asyncio.sleep(min(max(retention_s, _AGAIN_S), _ERASE_EVERY_S))

    # What a run needs of its host

    def park_grace_s(self, run: str) -> float:
        grace_s = self._graces.get(run, self.settings.park_grace_s)
        return 0.0 if self.scheduler.full else grace_s

    def serve(self, spec: AgentSpec) -> None:
        if self._served.add(spec):
            self.scheduler.wake()

    async def serve_instead(self, specs: Iterable[AgentSpec], triggers: Iterable[TriggerSpec] = ()) -> None:
        """Serve these agents and triggers, instead of the ones that had their names and versions."""
        for spec in specs:
            declared_by(spec)  # refuses arguments that do not fit, before anything is changed
        for spec in specs:
            self._served.replace(spec)
        self._served.trigger(triggers)
        await self._served.publish(self.store)
        for each in self.rounds:
            each.serve(self._served)
            await each.declare()
        self.scheduler.wake()

    @property
    def serves(self) -> list[str]:
        """The agents it has, as the store knows them."""
        return self._served.names

    def spec_of(self, agent: str, version: str | None = None) -> AgentSpec | None:
        return self._served.spec_of(agent, version)

    perform = staticmethod(perform)

    def new_task(self, make: Callable[[], T]) -> T:
        return make()

    def patched(self, patch: str) -> bool | None:
        return None

    def replacement(self, spec: StepSpec) -> Callable[..., Any] | None:
        return self._replace.get(spec)

    def overrides(self, root: str) -> Iterable[Override]:
        return () if self.settings.overrides is None else self.settings.overrides(root)

    def body_runs(self, spec: StepSpec, key: str) -> None:
        if self.settings.observe is not None:
            self.settings.observe(spec, key)

    def body_ended(self, how: str, seconds: float) -> None:
        self.measures.body(how, seconds)

    def spent(self, agent: str, spendings: Sequence[Spent]) -> None:
        self.measures.spend(agent, spendings)

    def keep(self, stray: asyncio.Task[Any]) -> None:
        self._strays.add(stray)
        stray.add_done_callback(self._strays.discard)
