"""Scripts and styles as browsers are sent them: without remarks, indentation, and spaces that mean nothing.

Look here when a browser runs something else than the file says. People read the files, with all their remarks; browsers read this.
Three promises keep the two the same, and tests hold them for every file: nothing changes inside of a text, a template or a pattern;
every line break stays, so a missing semicolon means what it meant, and an error names the line of the file; and a space goes only
where what stands at its sides cannot grow together.
"""

from __future__ import annotations

import re
from typing import Final

# A script's pieces. What a slash begins depends on what is before it, so a pattern that is found may be a division after all.
_PIECE: Final = re.compile(
    r"""
    (?P<space>   \s+ | //[^\n]* | /\*.*?\*/ )
  | (?P<text>    "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )
  | (?P<pattern> /(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]* )
  | (?P<code>    [^\s"'`/{}]+ | [`/{}] )
    """,
    re.VERBOSE | re.DOTALL,
)
# A template's own text: from its beginning, or from the end of a value in it, to the next value or to its end.
_TEMPLATE: Final = re.compile(r"[`}](?:[^`\\$]|\\.|\$(?!\{))*(?:`|\$\{)", re.DOTALL)
_VALUE: Final = re.compile(r"[\w$)\]}]$")  # a slash behind it divides
_NO_VALUE: Final = re.compile(
    r"(?<![\w$.])(?:await|case|delete|do|else|in|instanceof|new|of|return|throw|typeof|void|yield)$"
)
_WORD: Final = re.compile(r"[\w$#\\]")

_STYLE: Final = re.compile(
    r""" "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | (?P<space>(?:\s|/\*.*?\*/)+) """, re.VERBOSE | re.DOTALL
)
_ENDS, _BEGINS = "{};,:>(", "{};,>)!"  # signs of a style that need no space behind them, and none before


def lean_script(script: str) -> str:
    """Leave out what a browser does not need of a script."""
    made: list[str] = []
    gap, before, sort = "", "", ""  # what lies behind the last piece, that piece, and its sort
    values: list[int] = []  # the braces that are open in each value of a template, inside out
    at = 0
    while at < len(script):
        found = _PIECE.match(script, at)
        if found is None:
            return script  # a text has no end: the browser says so, and where
        kind, piece = str(found.lastgroup), found[0]
        if kind == "pattern" and (sort == "text" or (_VALUE.search(before) and not _NO_VALUE.search(before))):
            kind, piece = "code", "/"
        elif piece == "`" or (piece == "}" and values and not values[-1]):
            template = _TEMPLATE.match(script, at)
            if template is None:
                return script
            kind, piece = "text", template[0]
            if script[at] == "}":
                values.pop()
            if piece.endswith("${"):
                kind = "code"
                values.append(0)
        elif values and piece in ("{", "}"):
            values[-1] += 1 if piece == "{" else -1
        at += len(piece)
        if kind == "space":
            gap += "\n" * piece.count("\n") or " "
            continue
        if "\n" in gap:
            made.append("\n" * gap.count("\n"))
        elif gap and _grow_together(before, sort, piece):
            made.append(" ")
        made.append(piece)
        gap, before, sort = "", piece, kind
    return "".join(made) + "\n" * gap.count("\n")


def _grow_together(before: str, sort: str, after: str) -> bool:
    """Do two pieces mean something else without a space between them?"""
    end, begin = before[-1:], after[0]
    if _WORD.match(begin):
        return sort == "pattern" or _WORD.match(end) is not None
    return (end == begin and begin in "+-/") or (end.isdigit() and begin == ".")


def lean_style(sheet: str) -> str:
    """Leave out what a browser does not need of a sheet of styles."""

    def kept(found: re.Match[str]) -> str:
        if found["space"] is None:
            return found[0]
        if "\n" in found[0]:
            return "\n" * found[0].count("\n")
        before, after = sheet[: found.start()][-1:], sheet[found.end() :][:1]
        return "" if before in _ENDS or after in _BEGINS else " "

    return _STYLE.sub(kept, sheet)
