"""`holdfast steps`, `snapshot` and `state`: a run from inside, call by call, at a glance, and by what it stored."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from typing import Any, Final

import click
from rich.cells import cell_len

from holdfast.cli.agents import load_apps
from holdfast.cli.options import db_option, json_option, run_argument, run_ids, stored, subcommand
from holdfast.cli.stores import existing, looked_into, run_in
from holdfast.cli.view.advice import command
from holdfast.cli.view.console import Glyphs, answer, block, console, glyphs, print_json, say, shown_value
from holdfast.cli.view.draw import MARGIN, clean, fit, print_lines, progress_line, status_text, wrapped
from holdfast.cli.view.screen import Text
from holdfast.client.client import Client
from holdfast.client.documents import plain
from holdfast.client.history import Pending, Snapshot, StepInfo
from holdfast.values.text import cut, size
from holdfast.words.durations import spoken, when
from holdfast.words.spent import count

_SIGNS: Final = {"completed": ("done", "green"), "failed": ("failed", "bold red"), "running": ("running", "bold cyan"),
                 "waiting": ("waiting", "yellow"), "cancelled": ("small", "dim")}  # fmt: skip
_VALUE_LINES: Final = 40
_LABEL: Final = 12  # cells of the words at the left of a snapshot
_NESTED: Final = 3  # levels below a run that are drawn; --json has all
_PLAN: Final = 12


# Steps


@subcommand()
@run_argument
@click.argument("step", required=False, metavar="[STEP]")
@click.option("--after", type=click.IntRange(0), metavar="N", help="Only calls after number N: the next page.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, metavar="N", help="At most N calls.")
@click.option("--dropped", is_flag=True, help="Also list calls that a retry took out of the history.")
@db_option
@json_option
async def steps(
    run: str, step: str | None, after: int | None, limit: int, dropped: bool, db: str | None, as_json: bool
) -> None:
    """List the calls of a run, or show one whole. ID may be the FILE of a bundle.

    STEP is the number, the key or the name of a call. Then its arguments and its result are printed too, as far as they are kept.
    """
    async with looked_into(run, db) as hf:
        found = hf.get(run_in(run))
        if step is not None:
            one = await found.step(int(step) if step.isascii() and step.isdigit() else step)
            whole = await step_document(one)
            if as_json:
                print_json({"step": whole})
            else:
                _print_step(one, whole)
            return
        page = [each async for each in found.steps(after=-1 if after is None else after, limit=limit, dropped=dropped)]
        following = page[-1].seq if len(page) == limit else None
        if as_json:
            print_json({"steps": page, "next": following})
        elif page:
            _print_steps(page)
        else:
            answer(f"Run {run} has made no calls" + (f" after number {after}." if after is not None else " yet."))
        if following is not None and not as_json:
            say("There may be more:", "dim", command("steps", run, "--after", str(following), db=db))


async def step_document(step: StepInfo) -> dict[str, Any]:
    """Write a call as data, with its values."""
    made: dict[str, Any] = plain(step)
    return made | {"arguments": await step.arguments(), "result": await step.result()}


def _print_steps(page: Iterable[StepInfo]) -> None:
    on = console()
    signs, worker = glyphs(on), None
    for step in page:
        if step.worker is not None and step.worker != worker:
            worker = step.worker
            on.print(Text(f"{MARGIN}{signs.rule * 2} worker {clean(worker)}", "dim"), soft_wrap=True)
        on.print(_step_line(step, on.width, signs), soft_wrap=True)


def _step_line(step: StepInfo, width: int, signs: Glyphs) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis").append(f"{MARGIN}{step.seq:>5}  ", "dim")
    right = "  ".join(filter(None, (step.spent.cost, _took(step))))
    sign, style = _SIGNS[step.status]
    name = f"stream {step.name}" if step.kind == "stream" else step.key or step.name.lstrip(":")
    text = Text(f"{getattr(signs, sign)} ", style).append(clean(name), "bold")
    behind = Text()
    if step.attempts > 1:
        behind.append(f"  {count(step.attempts, 'attempt')}", "yellow")
    if step.status in ("running", "waiting", "cancelled"):
        behind.append(f"  {step.status}", style)
    if step.error is not None:
        behind.append(f"  {clean(step.error)}", "red")
    if step.dropped is not None:
        behind.append(f"  taken out by event {step.dropped}", "dim")
    room = max(width - cell_len(line.plain) - len(MARGIN) - (cell_len(right) + 2 if right else 0), 12)
    if step.input and step.kind in ("step", "child", "question"):
        left = room - text.cell_len - 2 - min(behind.cell_len, room // 2)  # arguments give way to how it went
        text.append(f"({cut(clean(step.input), max(left, 8))})", "dim")
    text.append_text(behind)
    fit(text, room, signs)
    line.append_text(text)
    return line.append(" " * (room - text.cell_len + 2)).append(right, "dim") if right else line


def _took(step: StepInfo) -> str:
    if step.ended_at is None or step.kind not in ("step", "child", "timer", "question", "conversation"):
        return ""
    return spoken(max((step.ended_at - step.began_at).total_seconds(), 0))


def _print_step(step: StepInfo, whole: dict[str, Any]) -> None:
    on = console()
    signs = glyphs(on)
    on.print(_step_line(step, on.width, signs), soft_wrap=True)
    facts = [f"key {clean(step.key)}", *([f"worker {clean(step.worker)}"] if step.worker else []),
             *([f"run {step.child}"] if step.child else [])]  # fmt: skip
    on.print(Text(f"{MARGIN * 2}{f' {signs.small} '.join(facts)}", "dim"), soft_wrap=True)
    for number, failure in enumerate(step.failures, 1):
        on.print(Text(f"{MARGIN * 2}attempt {number}: {clean(failure)}", "red"), soft_wrap=True)
    if step.error is not None:
        block(on, step.error, "bold red", MARGIN * 2)
    if not step.kept and whole["arguments"] is None:
        how = 'only their digest is kept; @step(inputs="full") keeps them whole' if step.kind == "step" else "none"
        on.print(Text(f"{MARGIN}arguments  ", "cyan").append(how, "dim"), soft_wrap=True)
    else:
        _print_value("arguments", whole["arguments"])
    if step.status == "completed":
        _print_value("result", whole["result"])


def _print_value(title: str, value: Any) -> None:
    on = console()
    lines = shown_value(value).split("\n")
    if len(lines) == 1 and cell_len(lines[0]) < on.width - 16:
        on.print(Text(f"{MARGIN}{title}  ", "cyan").append(lines[0]), soft_wrap=True)
        return
    on.print(Text(f"{MARGIN}{title}", "cyan"), soft_wrap=True)
    block(on, "\n".join(lines[:_VALUE_LINES]), "", MARGIN * 2)
    if len(lines) > _VALUE_LINES:
        on.print(Text(f"{MARGIN * 2}{len(lines) - _VALUE_LINES:,} more lines; --json shows all", "dim"))


# Snapshot


@subcommand()
@run_argument
@db_option
@json_option
async def snapshot(run: str, db: str | None, as_json: bool) -> None:
    """Show what a run has come to. ID may be the FILE of a bundle.

    Its goal, its plan, what it waits for, its messages, what it spent, the state it stored, and the runs below it.
    """
    async with looked_into(run, db) as hf:
        found = await hf.get(run_in(run)).snapshot()
        if as_json:
            print_json({"snapshot": await snapshot_document(hf, found)})
            return
        on = console()
        print_lines(on, [Text(), *_snapshot(found, on.width, glyphs(on), bar=on.is_terminal, db=db), Text()])


async def snapshot_document(hf: Client, found: Snapshot) -> dict[str, Any]:
    """Write a snapshot as data, with the arguments and the state of the run itself."""
    made: dict[str, Any] = plain(found)
    state = None if found.state is None else plain(found.state) | {"value": await found.state.value()}
    messages = [plain(each) | {"value": await each.value()} for each in found.messages]
    return made | {"arguments": await hf.get(found.run.id).arguments(), "state": state, "messages": messages}


def _snapshot(found: Snapshot, width: int, signs: Glyphs, *, bar: bool, db: str | None) -> list[Text]:
    info = found.run
    status = status_text(info.status, signs)
    name = Text(MARGIN).append(info.id, "bold")
    name.append(" " * max(width - name.cell_len - status.cell_len - len(MARGIN), 2)).append_text(status)
    goal = Text(MARGIN, no_wrap=True, overflow="ellipsis").append(clean(found.goal), "dim")
    goal.truncate(width - len(MARGIN), overflow="ellipsis")
    made = [name, goal]
    if info.progress is not None and info.progress.total and bar:
        line = progress_line(info.progress, signs)
        line.truncate(width - len(MARGIN), overflow="ellipsis")
        made.append(line)
    elif info.progress is not None:
        made.append(Text(f"{MARGIN}{clean(str(info.progress))}", "dim"))
    return [*made, Text(), *_inside(found, width, signs, MARGIN, db, 0)]


def _inside(found: Snapshot, width: int, signs: Glyphs, margin: str, db: str | None, depth: int) -> list[Text]:
    """Write what there is to say of a run below its name: a word at the left, its lines beside it."""
    info, made = found.run, list[Text]()

    def say_of(word: str, lines: Iterable[Text]) -> None:
        for place, line in enumerate(lines):
            begun = Text(margin, no_wrap=True).append((word if not place else "").ljust(_LABEL), "cyan")
            fit(line, max(width - cell_len(begun.plain) - len(MARGIN), 20), signs)
            made.append(begun.append_text(line))

    if info.error is not None:
        say_of("failed", wrapped(clean(info.error), width - cell_len(margin) - _LABEL, "red", "")[:4])
    say_of("waits for", [_pending(each, signs) for each in found.pending])
    say_of("plan", _plan(found, signs))
    say_of("messages", _messages(found))
    say_of("has", [Text(f"conversation {clean(each)}") for each in found.conversations])
    if found.request is not None:
        asked = f"{clean(found.request.name)}({clean(found.request.input)})"
        say_of("asked last", [Text(asked, "dim").append(f"  number {found.request.seq}", "dim")])
    if found.state is not None:
        at = when(round(found.state.at.timestamp() * 1000))
        say_of("state", [Text(f"checkpoint {found.state.era}").append(f"  event {found.state.seq}, {at}", "dim")])
    say_of("spent", _spent(found, signs))
    say_of("streams", [Text(clean(each.name)).append(f"  {size(each.size_bytes)}, {'ended' if each.ended else 'open'}", "dim")
                       for each in found.streams])  # fmt: skip
    if found.children and depth < _NESTED:
        made.append(Text(margin).append("runs below", "cyan"))
        for child in found.children:
            made += _child(child, width, signs, margin + MARGIN, db, depth + 1)
    elif found.children:
        say_of("runs below", [Text(f"{len(found.children):,}; ").append(command("snapshot", info.id, db=db), "bold")])
    if found.left_out and not depth:
        made.append(Text(f"{margin}and {count(found.left_out, 'run')} more", "dim"))
    return made


def _child(child: Snapshot, width: int, signs: Glyphs, margin: str, db: str | None, depth: int) -> list[Text]:
    status = status_text(child.run.status, signs)
    line = Text(margin, no_wrap=True).append_text(status).append(f"  {child.run.id}  ", "bold")
    line.append(clean(child.goal), "dim")
    fit(line, width - len(MARGIN), signs)
    return [line, *_inside(child, width, signs, margin + MARGIN, db, depth)]


def _pending(waits: Pending, signs: Glyphs) -> Text:
    """Say what is waited for, in a line."""
    line = Text(f"{signs.waiting} ", "yellow")
    what = clean(waits.what)
    if waits.kind == "start":
        line.append("its time to begin", "bold")
    elif waits.kind == "resume":
        line.append("somebody to resume it", "bold")
    elif waits.kind == "worker":
        line.append("a worker that serves ", "bold").append(what, "bold")
    elif waits.kind == "question" and waits.text:
        line.append(clean(waits.text), "bold").append(f"  {what}", "dim")
    else:
        word = {"message": "a message on", "rate": "its turn of", "slot": "a slot of", "retry": "the next attempt of",
                "step": "step"}.get(waits.kind, waits.kind)  # fmt: skip
        line.append(f"{word} ", "bold").append(what, "bold")
    if waits.to:
        line.append(f"  for {clean(', '.join(waits.to))}", "dim")
    if waits.until is not None:
        line.append(f"  until {when(round(waits.until.timestamp() * 1000))}", "yellow")
    if waits.text and waits.kind != "question":
        line.append(f"  {clean(waits.text)}")
    elif waits.since is not None and waits.until is None:
        line.append(f"  since {when(round(waits.since.timestamp() * 1000))}", "dim")
    return line


def _plan(found: Snapshot, signs: Glyphs) -> list[Text]:
    made = [Text(f"{signs.done if done else signs.small} ", "green" if done else "dim").append(clean(name), "dim" if done else "")
            for name, done in found.plan]  # fmt: skip
    if len(made) <= _PLAN:
        return made
    first = max(next((n for n, (_, done) in enumerate(found.plan) if not done), len(made)) - 3, 0)
    shown = made[first : first + _PLAN]
    before = [Text(f"{signs.more} {first:,} before", "dim")] if first else []
    after = len(made) - first - len(shown)
    return [*before, *shown, *([Text(f"{signs.more} {after:,} more", "dim")] if after else [])]


def _messages(found: Snapshot) -> list[Text]:
    if not found.messages:
        return []
    made = []
    for each in found.messages[-3:]:
        line = Text(clean(each.topic), "bold").append(f"  {when(round(each.sent_at.timestamp() * 1000))}", "dim")
        made.append(line if each.taken else line.append("  not taken yet", "yellow"))
    more = found.messages_sent - len(made)
    return [*([Text(f"{more:,} before", "dim")] if more else []), *made]


def _spent(found: Snapshot, signs: Glyphs) -> list[Text]:
    spent = found.run.spent
    if not spent:
        return []
    line, budget = Text(str(spent)), found.run.budget
    if budget is not None:
        named = {"usd": budget.usd, "tokens": budget.tokens, "steps": budget.steps, "wall": budget.wall}
        may = [f"{name} {value}" for name, value in named.items() if value is not None]
        line.append(f"  of {', '.join(may)}" if may else "", "dim")
    by = [f"{clean(name)} {each.cost}" for name, each in found.spent_by[:3] if each.cost]
    return [line, Text(f" {signs.small} ".join(by), "dim")] if len(by) > 1 else [line]


# State


@subcommand()
@click.argument("run", metavar="ID", shell_complete=run_ids, callback=stored)
@click.option("--at", type=click.IntRange(0), metavar="N", help="The state that held at event N.")
@click.option("--code", "apps", metavar="APP", multiple=True,
              help="A file or module with the reducer, to fold its events up to there; repeatable.")  # fmt: skip
@db_option
@json_option
async def state(run: str, at: int | None, apps: tuple[str, ...], db: str | None, as_json: bool) -> None:
    """Print the state that a run stored last.

    That is what its agent gave to `checkpoint`. A reducer stores its state now and then: with --code its events since are folded
    again, and the very state is printed. Nothing is written to the store.
    """
    with contextlib.redirect_stdout(sys.stderr):
        agents = load_apps(apps) if apps else None
    async with existing(db) as hf:
        found = await hf.get(run).state(at, agents=agents)
        value = None if found is None else await found.value()
    if as_json:
        print_json({"state": None if found is None else plain(found) | {"value": value}})
    elif found is None:
        at_all = f" at event {at}" if at is not None else ""
        answer(f"Run {run} had stored no state{at_all}. Of a reducer, --code FILE.py folds the events.")
    else:
        made = f"checkpoint {found.era}" if apps == () else f"{count(found.folded or 0, 'event')} folded"
        say(f"{made}, event {found.seq}, {when(round(found.at.timestamp() * 1000))}", "dim")
        block(console(), shown_value(value), "", "")
