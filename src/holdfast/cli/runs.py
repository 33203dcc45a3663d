"""Commands that list: runs, open questions, and events as they come."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.measure import Measurement
from rich.segment import Segment, Segments
from rich.table import Table

from holdfast.cli.show import event_document, status_text
from holdfast.cli.signals import Stop, first
from holdfast.cli.view.console import (
    INTERRUPTED,
    answer,
    console,
    glyphs,
    held_back,
    print_json,
    reader_is_gone,
    without_id,
)
from holdfast.cli.view.draw import STATUS_STYLES, clean
from holdfast.cli.view.lines import is_quiet, line
from holdfast.cli.view.read import existing, held, latest_position, row_of
from holdfast.cli.view.screen import Text
from holdfast.client.client import Client
from holdfast.client.run import RunInfo
from holdfast.values.text import cut
from holdfast.words.durations import spoken
from holdfast.words.model import FINISHED, TRANSITIONS, Event

_LAST: Final = 20  # events shown before following all runs
_UNCUT_WIDTH: Final = 100_000


async def ids(url: str | None) -> list[str]:
    """Run ids, newest first, for completion."""
    async with existing(url) as hf:
        return [info.id for info in await hf.runs(limit=500)]


def _table(*columns: str) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", collapse_padding=True)
    for name in columns:
        made.add_column(name, no_wrap=True, overflow="ellipsis", justify="right" if name == "steps" else "left")
    made.columns[0].min_width = 8
    return made


def _print_table(table: Table) -> None:
    on = console()
    on.print(table) if on.is_terminal else console(width=_UNCUT_WIDTH).print(table)


def _age(at: datetime) -> str:
    return spoken(max((datetime.now(UTC) - at).total_seconds(), 0))


async def runs(url: str | None, fits: dict[str, Any], limit: int, *, as_json: bool) -> None:
    """The command; `fits` narrows as `hf.runs` does."""
    async with existing(url) as hf:
        found = await hf.runs(**fits, limit=limit)
        there = len(found) if len(found) < limit or as_json else _sum(await hf.count_runs(**fits))
        where, asleep = hf.store.url, await held(hf, url)
    if as_json:
        print_json({"runs": found, "held": asleep})
        return
    if asleep is not None:
        answer(f"Note: {asleep}", "yellow")
    if not found:
        answer(f"No runs{' that fit' if any(value is not None for value in fits.values()) else ''} in {where}.")
        return
    _print_runs(found)
    if there > limit:
        answer(f"The newest {limit} of {there:,} are shown; --limit shows more, --counts how many of which.", "dim")


def _print_runs(found: Sequence[RunInfo]) -> None:
    """One line for each; where a terminal is too narrow for it, what a run waits for and says has a line of its own."""
    on, wide = console(), console(width=_UNCUT_WIDTH)
    whole = _runs_table(found, apart=False)
    if not on.is_terminal or Measurement.get(wide, wide.options, whole).maximum <= on.width:
        _print_table(whole)
        return
    table = _runs_table(found, apart=True)
    longest = max(len(info.id) for info in found), max(len(info.agent) for info in found)
    id, agent, status = table.columns[:3]
    id.min_width, agent.min_width, status.min_width = min(longest[0], on.width // 2), min(longest[1], 16), 11
    head, *rows = on.render_lines(table, pad=False)
    on.print(Segments([*head, Segment.line()]), end="", soft_wrap=True)
    for info, row in zip(found, rows, strict=True):
        on.print(Segments([*row, Segment.line()]), end="", soft_wrap=True)
        waits = Text(_waits(info) if info.waits_for else "", "dim")
        said = Text(", ").join(part for part in (waits, _said(info)) if part)
        if said:
            on.print(Text("  ") + said, no_wrap=True, overflow="ellipsis")


def _runs_table(found: Sequence[RunInfo], *, apart: bool) -> Table:
    """Without what a run waits for and says, if that stands apart."""
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
    """Its error, why it is paused, or how far it is."""
    said = without_id(info.error or info.reason or (str(info.progress) if info.progress else ""), info.id)
    return Text(
        cut(clean(said), 80 if console().is_terminal else 300),
        "red" if info.error else "yellow" if info.reason else "dim",
    )


def _sum(counts: dict[str, dict[str, int]]) -> int:
    return sum(sum(each.values()) for each in counts.values())


async def counts(url: str | None, fits: dict[str, Any], *, as_json: bool) -> None:
    """`--counts`: a row for each agent, a column for each state there is."""
    async with existing(url) as hf:
        found = await hf.count_runs(**fits)
        where = hf.store.url
    if as_json:
        print_json({"counts": found, "total": _sum(found)})
        return
    if not found:
        answer(f"No runs that fit in {where}.")
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


# Tail


async def tail(url: str | None, run: str | None, after: int | None, *, follow: bool, as_json: bool) -> int:
    """The command; returns its exit code."""
    on = console()
    width = on.width if on.is_terminal else None
    async with existing(url) as hf, contextlib.AsyncExitStack() as stack:
        stop = stack.enter_context(Stop(lambda: None))
        async for event in _events(hf, run, after, stop, follow=follow):
            if as_json:
                print_json(event_document(event), line=True)
            elif not is_quiet(event):
                on.print(line(event, width=width, run=run is None), soft_wrap=True)
                on.file.flush()
        return INTERRUPTED if stop.asked.is_set() else 0


async def _events(hf: Client, run: str | None, after: int | None, stop: Stop, *, follow: bool) -> AsyncIterator[Event]:
    """Events of one run, or of all; those that are there, then those that come."""
    if run is not None:
        await row_of(hf, run)
    elif after is None:
        after = await latest_position(hf, back=_LAST) if follow else 0
    seen = after or 0
    heard = asyncio.Event()
    hf.store.on_change(lambda _: heard.set())
    while True:
        heard.clear()
        row = await row_of(hf, run) if run is not None else None
        page = await hf.store.feed(seen, None) if run is None else await hf.store.journal(run, seen, 500)
        for event in page:
            seen = event.position if run is None else event.seq + 1
            yield event
        if page:
            if stop.asked.is_set():
                return
            continue
        if not follow or (row is not None and row.status in FINISHED) or reader_is_gone():
            return
        if await first(stop, heard, 1.0):
            return
