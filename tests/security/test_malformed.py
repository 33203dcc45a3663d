"""Requests that are none: a hundred thousand of them, from a seed, against a real server through raw sockets."""

import json
import os
import random
import re
import selectors
import socket
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.security import agents
from tests.security.conftest import with_store

SEED = int(os.environ.get("HOLDFAST_TEST_SEED", "1"))
MANY = int(os.environ.get("HOLDFAST_TEST_MALFORMED", "100000"))
AT_ONCE = 150
ANSWER_S = 600.0  # a computer that is busy with other tests
GROWN = 48 << 20  # bytes
STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")

PATHS = (
    "/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/api", "/api/runs", "/api/runs?limit=2", "/api/runs/l",
    "/api/runs/l/events", "/api/runs/l/result", "/api/runs/counts", "/api/approvals", "/api/audit", "/api/me",
    "/api/search?q=x", "/api/events", "/api/compare?a=l&b=l", "/api/schedules", "/api/triggers", "/api/fleet",
    "/static/js/app.js", "/hooks/none", "/sign-in/oidc",
)  # fmt: skip
WRITES = (
    "/api/runs", "/api/runs/bulk", "/api/runs/none/send", "/api/runs/none/fork", "/api/approvals/none",
    "/api/schedules/none", "/api/schedules/none/backfill", "/api/events", "/api/notifications/none", "/session",
    "/hooks/none",
)  # fmt: skip
DOCUMENTS = (
    {"agent": "none", "args": [1]}, {"action": "pause", "ids": ["none"]}, {"topic": "a", "value": {"$map": [[1, 2]]}},
    {"at": 1}, {"decision": "approve", "digest": "0" * 64}, {"agent": "none", "cron": "0 7 * * *"},
    {"start": "2026-01-01", "end": "2026-01-02"}, {"name": "a", "value": 1},
    {"url": "https://example.invalid/", "kinds": ["run.failed"]}, {"token": "holdfast_none"},
)  # fmt: skip
ODD = (
    b"\0", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b":", b"%", b"%00", b"%ff", b"%zz", b"\xff", b"\xc3",
    b"\xed\xa0\x80", b";", b"&", b"=", b'"', b"\\", b"\\ud800", b"{", b"[", b"]", b"}", b",", b"..", b"//", b"9" * 30,
    b"-1", b"NaN", b"chunked", b"\x7f",
)  # fmt: skip
LENGTHS = (
    b"-1", b"+5", b"5, 5", b"5, 6", b"0x5", b"5.0", b"", b" ", b"\xd9\xa3", b"9" * 30, b"5 5", b"1e3", b"99999999", b"0",
    b"00005",
)  # fmt: skip
CHUNKS = (
    b"-1\r\n", b"g\r\n", b"ffffffffffffffff\r\n", b"5\r\nab", b"5\nabcde\r\n", b"5;x=" + b"y" * 300 + b"\r\nabcde\r\n",
    b"0\r\nA\r\n\r\n", b"1\r\nabc", b"\r\n", b"5 \r\nabcde\r\n", b"0x5\r\nabcde\r\n",
    b"00000000000000000000005\r\nabcde\r\n0\r\n\r\n",
)  # fmt: skip
LINES = (
    b"GET", b"GET /", b"GET / HTTP/9.9", b"GET / HTTP/1.", b"GET  / HTTP/1.1", b"G\0T / HTTP/1.1", b"/ GET HTTP/1.1",
    b" GET / HTTP/1.1", b"GET / HTTP/1.1 x", b"GET http://[ HTTP/1.1", b"GET http://a:b@c/api/runs HTTP/1.1",
    b"OPTIONS * HTTP/1.1", b"CONNECT a:1 HTTP/1.1", b"TRACE / HTTP/1.1", b"PRI * HTTP/2.0",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET /\xff HTTP/1.1", b"get / http/1.1",
    b"GET //..//api/runs HTTP/1.1", b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1", b"GET ? HTTP/1.1", b"GET # HTTP/1.1",
)  # fmt: skip
HEADERS = (
    b"no colon", b": empty", b"a b: c", b"x:\0", b"x: \xff\xfe", b" folded: x", b"x: y\r\n z", b"Host: a", b"Host:",
    b"Host: \0", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: x",
    b"Expect: 100-continue", b"Expect: x", b"Connection: close, upgrade", b"Accept: text/event-stream",
    b"Last-Event-ID: 9999999999999999999999", b"Last-Event-ID: \xff", b"Content-Encoding: gzip", b"Range: bytes=9-1",
    b'If-None-Match: "', b"Authorization: Bearer", b"Authorization: Basic x", b"Authorization: Bearer \xff\xff",
    b"Authorization:", b"Origin: null", b"Origin: http://[", b"Sec-Fetch-Site: cross-site", b"X-Holdfast-Page: 1",
    b"Content-Type: application/json; charset=\xff", b"Content-Type: text/plain",
)  # fmt: skip


class Malformed:
    """Makes requests; the same number is the same request."""

    def __init__(self, secret, port):
        self.secret, self.port = secret.encode(), port

    def make(self, number):
        dice = random.Random(f"{SEED} {number}")
        kinds = (
            self._line, self._header, self._chunks, self._length, self._upgrade, self._json, self._cookie, self._query,
            self._bytes, self._mutated, self._mutated, self._deep,
        )  # fmt: skip
        return dice.choice(kinds)(dice)

    def _head(self, dice, method=b"GET", path=None, *more):
        known = [b"Authorization: Bearer " + self.secret] if dice.random() < 0.7 else []
        path = dice.choice(PATHS).encode() if path is None else path
        return b"\r\n".join(
            [method + b" " + path + b" HTTP/1.1", b"Host: 127.0.0.1:%d" % self.port, *known, *more, b"", b""]
        )

    def _write(self, dice, body, length=None):
        path = dice.choice(WRITES).encode()
        page = [b"Origin: http://127.0.0.1:%d" % self.port, b"X-Holdfast-Page: 1"] if path == b"/session" else []
        length = b"%d" % len(body) if length is None else length
        return (
            self._head(dice, b"POST", path, *page, b"Content-Type: application/json", b"Content-Length: " + length)
            + body
        )

    def _line(self, dice):
        return dice.choice(LINES) + b"\r\nHost: h\r\n\r\n"

    def _header(self, dice):
        several = [dice.choice(HEADERS) for _ in range(dice.choice((1, 1, 2, 5)))]
        if dice.random() < 0.05:
            several = [b"x-%d: y" % n for n in range(dice.choice((100, 2_000)))]
        return self._head(dice, dice.choice((b"GET", b"POST", b"HEAD", b"DELETE", b"PUT", b"PATCH")), None, *several)

    def _chunks(self, dice):
        more = [
            b"Content-Type: application/json",
            b"Transfer-Encoding: " + dice.choice((b"chunked", b"Chunked", b"chunked, chunked")),
        ]
        if dice.random() < 0.2:
            more.append(b"Content-Length: 5")
        parts = [dice.choice((*CHUNKS, b"5\r\n[1,2]\r\n")) for _ in range(dice.randint(1, 4))]
        return self._head(dice, b"POST", dice.choice(WRITES).encode(), *more) + b"".join(parts)

    def _length(self, dice):
        return self._write(dice, json.dumps(dice.choice(DOCUMENTS)).encode(), dice.choice(LENGTHS))

    def _upgrade(self, dice):
        key = dice.choice((b"dGhlIHNhbXBsZSBub25jZQ==", b"x", b"", b"\xff" * 16))
        to, version = dice.choice((b"websocket", b"h2c", b"WebSocket, x")), dice.choice((b"13", b"0", b"x"))
        more = [
            b"Upgrade: " + to,
            b"Connection: Upgrade",
            b"Sec-WebSocket-Key: " + key,
            b"Sec-WebSocket-Version: " + version,
        ]
        return self._head(dice, b"GET", None, *more) + dice.randbytes(dice.randint(0, 60))

    def _json(self, dice):
        return self._write(dice, mutated(dice, json.dumps(dice.choice(DOCUMENTS)).encode()))

    def _deep(self, dice):
        depth = dice.choice((150, 201, 990, 20_000))
        opened, closed = dice.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'{"args":[', b"]}")))
        value = opened * depth + b"1" + (closed * depth if dice.random() < 0.8 else b"")
        return self._write(dice, value if dice.random() < 0.3 else b'{"agent": "none", "args": [' + value + b"]}")

    def _cookie(self, dice):
        name = dice.choice(
            (b"holdfast_session_%d" % self.port, b"__Host-holdfast_session", b"holdfast_session", b"x", b"")
        )
        value = dice.choice(
            (
                b"",
                b"=",
                b"a" * 64,
                b"\xff\xfe",
                b'"',
                b'"\\777"',
                b"a;b=c;;;",
                b"x" * 8_000,
                dice.randbytes(40).hex().encode(),
            )
        )
        return self._head(dice, b"GET", None, b"Cookie: " + name + dice.choice((b"=", b"", b"==")) + value)

    def _query(self, dice):
        path = dice.choice(PATHS).encode().partition(b"?")[0]
        names = (
            b"limit",
            b"after",
            b"search",
            b"label",
            b"status",
            b"since",
            b"until",
            b"timeout",
            b"kinds",
            b"order",
            b"q",
            b"a",
            b"%00",
            b"",
        )
        pairs = [
            dice.choice(names) + b"=" + dice.choice((*(o for o in ODD if o.strip(b" \t\r\n\0")), b"1", b"x" * 300))
            for _ in range(dice.randint(1, 5))
        ]
        return self._head(
            dice, dice.choice((b"GET", b"DELETE")), path + b"?" + b"&".join(pairs) * dice.choice((1, 1, 1, 40))
        )

    def _bytes(self, dice):
        return dice.randbytes(dice.randint(1, 400)) + dice.choice((b"", b"\r\n\r\n"))

    def _mutated(self, dice):
        good = (
            self._head(dice) if dice.random() < 0.5 else self._write(dice, json.dumps(dice.choice(DOCUMENTS)).encode())
        )
        return mutated(dice, good * dice.choice((1, 1, 1, 3)))


def mutated(dice, text):
    """The same with some bytes changed, taken away, doubled or put in."""
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(text) + 1)
        until = min(len(text), at + dice.choice((0, 0, 1, 1, 5, 40)))
        text = text[:at] + dice.choice((b"", dice.choice(ODD), dice.randbytes(2), text[at:until] * 2)) + text[until:]
    return text or b"\0"


def sent(server, made, numbers):
    """Send so many, some at a time, each on a connection of its own until it has its answer; how often each status was answered."""
    found, ahead, waiting = Counter(), iter(numbers), selectors.DefaultSelector()

    def begin():
        if (number := next(ahead, None)) is not None:
            connection = socket.create_connection(server.place, ANSWER_S)
            connection.setblocking(False)
            waiting.register(
                connection,
                selectors.EVENT_READ | selectors.EVENT_WRITE,
                [number, made.make(number), b"", time.monotonic()],
            )

    def end(connection, state):
        waiting.unregister(connection)
        connection.close()
        statuses = [int(status) for status in STATUS.findall(state[2]) if status[:1] != b"1"] or ["closed"]
        found.update(statuses)
        wrong = [status for status in statuses if status != "closed" and status >= 500 and status != 503]
        assert not wrong, (
            f"HOLDFAST_TEST_SEED={SEED}, number {state[0]}: {made.make(state[0])!r} was answered {state[2][:500]!r}"
        )

    for _ in range(AT_ONCE):
        begin()
    while waiting.get_map():
        for key, events in waiting.select(1.0):
            connection, state = key.fileobj, key.data
            try:
                if events & selectors.EVENT_WRITE:
                    state[1] = state[1][connection.send(state[1]) :]
                    if not state[1]:
                        waiting.modify(connection, selectors.EVENT_READ, state)
                part = connection.recv(65_536) if events & selectors.EVENT_READ else None
            except OSError:  # it was closed before it was read
                part = b""
            state[2] += part or b""
            if part == b"" or re.search(rb"HTTP/1\.1 [2-5]\d\d.*?\r\n\r\n", state[2], re.DOTALL):
                end(connection, state)
                begin()
        for key in list(waiting.get_map().values()):
            assert time.monotonic() < key.data[3] + ANSWER_S, (
                f"number {key.data[0]} has no answer: {made.make(key.data[0])!r}"
            )
    return found


def resident(server):
    return int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * 4096


async def _publish(hf):
    await hf.serve(agents.listen)
    await hf.start(agents.listen, 1, id="l")


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("many", [600, pytest.param(MANY, marks=pytest.mark.nightly, id="night")])
def test_no_bytes_are_a_fault_of_the_server(target, many, record_property):
    """No 500, no Traceback, no memory that stays; and who asks properly behind all of them is answered."""
    server = target("serve", "--port", "0", "--limits", "address=1000,head=500ms,body=500ms")
    with_store(server, _publish)
    made = Malformed(server.token, server.place[1])
    sent(server, made, range(-400, 0))  # what the first ones cost, caches and threads, the others do not
    before, began = resident(server), time.monotonic()
    found = sent(server, made, range(many))
    grown = resident(server) - before
    took_s = time.monotonic() - began
    told = f"{many:,} in {took_s:.0f} s, {before >> 20} MB before and {grown / (1 << 20):.1f} MB more: {dict(found)}"
    record_property("malformed", told)  # --junit-xml has it
    assert server.ask("/api/runs/l")[0] == 200, told
    assert grown < GROWN, told
    assert "Traceback" not in server.process.said(), server.process.said()[-2_000:]
