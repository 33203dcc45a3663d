"""Requests: each becomes a checked `Call`, and what was done a response."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
import re
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NoReturn, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from holdfast.client.aside import aside, is_large
from holdfast.client.client import Client
from holdfast.client.documents import json_bytes
from holdfast.client.edge import Edge
from holdfast.client.tokens import Scope
from holdfast.errors import BadArguments, HoldfastError, StoreUnavailable
from holdfast.http.auth import Caller, Guard, check_shown, note_refused, unauthorized
from holdfast.http.connections import KEY, Visit, while_there
from holdfast.http.errors import Refused, answer
from holdfast.http.follow import LOOK_S, Followers, Permission
from holdfast.http.glimpses import glimpse, tell_no_more
from holdfast.http.routes import Answer, Call, Endpoint, Nothing
from holdfast.http.shares import Shares
from holdfast.values.text import cut, short
from holdfast.words.people import SOMEONE

MARGIN_S: Final = 5.0  # for what is read beside a write, whose deadline says more than ours
MOST_BYTES: Final = 32 * 1024 * 1024  # of a request's document; what can be stored is less
_SMALL_BYTES: Final = 64 * 1024  # of a document that is read whatever else there is
_LARGE_AT_ONCE: Final = 4  # larger ones of one token are in memory; others wait to be read
MOST_PARTS: Final = 500_000  # values in it: what is done with each takes more time and room than what is sent
_MOST_NAMES: Final = 100  # in a document, beside those in the values that it holds
_MOST_OF_ONE: Final = 1_000  # parts of what is no value to be kept
_NUMBERS: Final = frozenset((int, float))
_NUMERAL: Final = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", re.ASCII)


async def answered(hf: Client, request: Request, path: str, work: Awaitable[Response]) -> Response:
    """Wait for the response to a request; an error becomes one too, and the audit has what was refused."""
    try:
        response = await work
    except ClientDisconnect:
        response = Response(status_code=400)  # nobody is there to read it
    except Exception as error:  # noqa: BLE001 - a fault is logged and told without its details
        response = answer(error, Edge(hf).url)
        if isinstance(error, Refused):
            note_refused(hf, request, path, error)
    response.headers["Cache-Control"] = "no-store"
    return response


class Receiver:
    """Serves the endpoints of one path."""

    def __init__(self, hf: Client, guard: Guard, followers: Followers, served: Counter[tuple[str, str, int]]) -> None:
        self._hf, self._guard, self._followers, self._served = hf, guard, followers, served
        self._rooms: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()  # by caller
        self._shares = Shares()

    async def serve(self, endpoints: dict[str, Endpoint], request: Request) -> Response:
        """Answer a request, whatever happens."""
        method = "GET" if request.method == "HEAD" else request.method
        path = endpoints[method].path
        async with contextlib.AsyncExitStack() as over:
            response = await answered(self._hf, request, path, self._do(endpoints[method], request, over))
        self._served[method, path, response.status_code] += 1
        return response

    async def _do(self, endpoint: Endpoint, request: Request, over: contextlib.AsyncExitStack) -> Response:
        needs = endpoint.needs
        if needs is None:  # a stranger's query proves nothing, and is not read
            nobody = Permission((), _nothing_more)
            call = Call(self._hf, SOMEONE, Nothing(), None, request, self._followers, nobody)
            return await _response(await endpoint.do(call))

        async def allowed(more: Scope | None = None) -> Caller:
            caller = await self._guard(request)
            check_shown(request, caller)
            wanted = needs if more is None else more
            if wanted != "any":
                caller.check(wanted)
            if endpoint.also is not None:
                caller.check(endpoint.also)
            await self._check_sees(endpoint, caller, request)
            return caller

        _check_text(request)
        connection: Visit = request.scope[KEY]
        async with patience(self._hf):
            caller, allowed_s = await allowed(), time.monotonic()
        connection.admit(caller.owner)
        room = self._rooms.setdefault(caller.owner, asyncio.Semaphore(_LARGE_AT_ONCE))

        async def make_room() -> None:
            await over.enter_async_context(room)

        query = _checked(endpoint.query, _parameters(endpoint.query, request), "the query")
        body = (
            None
            if endpoint.body is None
            else _checked(endpoint.body, await _document(request, connection.limits.body, make_room), "the document")
        )
        place = self._shares.place(caller.owner, connection)
        over.callback(place.give)
        async with contextlib.AsyncExitStack() as there:
            await there.enter_async_context(while_there(request.receive))
            await place.take()
            if endpoint.method != "GET":
                await there.aclose()  # what is begun is done, even if no caller waits for it
            if time.monotonic() > allowed_s + LOOK_S:  # until now the token may have been revoked
                async with patience(self._hf):
                    caller = await allowed()
            async with patience(self._hf, getattr(query, "timeout", 0.0)):
                may = Permission((caller.owner, caller.session, needs), allowed, caller.owner)
                hf = Edge(self._hf).through(caller.actor, caller.via, caller.who.only)
                try:
                    done = await endpoint.do(
                        Call(hf, caller.actor, query, body, request, self._followers, may, caller, place)
                    )
                except HoldfastError as error:
                    if "read" not in caller.scopes:
                        tell_no_more(error, endpoint.about)
                    raise
            return await _response(done, glimpse if "read" not in caller.scopes else None)

    async def _check_sees(self, endpoint: Endpoint, caller: Caller, request: Request) -> None:
        """Refuse what a caller cannot see that sees one question, or only some runs; such a run is unknown."""
        who, about = caller.who, endpoint.about
        if about == "self":
            return
        told = ""
        if who.question is not None and (about != "question" or request.path_params["id"] != who.question):
            told = f"the link of {caller.actor.name!r} is for the question {who.question!r} alone"
        elif who.only is not None and about == "all":
            labels = ", ".join(f"{name}={value}" for name, value in who.only.items())
            told = (
                f"the token of {caller.actor.name!r} is for runs with {labels} alone, and this is about the whole store"
            )
        if told:
            raise Refused("forbidden", told, about={"by": caller.actor.name, "via": caller.via})
        if about == "run" and who.only is not None:
            await Edge(Edge(self._hf).through(caller.actor, caller.via, who.only)).check_sees(request.path_params["id"])


@contextlib.asynccontextmanager
async def patience(hf: Client, more_s: float = 0.0) -> AsyncIterator[None]:
    """Bound how long a caller waits for a store that is away, and is asked again and again."""
    limit_s = hf.settings.deadline_s + MARGIN_S + more_s
    try:
        async with asyncio.timeout(None if limit_s == math.inf else limit_s):
            yield
    except TimeoutError:
        late = f"the store did not answer within {limit_s:g} s"
        told = f"{late}; what was asked may be done all the same, so ask what is there"
        raise StoreUnavailable(told, told=told) from None


async def _response(done: Any, told: Callable[[Any], Any] | None = None) -> Response:
    """Make a response of what an endpoint returned; `told` leaves of a document what the caller may know."""
    if isinstance(done, Response):
        return done
    status, document = (done.status, done.document) if isinstance(done, Answer) else (200, done)
    document = document if told is None else told(document)
    return Response(await aside(document, json_bytes, document), status, media_type="application/json")


async def _nothing_more(*_: object) -> NoReturn:
    raise unauthorized("this needs a token")


def _check_text(request: Request) -> None:
    """Refuse a NUL: no text of a database has one, so nothing can be found by it."""
    given = [*request.path_params.values(), *(text for item in request.query_params.multi_items() for text in item)]
    if any("\0" in text for text in given):
        raise BadArguments("the path or the query has a NUL in it")


def _parameters(model: type[BaseModel], request: Request) -> dict[str, Any]:
    """Read the parameters of the query by name; one that may come several times is a list."""
    found: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        known = model.model_fields.get(name)
        many = known is not None and isinstance(known.get_default(), list)
        if len(values) > 1 and not many:
            raise BadArguments(f"{name!r} is given {len(values)} times in the query")
        kinds = set() if known is None else {known.annotation, *get_args(known.annotation)}
        if kinds & _NUMBERS and str not in kinds:
            for value in values:
                _check_number(name, value)
        found[name] = values if many else values[0]
    return found


def _check_number(name: str, text: str) -> None:
    """Refuse what Python alone reads as a number, such as 1_0 and +5: the description of the API has no such numbers."""
    if not _NUMERAL.fullmatch(text):
        told = f"{name}: found {short(text)}, expected a number in digits, such as 10"
        raise BadArguments(told, details={"of": "query", "path": [name]})


async def _document(request: Request, limit_s: float, make_room: Callable[[], Awaitable[None]]) -> Any:
    """Read the document of a request. An empty body is an empty document; a large one is read when there is room for it."""
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise Refused("not_json", f"the document has the type {kind[:80]!r}" if kind else "the document has no type")
    try:
        async with asyncio.timeout(limit_s):
            text = await _text(request, make_room)
    except TimeoutError:
        raise Refused("too_slow", f"the document did not come within {limit_s:g} s", {"Connection": "close"}) from None
    return await aside(text, document_of, text)


def document_of(text: bytes) -> Any:
    """Parse a document that has one meaning; refuse any other."""
    if not text.strip():
        return {}
    if _parts(text) > MOST_PARTS and _parts(_outside_strings(text)) > MOST_PARTS:
        raise Refused("too_large", f"a document has at most {MOST_PARTS} values")
    try:
        return _parsed(text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        told = "it is nested too deeply" if isinstance(error, RecursionError) else cut(str(error), 200)
        raise Refused("bad_json", f"the document is no JSON: {told}") from None


def _parts(text: bytes) -> int:
    """Count the values that a text of JSON has at most."""
    return text.count(b",") + text.count(b"[") + text.count(b"{") + 1


def _outside_strings(text: bytes) -> bytes:
    """Keep what is outside of quotes; of too many strings, so many commas in their place."""
    bare = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    quotes = bare.count(b'"')
    return b"," * quotes if quotes > 4 * MOST_PARTS else b"".join(bare.split(b'"')[::2])


async def _text(request: Request, make_room: Callable[[], Awaitable[None]]) -> bytes:
    told = f"a document has at most {MOST_BYTES} bytes"
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > MOST_BYTES:
        raise Refused("too_large", f"{told}; this one has {length}")
    pieces, size = [], 0
    async for piece in request.stream():
        if size <= _SMALL_BYTES < size + len(piece):
            await make_room()
        size += len(piece)
        if size > MOST_BYTES:
            raise Refused("too_large", told)
        pieces.append(piece)
    return b"".join(pieces)


def _parsed(text: str) -> Any:
    return json.loads(text, parse_constant=_no_number, parse_float=_number, object_pairs_hook=_object)


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _number(word: str) -> float:
    """Refuse a number that is too large: it would become infinite, which is another value."""
    found = float(word)
    if math.isinf(found):
        raise ValueError(f"{cut(word, 40)} is larger than any number that can be kept")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a name that comes twice: a proxy that has checked the document may have read the other value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"the name {short(twice)} comes twice")
    return found


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@functools.cache
def _kept(kind: Any) -> frozenset[str]:
    """Name the fields that are kept as they come, and so may be large."""
    hints = [(name, field.annotation) for name, field in _fields(kind)]
    return frozenset(name for name, hint in hints if Any in (hint, *get_args(hint)))


def _fields(kind: Any) -> list[tuple[str, FieldInfo]]:
    models = get_args(get_args(kind)[0]) if get_args(kind) else (kind,)
    return [each for model in models for each in model.model_fields.items()]


def _tags(kind: Any, name: str) -> list[str]:
    return [str(get_args(model.model_fields[name].annotation)[0]) for model in get_args(get_args(kind)[0])]


def _checked(kind: Any, given: Any, what: str) -> Any:
    if type(given) is dict:  # an error is made of each that is wrong, and only a few are told
        if len(given) > _MOST_NAMES:
            raise BadArguments(f"{what} has {len(given)} names; it takes a few")
        for name, part in given.items():
            if name not in _kept(kind) and is_large(part, most=_MOST_OF_ONE):
                raise BadArguments(f"{cut(name, 100)}: it is larger than anything that {what} takes there")
    try:
        return _adapter(kind).validate_python(given)
    except ValidationError as error:
        wrong = error.errors()[:5]
        told = {"of": what.removeprefix("the "), "path": _where(wrong[0], kind)}
        raise BadArguments("; ".join(_wrong(each, kind, what) for each in wrong), details=told) from None


def _where(error: Any, kind: Any) -> list[str | int]:
    """List the names that lead to what is wrong."""
    one_of_several = bool(get_args(kind))  # then the first part of a place is which, and no name of the document
    return list(error["loc"][one_of_several:])


def _wrong(error: Any, kind: Any, what: str) -> str:
    where = ".".join(cut(str(part), 100) for part in _where(error, kind)) or what
    if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        name = error["ctx"]["discriminator"].strip("'")
        found = f"found {short(error['input'][name])}" if name in error["input"] else f"it is missing in {what}"
        return f"{name}: {found}, expected one of {', '.join(_tags(kind, name))}"
    if error["type"] == "extra_forbidden":
        return f"{where}: there is no such name in {what}"
    if error["type"] == "missing":
        meant = next((field.description for name, field in _fields(kind) if name == error["loc"][-1]), None)
        return f"{where}: it is missing in {what}" + (f". {meant}" if meant else "")
    return f"{where}: found {short(error['input'])}. {cut(error['msg'], 300)}"
