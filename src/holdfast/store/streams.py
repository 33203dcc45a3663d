"""Streams: text that a run writes while it is made.

A stream is a sequence of rows, each at a position: every character counts one, and so does every mark. The position of a
row is the one behind it. Rows are written with the appends of the run's owner, so they are fenced and ordered as events
are, and the owner alone knows where a stream stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.store.work import Asking, Feature, rows
from holdfast.words.salvage import Reason


@dataclass(slots=True)
class Piece:
    """One row of a stream: text, or a mark. `began` is the position at which the text it belongs to begins."""

    stream: str
    position: int
    kind: str  # 'data', 'restart', 'break' (an attempt ended badly, another may come; no reader sees it), 'end'
    key: str  # of the call that wrote it
    attempt: int
    began: int
    reason: Reason | None = None
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.parts)


def chunk_row(run: str, epoch: int, piece: Piece) -> tuple[Any, ...]:
    """Make of a piece the row that is kept, in the order of `insert_chunk`."""
    content = piece.text.encode("utf-8", "surrogatepass")
    return (
        run,
        piece.stream,
        piece.position,
        piece.kind,
        content,
        piece.key,
        piece.attempt,
        piece.began,
        piece.reason,
        epoch,
    )


class Streams(Feature):
    """Streams, read. Appends write them."""

    async def pieces(self, run: str, stream: str, after: int, limit: int = 500) -> Sequence[Piece]:
        """Read the rows of a stream behind a position, in order; the first may begin before it."""
        return await self._read(_pieces, run, stream, after, limit)

    async def streams(self, run: str) -> list[Piece]:
        """Read the last row of each stream of a run, without its text."""
        return [Piece(*row) for row in await self._glance(rows, "streams", run=run)]

    async def stream_sizes(self, run: str) -> dict[str, int]:
        """Count the bytes of text of each stream of a run; reads all of them."""
        return {stream: int(size) for stream, size in await self._read(rows, "stream_sizes", run=run)}


def _pieces(run: str, stream: str, after: int, limit: int) -> Asking[list[Piece]]:
    found = yield from rows("chunks", run=run, stream=stream, position=after, limit=limit)
    made = [Piece(*row) for _, *row in found]
    for piece, row in zip(made, found, strict=True):
        if row[0]:
            piece.parts.append(row[0].decode("utf-8", "surrogatepass"))
    return made
