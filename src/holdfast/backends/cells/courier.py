"""The courier: carries announcements from the cell where they were published to all others.

An announcement is published in one transaction of one cell, by a run or from outside, and a trigger of that database puts it into
the outbox with it. A worker carries it on: the id makes it one announcement in each cell, however often that is tried, and a mark
at the destination (`inbound`) keeps it from being carried further. For a cell that is down it waits.
"""

# ruff: noqa: S608 - names of our own schemas, and numbers of slots
from __future__ import annotations

import functools
from typing import Any, Final

from holdfast.backends.cells.cell import CellStore
from holdfast.backends.cells.cells import Cells
from holdfast.backends.cells.ownership import schema_of
from holdfast.store.announcements import NewAnnouncement
from holdfast.store.triggers import RETENTION_MS
from holdfast.store.work import Asking, Transaction

_AT_ONCE: Final = 200


async def carry(store: Cells, cell: CellStore) -> None:
    """Carry what waits in a cell to the others that can be reached."""
    cells = schema_of(cell.schema)
    waiting = await cell.ask(
        lambda db: db.fetch(f'SELECT id, name, value, run, sent FROM "{cells}".outbox ORDER BY at, id LIMIT {_AT_ONCE}')
    )
    others = {*store.made, *store.missing} - {cell.cell}  # also those for which a process with a newer file must come
    for row in waiting:
        sent = set(row["sent"])
        for other in [each for each in store.up if each.cell in others - sent]:
            await _deliver(other, row)
            sent.add(other.cell)
        if sent >= others:
            await cell.ask(functools.partial(_forget, cells=cells, id=row["id"]))
        elif sent != set(row["sent"]):
            await cell.ask(functools.partial(_note, cells=cells, id=row["id"], sent=sorted(sent)))


async def _forget(db: Any, cells: str, id: str) -> None:
    await db.execute(f'DELETE FROM "{cells}".outbox WHERE id = $1', id)


async def _note(db: Any, cells: str, id: str, sent: list[str]) -> None:
    await db.execute(f'UPDATE "{cells}".outbox SET sent = $2 WHERE id = $1', id, sent)


async def _deliver(there: CellStore, row: Any) -> None:
    now, cells = there.clock.now(), schema_of(there.schema)

    async def mark(db: Any) -> None:
        await db.execute(f'INSERT INTO "{cells}".inbound VALUES ($1, $2) ON CONFLICT DO NOTHING', row["id"], now)
        await db.execute(f'DELETE FROM "{cells}".inbound WHERE at < $1', now - 2 * RETENTION_MS)

    def work(tx: Transaction) -> Asking[bool]:
        return (yield from NewAnnouncement(row["id"], row["name"], row["value"])(tx, row["run"]))

    await there.ask(mark)  # first: it must go no further
    await there._submit(work, journal=False)
