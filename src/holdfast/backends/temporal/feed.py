"""The feed of all runs on a cluster: their journals, copied into the database beside it.

A cluster has no order of what all its workflows record, so the feed is that of the database: its readers read there. A
journal is copied out of the history of its run, in order, and each event once, because the transaction that copies holds the row
of the run and begins behind the last event that is there. So it may be done twice, by two processes, and by one that was believed
to be dead. It adds what the events say was spent, to the sums of the run and of the runs above it: so these are what
journals say.

Crash points. Whatever a run records is in its history as the input of an activity, and the worker that takes that
activity copies: at once and for sure where the run begins to wait or ends (`KEEP`), soon where the body of a step
begins. A process that dies before `soon` leaves the rest to the next activity of the run, and there is one, because a
run waits or ends at last. Only a run that an operator ends in Temporal has none.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError

from holdfast.backends.temporal import history
from holdfast.backends.temporal.address import is_missing
from holdfast.backends.temporal.side import shadow
from holdfast.store.blobs import insert_blobs, spilled
from holdfast.store.budgets import Spending, spend
from holdfast.store.changes import News
from holdfast.store.store import Store
from holdfast.store.work import Asking, Count, Transaction, rows, to_json
from holdfast.words.harmless import logger
from holdfast.words.model import Event, RunRow

_SOON_S: Final = 0.2  # a run that makes step after step is copied so often
_AGAIN_S: Final = 1.0
_AT_ONCE: Final = 8  # runs
_EVENTS: Final = 500  # in one transaction

_log = logger("holdfast")


class Feed:
    """Copies the journals of runs, as one process does it."""

    def __init__(self, side: Store, client: Client) -> None:
        self._side, self._client = side, client
        self._grown: dict[str, None] = {}  # runs to be copied soon
        self._copying: asyncio.Task[None] | None = None

    def soon(self, run: str) -> None:
        """Copy what a run has recorded, soon; nobody waits for it."""
        self._grown[run] = None
        if self._copying is None or self._copying.done():
            self._copying = asyncio.get_running_loop().create_task(self._copy_grown())

    async def _copy_grown(self) -> None:
        await asyncio.sleep(_SOON_S)
        while self._grown:
            runs = list(itertools.islice(self._grown, _AT_ONCE))
            for run in runs:
                del self._grown[run]
            done = await asyncio.gather(*map(self.copy, runs), return_exceptions=True)
            failed = {run: problem for run, problem in zip(runs, done, strict=True) if problem is not None}
            if failed:
                _log.debug("journals are copied into the feed later: %s", failed)
                self._grown |= dict.fromkeys(failed)
            await asyncio.sleep(_AGAIN_S if failed else _SOON_S)

    async def copy(self, run: str) -> None:
        """Copy what a run has recorded and the feed has not."""
        ((last,),) = await self._side._read(rows, "last_seq", run=run)
        described = await self._described(run)
        if described is None:
            return
        found = await history.since(self._client, described, 0 if last is None else last + 1)
        if found is not None:
            above = await self._above(found.row) if last is None else []
            for first in range(0, len(found.events), _EVENTS):
                await self._side._submit(_Copy(found.row, found.events[first : first + _EVENTS], above))

    async def _described(self, run: str) -> WorkflowExecutionDescription | None:
        try:
            return await self._client.get_workflow_handle(run).describe()
        except RPCError as error:
            if is_missing(error):
                return None
            raise

    async def _above(self, row: RunRow) -> list[RunRow]:
        """Find the runs above one that have no row in the side, the highest first: sums are kept for them too."""
        found: list[RunRow] = []
        while (parent := row.parent_id) is not None and await self._side.run(parent) is None:
            described = await self._described(parent)
            told = None if described is None else await history.told(self._client, described)
            row = RunRow(parent, "", "", "moved", "{}", root_id=row.root_id) if told is None else told.row
            found.insert(0, row)
        return found

    async def end(self) -> None:
        """Copy no more."""
        if self._copying is not None:
            self._copying.cancel()
            await asyncio.gather(self._copying, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Copy:
    """Add these events to the journal of a run, as far as they are not there. They are all there are from the first one on."""

    row: RunRow
    events: Sequence[Event]
    above: Sequence[RunRow] = ()  # runs that have no row yet

    def __call__(self, tx: Transaction) -> Asking[None]:
        run = self.row.id
        for row in (*self.above, self.row):
            yield from shadow(tx, row)
        yield from tx.rows("hold_run", run=run)
        (last,) = yield from tx.row("last_seq", run=run)
        new = [event for event in self.events if last is None or event.seq > last]
        if new:
            yield from record(tx, run, new)
            yield from tx.rows("copied", run=run, next_seq=new[-1].seq + 1)
            tx.changed(run, News.GREW)
        if spendings := [Spending.of(event) for event in new if "spent" in event.data]:
            yield from spend(tx, spendings)
        for event in self.events:
            if event.dropped is not None:
                yield from tx.rows("drop_event", run=run, seq=event.seq, dropped=event.dropped)


def record(tx: Transaction, run: str, events: Iterable[Event]) -> Asking[None]:
    """Write events of a cluster's into a database, with their values."""
    lines = []
    for event in events:
        text, blobs = (None, dict[str, bytes]()) if event.value is None else spilled(event.value)
        yield from insert_blobs(tx, blobs)
        digest = next(iter(blobs), None)
        data = to_json(event.data) if event.data else None
        lines.append(
            [run, event.seq, event.kind, event.key, data, None if digest else text, digest, event.epoch, event.at]
        )
    if lines:
        yield Count("record", lines)
