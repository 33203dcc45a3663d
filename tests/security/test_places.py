"""Where the store of a server is, is told to nobody over HTTP: not when it is there, and not when it is away."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from tests.chaos.server import Server
from tests.http.site import AGENTS
from tests.workers import Worker

import holdfast
from holdfast.http.paths import PATHS

BODIES = {
    "/api/runs": {"agent": "twice", "args": [1]},
    "/api/runs/bulk": {"action": "pause", "ids": ["none"]},
    "/api/runs/{id}/send": {"topic": "word"},
    "/api/approvals/{id}": {"decision": "approve", "digest": "0" * 64},
    "/api/schedules/{name}": {"agent": "twice", "every": "1h", "args": [1]},
    "/api/schedules/{name}/backfill": {"start": "2026-01-01", "end": "2026-01-02"},
    "/api/events": {"name": "word"},
    "/api/notifications/{name}": {"url": "https://example.com/", "kinds": ["run.failed"]},
    "/api/notifications/{name}/replay": {"message": "none"},
    "/api/triggers/{name}/replay": {"delivery": "none"},
    "/api/triggers/{name}/dismiss": {"delivery": "none"},
}
QUERIES = {"/api/compare": "?a=none&b=none", "/api/search": "?q=none"}
FOLLOWED = {"Accept": "text/event-stream"}


def told(address, *tokens):
    """All that anybody is told: by each path, for each of these tokens and without one, and by the probes."""
    asked = [("GET", path, None, {}) for path in ("/healthz", "/readyz", "/metrics", "/api/nowhere")]
    asked += [("POST", "/session", {"token": "holdfast_none"}, {"Origin": address, "X-Holdfast-Page": "1"})]
    for each in PATHS:
        path = re.sub(r"\{seq\}", "1", each.path)
        path = re.sub(r"\{\w+\}", "none", path) + QUERIES.get(each.path, "")
        body = None if each.method == "GET" else BODIES.get(each.path, {})
        asked += [(each.method, path, body, headers) for headers in ({}, *([FOLLOWED] if each.follows else []))]
    with httpx2.Client(base_url=address, timeout=60) as web, ThreadPoolExecutor(24) as threads:

        def ask(one, token):
            method, path, body, headers = one
            more = {} if token is None else {"Authorization": f"Bearer {token}"}
            with web.stream(method, path, json=body, headers=headers | more) as answer:
                first = next(answer.iter_bytes(), b"")
                return method, path, answer.status_code, first.decode() + str(answer.headers)

        return list(threads.map(lambda pair: ask(*pair), [(one, token) for one in asked for token in (None, *tokens)]))


def prepared(url):
    """Tokens of a store in which agents are published: one for all, and one for some runs."""

    async def main():
        async with holdfast.open(url, agents=AGENTS) as hf:
            await hf.serve(*AGENTS)
            return [
                (await hf.create_token(name, only=only))[1]
                for name, only in (("ana", None), ("nina", {"team": "night"}))
            ]

    return asyncio.run(main())


def check(answers, *secrets):
    """None of these has the place in it; returns how many say that the store is away."""
    for method, path, status, text in answers:
        for secret in secrets:
            assert secret not in text, f"{method} {path}: {status} {text}"
        assert status != 500, f"{method} {path}: {text}"
    return sum(status == 503 for _, _, status, _ in answers)


@pytest.mark.slow
def test_nobody_is_told_where_a_database_is(commands, tmp_path):
    """Its port, its user, its name and its password stay with the server, and with its log but for the password."""
    database = Server(tmp_path / "postgres")
    database.create()
    database.start()
    try:
        url = database.url.replace("postgres@", "postgres:geheim@")
        tokens = prepared(url)
        server = Worker(commands.start(["serve", "--port", "0", "--deadline", "1s", "--db", url], tmp_path, {}))
        try:
            address = re.search(r"http://[\d.]+:\d+", server.until("http://"))[0]
            hidden = [str(database.port), "geheim", "postgres@", "postgresql:"]
            check(told(address, *tokens), *hidden)  # a busy machine may be too late for one or the other
            database.kill()
            assert check(told(address, *tokens), *hidden) > 50
        finally:
            server.kill()
        assert str(database.port) in server.said()
        assert "geheim" not in server.said()
    finally:
        database.stop()


def test_nobody_is_told_where_a_file_is(commands, tmp_path):
    """Its folder stays with the server, also when what is in the file is a database no more."""
    file = tmp_path / "hidden-folder" / "runs.db"
    file.parent.mkdir()
    tokens = prepared(f"sqlite:{file}")
    words = ["serve", "--port", "0", "--deadline", "1s", "--db", f"sqlite:{file}"]
    server = Worker(commands.start(words, tmp_path, {}))
    try:
        address = re.search(r"http://[\d.]+:\d+", server.until("http://"))[0]
        assert check(told(address, *tokens), "hidden-folder") == 0
        for each in file.parent.glob("runs.db*"):
            if each.is_file():
                each.write_bytes(b"no database " * 100_000)
        assert check(told(address, *tokens), "hidden-folder") > 50
    finally:
        server.kill()
    assert "hidden-folder" in server.said()
