"""An inventory of cells, and what an operator does with `holdfast cells`."""

# ruff: noqa: S608 - names of our own schemas, and numbers of slots
from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection
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
from holdfast.store.postgres.connection import Connection

_FAR_S: Final = 1.0  # by which clocks of databases may differ


@dataclass(frozen=True, slots=True)
class CellInfo:
    """A cell as an operator sees it. Of one that cannot be asked is known what the file and the other cells say."""

    name: str
    url: str
    slots: tuple[int, ...]
    leaving: tuple[int, ...] = ()  # of these: slots that are being moved away
    runs: int = 0
    unfinished: int = 0
    workers: int = 0
    bytes: int = 0
    down: str = ""  # why


@asynccontextmanager
async def opened(url: str, gives_up: Collection[str] = ()) -> AsyncIterator[Cells]:
    """Open the cells that a URL names; cells that are given up are lost for good, and not in the file any more."""
    store = Cells(read_plan(url), f"operator-{secrets.token_hex(8)}", gives_up=gives_up)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


async def cells_of(store: Cells) -> list[CellInfo]:
    """Tell what each cell has."""
    found = []
    for name, cell in store.made.items():
        if name in store.down or not cell.is_open:
            found.append(CellInfo(name, cell.url, _said(store, name), down=store.down.get(name, "it was not reached")))
            continue
        runs = await cell.count_runs()
        counts = [(status, count) for states in runs.values() for status, count in states.items()]
        going = sum(count for status, count in counts if status in ("ready", "running", "waiting", "paused"))
        size, _ = await cell.size()
        total, workers = sum(count for _, count in counts), await cell.count_workers()
        held = [each for each in await _holdings(cell) if each.state != "gone"]
        slots, leaving = tuple(each.slot for each in held), tuple(each.slot for each in held if each.state != "owned")
        found.append(CellInfo(name, cell.url, slots, leaving, total, going, workers, size))
    named, missing = {slot for cell in found for slot in cell.slots}, store.missing
    rest = tuple(slot for slot in range(SLOTS) if slot not in named)  # if one is missing, it has them
    slots_of = {name: rest if len(missing) == 1 else _said(store, name) for name in missing}
    return found + [CellInfo(name, "", slots, down=store.absent[name]) for name, slots in slots_of.items()]


def _said(store: Cells, name: str) -> tuple[int, ...]:
    """The slots that a cell has which cannot be asked, as the others or the file say."""
    return tuple(slot for slot in range(SLOTS) if store.owners[slot] == name)


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
    try:
        await store.open()  # founds it
        missing = store.missing
    finally:
        await store.close()
    if missing:
        raise BadArguments(
            f"the database is cell {name!r} of a set, which has also {', '.join(map(repr, missing))}: there is a file that names "
            "them all; use that one"
        )
    plan.write()
    return plan


async def _add(url: str, name: str, database: str) -> Plan:
    async with opened(url) as store:
        plan = store.plan.with_cell(name, database)
        if store.absent.keys() - {name}:
            raise StoreUnavailable(
                f"a cell is added when all others can be asked: {store.why(store.absent.keys() - {name})}"
            )
        new = CellStore(name, database, store.worker)
        await new.open()
        try:
            members = await store.home.ask(functools.partial(_enrol, store=store, new=new))
            for cell in store.up:
                await cell.ask(functools.partial(ownership.enrol, store=cell.schema, members=members))
            await _tell_notifications(store, new)
            await new.ask(lambda db: ownership.complete(db, new.schema))
        finally:
            await new.close()
        plan.write()
        return plan


async def _enrol(db: Connection, store: Cells, new: CellStore) -> dict[str, int]:
    """Make a database a cell of the set, and let the first cell know it: one after the other, whichever file each has."""
    home, name = store.home, new.cell
    async with db.transaction():
        await ownership.lock(db, home.schema)
        first, before = (
            await ownership.told(db, home.schema),
            await new.ask(functools.partial(ownership.told, store=new.schema)),
        )
        assert first is not None
        known = ownership.members_of([*store.said.values(), first])
        if name in first.lost or (name in known and before is None):
            raise BadArguments(
                f"the set has, or had, a cell {name!r} in another database, which is not in {str(store.plan.path)!r}. Use the "
                "newer file, or name the new cell otherwise"
            )
        number = known.get(name, 1 + max(known.values()))
        begun = (name, first.identity, number)  # by one that died before it wrote the file
        if before is not None and (before.name, before.identity, before.number) != begun:
            raise BadArguments(
                f"the database of {new.url!r} is cell {before.name!r} already; name an empty one, or another ?schema="
            )
        members = known | {name: number}
        found = functools.partial(
            ownership.found, store=new.schema, name=name, of=first.of_set, slots=(), now=new.clock.now(), identity=first.identity,
            members=members,
        )  # fmt: skip
        await new.ask(found)
        await ownership.enrol(db, home.schema, members)
    return members


async def _tell_notifications(store: Cells, new: CellStore) -> None:
    """Let a new cell send its events to the receivers that the other cells have."""
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
    wrong += [f"cell {name!r} is of this set, and {store.absent[name]}" for name in store.missing]
    owners: dict[int, list[tuple[CellStore, Holding]]] = {}
    clocks: list[tuple[float, float]] = []  # ahead of this process's clock: at least, and at most
    for cell in store.up:
        for held in await _holdings(cell):
            if held.state != "gone":
                owners.setdefault(held.slot, []).append((cell, held))
            if held.state in ("leaving", "frozen"):
                wrong.append(f"slot {held.slot} is on its way from cell {cell.cell!r} to {held.other!r}")
        asked = time.monotonic()
        strays, now = await cell.ask(functools.partial(_strays, store=cell.schema))
        clocks.append((now - time.monotonic(), now - asked))
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
    nowhere = [slot for slot in range(SLOTS) if slot not in owners]
    if nowhere and not store.down:
        wrong.append(_of_nobody(store, nowhere, settle.format(spelled(nowhere).replace(" ", ""))))
    apart = max(least for least, _ in clocks) - min(most for _, most in clocks) if clocks else 0.0
    if apart > _FAR_S:
        wrong.append(f"the clocks of the databases are {apart:.1f} s apart")
    return Findings(done, wrong)


def _of_nobody(store: Cells, slots: list[int], settle: str) -> str:
    """Say what to do with slots that no cell of the file owns. `settle` gives them away, which is wrong while one has them."""
    file = str(store.plan.path)
    if store.missing:
        return (
            f"slots {spelled(slots)} are in no cell of {file!r}, which lacks {', '.join(map(repr, store.missing))}: use the newer "
            f"file. Only if the database of that cell is lost for good, {settle[:-1]} --lost {store.missing[0]}` gives them to "
            "another cell, without runs"
        )
    if not store.given_up and any(store.known(slot) < 0 for slot in slots):
        return f"slots {spelled(slots)} are in no cell of {file!r}, so the file lacks one: use the newer file"
    return (
        f"slots {spelled(slots)} are owned by no cell: a database was perhaps restored from an older copy. If there is no newer "
        f"one, {settle} gives them to a cell, without runs"
    )


async def _count(cell: CellStore, slot: int) -> int:
    ours = f'"{schema_of(cell.schema)}".slot_of(root_id) = $1'
    return int(await cell.ask(lambda db: db.fetchval(f"SELECT count(*) FROM runs WHERE {ours}", slot)))


async def _strays(db: Any, store: str) -> tuple[int, float]:
    cells = schema_of(store)
    row = await db.fetchrow(
        f'SELECT (SELECT count(*) FROM runs WHERE "{cells}".slot_of(root_id) NOT IN'
        f" (SELECT slot FROM \"{cells}\".slots WHERE state <> 'gone')), extract(epoch FROM clock_timestamp())"
    )
    return int(row[0]), float(row[1])
