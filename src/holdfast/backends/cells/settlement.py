"""Settlement: one owner of a slot, where the databases name two, or none. An operator decides which database is right.

Look here after a database was restored from an older copy, or lost. A move never leads to this (`moves.py`).

Only a process that has asked all cells of a set knows that none has a slot. So nothing is settled while one is down, or
with a file that lacks one, unless an operator says that its database is lost for good (`give_up`). From then on no file
may name that cell.
"""

# ruff: noqa: S608 - names of our own schemas, and numbers of slots
from __future__ import annotations

import functools
from collections.abc import Collection
from contextlib import AsyncExitStack

from holdfast.backends.cells import ownership
from holdfast.backends.cells.cell import CellStore
from holdfast.backends.cells.cells import Cells
from holdfast.backends.cells.moves import call_off, changed, lock, mend, own, session
from holdfast.backends.cells.ownership import Holding, schema_of, state_of
from holdfast.backends.cells.rows import delete_rows
from holdfast.errors import BadArguments, RunActive, StoreUnavailable
from holdfast.store.postgres.connection import Connection


async def give_up(store: Cells, names: Collection[str]) -> None:
    """Let all cells of a set know that others, which are not in the file any more, are lost for good."""
    unknown = set(names) - set(ownership.members_of(store.said.values())) - set(store.owners.values())
    if unknown and store.missing:
        raise BadArguments(
            f"the set has no cell {min(unknown)!r}; {store.plan.shown!r} lacks {', '.join(store.missing)}"
        )
    _check_all(store)
    for cell in store.up:
        await cell.ask(functools.partial(ownership.give_up, store=cell.schema, lost=names))


def _check_all(store: Cells) -> None:
    """Refuse to go on while a cell of the set cannot be asked."""
    if store.missing:
        raise BadArguments(
            f"{str(store.plan.path)!r} is older than the set, or was changed: it lacks cell {', '.join(map(repr, store.missing))}, "
            "which may have the slot and its runs. Use the newer file. Only if the database of that cell is lost for good, add "
            f"`--lost {store.missing[0]}`: its slots begin without runs elsewhere, and it never comes back"
        )
    if store.down:
        raise StoreUnavailable(f"a slot is settled when all cells can be asked: {store.why()}")


async def settle(store: Cells, slot: int, to: str) -> dict[str, int]:
    """Let a cell own a slot alone, whatever all cells say; returns how many runs of it were deleted in which others.

    The others give it up first, so a process that dies in between leaves a slot with no second owner, and can begin again.
    """
    if to not in store.made:
        raise BadArguments(f"{store.plan.shown!r} has no cell {to!r}; there are {', '.join(store.made)}")
    await mend(store)
    _check_all(store)
    deleted: dict[str, int] = {}
    async with AsyncExitStack() as sessions:
        dbs = {name: await sessions.enter_async_context(session(store.made[name])) for name in sorted(store.made)}
        for name, db in dbs.items():
            await lock(db, store.made[name], slot)
        held = {name: await state_of(db, store.made[name].schema, slot) for name, db in dbs.items()}
        if not any(held.values()) and not store.given_up:  # a version founded the set that knew no members
            raise BadArguments(
                f"no cell of {str(store.plan.path)!r} has slot {slot} or had it, so it is in a cell that the file lacks. Use the "
                "newer file. Only if the database of that cell is lost for good, add `--lost NAME`"
            )
        have = [name for name, each in held.items() if each is not None and each.state != "gone"]
        if len(have) == 1 and have != [to]:
            raise BadArguments(
                f"slot {slot} has one owner, cell {have[0]!r}, and nothing is to be settled; to move it, write "
                f"`holdfast cells move {slot} --to {to}`"
            )
        epoch = 1 + max((each.epoch for each in held.values() if each is not None), default=0)
        for name in have:
            each = held[name]
            if name != to and each is not None:
                deleted[name] = await _disown(dbs[name], store.made[name], each, to, epoch)
        await call_off(dbs[to], store.made[to], slot)
        async with dbs[to].transaction():
            await own(dbs[to], store.made[to], slot, epoch + 1)
    await store.look()
    return deleted


async def _disown(db: Connection, cell: CellStore, held: Holding, to: str, epoch: int) -> int:
    cells = schema_of(cell.schema)
    async with db.transaction():
        runs: int = await db.fetchval(f'SELECT count(*) FROM runs WHERE "{cells}".slot_of(root_id) = $1', held.slot)
        done = await db.execute(
            f"UPDATE \"{cells}\".slots SET state = 'gone', epoch = $4, other = $5, since = $6 WHERE slot = $1 AND epoch = $2"
            " AND state = $3",
            held.slot, held.epoch, held.state, epoch, to, cell.clock.now(),
        )  # fmt: skip
        if done != "UPDATE 1":
            raise RunActive(
                f"slot {held.slot} of cell {cell.cell!r} changed meanwhile; look with `holdfast cells check`"
            )
        await delete_rows(db, f'"{cells}"', held.slot)
        await db.execute(f'DROP TABLE IF EXISTS "{cells}".frozen_{int(held.slot)}')
        await changed(db, cells)
    return runs
