"""The fleet: workers and how much they do, workers lost lately, and what each minute brought. Nothing decides by it.

A worker says how much it does with its heartbeat, in the statement that is made anyway, and its numbers of a minute when the minute
is over. A claim that takes a run over notes how long the run had been torn, with the worker that lost it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.store.work import Asking, Transaction, listed, rows, to_json
from holdfast.store.workers import LOST_MS, Workers

_HOUR_MS = 3_600_000
_MOST = 1_000  # of each kind


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker that is alive, with what it said last."""

    id: str
    version: str | None
    agents: list[str]
    queues: list[str] | None
    started_at: int
    seen_at: int
    load: dict[str, Any]


class LostRow(NamedTuple):
    """A worker that is gone, or that stood still for longer than its leases."""

    id: str
    version: str | None
    how: str
    at: int
    moved: int
    after_ms: int | None


class MinuteRow(NamedTuple):
    """The work of all workers in a minute."""

    at: int
    steps: int
    ended: int
    failed: int


class UnservedRow(NamedTuple):
    """Due runs of one version that no live worker has."""

    agent: str
    version: str | None
    runs: int
    first_due_at: int


class RateRow(NamedTuple):
    """A rate that is paused, or that runs wait for."""

    key: str
    paused_until: int | None
    waits: int
    because: str | None


class Fleet(Workers):
    """The fleet, told by workers and read by people."""

    async def count_minute(self, at: int, steps: int, ended: int, failed: int) -> None:
        """Say what this incarnation did in the minute that began then; said again it is the same."""

        def work(tx: Transaction) -> Asking[None]:
            yield from tx.rows("count_minute", place=at, steps=steps, ended=ended, failed=failed)
            yield from tx.rows("forget_minutes", before=tx.now - _HOUR_MS)

        await self._submit(work, journal=False, runs=())

    async def fleet_workers(self) -> list[WorkerRow]:
        """List the workers that are alive."""
        alive = {each.id for each in await self._living()}
        return [
            WorkerRow(
                id, version, json.loads(agents), None if queues is None else json.loads(queues), started_at, seen_at,
                json.loads(load or "{}"),
            )
            for id, version, agents, queues, started_at, seen_at, load in await self._read(rows, "fleet")
            if id in alive
        ]  # fmt: skip

    async def lost_workers(self) -> list[LostRow]:
        """List the workers that were lost within a day, the last one first."""
        found = await self._read(rows, "lost_workers", since=self.clock.now() - LOST_MS, limit=_MOST)
        return [LostRow(*row) for row in found]

    async def minutes(self) -> list[MinuteRow]:
        """Read what was done in each minute of the last hour in which anything was."""
        found = await self._read(rows, "minutes", since=self.clock.now() - _HOUR_MS)
        return [MinuteRow(*row) for row in found]

    async def unserved(self, served: list[str]) -> list[UnservedRow]:
        """Count due runs whose code no live worker has, by agent and version, the longest due first."""
        found = await self._read(rows, "unserved", now=self.clock.now(), served=listed(served), limit=_MOST)
        return [UnservedRow(*row) for row in found]

    async def busy_rates(self) -> list[RateRow]:
        """List the rates that are paused, and the rates that runs wait for."""
        now = self.clock.now()
        waits = dict(await self._read(rows, "waiting_rates"))
        found = await self._read(rows, "busy_rates", micros=now * 1000, keys=to_json(list(waits)), limit=_MOST)
        return [
            RateRow(key, paused // 1000 if paused > now * 1000 else None, waits.get(key, 0), because)
            for key, paused, because in found
        ]

    async def size(self) -> tuple[int, int]:
        """Tell how many bytes the store has, and about how many events."""
        ((size, events),) = await self._read(rows, "size")
        return int(size or 0), int(events or 0)
