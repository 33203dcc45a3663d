"""A worker over cells: one worker for each cell, in one process and with one set of code.

Each claims, carries and writes in its own cell, so a cell that is down stops its own. The room for runs is divided: a cell that
is busy, or whose runs cannot be written, takes no room from the others. What is declared (schedules, triggers) is served by the
worker of the cell that its name belongs to.

When a slot is about to move, its runs are given back at their next safe point, and are not claimed here any more.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections import ChainMap
from collections.abc import Coroutine, Iterable, MutableMapping
from typing import Any

from holdfast.backends.cells.cell import NO_TRANSACTION, CellStore
from holdfast.backends.cells.cells import PATIENCE_S, Cells
from holdfast.backends.cells.slots import slot_of
from holdfast.declare import Step
from holdfast.engine.carried import Carried
from holdfast.errors import StoreUnavailable, Unsupported
from holdfast.runtime import AgentSpec
from holdfast.store.contract import WorkerStore
from holdfast.verbs.names import reached
from holdfast.words.harmless import logger
from holdfast.words.triggers import TriggerSpec
from holdfast.worker.agents import Served
from holdfast.worker.measures import Measures
from holdfast.worker.settings import Settings
from holdfast.worker.triggers import Apply
from holdfast.worker.worker import Worker

_log = logger("holdfast")


class CellsWorker:
    """Serves agents out of all cells that can be reached."""

    probed = True

    def __init__(
        self, store: WorkerStore, cells: Cells, specs: Iterable[AgentSpec], settings: Settings, triggers: Iterable[TriggerSpec],
        apply: Apply, *, listens: bool,
    ) -> None:  # fmt: skip
        self.store, self._cells, self.clock = store, cells, store.clock
        self.settings, self.measures = settings, Measures()
        self._specs, self._triggers, self._apply, self._listens = list(specs), list(triggers), apply, listens
        self._served = Served(self._specs, self._triggers)
        self._inner: dict[str, Worker] = {}
        self._shares: dict[str, list[str]] = {}
        self._releasing: dict[tuple[str, int], asyncio.Task[None]] = {}
        self.draining, self._looking = False, asyncio.Lock()
        for spec in self._specs:
            check_served(spec)

    async def start(self) -> None:
        """Work in every cell that can be reached; in the others as soon as they can."""
        await self.look()

    async def look(self) -> None:
        """Begin in cells that came back, and give back runs of slots that leave."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        if self.draining:
            return
        for cell in self._cells.up:
            if cell.cell not in self._inner:
                await self._begin(cell)
            elif self._share(cell) != self._shares[cell.cell]:  # a trigger belongs to another cell now
                await self._inner.pop(cell.cell).stop()
                await self._begin(cell)
            self._give_back(cell)

    async def _begin(self, cell: CellStore) -> None:
        room = -(-self.settings.concurrency // len(self._cells.made))
        settings = dataclasses.replace(self.settings, concurrency=room)
        ours = [spec for spec in self._triggers if cell.owns(spec.name)]
        worker = Worker(
            cell, self._specs, settings, ours, self._apply, listens=self._listens, measures=self.measures,
            place=f" of cell {cell.cell!r}",
        )  # fmt: skip
        self._inner[cell.cell], self._shares[cell.cell] = worker, self._share(cell)
        try:
            await self._unless_down(cell.cell, worker.start())
        except StoreUnavailable as problem:
            _log.warning("cell %r: the worker could not begin there; trying again: %s", cell.cell, problem)
            await self._inner.pop(cell.cell).abandon()

    async def _unless_down(self, cell: str, work: Coroutine[Any, Any, None]) -> None:
        """Do it, or raise `StoreUnavailable` if the cell goes down meanwhile: a write there waits until the cell is back."""
        doing = asyncio.get_running_loop().create_task(work)
        try:
            while not (await asyncio.wait([doing], timeout=PATIENCE_S))[0]:
                if not await self._cells.look_at(cell) and not doing.done():
                    raise StoreUnavailable(self._cells.down.get(cell, "it does not answer"))
            await doing
        finally:
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)

    def _share(self, cell: CellStore) -> list[str]:
        return [spec.name for spec in self._triggers if cell.owns(spec.name)]

    def _give_back(self, cell: CellStore) -> None:
        """Give back runs of slots that leave, and drop runs that were taken from us: nothing that they do is recorded any more."""
        worker = self._inner.get(cell.cell)  # none could begin in a cell that went down
        for attempt in [] if worker is None else list(worker.attempts.values()):
            root, life = attempt.run.root_id or attempt.run.id, (attempt.run.id, attempt.run.lease_epoch)
            if not cell.owns(root):
                attempt.abandon()
            elif slot_of(root) in cell.leaving and life not in self._releasing:
                giving = asyncio.get_running_loop().create_task(attempt.release(self.settings.stop_grace_s))
                self._releasing[life] = giving
                giving.add_done_callback(functools.partial(self._released, life))

    def _released(self, run: tuple[str, int], _: asyncio.Task[None]) -> None:
        self._releasing.pop(run, None)

    async def stop(self, grace_s: float | None = None) -> None:
        """Stop at a safe point, in all cells at once. A cell that is down keeps nobody waiting: its leases end."""
        self.draining = True
        await asyncio.gather(*(self._stop(name, worker, grace_s) for name, worker in self._inner.items()))

    async def _stop(self, name: str, worker: Worker, grace_s: float | None) -> None:
        if name in self._cells.down:
            await worker.abandon()
        else:
            await worker.stop(grace_s)

    async def abandon(self) -> None:
        """Drop everything as a killed process would."""
        self.draining = True
        await asyncio.gather(*(worker.abandon() for worker in self._inner.values()))

    async def serve_instead(self, specs: Iterable[AgentSpec], triggers: Iterable[TriggerSpec] = ()) -> None:
        """Serve these agents and triggers, instead of the ones that had their names and versions."""
        new, more = list(specs), list(triggers)
        for spec in new:
            check_served(spec)
            self._served.replace(spec)
        names = {(spec.name, spec.version) for spec in new}
        self._specs = [spec for spec in self._specs if (spec.name, spec.version) not in names] + new
        self._triggers = [spec for spec in self._triggers if spec.name not in {each.name for each in more}] + more
        async with self._looking:
            for name, worker in list(self._inner.items()):
                ours = [spec for spec in more if self._cells.owns(name, spec.name)]
                try:
                    await self._unless_down(name, worker.serve_instead(new, ours))
                except StoreUnavailable as problem:  # the next look begins there with what is served now
                    _log.warning(
                        "cell %r: the worker could not take up new code there; trying again: %s", name, problem
                    )
                    await self._inner.pop(name).abandon()
                self._shares[name] = self._share(self._cells.made[name])

    # What a client and probes look at

    @property
    def workers(self) -> dict[str, Worker]:
        """The workers of the cells, by their names."""
        return self._inner

    @property
    def attempts(self) -> MutableMapping[str, Carried]:
        return ChainMap(*(worker.attempts for worker in self._inner.values()))

    @property
    def loading(self) -> MutableMapping[str, bool]:
        return ChainMap(*(worker.loading for worker in self._inner.values()))

    @property
    def serves(self) -> list[str]:
        """The agents it has, as the store knows them."""
        return self._served.names

    def spec_of(self, agent: str, version: str | None = None) -> AgentSpec | None:
        return self._served.spec_of(agent, version)


def check_served(spec: AgentSpec) -> None:
    """Refuse an agent that declares what cells have not: `Unsupported`."""
    if spec.schedule is not None and (spec.flow.limit or spec.flow.rate or spec.flow.singleton is not None):
        raise Unsupported(
            f"agent {spec.name!r} declares schedule= beside limit=, rate= or singleton=: its runs are begun in the cell of the "
            "schedule, and counted in that of their key. Keep one of them, or count on a step with rate="
        )
    for value in reached(spec.fn):
        if not isinstance(value, Step):
            continue
        of: Any = f"step {value.name!r}, which agent {spec.name!r} uses, declares "
        if value.spec.transaction is not None:
            raise Unsupported(f"{of}transaction=. {NO_TRANSACTION}")
        if value.spec.flow is not None and value.spec.flow.limit is not None:
            raise Unsupported(
                f"{of}limit=, which counts bodies in all cells, and no database knows them all; use rate="
            )
