"""The debugger: Python's own, in an agent's code, while its calls get what was recorded. Look here for `holdfast replay --debug`.

A replay is made twice. The first stops at the point, and says at which line the code is there and how many outcomes it has seen. In
the second, which has the whole record, the debugger opens at that line when as many have been seen; so `next` goes over a call to
the line behind it, with the result that was recorded. Where the record ends, the debugger closes.
"""

from __future__ import annotations

import pdb  # noqa: T100 - a person asks for it
import sys
from bdb import BdbQuit
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any, Final

from holdfast.rehearsal.frames import Frame
from holdfast.values.failures import is_users

_SKIPPED: Final = ("holdfast", "holdfast.*", "asyncio", "asyncio.*", "contextlib", "functools", "_asyncio")
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
        self.left = False
        self._turn: Callable[[], int] = lambda: 0
        self._seen, self._lines = 0, frozenset[tuple[str, int]]()
        self._code: CodeType | None = None
        self._known: dict[str, bool] = {}
        self._opened = False

    def aim(self, seen: int, frames: Sequence[Frame], task: str) -> None:
        """Open where a task is at one of these frames, and as many outcomes have been seen."""
        of_task = [frame for frame in frames if frame.task == task] or list(frames)
        innermost = {frame.task: frame for frame in of_task}
        self._seen = seen
        self._lines = frozenset((frame.file, frame.line) for frame in innermost.values())

    def aim_at(self, code: CodeType | None) -> None:
        """Open at the first line of this function."""
        self._code = code

    # In the thread of the code

    def begin(self, turn: Callable[[], int]) -> None:
        """Look at every line of the user's from now on; `turn` counts the outcomes that were seen."""
        self._turn = turn
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
        if self._code is not None:
            return frame.f_code is self._code
        return (frame.f_code.co_filename, frame.f_lineno) in self._lines and self._turn() == self._seen

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        try:
            return super().trace_dispatch(frame, event, arg)
        except BdbQuit:
            self.left = True
            sys.settrace(None)
            raise Left from None

    def user_exception(self, frame: FrameType, exc_info: Any) -> None:
        """Say nothing of how a coroutine returns."""
        if not issubclass(exc_info[0], StopIteration):
            super().user_exception(frame, exc_info)

    def get_stack(self, f: FrameType | None, t: Any) -> tuple[list[tuple[FrameType, int]], int]:
        """The frames of the user's alone."""
        stack, at = super().get_stack(f, t)
        own = [entry for entry in stack if is_users(entry[0].f_code.co_filename)]
        return (own, len(own) - 1) if own else (stack, at)
