"""Commands that wind runs back: fork one from an earlier point, and look at the tree of forks."""

from __future__ import annotations

from typing import Any, Final

import click

from holdfast.cli import prompts
from holdfast.cli.options import db_option, json_option, run_argument, subcommand, value_of
from holdfast.cli.stores import existing
from holdfast.cli.view.advice import code_of, command
from holdfast.cli.view.console import answer as tell
from holdfast.cli.view.console import console, glyphs, print_json, say
from holdfast.cli.view.draw import clean, status_text
from holdfast.cli.view.screen import Text
from holdfast.client.edge import Edge
from holdfast.client.forks import EFFECTS, ForkInfo
from holdfast.errors import BadArguments
from holdfast.values.text import cut

_REPLACED: Final = 80  # characters of what was replaced
POINT: Final = "An event by its number, a call by its key or step, or 'checkpoint'."


def point_of(text: str | None) -> int | str | None:
    """Read a point of a history as it was typed."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 18 else text


@subcommand()
@run_argument
@click.option(
    "--at", metavar="POINT", help=f"The first that is not shared. {POINT} Default: the end, or before the failure."
)
@click.option("--replace", "replaced", metavar="KEY=JSON", multiple=True,
              help="What a call gets; also arguments={...} and message:EVENT=...")  # fmt: skip
@click.option("--effects", type=click.Choice(EFFECTS), default="ask", show_default=True,
              help="For steps that were done behind the point: ask a person, do them anew, or fail them.")  # fmt: skip
@click.option("--id", "fork_id", metavar="ID", help="The id of the fork. Default: a new one.")
@click.option("--by", metavar="NAME", help="The person who acts. Default: the user of this computer.")
@db_option
@json_option
async def fork(
    run: str, at: str | None, replaced: tuple[str, ...], effects: Any, fork_id: str | None, by: str | None, db: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Make a run that goes on from an earlier point of another.

    It shares what was recorded up to there, without doing it again. The other run is not touched.
    """
    values = dict(_replacement(text) for text in replaced)
    async with existing(db) as hf:
        await Edge(hf).row(run)
        made = await hf.get(run).fork(
            at=point_of(at), replace=values or None, effects=effects, id=fork_id, by=prompts.actor(by)
        )
        tree = {each.id: each for each in await made.forks()}
        info = await made.info()
    if as_json:
        print_json({"fork": tree[made.id], "created": made.created, "run": info})
        return
    tell(f"{made.id} goes on from before event {tree[made.id].at} of {run}.", "", command("show", made.id, db=db))
    if info.waits_for == "worker":
        say(f"No live worker serves {code_of(info)}. Start one:", "yellow", command("worker", "FILE.py", db=db))


def _replacement(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise BadArguments(f"--replace {text[:60]!r} is not of the form KEY=JSON, as in --replace 'fetch#0=\"a text\"'")
    return key, value_of(value)


@subcommand()
@run_argument
@db_option
@json_option
async def forks(run: str, db: str | None, as_json: bool) -> None:
    """Draw the tree of forks that a run is in."""
    async with existing(db) as hf:
        await Edge(hf).row(run)
        tree = await hf.get(run).forks()
    if as_json:
        print_json({"forks": tree})
        return
    on = console()
    for line in _drawn(tree, run, glyphs(on)):
        on.print(line)


def _drawn(tree: list[ForkInfo], chosen: str, signs: Any) -> list[Text]:
    """Draw one line for each run: forks below the one they were made from, with where they part."""
    lines, last = [], {each.of: each.id for each in tree}
    guides: dict[str | None, str] = {None: ""}
    for each in tree:
        line, margin = Text(), guides[each.of]
        if each.of is not None:
            is_last = last[each.of] == each.id
            line.append(margin + (signs.elbow if is_last else signs.tee), "dim")
            guides[each.id] = margin + ("   " if is_last else signs.bar)
        else:
            guides[each.id] = ""
        line.append(each.id, "bold" if each.id == chosen else "")
        if each.at is not None:
            line.append(f"  before event {each.at}", "dim")
        if each.replaced:
            told = ", ".join(f"{key} = {value}" for key, value in each.replaced.items())
            line.append(f"  with {cut(clean(told), _REPLACED)}", "cyan")
        gone = (
            "deleted" if each.imported_from is None else f"in store {each.imported_from}, from which this was imported"
        )
        line.append("  ").append_text(status_text(each.status, signs) if each.agent else Text(gone, "dim"))
        lines.append(line)
    return lines
