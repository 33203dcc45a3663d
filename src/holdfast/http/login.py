"""Login: a browser begins a session with a token, a code or a link, and ends it: POST and DELETE of /session."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from holdfast.client.client import Client
from holdfast.client.documents import json_bytes
from holdfast.client.edge import Edge
from holdfast.client.sessions import Begun, Identity
from holdfast.http.auth import Tokens, account_of, unauthorized
from holdfast.http.connections import KEY, Visit
from holdfast.http.errors import Refused
from holdfast.http.requests import answered, document_of

_MOST_BYTES: Final = 1_000
_WAYS: Final = ({"code"}, {"token"}, {"link"})


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
            if not caller.session:
                raise unauthorized("this request has no session that could end")
            await self._edge.end_session(caller.session)
            response = Response(status_code=204)
            self._set(request, response, "", 0)
            return response
        who, whose = await self._shown(request, await _given(request))
        begun = await self.begin(request, who, whose)
        response = Response(
            json_bytes({"name": who.actor.name, "seconds": begun.seconds}), 201, media_type="application/json"
        )
        self.admit(request, response, begun)
        return response

    async def begin(self, request: Request, who: Identity, whose: str) -> Begun:
        """Begin a session of somebody who is known; without TLS it is the account's that asks."""
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
        """Find who has shown this, and whose session it becomes."""
        if "link" in given:
            self._guard.tries.allow(request, given["link"])
            who = await self._edge.link(given["link"])
            if who is None:
                self._guard.tries.wrong(request)
                raise unauthorized(f"{await self._edge.why_over(given['link'])}. Ask for another")
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


async def _given(request: Request) -> dict[str, str]:
    """Read what is shown; who sends it is nobody yet, so it is short and comes soon."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused("not_json", "the document is no JSON")
    connection: Visit = request.scope[KEY]
    async with connection.strangers_body(request, _MOST_BYTES) as text:
        found: Any = document_of(text)
    if not isinstance(found, dict) or found.keys() not in _WAYS:
        raise Refused("bad_json", 'send {"token": "..."}, {"code": "..."} or {"link": "..."}')
    if not all(isinstance(word, str) and word.isascii() for word in found.values()):
        raise Refused("bad_json", "a token, a code and a link are text")
    return found
