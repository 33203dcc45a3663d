"""`holdfast show`: one run, all of it; as a picture, as JSON, as raw events, or as an SVG file for documents."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any, Final

import click
from rich.terminal_theme import TerminalTheme

from holdfast.cli.audit import print_deeds
from holdfast.cli.options import db_option, json_option, run_argument, subcommand
from holdfast.cli.stores import BundleFile, held, looked_into
from holdfast.cli.view.advice import GOES_ON, after_pause, code_of, command, held_back, how_to_go_on
from holdfast.cli.view.choices import to_decide
from holdfast.cli.view.console import Glyphs, answer, console, glyphs, print_json, shown_value
from holdfast.cli.view.draw import (
    MARGIN,
    Scene,
    clean,
    lines,
    print_lines,
    progress_line,
    rows,
    status_text,
    wrapped,
)
from holdfast.cli.view.screen import Screen, Text
from holdfast.cli.view.tree import History
from holdfast.client.bundles import Bundle, Judgement, is_bundle
from holdfast.client.client import Client
from holdfast.client.documents import plain
from holdfast.client.edge import Edge, decisions_in, describe
from holdfast.client.failure import Failure, failure_of
from holdfast.client.family import Account, account, input_preview
from holdfast.client.streams import StreamInfo
from holdfast.errors import BadArguments
from holdfast.values.tagged import bare
from holdfast.values.text import size
from holdfast.words.durations import day_and_time, moment, spoken, when
from holdfast.words.harmless import harmless
from holdfast.words.model import FINISHED, Event, RunRow
from holdfast.words.spent import count, dollars

_RESULT_LINES: Final = 24
_PAUSED: Final = "Import it; it stays paused there until somebody resumes it, unless it was paused to be moved:"
_DEEDS: Final = 1_000  # of --audit, the newest
_UNBROKEN: Final = 1_000_000  # the width of a pipe, for sentences: a search looks for whole ones
_BODIES: Final = "a body is recorded when it ends, and also when it begins if its step has in_doubt="
_CUT_OFF: Final = (
    "a body that was cut off after that runs again with the same idempotency key, or as the in_doubt= of its step says"
)
SVG_WIDTH: Final = 104
_CALM: Final = TerminalTheme(
    (250, 250, 248), (56, 58, 66),
    [(56, 58, 66), (200, 60, 50), (60, 130, 60), (160, 110, 10), (50, 100, 200), (150, 40, 150), (10, 125, 150),
     (120, 122, 130)],
    [(120, 122, 130), (200, 60, 50), (60, 130, 60), (160, 110, 10), (50, 100, 200), (150, 40, 150), (10, 125, 150),
     (160, 162, 170)],
)  # fmt: skip


@subcommand()
@run_argument
@click.option("--events", is_flag=True, help="Print the raw events.")
@click.option("--audit", is_flag=True, help="Print who did what to the run.")
@click.option("--failed", is_flag=True, help="Only what failed, and what it stands in.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the last N of each list.")
@click.option("--svg", metavar="FILE", help="Write the picture to an SVG file.")
@db_option
@json_option
async def show(
    run: str, events: bool, audit: bool, failed: bool, last: int | None, svg: str | None, db: str | None, as_json: bool
) -> None:
    """Show a run as a tree. ID may be the FILE of a bundle.

    Its steps, children, waits and interruptions, and what it needs to go on.

    Of more than 30 calls of one name the first and the last ten are shown.
    """
    bundle = describe(run) if is_bundle(run) else None
    decided = decisions_in(run) if bundle is not None else []
    if audit and bundle is not None:
        raise BadArguments(f"{run!r} is a bundle, and has no audit: that stays in the store where things were done")
    if audit:
        await print_deeds(db, run, limit=_DEEDS, as_json=as_json)
        return
    async with looked_into(run, db) as hf:
        if bundle is not None:
            db, run = BundleFile(run, is_copy=bundle.kind == "copy"), bundle.run
        found = await account(hf, run)
        if as_json:
            told = {"bundle": bundle, "decisions": decided}
            more = {"held": await held(hf, db)} if bundle is None else told
            print_json(await document(hf, found) | more)
        elif events:
            for event in found.events:
                print_event(event)
        elif svg is not None:
            drawing = await drawn_svg(hf, found, db)
            Path(svg).write_text(drawing, "utf-8")  # noqa: ASYNC240 - nothing else runs
            answer(f"Wrote {svg}")
        else:
            on = console()
            narrowed = {"failed_only": failed, "last_only": last}
            if bundle is not None:
                print_lines(on, [Text(), *bundle_lines(bundle), *decision_lines(decided)])
            print_lines(on, await drawn(hf, found, on.width, glyphs(on), db, bar=on.is_terminal, **narrowed))


def bundle_lines(bundle: Bundle) -> list[Text]:
    """Tell in a few lines what a bundle is."""
    size_of = f"{size(bundle.size_bytes)}, made {day_and_time(round(bundle.made_at.timestamp() * 1000))}"
    told = [Text(f"{MARGIN}{bundle.kind} of run {clean(bundle.run)}", "bold")]
    told.append(Text(f"{MARGIN}{size_of}, signed by {clean(bundle.signed_by)}, bundle {bundle.id}", "dim"))
    if bundle.destination is not None:
        told.append(Text(f"{MARGIN}from store {bundle.source} to store {bundle.destination}", "dim"))
    if not bundle.released:
        told.append(
            Text(f"{MARGIN}its source still has the run: the export was interrupted; export it again", "bold yellow")
        )
    return told


def decision_lines(decided: list[Judgement]) -> list[Text]:
    """Tell in a line what was decided in a bundle, and in another whether it would count."""
    made = []
    for each in decided:
        what = "" if each.question is None else f", {each.decision} {each.question}"
        what += "" if each.at is None else f" on {day_and_time(round(each.at.timestamp() * 1000))}"
        what += f": {clean(each.note)}" if each.note else ""
        made.append(Text(f"{MARGIN}decision {each.place} by {clean(each.by)}{what}"))
        counts = (
            "it would count"
            if each.why is None
            else f"with the keys that are here it would not count: {clean(each.why)}"
        )
        made.append(Text(f"{MARGIN * 2}{counts}", "dim" if each.why is None else "yellow"))
    return made


def print_event(event: Event) -> None:
    """Print one raw event as it is stored."""
    on = console()
    dropped = "" if event.dropped is None else f"  dropped by {event.dropped}"
    head = Text(f"{event.seq:>5}  {day_and_time(event.at)}  ", "dim").append(event.kind, "bold")
    head.append(f"  {clean(event.key or '')}", "cyan").append(f"  epoch {event.epoch}{dropped}", "dim")
    on.print(head, soft_wrap=True)
    for name, value in (("data", json.dumps(event.data)), ("value", event.value), ("blob", event.blob)):
        if value and value != "{}":
            on.print(Text(f"       {name:<6}{clean(value)}"), soft_wrap=True)


# The picture


async def drawn(
    hf: Client, found: Account, width: int, signs: Glyphs, url: str | None, *, bar: bool = True, **narrowed: Any
) -> list[Text]:
    """Draw header, tree and end of a run as lines; with a bar for its progress, or in words alone.

    `narrowed` says what of long lists is shown: `failed_only`, `last_only`.
    """
    members = found.members()
    rows_of = {each.row.id: each.row for each in members}
    histories = {each.row.id: _history(each, rows_of) for each in members}
    failure = await failure_of(hf, found.row) if found.row.status == "failed" else None
    scene = Scene(
        signs,
        width,
        histories,
        {run: row.status for run, row in rows_of.items()},
        untold=frozenset() if failure is None else failure.steps,
        forsaken=frozenset(each.row.id for each in members if each.info.worker_gone),
        **narrowed,
    )
    history = histories[found.row.id]
    tree = lines(rows(scene, found.row.id, history), width, signs)
    made = [Text(), *_header(found, history, width, signs, bar=bar), Text()]
    if tree:
        made += [*tree, Text()]
    if streams := await hf.get(found.row.id).streams():
        made += [Text(f"{MARGIN}{_stream_line(each)}", "dim") for each in streams] + [Text()]
    return made + await _ending(hf, found, failure, width if bar else _UNBROKEN, url)


def _history(found: Account, rows: dict[str, RunRow]) -> History:
    made = History(found.told)
    made.add_untaken(found.untaken)
    made.show_children(rows)
    made.show_gone(found.row)
    return made


def _stream_line(stream: StreamInfo) -> str:
    """Write a stream in a line."""
    state = "open" if not stream.ended else f"ended, {stream.reason}" if stream.reason else "ended"
    again = f", attempt {stream.attempt}" if stream.attempt > 1 else ""
    return f"stream {stream.name}: {size(stream.size_bytes)}, {state}{again}"


def _header(found: Account, history: History, width: int, signs: Glyphs, *, bar: bool) -> list[Text]:
    row = found.row
    status = status_text(row.status, signs)
    name = Text(MARGIN).append(row.id, "bold")
    name.append(" " * max(width - name.cell_len - status.cell_len - len(MARGIN), 2)).append_text(status)
    call = (
        Text(MARGIN, no_wrap=True, overflow="ellipsis")
        .append(row.agent)
        .append(f"({clean(input_preview(row))})", "dim")
    )
    call.truncate(width - len(MARGIN), overflow="ellipsis")
    facts = [day_and_time(row.created_at)]
    if row.finished_at is not None:
        facts.append(f"took {spoken((row.finished_at - (row.started_at or row.created_at)) / 1000)}")
    facts.append(_steps(row.steps, history.steps_failed))
    if found.info.spent.cost:
        facts.append(found.info.spent.cost)
    if found.info.budget and found.info.budget.usd:
        facts.append(f"budget {dollars(found.info.budget.usd)}")
    if below := len(found.members()) - 1:
        facts.append(count(below, "child run"))
    if history.interruptions:
        facts.append(f"interrupted {_times(history.interruptions)}")
    if row.version:
        facts.append(f"version {row.version}")
    facts += [f"{key}={clean(value)}" for key, value in json.loads(row.labels).items()]
    if found.started_by and any(each.not_by for each in found.questions):
        facts.append(f"started by {clean(found.started_by)}")
    if row.parent_id:
        facts.append(f"child of {row.parent_id}")
    bars = []
    for said in (history.progress, history.plan):
        if said is not None and bar and said.total and row.status not in FINISHED:
            bars.append(progress_line(said, signs))
        elif said is not None:
            facts.append(clean(str(said)))
    told = [name, call, Text(MARGIN + f" {signs.small} ".join(facts), "dim")]
    for line in bars:
        line.truncate(width - len(MARGIN), overflow="ellipsis")
    return [*told, *bars]


def _steps(done: int, failed: int) -> str:
    """Count the steps that completed, as lists of runs do, and the steps that failed."""
    return f"{count(done, 'step')} done, {failed:,} failed" if failed else count(done, "step")


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


async def _ending(hf: Client, found: Account, failure: Failure | None, width: int, url: str | None) -> list[Text]:
    """Tell how the run ended, or what it needs to go on."""
    row = found.row
    if row.status == "completed":
        result = await hf.get(row.id).result()
        block = _block("result", "green", shown_value(result), width, _RESULT_LINES)
        return [] if result is None else [*block, Text()]
    if failure is not None:
        made = [Text(f"{MARGIN}{line}", "dim") for line in failure.path]
        made += wrapped(failure.error, width, "bold red")
        then = (failure.advice, command("retry", row.id, *failure.again, db=url))
        return [*made, *_advice(*_in_a_store(url, "Import it, and retry it there:", then)), Text()]
    if row.status == "paused":
        made = _block("paused", "bold yellow", row.reason or "no reason was given", width, _RESULT_LINES)
        return [*made, *_advice(*_in_a_store(url, _PAUSED, after_pause(row, url))), Text()]
    if row.status in ("cancelled", "moved"):
        return [*wrapped(clean(row.reason or row.status), width, "dim"), Text()]
    return await _waiting(hf, found, width, url)


async def _waiting(hf: Client, found: Account, width: int, url: str | None) -> list[Text]:
    edge, info, members = Edge(hf), found.info, found.members()
    made: list[Text] = []
    asleep = await held(hf, url)
    several = sum(len(each.questions) for each in members) > 1
    for each in members if not edge.is_backup else ():
        for question in each.questions:
            if several or question.kind not in ("approve", "ask"):  # a single one stands in the tree, word for word
                made += _block(f"asks a person ({question.id})", "bold yellow", question.question, width, 12)
            made += to_decide(question, url, MARGIN)
        if each.row.status == "paused":
            made += _block(f"run {each.row.id} is paused", "bold yellow", each.row.reason or "", width, 8)
            if not isinstance(url, BundleFile):
                made += _advice(*after_pause(each.row, url))
    if asleep is not None:
        made.append(Text(f"{MARGIN}{asleep.what}", "bold yellow"))
        made += _advice(asleep.when, asleep.command)
    elif isinstance(url, BundleFile):
        made += _advice("Go on with it in another store:", command("import", str(url)))
    elif lacking := [each for each in members if each.info.waits_for in ("worker", "group")]:
        made += _lacks_worker(found, lacking[0], width, url)
        if len(lacking) > 1:
            made.append(Text(f"{MARGIN}so do {count(len(lacking) - 1, 'run')} more", "yellow"))
    elif info.waits_for and not made and info.due_at is not None and info.due_at <= moment(edge.now()):
        made.append(Text(f"{MARGIN}its wait is over: a live worker that serves {code_of(info)} takes it", "cyan"))
    elif info.waits_for and not made:
        at = "" if info.due_at is None else when(round(info.due_at.timestamp() * 1000))
        waits = f"waits for a {info.waits_for}" + (f", next at {at}" if at else "")
        if info.status == "ready" and info.waits_for == "timer":  # it was started to begin later
            waits = f"begins at {at}"
        made.append(Text(f"{MARGIN}{waits}", "yellow"))
    elif info.status == "running" and not made:
        who = "a worker" if info.worker is None else f"worker {info.worker}"  # a cluster does not say which
        made.append(Text(f"{MARGIN}{who} is on it", "cyan"))
        made += wrapped(f"{_last_word(found)}; {_BODIES}", width, "dim")
    return [*made, Text()] if made else []


def _lacks_worker(found: Account, each: Account, width: int, url: str | None) -> list[Text]:
    """Tell which worker a member of the family waits for; the command is that of the run above all, if it is here."""
    info = each.info
    whose = "" if each is found else f"run {info.id}: "
    if info.waits_for == "group":
        return [Text(f"{MARGIN}{whose}{held_back(info)}; {GOES_ON}", "yellow")]
    if info.status == "running":
        gone = f"{whose}its worker is gone; one that serves {code_of(info)} goes on with it"
        made = [Text(f"{MARGIN}{gone}", "bold yellow"), *wrapped(f"{_last_word(each)}; {_CUT_OFF}", width, "yellow")]
    else:
        made = [Text(f"{MARGIN}{whose}due, but no live worker serves {code_of(info)}", "bold yellow")]
    return made + _advice(*how_to_go_on(info if found.row.parent_id else found.row, url))


def _last_word(found: Account) -> str:
    """Say when the last event was recorded: of anything later nothing is known here."""
    return f"nothing is recorded since {when(found.events[-1].at)}" if found.events else "nothing is recorded yet"


def _block(title: str, style: str, body: str, width: int, limit: int) -> list[Text]:
    made = [Text(f"{MARGIN}{title}", style)]
    split = wrapped(body, width - len(MARGIN), margin=MARGIN * 2)
    made += split[:limit]
    if len(split) > limit > 0:
        made.append(Text(f"{MARGIN}  {len(split) - limit} more lines; --json shows all", "dim"))
    return made


def _in_a_store(url: str | None, instead: str, advised: tuple[str, str]) -> tuple[str, str]:
    """Advise what can be done with a run; of one in a bundle, to import it first."""
    return (instead, command("import", str(url))) if isinstance(url, BundleFile) else advised


def _advice(text: str, line: str) -> list[Text]:
    return [Text(f"{MARGIN}{text}  ", "dim", no_wrap=True).append(line, "bold")]


# Other forms


async def drawn_svg(hf: Client, found: Account, url: str | None) -> str:
    """Draw the picture as a self-contained SVG: no font is fetched."""
    on = Screen(record=True, width=SVG_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    made = await drawn(hf, found, SVG_WIDTH, Glyphs(), url)
    for line in made[1:-1]:
        on.print(line, soft_wrap=True)
    text = on.export_svg(title=harmless(f"holdfast show {found.row.id}"), theme=_CALM, font_aspect_ratio=0.6)
    text = re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL).replace("arial", "sans-serif")
    return text.replace("Fira Code, monospace", "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace")


async def document(hf: Client, found: Account) -> dict[str, Any]:
    """Write a run and its children as data."""
    row, run = found.row, hf.get(found.row.id)
    if (shared := found.shared) is not None:
        info, given, result, streams = found.info, shared.input, shared.result, []
    else:
        result = await run.result() if row.status == "completed" else None
        info, given, streams = await run.info(), await run.arguments(), await run.streams()
    return {
        "run": {**plain(info), "input": given, "result": result,
                "failure": json.loads(row.error) if row.error else None, "started_by": found.started_by},
        "events": [event_document(event) for event in found.events],
        "streams": [dataclasses.asdict(each) for each in streams],
        "questions": found.questions,
        "untaken": [event_document(event) for event in found.untaken],
        "children": [await document(hf, child) for child in found.children],
    }  # fmt: skip


def event_document(event: Event) -> dict[str, Any]:
    """Write an event as data; its value is what was stored."""
    value = None if event.value is None else json.loads(bare(event.value))
    return {"position": event.position, "run": event.run, "seq": event.seq, "kind": event.kind, "key": event.key,
            "at": moment(event.at), "data": event.data, "value": value, "blob": event.blob, "epoch": event.epoch,
            "dropped": event.dropped}  # fmt: skip
