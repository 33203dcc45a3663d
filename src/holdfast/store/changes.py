"""Changes: how much a commit changed of which runs, for listeners here, and as a short text for other processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final

_MARKS: Final = "-=!+"  # one per level of News
_LONGEST: Final = 1_024
_MANY: Final = 30  # more runs than this are not named one by one


class News(IntEnum):
    """Degree to which a commit changed a run: each level includes those before it."""

    GREW = 0  # its journal has more events
    MOVED = 1  # its status is another one
    STOPPED = 2  # it ended, or was paused
    DUE = 3  # a worker should look at it: its owner if it has one, any worker otherwise


# What a commit, or several, changed that a listener may be waiting for, by run. An empty name: look at everything.
Changes = Mapping[str, News]


def as_text(changes: Changes) -> str:
    """Write one run per line, after a mark that says how much changed; many changes, or long names, become the mark alone."""
    if len(changes) <= _MANY:
        text = "\n".join(_MARKS[news] + run for run, news in changes.items())
        if len(text) <= _LONGEST:
            return text
    return _MARKS[max(changes.values())]


def from_text(text: str) -> Iterator[tuple[str, News]]:
    """Yield what such a text says; lines that say nothing are passed over, because any program may have sent them."""
    for line in text.splitlines():
        if line and line[0] in _MARKS:
            yield line[1:], News(_MARKS.index(line[0]))
