"""Frames of agent code: where it is in the middle of a run, and what its variables hold. Look here for what a replay prints.

Values are shown without running code of theirs: a `__repr__` of the user's is never called, and a value that is large or deep is
shown by its beginning. Texts are exact here; whoever prints them makes them harmless.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any, Final

from holdfast.engine.loop import is_ours
from holdfast.engine.rehearsal import Stacks
from holdfast.values.failures import is_users
from holdfast.values.text import ATOMS, cut, show, type_name

MOST_FRAMES: Final = 50
MOST_VARIABLES: Final = 50
LONGEST_VALUE: Final = 200
_DEEPEST: Final = 3
_MOST_PARTS: Final = 20


@dataclass(frozen=True, slots=True)
class Frame:
    """One function of an agent in the middle of its work.

    Attributes:
        task: The task of the run, by its path; empty for the agent itself.
        function: The name of the function.
        file: The file it is in.
        line: The line it has come to.
        variables: Its local variables by name, each value as short text.

    Example:
        ```python
        replayed = await hf.replay("r-1", [report], to=1)
        assert replayed.frames[-1].variables["topic"] == "'otters'"
        ```
    """

    task: str
    function: str
    file: str
    line: int
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The file, seen from the current folder, and the line."""
        return f"{_near(self.file)}:{self.line}"


def frames(stacks: Stacks, *, variables: bool = True) -> list[Frame]:
    """List the frames of the user's code in every task of a run, the root first, the outermost of each task first."""
    found: list[Frame] = []
    for task, stack in stacks:
        own = [frame for frame in stack if is_users(frame.f_code.co_filename)]
        own = own or [frame for frame in stack if not is_ours(frame.f_code.co_filename)]
        found += [_frame(task, frame, variables) for frame in own]
        if len(found) >= MOST_FRAMES:
            break
    return found[:MOST_FRAMES]


def _frame(task: str, frame: FrameType, variables: bool) -> Frame:
    code = frame.f_code
    found: dict[str, str] = {}
    for name, value in list(frame.f_locals.items()) if variables else ():
        if name.startswith(("__", ".")) or isinstance(value, ModuleType | type) or inspect.isroutine(value):
            continue
        found[name] = shown(value)
        if len(found) == MOST_VARIABLES:
            break
    return Frame(task, code.co_name, code.co_filename, frame.f_lineno, found)


def shown(value: Any, deep: int = _DEEPEST) -> str:
    """A value in a few words, without running code of its own."""
    return cut(_shown(value, deep), LONGEST_VALUE)


def _shown(value: Any, deep: int) -> str:
    kind = type(value)
    if kind in ATOMS or kind is bytearray:
        return show(value, LONGEST_VALUE)
    if kind is dict:
        return _parts(
            "{", value.items(), lambda item: f"{_shown(item[0], deep - 1)}: {_shown(item[1], deep - 1)}", "}", deep
        )
    if kind in (list, tuple, set, frozenset):
        begin, end = "[]" if kind is list else "()" if kind is tuple else "{}"
        return _parts(begin, value, lambda item: _shown(item, deep - 1), end, deep) if value else f"{kind.__name__}()"
    fields = _fields(value, kind)
    if fields is None:
        return f"<{type_name(kind)}>"
    return _parts(f"{kind.__name__}(", fields.items(), lambda item: f"{item[0]}={_shown(item[1], deep - 1)}", ")", deep)


def _fields(value: Any, kind: type) -> dict[str, Any] | None:
    """The fields of a dataclass or a pydantic model; None of anything else."""
    names = kind.__dict__.get("__dataclass_fields__") or kind.__dict__.get("__pydantic_fields__")
    if not isinstance(names, dict):
        return None
    try:
        held: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None  # it has slots: a read of them may be code of the user's
    return {name: held[name] for name in names if name in held}


def _parts(begin: str, items: Any, write: Any, end: str, deep: int) -> str:
    if deep <= 0:
        return f"{begin}…{end}"
    made: list[str] = []
    room = LONGEST_VALUE
    for item in items:
        if len(made) == _MOST_PARTS or room < 0:
            made.append("…")
            break
        made.append(write(item))
        room -= len(made[-1]) + 2
    return begin + ", ".join(made) + end


def _near(file: str) -> str:
    """The path of a file from the current folder on, if it is below that."""
    try:
        relative = os.path.relpath(file)
    except ValueError:  # on another drive
        return file
    return file if relative.startswith("..") else relative
