"""Changes as a short text, for other processes: one run per line, after a mark that says how much changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from holdfast.store.contract import News

_MARKS: Final = "-=!+"  # one per level of News
_LONGEST: Final = 1_024
_MANY: Final = 30  # more runs than this are not named one by one


def written(changes: Mapping[str, News]) -> str:
    """Many changes, or long names, are cut down to the mark alone: something changed somewhere."""
    if len(changes) <= _MANY:
        text = "\n".join(_MARKS[news] + run for run, news in changes.items())
        if len(text) <= _LONGEST:
            return text
    return _MARKS[max(changes.values())]


def read(text: str) -> Iterator[tuple[str, News]]:
    """What such a text says; lines that say nothing are passed over, as anybody may have sent them."""
    for line in text.splitlines():
        if line and line[0] in _MARKS:
            yield line[1:], News(_MARKS.index(line[0]))
