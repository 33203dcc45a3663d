"""Reading a stream, in any process: from the beginning or from an offset, and live until its run is over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Literal, cast

from holdfast.client.base import Base
from holdfast.errors import BadArguments
from holdfast.store.changes import News
from holdfast.values.text import is_whole, short
from holdfast.words.model import FINISHED
from holdfast.words.salvage import Reason

_FIRST_PAGE, _PAGE = (
    2,
    32,
)  # rows; each has up to 16 Ki characters, and they stay in memory while a slow reader takes them
_REASONS: Final[dict[str, Reason | None]] = {
    "completed": None,
    "failed": "failed",
    "cancelled": "cancelled",
    "moved": "cancelled",  # here; its writer goes on in another store
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a stream.

    Every character counts one, and so does every mark. A reader that has seen this chunk goes on with `after=chunk.offset`;
    one that has seen only n characters of it goes on at `offset - len(data) + n`.

    Attributes:
        offset: The place behind it.
        data: The text.
        kind: "data"; "restart": what the attempt before wrote is void; "end": this text is over, and another may follow as
            long as the run is not over.
        attempt: The attempt that wrote it.
        reason: Why a text was restarted or ended early; None at a good end.

    Example:
        ```python
        offset = 0
        async for chunk in run.stream("answer", follow=False):
            offset = chunk.offset
        ```
    """

    offset: int
    data: str
    kind: Literal["data", "restart", "end"]
    attempt: int
    reason: Reason | None = None


def checked_offset(after: int) -> int:
    """The offset itself; `BadArguments` if it is none."""
    if not is_whole(after, 0):
        raise BadArguments(f"after={short(after)}: give the offset of the last chunk seen, or 0")
    return after


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream in a list.

    Attributes:
        name: The stream.
        offset: The place behind its last chunk.
        size_bytes: How large it is.
        ended: The last text is over; until the run is, another may follow.
        attempt: The attempt that wrote last.
        reason: Why the last text ended early.

    Example:
        ```python
        sizes = {stream.name: stream.size_bytes for stream in await run.streams()}
        ```
    """

    name: str
    offset: int
    size_bytes: int
    ended: bool
    attempt: int
    reason: Reason | None


async def chunks(client: Base, run: str, name: str, after: int, follow: bool) -> AsyncIterator[Chunk]:
    """Read a stream from an offset on. It is over when the run is: until then, another text may follow an ended one."""
    checked, size = after == 0, _FIRST_PAGE
    with client._listening(run, News.GREW) as heard:
        while True:
            heard.clear()
            row = await client._run_row(run)
            page = await client.store.pieces(run, name, after, size)
            size = min(size * 2, _PAGE)
            for piece in page:
                data = piece.text[after - piece.position :] if piece.kind == "data" else ""
                after = piece.position
                if piece.kind != "break":
                    kind = cast('Literal["data", "restart", "end"]', piece.kind)
                    yield Chunk(after, data, kind, piece.attempt, piece.reason)
            if page:
                checked = True
                continue
            if not checked:
                await _check_reached(client, run, name, after)
                checked = True
            if not follow:
                return
            if row.status in FINISHED:
                last = next((each for each in await client.store.streams(run) if each.stream == name), None)
                if last is None or last.kind != "end":  # its writer could not say so
                    yield Chunk(after, "", "end", last.attempt if last else 1, _REASONS[row.status])
                return
            await client._pause_for(heard)


async def _check_reached(client: Base, run: str, name: str, after: int) -> None:
    """Refuse an offset beyond the end of a stream: no reader has seen more than there is, so it is another stream's."""
    last = next((each.position for each in await client.store.streams(run) if each.stream == name), 0)
    if after > last:
        raise BadArguments(f"after={after}: stream {name!r} of run {run!r} has come to {last}")


async def streams(client: Base, run: str) -> list[StreamInfo]:
    """List the streams of a run."""
    await client._run_row(run)
    found = await client.store.streams(run)
    sizes = await client.store.stream_sizes(run) if found else {}
    return [
        StreamInfo(each.stream, each.position, sizes.get(each.stream, 0), each.kind == "end", each.attempt, each.reason)
        for each in found
    ]
