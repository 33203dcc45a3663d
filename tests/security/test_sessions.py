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

import holdfast
from holdfast.http import codes, origins, tries

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
    """A browser with a page of this server open: what it sends and keeps."""

    def __init__(self, server, own=None):
        self.server, self.cookie = server, None
        self.own = own or f"http://127.0.0.1:{server.place[1]}"

    def ask(self, path="/api/runs", method="GET", body=None, **headers):
        named = {"Host": self.own.partition("://")[2], "Sec_Fetch_Site": "same-origin"}
        if method != "GET":
            named |= {"Origin": self.own, "X_Holdfast_Page": "1"}
        if self.cookie:
            named["Cookie"] = self.cookie
        body = None if body is None else json.dumps(body).encode()
        named = {name: text for name, text in {**named, **headers}.items() if text is not None}
        return self.server.ask(path, method, body, token=None, **named)

    def begin(self, **credential):
        status, headers, said = self.ask("/session", "POST", credential)
        if status == 201:
            assert said.keys() == {"name", "seconds"}  # no script has anything to keep
            self.cookie, self.set = headers["set-cookie"].partition(";")[0], headers["set-cookie"]
        return status


def test_without_the_link_no_account_of_the_computer_comes_in(server):
    """A store without tokens: its first server makes one, and its link lets one browser in, once."""
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
    told = browser.ask("/api/me")[2]
    assert (told["name"], told["via"]) == (token.name, "session")
    status, _, said = browser.ask("/api/runs/none/cancel", "POST", {})
    assert (status, said["error"]["code"]) == (404, "unknown_run")
    name = browser.cookie.partition("=")[0]
    for wrong in ("", "x", browser.cookie.partition("=")[2][:-1], browser.cookie.partition("=")[2].swapcase()):
        thief.cookie = f"{name}={wrong}"
        assert thief.ask()[0] == 401
        assert thief.ask("/session", "DELETE")[0] == 401
    assert browser.ask()[0] == 200
    with_store(server, lambda hf: hf.revoke_token(token.id))
    assert browser.ask()[0] == 401


AS_ANOTHER = (
    "import os, socket; 'x'.encode('idna'); os.setgid(65534); os.setuid(65534);"
    "s = socket.create_connection(('127.0.0.1', {port}));"
    "s.sendall({head!r}); {then}"
)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another account")
def test_the_cookie_of_a_session_is_worth_nothing_to_another_account(server):
    """Browsers send it to every port of this host, also to a server of somebody else; the system says whose a connection is."""
    browser = Browser(server)
    assert browser.begin(token=server.token) == 201
    head = f"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1:{server.place[1]}\r\nConnection: close\r\nCookie: {browser.cookie}\r\n\r\n"
    port = server.place[1]
    script = AS_ANOTHER.format(port=port, head=head.encode(), then="print(s.makefile('rb').read())")
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "401" in said and "another account" in said
    # Of a connection that its process has closed the system would name root.
    start = f"POST /api/runs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\nX-Holdfast-Page: 1\r\n"
    body = b'{"agent": "listen", "args": [1], "id": "stolen"}'
    start += f"Cookie: {browser.cookie}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with_store(server, lambda hf: hf.serve(listen))
    script = AS_ANOTHER.format(port=port, head=start.encode() + body[:-1], then="s.sendall(b'}'); s.close()")
    for _ in range(20):
        subprocess.run([sys.executable, "-c", script], check=True)
    assert browser.ask("/api/runs/stolen")[0] == 404
    assert browser.ask("/api/runs", "POST", {"agent": "listen", "args": [1], "id": "own"})[0] == 201


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
    silent = [
        {"Origin": None},
        {"X_Holdfast_Page": None},
        {"X_Holdfast_Page": "2"},
        {"Origin": None, "X_Holdfast_Page": None},
    ]
    for headers in wrong:
        for asked in (("/api/runs",), ("/session", "POST", {"token": server.token})):
            status, _, said = browser.ask(*asked, **headers)
            assert (status, said["error"]["code"]) == (403, "foreign_request"), (headers, asked)
    for headers in silent:  # what no other page can send: to read needs none of it, so that a page can follow
        for asked in (
            ("/api/runs/x/cancel", "POST", {}),
            ("/session", "POST", {"token": server.token}),
            ("/session", "DELETE"),
        ):
            status, _, said = browser.ask(*asked, **headers)
            assert (status, said["error"]["code"]) == (403, "foreign_request"), (headers, asked)
        assert browser.ask(**headers)[0] == 200
    asked = {
        "Origin": "http://evil.example",
        "Access_Control_Request_Method": "POST",
        "Access_Control_Request_Headers": "x-holdfast-page",
    }
    status, headers, _ = server.ask("/session", "OPTIONS", token=None, Sec_Fetch_Site="cross-site", **asked)
    assert status in (403, 405) and not any(name.startswith("access-control") for name in headers)
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


def test_a_session_is_known_to_every_server_of_the_store(target):
    """It outlives its server; a code does not. A later start prints another link for the token of who starts it."""
    first = target("serve", "--port", "0")
    code, browser = code_of(first), Browser(first)
    assert browser.begin(token=first.token) == 201
    first.process.kill()
    second = target("serve", "--port", str(first.place[1]))
    assert Browser(second).begin(code=code) == 401
    browser.server = second
    assert browser.ask()[0] == 200
    assert Browser(second).begin(code=code_of(second)) == 201
    third = target("serve", "--port", "0")
    elsewhere = Browser(third)
    elsewhere.cookie = browser.cookie.replace(str(first.place[1]), str(third.place[1]))
    assert elsewhere.ask()[0] == 200
    assert elsewhere.ask("/session", "DELETE")[0] == 204
    assert browser.ask()[0] == 401  # everywhere at once
    assert len(with_store(second, lambda hf: hf.tokens())) == 2  # that of the first start, and the test's


def test_codes_end_and_are_few(monkeypatch):
    """After a minute, and the oldest when there are a hundred."""
    now = 1_000.0
    monkeypatch.setattr(codes.time, "monotonic", lambda: now)
    kept = codes.Codes()
    made = [kept.code("t") for _ in range(101)]
    assert [kept.taken(made[0]), kept.taken(made[1])] == [None, "t"]
    now += 60
    assert kept.taken(made[2]) is None


OUTSIDE = {"X_Forwarded_For": "1.2.3.4", "X_Forwarded_Proto": "https", "Via": "1.1 proxy"}


def test_behind_tls_a_session_is_for_the_address_that_the_operator_named(target):
    """Its cookie goes by TLS to that host alone; the pages of no other address use it, and a proxy in between is no hindrance."""
    server = target("serve", "--port", "0", "--host", "127.0.0.1", "--url", "https://agents.example.com/run")
    invitation = server.process.until("#code=")  # comes only while the store has no token, such as the test's
    assert "https://agents.example.com/run/#code=" in invitation
    browser = Browser(server, "https://agents.example.com")
    assert browser.ask("/session", "POST", {"token": server.token}, **OUTSIDE)[0] == 201
    assert browser.begin(token=server.token) == 201
    assert browser.cookie.startswith("__Host-holdfast_session=")
    assert all(part in browser.set for part in ("HttpOnly", "SameSite=strict", "Path=/;", "Secure"))
    assert "Domain" not in browser.set
    assert browser.ask(**OUTSIDE)[0] == browser.ask(Host="127.0.0.1:8010", **OUTSIDE)[0] == 200
    assert browser.ask("/api/runs/x/cancel", "POST", {}, **OUTSIDE)[0] == 404
    wrong = [
        {"Host": "evil.example"},
        {"Origin": "http://agents.example.com"},
        {"Origin": "https://agents.example.com:444"},
    ]
    wrong += [
        {"Origin": f"http://127.0.0.1:{server.place[1]}"},
        {"Origin": "null"},
        {"Origin": "https://agents.example.com/run"},
    ]
    for headers in wrong:
        assert browser.ask("/api/runs/x/cancel", "POST", {}, **headers)[0] == 403, headers
    assert b'<base href="/run/">' in server.ask("/approvals/q-1")[2]
    assert server.ask("/static/index.html")[0] == server.ask("/healthz")[0] == 200


@pytest.mark.parametrize(
    "url", ["http://agents.example.com", "agents.example.com", "https://", "https://a:b@c", "https://a/?x", "ftp://a", "https://a:x"]
)  # fmt: skip
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(holdfast.BadArguments, match="--url"):
        origins.Origin.parse(url)


def test_sessions_need_an_address_where_others_reach_the_server(target, tmp_path):
    """A cookie would cross the network as it is."""
    first = target("serve", "--port", "0")
    first.token  # noqa: B018 - without one it would not start
    server = target("serve", "--port", "0", "--host", "0.0.0.0")
    server.place = ("127.0.0.1", server.place[1])
    status, _, said = Browser(server).ask("/session", "POST", {"token": first.token})
    assert status == 401 and "--url" in said["error"]["message"]


def test_wrong_tokens_are_not_looked_up_for_ever(server):
    """Many from one address are told to wait; who has shown a good one is not kept out by them, and neither is another address."""
    good, browser = server.token, Browser(server)
    assert server.ask("/api/runs")[0] == 200
    assert browser.begin(token=good) == 201
    wrong = [f"holdfast_{'0' * 12}_{'a' * 42}{digit}" for digit in "0123456789"]
    answers = [server.ask("/api/runs", token=wrong[n % 10])[0] for n in range(tries.WRONG_MOST + 5)]
    assert answers == [401] * tries.WRONG_MOST + [429] * 5
    status, headers, said = server.ask("/session", "POST", json.dumps({"token": wrong[0]}).encode(), token=None,
                                       Host=f"127.0.0.1:{server.place[1]}", Origin=browser.own, X_Holdfast_Page="1")  # fmt: skip
    assert (status, said["error"]["code"]) == (429, "too_many_tries") and 0 < int(headers["retry-after"]) <= 61
    assert server.ask("/api/runs")[0] == browser.ask()[0] == 200
    assert server.ask("/api/runs", source="127.0.0.2", token=wrong[0])[0] == 401


def test_nobody_ends_the_sessions_of_others(server):
    """Who has a token begins as many sessions as they like: they are their own that end for it."""
    browser, eve = Browser(server), Browser(server)
    assert browser.begin(token=server.token) == 201
    _, secret = with_store(server, lambda hf: hf.create_token("eve", scopes=["read"]))
    eve.begin(token=secret)
    first = eve.cookie
    assert {Browser(server).begin(token=secret) for _ in range(100)} == {201}
    assert browser.ask()[0] == 200
    eve.cookie = first
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
        "session": f"Cookie: {browser.cookie}\r\n",
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
        own = f"127.0.0.1:{server.place[1]}"
        named = {"Host": own, "Origin": f"http://{own}", "X_Holdfast_Page": "1"}
        status, _, said = server.ask("/session", "POST", text, **named)
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
