"""The connections of a server: how many there may be, whose they are, and how long each may take.

A connection counts as its address's until a request on it has shown a token; until the answer to that is taken it counts as the
token's, and where its caller has gone, until what was begun for it is done. A caller that says nothing keeps nobody
out, nor does one that takes nothing: where there are too many, a new one replaces the one without a token that has been
waited for longest. Where all of them are at work, a few more are let in to be told so, and probes to be answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import ipaddress
import logging
import re
import resource
import socket
import struct
import termios
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import h11
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.client.documents import json_bytes
from holdfast.errors import BadArguments
from holdfast.http.errors import Refused, answer, problem
from holdfast.http.page import path_in
from holdfast.values.text import short
from holdfast.words.durations import seconds
from holdfast.words.harmless import logger

KEY: Final = "holdfast.connection"  # of a request's scope
PROBES: Final = ("/healthz", "/readyz")
AT_ONCE: Final = 64  # connections that are taken in one turn of the loop
_BEYOND: Final = 64  # let in although there are too many, to be told so
_OTHER_FILES: Final = 200  # that the process has open beside its connections: the store's, and those just taken
_HEAD_BYTES: Final = 16 * 1024  # as h11 bounds a head that comes in pieces
_UNSENT_BYTES: Final = 4 * 1024  # where there is more, no more is made before the reader has taken some
_SYSTEM_BYTES: Final = 16 * 1024  # that the system keeps for a follower, and as much again
_LOG_S: Final = 10.0
_MOST_KINDS: Final = 1_000  # of log lines that are told apart
_STRANGE_BYTES: Final = 256 * 1024 * 1024  # that strangers have sent and that are kept until they are answered, of all
_STRANGE_OF_ONE: Final = 64 * 1024 * 1024  # and of one address
_CLOSE: Final = {"Connection": "close"}
_END_OF_HEAD: Final = re.compile(rb"\n\r?\n")
_BARE_LINE: Final = re.compile(rb"(?<!\r)\n")
_TIMEOUT: Final[int | None] = getattr(socket, "TCP_USER_TIMEOUT", None)
_TABLES: Final = {socket.AF_INET: Path("/proc/net/tcp"), socket.AF_INET6: Path("/proc/net/tcp6")}
PEER: Final[int | None] = getattr(socket, "SO_PEERCRED", None)

_log = logger("holdfast.http")


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the connections of one server. Times are seconds."""

    connections: int = 2_000
    address: int = 200  # of one address, while no token was shown
    token: int = 1_000  # requests with one token at a time
    work: int = 8  # of these that are worked on
    head: float = 10.0  # for a request to come
    body: float = 30.0  # for its document
    send: float = 20.0  # without any of the answer being taken

    def __post_init__(self) -> None:
        for name in ("connections", "address", "token", "work"):
            if not 1 <= getattr(self, name) <= 1_000_000:
                raise BadArguments(f"{name}={getattr(self, name)} as a limit: it is a number from 1 to 1000000")
        for name in ("head", "body", "send"):
            if not 0.1 <= getattr(self, name) <= 3600:
                raise BadArguments(f"{name}={getattr(self, name):g}s as a limit: it is a time from 100ms to 1h")

    @classmethod
    def parse(cls, text: str) -> Limits:
        """Read `address=50,head=5s` as it is typed; what is not named stays as it is."""
        names = {field.name: field.type for field in dataclasses.fields(cls)}
        given: dict[str, Any] = {}
        for part in filter(None, (each.strip() for each in text.split(","))):
            name, equals, value = (word.strip() for word in part.partition("="))
            if not equals or name not in names or name in given:
                raise BadArguments(
                    f"{short(part)} is no limit; write address=50,head=5s with any of: {', '.join(names)}"
                )
            if names[name] == "float":
                try:
                    given[name] = seconds(value)
                except BadArguments:
                    raise BadArguments(f"{name}={short(value)} as a limit: it is a time from 100ms to 1h") from None
            elif value.isascii() and value.isdigit() and len(value) < 8:
                given[name] = int(value)
            else:
                raise BadArguments(f"{name}={short(value)} as a limit: it is a number from 1 to 1000000")
        return cls(**given)

    def affordable(self) -> Limits:
        """Lower the number of connections to what the process may open; it asks the system for more first."""
        wanted = self.connections + _BEYOND + _OTHER_FILES
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            return self
        more = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):  # forbidden: then it is as it was
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            soft = more
        if soft >= wanted:
            return self
        fewer = max(soft - _BEYOND - _OTHER_FILES, soft // 4, 1)
        told = "this process may open %d files, so it takes %d connections and not %d; LimitNOFILE or `ulimit -n` allow more"
        _log.warning(told, soft, fewer, self.connections)
        return dataclasses.replace(self, connections=fewer)


class Doors:
    """All connections of a server."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._here = 0
        self._of: Counter[str] = Counter()  # by owner: an address or a token
        self._waiting: dict[str, dict[Connection, None]] = {}  # for the other side: by address, the oldest first
        self._strange: Counter[str] = Counter()  # bytes that strangers have sent, by address

    def enter(self, new: Connection) -> None:
        """Count a new connection; another one may have to leave, or this one."""
        new.is_counted = True
        self._here += 1
        self._of[new.owner] += 1
        if self._of[new.owner] > self.limits.address:
            crowd = self._waiting.get(new.owner, {})
        elif self._here > self.limits.connections:
            crowd = max(self._waiting.values(), key=len, default={})
        else:
            return
        in_the_way = next((each for each in crowd if not each.has_news()), None)
        if in_the_way is not None:
            _log.warning("too many connections: one that was waited for longest was closed")
            self._close(in_the_way)
        elif self._here > self.limits.connections + _BEYOND or self._of[new.owner] > self.limits.address + _BEYOND:
            _log.warning("too many connections, and all are at work: a new one was closed")
            self._close(new)

    def _close(self, connection: Connection) -> None:
        self.leave(connection)  # its socket is there until the loop's next turn: nobody is to be refused for that
        connection.abort()

    def leave(self, gone: Connection) -> None:
        """Count a connection no longer."""
        if gone.is_counted:
            gone.is_counted = False
            self._here -= 1
            self.works(gone)
            self._take(gone.owner)

    def visit(self, guest: Guest) -> None:
        """Count a request of another server."""
        self._of[guest.owner] += 1

    def depart(self, guest: Guest) -> None:
        """Count it no longer."""
        if guest.is_counted:
            guest.is_counted = False
            self._take(guest.owner)

    def own(self, connection: Visit, owner: str) -> None:
        """Count a connection as another owner's from now on, unless it does not count any more."""
        if not connection.is_counted:
            return
        self._take(connection.owner)
        connection.owner = owner
        self._of[owner] += 1

    def _take(self, owner: str) -> None:
        self._of[owner] -= 1
        if not self._of[owner]:
            del self._of[owner]

    def waits(self, connection: Connection) -> None:
        """Let a connection be closed for others until something comes from it, or is taken."""
        self._waiting.setdefault(connection.address, {})[connection] = None

    def works(self, connection: Connection) -> None:
        """Let a connection be closed for others no longer."""
        beside = self._waiting.get(connection.address, {})
        beside.pop(connection, None)
        if not beside:
            self._waiting.pop(connection.address, None)

    def admit(self, connection: Visit, token: str) -> None:
        """Count it as a token's while its request is answered; `Refused` where that has too many."""
        if self._of[token] >= self.limits.token:
            told = f"{self._of[token]} requests with this token are being answered, and no more at a time"
            raise Refused("too_many_requests", told, {"Retry-After": "1", **_CLOSE})
        self.own(connection, token)

    def keep(self, address: str, more: int) -> None:
        """Count bytes of a stranger at this address that are kept, or, below zero, are no longer; `Refused` if too many."""
        if more > 0 and (
            self._strange[address] + more > _STRANGE_OF_ONE or self._strange.total() + more > _STRANGE_BYTES
        ):
            told = "too much is being sent to this server, or from this address, by senders that are not known yet"
            raise Refused("too_busy", told, {"Retry-After": "1", **_CLOSE})
        self._strange[address] += more
        if not self._strange[address]:
            del self._strange[address]

    def check(self, connection: Connection) -> None:
        """Raise `Refused` where too many connections are at work. Waiting connections would give way: they do not count."""
        beside = self._of[connection.address] - len(self._waiting.get(connection.address, ()))
        if self._here - sum(map(len, self._waiting.values())) > self.limits.connections or beside > self.limits.address:
            told = "too many requests are being answered by this server, or for this address"
            raise Refused("too_busy", told, {"Retry-After": "1", **_CLOSE})


class Visit:
    """The other end of a request: whose it is, and what may be read from it before that is known."""

    address: str
    owner: str  # the address, or the token that was shown
    limits: Limits
    is_counted: bool  # among those of its owner
    is_gone = False  # no caller is there to be answered
    _doors: Doors

    def admit(self, token: str) -> None:
        """Note that the request has shown this token."""
        self._doors.admit(self, token)

    @contextlib.contextmanager
    def hearing_a_stranger(self) -> Iterator[None]:
        """Read from a caller that has shown no token yet."""
        yield

    @contextlib.asynccontextmanager
    async def strangers_body(self, request: Request, most: int) -> AsyncIterator[bytes]:
        """Read the body of a caller that has shown no proof yet: so many bytes at most, soon, and while there is room.

        What was read counts as kept until the block ends.
        """
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > most:
            raise Refused("too_large", f"the body has {length} bytes, and {most} are the most here")
        pieces: list[bytes] = []
        kept = 0
        try:
            try:
                with self.hearing_a_stranger():
                    async with asyncio.timeout(self.limits.body):
                        async for piece in request.stream():
                            if kept + len(piece) > most:
                                raise Refused(
                                    "too_large", f"the body has more than {most} bytes, which are the most here"
                                )
                            self._doors.keep(self.address, len(piece))
                            kept += len(piece)
                            pieces.append(piece)
            except TimeoutError:
                raise Refused("too_slow", f"the body did not come within {self.limits.body:g} s", _CLOSE) from None
            yield b"".join(pieces)
        finally:
            self._doors.keep(self.address, -kept)


@contextlib.asynccontextmanager
async def while_there(receive: Receive) -> AsyncIterator[None]:
    """Do something in this block as long as its caller is there: it is stopped by `ClientDisconnect`. Nothing else may be read."""
    loop = asyncio.get_running_loop()

    async def watch() -> None:
        await gone(receive)
        block.reschedule(loop.time())

    try:
        async with asyncio.timeout(None) as block:
            watching = loop.create_task(watch())
            try:
                yield
                if watching.done():  # it has read what a later reader would wait for
                    raise ClientDisconnect
            finally:
                watching.cancel()
    except TimeoutError:
        if block.expired():
            raise ClientDisconnect from None
        raise


async def gone(receive: Receive) -> None:
    """Wait until the caller of a request is gone; whatever else comes of it is not kept."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Guest(Visit):
    """A request that came through somebody else's server, to which connections, their limits and their ends are left."""

    peer: int | None = None
    is_full = False

    def __init__(self, doors: Doors, address: str) -> None:
        self._doors, self.limits, self.is_counted = doors, doors.limits, True
        self.address = self.owner = _network(address)
        doors.visit(self)

    def leave(self) -> None:
        """Count it no longer."""
        self._doors.depart(self)

    def account(self) -> int | None:
        """Leave it open which user of this computer it is: between us is a server that could be anybody's."""
        return None

    def follows(self) -> None:
        """Leave it to the server how much the system keeps for a reader."""

    async def drained(self) -> None:
        """Wait for nothing: to send waits for its reader by itself."""


class Connection(H11Protocol, Visit):
    """One connection. It is h11's in every installation: others bound neither the head of a request nor what it says twice."""

    def __init__(self, doors: Doors, **more: Any) -> None:
        super().__init__(**more)
        self._doors, self.limits = doors, doors.limits
        self._app: ASGIApp = self.app
        self.app = self._serve
        self.address = self.owner = ""
        self._account: int | None = None  # of this computer, at the other end of TCP
        self.peer: int | None = None  # at the other end of a Unix socket: the user's number
        self._waits = self._gives_way = self._hears = self.is_counted = False
        self._at_work = 0  # requests of it whose work has not ended, whether or not they are answered
        self._late: asyncio.TimerHandle | None = None  # while it waits for a request
        self._stuck: asyncio.TimerHandle | None = None  # while an answer is not taken

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = peer_of(transport.get_extra_info("socket"))
        self.address = self.owner = _network(self.client[0] if self.client else "")
        transport.set_write_buffer_limits(high=_UNSENT_BYTES)
        if _TIMEOUT is not None:
            self._option(socket.IPPROTO_TCP, _TIMEOUT, int(self.limits.send * 1000))
        self._doors.enter(self)
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.is_gone = True
        if not self._at_work:
            self._doors.leave(self)
        self._settle()
        if self._stuck is not None:
            self._stuck.cancel()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._settle()

    def handle_events(self) -> None:
        """Look at what has come. The parser ends a line also at a bare LF, which others take for a part of it."""
        if self.conn.their_state is h11.IDLE and _has_bare_line(self.conn.trailing_data[0]):
            self.send_400_response("")
        else:
            super().handle_events()

    def on_response_complete(self) -> None:
        if not self.is_full:  # what is not taken yet is the token's
            self._doors.own(self, self.address)
        super().on_response_complete()
        self._settle()

    def abort(self) -> None:
        """Close it now, whatever was to be sent."""
        self.is_gone = True
        self.transport.abort()

    def has_news(self) -> bool:
        """Has something come that was not looked at yet? It may be what is waited for, unless that is to be taken first."""
        if self.is_full:
            return False
        try:
            count = fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.FIONREAD, bytes(4))
        except OSError:
            return False
        return any(count)

    def admit(self, token: str) -> None:
        """Note that the request has shown this token."""
        super().admit(token)
        self._settle()

    def account(self) -> int | None:
        """Ask the system which user of this computer has the other end; None if it is elsewhere, or the system does not say."""
        if self.peer is not None:
            return self.peer
        if self._account is None:
            self._account = owner_of(self.transport.get_extra_info("socket"))
        return self._account

    @contextlib.contextmanager
    def hearing_a_stranger(self) -> Iterator[None]:
        """Read from a caller that has shown no token yet: in this block the connection may be closed for others."""
        self._hears = True
        self._settle()
        try:
            yield
        finally:
            self._hears = False
            self._settle()

    def follows(self) -> None:
        """Send for long, in small pieces: the system need not keep much for a reader that does not read."""
        self._option(socket.SOL_SOCKET, socket.SO_SNDBUF, _SYSTEM_BYTES)

    @property
    def is_full(self) -> bool:
        """Is there so much on the way that no more can be sent?"""
        return self.flow.write_paused

    async def drained(self) -> None:
        """Wait until more can be sent, or it is gone."""
        await self.flow.drain()

    def _option(self, level: int, name: int, value: int) -> None:
        with contextlib.suppress(OSError):  # it is gone already
            self.transport.get_extra_info("socket").setsockopt(level, name, value)

    # Requests

    def _settle(self) -> None:
        """Note whether it waits for a request (what comes of one gives no more time), and whether it may be closed for others."""
        over = self.cycle is None or self.cycle.response_complete
        waits = not self.is_gone and over and not self.is_full
        if waits != self._waits:
            self._waits = waits
            if waits:
                self._late = self.loop.call_later(self.limits.head, self._too_late)
            elif self._late is not None:
                self._late.cancel()
        waited_for = over or self.is_full or self._hears
        gives_way = not self.is_gone and self.owner == self.address and waited_for
        if gives_way != self._gives_way:
            self._gives_way = gives_way
            (self._doors.waits if gives_way else self._doors.works)(self)

    def _too_late(self) -> None:
        self._close(Refused("too_slow", f"no request came within {self.limits.head:g} s"))

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no request."""
        self._close(Refused("bad_request", "this is no request of HTTP/1.1"))

    def _close(self, why: Refused) -> None:
        """Say why, where an answer can be said, and close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.get_write_buffer_size():
            status, document, _ = problem(why)
            body = json_bytes(document)
            lines = [f"HTTP/1.1 {status} ", "Content-Type: application/json", f"Content-Length: {len(body)}",
                     "Cache-Control: no-store", "X-Content-Type-Options: nosniff", "Connection: close", "", ""]  # fmt: skip
            self.transport.write("\r\n".join(lines).encode() + body)
        self.transport.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, unless it is refused here."""
        cycle, app = self.cycle, self._app
        scope[KEY] = self
        try:
            _check_framing(scope)
            _check_head(scope)
            if path_in(scope) not in PROBES:
                self._doors.check(self)
        except Refused as refused:
            app = answer(refused)
        self._at_work += 1
        try:
            await app(scope, receive, send)
        finally:
            self._at_work -= 1
            if self.is_gone and not self._at_work:
                self._doors.leave(self)
            if cycle.response_started and not cycle.response_complete and not cycle.disconnected:
                cycle.disconnected = True  # half an answer is no answer: what was sent of it must not look whole
                self.abort()

    # Answers

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())
        self._settle()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()
        if self.cycle is None or self.cycle.response_complete:
            self._doors.own(self, self.address)
        self._settle()

    def _watch(self, left: int) -> None:
        self._stuck = self.loop.call_later(self.limits.send, self._look, left)

    def _look(self, left: int) -> None:
        """Close the connection of a reader that has taken nothing: it is gone, or might as well be."""
        now = self.transport.get_write_buffer_size()
        if now < left:
            self._watch(now)
        else:
            _log.warning("an answer was not taken: its connection was closed")
            self.abort()


def peer_of(connection: socket.socket) -> int | None:
    """Ask the system for the number of the user at the other end of a Unix socket; None of any other socket."""
    if connection.family != socket.AF_UNIX:
        return None
    said = connection.getsockopt(socket.SOL_SOCKET, PEER, struct.calcsize("3i")) if PEER else b""
    return int(struct.unpack("3i", said)[1]) if said else None


def owner_of(connection: socket.socket) -> int | None:
    """Ask the system whose the other end of a connection within this computer is; None where that is not told."""
    try:
        here, there = connection.getsockname()[:2], connection.getpeername()[:2]
        line = f" {_spelled(*there)} {_spelled(*here)} ".encode()
        table = _TABLES[connection.family].read_bytes()
    except (OSError, ValueError, KeyError):
        return None
    for found in re.finditer(re.escape(line), table):
        _, _, _, _, account, _, inode = table[found.end() :].split(maxsplit=7)[:7]
        return int(account) if int(inode) else None  # of what its process has closed nothing is known
    return None


def _spelled(address: str, port: int) -> str:
    """Spell an end of a connection as the tables of the system do: words of 32 bits in the order of this machine."""
    packed = ipaddress.ip_address(address.partition("%")[0]).packed
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed)) + f":{port:04X}"


def _network(address: str) -> str:
    """Name the address, or the network that one customer has of IPv6."""
    if ":" not in address:
        return address
    return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))


def _has_bare_line(text: bytes) -> bool:
    """Does a line of the head, as far as it is here, end with LF alone?"""
    end = _END_OF_HEAD.search(text)
    return _BARE_LINE.search(text, 0, end.end() if end else len(text)) is not None


def _check_framing(scope: Scope) -> None:
    """Refuse two ways to say where a request ends: to a proxy that reads the other one they are two requests."""
    names = {name for name, _ in scope["headers"]}
    if b"transfer-encoding" in names and (b"content-length" in names or scope["http_version"] == "1.0"):
        told = "the request says in two ways where it ends: it has Transfer-Encoding beside Content-Length, or is of HTTP/1.0"
        raise Refused("bad_request", told, _CLOSE)


def _check_head(scope: Scope) -> None:
    """Refuse a head that is too long: the parser takes any length if it comes in one piece."""
    size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(n) + len(v) + 4 for n, v in scope["headers"])
    if size > _HEAD_BYTES:
        raise Refused("too_large", f"the head of a request has at most {_HEAD_BYTES} bytes", _CLOSE)


class _Seldom(logging.Filter):
    """Lets one line of a kind through every ten seconds, with how many were like it since the last."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[Any, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.name, str(record.msg)[:80], record.exc_info and record.exc_info[0]
        now = time.monotonic()
        since, more = self._seen.get(kind, (-_LOG_S, 0))
        if now < since + _LOG_S:
            self._seen[kind] = since, more + 1
            return False
        if len(self._seen) >= _MOST_KINDS:
            self._seen.clear()
        self._seen[kind] = now, 0
        if more:
            record.msg = f"{record.msg} ({more} more since)"
        return True


@contextlib.contextmanager
def seldom_logged() -> Iterator[None]:
    """Let the log of a server grow slowly, whatever is done to it."""
    bound, loggers = _Seldom(), [logging.getLogger(name) for name in ("holdfast.http", "uvicorn.error", "asyncio")]
    for each in loggers:
        each.addFilter(bound)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(bound)
