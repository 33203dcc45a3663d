"""Identity: a bearer token says who asks, or a session that began with one; on a Unix socket the system says it.

Sessions and sockets are for this computer: what comes from elsewhere could only come through something that passes it on. So
`Host` must be this computer's, `Origin` the server's own, and nothing may say that it was passed on. Tokens may come from anywhere:
no page and no proxy has one by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Asked

from holdfast.client.client import Client
from holdfast.client.edge import Edge, user
from holdfast.client.refusals import Try
from holdfast.client.tokens import RENEW, SCOPES, Scope, Token, id_in
from holdfast.errors import HoldfastError
from holdfast.http.connections import KEY
from holdfast.http.errors import Refused, answer
from holdfast.http.page import path_in
from holdfast.http.sessions import Sessions, digest
from holdfast.values.text import cut
from holdfast.words.harmless import logger
from holdfast.words.people import Actor

# What proxies, tunnels and content networks add, each in its own way.
_PASSED_ON: Final = re.compile(
    r"forwarded|via|x-forwarded.*|x-original-.*|x-rewrite-url|(x-|true-|x-cluster-|fastly-)?client-ip|x-real-.*|x-host|x-proxy.*"
    r"|(cf|fly|fastly|ngrok|tailscale|wl-proxy|cdn|x-envoy|x-amzn?|x-amz-cf|x-azure|x-appengine|x-arr|x-vercel|x-nf|x-varnish)-.*"
    r"|x-varnish|client-ip|proxy-.*"
)
_NOTED_S: Final = 60.0  # how often that a token is used is written down
_WARNED_S: Final = 24 * 3600  # how often it is said that one expires soon
_log = logger("holdfast.http")


Door = Literal["token", "session", "socket", "app"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody, what that person may do here, and the door of the audit: with the id of the token, or the user of the computer."""

    actor: Actor
    scopes: frozenset[Scope]
    via: str
    session: str = ""  # which one, if it is one: it can end before its token does
    kind: Door = "token"
    ends_at: datetime | None = None  # the credential, if it ends by itself

    def check(self, needs: Scope) -> None:
        """Refuse what the caller may not do."""
        if needs not in self.scopes:
            may = ", ".join(scope for scope in SCOPES if scope in self.scopes) or "nothing"
            told = f"this token of {self.actor.name!r} may {may}, and this needs {needs!r}"
            raise Refused("forbidden", told, about={"by": self.actor.name, "via": self.via})


Guard = Callable[[Request], Awaitable[Caller]]


def is_loopback(host: str) -> bool:
    """Does this name or address mean this computer, for itself alone?"""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_local(request: Request) -> None:
    """Refuse all but programs of this computer, and pages that this server has sent, that ask directly."""
    host = request.headers.get("host", "")
    if not is_loopback(_without_port(host)):
        raise Refused("foreign_request", f"the request is for the host {host!r}, and this server is this computer's")
    origin = request.headers.get("origin")
    if origin is not None and origin != f"{request.url.scheme}://{host}":
        raise Refused("foreign_request", f"the request comes from a page of {origin!r}")
    for name in request.headers:
        if _PASSED_ON.fullmatch(name):
            raise Refused("foreign_request", f"the request was passed on by a proxy: it has {cut(name, 40)!r}")


class OwnPages:
    """Refuses on every path what a page of another site makes a browser ask, unless it has a token: then it is not forged.

    A session is no token: its page is this server's own. What comes for a hook has its own proof, and no browser adds it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Asked, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            try:
                _check_page(Request(scope))
            except Refused as refused:
                app = answer(refused)
        await app(scope, receive, send)


def _check_page(request: Request) -> None:
    headers = request.headers
    site = headers.get("sec-fetch-site", "none")
    proved = headers.get("authorization", "").lower().startswith("bearer ") or path_in(request.scope).startswith(
        "/hooks/"
    )
    if site in ("none", "same-origin") or proved:
        return
    link = (request.method, headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == (
        "GET",
        "navigate",
        "document",
    )
    if not link or path_in(request.scope).startswith("/api/"):
        raise Refused(
            "foreign_request", f"a browser says that a page of another site asks: Sec-Fetch-Site is {site[:20]!r}"
        )


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return (name if name and port.isdigit() else host).strip("[]").lower()


class Tokens:
    """Asks the store who has a token. With `sessions`, this computer's browsers may begin one."""

    def __init__(self, hf: Client, sessions: Sessions | None = None) -> None:
        self._hf, self.sessions = hf, sessions
        self._noted: dict[str, float] = {}  # token -> when its use was written down last
        self._warned: dict[str, float] = {}
        self._writing: set[asyncio.Task[None]] = set()

    async def __call__(self, request: Request) -> Caller:
        given = request.headers.get("authorization")
        if given is None:
            return self._neighbour(request)
        scheme, _, secret = given.partition(" ")
        if scheme.lower() == "session":
            token = await self._of_session(request, secret.strip())
            return replace(self.known(token), kind="session", session=digest(request.cookies[cookie_of(request)]))
        if scheme.lower() != "bearer":
            raise unauthorized(f"the scheme {scheme[:20]!r} is not known here; it is Bearer")
        return self.known(await self._hf.token_of(secret.strip()), id_in(secret.strip()))

    def known(self, token: Token | None, id: str = "") -> Caller:
        """Make the caller that has this token, or refuse; `id` is that of the token that was shown."""
        if token is None:
            raise unauthorized("this token is not known, was revoked, or has expired", token=id)
        self._note(token)
        return Caller(
            Actor(token.name, token.groups), frozenset(token.scopes), f"http:{token.id}", ends_at=token.expires_at
        )

    async def _of_session(self, request: Request, key: str) -> Token | None:
        if self.sessions is None:
            raise unauthorized("there are sessions only where a server is for this computer alone")
        check_local(request)
        token = self.sessions.token(request.cookies.get(cookie_of(request), ""), key)
        if token is None:
            raise unauthorized("this session is over")
        return await self._hf.good_token(token)

    def _neighbour(self, request: Request) -> Caller:
        """Make the caller at the other end of a Unix socket, if it is one: the user who runs this server, or root."""
        peer: int | None = request.scope[KEY].peer
        if peer not in (os.getuid(), 0):
            raise unauthorized("this needs a token")
        check_local(request)
        name = user() if peer == os.getuid() else "root"
        return Caller(Actor(name), frozenset(SCOPES), f"unix:{name}", kind="socket")

    def _note(self, token: Token) -> None:
        """Note now and then that a token is used, and warn that it expires soon."""
        now = time.monotonic()
        if now - self._noted.get(token.id, -_NOTED_S) >= _NOTED_S:
            self._noted[token.id] = now
            task = asyncio.get_running_loop().create_task(self._used(token))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)
        if token.ends_soon() and now - self._warned.get(token.id, -_WARNED_S) >= _WARNED_S:
            self._warned[token.id] = now
            at = f"{token.expires_at:%Y-%m-%d %H:%M} UTC"
            _log.warning("token %s of %s expires at %s: %s", token.id, token.name, at, RENEW)

    async def _used(self, token: Token) -> None:
        with contextlib.suppress(HoldfastError):  # a store that cannot be written can still be read
            await self._hf.token_used(token)


def cookie_of(request: Request) -> str:
    """Name a session's cookie: servers on other ports get it too, and have their own."""
    server = request.scope.get("server") or ("", 0)
    return f"holdfast_session_{server[1]}"


def unauthorized(message: str, **about: str) -> Refused:
    """Refuse a caller who is not known; what else comes on the connection is not read."""
    headers = {"WWW-Authenticate": 'Bearer realm="holdfast"', "Connection": "close"}
    return Refused("unauthorized", message, headers, about)


def note_refused(hf: Client, request: Request, path: str, refused: Refused) -> None:
    """Count a refusal for the audit, if it is about who asks."""
    if refused.code in ("unauthorized", "unverified", "forbidden", "foreign_request"):
        address = request.client.host if request.client else ""
        about = {"via": "http", "address": address, **refused.about}
        Edge(hf).note_refused(Try(f"{request.method} {path}", refused.code, **about))
