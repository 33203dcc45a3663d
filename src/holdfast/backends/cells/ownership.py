"""Ownership: which slots a database has, as the database itself says. Fences are here, and how a set of cells is founded.

A process believes the databases and no file. `fence` in `ownership.sql` refuses a run of a slot that is not here, in the
transaction that would create it; a move (`moves.py`) is what changes rows of `slots`.

A set is founded by the first process that opens its plan, one database after the other. It may die in between: the next
process with the same plan goes on. One that comes with another plan finds a set that is not its own, and founds
nothing. When all are founded each is told so: from then on an empty database under the URL of a cell is a mistake, and
is refused.

A set has an identity, which is random. It is made by the process that founds the first cell, and the others are founded
with what that one says; so two sets of one plan are told apart. Cells of a version that knew none get one when all of
them are opened for writing, the first cell last: where the first has one and another that has slots has none, that
other is of another set.

Each cell knows all others by name and number (`members`), so a file that lacks one is known to be older than the set. The first
cell is that of the lowest number. An operator gives up one whose database is lost for good (`settlement.py`); each cell knows that.
"""

# ruff: noqa: S608 - names of our own schemas, and numbers of slots
from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

import asyncpg

from holdfast.backends.cells.plan import Plan
from holdfast.errors import BadArguments, StoreUnavailable
from holdfast.store.postgres.connection import FENCED, Connection

_LATER: Final = ("ownership_2.sql", "ownership_3.sql", "ownership_4.sql")  # what later versions added
# The reason of runs whose slot is frozen begins with this. `frozen_SLOT` keeps what these runs were before, until the move is
# decided or called off.
FREEZES: Final = "moved to cell"
FROZEN: Final = ("status", "reason", "due_at", "waits_for", "awaits", "lease_owner", "finished_at")
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('holdfast-cells:' || $1, 0))"


@dataclass(frozen=True, slots=True)
class Holding:
    """A slot, as the database says that has it or had it."""

    slot: int
    state: str
    epoch: int
    other: str | None


@dataclass(frozen=True, slots=True)
class Cell:
    """A database, as it says of itself."""

    name: str
    number: int
    of_set: str
    complete: bool
    version: int
    identity: str | None  # of its set; None if a version founded it that knew none
    members: Mapping[str, int]  # the cells of its set that it knows, and their numbers
    lost: frozenset[str]  # cells that were given up
    renewed: bool  # it has what later versions added


def schema_of(store: str) -> str:
    """The name of the schema beside that of a store."""
    return f"{store}_cells"


def text_of(store: str) -> str:
    """Write the statements that make a database a cell."""
    return "".join(_text(file, store) for file in ("ownership.sql", *_LATER))


def _text(file: str, store: str) -> str:
    text = (resources.files("holdfast.backends.cells") / file).read_text()
    return text.replace("@cells", schema_of(store)).replace("@store", store)


async def told(db: Connection, store: str) -> Cell | None:
    """Read what a database says of itself; None if it is no cell yet."""
    # A query of the catalog, because to_regclass() may remember that there was none, although another session has made it since.
    there = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = 'cell')"
    if not await db.fetchval(there, schema_of(store)):
        return None
    text = await db.fetchval(f'SELECT to_jsonb(cell)::text FROM "{schema_of(store)}".cell')
    if text is None:
        return None
    row = json.loads(text)
    said = {name: row[name] for name in ("name", "number", "of_set", "complete", "version")}
    members = row.get("members", {}) | {row["name"]: row["number"]}
    lost = frozenset(row.get("lost", ()))
    return Cell(
        **said,
        identity=row.get("identity"),
        members=members,
        lost=lost,
        renewed=row.keys() >= {"identity", "lost", "added"},
    )


def new_identity() -> str:
    """The identity of a set that begins."""
    return secrets.token_hex(8)


async def lock(db: Connection, store: str) -> None:
    """Lock what a database is against other processes, for this transaction."""
    await db.execute(_LOCK, store)


async def renew(db: Connection, store: str) -> None:
    """Give a cell what later versions added."""
    async with db.transaction():
        await lock(db, store)
        await db.execute("".join(_text(file, store) for file in _LATER))


async def identify(db: Connection, store: str, identity: str) -> None:
    """Write the identity of its set into a cell that has none."""
    await db.execute(f'UPDATE "{schema_of(store)}".cell SET identity = $1 WHERE identity IS NULL', identity)


async def enrol(db: Connection, store: str, members: Mapping[str, int]) -> None:
    """Let a cell know others of its set."""
    await db.execute(f'UPDATE "{schema_of(store)}".cell SET members = members || $1::jsonb', json.dumps(dict(members)))


async def give_up(db: Connection, store: str, lost: Iterable[str]) -> None:
    """Let a cell know that others are lost for good."""
    cells = schema_of(store)
    await db.execute(
        f'UPDATE "{cells}".cell SET lost = ARRAY(SELECT DISTINCT unnest(lost || $1::text[]) ORDER BY 1)', list(lost)
    )


async def found(
    db: Connection, store: str, name: str, of: str, slots: Sequence[int], now: int, identity: str | None,
    members: Mapping[str, int],
) -> Cell:  # fmt: skip
    """Make a database a cell, with these slots; one that is a cell already stays what it is. `members` are all, and itself."""
    cells = schema_of(store)
    async with db.transaction():
        await lock(db, store)
        known = await told(db, store)
        if known is not None:
            return known
        if await db.fetchval(f'SELECT EXISTS (SELECT 1 FROM "{store}".runs)'):
            raise BadArguments(
                f"the database of cell {name!r} has runs already, and they would be in slots that are not its own. Begin cells "
                "with empty schemas (?schema=...), and carry runs over with `holdfast export` and `holdfast import`"
            )
        try:
            await db.execute(text_of(store))
        except asyncpg.InsufficientPrivilegeError as error:
            raise StoreUnavailable(
                f"cell {name!r}: this user may not create the schema {cells!r}, in which a cell keeps its slots: {error}"
            ) from error
        await db.execute(
            f'INSERT INTO "{cells}".cell (name, number, of_set, founded_at, identity, members)'
            " VALUES ($1, $2, $3, $4, $5, $6::jsonb)",
            name, members[name], of, now, identity, json.dumps(dict(members)),
        )  # fmt: skip
        await db.execute(
            f"INSERT INTO \"{cells}\".slots (slot, state, epoch, since) SELECT unnest($1::int[]), 'owned', 1, $2",
            list(slots), now,
        )  # fmt: skip
        made = await told(db, store)
        assert made is not None
        return made


async def next_reader(db: Connection, store: str) -> int:
    """Count one more process that tells the feed; returns its number."""
    return int(await db.fetchval(f"SELECT nextval('\"{schema_of(store)}\".readers')"))


async def complete(db: Connection, store: str) -> None:
    """Note that all cells of the plan were founded."""
    await db.execute(f'UPDATE "{schema_of(store)}".cell SET complete = TRUE WHERE NOT complete')


async def holdings(db: Connection, store: str) -> list[Holding]:
    """Read the slots that a database has or had."""
    rows = await db.fetch(f'SELECT slot, state, epoch, other FROM "{schema_of(store)}".slots ORDER BY slot')
    return [Holding(*row) for row in rows]


async def state_of(db: Connection, store: str, slot: int) -> Holding | None:
    """Read one of them."""
    row = await db.fetchrow(
        f'SELECT slot, state, epoch, other FROM "{schema_of(store)}".slots WHERE slot = $1', slot
    )  # fmt: skip
    return None if row is None else Holding(*row)


async def still(db: Connection, store: str, runs: Collection[str]) -> dict[str, dict[str, Any]]:
    """Read what these runs were before their slots were frozen. One is left out whose move is decided or called off by now."""
    cells, found = schema_of(store), dict[str, dict[str, Any]]()
    slots = await db.fetch(
        f"SELECT slot FROM \"{cells}\".slots WHERE state = 'frozen' AND slot IN"
        f' (SELECT "{cells}".slot_of(root_id) FROM runs WHERE id = ANY ($1)) ORDER BY slot',
        list(runs),
    )
    for (slot,) in slots:
        kept = f'"{cells}".frozen_{int(slot)}'
        with contextlib.suppress(asyncpg.UndefinedTableError):
            rows = await db.fetch(f"SELECT id, {', '.join(FROZEN)} FROM {kept} WHERE id = ANY ($1)", list(runs))
            found |= {row["id"]: {name: row[name] for name in FROZEN} for row in rows}
    return found


def check_names(plan: Plan, said: dict[str, Cell | None]) -> None:
    """Refuse databases that are no set: `BadArguments` says which is wrong, and what it is."""
    sets = {cell.of_set for cell in said.values() if cell is not None}
    for name, cell in said.items():
        if cell is None:
            whole = any(other is not None and other.complete for other in said.values())
            if whole or sets - {plan.digest}:
                raise BadArguments(
                    f"cell {name!r} of {str(plan.path)!r} is an empty database, and others of the set are not. If it is new, "
                    f"take it out of the file and write `holdfast cells add {name} URL --db {plan.shown}`; if it is not, the wrong "
                    "database answers"
                )
        elif cell.name != name:
            raise BadArguments(
                f"the database that {str(plan.path)!r} names {name!r} says that it is cell {cell.name!r}; mend the URL, or the name"
            )
    if len(sets) > 1:
        shown = ", ".join(f"{name!r} of {cell.of_set[:8]}" for name, cell in said.items() if cell is not None)
        raise BadArguments(
            f"the databases of {str(plan.path)!r} belong to different sets of cells ({shown}): they were founded with different "
            "files. Use the file that founded them"
        )
    identities = {cell.identity for cell in said.values() if cell is not None and cell.identity is not None}
    if len(identities) > 1:
        shown = ", ".join(f"{name!r} of set {cell.identity or '?'}" for name, cell in said.items() if cell is not None)
        raise BadArguments(
            f"the databases of {str(plan.path)!r} belong to different sets of cells ({shown}), which have the same names. Mend the "
            "URL of the one that is wrong"
        )


def members_of(said: Iterable[Cell]) -> dict[str, int]:
    """The cells of a set and their numbers, as far as one of these knows them."""
    return {name: number for cell in said for name, number in cell.members.items()}


def check_members(plan: Plan, said: Collection[Cell], lost: Collection[str]) -> None:
    """Refuse a file that names a cell that was given up, or another cell first than the set has: `BadArguments`."""
    file, given_up = str(plan.path), {name for cell in said for name in cell.lost}
    here = [name for name in plan.urls if name in lost and name not in given_up]
    if here:
        raise BadArguments(
            f"cell {here[0]!r} is in {file!r}, so it is not lost, and nothing was given up. If its database is lost for good, take "
            f"[cells.{here[0]}] out of the file, give its slots there to another cell, and write this again; otherwise leave "
            f"`--lost {here[0]}` out"
        )
    given_up |= set(lost)
    back = [name for name in plan.urls if name in given_up]
    if back:
        raise BadArguments(
            f"cell {back[0]!r} of {file!r} was given up as lost for good, and its slots belong to others: take it out of the file"
        )
    numbers = {name: number for name, number in members_of(said).items() if name not in given_up}
    first = min(numbers, key=numbers.__getitem__)
    if first == plan.home:
        return
    if first in plan.urls:
        raise BadArguments(
            f"{file!r} begins with cell {plan.home!r}, and the first of the set is {first!r}, which keeps tokens and sessions: "
            f"put [cells.{first}] before all others"
        )
    raise BadArguments(
        f"{file!r} lacks cell {first!r}, the first of the set, which keeps tokens and sessions. Use the newer file. If its "
        f"database is lost for good, `holdfast cells settle SLOTS --to NAME --lost {first} --db {plan.shown}` gives it up"
    )


def of_no_set(plan: Plan, name: str, store: str, first: Cell) -> BadArguments:
    """Say that a cell with slots has no identity, though the first cell of the file, which gets it last, has one."""
    return BadArguments(
        f"cell {name!r} of {str(plan.path)!r} has slots, and does not say of which set it is; {first.name!r} is of set "
        f"{first.identity}. If it is the wrong database, mend its URL. If an older version of holdfast added it to this set, write "
        f"there: UPDATE \"{schema_of(store)}\".cell SET identity = '{first.identity}'"
    )


def is_fence(error: BaseException) -> bool:
    """Did a database refuse because a slot is not in it?"""
    return FENCED in (getattr(error, "sqlstate", None), getattr(error.__cause__, "sqlstate", None))
