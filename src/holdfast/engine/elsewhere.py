"""Streams of a body that runs elsewhere than its engine: in another process, which the engine hears of when the body has ended.

Look here for what a ground needs that has bodies performed by others (`Host.perform`). Where the body runs, `Desk`
stands in for the engine: it reads where streams stand, and the process that made it puts what is written into the
store. Then the engine learns where they stand now (`learn`), and marks their ends as it does for bodies of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from holdfast.engine.host import Work
from holdfast.engine.outlets import BodyStreams
from holdfast.engine.recorder import FLUSH_CHARACTERS, FLUSH_S, MOST_CHARACTERS
from holdfast.engine.streams import Streams
from holdfast.store.streams import Piece
from holdfast.words.model import RunRow


class Desk:
    """A place at which one body writes to streams."""

    closing: str | None = None
    withdrawn = False

    def __init__(
        self, store: Any, run: str, key: str, number: int, write: Callable[[Sequence[Piece]], Awaitable[None]]
    ) -> None:
        self.store, self.key, self._write = store, key, write
        self._waiting: list[Piece] = []
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self.loop = asyncio.get_running_loop()
        self.attempt = self.life = self.pen = self.outflow = self
        row = RunRow(run, "", "", "running", "{}", lease_epoch=2)  # others have written before
        self.streams = Streams(row, self, self, _Open())  # type: ignore[arg-type]
        self.body = BodyStreams(self, number)  # type: ignore[arg-type]

    def close(self, how: str) -> None:
        """Let nothing be written any more: the store did not answer."""
        self.closing = how

    # As an `Outflow`

    def add(self, piece: Piece, text: str = "") -> None:
        last = self._waiting[-1] if self._waiting else None
        if text and last is not None and (last.stream, last.key, last.attempt, last.kind) == (
            piece.stream, piece.key, piece.attempt, "data",
        ):  # fmt: skip
            last.parts.append(text)
            last.position = piece.position
        else:
            if text:
                piece.parts.append(text)
            self._waiting.append(piece)
        self._size += len(text)
        if self._task is None or self._task.done():
            self._task = self.loop.create_task(self._later())

    async def _later(self) -> None:
        while self._waiting:
            if self._size < FLUSH_CHARACTERS:
                await asyncio.sleep(FLUSH_S)
            pieces, self._waiting, self._size = self._waiting, [], 0
            await self._write(pieces)

    def flush(self) -> None:
        """Write before long, which is soon enough."""

    @property
    def full(self) -> bool:
        return self._size >= MOST_CHARACTERS

    async def room(self) -> None:
        """Wait until the store has come after."""
        if self._task is not None:
            await self._task

    async def end(self, error: Exception | None) -> list[Piece]:
        """The body has ended: all that it wrote is in the store; tells where its streams stand."""
        self.body.end(error)
        if self._task is not None:
            await self._task
        tails = [self.streams.tail(name) for name in sorted(self.body.opened)]
        return [
            Piece(tail.name, tail.position, tail.kind, tail.key, tail.attempt, tail.began, tail.reason)
            for tail in tails
            if tail.key == self.key
        ]


class _Open:
    """A container of all calls: the writer of a stream that has not ended counts as open, whichever call it is."""

    def __contains__(self, key: object) -> bool:
        return True


def learn(work: Work, pieces: Iterable[Piece]) -> None:
    """Learn where the streams stand that a body has written elsewhere."""
    body = work.context.stream
    if isinstance(body, BodyStreams):
        for piece in pieces:
            body.call.attempt.streams.learn(piece)
            body.opened |= {piece.stream}
