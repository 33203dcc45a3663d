"""Requests made from the table of routes: most of them nearly right, each wrong in a place of its own.

A route that is added is asked by itself: its path is filled by what stands before each part, its document by its schema.
"""

from __future__ import annotations

import base64
import functools
import json
import random
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from pydantic import TypeAdapter
from tests.http.senders import NEW, Scheme
from tests.security.fuzzers.agents import AGENTS, HOOKED
from tests.security.fuzzers.fitting import fitting
from tests.security.fuzzers.inputs import MOST, NUMBERS, WORDS, document, mangled, mutated, nested, text
from tests.security.fuzzers.texts import Fixed

from holdfast.http.page import PAGES
from holdfast.http.paths import PATHS
from holdfast.http.routes import Endpoint

# What the application has beside the table; `test_every_route_is_fuzzed` holds it against the application.
OTHERS = (
    *(("GET", path) for path in PAGES), ("GET", "/static/{path}"), ("GET", "/api"), ("GET", "/healthz"), ("GET", "/readyz"),
    ("GET", "/metrics"), ("GET", "/openapi.json"), ("POST", "/session"), ("DELETE", "/session"), ("GET", "/sign-in/oidc"),
    ("GET", "/sign-in/oidc/back"),
)  # fmt: skip
ROUTES: dict[str, Endpoint | None] = {f"{each.method} {each.path}": each for each in PATHS}
ROUTES |= {f"{method} {path}": None for method, path in OTHERS}
METHODS = (
    "GET",
    "POST",
    "DELETE",
    "HEAD",
    "PUT",
    "PATCH",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "get",
    "PROPFIND",
    "G\tT",
    "",
)
TRICKS = (
    "/{0}", "/.{0}", "//host{0}", "{0}/", "{0}//", "{0}/.", "{0}/..", "/x/..{0}", "/x/%2e%2e{0}", "{0}%00", "{0}%0d%0aX:y",
    "{0};x=1", "{0}?",
    "{0}#x", "http://evil{0}", "http://127.0.0.1{0}", "*", "{0}%", "{0}%zz", "{0}%c0%af", "\\{0}", "{0}\\..\\x", "{0}/%2f",
    "{0}%20", "{0}.json",
    "{0}%F0%9F%98%80", "/healthz/..{0}", "/healthz%2f..{0}", "/openapi.json/../{0}", "/api{0}",
)  # fmt: skip
HEADERS = (
    ("Origin", "http://evil"), ("Origin", "null"), ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Site", "same-origin"),
    ("Via", "1.1 x"),
    ("X-Forwarded-For", "1.2.3.4"), ("X-HTTP-Method-Override", "DELETE"), ("X-Original-URL", "/api/runs"),
    ("Cookie", "holdfast_session_1=x; a"), ("Cookie", "__Host-holdfast_session=x"), ("X-Holdfast-Page", "1"),
    ("Last-Event-ID", "1"), ("Last-Event-ID", "-1"), ("Last-Event-ID", "9" * 30), ("Last-Event-ID", "\xb2"),
    ("Accept", "text/event-stream"),
    ("Accept", "application/json;q=0.0"), ("Range", "bytes=0-1"), ("If-None-Match", "*"), ("Expect", "100-continue"),
    ("Upgrade", "websocket"),
    ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABkAAQAAP__"), ("TE", "trailers"), ("Content-Encoding", "gzip"),
    ("Authorization", "Basic eDp5"),
    ("Authorization", "Bearer"), ("Authorization", "Session x"), ("X", "y" * 15_000), ("Host", "evil"), ("Host", ""),
    ("Referer", "\x80\xff"),
    ("Accept-Encoding", "gzip, br"), ("Connection", "keep-alive, Upgrade"), ("Connection", "close"), ("Sec-WebSocket-Key", "x"),
)  # fmt: skip
TYPES = (
    "application/json",
    "application/json; charset=utf-16",
    "text/plain",
    "",
    "application/x-www-form-urlencoded",
    "APPLICATION/JSON",
)
SMUGGLED = (
    "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", "Content-Length: 4\r\nContent-Length: 5\r\n",
    "Content-Length: +4\r\n",
    "Content-Length: 4, 4\r\n", "Content-Length: -1\r\n", "Content-Length: 0x4\r\n", "Transfer-Encoding: xchunked\r\n",
    "Transfer-Encoding: chunked, identity\r\n", "Transfer-Encoding : chunked\r\n", "Transfer-Encoding:\x0bchunked\r\n",
    "Content-Length: 99999999999999999999\r\n", " Content-Length: 4\r\n", "X: y\n", "X\r\n", ": y\r\n", "X: a\r\n b\r\n",
    "X: \0\r\n", "Content-Length:\r\n",
)  # fmt: skip


class Request(NamedTuple):
    """One request: what it is, or bytes of which nobody knows what they are."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    framing: Fixed = Fixed("length")  # or chunked, none, or what is written in the place of it
    who: Fixed = Fixed("")  # the name of the token
    needs: Fixed = Fixed("")  # the scope of the endpoint, where it is known which one it is
    cut: int = 0  # so many bytes are not sent
    route: Fixed = Fixed("")  # the row of the table that it was made from


# Values that are right under the names of queries and documents, where no schema says so.
RIGHT: dict[str, list[Any]] = {
    "status": ["completed", "waiting", "failed"], "agent": ["keep", "order", "fail"], "label": ["of=fuzz", "a=b", "=", "a"],
    "since": ["2026-01-01T00:00:00Z"], "until": ["2026-01-01"], "search": ["a", "%", "_"], "limit": [1, 5, 1000],
    "timeout": [0, 0.1, "1e-3"], "to": ["ana"], "kinds": [["run.failed"], ["approval"], ["step.completed", "note"]],
    "reason": ["r"], "grace": ["1s"], "topic": ["word"], "cron": ["0 7 * * mon-fri", "* * * * *"], "every": ["15m", "1h"],
    "tz": ["UTC", "Europe/Berlin"], "jitter": ["1s", 0], "start": ["2026-01-01"], "end": ["2026-01-02"],
    "url": ["https://hooks.invalid/x", "mailto:a@b.invalid", "env:HOLDFAST_NOTIFY_URL_X", "https://127.0.0.1/x"],
    "secret": ["env:HOLDFAST_NOTIFY_SECRET_X"], "labels": [{"of": "fuzz"}], "base_url": ["https://a.invalid"],
    "filter": [{"agent": ["fail"]}, {"label": ["of=nobody"]}], "expect": [0, 3, 1000], "name": ["news"], "key": ["k", "write#0"],
    "at": [0, 1, 3, "write", "checkpoint", "write#0"], "after": ["1s", 0, 1, "done"], "q": ["a", "done", "fuzz"],
    "budget": [{"usd": 1.5, "tokens": 10, "steps": 5}],
}  # fmt: skip
KNOWN: dict[str, list[str]] = {  # by the part of a path that stands before it
    "streams": ["answer"], "events": ["0", "1", "2", "5"], "steps": ["0", "1", "write#0"], "conversations": ["ana"],
    "schedules": ["daily"], "notifications": ["told"], "triggers": [each.name for each in HOOKED], "deliveries": ["x"],
    "hooks": [each.name for each in HOOKED], "static": ["index.html", "js/app.js", "css/tokens.css"], "fleet": ["w"],
    "agents": ["keep"],
}  # fmt: skip
MOST_KNOWN = 200
COOKIES = ("session", "link")  # those who have a session, and no token


class Requests:
    """Makes them. What the store has becomes known while it is attacked."""

    def __init__(self, runs: Sequence[str], who: Sequence[str], port: int = 0) -> None:
        self._lock, self.who, self._port = threading.Lock(), tuple(who), port
        self._known = {noun: list(names) for noun, names in KNOWN.items()} | {"runs": list(runs), "approvals": []}
        self._digests: dict[str, str] = {}  # of questions
        self.signs = False  # has it the secret of those who send webhooks?

    def heard(self, said: Any) -> None:
        """Learn what there is from an answer: lists, by their names, and what stands alone."""
        if not isinstance(said, dict):
            return
        with self._lock:
            for name, value in said.items():
                one = isinstance(value, dict)
                noun = "deliveries" if name == "delivery" else f"{name}s" if one else name
                for each in [value] if one else value if isinstance(value, list) else []:
                    self._learn(noun, each)

    def _learn(self, noun: str, told: Any) -> None:
        id = told.get("id", told.get("name")) if isinstance(told, dict) else told
        if noun in self._known and isinstance(id, str) and id not in self._known[noun]:
            self._known[noun] = [*self._known[noun][-MOST_KNOWN:], id]
        if noun == "approvals" and isinstance(told, dict):
            if len(self._digests) > MOST_KNOWN:
                self._digests.clear()
            self._digests[str(id)] = str(told.get("digest", ""))

    def make(self, dice: random.Random) -> Request:
        """A request."""
        route = dice.choice(list(ROUTES))
        if ROUTES[route] is None and dice.random() < 0.5:  # most of these are one page
            route = dice.choice([each for each, endpoint in ROUTES.items() if endpoint is not None])
        if route.startswith("DELETE") and dice.random() < 0.8:  # or there would soon be nothing left
            route = dice.choice([each for each in ROUTES if each.startswith("POST /api/")])
        with self._lock:
            known = {noun: list(names) for noun, names in self._known.items()}
        endpoint, (method, _, path) = ROUTES[route], route.partition(" ")
        who, needs = Fixed(dice.choice(self.who)), Fixed("" if endpoint is None else endpoint.needs or "")
        path, body, headers = self._path(dice, path, known), b"", list[tuple[str, str]]()
        if dice.random() < 0.99:
            headers.append(("Host", "127.0.0.1"))
        if route == "POST /hooks/{name}":
            body, more = _delivery(
                dice, path.rpartition("/")[2], NEW if self.signs and dice.random() < 0.8 else text(dice)
            )
            headers += more
        elif endpoint is None:
            query, body, more = self._other(dice, route)
            path += query
            headers += more
        elif endpoint.body is not None or dice.random() < 0.05:
            body = self._body(dice, endpoint, path, known)
            if dice.random() < 0.97:
                headers.append(("Content-Type", "application/json" if dice.random() < 0.95 else dice.choice(TYPES)))
        if endpoint is not None:
            path += self._query(dice, endpoint, known)
        if dice.random() < 0.05:
            method, needs = dice.choice(METHODS), Fixed("")
        if dice.random() < 0.07:
            path, needs = dice.choice(TRICKS).format(path), Fixed("")
            path = mangled(dice, path) if dice.random() < 0.3 else path
        headers += [dice.choice(HEADERS) for _ in range(dice.choice([0] * 12 + [1, 1, 1, 3]))]
        if dice.random() < 0.02:
            headers += [(text(dice) or "x", text(dice, 99)) for _ in range(dice.choice([1, 5, 90]))]
        dice.shuffle(headers)
        framing = dice.choices([dice.choice(SMUGGLED), "chunked", "none", "length"], [2, 6, 1, 91])[0]
        cut = dice.randint(1, 200) if dice.random() < 0.02 else 0
        return Request(method, path, headers, body, Fixed(framing), who, needs, cut, Fixed(route))

    def _path(self, dice: random.Random, path: str, known: Mapping[str, list[str]]) -> str:
        """Fill the parts of a path in: each with something that is there, mostly."""
        made, before = list[str](), ""
        for part in path.split("/"):
            if part.startswith("{"):
                names = known.get(before) or ["none"]
                names = known["runs"] if before == "approvals" and dice.random() < 0.1 else names
                value = dice.choice(names) if dice.random() < 0.9 else text(dice) or "x"
                safe = "/" if before == "static" else "" if dice.random() < 0.9 else "/%"
                made.append(quote(value, safe=safe, errors="surrogatepass"))
            else:
                made.append(part)
            before = part
        return "/".join(made)

    def _query(self, dice: random.Random, endpoint: Endpoint, known: Mapping[str, list[str]]) -> str:
        schema = _schema(endpoint.query)
        names = list(schema.get("properties", {}))
        if not names and dice.random() < 0.95:
            return ""
        right = RIGHT | dict.fromkeys(("a", "b", "run", "parent"), known["runs"])
        pairs = list[str]()
        chosen = (
            dice.choices(names or [text(dice)], k=dice.choice([0, 0, 1, 1, 2, 4])) if dice.random() < 0.8 else names
        )
        for each in chosen:
            name = each if dice.random() < 0.93 else text(dice)
            value: Any = text(dice) if dice.random() < 0.7 else dice.choice(NUMBERS)
            if name == "timeout" or (name in names and dice.random() < 0.7):  # nobody waits for a minute here
                value = fitting(dice, {"$defs": schema.get("$defs", {}), **schema["properties"][name]}, right, name)
                value = dice.choice(right["timeout"]) if name == "timeout" else value
            if any(pair.startswith(f"{name}=") for pair in pairs) and dice.random() < 0.9:
                continue
            for one in value if isinstance(value, list) else [value]:
                said = one if isinstance(one, str) else json.dumps(one)
                pairs.append(f"{quote(name, errors='surrogatepass')}={quote(said, errors='surrogatepass')}")
        made = "&".join(pairs)
        made = mangled(dice, made) if dice.random() < 0.04 and "timeout" not in made else made
        return f"?{made}" if made else ""

    def _body(self, dice: random.Random, endpoint: Endpoint, path: str, known: Mapping[str, list[str]]) -> bytes:
        value = self._document(dice, endpoint, path, known)
        for _ in range(dice.choice([0, 0, 0, 0, 1, 1, 3])):
            value = mutated(dice, value)
        if dice.random() < 0.003:
            word, times = dice.choice(WORDS), dice.choice([10_000, 300_000])
            value = {"agent": "keep", "args": [[word] * min(times, MOST // (len(word) + 4))]}
        made = json.dumps(value, ensure_ascii=dice.random() < 0.7).encode("utf-8", "surrogatepass")
        how = dice.random()
        if how < 0.05:
            made = mangled(dice, made.decode("latin-1")).encode("utf-8", "surrogatepass")
        elif how < 0.06:
            made = made.decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass")
        elif how < 0.07:
            made = dice.randbytes(dice.randint(0, 40))
        elif how < 0.08:
            made = made.replace(b"1", b"1" * 5000, 1).replace(b"null", b"1e999", 1)
        return made

    def _document(self, dice: random.Random, endpoint: Endpoint, path: str, known: Mapping[str, list[str]]) -> Any:
        """One that the endpoint takes, or nearly."""
        item = {"name": "ab", "price": "1.5", "tags": ["x"]}
        tree = {"kind": "node", "below": [{"kind": "leaf", "value": 1}, {"kind": "node"}]}
        anything = nested(dice) if dice.random() < 0.03 else document(dice)
        runs = known["runs"]
        right = RIGHT | {
            "id": [*known["deliveries"], text(dice), dice.choice(runs)], "delivery": known["deliveries"],
            "value": [anything, item, 3],
            "ids": [dice.choices(runs, k=dice.randint(0, 3))], "digest": [self._digests.get(path.rpartition("/")[2], "")],
            "data": [{"what": anything}], "args": [{"value": anything}, {}], "replace": [{}, {"arguments": [anything]}],
        }  # fmt: skip
        if endpoint.path == "/api/runs":
            of = {
                "keep": [anything], "order": [item, 2, "2026-11-16T00:00:00Z"], "grow": [tree, 1.5, 2], "listen": [2],
                "approved": [anything], "asked": [text(dice)], "tell": [text(dice)], "fail": [text(dice)],
                "talk": [dice.choice(["ana", text(dice)])],
            }  # fmt: skip
            agent = dice.choice(AGENTS).name
            right |= {
                "agent": [agent],
                "args": [of[agent if dice.random() < 0.9 else "keep"]],
                "after": ["1s", "1h30m", 1e9],
            }
            right |= {"kwargs": [{"value": anything, "count": 1}], "id": [text(dice) or "x"]}
        elif endpoint.path.endswith("/retry"):
            right |= {"budget": [{"usd": 10}]}
        return fitting(dice, _schema(endpoint.body), right)

    def _other(self, dice: random.Random, route: str) -> tuple[str, bytes, list[tuple[str, str]]]:
        """What is asked of a path that is not of the table: its query, its body and its headers."""
        if route == "POST /session":
            way = dice.choice(["token", "code", "link", text(dice)])
            made = json.dumps({way: dice.choice([text(dice), "holdfast_0123456789ab_x", 3, None, "0123456789ab_x"])})
            made = mangled(dice, made) if dice.random() < 0.3 else made
            kind = "application/json" if dice.random() < 0.9 else dice.choice(TYPES)
            return "", made.encode("utf-8", "surrogatepass"), [("Content-Type", kind), *_OWN_PAGE]
        if route == "DELETE /session":
            return "", b"", list(_OWN_PAGE)
        if not route.startswith("GET /sign-in/oidc"):
            return "", b"", []
        state = f"{int(time.time()) - dice.choice([0, 0, 0, 3600])}.{dice.randbytes(8).hex()}"
        kept = json.dumps(
            dice.choice([[state, "n", "v", "runs"], [state, "n", "v", "//evil"], [state], document(dice)])
        )
        kept = mangled(dice, kept) if dice.random() < 0.2 else kept
        cookie = base64.urlsafe_b64encode(kept.encode("utf-8", "surrogatepass")).decode()
        cookie = mangled(dice, cookie) if dice.random() < 0.2 else cookie
        given = {
            "state": state,
            "code": dice.choice(["x", text(dice)]),
            "iss": text(dice),
            "error": text(dice),
            "to": text(dice),
        }
        given = {
            name: value for name, value in given.items() if dice.random() < (0.8 if name in ("state", "code") else 0.2)
        }
        query = urlencode({name: value.encode("utf-8", "surrogatepass") for name, value in given.items()})
        cookie = "".join(
            letter for letter in cookie if letter.isascii() and letter.isprintable() and letter not in "; "
        )
        return f"?{query}" if query else "", b"", [("Cookie", f"holdfast_oidc_{self._port}={cookie}")]


_OWN_PAGE = (("Origin", "http://127.0.0.1"), ("X-Holdfast-Page", "1"))


@functools.cache
def _schema(kind: Any) -> dict[str, Any]:
    return TypeAdapter(kind).json_schema()


def _delivery(dice: random.Random, name: str, secret: str) -> tuple[bytes, list[tuple[str, str]]]:
    """What a sender posts, signed as it does; wrong in a place, mostly."""
    scheme: Scheme = next((each for each in HOOKED if each.name == name), HOOKED[0])
    id, at = text(dice) or "x", int(time.time()) - dice.choice([0, 0, 0, 3600])
    id = re.sub(r"[^!-~]", "", id) or "x"
    body = scheme.body(id, more=document(dice))
    pairs = list(scheme.headers(id, at, body, re.sub(r"[^!-~]", "", secret)).items())
    if dice.random() < 0.4:
        body = mangled(dice, body.decode("latin-1")).encode("utf-8", "surrogatepass")
    if dice.random() < 0.3:
        at = dice.randrange(len(pairs))
        pairs[at] = pairs[at][0], mangled(dice, pairs[at][1])
    return body, [(name, value) for name, value in pairs if "\r" not in value and "\n" not in value]


def rendered(request: Request, secrets: dict[str, str]) -> bytes:
    """The bytes of a request."""
    headers = list(request.headers)
    if request.who in COOKIES:
        headers += [("Cookie", secrets[request.who]), *(each for each in _OWN_PAGE if each not in headers)]
    elif request.who in secrets and not request.target.startswith("/hooks/"):
        headers.append(("Authorization", f"Bearer {secrets[request.who]}"))
    body = request.body
    if request.framing == "chunked":
        half = len(body) // 2
        pieces = [piece for piece in (body[:half], body[half:]) if piece]
        body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        headers.append(("Transfer-Encoding", "chunked"))
    elif request.framing == "length" and (body or request.method in ("POST", "PUT")):
        headers.append(("Content-Length", str(len(body))))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    odd = "" if request.framing in ("chunked", "length", "none") else request.framing
    head = f"{request.method} {request.target} HTTP/1.1\r\n{odd}{lines}\r\n".encode("utf-8", "surrogatepass")
    made = head + body
    return made[: len(made) - request.cut] if request.cut else made


def is_plain(request: Request) -> bool:
    """Is it a request that must be answered: whole, with one end, and no letters in its head that are none?"""
    told = "".join([request.method, request.target, *(f"{name}{value}" for name, value in request.headers)])
    whole = request.framing in ("length", "chunked") and not request.cut
    return whole and told.isascii() and told.isprintable() and " " not in request.target and request.method.isalpha()
