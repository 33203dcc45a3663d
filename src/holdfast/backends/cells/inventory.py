"""An inventory of cells, and what an operator does with `holdfast cells`."""

# ruff: noqa: S608 - names of our own schemas, and numbers of slots
from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.backends.cells import moves, ownership
from holdfast.backends.cells.cell import CellStore
from holdfast.backends.cells.cells import Cells
from holdfast.backends.cells.moves import Moved
from holdfast.backends.cells.ownership import Holding, schema_of
from holdfast.backends.cells.plan import Plan, alone, first_plan, path_of, read_plan
from holdfast.backends.cells.slots import SLOTS, spelled
from holdfast.errors import BadArguments, StoreUnavailable

_FAR_MS: Final = 1_000  # by which clocks of databases may differ


@dataclass(frozen=True, slots=True)
class CellInfo:
    """A cell as an operator sees it. Of one that is down only the file is known."""

    name: str
    url: str
    slots: tuple[int, ...]
    leaving: tuple[int, ...] = ()  # of these: those that are being moved away
    runs: int = 0
    unfinished: int = 0
    workers: int = 0
    bytes: int = 0
    down: str = ""  # why


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Cells]:
    """Open the cells that a URL names."""
    store = Cells(read_plan(url), f"operator-{secrets.token_hex(8)}")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def cells_of(store: Cells) -> list[CellInfo]:
    """Tell what each cell has."""
    found = []
    for name, cell in store.made.items():
        slots = tuple(slot for slot in range(SLOTS) if store.owners[slot] == name)
        if name in store.down or not cell.is_open:
            found.append(CellInfo(name, cell.url, slots, down=store.down.get(name, "it was not reached")))
            continue
        runs = await cell.count_runs()
        counts = [(status, count) for states in runs.values() for status, count in states.items()]
        going = sum(count for status, count in counts if status in ("ready", "running", "waiting", "paused"))
        size, _ = await cell.size()
        total, workers = sum(count for _, count in counts), await cell.count_workers()
        held = await _holdings(cell)
        leaving = tuple(each.slot for each in held if each.state in ("leaving", "frozen"))
        found.append(CellInfo(name, cell.url, slots, leaving, total, going, workers, size))
    return found


async def _holdings(cell: CellStore) -> list[Holding]:
    return await cell.ask(lambda db: ownership.holdings(db, cell.schema))


async def add(url: str, name: str, database: str) -> Plan:
    """Add a database to a set, with no slot; the first one begins the file, and has them all. Returns the plan as it is then."""
    path = path_of(url)
    with contextlib.ExitStack() as held:
        await asyncio.to_thread(held.enter_context, alone(path))
        return await (_add(url, name, database) if path.exists() else _begin(path, name, database))


async def _begin(path: Path, name: str, database: str) -> Plan:
    plan = first_plan(path, name, database)
    store = Cells(plan, f"operator-{secrets.token_hex(8)}")
    await store.open()  # founds it
    await store.close()
    plan.write()
    return plan


async def _add(url: str, name: str, database: str) -> Plan:
    async with opened(url) as store:
        plan = store.plan.with_cell(name, database)
        if store.down:
            raise StoreUnavailable(f"a cell is added when all others can be asked: {store.why()}")
        new = CellStore(name, database, store.worker)
        await new.open()
        try:
            first, number = store.said[plan.home], 1 + max(each.number for each in store.said.values())
            before = await new.ask(lambda db: ownership.told(db, new.schema))
            begun = (name, first.identity, number)  # by one that died before it wrote the file
            if before is not None and (before.name, before.identity, before.number) != begun:
                raise BadArguments(
                    f"the database of {new.url!r} is cell {before.name!r} already; name an empty one, or another ?schema="
                )
            found = functools.partial(
                ownership.found, store=new.schema, name=name, number=number, of=first.of_set, slots=(), now=new.clock.now(),
                identity=first.identity,
            )  # fmt: skip
            await new.ask(found)
            await _tell_notifications(store, new)
            await new.ask(lambda db: ownership.complete(db, new.schema))
        finally:
            await new.close()
        plan.write()
        return plan


async def _tell_notifications(store: Cells, new: CellStore) -> None:
    """Let a new cell tell of its events whoever is told by the others."""
    for row in await store.home.notifications():
        await new.make_notification(row.name, row.config, by=row.made_by, via="cells")
        if row.state != "active":
            await new.steer_notification(row.name, row.state, by=row.made_by, via="cells")


async def move(
    url: str,
    slots: list[int],
    to: str,
    *,
    grace_s: float,
    tell: Callable[[int, str], None],
    done: Callable[[Moved], None],
) -> None:
    """Move slots, one after the other."""
    async with opened(url) as store:
        for slot in slots:
            done(await moves.move(store, slot, to, grace_s=grace_s, tell=functools.partial(tell, slot)))


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings of a check: what dead movers left and was finished, and what is wrong."""

    mended: list[str]
    wrong: list[str]


async def check(store: Cells) -> Findings:
    """Finish what dead movers left, then look for what is wrong."""
    done, wrong = await moves.mend(store), [f"cell {name!r} is down: {why}" for name, why in store.down.items()]
    owners: dict[int, list[tuple[CellStore, Holding]]] = {}
    times: dict[str, int] = {}
    for cell in store.up:
        for held in await _holdings(cell):
            if held.state != "gone":
                owners.setdefault(held.slot, []).append((cell, held))
            if held.state in ("leaving", "frozen"):
                wrong.append(f"slot {held.slot} is on its way from cell {cell.cell!r} to {held.other!r}")
        strays, now = await cell.ask(functools.partial(_strays, store=cell.schema))
        times[cell.cell] = now
        if strays:
            wrong.append(f"cell {cell.cell!r} has {strays} runs of slots that it does not own")
    settle = f"`holdfast cells settle {{}} --to NAME --db {store.plan.shown}`"
    for slot, have in sorted(owners.items()):
        if len(have) > 1:
            each = [f"cell {cell.cell!r} (epoch {held.epoch}, {await _count(cell, slot)} runs)" for cell, held in have]
            wrong.append(
                f"slot {slot} is owned by {' and by '.join(each)}: a database was perhaps restored from an older copy. Choose one, "
                f"usually that of the higher epoch: {settle.format(slot)} lets it own the slot alone, and deletes the runs of this "
                "slot in the others; export first what you want to keep of those"
            )
    missing = [slot for slot in range(SLOTS) if slot not in owners]
    if missing and not store.down:
        wrong.append(
            f"slots {spelled(missing)} are owned by no cell: a database was perhaps restored from an older copy. If there is no "
            f"newer one, {settle.format(spelled(missing).replace(' ', ''))} gives them to a cell, without runs"
        )
    if times and max(times.values()) - min(times.values()) > _FAR_MS:
        wrong.append(
            f"the clocks of the databases are {(max(times.values()) - min(times.values())) / 1000:.1f} s apart"
        )
    return Findings(done, wrong)


async def _count(cell: CellStore, slot: int) -> int:
    ours = f'"{schema_of(cell.schema)}".slot_of(root_id) = $1'
    return int(await cell.ask(lambda db: db.fetchval(f"SELECT count(*) FROM runs WHERE {ours}", slot)))


async def _strays(db: Any, store: str) -> tuple[int, int]:
    cells = schema_of(store)
    row = await db.fetchrow(
        f'SELECT (SELECT count(*) FROM runs WHERE "{cells}".slot_of(root_id) NOT IN'
        f" (SELECT slot FROM \"{cells}\".slots WHERE state <> 'gone')), (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    )
    return int(row[0]), int(row[1])
