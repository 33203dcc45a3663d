"""`holdfast diff`: two runs side by side."""

from __future__ import annotations

from typing import Final

import click
from rich.console import Console
from rich.table import Table

from holdfast.cli.options import db_option, json_option, run_ids, stored, subcommand
from holdfast.cli.stores import looked_at
from holdfast.cli.view.console import Glyphs, console, glyphs, print_json
from holdfast.cli.view.draw import clean
from holdfast.cli.view.screen import Text
from holdfast.rehearsal.difference import Difference, Made, Pair, Side
from holdfast.values.text import cut
from holdfast.words.durations import spoken
from holdfast.words.spent import count

_LONGEST: Final = 400
_MOST: Final = 40  # pairs that differ


@subcommand()
@click.argument("one", metavar="A", shell_complete=run_ids, callback=stored)
@click.argument("other", metavar="B", shell_complete=run_ids, callback=stored)
@click.option("--all", "whole", is_flag=True, help="Print the calls that do not differ, too.")
@db_option
@json_option
async def diff(one: str, other: str, whole: bool, db: str | None, as_json: bool) -> None:
    """Compare two runs: where they part, and what came of it.

    A call is compared with the call of the same key. Results, arguments, attempts, times and costs stand side by side.
    """
    async with looked_at(db) as hf:
        found = await hf.diff(one, other)
    if as_json:
        print_json(document(found))
    else:
        print_difference(console(), found, whole=whole)


def document(found: Difference) -> dict[str, object]:
    """A difference as JSON says it."""
    return {
        "same": found.same, "differs": found.differs, "parted": found.parted, "one": found.one, "other": found.other,
        "pairs": found.pairs,
    }  # fmt: skip


def print_difference(on: Console, found: Difference, *, whole: bool = False, rehearsed: bool = False) -> None:
    """Print two runs side by side, from where they part on. A rehearsal has the name of its run, and no time of its own."""
    signs = glyphs(on)
    made = _columns()
    for row in _heads(found, rehearsed=rehearsed):
        made.add_row(*row)
    on.print(made)
    on.print()
    on.print(_parting(found, signs))
    _print_pairs(on, found, signs, whole=whole, rehearsed=rehearsed)


def _columns() -> Table:
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(no_wrap=True, min_width=15)
    made.add_column(ratio=1, overflow="fold")
    made.add_column(ratio=1, overflow="fold")
    return made


def _heads(found: Difference, *, rehearsed: bool) -> list[tuple[Text, ...]]:
    one, other = found.one, found.other
    rows: list[tuple[Text, ...]] = [
        (Text(), Text(one.run, "bold"), Text("rehearsed" if rehearsed else other.run, "bold"))
    ]
    for name in ("agent", "arguments", "status", "result", "error", "calls", "time", "cost"):
        differs = name in found.differs or (name == "calls" and one.calls != other.calls)
        cells = [cut(clean(_says(side, name)), _LONGEST) for side in (one, other)]
        if not any(cells) or (name in ("agent", "arguments") and not differs) or (name == "time" and rehearsed):
            continue
        rows.append((Text(f"  {name}", "dim"), *(Text(cell, "yellow" if differs else "") for cell in cells)))
    return rows


def _says(side: Side, what: str) -> str:
    said = {
        "agent": side.agent, "arguments": side.input, "status": side.status, "result": side.result, "error": side.error,
        "calls": str(side.calls), "time": spoken(side.seconds), "cost": side.spent.cost,
    }  # fmt: skip
    return said[what]


def _parting(found: Difference, signs: Glyphs) -> Text:
    if found.parted is None:
        same = sum(pair.one is not None for pair in found.pairs)
        return Text(f"  {signs.done} ", "green").append(f"the same {count(same, 'call')}, with the same outcomes")
    before = found.pairs.index(found.parted)
    line = Text(f"  {signs.failed} ", "bold red").append("they part at ").append(clean(found.parted.key), "bold")
    after = f", after {count(before, 'call')} that {'is' if before == 1 else 'are'} the same"
    return line.append(after if before else ", the first call", "dim")


def _print_pairs(on: Console, found: Difference, signs: Glyphs, *, whole: bool, rehearsed: bool) -> None:
    shown = [pair for pair in found.pairs if whole or pair.parts]
    differ = "!" if signs.done == "+" else "≠"
    for pair in shown[:_MOST]:
        sign, style = "=", "dim"
        if pair.parts:
            sign, style = (
                (differ, "yellow") if pair.one and pair.other else ("<", "red") if pair.one else (">", "green")
            )
        on.print()
        head = Text(f"  {sign} ", style).append(clean(pair.key), "bold").append(f"  {', '.join(pair.differs)}", "dim")
        on.print(head, soft_wrap=True)
        made = _columns()
        for row in _rows(pair, whole=whole, rehearsed=rehearsed):
            made.add_row(*row)
        on.print(made)
    if len(shown) > _MOST:
        on.print(Text(f"  {signs.more} and {len(shown) - _MOST} more; --json has all", "dim"))


def _rows(pair: Pair, *, whole: bool, rehearsed: bool) -> list[tuple[Text, ...]]:
    """The parts of two calls that differ, or all of them; of a call that only one run made, what it was and its outcome."""
    alone = pair.one is None or pair.other is None
    rows = []
    for name in ("arguments", "state", "result", "error", "attempts", "cost", "took"):
        cells = [_cell(side, name) for side in (pair.one, pair.other)]
        wanted = whole or name in pair.differs or (alone and name in ("arguments", "result", "error", "cost"))
        wanted = wanted or (name == "took" and not alone and "result" in pair.differs)
        if any(cells) and wanted and not (name == "took" and rehearsed):
            style = "yellow" if name in pair.differs else ""
            rows.append((Text(f"      {name}", "dim"), *(Text(cut(clean(cell), _LONGEST), style) for cell in cells)))
    return rows


def _cell(made: Made | None, name: str) -> str:
    if made is None:
        return ""
    took = "" if made.seconds is None else spoken(made.seconds)
    said = {
        "arguments": made.input, "state": made.state, "result": made.result, "error": made.error,
        "attempts": str(made.attempts), "cost": made.spent.cost, "took": took,
    }  # fmt: skip
    return said[name]
