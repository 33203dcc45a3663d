"""A real server with a worker beside it, attacked by requests over real sockets; and what must be true of every answer.

First only by who may not write: then the store is row by row what it was. Then by everybody, while a worker carries what was
started. Once a second somebody asks whether the server is alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
import socket
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from tests.commands import Cold
from tests.http.provider import OidcProvider
from tests.http.senders import NEW, OLD
from tests.security.fuzzers.agents import MARK, OTHERS
from tests.security.fuzzers.hunting import MOST_FINDINGS, MOST_GROWTH, SHOWN, Report, dice_of, resident, smallest
from tests.security.fuzzers.requests import ROUTES, Request, Requests, is_plain, rendered
from tests.security.fuzzers.stores import RUNS, SCOPES, left, postgres, prepared, rows
from tests.workers import Worker

from holdfast.client.keys import Keys
from holdfast.http.errors import codes

THREADS = 3
HEALTHY_S = 1.0
ANSWER_S = 30.0  # what is done to many runs takes 20 s at the most, and says what is left
MOST_FILES = 30  # that a server has open more than when it was warm
STRANGERS = ("", "stranger", "revoked")
HARMLESS = (*STRANGERS, *["reader"] * 7)  # who may not write
EVERYBODY = (*STRANGERS, *SCOPES, "link", "session", "session", "limited", "limited", *["operator"] * 11)


class Wrong(Exception):
    """An answer that no server should give."""


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes
    goes_on: bool  # is the connection still of use?

    def document(self) -> Any:
        """What it says, as data."""
        if self.headers.get("content-type") != "application/json" or not self.body:
            return None
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise Wrong(f"it says JSON, and it is none: {error}") from error


def read_answer(stream: IO[bytes], method: str) -> Answer | None:
    """One answer; nothing where the other side has closed. `Wrong` if it is no HTTP."""
    while True:
        first = stream.readline(65_537)
        if not first:
            return None
        found = re.fullmatch(rb"HTTP/1\.1 (\d{3}) [ -~]*\r\n", first)
        if found is None:
            raise Wrong(f"no line of a status: {first[:100]!r}")
        headers: dict[str, str] = {}
        while (line := stream.readline(65_537)) != b"\r\n":
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon or not line.endswith(b"\r\n") or not re.fullmatch(r"[\w-]+", name):
                raise Wrong(f"no header: {line[:100]!r}")
            headers[name.lower()] = value.strip()
        status = int(found[1])
        if status >= 200:
            break
    goes_on = "close" not in headers.get("connection", "").lower()
    if method == "HEAD" or status in (204, 304):
        return Answer(status, headers, b"", goes_on)
    if headers.get("content-type", "").startswith("text/event-stream"):
        return Answer(status, headers, b"", False)
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(stream.readline(100), 16):
            body += stream.read(size)
            stream.readline(3)
        stream.readline(3)
        return Answer(status, headers, body, goes_on)
    if "content-length" not in headers:
        raise Wrong("nobody knows where the answer ends")
    body = stream.read(int(headers["content-length"]))
    if len(body) < int(headers["content-length"]):
        raise Wrong("half of an answer")
    return Answer(status, headers, body, goes_on)


def check(request: Request, answer: Answer) -> Any:
    """Raise `Wrong` if this is no answer to that; returns the document."""
    said, code = answer.document(), ""
    if answer.headers.get("x-content-type-options") != "nosniff":
        raise Wrong("an answer without nosniff")
    if answer.status >= 400 and answer.body and not (isinstance(said, dict) and said.get("status") == "unavailable"):
        error = said.get("error") if isinstance(said, dict) else None
        if not isinstance(error, dict) or error.keys() != {"code", "message", "hint", "details"}:
            raise Wrong(f"{answer.status} is no problem document: {answer.body[:300]!r}")
        code = error["code"]
        if codes().get(code) != answer.status or code == "internal" or len(error["message"]) > 4_000:
            raise Wrong(f"{answer.status} {code}: {error['message'][:300]}")
    if answer.status >= 500:
        raise Wrong(f"{answer.status} {code or 'without a reason'}: {answer.body[:300]!r}")
    served = answer.status < 300 and is_plain(request) and request.needs != ""
    endpoint = ROUTES.get(request.route)
    if request.who not in SCOPES:
        if MARK.encode() in answer.body or OTHERS.encode() in answer.body:
            raise Wrong("a stranger was told what is in the store")
        if served and request.who != "link":
            raise Wrong(f"a stranger was served: {answer.status}")
    elif served and request.needs not in ("any", *SCOPES[request.who]):
        raise Wrong(f"a token without {request.needs!r} was served: {answer.status}")
    if request.who == "limited":
        if OTHERS.encode() in answer.body:
            raise Wrong("who is limited to some runs was told of another")
        if served and endpoint is not None and endpoint.about == "all":
            raise Wrong(f"who is limited to some runs was served what is about all: {answer.status}")
    return said


@dataclass
class Site:
    """A server on a store, and who may ask it."""

    url: str
    folder: Path
    server: Worker
    secrets: dict[str, str]
    address: tuple[str, int] = ("", 0)
    worker: Worker | None = None
    slowest: float = 0.0  # of those who ask whether it is alive
    latest: tuple[float, str] = (0.0, "")  # the answer that came last of all, and to what
    sent: int = 0
    statuses: dict[str, dict[int, int]] = field(default_factory=dict)  # by route
    under_way: dict[int, Request] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found = re.search(r"http://([\d.]+):(\d+)", self.server.until("http://"))
        assert found is not None
        self.address = found[1], int(found[2])

    def connect(self, number: int = 0) -> socket.socket:
        """A connection; of several addresses, so that none has too many that are just closed."""
        made = socket.socket()
        made.settimeout(ANSWER_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sys.platform == "linux":
            made.bind((f"127.0.0.{2 + number % 50}", 0))
        made.connect(self.address)
        return made

    def enter(self, who: str, **shown: str) -> None:
        """Begin a session, as a page does."""
        body = json.dumps(shown).encode()
        own = [("Host", "127.0.0.1"), ("Origin", "http://127.0.0.1"), ("X-Holdfast-Page", "1"), ("Connection", "close")]
        request = Request("POST", "/session", [*own, ("Content-Type", "application/json")], body)
        with self.connect() as connection, connection.makefile("rb") as stream:
            connection.sendall(rendered(request, {}))
            answer = read_answer(stream, "POST")
        if answer is None or answer.status != 201:
            raise Wrong(f"no session for {who}: {answer}")
        self.secrets[who] = answer.headers["set-cookie"].partition(";")[0]

    def note(self, request: Request, answer: Answer, seconds: float) -> None:
        """Count an answer."""
        self.latest = max(self.latest, (seconds, f"{request.method} {request.target}"[:200]))
        counts = self.statuses.setdefault(request.route if is_plain(request) else "not plain", {})
        counts[answer.status] = counts.get(answer.status, 0) + 1
        if request.who == "session" and (request.method, answer.status) == ("DELETE", 204):
            self.enter("session", token=self.secrets["session token"])

    def ask(self, path: str, who: str = "operator") -> Answer:
        """A plain question."""
        request = Request("GET", path, [("Host", "127.0.0.1"), ("Connection", "close")], b"", who=who)  # type: ignore[arg-type]
        with self.connect() as connection, connection.makefile("rb") as stream:
            connection.sendall(rendered(request, self.secrets))
            answer = read_answer(stream, "GET")
        if answer is None:
            raise Wrong(f"no answer to {path}")
        check(request, answer)
        return answer


class Line:
    """A connection that is kept as long as it is of use."""

    def __init__(self, site: Site) -> None:
        self._site, self._connection, self._stream, self._made = site, None, None, 0

    def close(self) -> None:
        for each in (self._stream, self._connection):
            if each is not None:
                each.close()
        self._connection = self._stream = None

    def try_out(self, request: Request) -> Any:
        """Send it and check what comes back; the document of the answer."""
        made, plain = rendered(request, self._site.secrets), is_plain(request)
        self._site.under_way[threading.get_ident()] = request
        if not plain:
            self.close()
        was_open = self._connection is not None
        if self._connection is None:
            self._made += 1
            self._connection = self._site.connect(self._made)
            self._stream = self._connection.makefile("rb")
        began = time.monotonic()
        try:
            with contextlib.suppress(ConnectionError):  # it was answered before all was sent
                self._connection.sendall(made)
                if not plain:
                    with contextlib.suppress(OSError):  # the server has closed it since
                        self._connection.shutdown(socket.SHUT_WR)
            answer = read_answer(self._stream, request.method)
        except ConnectionError:
            answer = None
        except TimeoutError:
            self.close()
            raise Wrong(f"no answer within {ANSWER_S:g} s") from None
        except BaseException:
            self.close()
            raise
        if answer is None:
            self.close()
            if plain and was_open:  # it may have been closed while nobody asked
                return self.try_out(request)
            if plain:
                raise Wrong("no answer to a whole request")
            return None
        self._site.note(request, answer, time.monotonic() - began)
        if not plain or not answer.goes_on:
            self.close()
        return check(request, answer)


class Probe:
    """Asks once a second whether the server is alive."""

    def __init__(self, site: Site) -> None:
        self._site, self.wrong, self._over = site, list[str](), threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        while not self._over.wait(1.0):
            began, waited, before = time.monotonic(), self._idle(), list(self._site.under_way.values())
            try:
                status = self._site.ask("/healthz", "").status
            except (OSError, Wrong) as error:
                self.wrong.append(f"/healthz: {error!r}")
                return
            # Without what the machine had no time for: threads of the server that could run and were not let.
            took = time.monotonic() - began - (self._idle() - waited)
            self._site.slowest = max(self._site.slowest, took)
            if status != 200 or took > HEALTHY_S:
                beside = [f"{each.method} {each.target[:80]} {len(each.body)} {each.body[:80]!r}" for each in before]
                self.wrong.append(f"/healthz says {status} after {took:.1f} s, beside: {'; '.join(beside)}")

    def _idle(self) -> float:
        total = 0
        with contextlib.suppress(OSError, ValueError, IndexError):
            for task in Path(f"/proc/{self._site.server.pid}/task").iterdir():
                total += int((task / "schedstat").read_text().split()[1])
        return total / 1e9

    def close(self) -> None:
        self._over.set()
        self._thread.join(ANSWER_S + 5)


@dataclass(frozen=True)
class Bound:
    """How long an attack lasts: so many seconds, or so many requests if they are sent before."""

    seconds: float
    requests: int = 10**9

    def part(self, share: float) -> Bound:
        return Bound(self.seconds * share, max(round(self.requests * share), 1))


def attack(site: Site, requests: Requests, bound: Bound, seed: int, name: str, report: Report) -> None:
    """Send requests, from several threads."""
    lock, until, numbers = threading.Lock(), time.monotonic() + bound.seconds, iter(range(bound.requests))
    found: dict[str, tuple[Request, int]] = {}
    site.sent = 0

    def work() -> None:
        line = Line(site)
        while time.monotonic() < until and len(found) < MOST_FINDINGS and site.server.running:
            with lock:
                number = next(numbers, None)
                if number is None:
                    break
                site.sent += 1
            request = requests.make(dice_of(seed, name, number))
            try:
                requests.heard(line.try_out(request))
            except Wrong as wrong:
                with lock:
                    found.setdefault(_kind(wrong), (request, number))
        line.close()

    threads = [threading.Thread(target=_guarded, args=(work, report), daemon=True) for _ in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(bound.seconds + 3 * ANSWER_S)
        if each.is_alive():
            report.findings["a request never ends"] = ""
    report.cases += site.sent
    for kind, (request, number) in found.items():
        case, steps = smallest(tuple(request), functools.partial(_still, site, kind))
        report.findings[kind] = f"{name}, request {number}, smallest ({steps} steps): {case!r}"[:SHOWN]


def _guarded(work: Any, report: Report) -> None:
    try:
        work()
    except Exception as error:  # a fault of the fuzzer's own must not be taken for a quiet night
        report.findings[f"the fuzzer failed: {error!r}"] = ""


def _still(site: Site, kind: str, case: Any) -> bool:
    line = Line(site)
    try:
        line.try_out(Request(*case))
    except Wrong as wrong:
        return _kind(wrong) == kind
    except (OSError, ValueError):
        return False
    finally:
        line.close()
    return False


def _kind(wrong: Wrong) -> str:
    return re.sub(r"\d+", "N", str(wrong))[:200]


def hunt_http(
    kind: str, seconds: float, seed: int, url: str | None = None, start: Any = None, requests: int | None = None
) -> Report:
    """Attack a server on a store of one kind, for so long or with so many requests."""
    name, start = f"http-{kind}", start or Cold().start
    bound = Bound(seconds) if requests is None else Bound(seconds, requests)
    report, began = Report(name, seed), time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-fuzz-")))
        if url is None:
            url = (
                f"sqlite:{folder}/fuzzed.db?durability=process"
                if kind == "sqlite"
                else stack.enter_context(postgres(folder))
            )
        secrets = asyncio.run(prepared(url))
        provider = stack.enter_context(OidcProvider())
        Keys(folder / "keys").new("fuzz")
        env = {"HOLDFAST_KEYS": f"{folder}/keys", "HOLDFAST_OIDC_SECRET": "s3cret", "HOOK_NEW": NEW, "HOOK_OLD": OLD}
        words = ["--oidc", provider.issuer, "--oidc-client", "holdfast-1", "--oidc-grant", "editors=read"]
        server = Worker(start(["serve", "--port", "0", "--db", url, *words], folder, env))
        stack.callback(server.kill)
        site = Site(url, folder, server, secrets)
        secrets["session token"] = secrets["session"]
        site.enter("session", token=secrets["session"])
        site.enter("link", link=secrets["link"])
        made = Requests(RUNS, HARMLESS, site.address[1])
        probe = Probe(site)
        before = rows(url)
        attack(site, made, bound.part(0.2), seed, f"{name} reading", report)
        changed = [table for table, digest in rows(url).items() if before.get(table) != digest]
        if changed:
            report.findings["who may only read has changed the store"] = ", ".join(changed)
        site.worker = Worker(start(["worker", "tests.security.fuzzers.sealed", "--quiet", "--db", url], folder, {}))
        stack.callback(site.worker.kill)
        made.who, made.signs = EVERYBODY, True
        attack(site, made, bound.part(0.2), seed, f"{name} warming", report)
        warm, files = resident(server.pid), _files(server.pid)
        attack(site, made, bound.part(0.6), seed, name, report)
        report.growth = resident(server.pid) - warm
        if _files(server.pid) > files + MOST_FILES:
            report.findings["open files grow"] = f"{files} when it was warm, {_files(server.pid)} in the end"
        probe.close()
        _judge(site, probe, report, start)
        report.table = {route: dict(sorted(counts.items())) for route, counts in sorted(site.statuses.items())}
        for counts in site.statuses.values():
            report.seen.update({f"answers {status}": count for status, count in counts.items()})
        report.told = f"latest answer {site.latest[0]:.2f} s: {site.latest[1]}, {files} to {_files(server.pid)} files"
    report.seconds, report.slowest = time.monotonic() - began, site.slowest
    return report


def _files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _judge(site: Site, probe: Probe, report: Report, start: Any) -> None:
    """What must be true in the end."""
    findings = report.findings
    if report.growth > MOST_GROWTH:
        findings["memory grows"] = f"{report.growth >> 20} MiB in {site.sent} requests"
    for wrong in probe.wrong[:3]:
        findings[wrong] = ""
    for name, process in (("the server", site.server), ("the worker", site.worker)):
        assert process is not None
        if not process.running:
            findings[f"{name} is gone"] = process.said()[-SHOWN:]
        said = process.said()
        if "Traceback" in said and (name == "the server" or "fault" in said):
            at = said.index("Traceback")
            findings[f"{name} has logged a fault"] = said[max(at - 500, 0) : at + SHOWN]
    try:  # whatever was stored, every list has it
        for path in (
            "/api/runs?limit=1000",
            "/api/approvals?open=false&limit=1000",
            "/api/agents",
            "/metrics",
            "/readyz",
        ):
            if site.ask(path).status != 200:
                findings[f"{path} is not answered any more"] = ""
        for run in json.loads(site.ask("/api/runs?limit=200").body)["runs"]:
            for more in ("", "/events?limit=1000", "/result", "/streams/answer"):
                site.ask(f"/api/runs/{_quoted(run['id'])}{more}")
    except (Wrong, OSError, ValueError) as error:
        findings[f"in the end: {_kind(Wrong(str(error)))}"] = ""
    for word in ("runs", "approvals", "doctor"):
        command = Worker(start([word, "--db", site.url], site.folder, {}))
        command.ended()
        if "Traceback" in command.said():
            findings[f"holdfast {word} fails"] = command.said()[-SHOWN:]

    if remaining := left(site.url):
        findings["rows that nobody can delete"] = repr(remaining)


def _quoted(id: str) -> str:
    return quote(id, safe="", errors="surrogatepass")
