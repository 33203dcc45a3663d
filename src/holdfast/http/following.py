"""Following what comes: histories and streams as `text/event-stream`, resumable by the id of the last message seen.

A follower first reads what there is at its own pace. Once it has caught up it shares a *tail* with all others that follow
the same: the store is read once for them, and each message is made once. A tail keeps a bounded piece of the end; a follower
that is too slow for it reads by itself again. So nothing is kept for a slow one but what is on its way to it, and nothing is
lost or told twice, for a place in a history means the same in every process and for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.documents import json_bytes
from holdfast.http.problems import Refused, problem

MOST_FOLLOWERS: Final = 1_000  # of one server
_TAIL_BYTES: Final = 128 * 1024
_AT_ONCE_BYTES: Final = 16 * 1024
_SIGN_OF_LIFE_S: Final = 15.0
_SEND_S: Final = 60.0  # who takes nothing for so long is gone
_COME_BACK: Final = b"retry: 1000\n\n"

Message = tuple[int, bytes]  # the place behind it, and how it is told


@dataclass(frozen=True, slots=True)
class Source:
    """Something that can be followed. `read(after, follow)` are its items with the places behind them."""

    key: Hashable
    read: Callable[[int, bool], AsyncIterator[tuple[int, Any]]]

    async def messages(self, after: int, *, follow: bool) -> AsyncIterator[Message]:
        """Its items as messages."""
        async for place, document in self.read(after, follow):
            yield place, b"id: %d\ndata: %b\n\n" % (place, json_bytes(document))


class Tail:
    """The end of a source, read once for all who have come so far."""

    def __init__(self, source: Source, after: int) -> None:
        self.start = after  # all that came behind this place is kept
        self.users = 0
        self._kept: deque[Message] = deque()
        self._size = 0
        self.over = False
        self._problem: Exception | None = None
        self._news = asyncio.Event()
        self._reading = asyncio.get_running_loop().create_task(self._read(source))

    async def _read(self, source: Source) -> None:
        try:
            async for message in source.messages(self.start, follow=True):
                self._kept.append(message)
                self._size += len(message[1])
                while self._size > _TAIL_BYTES and len(self._kept) > 1:
                    self.start, gone = self._kept.popleft()
                    self._size -= len(gone)
                self._tell()
        except Exception as error:  # noqa: BLE001 - it is told to those who follow
            self._problem = error
        finally:
            self.over = True
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def behind(self, place: int) -> list[Message] | None:
        """What came behind a place, waiting for it; nothing when it is over, None when too much came since."""
        while True:
            if place < self.start:
                return None
            found = [message for message in self._kept if message[0] > place]
            if found:
                return found
            if self._problem is not None:
                raise self._problem
            if self.over:
                return []
            await self._news.wait()

    async def close(self) -> None:
        """Read no more."""
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading


class Followers:
    """All who follow something at this server."""

    def __init__(self) -> None:
        self.closing = asyncio.Event()
        self.count = 0
        self._tails: dict[Hashable, Tail] = {}

    async def follow(self, source: Source, after: int) -> AsyncGenerator[bytes, None]:
        """Messages behind a place, several in one piece, until the source is over."""
        while True:
            began_at, pieces, size = after, list[bytes](), 0
            async for place, message in source.messages(began_at, follow=False):
                after = place
                pieces.append(message)
                size += len(message)
                if size >= _AT_ONCE_BYTES:
                    yield b"".join(pieces)
                    pieces, size = [], 0
            if pieces:
                yield b"".join(pieces)
            async with self._sharing(source, after) as tail:
                if tail.start <= after:
                    while found := await tail.behind(after):
                        after = found[-1][0]
                        yield b"".join(message for _, message in found)
                    if found is not None:
                        return
                    continue
            if after == began_at:  # there is nothing between us and a tail that begins later: it is no place of ours
                async for _, message in source.messages(after, follow=True):
                    yield message
                return

    @contextlib.asynccontextmanager
    async def _sharing(self, source: Source, after: int) -> AsyncIterator[Tail]:
        tail = self._tails.get(source.key)
        if tail is None or tail.over:  # what is over may have begun again, as when a run is retried
            tail = self._tails[source.key] = Tail(source, after)
        tail.users += 1
        try:
            yield tail
        finally:
            tail.users -= 1
            if not tail.users:
                if self._tails.get(source.key) is tail:
                    del self._tails[source.key]
                await tail.close()

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """One more, while this lasts."""
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1

    def response(self, source: Source, after: int, allowed: Callable[[], Awaitable[object]]) -> Response:
        """The answer to one who wants to follow; `allowed` raises when that is no longer so."""
        if self.count >= MOST_FOLLOWERS:
            told = f"{self.count} others follow something at this server, and it takes no more"
            raise Refused("too_busy", told, {"Retry-After": "5"})
        return _Followed(self, source, after, allowed)


class _Followed(Response):
    """Sends what comes until it is over, the reader is gone, or the server ends: then the reader comes back by itself."""

    media_type = "text/event-stream"

    def __init__(
        self, followers: Followers, source: Source, after: int, allowed: Callable[[], Awaitable[object]]
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._followers, self._source, self._after, self._allowed = followers, source, after, allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        leaving = [loop.create_task(_gone(receive)), loop.create_task(self._followers.closing.wait())]
        try:
            with self._followers.counted(), contextlib.suppress(TimeoutError):
                await self._send(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await self._body(send, _COME_BACK)
                async with contextlib.aclosing(self._pieces(leaving)) as pieces:
                    async for piece in pieces:
                        await self._body(send, piece)
                await self._body(send, b"", more=False)
        finally:
            for each in leaving:
                each.cancel()

    async def _pieces(self, leaving: list[asyncio.Task[Any]]) -> AsyncGenerator[bytes, None]:
        """What comes, a sign of life now and then, and at the end how it ended; nothing any more when one is to leave."""
        loop = asyncio.get_running_loop()
        coming = self._followers.follow(self._source, self._after)
        next_piece = asyncio.ensure_future(anext(coming, b""))
        looked_at = loop.time()
        try:
            while True:
                await asyncio.wait([next_piece, *leaving], timeout=_SIGN_OF_LIFE_S, return_when=asyncio.FIRST_COMPLETED)
                if any(each.done() for each in leaving):
                    return
                if loop.time() > looked_at + _SIGN_OF_LIFE_S:
                    await self._allowed()
                    looked_at = loop.time()
                if not next_piece.done():
                    yield b":\n\n"
                    continue
                piece = next_piece.result()
                yield piece or b"event: end\ndata: {}\n\n"
                if not piece:
                    return
                next_piece = asyncio.ensure_future(anext(coming, b""))
        except Exception as error:  # noqa: BLE001 - the headers are sent; what is left is to say it in the stream
            yield b"event: problem\ndata: %b\n\n" % json_bytes(problem(error)[1])
        finally:
            next_piece.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await next_piece
            await coming.aclose()

    async def _body(self, send: Send, body: bytes, *, more: bool = True) -> None:
        await self._send(send, {"type": "http.response.body", "body": body, "more_body": more})

    @staticmethod
    async def _send(send: Send, message: dict[str, Any]) -> None:
        async with asyncio.timeout(_SEND_S):
            await send(message)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
