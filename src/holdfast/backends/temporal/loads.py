"""The load of a workflow task: its commands go to the server in one message, and the server takes no more than 4 MiB in one.

So bytes are counted, and what does not fit waits, in order, for the next workflow task, which a timer of a millisecond brings. A
text counts as long as it is, even where it lies in a folder then: so the count depends on nothing but the code and the history,
and is the same on every replay.

An update goes back to the server too, with the task that takes it or refuses it. So a decision only names a large value, which
comes before it as a signal.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.backends.temporal.records import Piece
from holdfast.values.text import size

PAYLOADS: Final = 1_900_000  # bytes of the arguments of one command: the server refuses 2 MiB
_TASK: Final = (
    2_000_000  # bytes of what is counted of one task; beside that its message has a result, a memo and answers
)
_SOON_S: Final = 0.001
ELSEWHERE: Final = (  # what to do with a value that is too large
    "name a folder for large values in the URL of all workers and clients (?blobs=FOLDER), or put it into a file or an object "
    "store and keep its address"
)


def weight(value: object) -> int:
    """Measure a value as it travels."""
    return len(json.dumps(value, separators=(",", ":")))


def too_long(run: str) -> str:
    """Say of a journal that it cannot be carried, and what to do."""
    return (
        f"the journal of run {run!r} has more than {PAYLOADS:,} bytes, too many for a payload of Temporal's. Let its agent take "
        "checkpoints, or name a folder for large values in the URL, of workers and clients: ?blobs=FOLDER"
    )


def escaped(arguments: str, travels: int) -> str:
    """Say of arguments that they travel as too many bytes, and what to do."""
    return (
        f"the arguments: {size(len(arguments))} travel as {size(travels)}, because of what is escaped in them (quotes, "
        f"backslashes, line breaks), and a cluster takes {size(PAYLOADS)}; {ELSEWHERE}"
    )


class Load:
    """Counts what workflow tasks of one execution take to the cluster; `length` is that of its history, which tells them apart."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, later: Callable[..., Any], outside: contextvars.Context, length: Callable[[], int]
    ) -> None:  # fmt: skip
        self._loop, self._later, self._outside, self._length = loop, later, outside, length
        self._at, self._counted = -1, 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._turns = False  # a timer brings the next task
        self.unsent = Unsent(self)
        self.asides: dict[str, str] = {}  # large values that came before the decisions that name them

    @property
    def left(self) -> int:
        """Tell how many bytes this task still takes."""
        at = self._length()
        if at != self._at:
            self._at, self._counted = at, 0
        return max(0, _TASK - self._counted)

    @property
    def is_empty(self) -> bool:
        return self.left == _TASK

    def count(self, size: int) -> None:
        """Count bytes that go with this task."""
        _ = self.left
        self._counted += size

    def takes(self, size: int) -> bool:
        """Count these bytes, if they go with this task; whatever is the first does."""
        if size > self.left and not self.is_empty:
            return False
        self.count(size)
        return True

    async def room(self, size: int) -> None:
        """Wait for a task that takes so many bytes, behind all that wait already."""
        if self._waiting or not self.takes(size):
            await self._wait(size)

    async def next(self) -> None:
        """Wait for another task."""
        await self._wait(0)

    async def _wait(self, size: int) -> None:
        waits: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((size, waits))
        self.turn()
        await waits

    def turn(self) -> None:
        """See that there is a next task."""
        if not self._turns:
            self._turns = True
            self._later(_SOON_S, self._turned, context=self._outside)

    def _turned(self) -> None:
        self._turns = False
        while self._waiting:
            size, waits = self._waiting[0]
            if not waits.done():
                if not self.takes(size):
                    self.turn()
                    return
                waits.set_result(None)
            self._waiting.popleft()


class Unsent:
    """Pieces that were recorded and are not in the history yet, in order."""

    def __init__(self, load: Load) -> None:
        self._load, self._pieces = load, deque[tuple[int, Piece]]()
        self.weight = 0

    def __len__(self) -> int:
        return len(self._pieces)

    def add(self, piece: Piece, cut: Callable[[Piece], Sequence[Piece]]) -> None:
        """Add a piece; `cut` makes several of one that is too large for a payload."""
        size = weight(piece) + 1
        if size > PAYLOADS and len(parts := cut(piece)) > 1:
            for part in parts:
                self._add(part, weight(part) + 1)
        else:
            self._add(piece, size)

    def _add(self, piece: Piece, size: int) -> None:
        self._pieces.append((size, piece))
        self.weight += size

    def take(self, room: int = PAYLOADS, *, last: bool = False) -> list[Piece]:
        """Take the first of them, as many as go with this task and into this room, for a command that takes them there.

        `last`: all of them, which are few: there is no next task.
        """
        taken: list[Piece] = []
        while self._pieces:
            size, piece = self._pieces[0]
            if size > room and (taken or room < PAYLOADS):
                break
            if not self._load.takes(size) and not last:
                break
            taken.append(piece)
            room -= size
            self.weight -= size
            self._pieces.popleft()
        return taken
