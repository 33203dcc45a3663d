"""Consoles: results go to stdout, all that is said about them to stderr; plain when piped."""

from __future__ import annotations

import json
import os
import re
import select
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import click
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from holdfast.cli.view.screen import Screen, Text
from holdfast.client.documents import plain
from holdfast.words.harmless import harmless, harmless_json

PIPED_WIDTH: Final = 110
UNCUT_WIDTH: Final = 100_000
_KEPT: Final = 20  # characters of a column that is not broken into lines
_PLAIN: Final = re.compile(r"[\w@.:+/=-]+(  [\w@.:+/=-]+)*", re.ASCII)
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
    """Make a console on standard output, or on standard error."""
    made = Screen(stderr=stderr)
    if width is not None:
        made.width = width
    elif not made.is_terminal and not os.environ.get("COLUMNS"):
        made.width = PIPED_WIDTH
    return made


def glyphs(on: Console) -> Glyphs:
    """Choose the signs that this console can print."""
    return ASCII if on.options.ascii_only else Glyphs()


def say(text: str = "", style: str = "", *commands: str) -> None:
    """Tell people what happens, on stderr, with commands that do more about it."""
    _print(console(stderr=True), text, style, commands)


def answer(text: str = "", style: str = "", *commands: str) -> None:
    """Print the answer of a command on stdout, with commands that do more about it."""
    _print(console(), text, style, commands)


def _print(on: Console, text: str, style: str, commands: Sequence[str]) -> None:
    """Further lines of a text are set off, like what finds no room: the left edge is where something new begins."""
    for place, line in enumerate(lines_of(text)):
        on.print(Text(line if not place else f"    {line}", style), soft_wrap=True)
    for command in commands:
        on.print(command_line(command, style), soft_wrap=True)


def lines_of(text: str) -> list[str]:
    """Split a text into lines as terminals know them; other signs that separate lines are no reason to begin one."""
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def command_line(command: str, style: str = "") -> Text:
    """Write a line with a command that can be pasted, however long it is."""
    return Text(f"  {command}", style, no_wrap=True)


def block(on: Console, text: str, style: str = "", margin: str = "  ") -> None:
    """Print lines that others wrote, each behind a margin."""
    for line in lines_of(text):
        on.print(Text(margin).append(line.expandtabs(4), style), soft_wrap=True)


def table(*columns: str, **how: Any) -> Table:
    """Begin a table without lines."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        made.add_column(name, **how)
    return made


def print_list(made: Table, *whole: int) -> None:
    """Print a list. Columns that are copied into commands, `whole`, are neither cut nor broken, however narrow the terminal is.

    If they leave too little room for the others, each entry has lines of its own. Into a pipe each is one line.
    """
    on, wide = console(), console(width=UNCUT_WIDTH)
    if not on.is_terminal or Measurement.get(wide, wide.options, made).maximum <= on.width:
        (on if on.is_terminal else wide).print(made)
        return
    least = 0
    for place, column in enumerate(made.columns):
        measured = [Measurement.get(wide, wide.options, cell) for cell in (column.header, *column.cells)]
        longest, word = max(each.maximum for each in measured), max(each.minimum for each in measured)
        column.no_wrap = place in whole or longest <= _KEPT
        column.min_width = longest if column.no_wrap else max(word, _KEPT)
        least += column.min_width + 1
    if least <= on.width:
        on.print(made)
        return
    for row in zip(*(column.cells for column in made.columns), strict=True):
        cells = [_cell(each) for each in row]
        first = Text("  ").join(cells[place] for place in whole)
        first.no_wrap = _PLAIN.fullmatch(first.plain) is not None  # others may have chosen it, and wish to deceive
        on.print(first, soft_wrap=True)
        rest = [(column.header, cells[at]) for at, column in enumerate(made.columns) if at not in whole and cells[at]]
        told = [Text(f"{header}: " if header else "", "dim").append_text(cell) for header, cell in rest]
        on.print(Text("  ").append_text(Text("  ").join(told)))


def _cell(cell: Any) -> Text:
    return cell if isinstance(cell, Text) else Text(str(cell))


def write(text: str, before: str = "") -> None:
    """Write a program's text: into a pipe as it is, to a terminal made harmless. `before` is what stands there."""
    shown = harmless(text, keep="\n\t", before=before) if sys.stdout.isatty() else text
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(shown.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def fail(message: str, code: int = BAD_USAGE) -> NoReturn:
    """Print one red line, and end the command."""
    say(f"Error: {message}", "red")
    click.get_current_context().exit(code)


def print_json(document: Any, *, line: bool = False) -> None:
    """Print one JSON document, or one line of JSON lines."""
    text = json.dumps(plain(document), indent=None if line else 2, ensure_ascii=not _is_unicode())
    sys.stdout.write(harmless_json(text) + "\n")
    sys.stdout.flush()


def reader_is_gone() -> bool:
    """Is the reader of our pipe gone? Otherwise that is noticed only when there is something to write."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLERR)
        return any(found & select.POLLERR for _, found in poll.poll(0))
    except (AttributeError, OSError, ValueError):
        return False


def _is_unicode() -> bool:
    return "utf" in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()


def shown_value(value: Any) -> str:
    """Write a result for people: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False, indent=2)


def version() -> str:
    """Look up the version of this package, which is above us and therefore not imported."""
    return str(getattr(sys.modules["holdfast"], "__version__", "unknown"))
