"""Requests made to mislead: documents with two meanings, ids that look like something else, pages of other sites."""

import asyncio
import json

import pytest
from tests.security.agents import keep
from tests.security.conftest import with_store

import holdfast
from holdfast.store.runs import NewRun


@pytest.fixture
def published(server):
    """A server of a store with agents, a run that has ended, and one that has an id which no new run gets."""

    async def main():
        async with holdfast.open(server.url, agents=[keep]) as hf:
            await hf.run(keep, 1, id="ready")
            await hf.store.create(NewRun("-x", "u", "keep", '{"value":1}'))

    asyncio.run(main())
    return server


def test_a_document_has_one_meaning(published):
    """A number that would become infinite, UTF-16, and a name that comes twice at any depth are refused; nothing starts."""
    start = '{"agent":"keep","args":[1],"id":"new"%s}'
    bodies = {
        "infinite": b'{"agent":"keep","args":[1e999],"id":"new"}',
        "minus infinite": b'{"agent":"keep","args":[1],"id":"new","after":-1e400}',
        "utf-16": (start % "").encode("utf-16"),
        "utf-16 without a mark": (start % "").encode("utf-16-le"),
        "utf-32": (start % "").encode("utf-32"),
        "twice": (start % ',"id":"other"').encode(),
        "twice, spelled otherwise": (start % ',"\\u0069d":"other"').encode(),
        "twice, below": (start % ',"labels":{"a":"1","a":"2"}').encode(),
        "no utf-8": (start % "").encode().replace(b"new", b"n\xff"),
    }
    for name, body in bodies.items():
        status, _, said = published.ask("/api/runs", "POST", body)
        assert (status, said["error"]["code"]) == (400, "bad_json"), (name, said)
    assert {run["id"] for run in published.ask("/api/runs")[2]["runs"]} == {"ready", "-x"}
    assert published.ask("/api/runs", "POST", b"\xef\xbb\xbf" + (start % "").encode())[0] == 201


def test_nesting_at_the_limit_is_an_answer(published):
    """200 levels are taken, given to the agent and read back; 201 are refused, and none is a fault of the server."""

    def start(value):
        return published.ask("/api/runs", "POST", f'{{"agent":"keep","args":[{value}],"id":"deep"}}'.encode())[0]

    for opened, closed in (("[", "]"), ('{"a":', "}")):
        for depth in (201, 202, 960, 100_000):
            assert start(opened * depth + "1" + closed * depth) in (400, 422), depth
        value = opened * 200 + "1" + closed * 200
        assert start(value) == 201

        async def carried(hf):
            await hf.serve(keep)
            await hf.get("deep").wait("completed", timeout="20s")

        with_store(published, carried)
        assert published.ask("/api/runs/deep/result")[2]["result"] == json.loads(value)
        assert published.ask("/api/runs/deep")[2]["arguments"]["value"] == json.loads(value)
        assert published.ask("/api/runs/deep", "DELETE")[0] == 200
    assert "Traceback" not in published.process.said()


def test_new_runs_get_no_id_that_looks_like_an_option_or_a_folder(published):
    """`.`, `..` and `-x` are refused for a new run; one that has such an id is found, and started again it is the same."""
    for wrong in (".", "..", "-", "-rf", "--help"):
        body = json.dumps({"agent": "keep", "args": [1], "id": wrong}).encode()
        status, _, said = published.ask("/api/runs", "POST", body)
        assert (status, said["error"]["code"]) == (422, "bad_arguments"), wrong
        assert "option" in said["error"]["message"]
    body = json.dumps({"agent": "keep", "args": [1], "id": "-x"}).encode()
    assert published.ask("/api/runs", "POST", body)[0] == 200
    assert published.ask("/api/runs/-x")[0] == 200
    assert published.ask("/api/runs", "POST", body.replace(b"-x", b"x-"))[0] == 201


def test_every_answer_forbids_guessing_its_type(published):
    """`nosniff` is on what is served, refused and not found."""
    paths = ("/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/api/runs", "/nothing", "/api/runs/none")
    answers = {path: published.ask(path) for path in paths}
    answers["method"] = published.ask("/api/runs", "DELETE")
    for name, (_, headers, _) in answers.items():
        assert headers.get("x-content-type-options") == "nosniff", name


def test_pages_of_other_sites_are_refused_on_every_path(published):
    """By what browsers say of them; a link to a page is followed, a program with a token is served, and so is our own page."""
    for path in ("/", "/healthz", "/metrics", "/openapi.json", "/api/runs", "/nothing"):
        for site in ("cross-site", "same-site", "other"):
            for mode, dest in (("no-cors", "script"), ("cors", "empty"), ("navigate", "iframe")):
                more = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": mode, "Sec_Fetch_Dest": dest}
                status, _, said = published.ask(path, token=None, **more)
                assert (status, said["error"]["code"]) == (403, "foreign_request"), (path, more)
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert published.ask("/", **link)[0] == 200
    assert published.ask("/api/runs", token=None, **link)[0] == 403
    assert published.ask("/", "POST", b"{}", **link)[0] == 403
    assert published.ask("/api/runs", Sec_Fetch_Site="same-origin")[0] == 200
    assert published.ask("/api/runs", Sec_Fetch_Site="same-site")[0] == 200
