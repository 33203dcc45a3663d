"""Followers of histories and streams: what comes is sent as `text/event-stream`, resumable by the id of the last message seen.

A follower first reads what there is at its own pace. Once it has caught up it shares a *tail* with all others that follow
the same: the store is read once for them, and each message is made once. A tail keeps a bounded piece of the end; a follower
that is too slow for it reads by itself again. So nothing is kept for a slow one but what is on its way to it, and nothing is
lost or told twice, because a place in a history means the same in every process and for ever.

The feed of several databases is the exception: each reader is given places of its own, so two of them are not compared as numbers.
A follower shares a tail there only if something that the tail has read ends where the follower is, in every database.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.client.documents import json_bytes
from holdfast.errors import HoldfastError
from holdfast.http.connections import KEY, Connection, Guest, gone
from holdfast.http.errors import Refused, problem

MOST_FOLLOWERS: Final = 1_000  # of one server
_TAIL_BYTES: Final = 128 * 1024
_AT_ONCE_BYTES: Final = 16 * 1024
_PIECES: Final = 16  # of a tail that are kept joined
_READING: Final = 16
_SIGN_OF_LIFE_S: Final = 15.0
LOOK_S: Final = 1.0  # between looks whether waiting callers still may
_COME_BACK: Final = b"retry: 1000\n\n"

Message = tuple[int, bytes]  # the place behind it, and how it is told


@dataclass(frozen=True, slots=True)
class Source:
    """Something that can be followed. `read(after, follow)` are its items with the places behind them."""

    key: Hashable
    read: Callable[[int, bool], AsyncGenerator[tuple[int, Any], None]]
    # Tells whether two readers are at the same place. None: places are numbers that mean the same to all of them.
    alike: Callable[[int, int], bool] | None = None
    # Its name and documents: what is told beside the items and has no place among them. A follower gets the last one first.
    beside: tuple[str, Callable[[], AsyncIterator[Any]]] | None = None

    async def messages(self, after: int, *, follow: bool) -> AsyncGenerator[Message, None]:
        """Read its items as messages."""
        async with contextlib.aclosing(self.read(after, follow)) as found:
            async for place, document in found:
                yield place, b"id: %d\ndata: %b\n\n" % (place, json_bytes(document))


@dataclass(frozen=True, slots=True)
class Permission:
    """A caller's permission. `check` raises `Refused` once it was taken back; callers with the same key share it."""

    key: Hashable
    check: Callable[..., Awaitable[object]]
    token: str = ""  # whose it is

    async def lost(self) -> Refused:
        """Wait until it is taken back. A store that is away takes nothing back."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.check()
            except Refused as refused:
                return refused
            except Exception:  # noqa: BLE001, S112 - whatever else it is, it takes nothing back
                continue


class Tail:
    """The end of a source, read once for all followers that have come so far."""

    def __init__(self, source: Source, after: int) -> None:
        self.start = after  # all that came behind this place is kept
        self.users = 0
        self._kept: deque[Message] = deque()
        self._size = 0
        self._pieces: dict[int, Message] = {}  # by the place that each is behind: made once for all followers there
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
        except Exception as error:  # noqa: BLE001 - it is told to the followers
            self._problem = error
        finally:
            self.over = True
            self._tell()

    def _tell(self) -> None:
        self._pieces.clear()
        self._news.set()
        self._news = asyncio.Event()

    def place_of(self, source: Source, after: int) -> int | None:
        """Find the place in this tail of a follower that has read so far; None: it cannot go on here."""
        if source.alike is None:
            return after if self.start <= after else None
        following: int | None = None  # the first that the follower has not seen
        for place in (*(place for place, _ in reversed(self._kept)), self.start):
            if place == after or source.alike(place, after):
                # Its reader is told places that grow.
                return max(place, after) if following is None or following > after else None
            following = place
        return None

    async def behind(self, place: int) -> Message | None:
        """Wait for what comes behind a place, in one piece; an empty one when it is over, None when too much came since."""
        while place >= self.start:
            if self._kept and self._kept[-1][0] > place:
                return self._piece(place)
            if self._problem is not None:
                raise self._problem
            if self.over:
                return place, b""
            await self._news.wait()
        return None

    def _piece(self, place: int) -> Message:
        """Join what is kept behind a place."""
        piece = self._pieces.get(place)
        if piece is None:
            behind = itertools.takewhile(lambda message: message[0] > place, reversed(self._kept))
            piece = _joined(list(behind)[::-1])
            if len(self._pieces) >= _PIECES:
                self._pieces.clear()
            self._pieces[place] = piece
        return piece

    async def close(self) -> None:
        """Read no more."""
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading


class Board:
    """The last word of what is told beside a source, read once for all followers, who need no words before it."""

    def __init__(self, name: str, read: Callable[[], AsyncIterator[Any]]) -> None:
        self.users = self._count = 0
        self._last = b""
        self._news = asyncio.Event()
        self._reading = asyncio.get_running_loop().create_task(self._read(name.encode(), read))

    async def _read(self, name: bytes, read: Callable[[], AsyncIterator[Any]]) -> None:
        with contextlib.suppress(HoldfastError):  # what is wrong with the source is told by the source
            async for document in read():
                self._last, self._count = b"event: %b\ndata: %b\n\n" % (name, json_bytes(document)), self._count + 1
                self._news.set()
                self._news = asyncio.Event()

    async def newer(self, seen: int) -> tuple[int, bytes]:
        """Wait for a word after the ones that were seen; returns it with its number."""
        while self._count <= seen:
            await self._news.wait()
        return self._count, self._last

    async def close(self) -> None:
        """Read no more."""
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading


class Followers:
    """All callers that follow something at this server."""

    def __init__(self, where: str = "") -> None:
        self.where = where  # the store is, which no caller is told
        self.closing = asyncio.Event()
        self.count = 0
        self._here: dict[str, dict[asyncio.Future[None], None]] = {}  # by token, the oldest first: what ends each
        self._tails: dict[Hashable, Tail] = {}
        self._boards: dict[Hashable, Board] = {}
        self._reading = asyncio.Semaphore(_READING)
        self._looking: dict[Hashable, asyncio.Task[Refused]] = {}
        self._waiting: Counter[Hashable] = Counter()

    async def follow(self, source: Source, after: int) -> AsyncGenerator[Message, None]:
        """Read messages behind a place, several in one piece, until the source is over; each with the place behind it."""
        while True:
            began_at = after
            async with contextlib.aclosing(source.messages(after, follow=False)) as messages:
                while piece := await self._some(messages):
                    after = piece[0]
                    yield piece
                    del piece
            async with self._sharing(source, after) as tail:
                place = tail.place_of(source, after)
                if place is not None:
                    after = place
                    while (piece := await tail.behind(after)) is not None:
                        if piece[0] == after:
                            return
                        after = piece[0]
                        yield piece
                        del piece  # it must not be kept while a slow reader takes it
                    continue
            if after == began_at:  # there is nothing between us and a tail that begins later: it is no place of ours
                async for each in source.messages(after, follow=True):
                    yield each
                return

    async def _some(self, messages: AsyncIterator[Message]) -> Message | None:
        """Read the next of them as one piece. Few read at a time: what is read is many times as large while it is made."""
        found, size = list[Message](), 0
        async with self._reading:
            while size < _AT_ONCE_BYTES and (message := await anext(messages, None)):
                found.append(message)
                size += len(message[1])
            return _joined(found) if found else None

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

    @contextlib.asynccontextmanager
    async def beside(self, source: Source) -> AsyncIterator[Board | None]:
        """Share the board of a source, if it has one."""
        if source.beside is None:
            yield None
            return
        board = self._boards.get(source.key)
        if board is None:
            board = self._boards[source.key] = Board(*source.beside)
        board.users += 1
        try:
            yield board
        finally:
            board.users -= 1
            if not board.users:
                del self._boards[source.key]
                await board.close()

    @contextlib.contextmanager
    def counted(self, token: str) -> Iterator[asyncio.Future[None]]:
        """Count one more follower of this token in this block; it is to leave when this is done."""
        leaving = asyncio.get_running_loop().create_future()
        self.count += 1
        self._here.setdefault(token, {})[leaving] = None
        try:
            yield leaving
        finally:
            self._forget(token, leaving)

    def _forget(self, token: str, leaving: asyncio.Future[None]) -> None:
        beside = self._here.get(token, {})
        if leaving in beside:
            self.count -= 1
            del beside[leaving]
            if not beside:
                del self._here[token]

    def _make_room(self, token: str) -> None:
        """Send the oldest follower of the token that has most away, to come back later; refuse where that would be no fairer."""
        largest = max(self._here, key=lambda each: len(self._here[each]))
        if len(self._here[largest]) <= len(self._here.get(token, ())) + 1:
            told = f"{self.count} others follow something at this server, and it takes no more"
            raise Refused("too_busy", told, {"Retry-After": "5"})
        leaving = next(iter(self._here[largest]))
        self._forget(largest, leaving)
        leaving.set_result(None)

    @contextlib.asynccontextmanager
    async def watched(self, permission: Permission) -> AsyncIterator[asyncio.Task[Refused]]:
        """Watch a permission: the task ends when it is taken back. One task looks for all callers that share it."""
        key = permission.key
        looking = self._looking.get(key)
        if looking is None:
            looking = self._looking[key] = asyncio.get_running_loop().create_task(permission.lost())
        self._waiting[key] += 1
        try:
            yield looking
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key], self._looking[key]
                looking.cancel()

    def response(self, source: Source, after: int, allowed: Permission) -> Response:
        """Make the response to a caller that wants to follow, for as long as that is allowed."""
        if self.count >= MOST_FOLLOWERS:
            self._make_room(allowed.token)
        return _Followed(self, source, after, allowed)


class _Followed(Response):
    """Sends what comes until it is over, the reader is gone, or the server ends: then the reader comes back by itself."""

    media_type = "text/event-stream"

    def __init__(self, followers: Followers, source: Source, after: int, allowed: Permission) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._followers, self._source, self._after, self._allowed = followers, source, after, allowed
        self._sending, self._sent = asyncio.Lock(), 0.0  # one message at a time; when the last one was

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection, followers = scope[KEY], self._followers
        connection.follows()
        with followers.counted(self._allowed.token) as in_the_way:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._send(send, _COME_BACK)
            async with (
                followers.watched(self._allowed) as lost,
                followers.beside(self._source) as board,
                _begun(gone(receive), followers.closing.wait(), self._say(board, send)) as (left, closing, _),
                _begun(self._follow(connection, send)) as (following,),
            ):
                ends = [in_the_way, left, closing, lost, following]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                leaves = any(each.done() for each in ends[:3])
            if not leaves:
                await self._send(send, _last_word(lost, following, followers.where))
            if not connection.is_full:  # a reader that takes nothing would keep the server from its end
                await self._send(send, b"", more=False)

    async def _follow(self, connection: Connection | Guest, send: Send) -> None:
        """Send what comes until it is over. What a reader does not take is not kept: it is read again when some was taken."""
        while True:
            async with contextlib.aclosing(self._followers.follow(self._source, self._after)) as coming:
                async for self._after, piece in coming:
                    await self._send(send, piece)
                    del piece  # it is on its way, and must not be kept while the next is waited for
                    if connection.is_full:
                        break
                else:
                    return
            await connection.drained()

    async def _say(self, board: Board | None, send: Send) -> None:
        """Send the words of the board, and a sign of life whenever nothing was sent for a while."""
        seen, loop = 0, asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout_at(self._sent + _SIGN_OF_LIFE_S):
                    if board is None:
                        await loop.create_future()
                    else:
                        seen, word = await board.newer(seen)
            except TimeoutError:
                if self._sent + _SIGN_OF_LIFE_S > loop.time():
                    continue
                word = b":\n\n"
            await self._send(send, word)

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        self._sent = asyncio.get_running_loop().time()
        async with self._sending:
            await send({"type": "http.response.body", "body": body, "more_body": more})


@contextlib.asynccontextmanager
async def _begun(*work: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Let something be done in this block, and no longer."""
    tasks = [asyncio.get_running_loop().create_task(each) for each in work]
    try:
        yield tasks
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)


def _last_word(lost: asyncio.Task[Refused], following: asyncio.Task[None], where: str) -> bytes:
    """Say how it ended: the headers are sent, so what went wrong can only be said in the stream."""
    try:
        if lost.done():
            raise lost.result()
        following.result()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        return b"event: problem\ndata: %b\n\n" % json_bytes(problem(error, where)[1])
    return b"event: end\ndata: {}\n\n"


def _joined(found: list[Message]) -> Message:
    """Join the first of some messages to one piece, which is not large unless one of them is."""
    count = size = 0
    while count < len(found) and size < _AT_ONCE_BYTES:
        size += len(found[count][1])
        count += 1
    return found[count - 1][0], b"".join(message for _, message in found[:count])
