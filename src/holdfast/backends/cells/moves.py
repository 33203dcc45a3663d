"""Moves: a slot goes from one cell to another while everything else goes on. It has one owner at any time.

A slot has a row in each database that has or had it: a state and an epoch, which is one more each time that a move begins or is
called off, so it never stands for two things. Each step is a transaction of one database, written by the session that holds the
lock of the slot *in that database*, and refused unless the row there says what the step was decided upon.

| step       | where       | if the row there says             | it writes                               | its mover dies |
|------------|-------------|-----------------------------------|-----------------------------------------|----------------|
| leaving    | origin      | owned, E                          | leaving, E+1, to whom                   | called off     |
| frozen     | origin      | leaving, E+1, to whom             | frozen; its runs say 'moved'            | called off     |
| copied     | destination | none, or gone below E+1           | a parcel of E+1, which nothing reads    | called off     |
| decided    | origin      | frozen, E+1, to whom              | gone; its rows are deleted              | a worker goes on |
| arrived    | destination | none, or gone below E+1; a parcel | owned, E+1; the parcel is in the tables | it is done     |
| cleaned    | origin      | whatever it says                  | no large value that nothing names       | a worker does it |
| called off | origin      | leaving or frozen                 | owned, E+2; its runs as they were       |                |

*Locks.* A mover holds the lock of the slot at both ends, each by the session with which it writes there, from before it looks until
it is done. So a mover that stands still keeps all others out, and one whose session is lost writes no more where it was
lost. A process that finds a slot leaving or frozen, or a parcel, and can take the lock there, has found a mover that is
dead (`mend`). *Epochs* hold between databases, where no lock does: a mover may have lost one of two sessions, or have
looked long ago.

*One owner.* `decided` is the one moment at which it changes. It takes the slot and its rows from the origin at once, so nothing is
ever counted twice. Between it and `arrived` the slot is in its parcel alone, and callers wait.

Workers give the runs of a slot that leaves back at their next safe point, and claim none. What its runs were when it was frozen is
in `frozen_SLOT`. Bodies that outlast the grace are interrupted as by a crash, also if the move is called off then. Events keep
their order and get positions below all others (`ownership.sql`), so no listener is told of them again.

A database that was restored from an older copy may own what it gave away, or not know of what it got. No step makes a
second owner of that, and none decides which database is right: an operator does (`settlement.py`).
"""

# ruff: noqa: S608 - names of our own schemas, and numbers of slots
from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from holdfast.backends.cells.cell import CellStore
from holdfast.backends.cells.cells import Cells
from holdfast.backends.cells.ownership import FREEZES, FROZEN, Holding, schema_of, state_of
from holdfast.backends.cells.rows import copied, delete_rows, put
from holdfast.backends.cells.slots import SLOTS
from holdfast.errors import BadArguments, RunActive, StoreUnavailable, Unsupported
from holdfast.store.blobs import delete_blobs
from holdfast.store.postgres.connection import TROUBLE, Connection, goodbye, insist
from holdfast.words.harmless import logger

_log = logger("holdfast.store")
STEPS: Final = ("leaving", "frozen", "copied", "decided", "arrived", "cleaned")
_LOOK_S: Final = 0.05
_LOCK_S: Final = 5.0  # that a mover waits for one that mends
_TOLD_S: Final = 5.0  # that a move waits for notifications of what happened before it


@dataclass(frozen=True, slots=True)
class Moved:
    """Outcome of a move: how many runs went, how many of them were interrupted, and how long nobody could reach them."""

    slot: int
    origin: str
    destination: str
    runs: int
    interrupted: int
    away_s: float


def _quiet(_: str) -> None:
    """Say nothing."""


async def move(
    store: Cells, slot: int, to: str, *, grace_s: float = 30.0, tell: Callable[[str], None] = _quiet
) -> Moved:
    """Move a slot. `BadArguments`: no such cell; `Unsupported`: it has what cannot be moved; `RunActive`: another moves it."""
    if to not in store.made:
        raise BadArguments(f"{store.plan.shown!r} has no cell {to!r}; there are {', '.join(store.made)}")
    await mend(store)
    await store.look()
    origin, destination = store.of_slot(slot), store.made[to]
    if origin is destination:
        raise BadArguments(f"slot {slot} is in cell {to!r} already")
    if not destination.is_open or to in store.down:
        raise StoreUnavailable(f"cell {to!r} is down: {store.down.get(to, 'it was not reached')}")
    async with session(origin) as db, session(destination) as there:
        for at, cell in sorted(((db, origin), (there, destination)), key=lambda each: each[1].cell):
            await lock(at, cell, slot)
        await _check(db, origin, slot)
        await call_off(db, origin, slot)  # what a mover left that died since we looked
        await clean(there, destination, slot)
        mover = _Mover(origin, destination, db, there, slot)
        try:
            moved = await mover.move(grace_s, tell)
        except BaseException:
            with contextlib.suppress(Exception):  # the next process that looks does it
                await call_off(db, origin, slot)
            raise
    await store.look()
    return moved


_LOCK: Final = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))"
_UNLOCK: Final = "SELECT pg_advisory_unlock(hashtextextended($1, 0))"


def _lock_of(cell: CellStore, slot: int) -> str:
    return f"holdfast-move:{cell.schema}:{slot}"


async def lock(db: Connection, cell: CellStore, slot: int) -> None:
    """Have a slot of a database to oneself, as long as the session is there; `RunActive` if another mover has it.

    A worker that mends has it for a moment, so a mover does not give up at once.
    """
    until = time.monotonic() + _LOCK_S
    while not await db.fetchval(_LOCK, _lock_of(cell, slot)):
        if time.monotonic() > until:
            raise RunActive(
                f"slot {slot} is being moved by another process, which has it in cell {cell.cell!r}. Wait for that one, or end it"
            )
        await asyncio.sleep(_LOOK_S)


@asynccontextmanager
async def session(cell: CellStore) -> AsyncIterator[Connection]:
    """Open a session of our own in a cell."""
    try:
        db = await cell.connection()
        await db.execute(
            "SET enable_seqscan = on; SET enable_bitmapscan = on; SET plan_cache_mode = auto"
        )  # these read much
        try:
            yield db
        finally:
            await goodbye(db)
    except TROUBLE as error:
        raise StoreUnavailable(f"cell {cell.cell!r} does not answer: {str(error) or repr(error)}") from error


async def _check(db: Connection, cell: CellStore, slot: int) -> None:
    """Refuse a slot that has what one cell alone can keep."""
    cells = schema_of(cell.schema)
    for table, column, what in (
        ("schedules", "name", "schedule"), ("triggers", "name", "trigger"), ("subscriptions", "topic", "trigger"),
        ("subscriptions", "run", "run that waits for an announcement,"),
    ):  # fmt: skip
        where = {"topic": " AND run = ''", "run": " AND run <> ''"}.get(column, "")
        found = await db.fetchval(
            f'SELECT {column} FROM {table} WHERE "{cells}".slot_of({column}) = $1{where} LIMIT 1', slot
        )
        if found is not None:
            raise Unsupported(f"slot {slot} has the {what} {found!r}, and stays in cell {cell.cell!r} with it")


class _Mover:
    """One move of one slot, by sessions that hold its lock at both ends."""

    def __init__(self, origin: CellStore, destination: CellStore, db: Connection, there: Connection, slot: int) -> None:
        self.origin, self.destination, self.db, self.there, self.slot = origin, destination, db, there, slot
        self.cells, self.epoch = schema_of(origin.schema), 0

    async def move(self, grace_s: float, tell: Callable[[str], None]) -> Moved:
        await self._leave()
        tell("leaving")
        runs, interrupted = await self._freeze(grace_s)
        began = time.monotonic()
        tell("frozen")
        await self._until_told()
        await self._copy()
        tell("copied")
        await insist(self._decide)
        tell("decided")
        await insist(lambda: arrive(self.there, self.destination, self.slot, self.epoch))
        away_s = time.monotonic() - began
        tell("arrived")
        await clear_waste(self.origin)
        tell("cleaned")
        return Moved(self.slot, self.origin.cell, self.destination.cell, runs, interrupted, away_s)

    async def _leave(self) -> None:
        """Begin a move with an epoch above all that either cell has seen."""
        here = await state_of(self.db, self.origin.schema, self.slot)
        if here is None or here.state != "owned":
            went = f": it went to cell {here.other!r}" if here is not None else ""
            raise RunActive(
                f"slot {self.slot} is not in cell {self.origin.cell!r} any more{went}. Another process moved it meanwhile; look "
                "with `holdfast cells list`, and move it from where it is"
            )
        there = await state_of(self.there, self.destination.schema, self.slot)
        if there is not None and there.state != "gone":
            raise RunActive(
                f"slot {self.slot} is in cell {self.origin.cell!r} and in {self.destination.cell!r}, each says; "
                "`holdfast cells check` tells the way out"
            )
        self.epoch = max(here.epoch, there.epoch if there is not None else 0) + 1
        async with self.db.transaction():
            await self._set(here.epoch, "owned", "leaving")

    async def _set(self, epoch: int, before: str, state: str) -> None:
        """Change the state of the slot at its origin, if it is what it was; otherwise `RunActive`."""
        done = await self.db.execute(
            f'UPDATE "{self.cells}".slots SET state = $4, epoch = $5, other = $6, since = $7 WHERE slot = $1 AND epoch = $2'
            " AND state = $3 AND ($3 = 'owned' OR other = $6)",
            self.slot, epoch, before, state, self.epoch, self.destination.cell, self.origin.clock.now(),
        )  # fmt: skip
        if done != "UPDATE 1":
            raise RunActive(
                f"slot {self.slot} of cell {self.origin.cell!r} is not {before} any more: another process called this move off, "
                "or made another. Look with `holdfast cells list`, and begin again"
            )
        await changed(self.db, self.cells)

    async def _freeze(self, grace_s: float) -> tuple[int, int]:
        """Wait until no run of the slot is running, then stop all of it; returns how many runs, and how many still ran."""
        until = time.monotonic() + grace_s
        while True:
            force = time.monotonic() >= until
            busy = await self.db.fetchval(
                f"SELECT count(*) FROM runs WHERE \"{self.cells}\".slot_of(root_id) = $1 AND status = 'running'", self.slot
            )  # fmt: skip
            if not busy or force:
                frozen = await insist(lambda force=force: self._frozen(force=force))  # type: ignore[misc]
                if frozen is not None:
                    return frozen
            await asyncio.sleep(_LOOK_S)

    async def _frozen(self, *, force: bool) -> tuple[int, int] | None:
        ours = f'"{self.cells}".slot_of(root_id) = $1'
        locked = f"SELECT id, status FROM runs WHERE {ours} ORDER BY id FOR UPDATE"
        try:
            async with self.db.transaction():
                await self.db.fetch(locked, self.slot)
                await self.db.fetch(f'SELECT 1 FROM "{self.cells}".slots WHERE slot = $1 FOR UPDATE', self.slot)
                rows = await self.db.fetch(
                    locked, self.slot
                )  # with runs that were created meanwhile: no process creates more
                running = sum(row["status"] == "running" for row in rows)
                if running and not force:
                    raise _Busy
                await self._set(self.epoch, "leaving", "frozen")
                await _check(self.db, self.origin, self.slot)  # again: from now on nothing comes that stays here
                kept = f'"{self.cells}".frozen_{self.slot}'
                await self.db.execute(f"CREATE TABLE {kept} AS SELECT * FROM runs WHERE FALSE")
                await self.db.execute(f"INSERT INTO {kept} SELECT * FROM runs WHERE {ours}", self.slot)
                await self.db.execute(
                    f"UPDATE runs SET status = 'moved', reason = $2, due_at = NULL, waits_for = NULL, awaits = NULL,"
                    f" lease_owner = NULL, lease_epoch = lease_epoch + 1, finished_at = coalesce(finished_at, $3) WHERE {ours}",
                    self.slot, f"{FREEZES} {self.destination.cell!r}", self.origin.clock.now(),
                )  # fmt: skip
                return len(rows), running
        except _Busy:
            return None

    async def _until_told(self) -> None:
        """Let notifications hear of what happened before: what is at the destination then is nothing new there.

        `RunActive` if they cannot yet: a transaction that is open keeps events back from all who read them.
        """
        last = await self.db.fetchval(
            f'SELECT max(position) FROM events JOIN runs ON runs.id = run_id WHERE "{self.cells}".slot_of(root_id) = $1', self.slot
        )  # fmt: skip
        until = time.monotonic() + _TOLD_S
        while last is not None:
            while await self.origin.tell_events():
                """There may be no worker that does it."""
            behind = await self.db.fetchval(
                "SELECT count(*) FROM notifications WHERE state = 'active' AND position < $1", last
            )
            if not behind:
                return
            if time.monotonic() > until:
                raise RunActive(
                    f"slot {self.slot} stays in cell {self.origin.cell!r}: a transaction that is open in its database keeps events "
                    "back from notifications, which would miss them. End it (pg_stat_activity lists it), or move the slot later"
                )
            await asyncio.sleep(_LOOK_S)

    async def _copy(self) -> None:
        """Put all rows of the slot into a parcel at the destination, which replaces parcels of moves that were called off."""
        there = schema_of(self.destination.schema)
        async with self.there.transaction(), self.db.transaction():
            await _check_free(self.there, self.destination, self.slot, self.epoch)
            for table in ("parcels", "arrivals"):
                await self.there.execute(
                    f'DELETE FROM "{there}".{table} WHERE slot = $1 AND epoch < $2', self.slot, self.epoch
                )
            place = 0
            async for table, columns, content in copied(self.db, f'"{self.cells}"', self.slot):
                await self.there.execute(
                    f'INSERT INTO "{there}".parcels VALUES ($1, $2, $3, $4, $5, $6)',
                    self.slot, self.epoch, place, table, json.dumps(columns), content,
                )  # fmt: skip
                place += 1
            await self.there.execute(
                f'INSERT INTO "{there}".arrivals (slot, epoch, origin) VALUES ($1, $2, $3)',
                self.slot, self.epoch, self.origin.cell,
            )  # fmt: skip

    async def _decide(self) -> None:
        """Give the slot away, and all its rows: the one moment at which its owner changes."""
        async with self.db.transaction():
            await self._set(self.epoch, "frozen", "gone")
            await delete_rows(self.db, f'"{self.cells}"', self.slot)
            await self.db.execute(f'DROP TABLE "{self.cells}".frozen_{int(self.slot)}')


class _Busy(Exception):
    """A run of the slot runs."""


async def changed(db: Connection, cells: str) -> None:
    """Note that a slot of a cell is not what it was."""
    await db.execute(f'UPDATE "{cells}".cell SET version = version + 1')


async def _check_free(db: Connection, cell: CellStore, slot: int, epoch: int) -> None:
    """Refuse a slot that a cell has, or that was there or came there later than a move began."""
    cells = schema_of(cell.schema)
    row = await db.fetchrow(
        f"SELECT state, epoch FROM \"{cells}\".slots WHERE slot = $1 AND (state <> 'gone' OR epoch >= $2) FOR UPDATE",
        slot, epoch,
    )  # fmt: skip
    parcel = await db.fetchval(f'SELECT max(epoch) FROM "{cells}".arrivals WHERE slot = $1 AND epoch > $2', slot, epoch)
    if row is None and parcel is None:
        return
    found = (
        f"has a parcel of epoch {parcel}" if row is None else f"says that it is {row['state']} (epoch {row['epoch']})"
    )
    raise RunActive(
        f"slot {slot} cannot go to cell {cell.cell!r} with epoch {epoch}: the cell {found}. Another process moved it meanwhile; "
        "`holdfast cells check` tells who has it"
    )


async def arrive(db: Connection, cell: CellStore, slot: int, epoch: int) -> bool:
    """Put the parcel of a move into the tables of the slot's new owner; one that has arrived stays as it is."""
    cells = schema_of(cell.schema)
    async with db.transaction():
        if not await db.fetchval(
            f'DELETE FROM "{cells}".arrivals WHERE slot = $1 AND epoch = $2 RETURNING TRUE', slot, epoch
        ):
            return False
        await _check_free(db, cell, slot, epoch)
        await own(db, cell, slot, epoch)
        parcel = f'FROM "{cells}".parcels WHERE slot = $1 AND epoch = $2'
        tables = await db.fetch(
            f'SELECT "table", columns, min(place) AS first, max(place) AS last {parcel} GROUP BY 1, 2 ORDER BY 3', slot, epoch
        )  # fmt: skip
        for table, listed, first, last in tables:
            content = bytearray()
            for place in range(first, last + 1):
                content += await db.fetchval(f"SELECT content {parcel} AND place = $3", slot, epoch, place)
            await put(db, cells, table, json.loads(listed), bytes(content))
        await db.execute(f'DELETE FROM "{cells}".parcels WHERE slot = $1', slot)
        await _interrupt(db, cell, slot)
    return True


async def own(db: Connection, cell: CellStore, slot: int, epoch: int) -> None:
    """Let a cell own a slot. The caller knows that no other cell does."""
    cells = schema_of(cell.schema)
    await db.execute(
        f"INSERT INTO \"{cells}\".slots (slot, state, epoch, since) VALUES ($1, 'owned', $2, $3) ON CONFLICT (slot) DO UPDATE"
        " SET state = 'owned', epoch = excluded.epoch, other = NULL, since = excluded.since",
        slot, epoch, cell.clock.now(),
    )  # fmt: skip
    await changed(db, cells)


async def _interrupt(db: Connection, cell: CellStore, slot: int) -> None:
    """Let runs that were running when they were frozen be taken over now, and not when a lease is over: they have no owner."""
    await db.execute(
        f"UPDATE runs SET lease_owner = 'moved', due_at = $2 WHERE status = 'running'"
        f' AND "{schema_of(cell.schema)}".slot_of(root_id) = $1',
        slot, cell.clock.now(),
    )  # fmt: skip


async def standing(db: Connection, store: str) -> tuple[int, list[tuple[int, int, str]]]:
    """Read how often slots of a cell have changed hands, and the slots, epochs and origins of the parcels that are in it."""
    cells = schema_of(store)
    async with db.transaction(isolation="repeatable_read", readonly=True):
        version = await db.fetchval(f'SELECT version FROM "{cells}".cell')
        parcels = await db.fetch(f'SELECT slot, epoch, origin FROM "{cells}".arrivals ORDER BY slot')
    return version, [tuple(row) for row in parcels]


async def clear_waste(cell: CellStore) -> None:
    """Delete large values that left with slots and that nothing here names any more, when a worker has time."""
    cells = schema_of(cell.schema)
    digests = await cell.ask(lambda db: db.fetchval(f'SELECT ARRAY(SELECT digest FROM "{cells}".waste LIMIT 1000)'))
    if digests:
        await cell._submit(lambda tx: delete_blobs(tx, set(digests)), journal=False)
        await cell.ask(lambda db: db.execute(f'DELETE FROM "{cells}".waste WHERE digest = ANY ($1)', digests))


async def clean(db: Connection, cell: CellStore, slot: int) -> None:
    """Delete what a mover of an older version left of a slot that is gone. A slot that came back keeps what it has."""
    cells = f'"{schema_of(cell.schema)}"'
    async with db.transaction():
        if not await db.fetchval(f"DELETE FROM {cells}.leftovers WHERE slot = $1 RETURNING TRUE", slot):
            return
        if await db.fetchval(f"SELECT state FROM {cells}.slots WHERE slot = $1 FOR UPDATE", slot) == "gone":
            await delete_rows(db, cells, slot)


# Movers that died


async def mend(store: Cells, names: Iterable[str] | None = None) -> list[str]:
    """Finish, or call off, what movers that are gone have left in these cells, or in all; says what was done."""
    done: list[str] = []
    for cell in [cell for cell in store.up if names is None or cell.cell in names]:
        with contextlib.suppress(StoreUnavailable):
            done += await _mend_cell(store, cell)
    for what in done:
        _log.warning("%s", what)
    if done:
        await store.look()
    return done


async def _mend_cell(store: Cells, cell: CellStore) -> list[str]:
    cells = schema_of(cell.schema)
    torn, arrivals, leftovers, waste = await cell.ask(
        lambda db: db.fetchrow(
            f"SELECT ARRAY(SELECT slot FROM \"{cells}\".slots WHERE state IN ('leaving', 'frozen')),"
            f' ARRAY(SELECT slot FROM "{cells}".arrivals), ARRAY(SELECT slot FROM "{cells}".leftovers),'
            f' EXISTS (SELECT 1 FROM "{cells}".waste)'
        )
    )
    done: list[str] = []
    if torn or arrivals or leftovers:
        async with session(cell) as db:
            for slot in sorted({*torn, *arrivals, *leftovers}):
                if await db.fetchval(_LOCK, _lock_of(cell, slot)):
                    done += await _mend_slot(store, cell, db, slot)
                    await db.execute(_UNLOCK, _lock_of(cell, slot))
    if waste:
        await clear_waste(cell)
    return done


async def _mend_slot(store: Cells, cell: CellStore, db: Connection, slot: int) -> list[str]:
    """Finish, or call off, what a mover that is gone has left of a slot here; its lock is ours."""
    held, gone = await state_of(db, cell.schema, slot), "the process that moved it is gone"
    await clean(db, cell, slot)
    if held is not None and held.state in ("leaving", "frozen") and not await _rivals(store, cell, held):
        await call_off(db, cell, slot)
        return [f"slot {slot} stays in cell {cell.cell!r}: {gone}"]
    row = await db.fetchrow(f'SELECT epoch, origin FROM "{schema_of(cell.schema)}".arrivals WHERE slot = $1', slot)
    origin = store.made.get(row["origin"]) if row is not None else None
    if row is None or origin is None or not origin.is_open:
        return []
    there, epoch = await origin.holding(slot), row["epoch"]
    if there is None:
        return []
    if (there.state, there.epoch, there.other) == ("gone", epoch, cell.cell):
        if await arrive(db, cell, slot, epoch):
            return [f"slot {slot} arrived in cell {cell.cell!r}: {gone}"]
    elif there.epoch > epoch or (there.epoch == epoch and there.state == "owned"):  # that move was called off
        for table in ("arrivals", "parcels"):
            await db.execute(
                f'DELETE FROM "{schema_of(cell.schema)}".{table} WHERE slot = $1 AND epoch = $2', slot, epoch
            )
    return []


async def _rivals(store: Cells, cell: CellStore, held: Holding) -> list[str]:
    """List other cells that have a slot too, or may, with an epoch no older: calling a move off would make a second owner."""
    if held.other not in store.made:  # a process with a newer file can ask it
        return [held.other or ""]
    found = [(other, await other.holding(held.slot)) for other in store.up if other is not cell]
    return [
        other.cell
        for other, there in found
        if there is not None and there.state != "gone" and there.epoch >= held.epoch
    ]


async def call_off(db: Connection, cell: CellStore, slot: int) -> bool:
    """Make a slot again what it was before a move of it that was not decided. Its lock is ours."""
    cells = schema_of(cell.schema)
    kept = f'"{cells}".frozen_{int(slot)}'
    async with db.transaction():
        state = await db.fetchval(f'SELECT state FROM "{cells}".slots WHERE slot = $1 FOR UPDATE', slot)
        if state not in ("leaving", "frozen"):
            return False
        if state == "frozen":
            back = ", ".join(f"{name} = kept.{name}" for name in FROZEN)
            await db.execute(f"UPDATE runs SET {back} FROM {kept} AS kept WHERE runs.id = kept.id")
            await db.execute(f"DROP TABLE {kept}")
            await _interrupt(db, cell, slot)
        await db.execute(
            f"UPDATE \"{cells}\".slots SET state = 'owned', epoch = epoch + 1, other = NULL WHERE slot = $1", slot
        )
        await changed(db, cells)
    return True


def checked_slot(text: str) -> int:
    """Read the number of a slot, or `BadArguments`."""
    if not re.fullmatch(r"\d{1,4}", text) or int(text) >= SLOTS:
        raise BadArguments(f"{text!r} is no slot; they are numbered from 0 to {SLOTS - 1}")
    return int(text)
