"""Receivers of notifications for tests: real servers on loopback, in threads of their own.

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

from aiosmtpd.smtp import SMTP

PATIENCE_S = 60.0  # a bound, never a measure


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


class Receiver:
    """Receives webhooks. `behave` says how one is answered: a status, bytes as they are, or "hang", "drip", "close", "half"."""

    def __init__(
        self, behave: Callable[[Request], int | bytes | str] = lambda _: 204, secure: ssl.SSLContext | None = None
    ) -> None:
        self.behave, self.requests, self.held, self.port = behave, list[Request](), list[Request](), 0
        self._secure = secure
        self.start()

    @property
    def url(self) -> str:
        return f"{'http' if self._secure is None else 'https'}://localhost:{self.port}/hooks/T0/secret?key=hidden"

    def start(self) -> None:
        """Listen, at the same port as before."""
        self._over, self._threads, self._open = threading.Event(), list[threading.Thread](), set[socket.socket]()
        self._here = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self.port = self._here.getsockname()[1]
        self._begin(self._take)

    def stop(self) -> None:
        """Break off all connections, and listen no more."""
        self._over.set()
        for each in (self._here, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for each in self._threads:
            each.join(PATIENCE_S)
            assert not each.is_alive()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if not self._over.is_set():
            self.stop()

    def _begin(self, what: Callable[..., None], *arguments: Any) -> None:
        self._threads.append(threading.Thread(target=what, args=arguments, daemon=True))
        self._threads[-1].start()

    def _take(self) -> None:
        with self._here:
            while not self._over.is_set():
                try:
                    connection, _ = self._here.accept()
                except OSError:
                    return
                self._open.add(connection)
                self._begin(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, contextlib.suppress(OSError, ValueError, KeyError):
                if self._secure is None:
                    self._answer(connection)
                else:
                    with self._secure.wrap_socket(connection, server_side=True) as wrapped:
                        self._answer(wrapped)
        finally:
            self._open.discard(connection)

    def _answer(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            head = stream.readline().decode("latin-1").split()
            lines = iter(lambda: stream.readline().decode("latin-1").strip(), "")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            length = int(headers["content-length"])
            body = stream.read(length)
        if len(body) < length or self._over.is_set():
            return
        request = Request(head[1], headers, body)
        answer = self.behave(request)
        self.requests.append(request)
        if answer == "hang":
            self.held.append(request)
            self._over.wait()
        elif answer == "drip":
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
            while not self._over.wait(0.01):
                connection.sendall(b"x")
        elif answer == "half":
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhal")
        elif isinstance(answer, int):
            connection.sendall(f"HTTP/1.1 {answer} X\r\ncontent-length: 2\r\n\r\nok".encode())
        elif isinstance(answer, bytes):
            connection.sendall(answer)


class MailServer:
    """Receives mail, with aiosmtpd. `refuse` says what is answered in place of taking a mail."""

    def __init__(self, refuse: Callable[[Any], str | None] = lambda _: None) -> None:
        self.refuse, self.mails = refuse, list[Any]()
        listening = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main(listening)), daemon=True)
        self._thread.start()
        assert listening.wait(PATIENCE_S)

    async def _main(self, listening: threading.Event) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await self._loop.create_server(lambda: SMTP(self, loop=self._loop), "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        listening.set()
        await self._over.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=5)  # those who sent are about to leave

    async def handle_DATA(self, server, session, envelope) -> str:  # noqa: N802 - aiosmtpd calls it so
        self.mails.append(envelope)
        return self.refuse(envelope) or "250 OK"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
