"""Requests made from the table of routes: most of them nearly right, each wrong in a place of its own."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.security.fuzzers.agents import AGENTS
from tests.security.fuzzers.inputs import MOST, WORDS, document, mangled, mutated, nested, text
from tests.security.fuzzers.texts import Fixed

from holdfast.http.paths import PATHS
from holdfast.http.routes import Endpoint

OPEN = ("/", "/runs/a", "/static/index.html", "/api", "/healthz", "/readyz", "/metrics", "/openapi.json")
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


class Requests:
    """Makes them. What the store has becomes known while it is attacked."""

    def __init__(self, runs: Sequence[str], who: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._runs, self._questions, self.who = list(runs), list[tuple[str, str]](), tuple(who)

    def heard(self, said: Any) -> None:
        """Learn of runs and questions from an answer."""
        if not isinstance(said, dict):
            return
        with self._lock:
            run = said.get("run")
            if isinstance(run, dict) and isinstance(run.get("id"), str):
                self._runs = [*self._runs[-200:], run["id"]]
            for each in [*said.get("approvals", ()), said.get("approval")]:
                if isinstance(each, dict) and isinstance(each.get("id"), str):
                    self._questions = [*self._questions[-50:], (each["id"], str(each.get("digest", "")))]

    def make(self, dice: random.Random) -> Request:
        """A request."""
        endpoint = dice.choice(PATHS)
        if endpoint.method == "DELETE" and dice.random() < 0.8:
            endpoint = next(each for each in PATHS if each.method == "POST")  # or there would soon be nothing left
        who, needs, body = Fixed(dice.choice(self.who)), Fixed(endpoint.needs or ""), b""
        path, question = self._path(dice, endpoint.path)
        if dice.random() < 0.08:
            path, needs = dice.choice([*OPEN, "/session"]), Fixed("")
        method = endpoint.method
        if dice.random() < 0.05:
            method, needs = dice.choice(METHODS), Fixed("")
        query = self._query(dice, endpoint)
        if dice.random() < 0.07:
            path, needs = dice.choice(TRICKS).format(path), Fixed("")
            path = mangled(dice, path) if dice.random() < 0.3 else path
        headers = [("Host", "127.0.0.1")] if dice.random() < 0.99 else []
        if endpoint.body is not None or dice.random() < 0.05:
            body = self._body(dice, endpoint, question)
            if dice.random() < 0.97:
                headers.append(("Content-Type", "application/json" if dice.random() < 0.95 else dice.choice(TYPES)))
        headers += [dice.choice(HEADERS) for _ in range(dice.choice([0] * 12 + [1, 1, 1, 3]))]
        if dice.random() < 0.02:
            headers += [(text(dice) or "x", text(dice, 99)) for _ in range(dice.choice([1, 5, 90]))]
        dice.shuffle(headers)
        framing = dice.choices([dice.choice(SMUGGLED), "chunked", "none", "length"], [2, 6, 1, 91])[0]
        cut = dice.randint(1, 200) if dice.random() < 0.02 else 0
        return Request(method, f"{path}{query}", headers, body, Fixed(framing), who, needs, cut)

    def _path(self, dice: random.Random, path: str) -> tuple[str, tuple[str, str]]:
        with self._lock:
            runs, questions = self._runs, self._questions
        question = dice.choice(questions) if questions else ("none", "")
        id = question[0] if "approvals" in path and dice.random() < 0.8 else dice.choice(runs)
        if dice.random() < 0.1:
            id = text(dice) or "x"
        name = "answer" if dice.random() < 0.8 else text(dice) or "x"
        quoted = {"{id}": id, "{name}": name}
        for part, value in quoted.items():
            path = path.replace(part, quote(value, safe="" if dice.random() < 0.9 else "/%", errors="surrogatepass"))
        return path, question

    def _query(self, dice: random.Random, endpoint: Endpoint) -> str:
        known = list(endpoint.query.model_fields)
        if not known and dice.random() < 0.95:
            return ""
        right = {
            "status": ["completed", "waiting", "failed"], "agent": ["keep", "order"], "label": ["a=b", "=", "a"],
            "since": ["2026-01-01T00:00:00Z"],
            "until": ["2026-01-01"], "search": ["a", "%", "_"], "parent": ["done"], "limit": ["1", "5", "1000"],
            "after": ["0", "1", "done"],
            "timeout": ["0", "0.1"], "run": ["asks"], "to": ["ana"], "mine": ["true"], "open": ["false", "true"],
        }  # fmt: skip
        pairs = []
        for _ in range(dice.choice([0, 0, 1, 1, 2, 4])):
            name = dice.choice(known) if known and dice.random() < 0.93 else text(dice)
            value = (
                dice.choice(right.get(name, [""]))
                if dice.random() < 0.7
                else "1e-3"
                if name == "timeout"
                else text(dice)
            )
            if any(pair.startswith(f"{name}=") for pair in pairs) and dice.random() < 0.9:
                continue
            pairs.append(f"{quote(name, errors='surrogatepass')}={quote(value, errors='surrogatepass')}")
        made = "&".join(pairs)
        made = mangled(dice, made) if dice.random() < 0.04 else made
        return f"?{made}" if made else ""

    def _body(self, dice: random.Random, endpoint: Endpoint, question: tuple[str, str]) -> bytes:
        value = self._document(dice, endpoint, question)
        for _ in range(dice.choice([0, 0, 0, 1, 1, 3])):
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

    def _document(self, dice: random.Random, endpoint: Endpoint, question: tuple[str, str]) -> Any:
        """One that the endpoint takes, or nearly."""
        word = endpoint.path.rpartition("/")[2]
        item = {"name": "ab", "price": "1.5", "tags": ["x"]}
        tree = {"kind": "node", "below": [{"kind": "leaf", "value": 1}, {"kind": "node"}]}
        anything = nested(dice) if dice.random() < 0.03 else document(dice)
        if word == "runs":
            right = {
                "keep": [anything], "order": [item, 2, "2026-11-16T00:00:00Z"], "grow": [tree, 1.5, 2], "listen": [2],
                "approved": [anything], "asked": [text(dice)], "tell": [text(dice)], "fail": [text(dice)],
            }  # fmt: skip
            agent = dice.choice(AGENTS).name
            made = {"agent": agent, "args": right[agent if dice.random() < 0.9 else "keep"]}
            more = {
                "id": text(dice) or "x", "labels": {"a": "b", text(dice): text(dice)},
                "after": dice.choice(["1s", 0, "1h30m", 1e9]),
                "budget": {"usd": 1.5, "tokens": 10, "steps": 5}, "kwargs": {"value": anything, "count": 1},
            }  # fmt: skip
            return made | {name: more[name] for name in more if dice.random() < 0.15}
        if word == "send":
            key = text(dice) if dice.random() < 0.3 else None
            return {"topic": dice.choice(["word", "word", text(dice)]), "value": anything, "key": key}
        if "approvals" in endpoint.path:
            value = dice.choice([item, 3, anything, "run", {"result": anything}])
            right = {
                "approve": {"data": {"what": anything}},
                "deny": {},
                "answer": {"value": value},
                "delegate": {"to": text(dice) or "x"},
            }
            decision, other = dice.choices(list(right), k=2)
            more = right[decision if dice.random() < 0.9 else other] if dice.random() < 0.8 else {}
            return {"decision": decision, "digest": question[1], "note": text(dice), **more}
        right = {
            "pause": {"reason": text(dice), "family": True, "now": False}, "resume": {"family": True},
            "retry": {"budget": {"usd": 10}},
            "cancel": {"reason": text(dice), "grace": "1s"},
        }  # fmt: skip
        return right.get(word, {}) if dice.random() < 0.9 else dice.choice(list(right.values()))


def rendered(request: Request, secrets: dict[str, str]) -> bytes:
    """The bytes of a request."""
    headers = list(request.headers)
    if request.who in secrets:
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
