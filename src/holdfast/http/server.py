"""A server that listens: bound before anything else is done, and ended so that whoever follows comes back.

Signals are not its business: whoever runs it says when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Final

import uvicorn

from holdfast.client import Client
from holdfast.errors import BadArguments
from holdfast.http.app import application
from holdfast.http.doors import AT_ONCE, Connection, Doors, Limits, seldom_logged
from holdfast.http.following import Followers
from holdfast.http.guard import Tokens, user
from holdfast.people import Actor
from holdfast.worker.probes import bound

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
            self.answers.set()  # or never will: whoever waits must not wait for ever

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or []:
            each.listen(_BACKLOG)  # as many may wait to be taken; the loop was told to take fewer in one turn
        self.answers.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """The socket; a port that is in use is told before a store is opened."""
    listener = bound(host, port)
    try:
        yield listener
    finally:
        listener.close()


@contextlib.asynccontextmanager
async def serving(hf: Client, listener: socket.socket, limits: Limits | None = None) -> AsyncIterator[str]:
    """Answer requests as long as this lasts; the address is where. Refused for all the world without any token."""
    host, port = listener.getsockname()[:2]
    local = Actor(user()) if ipaddress.ip_address(host).is_loopback else None
    if local is None and not any(token.revoked_at is None for token in await hf.tokens()):
        raise BadArguments(
            f"{host} can be reached by others, and this store has no token, so nobody could be told from anybody. Make one "
            "with `holdfast token NAME`, or serve this computer alone with --host 127.0.0.1"
        )
    followers, doors = Followers(), Doors((limits or Limits()).affordable())
    config = uvicorn.Config(
        application(hf, Tokens(hf, local), followers), log_config=None, access_log=False, lifespan="off", ws="none",
        proxy_headers=False, server_header=False, headers=[("X-Content-Type-Options", "nosniff")], timeout_graceful_shutdown=END_S,  # type: ignore[arg-type]
        http=functools.partial(Connection, doors), backlog=AT_ONCE,  # type: ignore[arg-type]
    )  # fmt: skip
    server = _Server(config)
    work = asyncio.get_running_loop().create_task(server.serve([listener]))
    with seldom_logged():
        try:
            await server.answers.wait()
            if work.done():
                await work
            yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        finally:
            followers.closing.set()
            server.should_exit = True
            await work
