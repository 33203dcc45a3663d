"""Where things are printed and how: results on stdout, all that is said about them on stderr; plain when piped."""

from __future__ import annotations

import json
import os
import select
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import click
from rich.console import Console
from rich.table import Table

from holdfast.cli.view.screen import Screen, Text
from holdfast.client.documents import plain
from holdfast.client.run import RunInfo
from holdfast.words.harmless import harmless, harmless_json
from holdfast.words.model import RunRow
from holdfast.words.urls import redacted

PIPED_WIDTH: Final = 110
FAILED, BAD_USAGE, PAUSED, INTERRUPTED = 1, 2, 3, 130  # exit codes; 0 is a run that completed


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The few signs used, and what stands for them where the terminal knows ASCII only."""

    done: str = "✓"
    failed: str = "✗"
    running: str = "●"
    waiting: str = "○"
    doubt: str = "?"
    warning: str = "!"
    small: str = "·"
    arrow: str = "→"
    rule: str = "─"
    tee: str = "├─ "
    elbow: str = "└─ "
    bar: str = "│  "
    more: str = "…"
    full: str = "━"


ASCII: Final = Glyphs("+", "x", "*", "o", "?", "!", "-", "->", "-", "|- ", "`- ", "|  ", "...", "=")


def console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Where to print."""
    made = Screen(stderr=stderr)
    if width is not None:
        made.width = width
    elif not made.is_terminal and not os.environ.get("COLUMNS"):
        made.width = PIPED_WIDTH
    return made


def glyphs(on: Console) -> Glyphs:
    """The signs this console can print."""
    return ASCII if on.options.ascii_only else Glyphs()


def say(text: str = "", style: str = "", *commands: str) -> None:
    """Something about what happens, for people: on stderr; and commands that do more about it."""
    _print(console(stderr=True), text, style, commands)


def answer(text: str = "", style: str = "", *commands: str) -> None:
    """The answer of a command, on stdout; and commands that do more about it."""
    _print(console(), text, style, commands)


def _print(on: Console, text: str, style: str, commands: Sequence[str]) -> None:
    """Further lines of a text are set off, like what finds no room: the left edge is where something new begins."""
    for place, line in enumerate(lines_of(text)):
        on.print(Text(line if not place else f"    {line}", style), soft_wrap=True)
    for command in commands:
        on.print(command_line(command, style), soft_wrap=True)


def lines_of(text: str) -> list[str]:
    """Its lines as terminals know them; other signs that separate lines are no reason to begin one."""
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def command_line(command: str, style: str = "") -> Text:
    """A line with a command that can be pasted, however long it is."""
    return Text(f"  {command}", style, no_wrap=True)


def block(on: Console, text: str, style: str = "", margin: str = "  ") -> None:
    """Lines that others wrote, each behind a margin."""
    for line in lines_of(text):
        on.print(Text(margin).append(line.expandtabs(4), style), soft_wrap=True)


def table(*columns: str, **how: Any) -> Table:
    """Begin a table without lines."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        made.add_column(name, **how)
    return made


def write(text: str, before: str = "") -> None:
    """What a program wrote, as it is, into a pipe; for people at a terminal made harmless. `before` is what stands there."""
    shown = harmless(text, keep="\n\t", before=before) if sys.stdout.isatty() else text
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(shown.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def fail(message: str, code: int = BAD_USAGE) -> NoReturn:
    """One red line, and the end."""
    say(f"Error: {message}", "red")
    click.get_current_context().exit(code)


def print_json(document: Any, *, line: bool = False) -> None:
    """One JSON document, or one line of JSON lines."""
    text = json.dumps(plain(document), indent=None if line else 2, ensure_ascii=not _is_unicode())
    sys.stdout.write(harmless_json(text) + "\n")
    sys.stdout.flush()


def reader_is_gone() -> bool:
    """Has whoever read our pipe gone away? Otherwise that is noticed only when there is something to write."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLERR)
        return any(found & select.POLLERR for _, found in poll.poll(0))
    except (AttributeError, OSError, ValueError):
        return False


def _is_unicode() -> bool:
    return "utf" in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()


def shown_value(value: Any) -> str:
    """A result for people: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False, indent=2)


def command(*words: str, db: str | None = None) -> str:
    """A command that can be pasted into a shell, with the store that is used now; its password, if any, is not told."""
    program = click.get_current_context().find_root().info_name or "holdfast"
    more = ["--db", redacted(db)] if db else []
    return f"{program} {shlex.join([*words, *more])}"


def code_of(run: RunRow | RunInfo) -> str:
    """The code that a run needs, in words."""
    return repr(run.agent) if run.version is None else f"version {run.version} of {run.agent!r}"


def without_id(told: str, run: str) -> str:
    """What is told of a run where its id stands beside it: the room is for the rest."""
    for begins in (f"run {run!r}: ", f"run {run!r} "):
        told = told.replace(begins, "", 1)
    return told


GOES_ON: Final = "goes on when the runs that are tried first have made progress or ended"


def held_back(run: RunInfo) -> str:
    """Why live workers have not yet taken a run whose process ended more than once."""
    return f"held back: carried apart after {run.crashes + (run.status == 'running')} crashes"


def how_to_go_on(run: RunRow | RunInfo, url: str | None, *words: str) -> tuple[str, str]:
    """Advice for a run that no worker serves: where, and the command (`words` are those typed to run it, if known).

    A child is carried with the run that started it, whose agent is not known here; a worker carries both.
    """
    is_child = (run.parent_id if isinstance(run, RunRow) else run.parent) is not None
    where = "Go on:" if run.version is None else f"With the code of version {run.version}:"
    alone = ("worker", "FILE.py") if is_child else ("run", f"FILE.py:{run.agent}", "--id", run.id)
    return where, command(*(words or alone), db=url)


def version() -> str:
    """The version of this package, which is above us and therefore not imported."""
    return str(getattr(sys.modules["holdfast"], "__version__", "unknown"))
