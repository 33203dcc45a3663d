"""The health of a worker: is it alive, does it take work, what are its numbers? Another thread than the worker's asks.

Look here for what `/healthz`, `/readyz` and `/metrics` answer.

A loop that hangs cannot say so itself. So the asking thread is outside of it, and what only the loop can do (reading
the store) is handed to it and waited for a little. Alive means that a new process would do no better; ready means that
it claims.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import json
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, TypeVar

from holdfast.errors import BadArguments, HoldfastError
from holdfast.store.approvals import QuestionAges
from holdfast.store.runs import Census
from holdfast.store.triggers import UNDONE, Tally
from holdfast.values.text import short
from holdfast.worker.metrics import METRICS, Sight, exposition
from holdfast.worker.worker import Worker

T = TypeVar("T")
PATIENCE_S: Final = 2.0  # a loop that takes longer for one turn hangs, and a store that takes longer cannot be reached
LATE_MS: Final = 60_000  # a run that nobody has taken for so long is stuck
_CENSUS_S: Final = 5.0  # the counts of the store are not taken more often


@dataclass(frozen=True, slots=True)
class Verdict:
    """Yes, or no with the reason."""

    reason: str = ""

    @property
    def good(self) -> bool:
        return not self.reason


class Health:
    """The health of a worker, seen from outside. Until there is one, it starts."""

    def __init__(self) -> None:
        self.worker: Worker | None = None
        self.census: list[Census] | None = None  # None: the store did not tell
        self.questions: QuestionAges | None = None
        self.deliveries: list[Tally] = []
        self._counted_at = 0.0
        self._turn: concurrent.futures.Future[None] | None = None  # set by the loop's next turn
        self._turn_asked_at = 0.0

    def watch(self, worker: Worker) -> None:
        """Look at this worker from now on; called on its loop."""
        self._loop = asyncio.get_running_loop()
        self.worker = worker

    async def alive(self) -> Verdict:
        """Does the loop turn, and can the store be written as far as this process goes?"""
        if self.worker is None:
            return Verdict()
        ailment = self.worker.store.ailment()
        if (
            ailment is not None and ailment.lasting and not self.worker.draining
        ):  # a store is closed at the end of a drain
            return Verdict(ailment.reason)
        return await self._turns()

    async def ready(self) -> Verdict:
        """Is new work taken?"""
        if self.worker is None:
            return Verdict("the worker starts")
        if self.worker.draining:
            return Verdict("the worker drains: it takes no new runs")
        ailment = self.worker.store.ailment()
        if ailment is not None:
            return Verdict(ailment.reason)
        turns = await self._turns()
        if not turns.good:
            return turns
        store = self.worker.store
        try:
            await self._on_loop(lambda: store.run(""))  # no run is called that: the quickest question there is
        except HoldfastError:  # what it says is for the log: anybody may ask a probe
            return Verdict("the store cannot be reached")
        except TimeoutError:
            return Verdict(f"the store did not answer within {PATIENCE_S:g} s")
        return Verdict()

    async def count(self) -> None:
        """Take the counts of the store, unless they are fresh."""
        if self.worker is None or time.monotonic() < self._counted_at + _CENSUS_S:
            return
        try:
            store = self.worker.store
            self.census = await self._on_loop(lambda: store.census(LATE_MS))
            self.questions = await self._on_loop(store.question_ages)
            self.deliveries = await self._on_loop(lambda: store.tally_deliveries(UNDONE))
            self._counted_at = time.monotonic()
        except (HoldfastError, TimeoutError):
            self.census = self.questions = None

    async def _turns(self) -> Verdict:
        """Ask the loop one question at a time: a loop that hangs for an hour must not find an hour's questions."""
        if self._turn is None or self._turn.done():
            self._turn, self._turn_asked_at = concurrent.futures.Future(), time.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._turn.set_result, None)
            except RuntimeError:
                return Verdict("the event loop of the worker is closed")
        done, _ = await asyncio.wait([asyncio.wrap_future(self._turn)], timeout=PATIENCE_S)
        if done:
            return Verdict()
        return Verdict(f"the event loop has not turned for {time.monotonic() - self._turn_asked_at:.1f} s")

    async def _on_loop(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        asked = asyncio.run_coroutine_threadsafe(ask(), self._loop)
        return await asyncio.wait_for(asyncio.wrap_future(asked), PATIENCE_S)


# `/healthz`, `/readyz` and `/metrics` of a worker over HTTP: three paths, read only, for probes and scrapers.
#
# It runs on a loop of its own in a thread of its own, so that it answers while the worker's loop hangs. One request per
# connection; size, time and number of connections are bounded: one that comes when there are too many takes the place
# of the one that has said nothing for longest, so that silent connections keep nobody out. There is nothing to be
# secret and nothing to be changed here, which is why it may listen where a cluster's probes can reach it.

_LARGEST_REQUEST_BYTES: Final = 8_192
_REQUEST_S: Final = 5.0  # to send a request; as long again to be answered
_MOST_WAITING: Final = 128  # for a request
_AT_ONCE: Final = 32  # connections that are taken in one turn of the loop, so that none gives way before it was heard
_PATHS: Final = ("/healthz", "/readyz", "/metrics")
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class _Reply:
    status: HTTPStatus
    body: bytes
    kind: str = _JSON
    headers: tuple[str, ...] = field(default=())


def _said(code: HTTPStatus, *headers: str, **facts: str) -> _Reply:
    return _Reply(code, json.dumps(facts).encode() + b"\n", headers=headers)


def _is_foreign(header: str) -> bool:
    """Does a browser say here that a page of another site asks?"""
    name, _, value = header.partition(":")
    return name.lower() == "sec-fetch-site" and value.strip() not in ("none", "same-origin")


def _judged(verdict: Verdict) -> _Reply:
    if verdict.good:
        return _said(HTTPStatus.OK, status="ok")
    return _said(HTTPStatus.SERVICE_UNAVAILABLE, status="unavailable", reason=verdict.reason)


class Probes:
    """A socket that is bound when this is made, and answers from `start` on."""

    def __init__(self, host: str, port: int) -> None:
        self.health = Health()
        self._socket = bound(host, port)
        self._waiting: dict[asyncio.Task[None], None] = {}  # for a request, the oldest first
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="holdfast-probes", daemon=True)

    @property
    def url(self) -> str:
        """The address at which it listens."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """Answer no more; a request on its way is dropped."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    async def _main(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(
            self._connected, sock=self._socket, limit=_LARGEST_REQUEST_BYTES, backlog=_AT_ONCE
        )
        self._socket.listen(1_024)  # so many may wait to be taken
        self._started.set()
        await self._stopped.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._converse(reader, writer)
        except (OSError, asyncio.IncompleteReadError, TimeoutError, asyncio.CancelledError):
            writer.transport.abort()  # the client is gone, too slow, or in the way of others
        finally:
            writer.close()

    async def _head(self, reader: asyncio.StreamReader) -> bytes:
        here = asyncio.current_task()
        assert here is not None
        if len(self._waiting) >= _MOST_WAITING:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.cancel()
        self._waiting[here] = None
        try:
            async with asyncio.timeout(_REQUEST_S):
                return await reader.readuntil(b"\r\n\r\n")
        finally:
            self._waiting.pop(here, None)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await self._head(reader)
        except asyncio.LimitOverrunError:
            method, reply = "GET", _said(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, error="the request is too large")
        except TimeoutError:
            method, reply = "GET", _said(HTTPStatus.REQUEST_TIMEOUT, error=f"no request within {_REQUEST_S:g} s")
        else:
            first, *headers = head.decode("latin-1").split("\r\n")
            if any(_is_foreign(line) for line in headers):
                method, reply = "GET", _said(HTTPStatus.FORBIDDEN, error="a page of another site asks")
            else:
                method, reply = await self._reply(first)
        lines = [f"HTTP/1.1 {reply.status.value} {reply.status.phrase}", f"Content-Type: {reply.kind}",
                 f"Content-Length: {len(reply.body)}", "Cache-Control: no-store",
                 "X-Content-Type-Options: nosniff", "Connection: close", *reply.headers]  # fmt: skip
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (b"" if method == "HEAD" else reply.body))
        async with asyncio.timeout(_REQUEST_S):
            await writer.drain()
            if reply.status is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
                writer.write_eof()
                while await reader.read(_LARGEST_REQUEST_BYTES):  # closed with data unread, the answer would be lost
                    pass

    async def _reply(self, request_line: str) -> tuple[str, _Reply]:
        words = request_line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return "GET", _said(HTTPStatus.BAD_REQUEST, error="this is not a request of HTTP/1.1")
        method, path = words[0], words[1].partition("?")[0]
        if path not in _PATHS:
            return method, _said(HTTPStatus.NOT_FOUND, error=f"there is nothing here; there are {', '.join(_PATHS)}")
        if method not in ("GET", "HEAD"):
            return method, _said(HTTPStatus.METHOD_NOT_ALLOWED, "Allow: GET, HEAD", error="this can only be read")
        if path == "/healthz":
            return method, _judged(await self.health.alive())
        if path == "/readyz":
            return method, _judged(await self.health.ready())
        return method, await self._metrics()

    async def _metrics(self) -> _Reply:
        await self.health.count()
        worker = self.health.worker
        try:
            sight = None
            if worker is not None:
                seen, now = self.health, worker.clock.now()
                sight = Sight(seen.census, now, worker, questions=seen.questions, deliveries=seen.deliveries)
            kind, text = exposition(METRICS, sight)
        except ModuleNotFoundError:
            hint = 'pip install "holdfast[metrics]"'
            return _said(HTTPStatus.NOT_IMPLEMENTED, error=f"prometheus-client is not installed: {hint}", hint=hint)
        return _Reply(HTTPStatus.OK, text, kind)


def _can_be_asked_for(host: str) -> bool:
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there, or `BadArguments` that says why there is none."""
    if not host.isprintable() or not _can_be_asked_for(host):
        raise BadArguments(f"cannot listen on {short(host)}: that is no address and no name of one")
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        # Inherited by every connection: without it the second part of an answer waits 40 ms for the first to be acknowledged.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise BadArguments(
                f"port {port} of {host} is in use, by another process perhaps; give this one its own port, or 0 for any free one"
            ) from None
        raise BadArguments(f"cannot listen on port {port} of {host!r}: {error.strerror or error}") from None


@contextlib.contextmanager
def listening(host: str, port: int | None) -> Iterator[Probes | None]:
    """Answer as long as this lasts; without a port nobody asks."""
    if port is None:
        yield None
        return
    probes = Probes(host, port)
    probes.start()
    try:
        yield probes
    finally:
        probes.stop()
