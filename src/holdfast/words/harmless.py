r"""Text that others wrote, made harmless for its readers: what could steer a terminal or deceive the eye becomes a mark.

A mark is the character as Python writes it: `\x1b`, `\u202e`, `\n`. Marked is whatever is not printable (controls of a terminal,
of the direction of writing, of zero width; separators of lines; tags; half characters; what no Unicode that we know has), letters
that have no shape, and signs that combine with nothing, or too many of them with one letter. Values are never changed by this:
what programs read is exact.
"""

from __future__ import annotations

import json
import logging
import re
import unicodedata
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

# Needs no second look: ASCII, Latin letters, dashes, quotes and dots, arrows, and the signs that pictures are drawn with.
_PLAIN: Final = re.compile(
    r"[ -~\u00a1-\u00ac\u00ae-\u02ff\u2010-\u2027\u2030-\u205e\u2190-\u21ff\u2500-\u25ff\u2713\u2717]*\Z"
)
_PLAIN_LINES: Final = re.compile(_PLAIN.pattern.replace("[", "[\n", 1))
_SHAPELESS: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_VOWELS: Final = re.compile(
    "[\u1160-\u11ff\ud7b0-\ud7fb]"
)  # of Korean: drawn into the letter before, as what combines is
_STYLES: Final = "\ufe0e\ufe0f"  # say whether a symbol is drawn in colour, and are used with every other emoji
_MOST_COMBINED: Final = 4  # more of them on one letter reach into the lines above and below


def harmless(text: str, keep: str = "", before: str = "") -> str:
    """The text for people, with marks; `keep` are characters that the layout means, `before` is what stands before it."""
    if _PLAIN.match(text):
        return text
    return "".join(pieces(text, keep, before))


def pieces(text: str, keep: str = "", before: str = "") -> list[str]:
    """Say what is shown for each character."""
    return _shown(text, keep, before, _mark, exact=False)


def harmless_json(text: str) -> str:
    """Write a JSON document that says the same, and is harmless itself: the marks are those of JSON."""
    if _PLAIN_LINES.match(text):
        return text
    return "".join(_shown(text, "\n", "", lambda c: json.dumps(c)[1:-1], exact=True))


class _Harmless(logging.Filter):
    """A record is one line, whatever it repeats of what runs, models and senders said."""

    def filter(self, record: logging.LogRecord) -> bool:
        if silent.get():
            return False
        told = record.getMessage()
        if (shown := harmless(told)) != told:
            record.msg, record.args = shown, None
        if record.exc_info and not record.exc_text:
            trace = logging.Formatter().formatException(record.exc_info)
            if (shown := harmless(trace, keep="\n")) != trace:
                record.exc_text = shown
        return True


_FILTER: Final = _Harmless()
silent: Final[ContextVar[bool]] = ContextVar(
    "silent", default=False
)  # here runs are only tried: nothing of them is news


def logger(name: str) -> logging.Logger:
    """A logger of our own: what it logs is harmless to its readers, whatever handlers there are."""
    made = logging.getLogger(name)
    made.addFilter(_FILTER)
    return made


def _shown(text: str, keep: str, before: str, mark: Callable[[str], str], *, exact: bool) -> list[str]:
    combined = 0 if before and _carries(before[-1]) else _MOST_COMBINED
    made: list[str] = []
    for c in text:
        if " " < c <= "~":
            combined = 0
        elif c == " " or c in keep:
            combined = _MOST_COMBINED
        elif unicodedata.category(c) == "Zs":
            combined = _MOST_COMBINED
            c = c if exact else " "  # noqa: PLW2901 - what is shown for it
        elif c in _STYLES and combined == 0:
            combined = 1  # so that a second one is marked
            c = c if exact else ""  # noqa: PLW2901
        elif not c.isprintable() or _SHAPELESS.match(c):
            combined = _MOST_COMBINED
            c = mark(c)  # noqa: PLW2901
        elif _combines(c):
            combined += 1
            c = c if combined <= _MOST_COMBINED else mark(c)  # noqa: PLW2901
        else:
            combined = 0
        made.append(c)
    return made


def _carries(c: str) -> bool:
    return c.isprintable() and c != " "


def _combines(c: str) -> bool:
    return unicodedata.category(c) in ("Mn", "Me") or _VOWELS.match(c) is not None


def _mark(c: str) -> str:
    return ascii(c)[1:-1]
