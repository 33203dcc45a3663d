"""`holdfast cells`: lists the databases of a set, adds one, moves slots, and checks that each has one owner."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import db_option, json_option, seconds_of, subcommand
from holdfast.cli.view.advice import command
from holdfast.cli.view.console import answer, print_json, print_list, say, table
from holdfast.cli.view.screen import Text
from holdfast.client.client import DEFAULT_URL
from holdfast.values.text import size
from holdfast.words.urls import redacted

if TYPE_CHECKING:
    from holdfast.backends.cells.inventory import CellInfo
    from holdfast.backends.cells.moves import Moved

_ACTIONS = ("list", "slot", "add", "move", "check", "settle")
_TELL_EVERY = 50  # slots that are moved
_SAYS = {
    "leaving": "its runs are given back",
    "frozen": "it stands still",
    "copied": "it is copied",
    "decided": "it belongs to the other cell",
    "arrived": "it goes on there",
    "cleaned": "nothing of it is left behind",
}


@subcommand()
@click.argument("action", type=click.Choice(_ACTIONS))
@click.argument("what", metavar="[ID|NAME|SLOTS]", required=False)
@click.argument("url", metavar="[URL]", required=False)
@click.option("--to", metavar="NAME", help="With move and settle: the cell that the slots go to.")
@click.option("--lost", metavar="NAME", multiple=True,
              help="With settle: this cell is not in the file any more, and its database is lost for good.")  # fmt: skip
@click.option("--grace", "grace_s", metavar="TIME", default="30s", show_default=True, callback=seconds_of,
              help="With move: how long running steps may go on; then they are interrupted.")  # fmt: skip
@db_option
@json_option
def cells(
    action: str, what: str | None, url: str | None, to: str | None, lost: tuple[str, ...], grace_s: float, db: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """List cells, find a run's, add one, move and check slots.

    list shows each cell, its slots and whether it can be reached. slot ID says to which slot and cell a run with this id
    belongs, or anything else that has this name. add NAME URL adds an empty PostgreSQL database, that has no slot yet; the
    first one begins the file and has all 1,024. move SLOTS --to NAME moves a slot, or several (7 or 512-1023), while runs go
    on. check finishes what a mover that died has left, and says what is wrong: its exit code is 1 then. settle
    SLOTS --to NAME ends a quarrel that check has found: that cell owns them alone, and the others' runs of them are deleted.
    It wants all cells of the set; one whose database is lost for good is taken out of the file and named with --lost.
    """
    store = db or _from_environment()
    if not store.startswith("cells:"):
        raise click.UsageError(
            f"{redacted(store)!r} names no cells: say which with --db cells:FILE, or in $HOLDFAST_URL"
        )
    if action == "slot":
        if what is None:
            raise click.UsageError("say of which run: holdfast cells slot ID")
        return asyncio.run(_slot(store, what, as_json=as_json))
    if action == "add":
        if what is None or url is None:
            raise click.UsageError("say which: holdfast cells add NAME postgresql://USER@HOST/DATABASE")
        return asyncio.run(_add(store, what, url))
    if action == "move":
        if what is None or to is None:
            raise click.UsageError("say which, and where to: holdfast cells move SLOTS --to NAME")
        return asyncio.run(_move(store, what, to, grace_s, as_json=as_json))
    if action == "settle":
        if what is None or to is None:
            raise click.UsageError("say which, and who is to have them: holdfast cells settle SLOTS --to NAME")
        return asyncio.run(_settle(store, what, to, lost, as_json=as_json))
    return asyncio.run(_list(store, as_json=as_json) if action == "list" else _check(store, as_json=as_json))


def _from_environment() -> str:
    return os.environ.get("HOLDFAST_URL") or DEFAULT_URL


async def _list(url: str, *, as_json: bool) -> int:
    from holdfast.backends.cells.inventory import cells_of, opened
    from holdfast.backends.cells.slots import spelled

    async with opened(url) as store:
        found = await cells_of(store)
    if as_json:
        print_json([_document(cell) for cell in found])
        return 0
    made = table("CELL", "SLOTS", "RUNS", "GOING", "WORKERS", "SIZE", "STATE", "DATABASE")
    for cell in found:
        state = (
            Text("down" if cell.url else "not in file", "red")
            if cell.down
            else Text(f"{len(cell.leaving)} leave" if cell.leaving else "up", "green")
        )
        numbers = (
            ["?"] * 4 if cell.down else [str(cell.runs), str(cell.unfinished), str(cell.workers), size(cell.bytes)]
        )
        slots = (
            f"{spelled(cell.slots) or 'none'} ({len(cell.slots)})"
            if len(spelled(cell.slots)) < 40
            else f"{len(cell.slots)} slots"
        )
        made.add_row(cell.name, slots, *numbers, state, cell.url)
    print_list(made, 0)
    for cell in found:
        if cell.down:
            say(f"Cell {cell.name} cannot be asked, nor its share of the runs: {cell.down}", "yellow")
    return 0


def _document(cell: CellInfo) -> dict[str, Any]:
    return dataclasses.asdict(cell)


async def _slot(url: str, id: str, *, as_json: bool) -> int:
    from holdfast.backends.cells.inventory import opened
    from holdfast.backends.cells.slots import slot_of

    slot = slot_of(id)
    async with opened(url) as store:
        cell = store.of_slot(slot)
    if as_json:
        print_json({"id": id, "slot": slot, "cell": cell.cell, "url": cell.url})
    else:
        answer(f"{id} belongs to slot {slot}, which is in cell {cell.cell}: {cell.url}")
    return 0


async def _add(url: str, name: str, database: str) -> int:
    from holdfast.backends.cells.inventory import add

    plan = await add(url, name, database)
    slots = len(plan.slots[name])
    if slots:
        answer(f"{plan.path} begins with cell {name}, which has all {slots:,} slots.")
    else:
        answer(f"Cell {name} is in {plan.path}, and has no slot yet. Give the new file to every process, then move some:",
               "", command("cells", "move", "SLOTS", "--to", name, db=url))  # fmt: skip
    return 0


async def _move(url: str, what: str, to: str, grace_s: float, *, as_json: bool) -> int:
    from holdfast.backends.cells.inventory import move
    from holdfast.backends.cells.slots import parsed

    slots = parsed(what)
    moved: list[Moved] = []
    many = len(slots) > 1

    def tell(slot: int, step: str) -> None:
        if not as_json and not many:
            say(f"Slot {slot} {step}: {_SAYS[step]}.", "dim")

    def done(each: Moved) -> None:
        moved.append(each)
        if not as_json and len(moved) % _TELL_EVERY == 0:
            say(f"{len(moved)} of {len(slots)} slots are moved.", "dim")

    try:
        await move(url, slots, to, grace_s=grace_s, tell=tell, done=done)
    finally:  # one may be refused when others are moved
        if not as_json:
            for origin in dict.fromkeys(each.origin for each in moved):
                _tell_moved([each for each in moved if each.origin == origin])
    if as_json:
        print_json([dataclasses.asdict(each) for each in moved])
    return 0


def _tell_moved(moved: list[Moved]) -> None:
    """Say what went from one cell to another, in one line."""
    from holdfast.backends.cells.slots import spelled

    runs, interrupted = sum(each.runs for each in moved), sum(each.interrupted for each in moved)
    what = f"Slot {moved[0].slot}" if len(moved) == 1 else f"Slots {spelled(each.slot for each in moved)}"
    ended = f", {interrupted} of them in the middle of a step" if interrupted else ""
    away = "away for" if len(moved) == 1 else "each away for at most"
    answer(
        f"{what}: {runs} run{'' if runs == 1 else 's'} from {moved[0].origin} to {moved[0].destination}{ended}; "
        f"{away} {max(each.away_s for each in moved):.2f} s."
    )


async def _check(url: str, *, as_json: bool) -> int:
    from holdfast.backends.cells.inventory import check, opened

    async with opened(url) as store:
        found = await check(store)
        many = len(store.made)
    if as_json:
        print_json(dataclasses.asdict(found))
    else:
        for each in found.mended:
            say(f"Mended: {each}.", "yellow")
        for each in found.wrong:
            answer(f"Wrong: {each}.", "red")
        if not found.wrong:
            answer(f"{many} cell{'' if many == 1 else 's'}, 1,024 slots: each has one owner, and nothing is under way.")
    return 1 if found.wrong else 0


async def _settle(url: str, what: str, to: str, lost: tuple[str, ...], *, as_json: bool) -> int:
    from holdfast.backends.cells.inventory import opened
    from holdfast.backends.cells.settlement import give_up, settle
    from holdfast.backends.cells.slots import parsed

    told = []
    async with opened(url, lost) as store:
        if lost:
            await give_up(store, lost)
        for slot in parsed(what):
            deleted = await settle(store, slot, to)
            told.append({"slot": slot, "owner": to, "deleted": deleted})
            if not as_json:
                others = "".join(f"; {runs} runs of it were deleted in cell {cell}" for cell, runs in deleted.items())
                answer(f"Slot {slot} is owned by cell {to} alone{others}.")
    if as_json:
        print_json(told)
    return 0
