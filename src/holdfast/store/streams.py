"""The part of the contract with a database that has to do with streams: text that a run writes while it is made.

A stream is a sequence of rows, each at a position: every character counts one, and so does every mark. The position of a
row is the one behind it. Rows are written with the appends of the run's owner, so they are fenced and ordered as events
are, and the owner alone knows where a stream stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

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
    """A piece as it is kept, in the order of `insert_chunk`."""
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


class StreamStore(Protocol):
    """Where streams are kept."""

    async def pieces(self, run: str, stream: str, after: int, limit: int = 500) -> Sequence[Piece]:
        """The rows of a stream behind a position, in order; the first may begin before it."""
        ...

    async def streams(self, run: str) -> list[Piece]:
        """The last row of each stream of a run, without its text."""
        ...

    async def stream_sizes(self, run: str) -> dict[str, int]:
        """How many bytes of text each stream of a run has; reads all of them."""
        ...
