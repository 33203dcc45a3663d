"""One event as one line: what `tail`, a worker, and a run in a pipe say."""

from __future__ import annotations

import time
from typing import Final

from holdfast.cli.view.draw import clean
from holdfast.cli.view.screen import Text
from holdfast.words.durations import clock
from holdfast.words.events import told, words_of
from holdfast.words.model import Event

_STYLES: Final = {
    "plain": "", "said": "italic", "good": "green", "warn": "yellow", "bad": "red", "faint": "dim", "control": "cyan",
    "completed": "bold green", "failed": "bold red", "paused": "bold yellow",
}  # fmt: skip


def line(event: Event, *, width: int | None = None, run: bool = True, error: bool = True) -> Text:
    """Write time, run, and what happened; without the error of a failure that is told elsewhere."""
    made = _begun(clock(event.at), event.run if run else "")
    made.append(clean(told(event, error=error)), _STYLES[words_of(event).tone])
    if width is not None:
        made.truncate(width, overflow="ellipsis")
    return made


def told_now(run: str, what: str, style: str = "yellow") -> Text:
    """Write a line of this form for what is no event."""
    return _begun(time.strftime("%H:%M:%S"), run).append(clean(what), style)


def _begun(at: str, run: str) -> Text:
    made = Text(f"{at}  ", "dim")
    return made.append(f"{run}  ", "cyan") if run else made
