"""Connections made to keep others out, by people who have no token or one of their own."""

import asyncio
import contextlib
import json
import re
import select
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import apsw
import pytest
from tests.commands import environment
from tests.security import agents
from tests.security.conftest import Target, parsed, rest, with_store
from tests.workers import Worker

import holdfast
from holdfast.http.connections import Limits
from holdfast.http.follow import LOOK_S
from holdfast.http.server import END_S

USUAL = Limits()  # what holds where nothing else is said
HEAD = "GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\n{}\r\n"


def sockets(server):
    """How many the server has open."""
    found = 0
    for each in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += each.readlink().name.startswith("socket:")
    return found


def token(server, name):
    return with_store(server, lambda hf: hf.create_token(name))[1]


def begin(server, path, secret=None, source=None, **headers):
    """Send a request, and read nothing."""
    if secret is not None:
        headers["Authorization"] = f"Bearer {secret}"
    lines = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    connection = server.connect(source)
    connection.sendall(HEAD.format(path, lines).encode())
    return connection


def follow(server, secret):
    """One that is let in."""
    connection = begin(server, "/api/runs/l/events", secret, Accept="text/event-stream")
    assert b"200 OK" in connection.recv(4096)
    return connection


def until(holds, within_s=20.0):
    """How long it took until this held."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + within_s, "it never held"
        time.sleep(0.02)
    return time.monotonic() - began


def idle(server, count, addresses=1, said=b""):
    """Make so many connections that say this and nothing more; more than one address is not ours."""
    for n in range(count):
        connection = server.connect(f"127.0.0.{n % addresses + 2}" if addresses > 1 else None)
        if said:
            with contextlib.suppress(ConnectionError):
                connection.sendall(said)


@pytest.mark.parametrize(("addresses", "said"), [(1, b""), (11, b"GET /healthz HTTP/1.1\r\nHost: ")])
def test_silence_keeps_nobody_out(server, addresses, said):
    """2,005 connections from our own address, or from eleven others, half of a request on each: all answers come as ever."""
    idle(server, 2_005, addresses, said)
    for path in ("/healthz", "/readyz", "/api/runs", "/healthz"):
        began = time.monotonic()
        assert server.ask(path)[0] == 200
        assert time.monotonic() - began < USUAL.head / 2  # it waits for nobody to lose its time
    assert sockets(server) < (400 if addresses == 1 else 2_200)
    assert len(server.process.said()) < 2_000


def test_those_who_come_and_say_nothing_cost_nobody_an_answer(target):
    """While connections come from our own address without end, each request is answered: none is told to come again."""
    server, over = target("serve", "--port", "0", "--limits", "address=50"), threading.Event()

    def flood():
        while not over.wait(0.01):
            idle(server, 60)

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        told = [server.ask("/api/runs")[0] for _ in range(30)]
    finally:
        over.set()
        flooding.join()
    assert told == [200] * 30


@pytest.mark.parametrize("said", ["half a code", "questions without end"])
def test_strangers_who_are_waited_for_keep_nobody_out(target, said):
    """Without a token, half of a document and answers that are not taken hold a connection, and no place that another needs."""
    server = target("serve", "--port", "0", "--limits", "address=20")
    page = {"Host": "127.0.0.1", "Origin": "http://127.0.0.1", "X_Holdfast_Page": "1"}
    half = b"POST /session HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nX-Holdfast-Page: 1\r\n"
    half += b"Content-Type: application/json\r\nContent-Length: 90\r\n\r\n{"
    words = half if said == "half a code" else HEAD.format("/openapi.json", "").encode() * 300
    assert server.ask("/api/runs")[0] == 200
    for _ in range(15):
        for _ in range(3):
            connection = server.connect(room=2048)
            connection.setblocking(False)
            connection.send(words)
        time.sleep(0.2)
    assert [server.ask("/api/runs")[0] for _ in range(20)] == [200] * 20
    assert server.ask("/session", "POST", json.dumps({"token": server.token}).encode(), **page)[0] == 201


def test_few_descriptors_are_not_used_up(tmp_path):
    """With 300 files at the most, 1,000 connections leave some for answers; the log says once what is the matter."""
    words = f"ulimit -n 300; exec {sys.executable} -m holdfast serve --port 0 --db sqlite:{tmp_path}/runs.db"
    made = subprocess.Popen(
        ["/bin/sh", "-c", words], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    process = Worker(made)
    try:
        server = Target(process, "", tmp_path)
        idle(server, 1_000, 5)
        for _ in range(3):
            assert server.ask("/healthz")[0] == 200
        assert sockets(server) < 300
        server.close()
        assert len(process.said()) < 2_000
        assert "may open 300 files" in process.said()
    finally:
        process.kill()


def test_probes_are_answered_while_all_connections_are_at_work(target):
    """With no room left, others are told to come again, and with one token too many the others are served."""
    server = target("serve", "--port", "0", env={"HOLDFAST_LIMITS": "connections=5,token=3"})
    with_store(server, _publish)
    ana, ben = token(server, "ana"), token(server, "ben")
    waiting = [follow(server, ana) for _ in range(3)]
    status, headers, said = server.ask("/api/runs", token=ana)
    assert (status, headers["retry-after"], said["error"]["code"]) == (429, "1", "too_many_requests")
    assert server.ask("/api/runs", token=ben)[0] == 200
    waiting += [follow(server, ben) for _ in range(2)]
    for path, expected in (("/healthz", 200), ("/readyz", 200), ("/api/runs", 503), ("/metrics", 503), ("/", 503)):
        assert server.ask(path, token=None)[0] == expected, path
    for each in waiting:
        each.close()
    until(lambda: server.ask("/api/runs", token=ana)[0] == 200)


def test_a_request_has_its_time(target):
    """Half of a head and half of a document are told so and closed in time, however slowly more of them comes."""
    server = target("serve", "--port", "0", "--limits", "head=500ms,body=500ms")
    head = f"POST /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {server.token}\r\n"
    body = head.encode() + b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    for begun in (b"GET / HTTP/1.1\r\nx: ", body):
        with server.connect() as connection:
            began = time.monotonic()
            connection.sendall(begun)
            answer = _trickle(connection)
            assert (parsed(answer)[0], parsed(answer)[2]["error"]["code"]) == (408, "too_slow")
            assert time.monotonic() - began < USUAL.head
    with server.connect() as connection:
        assert parsed(rest(connection))[0] == 408  # without a word


def _trickle(connection):
    """One byte after another, until the other side closes."""
    over = threading.Event()

    def send():
        with contextlib.suppress(OSError):
            while not over.wait(0.05):
                connection.sendall(b"a")

    sending = threading.Thread(target=send)
    sending.start()
    try:
        return rest(connection)
    finally:
        over.set()
        sending.join()


def test_without_a_token_nothing_more_is_read(server):
    """401 closes: neither a document without end nor a second request is taken from who has no token."""
    token(server, "ana")
    head = b"POST /api/runs HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 9999999\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(head + b"{")
        assert b"401" in connection.recv(4096)
        assert until(lambda: _is_closed(connection)) < USUAL.head
    twice = server.send(HEAD.format("/api/runs", "").encode() * 2)
    assert len(re.findall(rb"HTTP/1.1 \d", twice)) == 1
    assert parsed(twice)[1]["connection"] == "close"


def _is_closed(connection):
    try:
        connection.sendall(b" ")
        connection.setblocking(False)
        return connection.recv(4096) == b""
    except BlockingIOError:
        connection.setblocking(True)
        return False
    except OSError:
        return True


def test_a_document_that_nobody_reads_comes_to_an_end(target):
    """What is answered without its document, as a probe is, does not let the sender go on for ever."""
    server = target("serve", "--port", "0", "--limits", "head=500ms")
    with server.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert b"200" in connection.recv(4096)
        assert until(lambda: _is_closed(connection)) < USUAL.head


@pytest.mark.parametrize(
    "head",
    [
        b"POST /api/runs HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/runs HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
        b"POST /api/runs HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/runs HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /api/runs HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"POST /session HTTP/1.1\r\nHost: h\r\nX: a\nContent-Length: 3\r\n\r\n{}\n",
        b"GET /healthz HTTP/1.1\nHost: h\n\n",
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x00\r\n\r\n",
    ],
)
def test_a_request_says_once_where_it_ends(server, head):
    """Otherwise it is refused and closed, and what comes behind it is not taken for another request."""
    answer = server.send(head + HEAD.format("/healthz", "").encode())
    status, headers, said = parsed(answer)
    assert (status, headers["connection"], said["error"]["code"]) == (400, "close", "bad_request")
    assert headers["x-content-type-options"] == "nosniff"
    assert len(re.findall(rb"HTTP/1.1 \d", answer)) == 1
    behind = server.send(HEAD.format("/healthz", "").encode() + head + HEAD.format("/healthz", "").encode())
    assert re.findall(rb"HTTP/1.1 (\d+)", behind) == [b"200", b"400"]


def test_heads_are_bounded_whatever_is_installed(target, tmp_path):
    """Another parser that uvicorn would take is not taken: a head without end is refused before it is large."""
    (tmp_path / "httptools.py").write_text("")
    server = target("serve", "--port", "0")
    assert server.ask("/healthz")[0] == 200
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n" + (b"x: " + b"a" * 997 + b"\r\n") * 40)
        assert b" 400 " in connection.recv(4096)
        assert until(lambda: _is_closed(connection)) < USUAL.head
    for more, expected in (b"a" * 15_000, 200), (b"a" * 17_000, 413), (b"a" * 60_000, 413):
        whole = b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX: " + more + b"\r\n\r\n"
        assert parsed(server.send(whole))[0] == expected  # also one that comes in one piece


def test_what_anybody_may_ask_for_costs_little(server):
    """The description of the interface is large, and was made: it is not made again for each of a thousand requests."""
    assert server.ask("/openapi.json")[0] == 200
    before_s = server.process.worked_s
    for _ in range(20):
        with begin(server, "/openapi.json") as connection:
            connection.sendall(HEAD.format("/openapi.json", "").encode() * 19)
            got = 0
            while got < 20 * 30_000:
                got += len(connection.recv(1 << 20))
    assert server.process.worked_s - before_s < 4


async def _publish(hf):
    await hf.serve(agents.listen)
    await hf.start(agents.listen, 1, id="l")


def test_a_revoked_token_waits_for_nothing(server):
    """A request that waits for a result, and one that follows, end within two seconds of the revocation."""
    assert LOOK_S <= 1
    with_store(server, _publish)
    secret = token(server, "ana")
    with (
        begin(server, "/api/runs/l/result?timeout=60", secret) as waiting,
        begin(server, "/api/runs/l/events", secret, Accept="text/event-stream") as following,
    ):
        assert b"200 OK" in following.recv(4096)
        time.sleep(0.2)
        with_store(server, lambda hf: hf.revoke_token("ana"))
        began = time.monotonic()
        assert parsed(rest(waiting))[2]["error"]["code"] == "unauthorized"
        assert b"event: problem" in rest_of_stream(following)
        assert time.monotonic() - began < 5  # a computer that is busy with other tests looks late


def test_a_revoked_token_does_nothing_more(server):
    """Neither where its document began to come before the revocation."""
    with_store(server, _publish)
    body = b'{"reason": "mine"}'
    with server.connect() as begun:
        lines = f"Authorization: Bearer {token(server, 'ana')}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        begun.sendall(HEAD.format("/api/runs/l/pause", lines).replace("GET", "POST").encode() + body[:9])
        time.sleep(1.2)
        with_store(server, lambda hf: hf.revoke_token("ana"))
        begun.sendall(body[9:])
        assert parsed(rest(begun))[2]["error"]["code"] == "unauthorized"
    assert server.ask("/api/runs/l")[2]["run"]["status"] != "paused"


def test_one_token_keeps_no_other_from_following(server):
    """A server takes 1,000 followers. One token may have them all, until another comes: then its oldest come back later."""
    with_store(server, _publish)
    ana, ben = token(server, "ana"), token(server, "ben")
    first = follow(server, ana)
    for _ in range(999):
        begin(server, "/api/runs/l/events", ana, Accept="text/event-stream")
    until(lambda: followers(server) == 1_000, within_s=120)
    for _ in range(3):
        follow(server, ben)
    assert rest_of_stream(first).endswith(b"0\r\n\r\n")
    assert followers(server) == 1_000
    assert server.ask("/api/runs/l/events", token=ana, Accept="text/event-stream")[0] == 503


def test_one_token_holds_nobody_up(server):
    """Of 900 requests at once a few are worked on at a time, and another's comes in between."""
    with_store(server, _many)
    ana, ben = token(server, "ana"), token(server, "ben")
    assert server.ask("/api/runs", token=ben)[0] == 200
    asked = [begin(server, "/api/runs?limit=500", ana, f"127.0.0.{2 + n % 50}", Connection="close") for n in range(900)]
    before = served(asked)
    assert server.ask("/api/runs?limit=10", token=ben)[0] == 200
    meanwhile = served(asked) - before
    assert meanwhile < 100, f"{meanwhile} of hers were answered before his"


async def _many(hf):
    await _publish(hf)
    for n in range(500):
        await hf.start("listen", 1, id=f"many-{n}", after="1d")


def served(asked):
    """How many of these have their answer by now."""
    there, _, _ = select.select(asked, [], [], 0)
    return sum(each.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200" for each in there)


def test_who_waits_for_long_is_in_nobodys_way(server):
    """A token has more long polls than may be worked on at a time, and is answered all the same."""
    with_store(server, _publish)
    waiting = [begin(server, "/api/runs/l/result?timeout=30", server.token, Connection="close") for _ in range(20)]
    assert server.ask("/api/runs/l")[0] == 200
    assert select.select(waiting, [], [], 0)[0] == []
    server.process.stop()  # then all of them are answered
    assert {parsed(rest(each))[0] for each in waiting} == {202}


def test_who_hangs_up_waits_for_nothing(server):
    """Long polls of one token that are sent and left, thirty times a hundred: each ends when its caller leaves."""
    with_store(server, _publish)
    answered = 'path="/api/runs/{id}/result",status="400"'
    _leave(server, 100)  # what the first ones cost, caches and threads, the others do not
    until(lambda: count(server, answered) == 100)
    before = memory(server)
    for there in range(100, 3_100, 100):
        assert _leave(server, 100) == 0, "it was told to come again"
        until(lambda: count(server, answered) == there + 100)  # noqa: B023
    grown = (memory(server) - before) >> 20
    assert grown < 8, f"{grown} MB"


def _leave(server, polls):
    """Ask for the result of a run that goes on, and hang up once it is waited for; returns how many had an answer."""
    asked = [begin(server, "/api/runs/l/result?timeout=60", server.token) for _ in range(polls)]
    assert server.ask("/api/runs/l")[0] == 200  # those before it are in
    there, _, _ = select.select(asked, [], [], 0)
    for each in asked:
        each.close()
        server.held.remove(each)
    return len(there)


def count(server, labels):
    """Requests that were answered, as the server counts them."""
    found = re.search(
        rf'requests_total{{method="GET",{re.escape(labels)}}} ([\d.]+)', server.ask("/metrics")[2].decode()
    )
    return float(found[1]) if found else 0


def test_what_was_begun_counts_until_it_is_done(target):
    """Writes go on when their caller hangs up. Until they are done they are the caller's: no more are begun than it may have."""
    server = target("serve", "--port", "0", "--limits", "token=3")
    with_store(server, _publish)
    secret = token(server, "ana")
    assert server.ask("/api/runs", token=secret)[0] == 200
    database = apsw.Connection(server.url.removeprefix("sqlite:"))
    database.set_busy_timeout(10_000)
    with database:  # nobody else can write meanwhile
        database.execute("UPDATE runs SET agent = agent")
        before, writers = sockets(server), []
        for n in range(3):
            body = json.dumps({"agent": "listen", "args": [1], "id": f"begun-{n}", "after": "1d"}).encode()
            lines = (
                f"Authorization: Bearer {secret}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            )
            writers.append(server.connect())
            writers[-1].sendall(HEAD.format("/api/runs", lines).replace("GET", "POST").encode() + body)
        until(lambda: server.ask("/api/runs", token=secret)[0] == 429)
        for each in writers:
            each.close()
        until(lambda: sockets(server) <= before)
        assert server.ask("/api/runs", token=secret)[0] == 429
    until(lambda: server.ask("/api/runs", token=secret)[0] == 200)
    assert [server.ask(f"/api/runs/begun-{n}")[0] for n in range(3)] == [200] * 3


def test_large_documents_of_one_token_are_few_at_a_time(server):
    """Of twenty that are almost sent four are in memory; the others come when those are done, and small ones at once."""
    head = (
        f"POST /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {server.token}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {16 << 20}\r\n\r\n"
    )
    text = b'{"agent": "none", "args": ["' + b"x" * ((16 << 20) - 31) + b'"]}'
    assert server.ask("/api/runs", "POST", b'{"agent": "none"}')[0] == 404
    before, half, told = memory(server), threading.Event(), []

    def send():
        connection = server.connect()
        connection.sendall(head.encode())
        connection.sendall(text[:-1])
        half.wait(20)
        connection.sendall(text[-1:])
        told.append(parsed(rest(connection))[0])

    senders = [threading.Thread(target=send) for _ in range(20)]
    for each in senders:
        each.start()
    time.sleep(3)
    grown = (memory(server) - before) >> 20
    assert server.ask("/api/runs", "POST", b'{"agent": "none"}')[0] == 404
    half.set()
    for each in senders:
        each.join()
    assert told == [404] * 20
    assert 40 < grown < 160, f"{grown} MB"


def rest_of_stream(connection):
    found = b""
    while b"0\r\n\r\n" not in found and (part := connection.recv(4096)):
        found += part
    return found


@pytest.fixture
def flooded(target):
    """A server with little patience, of a run that has written much and goes on, and of one with a large result."""
    server = target("serve", "--port", "0", "--limits", "send=1s")

    async def main():
        async with holdfast.open(server.url, agents=[agents.flood, agents.keep]) as hf:
            await hf.start(agents.flood, 4096, id="f")
            await hf.run(agents.keep, "x" * 8_000_000, id="large")
            async for chunk in hf.get("f").stream("answer"):
                if chunk.kind == "end":
                    return

    asyncio.run(main())
    return server


def slow(server, path, **headers):
    """Ask for much, and read nothing of it."""
    connection = server.connect(room=4096)
    headers["Authorization"] = f"Bearer {server.token}"
    lines = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    connection.sendall(HEAD.format(path, lines).encode())
    return connection


def followers(server):
    return float(server.ask("/metrics")[2].decode().split("\nholdfast_http_followers ")[1].split()[0])


def test_who_reads_nothing_loses_its_connection(flooded):
    """A follower, and who asked for a large answer: both are gone after a while, with all that was kept for them."""
    before = sockets(flooded)
    for _ in range(5):
        slow(flooded, "/api/runs/f/streams/answer", Accept="text/event-stream")
        slow(flooded, "/api/runs/large/result")
    until(lambda: followers(flooded) == 5)
    assert until(lambda: sockets(flooded) <= before) < USUAL.send
    until(lambda: followers(flooded) == 0)


def test_a_slow_follower_costs_little(target, flooded):
    """While they are there: three hundred that read nothing cost less than 64 KB each, and another gets all of it."""
    server = target("serve", "--port", "0", "--limits", "send=30s,address=500")
    asked = {"Accept": "text/event-stream"}
    _slow_followers(server, 100)  # what the first ones cost, caches and threads, the others do not
    before = memory(server)
    _slow_followers(server, 400)
    grown = (memory(server) - before) / 300
    assert grown < 64 << 10, f"{grown / 1024:.0f} KB each"
    with begin(server, "/api/runs/f/streams/answer", server.token, **asked) as quick:
        got = 0
        while got < 4 << 20:
            got += len(quick.recv(65_536))
    began = time.monotonic()
    server.process.stop()
    assert server.process.ended() == 0
    took_s = time.monotonic() - began
    assert took_s < END_S, f"{took_s:.1f} s"  # it does not wait for them: those for whom it does have all of that


def _slow_followers(server, count):
    """So many in all. They come by tens: what is needed to let in hundreds at once is not what they cost."""
    for there in range(int(followers(server)), count, 10):
        for _ in range(10):
            slow(server, "/api/runs/f/streams/answer", Accept="text/event-stream")
        until(lambda: followers(server) == there + 10)  # noqa: B023
    time.sleep(1)


def memory(server):
    return int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize(
    "wrong", ["x=1", "address", "address=0", "address=-1", "head=0s", "head=2h", "token=1e9", "address=1,address=2"]
)
def test_limits_that_are_none_are_refused(commands, tmp_path, wrong):
    """With the reason, before anything listens."""
    process = Worker(commands.start(["serve", "--port", "0", "--limits", wrong], tmp_path, {}))
    assert process.ended() == 2
    assert "limit" in process.said()
    assert "Traceback" not in process.said()


@pytest.mark.nightly
def test_a_minute_of_everything_at_once(server):
    """Silence, garbage, half requests and unread answers from eight addresses: who asks properly is answered soon."""
    with_store(server, _publish)
    secret, over = token(server, "ana"), threading.Event()
    said = [b"", b"\x00" * 100, b"GET / HTTP/1.1\r\nx: ", HEAD.format("/openapi.json", "").encode()]
    said += [b"POST /api/runs HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{"]

    def attack(n):
        held = []
        while not over.wait(0.01):  # in all a few hundred in a second; a network that floods is another matter
            with contextlib.suppress(OSError):
                connection = socket.create_connection(server.place, 5, (f"127.0.0.{n % 8 + 2}", 0))
                held.append(connection)
                connection.sendall(said[len(held) % len(said)])
            if len(held) > 400:
                held.pop(0).close()
        for each in held:
            each.close()

    attackers = [threading.Thread(target=attack, args=(n,)) for n in range(8)]
    for each in attackers:
        each.start()
    slowest, before, until_s = 0.0, memory(server), time.monotonic() + 45
    try:
        while time.monotonic() < until_s:
            for path in ("/healthz", "/api/runs"):
                began = time.monotonic()
                assert server.ask(path, token=secret)[0] == 200
                slowest = max(slowest, time.monotonic() - began)
            server.held.clear()
    finally:
        over.set()
        for each in attackers:
            each.join()
    assert slowest < 3  # the attackers have the same processors
    assert memory(server) - before < 128 << 20
    assert len(server.process.said()) < 20_000
