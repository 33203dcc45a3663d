"""Moves: a slot goes from one cell to another while everything else goes on. It has one owner at any time.

The steps, each a transaction of one database, and what a mover that dies behind it leaves:

1. *leaving*, at the origin. Workers give the runs of the slot back at their next safe point, and claim none. All else goes on.
   Dies: the next worker that looks makes it owned again.
2. *frozen*, at the origin, once no run of it is running; or after the grace, and then bodies that run are interrupted as by a
   crash. The rows of its runs are kept as they are (`frozen_SLOT`) and say 'moved', so nothing claims or changes them; whoever
   asks waits. Dies: the rows become again what they were, and the slot is owned.
3. *copied*: all rows of the slot lie in a parcel at the destination, where nothing reads them. Dies: as before; the parcel is
   waste.
4. *decided*, at the origin: gone. From here on only the destination can own it. Dies: any worker, or the next mover, goes on with
   5.
5. *arrived*, at the destination: the parcel is put into the tables, and the slot is owned.
6. *cleaned*, at the origin: what is left there is deleted.

A mover holds a lock of its session at the origin. Who finds a slot leaving or frozen, and can take that lock, has found one that
is dead (`mend`). Events keep their order and get positions below all others (`ownership.sql`), so nobody is told of them again.
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
from holdfast.backends.cells.ownership import schema_of
from holdfast.backends.cells.slots import SLOTS
from holdfast.errors import BadArguments, RunActive, StoreUnavailable, Unsupported
from holdfast.store.blobs import delete_blobs
from holdfast.store.postgres.connection import TROUBLE, Connection, goodbye, insist
from holdfast.words.harmless import logger

_log = logger("holdfast.store")
STEPS: Final = ("leaving", "frozen", "copied", "decided", "arrived", "cleaned")
_LOOK_S: Final = 0.05
_TOLD_S: Final = 5.0  # that a move waits for notifications of what happened before it
_PIECE: Final = 16 << 20  # bytes of a parcel in one row
_FROZEN: Final = ("status", "reason", "due_at", "waits_for", "awaits", "lease_owner", "finished_at")
_BLOB: Final = r'"\$blob":"([0-9a-f]{64})"'
_OF_RUNS: Final = "run_id IN (SELECT id FROM moving)"
_OF_NAMES: Final = "run_id IN (SELECT name FROM moving_names)"
# What goes with a slot, in the order in which it is put in: rows that others point to come first.
_TABLES: Final = {
    "approvals": _OF_RUNS, "askers": _OF_RUNS, "spending": _OF_RUNS, "chunks": _OF_RUNS, "signals": _OF_RUNS, "remnants": _OF_RUNS,
    "forks": _OF_RUNS, "lineage": _OF_RUNS, "part_uses": _OF_NAMES, "events": _OF_NAMES, "exports": _OF_RUNS, "imports": _OF_RUNS,
    "audit": _OF_RUNS, "archived": "name IN (SELECT name FROM moving_names)",
    "links": f"question IN (SELECT id FROM approvals WHERE {_OF_RUNS})",
    "conversations": "@cells.slot_of(id) = $1", "conversation_line": "@cells.slot_of(conversation) = $1",
    "conversation_messages": "@cells.slot_of(conversation) = $1", "rates": "@cells.hashed(key) = $1",
    "late_turns": "@cells.hashed(key) = $1", "parts": f"digest IN (SELECT digest FROM part_uses WHERE {_OF_NAMES})",
    "blobs": "digest IN (SELECT digest FROM moving_blobs)",
}  # fmt: skip
_TEXTS: Final = (
    ("runs", "input", "id IN (SELECT id FROM moving)"), ("runs", "result", "id IN (SELECT id FROM moving)"),
    ("events", "value", _OF_NAMES), ("signals", "value", _OF_RUNS), ("approvals", "shown", _OF_RUNS),
    ("approvals", "data", _OF_RUNS),
    ("audit", "value", _OF_RUNS), ("archived", "input", "name IN (SELECT name FROM moving_names)"),
    ("conversation_messages", "value", "@cells.slot_of(conversation) = $1"),
)  # fmt: skip
_SHARED: Final = frozenset(
    {"blobs", "parts", "archived", "rates", "late_turns", "imports", "exports"}
)  # may be there already
_STAYS: Final = frozenset({"blobs", "parts"})  # others may need them


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
    origin, destination = store.of_slot(slot), store.made[to]
    if origin is destination:
        raise BadArguments(f"slot {slot} is in cell {to!r} already")
    if not destination.is_open or to in store.down:
        raise StoreUnavailable(f"cell {to!r} is down: {store.down.get(to, 'it was not reached')}")
    async with _session(origin) as db, _session(destination) as there:
        if not await db.fetchval(_LOCK, _lock_of(origin, slot)):
            raise RunActive(f"slot {slot} is being moved by another process")
        await _check(db, origin, slot)
        await clean(there, destination, slot)  # it may come back to where some of it was left
        mover = _Mover(origin, destination, db, there, slot)
        moved = await mover.move(grace_s, tell)
    await store.look()
    return moved


_LOCK: Final = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))"


def _lock_of(cell: CellStore, slot: int) -> str:
    return f"holdfast-move:{cell.schema}:{slot}"


@asynccontextmanager
async def _session(cell: CellStore) -> AsyncIterator[Connection]:
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
    """One move of one slot."""

    def __init__(self, origin: CellStore, destination: CellStore, db: Connection, there: Connection, slot: int) -> None:
        self.origin, self.destination, self.db, self.there, self.slot = origin, destination, db, there, slot
        self.cells = schema_of(origin.schema)

    async def move(self, grace_s: float, tell: Callable[[str], None]) -> Moved:
        epoch = await self._leave()
        tell("leaving")
        runs, interrupted = await self._freeze(grace_s)
        began = time.monotonic()
        tell("frozen")
        await self._until_told()
        await self._copy(epoch)
        tell("copied")
        await _decide(self.db, self.origin, self.slot, self.destination.cell)
        tell("decided")
        await arrive(self.there, self.destination, self.slot)
        away_s = time.monotonic() - began
        tell("arrived")
        await clean(self.db, self.origin, self.slot)
        tell("cleaned")
        return Moved(self.slot, self.origin.cell, self.destination.cell, runs, interrupted, away_s)

    async def _leave(self) -> int:
        async with self.db.transaction():
            epoch: int = await self.db.fetchval(
                f"UPDATE \"{self.cells}\".slots SET state = 'leaving', epoch = epoch + 1, other = $2, since = $3"
                " WHERE slot = $1 AND state = 'owned' RETURNING epoch",
                self.slot, self.destination.cell, self.origin.clock.now(),
            )  # fmt: skip
            await _changed(self.db, self.cells)
        return epoch

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
                )  # with those that were created meanwhile: nobody creates more
                running = sum(row["status"] == "running" for row in rows)
                if running and not force:
                    raise _Busy
                kept = f'"{self.cells}".frozen_{self.slot}'
                await self.db.execute(f"CREATE TABLE {kept} AS SELECT * FROM runs WHERE FALSE")
                await self.db.execute(f"INSERT INTO {kept} SELECT * FROM runs WHERE {ours}", self.slot)
                await self.db.execute(
                    f"UPDATE runs SET status = 'moved', reason = $2, due_at = NULL, waits_for = NULL, awaits = NULL,"
                    f" lease_owner = NULL, lease_epoch = lease_epoch + 1, finished_at = coalesce(finished_at, $3) WHERE {ours}",
                    self.slot, f"moved to cell {self.destination.cell!r}", self.origin.clock.now(),
                )  # fmt: skip
                await _state(self.db, self.cells, self.slot, "frozen")
                return len(rows), running
        except _Busy:
            return None

    async def _until_told(self) -> None:
        """Let notifications hear of what happened before: what is at the destination then is nothing new there."""
        last = await self.db.fetchval(
            f'SELECT max(position) FROM events JOIN runs ON runs.id = run_id WHERE "{self.cells}".slot_of(root_id) = $1', self.slot
        )  # fmt: skip
        until = time.monotonic() + _TOLD_S
        while last is not None and time.monotonic() < until:
            behind = await self.db.fetchval(
                "SELECT count(*) FROM notifications WHERE state = 'active' AND position < $1", last
            )
            if not behind:
                return
            await asyncio.sleep(_LOOK_S)

    async def _copy(self, epoch: int) -> None:
        """Put all rows of the slot into a parcel at the destination."""
        there = schema_of(self.destination.schema)
        async with self.there.transaction():
            for table in ("parcels", "arrivals"):
                await self.there.execute(f'DELETE FROM "{there}".{table} WHERE slot = $1', self.slot)
            place = 0
            async for table, columns, content in self._rows():
                await self.there.execute(
                    f'INSERT INTO "{there}".parcels VALUES ($1, $2, $3, $4, $5, $6)',
                    self.slot, epoch, place, table, json.dumps(columns), content,
                )  # fmt: skip
                place += 1
            await self.there.execute(
                f'INSERT INTO "{there}".arrivals (slot, epoch, origin) VALUES ($1, $2, $3)',
                self.slot, epoch, self.origin.cell,
            )  # fmt: skip

    async def _rows(self) -> AsyncIterator[tuple[str, list[str], bytes]]:
        """All rows of the slot, a table after the other, in pieces. Nothing of it changes meanwhile."""
        db, slot, cells = self.db, self.slot, f'"{self.cells}"'
        async with db.transaction():
            await name_rows(db, cells, slot)
            for table, where in {"runs": "", **_TABLES}.items():
                columns = await _columns(db, table)
                listed = ", ".join(f'"{name}"' for name in columns)
                source = (
                    f"{cells}.frozen_{slot}" if table == "runs" else f'"{table}" WHERE {where}'.replace("@cells", cells)
                )
                query = f"SELECT {listed} FROM {source}".replace("$1", str(int(slot)))
                pieces = _Pieces()
                await db.copy_from_query(query, output=pieces.take, format="binary")
                for piece in pieces.all():
                    yield table, columns, piece


class _Busy(Exception):
    """A run of the slot runs."""


class _Pieces:
    """Output of COPY, in pieces of a size that a row can hold."""

    def __init__(self) -> None:
        self._full, self._last = list[bytes](), bytearray()

    async def take(self, data: bytes) -> None:
        self._last += data
        if len(self._last) >= _PIECE:
            self._full.append(bytes(self._last))
            self._last.clear()

    def all(self) -> list[bytes]:
        return [*self._full, bytes(self._last)] if self._last else self._full


async def name_rows(db: Connection, cells: str, slot: int) -> None:
    """Name, for this transaction, the runs of a slot, the names under which events are theirs, and the large values they name."""
    await db.execute(
        f"CREATE TEMP TABLE moving ON COMMIT DROP AS SELECT id FROM runs WHERE {cells}.slot_of(root_id) = {int(slot)};"
        "CREATE TEMP TABLE moving_names ON COMMIT DROP AS SELECT id AS name FROM moving UNION SELECT base_id FROM lineage WHERE"
        f" {_OF_RUNS} AND left(base_id, 1) = '#' UNION SELECT base_id FROM forks WHERE {_OF_RUNS} AND left(base_id, 1) = '#'"
    )
    texts = " UNION ALL ".join(
        f"SELECT {column} AS text FROM {table} WHERE strpos({column}, '$blob') > 0 AND {where}"
        for table, column, where in _TEXTS
    )
    await db.execute(
        f"CREATE TEMP TABLE moving_blobs ON COMMIT DROP AS SELECT blob AS digest FROM events WHERE blob IS NOT NULL AND {_OF_NAMES}"
        f" UNION SELECT found[1] FROM ({texts}) AS texts, regexp_matches(text, '{_BLOB}', 'g') AS found"
        .replace("@cells", cells).replace("$1", str(int(slot)))
    )  # fmt: skip


async def _columns(db: Connection, table: str) -> list[str]:
    rows = await db.fetch(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = $1"
        " AND ($1 <> 'audit' OR column_name <> 'id') ORDER BY ordinal_position", table,
    )  # fmt: skip
    return [row[0] for row in rows]


async def _state(db: Connection, cells: str, slot: int, state: str) -> None:
    await db.execute(f'UPDATE "{cells}".slots SET state = $2 WHERE slot = $1', slot, state)
    await _changed(db, cells)


async def _changed(db: Connection, cells: str) -> None:
    await db.execute(f'UPDATE "{cells}".cell SET version = version + 1')


async def _decide(db: Connection, cell: CellStore, slot: int, to: str) -> None:
    """Give the slot away: the one moment at which its owner changes."""
    cells = schema_of(cell.schema)
    async with db.transaction():
        done = await db.execute(
            f"UPDATE \"{cells}\".slots SET state = 'gone' WHERE slot = $1 AND state = 'frozen' AND other = $2", slot, to
        )  # fmt: skip
        if done != "UPDATE 1":
            raise RunActive(f"slot {slot} is not being moved to cell {to!r} any more: another process called it off")
        await db.execute(f'INSERT INTO "{cells}".leftovers VALUES ($1) ON CONFLICT DO NOTHING', slot)
        await db.execute(f'DROP TABLE IF EXISTS "{cells}".frozen_{int(slot)}')
        await _changed(db, cells)


async def arrive(db: Connection, cell: CellStore, slot: int) -> None:
    """Put the parcel of a slot into the tables of its new owner; a slot that has arrived stays as it is."""
    cells = schema_of(cell.schema)
    async with db.transaction():
        row = await db.fetchrow(f'DELETE FROM "{cells}".arrivals WHERE slot = $1 RETURNING epoch', slot)
        if row is None:
            return
        await db.execute(
            f"INSERT INTO \"{cells}\".slots (slot, state, epoch, since) VALUES ($1, 'owned', $2, $3) ON CONFLICT (slot) DO UPDATE"
            " SET state = 'owned', epoch = excluded.epoch, other = NULL, since = excluded.since",
            slot, row["epoch"], cell.clock.now(),
        )  # fmt: skip
        parcel = f'FROM "{cells}".parcels WHERE slot = $1'
        tables = await db.fetch(
            f'SELECT "table", columns, min(place) AS first, max(place) AS last {parcel} GROUP BY 1, 2 ORDER BY 3', slot
        )
        for table, listed, first, last in tables:
            content = bytearray()
            for place in range(first, last + 1):
                content += await db.fetchval(f"SELECT content {parcel} AND place = $2", slot, place)
            await _put(db, cells, table, json.loads(listed), bytes(content))
        await db.execute(f'DELETE FROM "{cells}".parcels WHERE slot = $1', slot)
        # A run that was running when it was frozen has lost its owner, and is taken over now and not when a lease is over.
        await db.execute(
            f"UPDATE runs SET lease_owner = 'moved', due_at = $2 WHERE status = 'running' AND \"{cells}\".slot_of(root_id) = $1",
            slot, cell.clock.now(),
        )  # fmt: skip
        await _changed(db, cells)


async def _put(db: Connection, cells: str, table: str, columns: list[str], content: bytes) -> None:
    names = ", ".join(f'"{name}"' for name in columns)
    await db.execute(f'CREATE TEMP TABLE arrived ON COMMIT DROP AS SELECT {names} FROM "{table}" WHERE FALSE')
    await db.copy_to_table("arrived", source=_stream(content), columns=columns, format="binary")
    values = names
    order = ""
    if table == "events":  # of the past here too
        values = names.replace('"position"', f"nextval('\"{cells}\".former_positions')")
        order = ' ORDER BY "position"'
    elsewhere = " ON CONFLICT DO NOTHING" if table in _SHARED else ""
    await db.execute(
        f'INSERT INTO "{table}" ({names}) SELECT {values} FROM (SELECT * FROM arrived{order}) AS came{elsewhere}'
    )
    await db.execute("DROP TABLE arrived")


async def _stream(content: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(content), 1 << 20):
        yield content[at : at + (1 << 20)]


async def clean(db: Connection, cell: CellStore, slot: int) -> None:
    """Delete what is left of a slot that is gone."""
    cells = f'"{schema_of(cell.schema)}"'
    async with db.transaction():
        if not await db.fetchval(f"SELECT EXISTS (SELECT 1 FROM {cells}.leftovers WHERE slot = $1)", slot):
            return
        await name_rows(db, cells, slot)
        digests = [row[0] for row in await db.fetch("SELECT digest FROM moving_blobs")]
        for table, where in reversed(_TABLES.items()):
            if table not in _STAYS:
                await db.execute(
                    f'DELETE FROM "{table}" WHERE {where}'.replace("@cells", cells).replace("$1", str(int(slot)))
                )
        await db.execute("DELETE FROM runs WHERE id IN (SELECT id FROM moving)")
        await db.execute(f"DELETE FROM {cells}.leftovers WHERE slot = $1", slot)
    if digests and cell.is_open:
        await cell._submit(lambda tx: delete_blobs(tx, set(digests)), journal=False)


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
    torn, arrivals, leftovers = await cell.ask(
        lambda db: db.fetchrow(
            f"SELECT ARRAY(SELECT slot FROM \"{cells}\".slots WHERE state IN ('leaving', 'frozen')),"
            f' ARRAY(SELECT slot FROM "{cells}".arrivals), ARRAY(SELECT slot FROM "{cells}".leftovers)'
        )
    )
    if not (torn or arrivals or leftovers):
        return []
    done: list[str] = []
    async with _session(cell) as db:
        for slot in torn:
            if await db.fetchval(_LOCK, _lock_of(cell, slot)) and await _call_off(db, cell, slot):
                done += [f"slot {slot} stays in cell {cell.cell!r}: the process that moved it is gone"]
        for slot in arrivals:
            if await _may_arrive(store, cell, slot):
                await arrive(db, cell, slot)
                done.append(f"slot {slot} arrived in cell {cell.cell!r}: the process that moved it is gone")
        for slot in leftovers:
            if await db.fetchval(_LOCK, _lock_of(cell, slot)):
                await clean(db, cell, slot)
    return done


async def _call_off(db: Connection, cell: CellStore, slot: int) -> bool:
    """Make a slot again what it was before its move was decided."""
    cells = schema_of(cell.schema)
    kept = f'"{cells}".frozen_{int(slot)}'
    async with db.transaction():
        state = await db.fetchval(f'SELECT state FROM "{cells}".slots WHERE slot = $1 FOR UPDATE', slot)
        if state not in ("leaving", "frozen"):
            return False
        if state == "frozen":
            back = ", ".join(f"{name} = kept.{name}" for name in _FROZEN)
            await db.execute(f"UPDATE runs SET {back} FROM {kept} AS kept WHERE runs.id = kept.id")
            await db.execute(f"DROP TABLE {kept}")
        await _state(db, cells, slot, "owned")
    return True


async def _may_arrive(store: Cells, cell: CellStore, slot: int) -> bool:
    """Has the origin given the slot to this cell, and is its mover gone?"""
    cells = schema_of(cell.schema)
    row = await cell.ask(lambda db: db.fetchrow(f'SELECT epoch, origin FROM "{cells}".arrivals WHERE slot = $1', slot))
    origin = store.made.get(row["origin"]) if row is not None else None
    if origin is None or not origin.is_open:
        return False
    held = await origin.holding(slot)
    if held is None or (held.state, held.epoch, held.other) != ("gone", row["epoch"], cell.cell):
        return False
    free = await origin.ask(
        lambda db: db.fetchval("SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))", _lock_of(origin, slot))
    )
    return bool(free)


def checked_slot(text: str) -> int:
    """Read the number of a slot, or `BadArguments`."""
    if not re.fullmatch(r"\d{1,4}", text) or int(text) >= SLOTS:
        raise BadArguments(f"{text!r} is no slot; they are numbered from 0 to {SLOTS - 1}")
    return int(text)
