"""Commands for many runs: listed, counted, pruned; and one deleted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.measure import Measurement
from rich.segment import Segment, Segments
from rich.table import Column, Table

from holdfast.cli.options import (
    STATUSES,
    agent_option,
    db_option,
    json_option,
    label_option,
    past,
    run_argument,
    subcommand,
)  # fmt: skip
from holdfast.cli.stores import existing, held
from holdfast.cli.stuck import print_stuck
from holdfast.cli.view.advice import held_back, without_id
from holdfast.cli.view.console import UNCUT_WIDTH, answer, console, glyphs, print_json
from holdfast.cli.view.draw import STATUS_STYLES, clean, status_text
from holdfast.cli.view.screen import Text
from holdfast.client.client import Client
from holdfast.client.edge import Edge
from holdfast.client.info import RunInfo
from holdfast.values.text import cut
from holdfast.words.durations import spoken
from holdfast.words.model import TRANSITIONS
from holdfast.words.spent import count


def _table(*columns: str) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", collapse_padding=True)
    for name in columns:
        made.add_column(name, no_wrap=True, overflow="ellipsis", justify="right" if name == "steps" else "left")
    made.columns[0].min_width = 8
    return made


def _print_table(table: Table) -> None:
    on = console()
    on.print(table) if on.is_terminal else console(width=UNCUT_WIDTH).print(table)


def _age(at: datetime) -> str:
    return spoken(max((datetime.now(UTC) - at).total_seconds(), 0))


@subcommand()
@click.option("--status", multiple=True, type=click.Choice(STATUSES), help="Only runs in this state; repeatable.")
@agent_option("Only runs of this agent.")
@label_option("Only runs so labelled.")
@click.option(
    "--since", metavar="TIME", callback=past, help="Only runs started since then: 2h (ago), 2026-01-31T14:00."
)
@click.option("--until", metavar="TIME", callback=past, help="Only runs started until then.")
@click.option(
    "--search", metavar="TEXT", help="Only runs with this text in their id, agent, labels, arguments or error."
)
@click.option("--counts", is_flag=True, help="Only count them, by agent and state.")
@click.option("--stuck", is_flag=True, help="Only runs that do not go on by themselves, and why.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@db_option
@json_option
async def runs(counts: bool, stuck: bool, limit: int, db: str | None, as_json: bool, **fits: Any) -> None:
    """List runs, newest first, or count them.

    With --stuck: those that no live worker serves or has taken for a minute, that are paused, that end their process again
    and again, or whose worker is gone; the longest due first.
    """
    if stuck and (counts or any(fits[name] is not None for name in ("search", "since", "until"))):
        raise click.UsageError("--stuck takes --status, --agent, --label and --limit")
    async with existing(db) as hf:
        if stuck:
            await print_stuck(hf, db, fits["status"], fits["agent"], fits["labels"], limit, as_json=as_json)
        elif counts:
            await _print_counts(hf, _given(fits), as_json=as_json)
        else:
            await _print_list(hf, db, _given(fits), limit, as_json=as_json)


def _given(fits: dict[str, Any]) -> dict[str, Any]:
    """Keep what was given of a filter, as `hf.runs` takes it."""
    return {name: value for name, value in fits.items() if value not in (None, (), {})}


async def _print_list(hf: Client, url: str | None, fits: dict[str, Any], limit: int, *, as_json: bool) -> None:
    found, asleep = await hf.runs(**fits, limit=limit), await held(hf, url)
    if as_json:
        print_json({"runs": found, "held": asleep})
        return
    if asleep is not None:
        answer(f"Note: {asleep}", "yellow")
    if not found:
        answer(f"No runs{' that fit' if fits else ''} in {Edge(hf).url}.")
        return
    _print_runs(found)
    there = len(found) if len(found) < limit else _sum(await hf.count_runs(**fits))
    if there > limit:
        answer(f"The newest {limit} of {there:,} are shown; --limit shows more, --counts how many of which.", "dim")


def _print_runs(found: Sequence[RunInfo]) -> None:
    """Print one line for each run; on a narrow terminal, what a run waits for and says has a line of its own.

    So have ids that would take half of the line: they are copied into commands, and are never cut.
    """
    on, wide = console(), console(width=UNCUT_WIDTH)
    whole = _runs_table(found, apart=False)
    if not on.is_terminal or Measurement.get(wide, wide.options, whole).maximum <= on.width:
        _print_table(whole)
        return
    longest = max(len(info.id) for info in found), max(len(info.agent) for info in found)
    beside = longest[0] <= on.width // 2
    table = _runs_table(found, apart=True)
    id, agent, status = table.columns[:3]
    agent.min_width, status.min_width = min(longest[1], 16), 11
    if beside:
        id.min_width = longest[0]
    else:
        table.columns[0] = Column(" ", _cells=[" "] * len(found), width=1)
    head, *rows = on.render_lines(table, pad=False)
    on.print(Segments([*head, Segment.line()]), end="", soft_wrap=True)
    for info, row in zip(found, rows, strict=True):
        if not beside:
            on.print(Text(info.id, "bold", no_wrap=True), soft_wrap=True)
        on.print(Segments([*row, Segment.line()]), end="", soft_wrap=True)
        waits = Text(_waits(info) if info.waits_for else "", "dim")
        said = Text(", ").join(part for part in (waits, _said(info)) if part)
        if said:
            on.print(Text("  ") + said, no_wrap=True, overflow="ellipsis")


def _runs_table(found: Sequence[RunInfo], *, apart: bool) -> Table:
    """Make the table of runs, without what a run waits for and says if that stands apart."""
    costs = ["cost"] if any(info.spent.cost for info in found) else []
    table = _table("id", "agent", "status", "steps", *costs, "age", "labels", *([] if apart else [""]))
    table.columns[5 + len(costs)].no_wrap = False  # it is the first to be cut
    signs = glyphs(console())
    for info in found:
        status = status_text(info.status, signs)
        if info.waits_for and not apart:
            status.append(f", {_waits(info)}", "dim")
        marks = Text(" ".join(f"{key}={clean(value)}" for key, value in info.labels.items()), no_wrap=True)
        cost = [info.spent.cost] if costs else []
        said = [] if apart else [_said(info)]
        age = _age(info.created_at)
        table.add_row(Text(info.id, "bold"), info.agent, status, f"{info.steps:,}", *cost, age, marks, *said)
    return table


def _said(info: RunInfo) -> Text:
    """The run's error, why it is paused, or how far it is."""
    said = without_id(info.error or info.reason or (str(info.progress) if info.progress else ""), info.id)
    return Text(
        cut(clean(said), 80 if console().is_terminal else 300),
        "red" if info.error else "yellow" if info.reason else "dim",
    )


def _sum(counts: dict[str, dict[str, int]]) -> int:
    return sum(sum(each.values()) for each in counts.values())


async def _print_counts(hf: Client, fits: dict[str, Any], *, as_json: bool) -> None:
    """Print a row for each agent, a column for each state there is."""
    found = await hf.count_runs(**fits)
    if as_json:
        print_json({"counts": found, "total": _sum(found)})
        return
    if not found:
        answer(f"No runs that fit in {Edge(hf).url}.")
        return
    states = [status for status in TRANSITIONS if any(status in each for each in found.values())]
    table = _table("agent", *states, "in all")
    for column in table.columns[1:]:
        column.justify = "right"
    for agent, each in found.items():
        cells = [
            Text(f"{each.get(status, 0):,}", STATUS_STYLES[status] if each.get(status) else "dim") for status in states
        ]
        table.add_row(Text(agent, "bold"), *cells, f"{sum(each.values()):,}")
    if len(found) > 1:
        sums = [f"{sum(each.get(status, 0) for each in found.values()):,}" for status in states]
        table.add_row("", *sums, f"{_sum(found):,}")
    _print_table(table)


def _waits(info: RunInfo) -> str:
    if info.waits_for == "group":
        return held_back(info)
    if info.waits_for == "worker" and info.status == "running":
        return "its worker is gone"
    if info.waits_for == "worker" and info.version is None:
        return "no live worker"
    if info.waits_for == "worker":
        return f"waits for a worker with version {info.version} of {info.agent}"
    if info.waits_for in ("timer", "rate") and info.due_at is not None:
        left_s = (info.due_at - datetime.now(UTC)).total_seconds()
        if info.waits_for == "timer" and info.status == "ready" and left_s > 0:
            return f"begins in {spoken(left_s)}"
        return f"{info.waits_for} in {spoken(left_s)}" if left_s > 0 else f"{info.waits_for}, due"
    return str(info.waits_for)


# Deleting


@subcommand()
@click.option("--older-than", required=True, metavar="TIME", help="Finished longer ago than this: 30d, 12h.")
@click.option("--status", multiple=True, type=click.Choice(("completed", "failed", "cancelled", "moved")),
              help="Only runs that ended like this; repeatable. Default: completed and cancelled.")  # fmt: skip
@agent_option("Only runs of this agent.")
@label_option("Only runs so labelled.")
@click.option("--dry-run", is_flag=True, help="Delete nothing; say what would be deleted.")
@db_option
@json_option
async def prune(
    older_than: str, status: tuple[str, ...], agent: str | None, labels: dict[str, str], dry_run: bool, db: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Delete old finished runs with their children."""
    fits: dict[str, Any] = {"status": status or ("completed", "cancelled"), "agent": agent, "labels": labels or None}
    async with existing(db) as hf:
        number = more = await hf.prune(older_than, **fits, dry_run=dry_run)
        while more and not dry_run:  # a thousand at a time
            more = await hf.prune(older_than, **fits)
            number += more
    if as_json:
        print_json({"deleted": 0 if dry_run else number, "older_than": older_than, **fits}
                   | ({"would_delete": number} if dry_run else {}))  # fmt: skip
        return
    what = " or ".join(fits["status"]) + (f" {agent}" if agent else "")
    labelled = "".join(f" labelled {key}={value}" for key, value in labels.items())
    those = f"{count(number, f'{what} run')}{labelled} that ended more than {older_than} ago"
    answer(f"Would delete {those}, with those below. Nothing was deleted." if dry_run else f"Deleted {those}.")


@subcommand()
@run_argument
@db_option
@json_option
async def delete(run: str, db: str | None, as_json: bool) -> None:
    """Delete a finished run with its children."""
    async with existing(db) as hf:
        await Edge(hf).row(run)
        number = await hf.get(run).delete()
    if as_json:
        print_json({"run": run, "deleted": number})
    else:
        below = f" and {count(number - 1, 'child run')}" if number > 1 else ""
        answer(f"Deleted {run}{below}.")
