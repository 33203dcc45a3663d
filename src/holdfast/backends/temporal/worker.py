"""A worker on Temporal: takes workflow tasks and bodies of the agents it serves from their task queues."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any, Final

from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion, WorkflowIDConflictPolicy
from temporalio.worker import Worker, WorkerDeploymentConfig

from holdfast.backends.temporal.activities import Activities
from holdfast.backends.temporal.address import AGENT, NOBODY, Address
from holdfast.backends.temporal.feed import Feed
from holdfast.backends.temporal.house import House
from holdfast.backends.temporal.workflow import Runner, RunWorkflow, let_go
from holdfast.declare import Step
from holdfast.errors import StoreUnavailable, Unsupported
from holdfast.runtime import AgentSpec
from holdfast.store.store import Store
from holdfast.verbs.names import reached
from holdfast.words.harmless import logger
from holdfast.words.triggers import TriggerSpec
from holdfast.worker.agents import Served, schema_of
from holdfast.worker.measures import Measures
from holdfast.worker.settings import Settings

_log = logger("holdfast")
_STICKY_S: Final = 5.0  # for so long a workflow task waits for the process that had the run last
_ENDS_S: float = 5.0  # for so long what polls may take to end, after the grace
_AGAIN_S: float = 2.0  # until a task queue is polled again whose poller has ended


class TemporalWorker:
    """Serves agents out of a cluster."""

    probed = False  # a cluster has metrics of its own

    def __init__(
        self, client: Client, address: Address, name: str, specs: Iterable[AgentSpec], settings: Settings,
        triggers: Iterable[TriggerSpec] = (), side: Store | None = None,
    ) -> None:  # fmt: skip
        for trigger in triggers:
            raise Unsupported(
                f"trigger {trigger.name!r}: triggers need a database of Holdfast's own, not a Temporal cluster"
            )
        self._client, self._address, self._settings = client, address, settings
        self._served, self.measures = Served(specs), Measures()
        self._house = House(address, self._served, settings, f"{address.queue}:at-home:{name}", side)
        self._house.more = self._add
        self._house.feed = None if side is None else Feed(side, client)
        self._activities = Activities(self._house)
        self._workers: dict[str, Worker] = {}  # that poll, by their task queues
        self._polling: dict[str, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.attempts: dict[str, Any] = {}
        self.draining = False
        for spec in self._specs():
            check_served(spec, side=side is not None)

    def _specs(self) -> list[AgentSpec]:
        found = {}
        for name in self._served.names:
            agent, _, version = name.partition(" ")
            spec = self._served.spec_of(agent, version or None)
            if spec is not None:
                found[spec.name, spec.version] = spec
        return list(found.values())

    async def start(self) -> None:
        """Publish the agents, and poll their task queues."""
        self._loop = asyncio.get_running_loop()
        await self._publish()
        self._poll(self._house.queue)
        self._poll_all()

    def _queues(self) -> dict[str, AgentSpec]:
        """The task queues of all agents served: a child is in the queue of its parent, unless its agent has one."""
        specs = self._specs()
        queues = dict.fromkeys(["default", *(spec.flow.queue for spec in specs if spec.flow.queue)])
        wanted = [queue for queue in queues if self._settings.queues is None or queue in self._settings.queues]
        found: dict[str, AgentSpec] = {}
        for spec in specs:
            for queue in wanted:
                found[self._address.task_queue(spec.name, spec.version, queue)] = spec
                if self._served.spec_of(spec.name) is spec:  # runs without a version are the newest's
                    found[self._address.task_queue(spec.name, None, queue)] = spec
        return found

    def _poll(self, queue: str, spec: AgentSpec | None = None) -> None:
        if queue not in self._polling and not self.draining:
            self._polling[queue] = asyncio.get_running_loop().create_task(self._keep_polling(queue, spec))

    async def _keep_polling(self, queue: str, spec: AgentSpec | None) -> None:
        """Poll a task queue until this process stops.

        Temporal's own worker ends for good when the cluster is away as it begins, or refuses a poll. Then another one follows, with
        a connection of its own: one connection takes no second worker for a queue if the first did not begin.
        """
        client = self._client
        while not self.draining:
            try:
                worker = self._workers[queue] = self._worker(client, queue, spec)
                await worker.run()
            except Exception as error:  # noqa: BLE001 - whatever it is, this process has the agents
                if not self.draining:
                    _log.warning("what polls %r on Temporal ended, and begins again: %s", queue, error)
            client = await self._connected_again()

    async def _connected_again(self) -> Client:
        while True:
            await asyncio.sleep(_AGAIN_S)
            with contextlib.suppress(StoreUnavailable):
                return await self._address.connect()

    def _worker(self, client: Client, queue: str, spec: AgentSpec | None) -> Worker:
        settings = self._settings
        activities: list[Any] = [self._activities.step, self._activities.keep, self._activities.beside]
        workflows: list[Any] = [] if spec is None else [RunWorkflow]
        return Worker(
            client, task_queue=queue, workflows=workflows, activities=activities,
            workflow_runner=Runner(self._house), max_cached_workflows=settings.concurrency,
            max_concurrent_activities=max(settings.concurrency, 200),
            max_concurrent_workflow_tasks=max(2, min(100, settings.concurrency)),
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=min(_STICKY_S, settings.lease_ttl_s / 2)),
            graceful_shutdown_timeout=timedelta(seconds=settings.stop_grace_s),
            identity=self._house.queue, disable_eager_activity_execution=False, deployment_config=self._deployment(spec),
        )  # fmt: skip

    def _deployment(self, spec: AgentSpec | None) -> WorkerDeploymentConfig | None:
        """A version of an agent, as Temporal's pages tell of it. Runs go by task queues: no operator need name a current one."""
        if spec is None or spec.version is None:
            return None
        version = WorkerDeploymentVersion(f"{self._address.queue}-{spec.name}", spec.version)
        return WorkerDeploymentConfig(version, use_worker_versioning=False)

    def _add(self, spec: AgentSpec) -> None:
        """An agent was met that nobody named: serve it too. A workflow says so, in a thread of its own."""
        check_served(spec, side=self._house.side is not None)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._poll_all)

    def _poll_all(self) -> None:
        for queue, spec in self._queues().items():
            self._poll(queue, spec)

    async def _publish(self) -> None:
        """Start a workflow for each served agent; no worker carries it out, and its memo says how to call the agent."""
        for spec in self._specs():
            named = spec.name if spec.version is None else f"{spec.name}@{spec.version}"
            memo = {"Holdfast": {"agent": spec.name, "version": spec.version, "schema": schema_of(spec),
                                 "newest": self._served.spec_of(spec.name) is spec, "queues": [*self._queues()]}}  # fmt: skip
            await self._client.start_workflow(
                AGENT, id=f"{self._address.queue}:agent:{named}", task_queue=f"{self._address.queue}:{NOBODY}", memo=memo,
                id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING,
            )  # fmt: skip

    async def stop(self, grace_s: float | None = None) -> None:
        """Stop polling; bodies that run may end within the grace."""
        self.draining = True
        await self._end_polling()
        self._workers.clear()
        await self._house.outcomes.close()
        for instance in list(self._house.instances):
            let_go(instance)
        self._house.threads.shutdown(wait=False, cancel_futures=True)
        if self._house.feed is not None:
            await self._house.feed.end()
        try:
            await self._house.resources.close()
        except ExceptionGroup as problems:
            _log.warning("a resource did not close: %s", problems.exceptions)

    async def _end_polling(self) -> None:
        """Let what polls end. A cluster that is away is told nothing, and keeps nobody: what was in hand is as after a crash."""
        ends = [asyncio.create_task(worker.shutdown()) for worker in self._workers.values()]
        await _ended(ends, self._settings.stop_grace_s + _ENDS_S)
        for task in (*ends, *self._polling.values()):  # also pollers that wait to poll again
            task.cancel()
        if not await _ended(self._polling.values(), _ENDS_S):
            _log.warning("what polls on Temporal has not ended, and is left behind")

    async def serve_instead(self, specs: Iterable[AgentSpec], triggers: Iterable[TriggerSpec] = ()) -> None:
        """Serve these agents, instead of the ones that had their names and versions."""
        for trigger in triggers:
            raise Unsupported(
                f"trigger {trigger.name!r}: triggers need a database of Holdfast's own, not a Temporal cluster"
            )
        for spec in specs:
            check_served(spec, side=self._house.side is not None)
            self._served.replace(spec)
        await self._publish()
        self._poll_all()

    @property
    def polls(self) -> Collection[str]:
        """Return the task queues that this process polls."""
        return () if self.draining else self._polling.keys()

    @property
    def serves(self) -> list[str]:
        return self._served.names

    def spec_of(self, agent: str, version: str | None = None) -> AgentSpec | None:
        return self._served.spec_of(agent, version)


async def _ended(tasks: Collection[asyncio.Task[None]], limit_s: float) -> bool:
    """Wait until these have ended, so long at most; did they?"""
    if not tasks:
        return True
    done, left = await asyncio.wait(tasks, timeout=limit_s)
    for task in done:
        if not task.cancelled():
            task.exception()  # it was told where it came from
    return not left


def check_served(spec: AgentSpec, *, side: bool) -> None:
    """Refuse an agent that declares what a cluster has not: `Unsupported`. `side`: there is a database beside it."""
    flow = spec.flow
    declared = {
        "limit=": flow.limit, "rate=": flow.rate, "singleton=": flow.singleton, "schedule=": spec.schedule, "on=": spec.on,
    }  # fmt: skip
    for name, value in declared.items():
        if value is not None:
            raise Unsupported(
                f"agent {spec.name!r} declares {name}, which spans runs and needs a database of Holdfast's own (sqlite: or "
                "postgresql://), not a Temporal cluster"
            )
    if spec.budget is not None and not side:
        raise Unsupported(
            f"agent {spec.name!r} declares budget=, which spans runs and needs a database of Holdfast's own. Name one that stands "
            "beside the cluster in its URL: ?side=postgresql://..."
        )
    for value in reached(spec.fn):
        if not isinstance(value, Step):
            continue
        if value.spec.transaction is not None:
            raise Unsupported(
                f"step {value.name!r}, which agent {spec.name!r} uses, declares transaction=: its body would be part of a commit "
                "of the store, and a Temporal cluster has none. Make it idempotent with holdfast.idempotency_key()"
            )
        used = f"step {value.name!r}, which agent {spec.name!r} uses,"
        if value.spec.flow is not None and value.spec.flow.limit is not None:
            raise Unsupported(
                f"{used} declares limit=: its slots are free when a lease ends, and a Temporal cluster has no leases. Use rate= "
                "with a database beside it (?side=), or sqlite: or postgresql:// as the store"
            )
        if value.spec.flow is not None and not side:
            raise Unsupported(
                f"{used} declares rate=, which spans runs and needs a database of Holdfast's own. Name one that stands beside the "
                "cluster in its URL: ?side=postgresql://..."
            )
