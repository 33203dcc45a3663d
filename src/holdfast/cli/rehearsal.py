"""`holdfast replay`, `holdfast check` and `holdfast rehearse`: code against recorded runs, without effects."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import inspect
import io
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import click
from rich.console import Console

from holdfast.cli.agents import load, load_apps, split
from holdfast.cli.difference import document, print_difference
from holdfast.cli.options import (
    budget_option,
    db_option,
    json_option,
    pairs,
    run_argument,
    run_ids,
    seconds_of,
    subcommand,
    value_of,
)
from holdfast.cli.signals import leave
from holdfast.cli.stores import looked_at, looked_into
from holdfast.cli.view.advice import without_id
from holdfast.cli.view.console import FAILED, Glyphs, console, glyphs, print_json, table
from holdfast.cli.view.draw import clean
from holdfast.cli.view.screen import Text
from holdfast.client.bundles import is_bundle
from holdfast.client.client import Client
from holdfast.client.edge import describe
from holdfast.client.rehearsal import Checked
from holdfast.declare import Agent
from holdfast.errors import BadArguments
from holdfast.rehearsal.frames import Frame
from holdfast.rehearsal.replay import Replay
from holdfast.testing.rehearsal import Rehearsed
from holdfast.testing.rehearsal import rehearse as rehearsed
from holdfast.values.text import cut
from holdfast.words.budget import Budget
from holdfast.words.notices import Notice
from holdfast.words.spent import count

_STYLES: Final = {
    "fits": "green", "diverges": "bold red", "unfit": "bold red", "differs": "bold yellow", "unknown": "dim", "unsure": "yellow",
}  # fmt: skip
_SAYS: Final = {
    "fits": "fits", "diverges": "diverges", "unfit": "does not fit its types", "differs": "ends otherwise",
    "unknown": "has no code here", "unsure": "cannot be told",
}  # fmt: skip
_LONGEST: Final = 1_000
_NO_BANNER: Final = "PYDANTIC_AI_NO_BANNER"
_LOCKED_S: Final = 60.0  # without a turn of this loop
_threads: Final[list[threading.Thread]] = []  # that were started while agents' code was tried
_MOST_NAMES: Final = 20
_RUNS: Final = 3  # that are named for one finding
code_option: Final = click.option(
    "--code", "apps", metavar="APP", multiple=True, required=True, envvar="HOLDFAST_CODE",
    help="A file or module with the agents; repeatable. Default: $HOLDFAST_CODE.",
)  # fmt: skip


timeout_option: Final = click.option(
    "--timeout", metavar="TIME", default="30s", show_default=True, callback=seconds_of,
    help="How long the code may take for one run, or keep the event loop; then it is stopped.",
)  # fmt: skip


@subcommand()
@run_argument
@code_option
@click.option(
    "--to", type=click.IntRange(0), metavar="EVENT", help="Stop when the run has seen the event of this number."
)
@click.option("--break", "at", metavar="STEP", help="Stop where the run makes this call: a key, or the name of a step.")
@click.option("--full", is_flag=True, help="Print variables whole, up to 100,000 characters each.")
@click.option("--debug", is_flag=True, help="Open Python's debugger there, or at the agent's first line.")
@timeout_option
@db_option
@json_option
async def replay(
    run: str, apps: tuple[str, ...], to: int | None, at: str | None, full: bool, debug: bool, timeout: float, db: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Replay a run with today's code, and look inside.

    ID is a run, or the file of a bundle, whose run is replayed without any store.

    The agent's code runs from its first line, or from the last checkpoint, and gets what was recorded. No body of a step runs
    and nothing is written to the store. Where the replay stops, the local variables of the agent's functions are printed.

    With --debug Python's debugger opens there instead. Calls get their recorded results while you step on.

    The exit code is 1 if the code does not fit what was recorded.
    """
    if debug and as_json:
        raise click.UsageError("the debugger is for people, and --json for programs: give one of them")
    if to is not None and at is not None:
        raise click.UsageError("a replay stops at an event or at a call: give --to or --break, not both")
    code = _loaded(apps)
    async with _opened(run, db) as (hf, named), _alone(debug=debug):
        found = await hf.replay(named, code, to=to if at is None else at, full=full, debug=debug, timeout=timeout)
    if debug and found.verdict == "unsure" and not found.line:
        return _left(0)  # the person went
    if as_json:
        print_json(found)
    else:
        on = console()
        _print_verdict(on, glyphs(on), found)
        _print_frames(on, found.frames)
    return _left(0 if found.fits else FAILED)


@subcommand()
@click.argument("apps", metavar="APP... [FILE...]", nargs=-1, required=True)
@click.option("--run", "runs", metavar="ID", multiple=True, help="Only this run; repeatable.")
@click.option("--finished", type=click.IntRange(0), default=100, show_default=True, metavar="N",
              help="Replay so many finished runs too, the newest.")  # fmt: skip
@timeout_option
@db_option
@json_option
async def check(
    apps: tuple[str, ...], runs: tuple[str, ...], finished: int, timeout: float, db: str | None, as_json: bool
) -> int:
    """Tell which runs the code on disk would not go on with.

    Every unfinished run, and some finished ones, are replayed with the agents of APP, a file or a module. Given the FILEs of
    bundles, the runs in these are, and not those of a store. No body of a step runs and nothing is written to the store. Each run
    that would diverge is told with the call, the line, what was recorded and what the code does now.

    The exit code is 1 if there is such a run, or an unfinished one without code in APP, or a waiting one that the code would fail
    at once, or one of which it cannot be told, so that a pipeline stops before the deploy. A finished run that would end otherwise
    is told, and stops nothing. Runs that were moved to another store are left out.
    """
    files = [each for each in apps if is_bundle(each)]
    code = _loaded(tuple(each for each in apps if each not in files))
    replays: tuple[Replay, ...] = ()
    for file in files or [""]:
        async with looked_into(file, db) if file else looked_at(db) as hf, _alone():
            found = await hf.check(code, runs=runs or None, finished=finished, timeout=timeout)
            replays += found.replays
    checked = Checked(replays)
    if as_json:
        print_json({"fits": checked.fits, "runs": checked.replays})
    else:
        _print_checked(checked.replays)
    return _left(0 if checked.fits else FAILED)


@subcommand()
@click.argument("runs", metavar="ID...", nargs=-1, required=True, shell_complete=run_ids)
@code_option
@click.option("--model", metavar="NAME", help="Another model for every Pydantic AI agent: its name, or FILE.py:OBJECT.")
@click.option("--prompt", "prompts", metavar="AGENT=FILE", multiple=True, callback=pairs,
              help="Other instructions for a Pydantic AI agent, from a file; repeatable.")  # fmt: skip
@click.option("--live", metavar="STEP", multiple=True,
              help="Run this step for every call, because it asks a model and does nothing else; repeatable.")  # fmt: skip
@click.option("--answer", "answers", metavar="STEP=JSON", multiple=True, callback=pairs,
              help="The result of a step that is called with an input which was not recorded; repeatable.")  # fmt: skip
@click.option("--decide", is_flag=True, help="Decide a question that shows another value as it was decided then.")
@budget_option("What requests to models may spend in all; without it none is made.")
@click.option("--timeout", metavar="TIME", default="5m", show_default=True, callback=seconds_of,
              help="How long the rehearsal of one run may take. Code that keeps the event loop has a minute at most.")  # fmt: skip
@db_option
@json_option
async def rehearse(
    runs: tuple[str, ...], apps: tuple[str, ...], model: str | None, prompts: dict[str, str], live: tuple[str, ...],
    answers: dict[str, str], decide: bool, budget: str | None, timeout: float, db: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Run recorded runs again with one thing changed.

    ID is a run, or alone the file of a bundle.

    Each run begins anew, in a store of its own. Recorded results answer calls with the same input. A request to a model with a new
    input is made if there is a --budget; any other call with a new input gets its --answer, or ends the rehearsal there. Then the
    run and its rehearsal are compared; of several runs, in a table.

    The exit code is 0 if every rehearsal made the calls of its run, with the same outcomes, to the same end. It is 1 if one parted,
    or could not be rehearsed to its end.
    """
    code = _loaded(apps)
    given = {name: _giving(value_of(text)) for name, text in answers.items()}
    texts = {name: _read(file) for name, file in prompts.items()}
    limits = None if budget is None else Budget.parse(budget)
    if len(runs) > 1 and (files := [run for run in runs if is_bundle(run)]):
        raise click.UsageError(f"the budget is for all that is rehearsed at once; rehearse {files[0]} alone")
    async with _opened(runs[0], db) as (hf, first), _alone():
        found = await rehearsed(
            hf,
            [first, *runs[1:]],
            code,
            model=_model(model),
            prompts=texts,
            live=live,
            answers=given,
            decide=decide,
            budget=limits,
            timeout=timeout,
        )
    if as_json:
        print_json({"rehearsals": [_document(each) for each in found]})
    else:
        _print_rehearsed(console(), found)
    return _left(0 if all(each.difference.same and not each.stopped for each in found) else FAILED)


def _print_rehearsed(on: Console, found: list[Rehearsed]) -> None:
    signs = glyphs(on)
    for each in found:
        if each.stopped:
            head = Text(f"  {signs.doubt} ", "yellow").append(each.run, "bold")
            on.print(head.append(f"  stopped: {clean(each.stopped)}", "yellow"), soft_wrap=True)
    if any(each.stopped for each in found):
        on.print()
    if len(found) == 1:
        print_difference(on, found[0].difference, rehearsed=True)
    else:
        _print_summary(on, found)
    told = [
        f"{number} {origin}"
        for origin in ("recorded", "asked", "scripted")
        if (number := sum(each.answers.get(origin, 0) for each in found))
    ]
    on.print(Text(f"  steps answered: {', '.join(told) or 'none'}", "dim"))


# Agents' code in this process


def _loaded(apps: tuple[str, ...]) -> list[ModuleType | Agent[..., Any]]:
    """Load agents' code; what modules print goes to stderr too."""
    with contextlib.redirect_stdout(sys.stderr):
        return load_apps(apps)


@asynccontextmanager
async def _opened(target: str, db: str | None) -> AsyncIterator[tuple[Client, str]]:
    """Open the store that has a run, or the bundle that is one; tells the id of the run."""
    if is_bundle(target):
        async with looked_into(target, db) as hf:
            yield hf, describe(target).run
    else:
        async with looked_at(db) as hf:
            yield hf, target


@asynccontextmanager
async def _alone(*, debug: bool = False) -> AsyncIterator[None]:
    """Keep agents' code from what is ours: it reads nothing, and what it prints goes to stderr.

    Pydantic AI greets each process that runs an agent with ten lines about itself; here none is really run.

    Code that keeps Python's own lock (inside one function of C) keeps this loop too, so that nothing here could stop it. Python
    then says where it is and ends the process with exit code 1.
    """
    turning, stdin, before = asyncio.create_task(_turn()), sys.stdin, set(threading.enumerate())
    greets = _NO_BANNER not in os.environ
    os.environ.setdefault(_NO_BANNER, "1")
    try:
        if debug:
            yield
            return
        with contextlib.redirect_stdout(sys.stderr):
            sys.stdin = io.StringIO()
            yield
    finally:
        sys.stdin = stdin
        if greets:
            os.environ.pop(_NO_BANNER, None)
        _threads.extend(each for each in threading.enumerate() if each not in before and not each.daemon)
        turning.cancel()
        faulthandler.cancel_dump_traceback_later()


async def _turn() -> None:
    while sys.__stderr__ is not None:
        faulthandler.dump_traceback_later(_LOCKED_S, exit=True, file=sys.__stderr__)
        await asyncio.sleep(1)


def _left(code: int) -> int:
    """End the process at once if a thread that agents' code has started would keep it."""
    if sys.stdout is sys.__stdout__ and any(each.is_alive() for each in _threads):
        leave(code)
    return code


def _giving(value: Any) -> Callable[..., Any]:
    """Make a function that takes whatever the step takes, and returns this."""
    return lambda *_, **__: value


def _read(file: str) -> str:
    try:
        return Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadArguments(f"the prompt in {file!r} cannot be read: {error}") from None


def _model(target: str | None) -> Any:
    """A model by its name, or an object of a file."""
    place, name = (None, None) if target is None else split(target)
    if place is None or name is None or not place.endswith(".py"):
        return target
    module = load(place)
    if not hasattr(module, name):
        there = [each for each, value in vars(module).items() if not (each.startswith("_") or _is_definition(value))]
        listed = f"; it has {', '.join(there[:_MOST_NAMES])}" if there else ""
        raise BadArguments(f"{place} has no {name!r}, which --model names{listed}")
    return getattr(module, name)


def _is_definition(value: Any) -> bool:
    """Is this a module, a class or a function, and so no model?"""
    return inspect.ismodule(value) or inspect.isclass(value) or inspect.isfunction(value)


def _document(found: Rehearsed) -> dict[str, Any]:
    about = {"run": found.run, "answers": found.answers, "stopped": found.stopped, "spent": found.spent}
    return about | {"difference": document(found.difference)}


def _print_summary(on: Console, found: list[Rehearsed]) -> None:
    made = table("run", "parted at", "result", "cost then", "cost now")
    for each in found:
        difference = each.difference
        parted = difference.parted.key if difference.parted is not None else "nowhere"
        same = {"result", "error", "status"}.isdisjoint(difference.differs)
        ends = "equal" if same and not each.stopped else "stopped" if each.stopped else "differs"
        style = {"equal": "green", "stopped": "yellow", "differs": "red"}[ends]
        cells = [Text(each.run, "bold"), Text(clean(parted)), Text(ends, style)]
        made.add_row(*cells, Text(difference.one.spent.cost or "none"), Text(difference.other.spent.cost or "none"))
    on.print(made)


# One run


def _says(found: Replay) -> str:
    """The verdict in words; of a reducer that had come to another state before its last one, that."""
    folds = found.verdict == "differs" and ":checkpoint" in found.key
    return "folds otherwise" if folds else _SAYS[found.verdict]


def _print_verdict(on: Console, signs: Glyphs, found: Replay) -> None:
    seen = f"{found.seen} of {count(found.of, 'outcome')} seen"
    sign = signs.done if found.fits else signs.doubt if found.verdict in ("unsure", "unknown") else signs.failed
    head = Text(f"  {sign} ", _STYLES[found.verdict]).append(found.run, "bold").append(f"  {found.agent}  ")
    head.append(_says(found), _STYLES[found.verdict]).append(f"  {seen}", "dim")
    on.print(head, soft_wrap=True)
    _print_parting(on, found)
    for notice in found.notices:
        _print_notice(on, notice, "")
    if found.error is not None or found.result is not None:
        said = found.error if found.error is not None else str(found.result)
        on.print(Text("    ends with  ", "dim").append(cut(clean(said), _LONGEST)), soft_wrap=True)


def _print_parting(on: Console, found: Replay) -> None:
    if found.fits:
        return
    told = {
        "at": found.key,
        "line": found.line,
        "recorded": found.recorded,
        "present": found.present,
        "do": found.advice,
    }
    if not found.present:
        told = {"line": found.line, "why": without_id(found.reason, found.run)}
    for name, value in told.items():
        if value:
            on.print(Text(f"      {name:<9} ", "dim").append(cut(clean(value), _LONGEST)), soft_wrap=True)


def _print_frames(on: Console, frames: tuple[Frame, ...]) -> None:
    for frame in frames:
        on.print()
        head = Text("  ").append(clean(frame.function), "bold").append(f"  {clean(frame.place)}", "cyan")
        on.print(head.append(f"  task {clean(frame.task)}" if frame.task else "", "dim"), soft_wrap=True)
        widest = max(map(len, frame.variables), default=0)
        for name, value in frame.variables.items():
            on.print(Text(f"    {name:<{widest}}  ", "dim").append(clean(value)), soft_wrap=True)


# Many runs


def _print_checked(replays: tuple[Replay, ...]) -> None:
    """Print each finding once, with the runs that it is a finding of."""
    on = console()
    signs = glyphs(on)
    for same in _alike(replays).values():
        _print_verdict_of(on, signs, same)
    noticed: dict[Notice, list[str]] = {}
    for found in replays:
        for notice in found.notices:
            noticed.setdefault(notice, []).append(found.run)
    for notice, runs in noticed.items():
        _print_notice(on, notice, _listed(runs))
    counts = {verdict: sum(found.verdict == verdict for found in replays) for verdict in _SAYS}
    told = [f"{counts[verdict]} {what}" for verdict, what in _MANY.items() if counts[verdict]]
    style = "bold red" if any(found.stops for found in replays) else "green"
    on.print(Text(f"  {count(len(replays), 'run')} replayed: ", "bold").append(", ".join(told) or "none", style))


_MANY: Final = {
    "fits": "fit", "diverges": "diverge", "unfit": "do not fit their types", "differs": "end otherwise",
    "unsure": "cannot be told", "unknown": "of agents without code here",
}  # fmt: skip


def _alike(replays: tuple[Replay, ...]) -> dict[Any, list[Replay]]:
    """Findings that are the same except for the run and its values: of one line, one kind and one name."""
    found: dict[Any, list[Replay]] = {}
    for each in replays:
        if each.stops or each.verdict == "differs":
            what = each.recorded.partition("(")[0]
            found.setdefault((each.agent, each.verdict, each.line, what), []).append(each)
    return found


def _print_verdict_of(on: Console, signs: Glyphs, same: list[Replay]) -> None:
    first = same[0]
    sign = signs.doubt if first.verdict in ("unsure", "unknown", "differs") else signs.failed
    head = Text(f"  {sign} ", _STYLES[first.verdict]).append(_listed([each.run for each in same]), "bold")
    on.print(head.append(f"  {first.agent}  ").append(_says(first), _STYLES[first.verdict]), soft_wrap=True)
    _print_parting(on, first)
    on.print()


def _print_notice(on: Console, notice: Notice, runs: str) -> None:
    on.print(Text(f"  changed  {clean(notice.what)}", "yellow").append(f"  {runs}", "dim"), soft_wrap=True)
    for name, value in (("recorded", notice.recorded), ("present", notice.present)):
        on.print(Text(f"      {name:<9} ", "dim").append(cut(clean(value), _LONGEST)), soft_wrap=True)


def _listed(runs: list[str]) -> str:
    more = f" and {len(runs) - _RUNS} more" if len(runs) > _RUNS else ""
    return ", ".join(runs[:_RUNS]) + more
