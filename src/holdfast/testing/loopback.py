"""HTTP/1.1 on 127.0.0.1 for tests: a server in a thread of its own that can also hang, trickle, hang up and reset.

It has a loop of its own, so it answers while the test blocks, and a connection costs no thread, so hundreds may hang. A
client that goes away (a closed socket, a process killed) cancels the answer it was waiting for; nobody else notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from email.utils import formatdate
from http.client import responses
from types import TracebackType
from typing import Self

_LONGEST_LINE = 1 << 20
_LONGEST_BODY = 1 << 28
_WAITING_TO_BE_ACCEPTED = 1024


class ClientLeft(ConnectionError):
    """The client is gone; nothing more can be said to it."""


@dataclass(frozen=True)
class Call:
    """A request as it came; the names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Reply:
    """A reply on a connection: one whole answer, or a head with chunks; or the connection is broken off."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def whole(self, status: int, headers: Mapping[str, str], body: bytes, *, left_off: int = 0) -> None:
        """Head and body; with `left_off` so many bytes of the body that the head promises are not sent."""
        head = _head(status, {**headers, "Content-Length": str(len(body))})
        self._write(head + body[: len(body) - left_off])

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self._write(_head(status, {**headers, "Transfer-Encoding": "chunked"}))

    def chunk(self, data: bytes) -> None:
        self._write(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self) -> None:
        self._write(b"0\r\n\r\n")

    def hang_up(self) -> None:
        """Close the connection, whatever was promised; what was written still arrives."""
        self._transport.close()

    def reset(self) -> None:
        """Break the connection: the client's system reports ECONNRESET."""
        now = struct.pack("ii", 1, 0)  # SO_LINGER of no time: the kernel sends RST instead of FIN
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
        self._transport.abort()

    def check(self) -> None:
        """`ClientLeft` if nobody is there to hear more."""
        if self._transport.is_closing():
            raise ClientLeft

    def _write(self, data: bytes) -> None:
        self.check()
        self._transport.write(data)


Handler = Callable[[Call, Reply], Awaitable[None]]


class Loopback:
    """The server: a port of its own (any free one for 0) from `with` on, and nothing left of it afterwards."""

    def __init__(self, handler: Handler, port: int = 0) -> None:
        self.handler = handler
        self.port = 0
        self._wanted = port
        self.connections: set[_Connection] = set()
        self.broken: BaseException | None = None  # the first error of the handler itself
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="loopback", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Break off what is under way; a handler's own error is raised here, unless the test has one already."""
        self.call(self._stop.set)
        self._thread.join()
        if self.broken is not None and error is None:
            raise self.broken

    def call(self, function: Callable[[], object]) -> None:
        """Call this on the server's loop, and wait until it is done."""
        done: Future[object] = Future()
        self._loop.call_soon_threadsafe(lambda: done.set_result(function()))
        done.result()

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            server = await self._loop.create_server(
                lambda: _Connection(self), "127.0.0.1", self._wanted, backlog=_WAITING_TO_BE_ACCEPTED
            )
        except OSError as error:
            self._started.set_exception(error)
            return
        self.port = server.sockets[0].getsockname()[1]
        self._started.set_result(None)
        await self._stop.wait()
        server.close()
        open_ones = list(self.connections)
        for connection in open_ones:
            connection.transport.abort()  # a client that does not read would keep a mere close() waiting
        await asyncio.gather(*(connection.task for connection in open_ones), return_exceptions=True)
        await asyncio.sleep(0)  # the transports close their sockets in the loop's next turn


class _Connection(asyncio.Protocol):
    """Requests of one connection, one after the other. Not `start_server`: that one lets clients leave unnoticed."""

    def __init__(self, server: Loopback) -> None:
        self._server = server
        self._reader = asyncio.StreamReader(limit=_LONGEST_LINE)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.task = asyncio.get_running_loop().create_task(self._serve())
        self.task.add_done_callback(self._over)
        self._server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self._reader.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.task.cancel()
        self._server.connections.discard(self)

    def _over(self, task: asyncio.Task[None]) -> None:
        self.transport.close()
        if not task.cancelled() and self._server.broken is None:
            self._server.broken = task.exception()

    async def _serve(self) -> None:
        reply = Reply(self.transport)
        with contextlib.suppress(ClientLeft):
            while True:
                try:
                    call = await _read(self._reader, self.transport)
                except ValueError as problem:
                    reply.whole(400, {"Connection": "close"}, f"{problem}\n".encode())
                    return
                await self._server.handler(call, reply)
                if call.headers.get("connection", "").lower() == "close":
                    return


async def _read(reader: asyncio.StreamReader, transport: asyncio.Transport) -> Call:
    """The next request; `ValueError` for what is none."""
    request = (await reader.readline()).decode("latin-1").split()
    if len(request) != 3 or not request[2].startswith("HTTP/1."):
        raise ValueError(f"not the first line of an HTTP/1.1 request: {' '.join(request)!r}")
    headers: dict[str, str] = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("expect", "").lower() == "100-continue":
        transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _chunks(reader)
    else:
        body = await reader.readexactly(_size(headers.get("content-length", "0"), 10))
    return Call(request[0], request[1].partition("?")[0], headers, body)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := _size((await reader.readline()).decode("latin-1").partition(";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    while (await reader.readline()).strip():
        pass  # trailers
    return bytes(body)


def _size(text: str, base: int) -> int:
    size = int(text, base)
    if not 0 <= size <= _LONGEST_BODY:
        raise ValueError(f"a body or chunk of {size} bytes; at most {_LONGEST_BODY} are read")
    return size


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {responses.get(status, '')}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"Date: {formatdate(usegmt=True)}", "", ""]).encode("latin-1")
