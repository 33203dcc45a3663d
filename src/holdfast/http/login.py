"""Login: a browser begins a session with a token, a code or a link, and ends it: POST and DELETE of /session.

A link is looked at before it is used: its browser may be in as somebody else, and what it was for may be no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from holdfast.client.client import Client
from holdfast.client.documents import json_bytes
from holdfast.client.edge import Edge
from holdfast.client.sessions import Begun, Identity
from holdfast.http.auth import Tokens, account_of, check_shown, unauthorized
from holdfast.http.connections import KEY, Visit
from holdfast.http.errors import Refused
from holdfast.http.requests import answered, document_of

_MOST_BYTES: Final = 1_000
_WAYS: Final = ({"code"}, {"token"}, {"link"}, {"look"})


@dataclass(frozen=True, slots=True)
class Changed:
    """A change of the value that a link is for: the person who made it, and when."""

    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Sight:
    """A link, as its holder may know it before it is used."""

    name: str
    question: str
    decides: bool  # until a person has replaced the value that it is for, or decided
    changed: Changed | None


class Entrance:
    """Serves one path."""

    def __init__(self, hf: Client, guard: Tokens) -> None:
        self._hf, self._edge, self._guard = hf, Edge(hf), guard

    async def serve(self, request: Request) -> Response:
        """Answer a request, whatever happens."""
        return await answered(self._hf, request, "/session", self._answer(request))

    async def _answer(self, request: Request) -> Response:
        origin = self._guard.origin
        origin.check(request)
        if request.method == "DELETE":
            caller = await self._guard(request)
            check_shown(request, caller)
            if not caller.session:
                raise unauthorized("this request has no session that could end")
            await self._edge.end_session(caller.session)
            response = Response(status_code=204)
            self._set(request, response, "", 0)
            return response
        given = await _given(request)
        if "look" in given:
            who = await self._linked(request, given["look"])
            return Response(json_bytes(await self._sight(who)), 200, media_type="application/json")
        who, whose = await self._shown(request, given)
        begun = await self.begin(request, who, whose)
        response = Response(
            json_bytes({"name": who.actor.name, "seconds": begun.seconds}), 201, media_type="application/json"
        )
        self.admit(request, response, begun)
        return response

    async def begin(self, request: Request, who: Identity, whose: str) -> Begun:
        """Begin a session of a known user; without TLS it belongs to the account that asks."""
        account = None if self._guard.origin.is_secret else account_of(request)
        return await self._edge.begin_session(who, whose, account)

    def admit(self, request: Request, response: Response, begun: Begun) -> None:
        """Give the browser the cookie of a session that has begun."""
        self._set(request, response, begun.cookie, begun.seconds)

    def _set(self, request: Request, response: Response, cookie: str, seconds: int) -> None:
        origin = self._guard.origin
        response.set_cookie(
            origin.cookie(request), cookie, max_age=seconds, secure=origin.is_secret, httponly=True, samesite="strict"
        )

    async def _shown(self, request: Request, given: dict[str, str]) -> tuple[Identity, str]:
        """Find the user that these credentials prove, and the owner of the session."""
        if "link" in given:
            who = await self._linked(request, given["link"])
            return who, f"link {who.via.partition(':')[2]}"
        if "code" in given:
            id = None if self._guard.codes is None else self._guard.codes.taken(given["code"])
            token = None if id is None else await self._hf.good_token(id)
            if token is None:
                raise unauthorized(
                    "this code is over: it is good once, for a minute. Start the server again for another"
                )
            self._guard.note(token)
        else:
            token = await self._guard.known(request, given["token"])
        return Identity.of_token(token), f"token {token.id}"

    async def _linked(self, request: Request, secret: str) -> Identity:
        """Find the person who may decide by a link, or refuse."""
        self._guard.tries.allow(request, secret)
        who = await self._edge.link(secret)
        if who is None:
            self._guard.tries.wrong(request)
            raise unauthorized(await self._edge.why_over(secret))
        return who

    async def _sight(self, who: Identity) -> Sight:
        """Say which person a link is for, and which person has replaced the value that it is for."""
        assert who.question is not None  # it is a link's
        asked = await self._hf.approval(who.question)
        last = asked.changes[-1] if asked.digest != who.shown and asked.changes else None
        changed = None if last is None else Changed(last.by, last.at)
        decides = asked.status == "open" and asked.digest == who.shown
        return Sight(who.actor.name, who.question, decides, changed)


async def _given(request: Request) -> dict[str, str]:
    """Read the credentials; the sender is not known yet, so they are short and come soon."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused("not_json", "the document is no JSON")
    connection: Visit = request.scope[KEY]
    async with connection.strangers_body(request, _MOST_BYTES) as text:
        found: Any = document_of(text)
    if not isinstance(found, dict) or found.keys() not in _WAYS:
        raise Refused(
            "bad_json", 'send {"token": "..."}, {"code": "..."} or {"link": "..."}; {"look": "..."} looks at a link'
        )
    if not all(isinstance(word, str) and word.isascii() for word in found.values()):
        raise Refused("bad_json", "a token, a code and a link are text")
    return found
