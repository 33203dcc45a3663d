"""A server that listens: bound before anything else is done, and ended so that followers come back.

Signals are not its business: its caller says when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import ipaddress
import os
import socket
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import uvicorn

from holdfast.client.client import Client
from holdfast.client.edge import Edge, version
from holdfast.errors import BadArguments
from holdfast.http.app import application
from holdfast.http.auth import Tokens
from holdfast.http.codes import Codes
from holdfast.http.connections import AT_ONCE, PEER, Connection, Doors, Limits, seldom_logged
from holdfast.http.follow import Followers
from holdfast.http.oidc import Provider
from holdfast.http.origins import Origin
from holdfast.worker.health import bound

_BACKLOG: Final = 4_096
END_S: Final = 5.0  # that requests on their way have when the server ends


class _Server(uvicorn.Server):
    """Says when it answers, and leaves signals alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.answers = asyncio.Event()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().serve(sockets)
        finally:
            self.answers.set()  # or never will: waiters must not wait for ever

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or []:
            each.listen(_BACKLOG)  # as many may wait to be taken; the loop was told to take fewer in one turn
        self.answers.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def listening(host: str, port: int, path: str | None = None) -> Iterator[socket.socket]:
    """Open the socket, at an address or in a file; one that is in use is told before a store is opened."""
    listener = bound(host, port) if path is None else _bound_to(path)
    try:
        yield listener
    finally:
        listener.close()
        if path is not None:
            with contextlib.suppress(OSError):
                Path(path).unlink()


def _bound_to(path: str) -> socket.socket:
    """Bind a Unix socket for this account alone; one that nobody listens at any more is replaced."""
    if PEER is None:
        raise BadArguments(
            "--socket: this system does not say who is at the other end of a socket; use --host 127.0.0.1"
        )
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)  # from its first moment on it is nobody else's
    try:
        if _is_left_behind(path):
            Path(path).unlink()
        listener.bind(path)
        listener.listen()
    except OSError as error:
        listener.close()
        why: object = error.strerror or error
        if error.errno == errno.EADDRINUSE:
            why = "another process listens there" if Path(path).is_socket() else "a file is there that is no socket"
        raise BadArguments(f"cannot listen at {path!r}: {why}") from None
    finally:
        os.umask(before)
    return listener


def _is_left_behind(path: str) -> bool:
    """Is it a socket whose server is gone?"""
    try:
        if not stat.S_ISSOCK(Path(path).lstat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(path)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def is_local(listener: socket.socket) -> bool:
    """Can only programs of this computer come here?"""
    return listener.family == socket.AF_UNIX or ipaddress.ip_address(listener.getsockname()[0]).is_loopback


@contextlib.asynccontextmanager
async def serving(
    hf: Client,
    listener: socket.socket,
    limits: Limits | None = None,
    codes: Codes | None = None,
    url: str | None = None,
    provider: Provider | None = None,
) -> AsyncIterator[str]:
    """Answer requests as long as this lasts; the address is where. Refused for all the world without any token.

    `url` is how browsers reach it, where something stands between; without it they have sessions on this computer alone.
    """
    origin = Origin.parse(url)
    if not is_local(listener) and not any(token.revoked_at is None for token in await hf.tokens()):
        raise BadArguments(
            f"{listener.getsockname()[0]} can be reached by others, and this store has no token, so nobody could come "
            "in. Make one with `holdfast token NAME`, or serve this computer alone with --host 127.0.0.1"
        )
    guard = Tokens(hf, origin if is_local(listener) or url is not None else None, codes)
    followers, doors = Followers(Edge(hf).url), Doors((limits or Limits()).affordable())
    config = uvicorn.Config(
        application(hf, guard, followers, provider), log_config=None, access_log=False, lifespan="off", ws="none",
        root_path=origin.path,
        proxy_headers=False, server_header=False, timeout_graceful_shutdown=END_S,  # type: ignore[arg-type]
        headers=[("X-Content-Type-Options", "nosniff"), ("X-Holdfast-Version", version())],
        http=functools.partial(Connection, doors), backlog=AT_ONCE,  # type: ignore[arg-type]
    )  # fmt: skip
    server = _Server(config)
    work = asyncio.get_running_loop().create_task(server.serve([listener]))
    with seldom_logged():
        try:
            await server.answers.wait()
            if work.done():
                await work
            yield _address(listener)
        finally:
            followers.closing.set()
            server.should_exit = True
            await work


def _address(listener: socket.socket) -> str:
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
