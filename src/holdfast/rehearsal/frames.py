"""Frames of agent code: where it is in the middle of a run, and what its variables hold. Look here for what a replay prints.

Values are shown without running code of theirs: a `__repr__` of the user's is never called, and a value that is large or deep is
shown by its beginning, as much of it as there is `Room` for. Texts are exact here; the printer makes them harmless.
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


@dataclass(frozen=True, slots=True)
class Room:
    """Bounds of what is shown of a value."""

    longest: int = LONGEST_VALUE
    deepest: int = 3
    parts: int = 20


BRIEF: Final = Room()
WHOLE: Final = Room(100_000, 20, 10_000)


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


def frames(stacks: Stacks, room: Room | None = BRIEF) -> list[Frame]:
    """List the frames of the user's code in every task of a run, the root first, the outermost of each task first.

    Without room for them no variables are shown.
    """
    own = [(task, frame) for task, stack in stacks for frame in stack if is_users(frame.f_code.co_filename)]
    if not own:  # an application may be installed as a library is
        own = [(task, frame) for task, stack in stacks for frame in stack if not is_ours(frame.f_code.co_filename)]
    return [_frame(task, frame, room) for task, frame in own[:MOST_FRAMES]]


def _frame(task: str, frame: FrameType, room: Room | None) -> Frame:
    code = frame.f_code
    found: dict[str, str] = {}
    for name, value in list(frame.f_locals.items()) if room is not None else ():
        if name.startswith(("__", ".")) or isinstance(value, ModuleType | type) or inspect.isroutine(value):
            continue
        found[name] = shown(value, room or BRIEF)
        if len(found) == MOST_VARIABLES:
            break
    return Frame(task, code.co_name, code.co_filename, frame.f_lineno, found)


def shown(value: Any, room: Room = BRIEF) -> str:
    """A value in as many words as there is room for, without running code of its own."""
    return cut(_shown(value, room, room.deepest), room.longest)


def _shown(value: Any, room: Room, deep: int) -> str:
    kind = type(value)
    if kind in ATOMS or kind is bytearray:
        return show(value, room.longest)

    def inner(each: Any) -> str:
        return _shown(each, room, deep - 1)

    if kind is dict:
        return _parts("{", value.items(), lambda item: f"{inner(item[0])}: {inner(item[1])}", "}", room, deep)
    if kind in (list, tuple, set, frozenset):
        begin, end = "[]" if kind is list else "()" if kind is tuple else "{}"
        return _parts(begin, value, inner, end, room, deep) if value else f"{kind.__name__}()"
    fields = _fields(value, kind)
    if fields is None:
        return f"<{type_name(kind)}>"
    return _parts(f"{kind.__name__}(", fields.items(), lambda item: f"{item[0]}={inner(item[1])}", ")", room, deep)


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


def _parts(begin: str, items: Any, write: Any, end: str, room: Room, deep: int) -> str:
    if deep <= 0:
        return f"{begin}…{end}"
    made: list[str] = []
    left = room.longest
    for item in items:
        if len(made) == room.parts or left < 0:
            made.append("…")
            break
        made.append(write(item))
        left -= len(made[-1]) + 2
    return begin + ", ".join(made) + end


def _near(file: str) -> str:
    """The path of a file from the current folder on, if it is below that."""
    try:
        relative = os.path.relpath(file)
    except ValueError:  # on another drive
        return file
    return file if relative.startswith("..") else relative
