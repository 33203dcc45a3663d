"""Login: a browser of this computer begins a session with a code or a token, and ends it: POST and DELETE of /session."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from holdfast.client.client import Client
from holdfast.client.documents import json_bytes
from holdfast.client.tokens import id_in
from holdfast.http.auth import Tokens, check_local, cookie_of, unauthorized
from holdfast.http.connections import KEY, Connection
from holdfast.http.errors import Refused
from holdfast.http.requests import answered, document_of
from holdfast.http.sessions import SESSION_S

_MOST_BYTES: Final = 1_000


class Entrance:
    """Serves one path."""

    def __init__(self, hf: Client, guard: Tokens) -> None:
        self._hf, self._guard = hf, guard

    async def serve(self, request: Request) -> Response:
        """Answer a request, whatever happens."""
        return await answered(self._hf, request, "/session", self._answer(request))

    async def _answer(self, request: Request) -> Response:
        sessions, name = self._guard.sessions, cookie_of(request)
        if sessions is None:
            raise unauthorized("there are sessions only where a server is for this computer alone")
        check_local(request)
        if request.method == "DELETE":
            cookie = request.cookies.get(name, "")
            scheme, _, key = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "session" or sessions.token(cookie, key.strip()) is None:
                raise unauthorized("this session is over, or the request has only one half of it")
            sessions.end(cookie)
            response = Response(status_code=204)
            response.delete_cookie(name)
            return response
        given = await _given(request)
        if "code" in given:
            id = sessions.taken(given["code"])
            token = None if id is None else await self._hf.good_token(id)
            if token is None:
                raise unauthorized(
                    "this code is over: it is good once, for a minute. Start the server again for another"
                )
        else:
            token = await self._hf.token_of(given["token"])
        caller = self._guard.known(token, id_in(given.get("token", "")))
        assert token is not None
        cookie, key = sessions.begin(token.id)
        left_s = SESSION_S
        if token.expires_at is not None:
            left_s = min(left_s, max(int((token.expires_at - datetime.now(UTC)).total_seconds()), 0))
        response = Response(json_bytes({"name": caller.actor.name, "key": key, "seconds": left_s}), 201,
                            media_type="application/json")  # fmt: skip
        response.set_cookie(name, cookie, max_age=left_s, httponly=True, samesite="strict")
        return response


async def _given(request: Request) -> dict[str, str]:
    """`{"code": ...}` or `{"token": ...}`; who sends it is nobody yet, so it is short and comes soon."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused("not_json", "the document is no JSON")
    connection: Connection = request.scope[KEY]
    async with connection.strangers_body(request, _MOST_BYTES) as text:
        found: Any = document_of(text)
    if not isinstance(found, dict) or found.keys() not in ({"code"}, {"token"}):
        raise Refused("bad_json", 'send {"code": "..."} or {"token": "..."}')
    if not all(isinstance(word, str) and word.isascii() for word in found.values()):
        raise Refused("bad_json", "a code and a token are text")
    return found
