"""`holdfast run`: one run and its children, carried by this process until they end or it is asked to stop."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from holdfast.cli.agents import load_agent
from holdfast.cli.options import Typed, budget_option, db_option, json_option, subcommand, typed_options
from holdfast.cli.prompts import Offers
from holdfast.cli.signals import Stop, first, leave_if_held
from holdfast.cli.stores import at_terminal, held
from holdfast.cli.view.advice import code_of, command, how_to_go_on
from holdfast.cli.view.console import (
    BAD_USAGE,
    FAILED,
    INTERRUPTED,
    PAUSED,
    block,
    console,
    print_json,
    say,
    shown_value,
    write,
)
from holdfast.cli.view.draw import clean
from holdfast.cli.view.live import Display, Lines, Moving, Watch
from holdfast.cli.view.screen import Text
from holdfast.client.client import Client
from holdfast.client.client import open as open_store
from holdfast.client.edge import Edge
from holdfast.client.failure import Failure, failure_of
from holdfast.client.family import family, input_preview, is_active
from holdfast.declare import Agent
from holdfast.errors import BadArguments, RunExists, StoreUnavailable
from holdfast.logs import LogFilter
from holdfast.words.harmless import harmless
from holdfast.words.model import FINISHED, RunRow, checked_run_id, plain_id
from holdfast.words.spent import count
from holdfast.words.urls import redacted
from holdfast.worker.settings import Settings

_LOOK_S: Final = 0.05  # the shortest time between two looks
_FRAME_S: Final = 0.15


@dataclass(frozen=True, slots=True)
class Request:
    """A start as it was typed, and its store."""

    typed: Typed
    url: str | None
    as_json: bool

    def again(self, run: str) -> str:
        """Write the command that goes on with the run."""
        return command(*self.words(run))

    def words(self, run: str) -> list[str]:
        """Write the words of that command."""
        typed = self.typed
        named = [word for name, value in typed.named.items() for word in ("--arg", f"{name}={value}")]
        more = [*named, "--id", run, *(["--db", redacted(self.url)] if self.url else [])]
        if any(text.startswith("-") for text in typed.strings):
            return ["run", typed.target, *more, "--", *typed.strings]
        return ["run", typed.target, *typed.strings, *more]


@subcommand()
@typed_options("FILE.py:AGENT", "The run's id. With the same id the run goes on where it stopped.")
@budget_option("What the run may spend, instead of what its agent declares.")
@db_option
@json_option
def run(typed: Typed, db: str | None, as_json: bool) -> int:
    """Run an agent here, or go on with a run of it.

    The agent is FILE.py:AGENT or package.module:AGENT; the name may be left out if there is only one. ARGS are checked
    by the agent's annotations; text that starts with a dash goes after `--`.

    Ctrl-C stops at a safe point, a second one at once. Exit codes: 0 completed, 1 failed, 2 bad usage, 3 paused,
    130 interrupted.
    """
    request = Request(typed, db, as_json)
    module, agent = load_agent(typed.target)
    run_id = checked_run_id(typed.id) if typed.id is not None else f"{plain_id(agent.name)}-{secrets.token_hex(4)}"
    logged = listen_to_logs(logging.WARNING)
    code = asyncio.run(_run(request, module, agent, run_id, logged))
    if code == INTERRUPTED:
        leave_if_held(code)
    return code


async def _run(request: Request, module: ModuleType, agent: Agent[..., Any], run_id: str, logged: list[str]) -> int:
    with Stop(lambda: _last_words(request, run_id), grace_s=Settings().stop_grace_s) as stop:
        return await _run_until(stop, request, module, agent, run_id, logged)


async def _run_until(
    stop: Stop, request: Request, module: ModuleType, agent: Agent[..., Any], run_id: str, logged: list[str]
) -> int:
    # Without agents first: nothing may begin before the arguments are known to fit.
    async with at_terminal(open_store(request.url)) as hf:
        asleep = await held(hf, request.url)
        if asleep is not None:
            raise StoreUnavailable(f"{Edge(hf).url}: {asleep}")
        members = await _prepare(hf, request, agent, run_id)
        before = members[0]
        if before.status in FINISHED and not any(is_active(member, Edge(hf).now()) for member in members):
            return await _outcome(hf, request, before, agent, logged)
    if request.typed.id is None:
        say(f"Run {run_id}. To go on with it if it is interrupted:", "", request.again(run_id))
    elif before.next_seq:
        say(f"Going on with {run_id}: {count(before.steps, 'step')} recorded before.")
    settings = Settings(root=run_id)
    async with at_terminal(open_store(request.url, agents=[module], settings=settings)) as hf:
        watch = Watch(hf, run_id)
        on = console(stderr=True)
        display: Display = Lines(on, {member.id: member.next_seq for member in members}, request.url)
        if on.is_terminal:
            display = Moving(on, input_preview(before), request.url, take_stdout=sys.stdout.isatty())
        stopped = await _follow(watch, display, stop, frame_s=_FRAME_S if on.is_terminal else 1.0)
        if not stopped:
            _say_left(watch)
            return await _outcome(hf, request, watch.stuck_on or watch.root, agent, logged)
        elsewhere = watch.elsewhere
        if elsewhere:
            say("Stopped following; the other process goes on with the run.", "yellow")
        else:
            _say_stopping(hf, settings)
    if not elsewhere:
        say("Stopped at a safe point. To go on:", "yellow", request.again(run_id))
    return INTERRUPTED


async def _prepare(hf: Client, request: Request, agent: Agent[..., Any], run_id: str) -> list[RunRow]:
    """Start the run or find it, and let it go on if it is paused; returns it and those it started."""
    edge, typed = Edge(hf), request.typed
    row = await edge.find(run_id)
    if row is None or typed.strings or typed.named:
        args, kwargs = agent.spec.signature.parse(typed.strings, typed.named)
        _ = await hf.start(agent, *args, id=run_id, labels=typed.labels, kwargs=kwargs, budget=typed.budget)
    elif row.agent != agent.name:
        raise RunExists(f"run {run_id!r} is a run of {row.agent!r}, not of {agent.name!r}; use another id")
    row = await edge.row(run_id)
    if row.parent_id is not None:
        raise BadArguments(f"run {run_id!r} is a child of run {row.parent_id!r}; go on with {row.root_id!r} instead")
    for member in await family(hf, row):
        if member.status == "paused":
            say(f"Resuming {member.id}, which was paused.", "yellow")
            await hf.get(member.id).resume(by="holdfast run", family=False)
    return await family(hf, await edge.row(run_id))


async def _follow(watch: Watch, display: Display, stop: Stop, frame_s: float) -> bool:
    """Follow the run until it is over for now; true when asked to stop before."""
    heard = watch.edge.changes()
    told_elsewhere, offers = False, Offers(stop)
    display.begin()
    try:
        while True:
            heard.clear()
            new = await watch.look()
            display.update(watch, new)
            if watch.is_over:
                return False
            await offers.make(watch, display)
            if watch.elsewhere and not told_elsewhere:
                told_elsewhere = True
                say(f"Another process is working on {watch.run}; following it here.", "yellow")
            if await first(stop, heard, frame_s):
                return True
            await asyncio.sleep(_LOOK_S)
    finally:
        display.end(watch)


def _say_left(watch: Watch) -> None:
    """Name the children that go on: they outlive the run that started them."""
    left = [row for row in watch.rows.values() if row.id != watch.run and row.status not in FINISHED]
    if watch.root.status in FINISHED and left:
        told = ", ".join(f"{row.id} ({row.waits_for or row.status})" for row in left[:5])
        say(f"Not ended: {told}. A worker, or the same command later, goes on with them.", "yellow")


def _say_stopping(hf: Client, settings: Settings) -> None:
    names = [f"{call.name}({clean(call.input)})" for calls in Edge(hf).open_calls().values() for call in calls]
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        grace = f"{settings.stop_grace_s:g} s"
        what = ", ".join(names[:3]) + more
        say(f"Stopping. Waiting up to {grace} for {what} to end; Ctrl-C again stops at once.", "yellow")
    else:
        say("Stopping.", "yellow")


def _last_words(request: Request, run_id: str) -> None:
    on = console(stderr=True)
    if on.is_terminal:
        on.show_cursor()
    say("Stopped at once; what was in the middle of a step runs again. To go on:", "yellow", request.again(run_id))


# How it ended


async def _outcome(hf: Client, request: Request, row: RunRow, agent: Agent[..., Any], logged: list[str]) -> int:
    """Print the result or what went wrong; returns the exit code."""
    own = hf.get(row.id, agent) if row.parent_id is None else hf.get(row.id)
    result = await own.result() if row.status == "completed" else None
    if request.as_json:
        info = await hf.get(row.id).info()
        failure = json.loads(row.error) if row.error else None
        print_json({"run": info, "result": result, "failure": failure})
    elif row.status == "completed" and result is not None:
        write(shown_value(result) + "\n")
    if row.status == "completed":
        return 0
    if row.status == "paused":
        reason = row.reason or "no reason was given"
        known = any(harmless(reason) in each for each in logged)
        say(f"Paused: run {row.id}" + ("" if known else f": {reason}"), "bold yellow")
        say("Once that is mended, the same command goes on:", "", request.again(row.root_id or row.id))
        return PAUSED
    if row.status not in FINISHED:
        where, again = how_to_go_on(row, None, *request.words(row.root_id or row.id))
        say(f"Error: run {row.id} cannot go on: no live worker serves {code_of(row)}, and it is not here", "red")
        console(stderr=True).print(Text(f"{where} {again}", no_wrap=True), soft_wrap=True)
        return BAD_USAGE
    if row.status == "cancelled":
        say(f"Cancelled: run {row.id}" + (f": {row.reason.removeprefix('cancelled ')}" if row.reason else ""), "red")
        return FAILED
    if row.status == "moved":
        say(f"Run {row.id} is not here any more: it was {row.reason}", "yellow")
        return FAILED
    _say_failure(request, row, await failure_of(hf, row))
    return FAILED


def _say_failure(request: Request, row: RunRow, failure: Failure) -> None:
    say()
    if failure.path:
        block(console(stderr=True), "\n".join(failure.path), "dim")
    say(f"Failed: run {row.id}: {failure.error}", "bold red")
    again = command("retry", row.id, *failure.again, db=request.url), request.again(row.id)
    say(failure.advice, "", *again)


# Logs


class _Said(logging.Handler):
    """Prints records like everything else that is said, and remembers the messages."""

    def __init__(self, logged: list[str]) -> None:
        super().__init__()
        self._logged = logged
        self.addFilter(LogFilter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            if " something that is not recorded" in text:
                return  # that is an event too, and shown as one
            self._logged.append(text)
            del self._logged[:-50]
            say(text, "red" if record.levelno >= logging.ERROR else "yellow")
        except Exception:  # noqa: BLE001 - as every handler of the logging module does
            self.handleError(record)


def listen_to_logs(level: int) -> list[str]:
    """Show what is logged, unless the user's code has set up logging; what replay repeats is dropped either way."""
    logged: list[str] = []
    root = logging.getLogger()
    for handler in root.handlers:
        handler.addFilter(LogFilter())
    if not root.handlers:
        handler = _Said(logged)
        handler.setLevel(level)
        root.addHandler(handler)
        ours = logging.getLogger("holdfast")
        if ours.level == logging.NOTSET and level < logging.WARNING:
            ours.setLevel(level)
    return logged
