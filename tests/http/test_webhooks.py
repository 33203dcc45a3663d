"""Webhooks through a real server: a matrix for every scheme of what is taken and what is refused, and nothing starts twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import apsw
import httpx2
import pytest
from tests.http.senders import NEW, OLD, SCHEMES, Scheme, in_environment
from tests.http.site import Served, served
from tests.http.test_openapi import fits

import holdfast
from holdfast import Delivery, Settings, Start, Verify
from holdfast.http import connections
from holdfast.http.connections import Limits

MOST = 2_000
handled: list[str] = []


@holdfast.step
async def enter(delivery: str) -> str:
    handled.append(delivery)
    return delivery


@holdfast.agent(name="webhooks.handle")
async def handle(delivery: str) -> str:
    return await enter(delivery)


def hook(name: str, verify: Verify) -> Any:
    @holdfast.on.webhook(name, verify=verify, max_bytes=MOST)
    def mapping(delivery: Delivery) -> Start:
        return Start(handle, delivery.id)

    return mapping


@contextlib.asynccontextmanager
async def site_with(url: str, *hooks: Any, **how: Any) -> AsyncIterator[Served]:
    """A server that takes these, and a worker that maps them."""
    handled.clear()
    async with asyncio.timeout(60), served(url, agents=[handle, *hooks], **how) as site:
        while len(await site.hf.triggers()) < len(hooks):
            await asyncio.sleep(0.005)
        yield site


async def settled(site: Served) -> None:
    """Wait until all that came is done."""
    while await site.hf.deliveries(status="new") or any(
        run.status != "completed" for run in await site.hf.runs(limit=999)
    ):
        await asyncio.sleep(0.01)


@dataclass
class Sent:
    """A request and what should come of it: the status, and, where it is taken, whether it is new."""

    says: str
    body: bytes
    headers: list[tuple[str, str]]
    expected: int
    new: bool = True
    chunked: bool = False
    about: dict[str, Any] = field(default_factory=dict)


def matrix(scheme: Scheme, now: int) -> Iterator[Sent]:
    """Every case of a scheme. Where something is not signed, it can be changed: the table in docs/triggers.md says so."""

    def sent(says: str, expected: int, *, id: str, at: int = now, secret: str = NEW, body: bytes | None = None, new: bool = True,
             claims: dict[str, str | None] | None = None, twice: str = "", chunked: bool = False, **more: Any) -> Sent:  # fmt: skip
        """Signed as told, then changed: other headers (None: none), one that comes twice, another body."""
        signed = scheme.body(id, **more)
        headers = scheme.headers(id, at, signed, secret) | (claims or {})
        pairs = [(name, value) for name, value in headers.items() if value is not None]
        pairs += [(name, value) for name, value in pairs if name == twice]
        return Sent(f"{scheme.name}: {says}", signed if body is None else body, pairs, expected, new, chunked)

    signs = scheme.signs
    proof = scheme.headers("x", now, b"")[scheme.header]
    yield sent("genuine", 200, id="a")
    yield sent("repeated", 200, id="a", new=False)
    yield sent("repeated with the secret before it was replaced", 200, id="a", secret=OLD, new=False)
    yield sent("genuine with that one", 200, id="b", secret=OLD, who="b")
    yield sent("another secret", 401, id="c", secret="of somebody else")
    yield sent("no proof", 401, id="c", claims={scheme.header: None})
    yield sent("an empty proof", 401, id="c", claims={scheme.header: ""})
    yield sent("a proof that comes twice", 401, id="c", twice=scheme.header)
    yield sent("a proof of something else", 401, id="c", claims={scheme.header: proof[:-3] + "AAA"})
    yield sent("half a proof", 401, id="c", claims={scheme.header: proof[: len(proof) // 2]})
    yield sent("a proof in another alphabet", 401, id="c", claims={scheme.header: "\u00e9" * 64})
    yield sent("words", 401, id="c", claims={scheme.header: "Bearer of bad news, v0=, v1=, t="})
    changed = scheme.body("a").replace(b"1", b"9")
    yield sent("another body", 401 if "body" in signs else 200, id="d", body=changed)
    yield sent("no body", 401 if "body" in signs else 200, id="e", body=b"")
    if scheme.time_header or "t=" in proof:
        yield sent("later, as when it is sent again", 200, id="a", at=now - 200, new=False)
        yield sent("late", 401, id="f", at=now - 330)
        yield sent("early", 401, id="f", at=now + 330)
        yield sent("of 1970", 401, id="f", at=0)
        yield sent("of another age", 401, id="f", at=10**14)
    if scheme.time_header:
        at = scheme.time_header
        yield sent("no time", 401, id="g", claims={at: None})
        yield sent("a time that comes twice", 401, id="g", twice=at)
        yield sent("another time", 401, id="g", claims={at: str(now - 1)})
        for odd in ("", "now", "-1", "1e9", f"{now}.0", f"{now}a", "9" * 400, "\u0663" * 10):
            yield sent(f"the time {odd[:12]!r}", 401, id="g", claims={at: odd.encode().decode("latin-1")})
    if scheme.id_header:
        yield sent("no id", 401, id="h", claims={scheme.id_header: None})
        yield sent("an id that comes twice", 401, id="h", twice=scheme.id_header)
        # What was sent under one id, sent again under another: only a signature that covers the id tells.
        yield sent("another id", 401 if "id" in signs else 200, id="a", claims={scheme.id_header: "i"})
    if scheme.id_in == "body":
        yield sent("another id in the body", 401, id="a", body=scheme.body("i"))
    yield sent("too large", 413, id="k", pad="x" * MOST)
    yield sent("too large, in pieces", 413, id="k", pad="x" * MOST, chunked=True)
    room = MOST - len(scheme.body("l", pad=""))
    yield sent("as large as may be", 200, id="l", pad="x" * room)
    yield sent("one more", 413, id="m", pad="x" * (room + 1))
    yield sent("in pieces", 200, id="n", who="n", chunked=True)


async def post(web: httpx2.AsyncClient, name: str, each: Sent) -> httpx2.Response:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(each.body), 100):
            yield each.body[start : start + 100]

    headers = [(name.encode(), value.encode("latin-1")) for name, value in each.headers]
    return await web.post(f"/hooks/{name}", content=pieces() if each.chunked else each.body, headers=headers)


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(scheme: Scheme) -> None:
        monkeypatch.setenv("HOOK_NEW", in_environment(scheme, NEW))
        monkeypatch.setenv("HOOK_OLD", in_environment(scheme, OLD))

    return put


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
async def test_the_matrix(scheme: Scheme, tmp_path: Any, secrets: Any) -> None:
    """Each case has its status; each delivery that was taken is one run, whose step ran once; the audit has who was refused."""
    secrets(scheme)
    async with site_with(f"sqlite:{tmp_path}/runs.db", hook("it", scheme.verify)) as site:
        taken, refused = 0, 0
        for each in matrix(scheme, int(time.time())):
            answer = await post(site.bare, "it", each)
            assert answer.status_code == each.expected, (each.says, answer.text)
            if each.expected == 200:
                taken += each.new
                if scheme.name == "slack":  # which would show it to its users
                    assert answer.content == b""
                else:
                    assert answer.json()["repeated"] != each.new, each.says
            else:
                code = answer.json()["error"]["code"]
                assert code == {401: "unverified", 413: "too_large"}[each.expected]
                assert NEW not in answer.text and OLD not in answer.text
                refused += each.expected == 401
        assert taken >= 4 and refused >= 8
        await settled(site)
        deliveries = await site.hf.deliveries(limit=999)
        assert [each.status for each in deliveries] == ["done"] * taken
        assert len(handled) == len(set(handled)) == taken == len(await site.hf.runs(limit=999))
        kept = [(await site.hf.delivery("it", each.id)).headers for each in deliveries]
        assert all(scheme.header.lower() not in each and each["user-agent"] == scheme.name for each in kept)
        (told,) = await site.hf.triggers()
        assert (told.waiting, told.dead, told.done) == (0, 0, taken)
    async with holdfast.open(f"sqlite:{tmp_path}/runs.db") as hf:
        deeds = await hf.audit(action="refused")
        assert sum(deed.data["count"] for deed in deeds) == refused
        assert len(deeds) <= 4
        assert {(deed.via, deed.data["tried"]) for deed in deeds} == {("webhook:it", "POST /hooks/{name}")}


BEARER = Verify.bearer("env:HOOK_NEW", id="X-Id")
PROOF = {"Authorization": f"Bearer {NEW}"}


async def test_a_hook_needs_no_token_and_knows_no_browser(tmp_path, monkeypatch):
    """Neither a token, a session, a proxy, a foreign page, a query nor another host makes a difference; only the proof does."""
    monkeypatch.setenv("HOOK_NEW", NEW)
    async with site_with(f"sqlite:{tmp_path}/runs.db", hook("it", BEARER)) as site:
        _, token = await site.hf.create_token("ana")
        around = {
            "Host": "hooks.example", "Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "X-Forwarded-For": "1.2.3.4",
            "Cookie": "holdfast_session_1=x", "Content-Type": "text/plain",
        }  # fmt: skip
        for given in ({}, {"Authorization": f"Bearer {token}"}, {"Authorization": "Session x"}):
            answer = await site.bare.post("/hooks/it", headers=around | given, content=b"1")
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unverified")
            assert answer.headers["www-authenticate"].startswith("Bearer")
        answer = await site.bare.post("/hooks/it?a=1&a=2", headers=around | PROOF | {"X-Id": "1"}, content=b"1")
        assert (answer.status_code, answer.json()) == (200, {"delivery": "1", "repeated": False})
        assert answer.headers["cache-control"] == "no-store"
        fits(answer.json(), "/hooks/{name}", "post")
        kept = (await site.hf.delivery("it", "1")).headers
        assert kept["x-forwarded-for"] == "1.2.3.4"
        assert not {"cookie", "authorization"} & kept.keys()


async def test_what_is_no_hook(tmp_path, monkeypatch):
    """Unknown names, other methods, triggers of another kind; and names that are none."""
    monkeypatch.setenv("HOOK_NEW", NEW)
    async with site_with(f"sqlite:{tmp_path}/runs.db", hook("it", BEARER)) as site:
        for name in ("other", "a%20b", "%2e%2e", "x" * 300, "%00", "%ff", "it%0a"):
            answer = await site.bare.post(f"/hooks/{name}", headers=PROOF, content=b"x" * 100_000)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_trigger"), name
        for path in ("/hooks", "/hooks/", "/hooks/it/", "/hooks/it/more", "/hooks/a%2fb"):
            assert (await site.bare.post(path, headers=PROOF)).status_code == 404
        for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert (await site.bare.request(method, "/hooks/it", headers=PROOF)).status_code == 405
        await site.hf.delete_trigger("it")
        assert (await site.bare.post("/hooks/it", headers=PROOF | {"X-Id": "1"})).status_code == 404
        assert await site.hf.deliveries() == []


async def test_slack_asks_whether_we_are_there(tmp_path, secrets):
    """The challenge comes back if it is Slack's, and is no delivery; a forged one does not."""
    slack = next(each for each in SCHEMES if each.name == "slack")
    secrets(slack)
    async with site_with(f"sqlite:{tmp_path}/runs.db", hook("it", slack.verify)) as site:
        body = json.dumps({"type": "url_verification", "challenge": "<b>3eZbrw1aB"}).encode()
        headers = slack.headers("", int(time.time()), body)
        answer = await site.bare.post("/hooks/it", headers=headers, content=body)
        assert (answer.status_code, answer.text) == (200, "<b>3eZbrw1aB")
        assert answer.headers["content-type"].startswith("text/plain")
        assert answer.headers["x-content-type-options"] == "nosniff"
        forged = await site.bare.post("/hooks/it", headers=headers, content=body.replace(b"3", b"4"))
        assert forged.status_code == 401
        assert await site.hf.deliveries() == []


@pytest.mark.parametrize(
    ("value", "says"),
    [(None, "HOOK_NEW is not set"), ("", "HOOK_NEW cannot be used: it is empty"), (f" {NEW}", "white space around it")],
)
async def test_a_server_without_the_secret_says_so_in_its_log_alone(value, says, tmp_path, monkeypatch, caplog):
    """The sender is told to come again, and not what is missing; with the secret, the same request is taken."""
    async with site_with(f"sqlite:{tmp_path}/runs.db", hook("it", BEARER)) as site:
        monkeypatch.delenv("HOOK_NEW", raising=False)
        if value is not None:
            monkeypatch.setenv("HOOK_NEW", value)
        answer = await site.bare.post("/hooks/it", headers=PROOF | {"X-Id": "1"}, content=b"1")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "cannot_verify")
        assert answer.headers["retry-after"] == "60"
        assert "HOOK" not in answer.text
        assert says in caplog.text and NEW not in caplog.text
        monkeypatch.setenv("HOOK_NEW", NEW)
        assert (await site.bare.post("/hooks/it", headers=PROOF | {"X-Id": "1"}, content=b"1")).status_code == 200


async def test_one_secret_of_two_is_enough_and_the_log_names_the_other(tmp_path, monkeypatch, caplog):
    """While a secret is replaced only one may be there."""
    monkeypatch.setenv("HOOK_NEW", NEW)
    monkeypatch.delenv("HOOK_OLD", raising=False)
    async with site_with(
        f"sqlite:{tmp_path}/runs.db", hook("it", Verify.bearer("env:HOOK_NEW", "env:HOOK_OLD"))
    ) as site:
        assert (await site.bare.post("/hooks/it", headers=PROOF)).status_code == 200
        assert "HOOK_OLD" not in caplog.text
        assert (await site.bare.post("/hooks/it", headers={"Authorization": f"Bearer {OLD}"})).status_code == 401
        assert "HOOK_OLD is not set" in caplog.text


async def test_a_declaration_that_this_server_does_not_know(tmp_path, monkeypatch, caplog):
    """A newer worker may declare what an older server cannot check: it takes nothing, and its log says what to do."""
    monkeypatch.setenv("HOOK_NEW", NEW)
    async with site_with(f"sqlite:{tmp_path}/runs.db", hook("it", BEARER)) as site:
        db = apsw.Connection(f"{tmp_path}/runs.db")
        db.execute("UPDATE triggers SET config = json_set(config, '$.verify.passkey', 1)")
        db.close()
        answer = await site.bare.post("/hooks/it", headers=PROOF | {"X-Id": "1"}, content=b"1")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "cannot_verify")
        assert "upgrade the server" in caplog.text


async def test_a_store_that_is_away_is_told_and_what_is_sent_again_is_taken_once(tmp_path, monkeypatch):
    monkeypatch.setenv("HOOK_NEW", NEW)
    async with site_with(f"sqlite:{tmp_path}/runs.db", hook("it", BEARER), settings=Settings(deadline_s=0.2)) as site:
        db = apsw.Connection(f"{tmp_path}/runs.db")
        db.execute("BEGIN IMMEDIATE")
        answer = await site.bare.post("/hooks/it", headers=PROOF | {"X-Id": "1"}, content=b"1")
        db.execute("ROLLBACK")
        db.close()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
        assert answer.headers["retry-after"] == "1"
        statuses = []
        while statuses[-2:] != [200, 200]:  # a store that was away is asked again after a moment
            statuses.append(
                (await site.bare.post("/hooks/it", headers=PROOF | {"X-Id": "1"}, content=b"1")).status_code
            )
        assert set(statuses) <= {200, 503}
        await settled(site)
        assert handled == ["1"]


async def test_many_at_once_of_which_most_are_the_same(tmp_path, monkeypatch):
    """Of 200 requests at once with 20 ids each id is new once, and runs once."""
    monkeypatch.setenv("HOOK_NEW", NEW)
    async with site_with(f"sqlite:{tmp_path}/runs.db", hook("it", BEARER)) as site:
        asked = [site.bare.post("/hooks/it", headers=PROOF | {"X-Id": f"d{n % 20}"}, content=b"1") for n in range(200)]
        answers = [answer.json() for answer in await asyncio.gather(*asked)]
        assert sum(not answer["repeated"] for answer in answers) == 20
        await settled(site)
        assert sorted(handled) == sorted({f"d{n}" for n in range(20)})


async def test_ids_that_are_odd(tmp_path, monkeypatch):
    """Each is one delivery, is found under the id that the answer tells, and its run has a name of its own."""
    monkeypatch.setenv("HOOK_NEW", NEW)
    odd = ["a/b", "..", "a\\b", "ä", "x" * 5_000, "a b", "%2e%2e", "-rf", "@", "'; --", "?", "#", "d/replay"]
    async with site_with(f"sqlite:{tmp_path}/runs.db", hook("it", BEARER)) as site:
        for id in odd:
            headers = [(b"Authorization", f"Bearer {NEW}".encode()), (b"X-Id", id.encode())]
            told = [(await site.bare.post("/hooks/it", headers=headers, content=b"\xff\x00")).json() for _ in range(2)]
            assert [each["repeated"] for each in told] == [False, True]
            key = told[0]["delivery"]
            assert (await site.hf.delivery("it", key)).body == b"\xff\x00"
            if key != "..":  # which no path has
                raw = f"/api/triggers/it/deliveries/{quote(key, safe='')}".encode()
                whole = (await site.web.get(httpx2.URL(site.address).copy_with(raw_path=raw))).json()
                assert (whole["delivery"]["id"], whole["body"], whole["encoding"]) == (key, "/wA=", "base64")
        await settled(site)
        assert len(handled) == len(set(handled)) == len(odd)


async def test_what_strangers_send_is_bounded_in_memory_and_in_time(tmp_path, monkeypatch):
    """Many bodies that come slowly: what finds no room gets 503, what takes too long 408, and afterwards all is as before."""
    monkeypatch.setenv("HOOK_NEW", NEW)
    monkeypatch.setattr(connections, "_STRANGE_OF_ONE", 5_000)
    head = b"POST /hooks/it HTTP/1.1\r\nHost: x\r\nContent-Length: 1900\r\nAuthorization: Bearer %b\r\nX-Id: 1\r\n\r\n"

    async def answered(reader: asyncio.StreamReader) -> bytes:
        return (await reader.readuntil(b"\r\n\r\n"))[9:12]

    async with site_with(f"sqlite:{tmp_path}/runs.db", hook("it", BEARER), limits=Limits(body=0.4)) as site:
        host, port = site.address.removeprefix("http://").split(":")
        slow = [await asyncio.open_connection(host, int(port)) for _ in range(4)]
        for _, writer in slow:
            writer.write(head % NEW.encode() + b"x" * 1_800)
            await writer.drain()
        asked = [asyncio.ensure_future(answered(reader)) for reader, _ in slow]
        assert sorted(await asyncio.gather(*asked)) == [b"408", b"408", b"503", b"503"]
        for _, writer in slow:
            writer.close()
        answer = await site.bare.post("/hooks/it", headers=PROOF | {"X-Id": "1"}, content=b"x" * 1_900)
        assert answer.json() == {"delivery": "1", "repeated": False}
