"""Other accounts of the computer, web pages and proxies before a server that is for its user alone."""

import contextlib
import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from tests.security.agents import listen
from tests.security.conftest import parsed, rest, with_store
from tests.workers import Worker, ask

from holdfast.http import sessions

PROXIED = (
    "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port",
    "X-Forwarded", "X-Real-IP", "Via", "X-Client-IP", "Client-IP",
    "True-Client-IP", "X-Cluster-Client-IP", "CF-Connecting-IP", "CF-Ray", "CDN-Loop",
    "Fly-Client-IP", "Fastly-Client-IP", "X-Original-URL", "X-Original-Forwarded-For", "X-Envoy-External-Address",
    "X-Amzn-Trace-Id", "X-Azure-ClientIP", "X-Appengine-User-IP", "X-ARR-SSL", "Ngrok-Auth-User-Id",
    "Tailscale-User-Login", "X-ProxyUser-Ip", "X-Vercel-Forwarded-For", "X-Varnish", "Proxy-Client-IP",
    "WL-Proxy-Client-IP", "X-Host",
)  # fmt: skip


def code_of(server):
    return re.search(r"#code=([\w-]{43})", server.process.until("#code="))[1]


class Browser:
    """A browser of this computer with the first page open: what it sends and keeps."""

    def __init__(self, server):
        self.server, self.cookie, self.key = server, None, None
        self.own = f"http://127.0.0.1:{server.place[1]}"

    def ask(self, path="/api/runs", method="GET", body=None, **headers):
        named = {"Host": self.own.removeprefix("http://"), "Sec_Fetch_Site": "same-origin"}
        if method != "GET":
            named["Origin"] = self.own
        if self.cookie:
            named["Cookie"] = self.cookie
        if self.key:
            named["Authorization"] = f"Session {self.key}"
        body = None if body is None else json.dumps(body).encode()
        return self.server.ask(path, method, body, token=None, **{**named, **headers})

    def begin(self, **credential):
        status, headers, said = self.ask("/session", "POST", credential)
        if status == 201:
            self.cookie, self.key, self.set = (
                headers["set-cookie"].partition(";")[0],
                said["key"],
                headers["set-cookie"],
            )
        return status


def test_without_the_link_no_account_of_the_computer_comes_in(server):
    """A store without tokens: its first server makes one, and its link lets one browser in, once, with both halves of a session."""
    for method, path in (("GET", "/api/runs"), ("POST", "/api/runs"), ("GET", "/api/approvals")):
        assert server.ask(path, method, b"{}" if method == "POST" else None, token=None)[0] == 401
    (token,) = with_store(server, lambda hf: hf.tokens())
    code = code_of(server)
    assert "holdfast_" not in server.process.said()  # a log is read by others: the secret goes to a terminal alone
    browser, thief = Browser(server), Browser(server)
    assert [thief.begin(code=wrong) for wrong in ("", "x", code[:-1], code.upper())] == [401] * 4
    assert browser.begin(code=code) == 201
    assert all(part in browser.set for part in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"))
    assert thief.begin(code=code) == 401
    assert browser.ask()[0] == 200
    status, _, said = browser.ask("/api/runs/none/cancel", "POST", {})
    assert (status, said["error"]["code"]) == (404, "unknown_run")
    # A server of another account gets the cookie of this host, and a script that runs in the page cannot read it.
    thief.cookie = browser.cookie
    assert thief.ask()[0] == 401
    assert thief.ask("/session", "DELETE")[0] == 401
    thief.key = "x" * 43
    assert thief.ask("/session", "DELETE")[0] == 401
    thief.cookie, thief.key = None, browser.key
    assert thief.ask()[0] == 401
    assert thief.ask("/session", "DELETE")[0] == 401
    assert browser.ask()[0] == 200  # one half ends no session either
    with_store(server, lambda hf: hf.revoke_token(token.id))
    assert browser.ask()[0] == 401


def test_the_secret_of_the_first_token_goes_to_the_terminal(tmp_path):
    """Where a person started the server, and nowhere else; it is good for programs."""
    terminal, its = pty.openpty()
    command = [sys.executable, "-m", "holdfast", "serve", "--port", "0"]
    child = subprocess.Popen(command, cwd=tmp_path, stdin=its, stdout=its, stderr=its)
    os.close(its)
    try:
        said = b""
        while b"#code=" not in said:
            assert select.select([terminal], [], [], 20)[0], said
            said += os.read(terminal, 4096)
        secret = re.search(rb"holdfast_[0-9a-f]{12}_[\w-]{43}", said)[0].decode()
        place = re.search(rb"127.0.0.1:(\d+)", said)
        with socket.create_connection(("127.0.0.1", int(place[1]))) as caller:
            caller.sendall(ASKED.format(f"Authorization: Bearer {secret}\r\n").encode())
            assert parsed(rest(caller))[0] == 200
    finally:
        child.kill()
        child.wait()
        os.close(terminal)


def test_a_session_is_of_this_computer_and_of_its_own_page(server):
    """Names of other hosts, other origins, and whatever says that it was passed on are refused, also where a session begins."""
    browser = Browser(server)
    assert browser.begin(token=server.token) == 201
    port = server.place[1]
    wrong = [
        {"Host": host}
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "10.0.0.1", "[::2]")
    ]
    wrong += [
        {"Origin": origin} for origin in ("http://evil.example", "null", "http://127.0.0.1", f"http://localhost:{port}")
    ]
    wrong += [{"Sec_Fetch_Site": site} for site in ("cross-site", "same-site")]
    wrong += [{name: "1.2.3.4"} for name in PROXIED]
    for headers in wrong:
        for asked in (("/api/runs",), ("/session", "POST", {"token": server.token})):
            status, _, said = browser.ask(*asked, **headers)
            assert (status, said["error"]["code"]) == (403, "foreign_request"), (headers, asked)
    assert browser.ask("/api/runs", "POST", {}, **{"Content-Type": "text/plain"})[0] == 415
    assert browser.ask("/session", "POST", {}, **{"Content-Type": "text/plain"})[0] == 415
    assert browser.ask("/session", "POST", {"token": "x" * 2_000})[0] == 413
    assert (
        server.ask("/api/runs", X_Forwarded_For="1.2.3.4", Host="holdfast.example")[0] == 200
    )  # a token may come from anywhere
    assert browser.ask("/session", "DELETE")[0] == 204
    assert [browser.ask()[0], browser.ask("/session", "DELETE")[0]] == [401, 401]


@pytest.mark.by_day("384-True", "416-False")
@pytest.mark.parametrize(("mode", "told"), [(0o600, True), (0o640, False), (0o644, False)])
def test_a_link_goes_to_no_file_that_others_read(tmp_path, mode, told):
    """A log that anybody may read would give a session to whoever is quicker."""
    log = tmp_path / "log"
    log.touch(mode)
    log.chmod(mode)
    command = [sys.executable, "-m", "holdfast", "serve", "--port", "0", "--db", f"sqlite:{tmp_path}/runs.db"]
    with log.open("wb") as said, subprocess.Popen(command, cwd=tmp_path, stdout=said, stderr=said) as child:
        try:
            for _ in range(600):
                if "browser" in log.read_text():
                    break
                time.sleep(0.05)
        finally:
            child.kill()
    assert ("#code=" in log.read_text(), "start it at a terminal" in log.read_text()) == (told, not told)


def test_a_session_says_how_long_it_lasts(server):
    """Twelve hours, or as long as its token is good; that is also when the browser forgets it."""
    _, short = with_store(server, lambda hf: hf.create_token("ana", expires="1h"))
    _, lasting = with_store(server, lambda hf: hf.create_token("bo", expires=None))
    for secret, least, most in ((short, 3_500, 3_600), (lasting, 43_200, 43_200), (server.token, 43_200, 43_200)):
        status, headers, said = Browser(server).ask("/session", "POST", {"token": secret})
        assert status == 201 and least <= said["seconds"] <= most
        assert f"Max-Age={said['seconds']};" in headers["set-cookie"]


def test_a_later_start_prints_another_link(target):
    """For the token of who starts it; a code of the server before is worth nothing, and neither is a session."""
    first = target("serve", "--port", "0")
    code, browser = code_of(first), Browser(first)
    assert browser.begin(token=first.token) == 201
    first.process.kill()
    second = target("serve", "--port", "0")
    assert Browser(second).begin(code=code) == 401
    browser.server = second
    assert browser.ask(Host=f"127.0.0.1:{second.place[1]}")[0] == 401
    assert Browser(second).begin(code=code_of(second)) == 201
    assert len(with_store(second, lambda hf: hf.tokens())) == 2  # that of the first start, and the test's


def test_codes_and_sessions_end_and_are_few(monkeypatch):
    """A code after a minute, a session after twelve hours, and the oldest when there are a hundred."""
    now = 1_000.0
    monkeypatch.setattr(sessions.time, "monotonic", lambda: now)
    kept = sessions.Sessions()
    codes = [kept.code("t") for _ in range(101)]
    assert [kept.taken(codes[0]), kept.taken(codes[1])] == [None, "t"]
    opened = [kept.begin("t") for _ in range(101)]
    assert [kept.token(*opened[0]), kept.token(*opened[1])] == [None, "t"]
    now += 60
    assert kept.taken(codes[2]) is None
    now += 12 * 3600
    assert kept.token(*opened[1]) is None


def test_nobody_ends_the_sessions_of_others(server):
    """Who has a token begins as many sessions as they like: they are their own that end for it."""
    browser, eve = Browser(server), Browser(server)
    assert browser.begin(token=server.token) == 201
    _, secret = with_store(server, lambda hf: hf.create_token("eve", scopes=["read"]))
    eve.begin(token=secret)
    first = eve.cookie, eve.key
    assert {Browser(server).begin(token=secret) for _ in range(100)} == {201}
    assert browser.ask()[0] == 200
    eve.cookie, eve.key = first
    assert eve.ask()[0] == 401


@pytest.mark.parametrize("first", ["session", "token"])
def test_what_a_session_follows_ends_with_it(server, first):
    """Whoever else follows with the same token goes on, and keeps it from nothing."""

    async def publish(hf):
        await hf.serve(listen)
        await hf.start(listen, 1, id="l")

    with_store(server, publish)
    browser = Browser(server)
    assert browser.begin(token=server.token) == 201
    shown = {
        "session": f"Cookie: {browser.cookie}\r\nAuthorization: Session {browser.key}\r\n",
        "token": f"Authorization: Bearer {server.token}\r\n",
    }
    following = {}
    for each in sorted(shown, key=lambda each: each != first):
        following[each] = server.connect()
        asked = f"GET /api/runs/l/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n{shown[each]}\r\n"
        following[each].sendall(asked.encode())
        assert b"200 OK" in following[each].recv(4096)
        following[each].settimeout(3)
    assert browser.ask("/session", "DELETE")[0] == 204
    assert b"this session is over" in said_by(following["session"])
    assert b"event: problem" not in said_by(following["token"])


def said_by(following):
    """All that comes within a while."""
    found = b""
    with contextlib.suppress(TimeoutError):
        while not found.endswith(b"0\r\n\r\n"):
            found += following.recv(4096)
    return found


def test_what_begins_a_session_has_one_meaning(server):
    """As every document: names come once, in UTF-8, and what is nested is no fault of the server."""
    token = json.dumps(server.token)
    wrong = [f'{{"token": "x", "token": {token}}}'.encode(), f'{{"token": {token}}}'.encode("utf-16"), b"[" * 999]
    for text in wrong:
        status, _, said = server.ask("/session", "POST", text)
        assert (status, said["error"]["code"]) == (400, "bad_json"), text[:30]
    assert "fault" not in server.process.said()


@pytest.fixture
def at_socket(commands):
    """A server at a Unix socket, in a folder that others may look into."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        path, url = Path(folder) / "s", f"sqlite:{folder}/runs.db"
        process = Worker(commands.start(["serve", "--socket", str(path), "--db", url], folder, {}))
        process.until("Serving")
        yield path, url, process
        process.kill()


def through(path, head):
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(path))
        caller.sendall(head.encode())
        return parsed(rest(caller))


ASKED = "GET /api/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{}\r\n"


def test_a_socket_is_for_its_account_alone(at_socket):
    """It is made for nobody else, and who is let at it all the same is asked for a token; what a proxy passes on is refused."""
    path, url, process = at_socket
    assert path.stat().st_mode & 0o777 == 0o600
    assert through(path, ASKED.format(""))[0] == 200
    for name in ("X-Forwarded-For", "Via", "CF-Ray"):
        assert through(path, ASKED.format(f"{name}: x\r\n"))[0] == 403
    start = "POST /api/runs/none/cancel HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    assert through(path, start)[0] == 415
    if os.getuid() == 0:  # as another account
        script = (
            f"import os, socket; os.setgid(65534); os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.connect({str(path)!r});"
            f"s.sendall({ASKED.format('').encode()!r}); print(s.recv(100))"
        )
        refused = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert "PermissionError" in refused.stderr
        path.chmod(0o666)
        assert (
            "401" in subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        )
    process.stop()
    assert process.ended() == 0
    assert not path.exists()
    assert ask(url, lambda hf: hf.tokens()) == []
