"""Receivers of notifications for tests: real servers on loopback, each with a thread and a loop of its own.

A receiver of webhooks answers as it is told: with a status, with a redirect, never, or half. It keeps all that came. It can
be stopped and started again at the same port, as a server that is deployed anew.
"""

import asyncio
import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

PATIENCE_S = 60.0


class Request(NamedTuple):
    """A request that came whole."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def json(self) -> Any:
        return json.loads(self.body)


class _Threaded:
    """A server in a thread."""

    def __init__(self, port: int = 0, secure: ssl.SSLContext | None = None) -> None:
        self.port, self._secure = port, secure
        self.start()

    def start(self) -> None:
        """Listen, at the same port as before."""
        listening = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main(listening)), daemon=True)
        self._thread.start()
        assert listening.wait(PATIENCE_S)

    def stop(self) -> None:
        """Break off all connections, and listen no more."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self._thread.is_alive():
            self.stop()

    async def _main(self, listening: threading.Event) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        here = socket.socket()
        here.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        here.bind(("127.0.0.1", self.port))
        self.port = here.getsockname()[1]
        server = await self._serve(here)
        listening.set()
        await self._over.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)  # connections that were broken off are closed in the next turns

    async def _serve(self, here: socket.socket) -> asyncio.Server:
        raise NotImplementedError


def until(holds: Callable[[], Any]) -> Any:
    """Wait until it is so; returns what it is."""
    end = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < end, "it never came to be so"
        time.sleep(0.005)
    return found


async def until_async(holds: Callable[[], Any]) -> Any:
    """Wait until it is so, on a loop; returns what it is."""
    end = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < end, "it never came to be so"
        await asyncio.sleep(0.005)
    return found


class Receiver(_Threaded):
    """Receives webhooks. `behave` says how one is answered: a status, bytes as they are, or "hang", "drip", "close", "half"."""

    def __init__(self, behave: Callable[[Request], int | bytes | str] = lambda _: 204, **how: Any) -> None:
        self.behave, self.requests, self.held = behave, list[Request](), 0
        super().__init__(**how)

    @property
    def url(self) -> str:
        return f"{'http' if self._secure is None else 'https'}://localhost:{self.port}/hooks/T0/secret?key=hidden"

    async def _serve(self, here: socket.socket) -> asyncio.Server:
        return await asyncio.start_server(self._connected, sock=here, ssl=self._secure)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            named = [line.partition(":") for line in head[1:] if line]
            headers = {name.lower(): value.strip() for name, _, value in named}
            body = await reader.readexactly(int(headers["content-length"]))
            request = Request(head[0].split()[1], headers, body)
            self.requests.append(request)
            answer = self.behave(request)
            if answer == "drip":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n")
            while answer == "drip":
                writer.write(b"x")
                await asyncio.sleep(0.01)
            if answer == "hang":
                self.held += 1
                await asyncio.Event().wait()
            if answer == "half":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhal")
            elif isinstance(answer, int):
                writer.write(f"HTTP/1.1 {answer} X\r\ncontent-length: 2\r\n\r\nok".encode())
            elif isinstance(answer, bytes):
                writer.write(answer)
            await writer.drain()
        if self._over.is_set():
            writer.transport.abort()
        writer.close()


class MailServer(_Threaded):
    """Receives mail, with aiosmtpd. `refuse` says what is answered in place of taking a mail."""

    def __init__(self, refuse: Callable[[Any], str | None] = lambda _: None, **how: Any) -> None:
        self.refuse, self.mails = refuse, list[Any]()
        super().__init__(**how)

    async def _serve(self, here: socket.socket) -> asyncio.Server:
        from aiosmtpd.smtp import SMTP

        return await self._loop.create_server(lambda: SMTP(self, loop=self._loop, enable_SMTPUTF8=True), sock=here)

    async def handle_DATA(self, server, session, envelope) -> str:  # noqa: N802 - aiosmtpd calls it so
        self.mails.append(envelope)
        return self.refuse(envelope) or "250 OK"
