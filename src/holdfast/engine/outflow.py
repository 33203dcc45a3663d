"""What was written to streams and is not in the store yet.

Text collects here, and one row is made of all that came to a stream in a tenth of a second, or sooner if there is much of
it. Whatever else the run records comes behind what waits, and in the same commit if it can. So no outcome is ever durable
while text that was written before it is not, and the end of a stream costs no commit of its own.

Text that waits counts as a write on its way: meanwhile the run does not leave memory. Before the run is live nothing may be
written, and so nothing leaves.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from holdfast.engine.receipts import Receipt
from holdfast.runtime import Placed
from holdfast.store.appends import Append
from holdfast.store.streams import Piece

if TYPE_CHECKING:
    from holdfast.engine.recorder import Recorder

FLUSH_S: Final = 0.1
FLUSH_CHARACTERS: Final = 16_384  # so much in one row, at about the most
MOST_CHARACTERS: Final = 131_072  # not in the store yet: then whoever writes must wait


class Landed(Receipt):
    """So many characters are in the store."""

    __slots__ = ("_outflow", "_size")

    def __init__(self, recorder: Recorder, outflow: Outflow, size: int) -> None:
        self.recorder, self._outflow, self._size = recorder, outflow, size

    def acknowledged(self, at: int) -> None:
        self._outflow.landed(self._size)


class Outflow:
    """The text of one attempt at a run on its way to the store."""

    __slots__ = ("_growing", "_recorder", "_room", "_size", "_timer", "_unwritten", "_waiting")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._waiting: list[Piece] = []
        self._growing: dict[str, Piece] = {}  # of those the last one of each stream, if it is text
        self._size = self._unwritten = 0  # characters that wait; and those together with what is being written
        self._timer: asyncio.TimerHandle | None = None
        self._room: asyncio.Event | None = None

    def add(self, piece: Piece, text: str = "") -> None:
        """The next piece of a stream: text, which may grow one that waits, or a mark."""
        growing = self._growing.get(piece.stream)
        if text and growing is not None and growing.key == piece.key and growing.attempt == piece.attempt:
            growing.parts.append(text)
            growing.position = piece.position
        else:
            if text:
                piece.parts.append(text)
                self._growing[piece.stream] = piece
            else:
                self._growing.pop(piece.stream, None)
            self._waiting.append(piece)
        self._size += len(text)
        self._unwritten += len(text)
        self.soon()

    def soon(self) -> None:
        """Have what waits written before long, if the run is live."""
        recorder = self._recorder
        if self._timer is None and self._waiting and recorder.live and not recorder.closing:
            recorder.unacked += 1
            with Placed(None):  # it is our timer, not the agent's
                self._timer = recorder.loop.call_later(FLUSH_S, self.flush, context=recorder.outside)
        if self._size >= FLUSH_CHARACTERS:
            self.flush()

    def flush(self) -> None:
        """Write what waits now."""
        recorder = self._recorder
        if self._timer is None or recorder.closing:
            return
        self._timer.cancel()
        self._timer = None
        append = Append(recorder.run.id, recorder.run.lease_epoch, recorder.next_seq, pieces=self._waiting)
        size, self._size = self._size, 0
        self._waiting = []
        self._growing.clear()
        recorder.unacked -= 1
        recorder.write(append, Landed(recorder, self, size))

    def landed(self, size: int) -> None:
        """There is room for more."""
        self._unwritten -= size
        self._recorder.rested()
        if self._room is not None and self._unwritten < MOST_CHARACTERS:
            self._room.set()
            self._room = None

    @property
    def full(self) -> bool:
        """Must whoever writes wait?"""
        return self._unwritten >= MOST_CHARACTERS

    async def room(self) -> None:
        """Wait until the store has come after."""
        while self.full:
            if self._room is None:
                self._room = asyncio.Event()
            await self._room.wait()
