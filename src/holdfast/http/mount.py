"""The server as an application to mount in another one: the same paths and the same page, behind that one's own sign-in.

The caller is what `auth` says of the request. What a browser may send by itself, such as the cookie of the other
application, is no proof that its page has asked: so whatever changes something needs the header of our page, which no
other site can send, unless it has a token.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import AsyncExitStack
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.client.client import Client
from holdfast.client.edge import Edge, version
from holdfast.client.sessions import Identity
from holdfast.client.tokens import SCOPES
from holdfast.errors import BadArguments
from holdfast.http.app import application
from holdfast.http.auth import Caller, Tokens, unauthorized
from holdfast.http.callers import SignIn
from holdfast.http.connections import KEY, Doors, Guest, Limits
from holdfast.http.errors import Refused
from holdfast.http.follow import Followers
from holdfast.http.origins import PAGE, Origin
from holdfast.words.people import Actor

Known = Actor | tuple[Actor, Iterable[str]] | None
Auth = Callable[[Request], Known | Awaitable[Known]]
_ADDED: Final = ((b"x-content-type-options", b"nosniff"), (b"x-holdfast-version", version().encode()))


class Embedded(Tokens):
    """A guard that asks the other application for the user, unless there is a token of ours."""

    def __init__(self, hf: Client, auth: Auth) -> None:
        super().__init__(hf)
        self._auth = auth

    async def __call__(self, request: Request) -> Caller:
        if request.headers.get("authorization", "").lower().startswith("bearer holdfast_"):
            return await super().__call__(request)
        _check_meant(request)
        found = self._auth(request)
        known: Known = (await found) if inspect.isawaitable(found) else found
        if known is None:
            raise unauthorized("the application that this server is a part of does not know who asks")
        actor, scopes = known if isinstance(known, tuple) else (known, SCOPES)
        if isinstance(scopes, str) or not set(scopes) <= set(SCOPES):
            raise TypeError(
                f"auth= gave {scopes!r} as what a person may; give some of {SCOPES}, such as (actor, ['read'])"
            )
        may = [scope for scope in SCOPES if scope in scopes]
        return Caller(Identity(Actor.of(actor), frozenset(may), "app"), "app")


def _check_meant(request: Request) -> None:
    """Refuse what a page of another site could make a browser send."""
    if request.method in ("GET", "HEAD"):
        return
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    if origin is not None and urlsplit(origin).netloc != host:
        raise Refused("foreign_request", f"the request comes from a page of {origin[:100]!r}, and this is {host!r}")
    if request.headers.get(PAGE) != "1":
        raise Refused(
            "foreign_request", "send the header X-Holdfast-Page: 1, which says that it was no page of another site"
        )


class Mounted:
    """An ASGI application. It is open as long as its client is; served alone, it opens and closes the client itself."""

    def __init__(self, hf: Any, auth: Auth | None, url: str | None) -> None:
        self._hf: Client = hf
        self._auth = auth
        self._origin = None if url is None else Origin.parse(url)
        self._doors = Doors(Limits())
        self._followers: Followers | None = None
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the life of the application."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _live(self, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as life:
            await receive()
            try:
                if not Edge(self._hf).is_open:
                    await life.enter_async_context(self._hf)
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                raise
            await send({"type": "lifespan.startup.complete"})
            await receive()
            if self._followers is not None:
                self._followers.closing.set()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not Edge(self._hf).is_open:
            raise BadArguments(
                "open the client first: `async with hf:` in the lifespan of the application that it is mounted in"
            )
        if self._app is None:
            self._app = self._made()
        guest = Guest(self._doors, (scope.get("client") or ("",))[0])
        scope[KEY] = guest

        async def marked(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_ADDED]
            await send(message)

        try:
            await self._app(scope, receive, marked)
        finally:
            guest.leave()

    def _made(self) -> ASGIApp:
        self._followers = Followers(Edge(self._hf).url)
        guard = Tokens(self._hf, self._origin) if self._auth is None else Embedded(self._hf, self._auth)
        app = application(self._hf, guard, self._followers)
        app.state.ways = SignIn(token=self._auth is None and self._origin is not None, oidc=None)
        return app
