"""What bad requests get: a clear answer of one form, and nothing changed."""

import asyncio
import json
import logging

import apsw
import pytest
from tests.docs.pages import between, page
from tests.http.site import on_a_server, served, twice

import holdfast
from holdfast.http.errors import HINTS, REFUSALS, Refused, code_of, codes, problem
from holdfast.http.paths import PATHS
from holdfast.http.requests import MOST_BYTES
from holdfast.words.statuses import STATUSES

OURS = [getattr(holdfast, name) for name in holdfast.__all__ if isinstance(getattr(holdfast, name), type)]
OURS = [kind for kind in OURS if issubclass(kind, holdfast.HoldfastError)]


def needed(each):
    if each.needs is None:
        return "a signature" if each.body is bytes else "nothing"
    return "any token" if each.needs == "any" else ", ".join(filter(None, (each.needs, each.also)))


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_status_and_a_code(kind):
    """Its status stands in the server's table, its code is the name of its class, and its message is its own.

    That of a store that is away may say where it is: then what may be told stands beside it.
    """
    may_be_told = {"told": "what happened"} if issubclass(kind, holdfast.StoreUnavailable) else {}
    status, document, _ = problem(kind("what happened", **may_be_told))
    assert status == STATUSES[kind.__name__] == kind.http_status == codes()[code_of(kind)]
    assert document["error"]["code"] == code_of(kind)
    assert "what happened" in document["error"]["message"]
    assert kind in HINTS or "hint" in document["error"]


def test_the_guide_lists_every_code_and_every_path():
    """Both tables are made from the code."""
    by_status = {}
    for code, status in codes().items():
        by_status.setdefault(status, []).append(code)
    rows = ["| status | codes |", "|---|---|"]
    rows += [
        f"| {status} | {', '.join(f'`{code}`' for code in sorted(by_status[status]))} |" for status in sorted(by_status)
    ]
    assert between(page("docs/guide/http.md"), "codes").strip() == "\n".join(rows)
    rows = ["| path | needs | |", "|---|---|---|"]
    rows += [f"| {each.method} `{each.path}` | {needed(each)} | {each.says} |" for each in PATHS]
    assert between(page("docs/guide/http.md"), "paths").strip() == "\n".join(rows)


def test_what_a_store_says_is_for_the_log(caplog):
    """A driver names hosts, users and files; who asks is told what became of the request."""
    for error, expected in (
        (holdfast.StoreUnavailable("'/srv/runs.db' cannot be read"), "the store is closed or cannot be reached"),
        (holdfast.StoreUnavailable("'/srv/runs.db' is read-only", lasting=True), "this server can only read its store"),
        (holdfast.Unconfirmed("no answer from ('10.0.0.7', 5432)"), "it may have happened"),
        (holdfast.UnknownRun("there is no run 'a' in sqlite:/srv/runs.db"), "there is no run 'a' in the store"),
        (holdfast.Unsupported("'sqlite:/srv/runs.db' has no forks"), "the store has no forks"),
    ):
        told = problem(error, "sqlite:/srv/runs.db")[1]["error"]["message"]
        assert expected in told
        assert "/srv" not in told
        assert "10.0.0.7" not in told
    assert "'/srv/runs.db' cannot be read" in caplog.text


@pytest.mark.parametrize("code", REFUSALS)
def test_every_refusal_says_what_to_do(code):
    """A status that is an error's, and a hint."""
    status, document, _ = problem(Refused(code, "this was found"))
    assert (400 <= status < 600, document["error"]["message"]) == (True, "this was found")
    assert len(document["error"]["hint"]) > 10


@on_a_server
async def test_requests_that_are_wrong(site):
    """Unknown paths, methods, parameters and types, broken, deep and large documents: each is named, and nothing is lost."""

    async def refused(method, path, status, code, **options):
        answer = await site.web.request(method, path, **options)
        told = answer.json()["error"]
        assert (answer.status_code, told["code"]) == (status, code), answer.text
        assert told.keys() == {"code", "message", "hint", "details"}
        assert answer.headers["content-type"] == "application/json"
        return told["message"], answer.headers

    as_json = {"Content-Type": "application/json"}
    await refused("GET", "/api/", 404, "unknown_path")
    await refused("GET", "/api/runs/", 404, "unknown_path")
    await refused("POST", "/api/runs/a/spoon", 404, "unknown_path", json={})
    _, headers = await refused("PUT", "/api/runs", 405, "wrong_method")
    assert set(headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
    await refused("POST", "/healthz", 405, "wrong_method", json={})
    assert "limit" in (await refused("GET", "/api/runs?limit=0", 422, "bad_arguments"))[0]
    assert "found '5000'" in (await refused("GET", "/api/runs?limit=5000", 422, "bad_arguments"))[0]
    assert "2 times" in (await refused("GET", "/api/runs?limit=1&limit=2", 422, "bad_arguments"))[0]
    assert "lable" in (await refused("GET", "/api/runs?lable=a", 422, "bad_arguments"))[0]
    assert "name=value" in (await refused("GET", "/api/runs?label=a", 422, "bad_arguments"))[0]
    assert "status" in (await refused("GET", "/api/runs?status=done", 422, "bad_arguments"))[0]
    assert "begin again" in (await refused("GET", "/api/runs?after=nobody", 404, "unknown_run"))[0]
    assert "is not a run id" in (await refused("GET", "/api/runs/a%20b", 422, "bad_arguments"))[0]
    await refused("GET", "/api/runs/nobody/streams/a", 404, "unknown_run")
    for document in (b"{", b'{"a": NaN}', b"\xff", b"[" * 100_000, b"1" * 5_000, b'{"agent": "x"} {}'):
        await refused("POST", "/api/runs", 400, "bad_json", content=document, headers=as_json)
    for document in (b"[]", b"7", b"null", b'"x"'):
        await refused("POST", "/api/runs", 422, "bad_arguments", content=document, headers=as_json)
    await refused("POST", "/api/runs", 415, "not_json", content=b"{}")
    await refused("POST", "/api/runs", 415, "not_json", data={"agent": "twice"})
    await refused("GET", "/api/runs/a/result?timeout=1e9", 422, "bad_arguments")
    deep = {"agent": "twice", "args": [json.loads("[" * 400 + "]" * 400)]}
    await refused("POST", "/api/runs", 422, "not_storable", json=deep)
    assert (await site.get("/api/runs"))["runs"] == []


@on_a_server
async def test_an_error_has_one_advice_and_it_is_for_this_door(site):
    """The message of an error ends with a command for those who have a terminal; here that of the server stands alone."""
    await site.hf.start(twice, 1, id="fork-me")
    for method, path, document, advised in (
        ("POST", "/api/runs/fork-me/fork", {"at": "nowhere#0"}, "GET /api/runs/{id}/steps"),
        ("GET", "/api/runs/fork-me/steps/nowhere", None, "GET /api/runs/{id}/steps"),
        ("GET", "/api/schedules/nobody", None, "GET /api/schedules"),
    ):
        answer = await site.web.request(method, path, json=document)
        told = answer.json()["error"]
        assert "`holdfast" not in told["message"] and not told["message"].endswith((".", ";")), told
        assert "no" in told["message"] and told["hint"].startswith(advised), told


@on_a_server
async def test_a_document_is_bounded(site):
    """One that says it is too large is refused unread; one that does not say so is refused when it has become too large."""

    async def endless():
        for _ in range(MOST_BYTES // 1_000_000 + 2):
            yield b" " * 1_000_000

    headers = {"Content-Type": "application/json"}
    host, _, port = site.address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    who = f"Host: {host}\r\nAuthorization: {site.web.headers['Authorization']}"
    told = f"Content-Type: application/json\r\nContent-Length: {MOST_BYTES + 1}"
    writer.write(f"POST /api/runs HTTP/1.1\r\n{who}\r\n{told}\r\n\r\n".encode())
    assert b"413" in await reader.readline()
    writer.close()
    refused = await site.web.post("/api/runs", content=endless(), headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "too_large")


async def test_text_that_no_database_takes(store_url):
    """NUL and half a pair of surrogates in any place are stored or refused with a reason; the server has no fault."""
    async with served(store_url) as site:
        await send_odd_text(site)


async def send_odd_text(site):
    for odd in ("\0", "\ud800"):
        documents = [
            ("/api/runs", {"agent": odd}),
            ("/api/runs", {"agent": "twice", "args": [1, odd]}),
            ("/api/runs", {"agent": "twice", "args": [1], "labels": {odd: odd}}),
            ("/api/runs/x/pause", {"reason": odd}),
            ("/api/runs/x/send", {"topic": odd, "value": {odd: odd}, "key": odd}),
            ("/api/approvals/x", {"decision": "deny", "note": odd, "digest": odd}),
            ("/api/approvals/x", {"decision": "delegate", "to": odd, "digest": "0"}),
        ]
        await site.post("/api/runs", {"agent": "listener", "args": [9], "id": "x"}, 201 if odd == "\0" else 200)
        for path, document in documents:
            answer = await site.web.post(
                path, content=json.dumps(document), headers={"Content-Type": "application/json"}
            )
            assert answer.status_code < 500, (document, answer.text)
    for path in ("runs?label=%00=%00", "runs?agent=%00", "runs/%00", "approvals?run=%00", "approvals/%00"):
        assert (await site.web.get(f"/api/{path}")).status_code in (200, 404, 422)


@on_a_server
async def test_a_fault_is_logged_and_not_told(site, caplog, tmp_path):
    """What goes wrong inside is 500 with a plain sentence; the log has the traceback, and the next request is served."""
    with apsw.Connection(str(tmp_path / "runs.db")) as db:
        db.execute("UPDATE agents SET schema = 'broken' WHERE name = 'twice'")
    with caplog.at_level(logging.ERROR, "holdfast.http"):
        told = await site.get("/api/agents", 500)
    assert told["error"]["code"] == "internal"
    assert "JSON" not in str(told) and "Traceback" not in str(told)
    assert "JSONDecodeError" in caplog.text
    assert (await site.get("/api/runs"))["runs"] == []


async def test_a_store_that_does_not_answer_is_told(tmp_path):
    """The request gets 503 in time, and what it asked for does not happen later; asked again it does."""
    document = {"agent": "listener", "args": [1], "id": "a"}

    async with served(f"sqlite:{tmp_path}/runs.db", settings=holdfast.Settings(deadline_s=0.5)) as site:
        db = apsw.Connection(str(tmp_path / "runs.db"))
        db.execute("BEGIN IMMEDIATE")  # nobody else can write
        refused = await site.post("/api/runs", document, 503)
        assert refused["error"]["code"] == "store_unavailable"
        assert "was not written within 500 ms" in refused["error"]["message"]
        db.execute("COMMIT")
        db.close()
        await site.post("/api/runs", document | {"id": "b"}, 201)
        assert [run["id"] for run in (await site.get("/api/runs"))["runs"]] == ["b"]
        await site.post("/api/runs", document, 201)


async def test_a_store_that_is_away_is_told(own_server):
    """Requests get 503 and are not lost in waiting; ready says why, alive stays; when it is back all goes on."""
    again = {"agent": "twice", "args": [2], "id": "b"}

    settings = holdfast.Settings(deadline_s=1.0)
    async with served(own_server.url, agents=[twice], settings=settings) as site:
        await site.start("twice", 1, id="a")
        await site.until("a", "completed")
        own_server.kill()
        for refused in (await site.get("/api/runs/a", 503), await site.post("/api/runs", again, 503)):
            assert refused["error"]["code"] == "store_unavailable"
        assert (await site.get("/readyz", 503))["status"] == "unavailable"
        assert (await site.get("/healthz"))["status"] == "ok"
        assert "holdfast_store_up 0.0" in (await site.web.get("/metrics")).text
        own_server.start()
        while (await site.web.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.01)
        assert (await site.web.post("/api/runs", json=again)).status_code in (200, 201)
        assert (await site.get("/api/runs/b/result?timeout=20"))["result"] == 4
