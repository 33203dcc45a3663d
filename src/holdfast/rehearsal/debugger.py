"""The debugger: Python's own, in an agent's code, while its calls get what was recorded. Look here for `holdfast replay --debug`.

A replay is made twice. The first stops at the point, and says at which line the code is there, and how often it has come to that
line. In the second, which has the whole record, the debugger opens when it comes there as often; so `next` goes over a call to the
line behind it, with the result that was recorded. Where the record ends, the debugger closes.
"""

from __future__ import annotations

import pdb  # noqa: T100 - a person asks for it
import sys
from bdb import BdbQuit
from collections import Counter
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any, Final

from holdfast.rehearsal.frames import Frame
from holdfast.runtime import here
from holdfast.values.failures import is_users
from holdfast.words.harmless import harmless

_SKIPPED: Final = ("holdfast", "holdfast.*", "asyncio", "asyncio.*", "contextlib", "functools", "_asyncio")
_Line = tuple[str, str, int]  # of a task: its path, the file, the number
_HELP: Final = (
    "n: the next line, with what was recorded; s: into a function; p NAME; w: where; c: on to the end; q: leave"
)


class Left(KeyboardInterrupt):
    """The person has left the debugger. No agent's code should catch it, and asyncio lets it through."""


class Debugger(pdb.Pdb):
    """Opens at one point of a replay."""

    def __init__(self) -> None:
        super().__init__(skip=_SKIPPED, nosigint=True)
        self.prompt = "(holdfast) "
        self.opens = self.left = False  # it may open; the person has left it
        self._seen: Counter[_Line] = Counter()
        self._target: tuple[_Line, int] | None = None
        self._code: CodeType | None = None
        self._known: dict[str, bool] = {}
        self._opened = False

    def aim(self, frames: Sequence[Frame], task: str, code: CodeType | None) -> None:
        """Open where a replay has stopped: in this task, if it has a frame there, or at the first line of the agent."""
        at = next((frame for frame in reversed(frames) if frame.task == task), None) or next(reversed(frames), None)
        line = None if at is None else (at.task, at.file, at.line)
        if line is None or not self._seen[line]:
            self._code = code
        else:
            self._target = line, self._seen[line]
        self._seen = Counter()

    def aim_at(self, code: CodeType | None) -> None:
        """Open at the first line of this function."""
        self._code = code

    # In the thread of the code

    def begin(self) -> None:
        """Look at every line of the user's from now on."""
        sys.settrace(self._enter)

    def end(self) -> None:
        """Look no more, because the record is at its end."""
        sys.settrace(None)
        if self._opened and not self.left:
            self.message("-- the record ends here --")

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if file not in self._known:
            self._known[file] = is_users(file)
        return self._look if self._known[file] else None

    def _look(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event != "line" or not self._is_there(frame):
            return self._look
        self._opened = True
        self.message(_HELP)
        self.set_trace(frame)
        return self.trace_dispatch(frame, event, argument)

    def _is_there(self, frame: FrameType) -> bool:
        if self._code is not None and self.opens:
            return frame.f_code is self._code
        line = getattr(here(), "path", ""), frame.f_code.co_filename, frame.f_lineno
        self._seen[line] += 1
        return self._target == (line, self._seen[line])

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        try:
            return super().trace_dispatch(frame, event, arg)
        except BdbQuit:
            self.left = True
            sys.settrace(None)
            raise Left from None

    def message(self, msg: str) -> None:
        """Print, with nothing in it that could steer the terminal: errors say what runs and models wrote."""
        super().message(harmless(str(msg), keep="\n\t"))

    def error(self, msg: str) -> None:
        """Print an error, likewise."""
        super().error(harmless(str(msg), keep="\n\t"))

    def user_exception(self, frame: FrameType, exc_info: Any) -> None:
        """Say nothing of how a coroutine returns."""
        if not issubclass(exc_info[0], StopIteration):
            super().user_exception(frame, exc_info)

    def get_stack(self, f: FrameType | None, t: Any) -> tuple[list[tuple[FrameType, int]], int]:
        """The frames of the user's alone."""
        stack, at = super().get_stack(f, t)
        own = [entry for entry in stack if is_users(entry[0].f_code.co_filename)]
        return (own, len(own) - 1) if own else (stack, at)
