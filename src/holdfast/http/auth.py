"""Identity: a bearer token names the caller, or the cookie of a session; on a Unix socket the system does.

Tokens may come from anywhere: no page and no proxy has one by itself. A browser sends its cookie by itself, so what a session asks
must be asked by a page of this server (`origins`), and, on this computer, by the account that began it: other accounts may run
servers on other ports of the same host, to which browsers send the same cookie.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal
from urllib.parse import unquote

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Asked

from holdfast.client.client import Client
from holdfast.client.edge import Edge, user
from holdfast.client.refusals import Try
from holdfast.client.sessions import Identity
from holdfast.client.tokens import RENEW, SCOPES, Scope, Token, id_in
from holdfast.errors import HoldfastError
from holdfast.http.codes import Codes
from holdfast.http.connections import KEY
from holdfast.http.errors import Refused, answer
from holdfast.http.origins import Origin, check_local
from holdfast.http.page import path_in
from holdfast.http.tries import Tries
from holdfast.values.text import cut
from holdfast.words.harmless import logger
from holdfast.words.people import Actor

_NOTED_S: Final = 60.0  # how often that a token is used is written down
_WARNED_S: Final = 24 * 3600  # how often it is said that one expires soon
_log = logger("holdfast.http")


Door = Literal["token", "session", "socket", "app"]


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller: the person, what that person may do here, and how that is known."""

    who: Identity
    kind: Door = "token"

    @property
    def actor(self) -> Actor:
        """The person."""
        return self.who.actor

    @property
    def scopes(self) -> frozenset[Scope]:
        """All that this person may do."""
        return self.who.scopes

    @property
    def via(self) -> str:
        """The door of the audit."""
        return self.who.via

    @property
    def owner(self) -> str:
        """The owner of the requests: the token, or the person where many come through one door."""
        return f"{self.via} {self.actor.name}"

    @property
    def session(self) -> str:
        """The session, if the caller has one."""
        return self.who.session

    @property
    def ends_at(self) -> datetime | None:
        """The time at which the credential ends."""
        return self.who.ends_at

    def check(self, needs: Scope) -> None:
        """Refuse what the caller may not do."""
        if needs not in self.scopes:
            may = ", ".join(scope for scope in SCOPES if scope in self.scopes) or "nothing"
            told = f"this token of {self.actor.name!r} may {may}, and this needs {needs!r}"
            raise Refused("forbidden", told, about={"by": self.actor.name, "via": self.via})


Guard = Callable[[Request], Awaitable[Caller]]
AS: Final = "x-holdfast-as"  # names the person whom a page shows as signed in


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
    headers, path = request.headers, path_in(request.scope)
    site = headers.get("sec-fetch-site", "none")
    proved = headers.get("authorization", "").lower().startswith("bearer ") or path.startswith("/hooks/")
    if site in ("none", "same-origin") or proved:
        return
    link = (request.method, headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == (
        "GET",
        "navigate",
        "document",
    )
    if not link or path.startswith("/api/"):
        raise Refused(
            "foreign_request", f"a browser says that a page of another site asks: Sec-Fetch-Site is {site[:20]!r}"
        )


class Tokens:
    """A guard that finds the owner of a token or a session in the store. Sessions need a server with an origin."""

    def __init__(self, hf: Client, origin: Origin | None = None, codes: Codes | None = None) -> None:
        self._hf, self._edge, self._origin = hf, Edge(hf), origin
        self.codes = codes
        self.tries = Tries()
        self._noted: dict[str, float] = {}  # token -> when its use was written down last
        self._warned: dict[str, float] = {}
        self._writing: set[asyncio.Task[None]] = set()

    @property
    def origin(self) -> Origin:
        """The origin of this server's pages; `Refused` if sessions are not for it."""
        if self._origin is None:
            raise unauthorized(
                "there are sessions only on this computer, and where `holdfast serve --url https://...` says how it is reached"
            )
        return self._origin

    async def __call__(self, request: Request) -> Caller:
        given = request.headers.get("authorization")
        if given is None:
            cookie = "" if self._origin is None else request.cookies.get(self._origin.cookie(request), "")
            return await self._of_session(request, cookie) if cookie else self._neighbour(request)
        scheme, _, secret = given.partition(" ")
        if scheme.lower() != "bearer":
            raise unauthorized(f"the scheme {scheme[:20]!r} is not known here; it is Bearer")
        return Caller(Identity.of_token(await self.known(request, secret.strip())))

    async def known(self, request: Request, secret: str) -> Token:
        """Find the token that has this secret, or refuse: many wrong ones from one address are not looked up any more."""
        self.tries.allow(request, secret)
        token = await self._hf.token_of(secret)
        if token is None:
            self.tries.wrong(request)
            raise unauthorized("this token is not known, was revoked, or has expired", token=id_in(secret))
        self.tries.right(secret)
        self.note(token)
        return token

    async def _of_session(self, request: Request, cookie: str) -> Caller:
        self.origin.check(request)
        who = await self._edge.session(cookie)
        if who is None:
            raise unauthorized("this session is over")
        if who.account is not None and who.account != account_of(request):
            raise unauthorized("this session was begun by another account of this computer")
        if who.token is not None:
            self.note(who.token)
        return Caller(who, "session")

    def _neighbour(self, request: Request) -> Caller:
        """Make the caller at the other end of a Unix socket, if it is one: the user that runs this server, or root."""
        peer: int | None = request.scope[KEY].peer
        if peer not in (os.getuid(), 0):
            raise unauthorized("this needs a token")
        check_local(request)
        name = user() if peer == os.getuid() else "root"
        return Caller(Identity(Actor(name), frozenset(SCOPES), f"unix:{name}"), "socket")

    def note(self, token: Token) -> None:
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


def account_of(request: Request) -> int | None:
    """Ask the system which account of this computer has the other end of the connection; None where it cannot tell."""
    found: int | None = request.scope[KEY].account()
    return found


def unauthorized(message: str, **about: str) -> Refused:
    """Refuse an unknown caller; what else comes on the connection is not read."""
    headers = {"WWW-Authenticate": 'Bearer realm="holdfast"', "Connection": "close"}
    return Refused("unauthorized", message, headers, about)


def check_shown(request: Request, caller: Caller) -> None:
    """Refuse a page that shows another person: somebody else has signed in since, in another tab of the same browser."""
    shown = request.headers.get(AS)
    if shown is not None and unquote(shown) != caller.actor.name:
        raise unauthorized(
            f"the page that asks is that of {cut(unquote(shown), 100)!r}, and in its browser {caller.actor.name!r} is signed in now"
        )


def note_refused(hf: Client, request: Request, path: str, refused: Refused) -> None:
    """Count a refusal for the audit, if it is about the caller.

    Not that of a page which asks whether there is a session, before anybody has signed in.
    """
    if path == "/api/me" and not {"authorization", "cookie"} & {*request.headers}:
        return
    if refused.code in ("unauthorized", "unverified", "forbidden", "foreign_request", "too_many_tries"):
        address = request.client.host if request.client else ""
        about = {"via": "http", "address": address, **refused.about}
        Edge(hf).note_refused(Try(f"{request.method} {path}", refused.code, **about))
