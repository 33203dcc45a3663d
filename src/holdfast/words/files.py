"""Files that are looked for: which paths a pattern fits, and by which key a file is known. No I/O.

`*` and `?` stand for characters of one name, `[ab]` for one of them, and `**` for any number of folders. As in a shell, names that
begin with a dot fit only what names the dot: programs give such names to files that they have not written whole.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from holdfast.errors import BadArguments
from holdfast.values.text import short

_WILD: Final = re.compile(r"[*?\[]")
_ANY: Final = "**"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A folder, and which paths below it are meant, name by name."""

    text: str
    folder: str
    names: tuple[str, ...]

    def fits(self, path: str) -> bool:
        """Is this path, which is below the folder, meant?"""
        return _fits(tuple(path.split("/")), self.names)

    def goes_into(self, folder: str) -> bool:
        """Can a path that is meant lie in this folder, which is below ours?"""
        return any(_fits(tuple(folder.split("/")), self.names[:count]) for count in range(len(self.names)))


def _fits(path: tuple[str, ...], names: tuple[str, ...]) -> bool:
    if not names:
        return not path
    if names[0] == _ANY:
        return _fits(path, names[1:]) or (bool(path) and not path[0].startswith(".") and _fits(path[1:], names))
    if not path or (path[0].startswith(".") and not names[0].startswith(".")):
        return False
    return fnmatchcase(path[0], names[0]) and _fits(path[1:], names[1:])


def pattern_of(text: object) -> Pattern:
    """Read a pattern, or `BadArguments` that says what one looks like."""
    if not isinstance(text, str | os.PathLike):
        raise BadArguments(f"{short(text)} is not a pattern of paths; write it as 'inbox/**/*.pdf'")
    whole = os.fspath(text)
    if not isinstance(whole, str) or not whole or whole.endswith("/") or "\0" in whole:
        raise BadArguments(f"{short(whole)} is not a pattern of files; write it as 'inbox/**/*.pdf'")
    names = whole.split("/")
    first = next((number for number, name in enumerate(names) if _WILD.search(name)), len(names) - 1)
    below = tuple(
        name
        for name, after in zip(names[first:], [*names[first + 1 :], ""], strict=True)
        if not (name == after == _ANY)
    )
    if any(name in ("", ".", "..") or (_ANY in name and name != _ANY) for name in below):
        raise BadArguments(
            f"{short(whole)}: behind the first wildcard there are plain names, patterns, and '**' by itself"
        )
    if below[-1] == _ANY:
        below += ("*",)
    return Pattern(whole, "/".join(names[:first]) or ("/" if whole.startswith("/") else "."), below)


def file_key(path: str, digest: str) -> str:
    """Name the delivery of a file: the same path with the same content is the same delivery."""
    return f"{digest.removeprefix('sha256:')[:40]}-{hashlib.sha256(path.encode()).hexdigest()[:16]}"
