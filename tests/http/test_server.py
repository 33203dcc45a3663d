"""`holdfast serve` as a real process, beside a worker: killed, stopped, started anew, and read by slow readers."""

import asyncio
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest
from tests.disks import full
from tests.http import agents
from tests.http.site import followed
from tests.workers import Worker, bearer

import holdfast
from holdfast.http.server import listening

AGENTS = Path(agents.__file__)
PATH = "/api/runs/s/streams/answer"


def test_a_start_on_a_full_disk_is_refused_in_time_and_does_not_happen_later(commands, small_disk, tmp_path):
    """503 within the deadline of the server, whatever is asked; when there is room only what is asked then is done."""
    url = f"sqlite:{small_disk / 'runs.db'}"

    async def prepare():
        async with holdfast.open(url, agents=[agents.scribe]) as hf:
            await hf.start(agents.scribe, 1, id="s")

    asyncio.run(prepare())
    headers = bearer(url)
    server = Worker(commands.start(["serve", "--port", "0", "--deadline", "1s", "--db", url], tmp_path, {}))
    address = re.search(r"http://[\d.]+:\d+", server.until("Serving"))[0]
    start = {"agent": "scribe", "args": [1]}
    try:
        with httpx2.Client(base_url=address, timeout=20, headers=headers) as web:
            with full(small_disk):
                began = time.monotonic()
                for path, document in (
                    ("runs", start | {"id": "late"}),
                    ("runs/s/send", {"topic": "word", "value": "late"}),
                    ("runs/s/cancel", {}),
                ):
                    refused = web.post(f"/api/{path}", json=document)
                    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store_unavailable")
                    assert "full" in refused.json()["error"]["message"]
                    assert "nothing was done" in refused.json()["error"]["message"]
                assert time.monotonic() - began < 15
            assert web.post("/api/runs", json=start | {"id": "b"}).status_code == 201
            found = {run["id"]: run["status"] for run in web.get("/api/runs").json()["runs"]}
            assert found.keys() == {"s", "b"}
            assert found["s"] != "cancelled"
            kinds = [event["kind"] for event in web.get("/api/runs/s/events").json()["events"]]
            assert "message.received" not in kinds
    finally:
        server.kill()


@pytest.fixture
def start(commands, store_url, tmp_path):
    """Start a command on one store, as a process that ends with the test."""
    started = []

    def command(*words, until=None):
        process = Worker(commands.start(["--db", store_url, *words], tmp_path, {}))
        started.append(process)
        return process, until and re.search(r"http://[\d.]+:\d+", process.until(until))[0]

    yield command
    for each in started:
        each.kill()


def serve(start):
    return start("serve", "--port", "0", until="Serving")


def test_a_follower_survives_its_server(start, store_url):
    """Killed with -9 or stopped, a server is replaced by another: who comes back has everything once, in order, of both kinds."""
    worker, _ = start("worker", AGENTS)
    worker.until("Serving")
    headers = bearer(store_url)

    async def main():
        server, address = serve(start)
        async with holdfast.open(store_url) as hf:
            run = await hf.start("scribe", 12, id="s")
            sent, got, text, place, offset = 0, [], "", 0, 0
            for end in ("kill", "stop", None):
                async with httpx2.AsyncClient(base_url=address, timeout=30, headers=headers) as web:
                    histories = followed(web, "/api/runs/s/events", place or None)
                    texts = followed(web, "/api/runs/s/streams/answer", offset or None)
                    for _ in range(4):
                        await run.send("word", f"{sent} ")
                        sent += 1
                    while len([event for event in got if event["kind"] == "note"]) < sent:
                        place, event = await anext(histories)
                        got.append(event)
                    while text.count(" ") < sent:
                        offset, chunk = await anext(texts)
                        text += chunk["data"]
                    if end == "kill":
                        server.kill()
                        with pytest.raises(httpx2.HTTPError):
                            await anext(histories)
                    elif end == "stop":
                        server.stop()
                        rest = [each async for each in histories] + [each async for each in texts]
                        assert [name for place, name in rest if place is None] == []  # it is not over: come back
                        assert server.ended() == 0
                    else:
                        rest = [each async for each in histories]
                        assert rest[-1] == (None, "end")
                        got += [event for place, event in rest if place is not None]
                        text += "".join([chunk["data"] async for place, chunk in texts if place is not None])
                if end is not None:
                    server, address = serve(start)
            whole = [event.seq async for event in run.events()]
            assert [event["seq"] for event in got] == whole
            assert text == await run.result() == "".join(f"{n} " for n in range(12))

    asyncio.run(main())


@pytest.mark.by_day("sqlite")
def test_many_readers_have_all_of_it_once(start, store_url):
    """Twenty read as it comes; one is cut off again and again and comes back; one takes nothing until the others have all."""
    worker, _ = start("worker", AGENTS)
    worker.until("Serving")
    headers, (_, address) = bearer(store_url), serve(start)
    words = [f"{n:04}" * 1024 for n in range(60)]  # more than the system keeps for a reader

    async def read(web):
        return "".join([chunk["data"] async for place, chunk in followed(web, PATH) if place is not None])

    async def come_back():
        text, place, visits = "", None, 0
        while len(text) < len("".join(words)):
            visits += 1
            async with httpx2.AsyncClient(base_url=address, timeout=30, headers=headers) as web:
                async for offset, chunk in followed(web, PATH, place):
                    text, place = text + chunk["data"], offset
                    break  # and what is on its way to it is lost
        return text, visits

    async def main():
        async with (
            holdfast.open(store_url) as hf,
            httpx2.AsyncClient(base_url=address, timeout=30, headers=headers) as web,
        ):
            run = await hf.start("scribe", len(words), id="s")
            slow = followed(web, PATH)
            begun = asyncio.ensure_future(anext(slow))
            reading = [asyncio.ensure_future(read(web)) for _ in range(20)]
            returning = asyncio.ensure_future(come_back())
            for word in words:
                await run.send("word", word)
            _, first = await begun
            assert await asyncio.gather(*reading) == ["".join(words)] * 20
            text, visits = await returning
            assert text == "".join(words)
            assert visits > 5
            rest = [chunk["data"] async for place, chunk in slow if place is not None]
            assert "".join([first["data"], *rest]) == "".join(words)

    asyncio.run(main())


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_slow_readers_cost_a_server_no_memory(start, store_url):
    """Thirty that ask for eight megabytes each and take none: the server grows by less than a fifth of that, and serves others."""
    worker, _ = start("worker", AGENTS)
    server, address = serve(start)

    async def written():
        async with holdfast.open(store_url) as hf:
            worker.until("Serving")
            await (await hf.start("flood", 8, id="f")).result(timeout="40s")

    asyncio.run(written())
    headers = bearer(store_url)
    with httpx2.Client(base_url=address, timeout=30, headers=headers) as web:
        assert web.get("/api/runs").status_code == 200
        before = _memory(server.pid)
        lines = [
            "GET /api/runs/f/streams/answer HTTP/1.1",
            "Host: h",
            f"Authorization: {headers['Authorization']}",
            "Accept: text/event-stream",
        ]
        request = "\r\n".join([*lines, "", ""])
        host, port = address.removeprefix("http://").split(":")
        slow = []
        for _ in range(30):
            reader = socket.create_connection((host, int(port)))
            slow.append(reader)
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.sendall(request.encode())
        for reader in slow:
            assert b"200 OK" in reader.recv(100)
        with web.stream("GET", "/api/runs/f/streams/answer", headers={"Accept": "text/event-stream"}) as answer:
            assert sum(map(len, answer.iter_bytes())) > 8 << 20
        grown = _memory(server.pid) - before
        assert grown < 48 << 20, f"{grown >> 20} MB"
        for reader in slow:
            reader.close()
        server.stop()
        assert server.ended() == 0


def _memory(pid):
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_server_stops_at_once_when_told_twice(start, store_url):
    """A request that waits is answered when the server stops; the second signal does not wait for anything."""
    server, address = serve(start)
    with socket.create_connection(address.removeprefix("http://").split(":")) as stuck:
        who = bearer(store_url)["Authorization"].encode()
        head = b"POST /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n"
        stuck.sendall(head + b"Authorization: " + who + b"\r\n\r\n")
        with httpx2.Client(base_url=address) as web:
            assert web.get("/readyz").json() == {"status": "ok"}
        server.stop()
        server.until("Stopping")
        while server.running:
            server._process.send_signal(signal.SIGTERM)
        assert server.ended() in (0, 130)
    assert "Traceback" not in server.said()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_server_that_cannot_begin_says_why(start, store_url, tmp_path):
    """A port in use, an address for all the world without a token, a store that is none: one line each, and exit code 2."""
    _, address = serve(start)
    port = address.rpartition(":")[2]
    for words, told in (
        (["--port", port], f"port {port} of 127.0.0.1 is in use"),
        (["--host", "0.0.0.0", "--port", "0", "--db", f"sqlite:{tmp_path}/new.db"], "`holdfast token NAME`"),
        (["--host", "nowhere.invalid", "--port", "0"], "cannot listen"),
    ):
        refused, _ = start("serve", *words)
        assert refused.ended() == 2
        assert told in refused.said()
        assert "Traceback" not in refused.said()


def test_answers_are_not_held_back():
    """Connections send at once: otherwise each small answer would wait 40 ms for an acknowledgement."""
    with listening("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_nobody_else_imports_the_server():
    """Neither the package nor a worker nor other commands need what only a server needs."""
    script = """
import sys, holdfast, holdfast.client.client, holdfast.cli, holdfast.cli.worker, holdfast.cli.show, holdfast.cli.tokens
assert holdfast.open
print([name for name in sys.modules if name.split(".")[0] in ("starlette", "uvicorn", "h11") or "holdfast.http" in name])
"""
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"
