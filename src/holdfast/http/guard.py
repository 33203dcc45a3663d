"""Who asks? A bearer token says it. Without any token, on this computer alone, it is the user who runs the server.

A web page must not be able to act as that user. It cannot ask 127.0.0.1 under the name of its own host (`Host` must be this
computer's), not from its own origin (`Origin` must be the server's), and not with a form (documents must be JSON). What a
proxy passes on comes from anywhere, so it needs a token; one that does not say what it does cannot be told from a program of this
computer. With tokens none of this is needed: no page has one by itself.
"""

from __future__ import annotations

import getpass
import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Asked

from holdfast.client import Client
from holdfast.http.problems import Refused, answer
from holdfast.people import Actor
from holdfast.tokens import SCOPES, Scope

_PASSED_ON: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody, what that person may do here, and the door of the audit: with the id of the token, if there is one."""

    actor: Actor
    scopes: frozenset[Scope]
    via: str = "http"

    def check(self, needs: Scope) -> None:
        """`Refused` if the caller may not do that."""
        if needs not in self.scopes:
            may = ", ".join(scope for scope in SCOPES if scope in self.scopes) or "nothing"
            raise Refused("forbidden", f"this token of {self.actor.name!r} may {may}, and this needs {needs!r}")


Guard = Callable[[Request], Awaitable[Caller]]


def user() -> str:
    """The name of the user who runs this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "someone"


def is_loopback(host: str) -> bool:
    """Does this name or address mean this computer, for itself alone?"""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_local(request: Request) -> None:
    """`Refused` unless a program of this computer asks, or a page that this server has sent."""
    host = request.headers.get("host", "")
    if not is_loopback(_without_port(host)):
        raise Refused("foreign_request", f"the request is for the host {host!r}, and this server is this computer's")
    origin = request.headers.get("origin")
    if origin is not None and origin != f"{request.url.scheme}://{host}":
        raise Refused("foreign_request", f"the request comes from a page of {origin!r}")
    for name in _PASSED_ON:
        if name in request.headers:
            raise Refused("foreign_request", f"the request was passed on by a proxy: it has {name!r}")


class OwnPages:
    """Refuses on every path what a page of another site makes a browser ask, unless it has a token: then it is not forged."""

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
    if site in ("none", "same-origin") or "authorization" in headers:
        return
    link = (request.method, headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == (
        "GET",
        "navigate",
        "document",
    )
    if not link or request.url.path.startswith("/api"):
        raise Refused(
            "foreign_request", f"a browser says that a page of another site asks: Sec-Fetch-Site is {site[:20]!r}"
        )


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return (name if name and port.isdigit() else host).strip("[]").lower()


@dataclass(frozen=True, slots=True)
class Tokens:
    """Asks the store who has a token. `local` is who acts without one while the store has none, if anybody may."""

    hf: Client
    local: Actor | None

    async def __call__(self, request: Request) -> Caller:
        given = request.headers.get("authorization")
        if given is None:
            if self.local is None or await self.hf.tokens():
                raise _unauthorized("this needs a token")
            check_local(request)
            return Caller(self.local, frozenset(SCOPES))
        scheme, _, secret = given.partition(" ")
        if scheme.lower() != "bearer":
            raise _unauthorized(f"the scheme {scheme[:20]!r} is not known here; it is Bearer")
        token = await self.hf.token_of(secret.strip())
        if token is None:
            raise _unauthorized("this token is not known, or was revoked")
        return Caller(Actor(token.name, token.groups), frozenset(token.scopes), f"http:{token.id}")


def _unauthorized(message: str) -> Refused:
    return Refused("unauthorized", message, {"WWW-Authenticate": 'Bearer realm="holdfast"', "Connection": "close"})
