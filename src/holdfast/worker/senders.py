"""Senders: one message goes out, over HTTP or by mail.

Look here when a message is refused, and for what a receiver can do to a worker: nothing.

The host of a URL is chosen by a person who may register notifications, and a worker stands where private services can
be reached. So the name is resolved once, every address that it has must be public, and the connection is made to one of
these: a name that means something else a moment later changes nothing. TLS checks the certificate against the name.
Redirects are not followed. Networks that are private and yet meant are listed by the operator of the workers, in
HOLDFAST_NOTIFY_NETWORKS, and by nobody else; only there is plain http spoken.

The answer is read up to a bound, all of it has a deadline, and no error repeats a URL, a secret, or more of an answer than its
status: errors are shown in lists.

Mail goes to the server that the operator names, HOLDFAST_SMTP_URL, from HOLDFAST_SMTP_FROM.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import ipaddress
import os
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from holdfast.errors import BadArguments, Permanent
from holdfast.values.text import cut, type_name
from holdfast.words.addresses import is_in, is_public, networks_of, plain
from holdfast.words.notifications import as_mail, checked_mailbox, checked_url
from holdfast.worker.names import addresses_of

NETWORKS: Final = "HOLDFAST_NOTIFY_NETWORKS"
SMTP_URL: Final = "HOLDFAST_SMTP_URL"
SMTP_FROM: Final = "HOLDFAST_SMTP_FROM"
DEADLINE_S: Final = 30.0  # for one message, from the name of the host to the end of the answer
_MOST_ADDRESSES: Final = 4  # of a host, that are tried
_LARGEST_ANSWER: Final = 65_536  # bytes that are read of one
_GONE: Final = 410
_BUSY: Final = (429, 503)
LONGEST_WAIT_S: Final = 24 * 3600.0  # that a receiver may ask for
_PORTS: Final = {"http": 80, "https": 443, "smtp": 587, "smtps": 465}


class Undelivered(Exception):
    """A message did not go out, and may the next time. `retry_after` is the receiver's wish, in seconds."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NotFromHere(Undelivered):
    """A message cannot go out from this worker, whatever its receiver does: by what the operator has set, or not. Another may.

    `aside` is for the log of the worker alone: a person who may register notifications sees the message, and is not to
    learn by it which addresses private names have.
    """

    def __init__(self, message: str, aside: str = "") -> None:
        super().__init__(message)
        self.aside = aside


def lacking(format: str, places: Iterable[str]) -> str | None:
    """Name what this process lacks to send messages of a format: a package, or a variable that one of these places names."""
    package = "aiosmtplib" if format == "mail" else "h11"
    if not _installed(package):
        return f'{package} (pip install "holdfast[notify]")'
    mail = [SMTP_URL, SMTP_FROM] if format == "mail" else []
    names = [*(place.removeprefix("env:") for place in places if place.startswith("env:")), *mail]
    return next((f"the variable {name}" for name in names if not os.environ.get(name, "").strip()), None)


@functools.cache
def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def from_environment(place: str) -> str:
    """Read what a reference such as `env:NAME` names."""
    name = place.removeprefix("env:")
    found = os.environ.get(name, "").strip()
    if not found:
        raise NotFromHere(f"the environment of this worker has no {name}; set it, and start the worker again")
    return found


# HTTP


async def post(url: str, body: bytes, headers: Sequence[tuple[str, str]]) -> int:
    """Post a body; returns the status, which is one of success. `Undelivered`, or `Permanent` if nobody is there any more."""
    try:
        checked_url(url)
    except BadArguments:
        raise NotFromHere("the URL cannot be used: it is that of no web server") from None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.hostname is None:
        raise NotFromHere("the URL is not that of a web server")
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await _post(parts.scheme, parts.hostname, parts.port, _path(url), body, headers)
    except TimeoutError:
        raise Undelivered(f"{parts.hostname} has not answered within {DEADLINE_S:g} s") from None


def _path(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


async def _post(
    scheme: str, host: str, port: int | None, path: str, body: bytes, headers: Sequence[tuple[str, str]]
) -> int:
    at = port or _PORTS[scheme]
    addresses = await _resolved(host, scheme)
    reader, writer = await _connected(addresses, at, host if scheme == "https" else None)
    try:
        shown = f"[{host}]" if ":" in host else host
        named = shown if port is None else f"{shown}:{port}"
        return await _asked(reader, writer, host, [("host", named), *headers], path, body)
    finally:
        writer.transport.abort()  # nothing more is to be said, and a receiver that does not close must not keep us


async def _resolved(host: str, scheme: str) -> list[str]:
    """Resolve a host, once. `Undelivered` if any of its addresses is not one to send to."""
    try:
        allowed = networks_of(os.environ.get(NETWORKS, ""))
    except BadArguments as problem:
        raise NotFromHere(f"{NETWORKS} of this worker cannot be used: {problem}") from None
    try:
        addresses = [ipaddress.ip_address(each) for each in await addresses_of(host)]
    except OSError:
        raise NotFromHere(f"this worker has no thread left to resolve {host}") from None
    if not addresses:
        raise Undelivered(f"{host} has no address: check the name")
    for each in addresses:
        if is_in(each, allowed):
            continue
        if not is_public(each):
            told = f"{host} is not a public address. If it is meant, the operator of the workers adds its network to {NETWORKS}"
            raise NotFromHere(told, "" if plain(each) == host else f"{host} is {plain(each)}")
        if scheme == "http":
            raise NotFromHere(f"what goes to {host} could be read on its way: use https")
    return list(dict.fromkeys(str(each) for each in addresses))[:_MOST_ADDRESSES]


@functools.lru_cache(maxsize=1)
def _trusting(*_: str | None) -> ssl.SSLContext:
    """Make a context that trusts the authorities of this system, once: to read them all takes a while."""
    return ssl.create_default_context()


async def _connected(
    addresses: Sequence[str], port: int, name: str | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to one of these addresses; with a name, by TLS and to nobody else."""
    secure = None if name is None else _trusting(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    why = "no address"
    for each in addresses:
        try:
            return await asyncio.open_connection(each, port, ssl=secure, server_hostname=name, limit=_LARGEST_ANSWER)
        except ssl.SSLCertVerificationError as problem:
            raise Undelivered(f"the certificate of {name} is not good: {cut(problem.verify_message, 200)}") from None
        except OSError as problem:
            why = type_name(type(problem)) if problem.errno is None else os.strerror(problem.errno)
    raise Undelivered(f"no connection to port {port}: {cut(why, 200)}")


async def _asked(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, headers: Sequence[tuple[str, str]], path: str,
    body: bytes,
) -> int:  # fmt: skip
    """Send a request, and read what is answered, as far as it matters."""
    import h11  # noqa: PLC0415 - only workers that send messages need it

    talk = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LARGEST_ANSWER)
    sent = [*headers, ("content-length", str(len(body))), ("connection", "close")]
    for event in (h11.Request(method="POST", target=path, headers=sent), h11.Data(body), h11.EndOfMessage()):
        writer.write(talk.send(event) or b"")
    try:
        await writer.drain()
        answer = None
        while not isinstance(answer, h11.Response):  # what comes before it only tells to be patient
            answer = talk.next_event()
            if answer is h11.NEED_DATA:
                talk.receive_data(await reader.read(8_192))
            elif isinstance(answer, h11.ConnectionClosed):
                raise Undelivered(f"{host} closed the connection without an answer")
        await _read_on(talk, reader)
    except (h11.RemoteProtocolError, OSError):
        raise Undelivered(f"{host} broke off, or does not speak HTTP") from None
    return _judged(host, answer)


async def _read_on(talk: Any, reader: asyncio.StreamReader) -> None:
    """Read the rest of an answer: a receiver that breaks off in it may have failed. What is beyond the bound is left."""
    import h11  # noqa: PLC0415

    read = 0
    while read < _LARGEST_ANSWER:
        event = talk.next_event()
        if event is h11.NEED_DATA:
            found = await reader.read(8_192)
            read += len(found)
            talk.receive_data(found)
        elif not isinstance(event, h11.Data):
            return


def _judged(host: str, answer: Any) -> int:
    status: int = answer.status_code
    if 200 <= status < 300:
        return status
    if status == _GONE:
        raise Permanent(f"{host} answered 410: nobody is there any more")
    asked = dict(answer.headers).get(b"retry-after", b"") if status in _BUSY else b""
    wait = min(float(asked), LONGEST_WAIT_S) if asked.isdigit() else None
    told = " (redirects are not followed)" if 300 <= status < 400 else ""
    raise Undelivered(f"{host} answered {status}{told}", wait)


# Mail


async def mail(id: str, document: Mapping[str, Any], to: str) -> None:
    """Hand a message over to the mail server of the operator. `Undelivered` if it does not take it."""
    import aiosmtplib  # noqa: PLC0415 - only workers that send mail need it

    sender, server = _mailbox(from_environment(f"env:{SMTP_FROM}")), _server(from_environment(f"env:{SMTP_URL}"))
    message = as_mail(id, document, sender, _mailbox(to))
    try:
        async with asyncio.timeout(DEADLINE_S):
            await aiosmtplib.send(message, sender=sender, recipients=[to], timeout=DEADLINE_S, **server)
    except TimeoutError:
        raise Undelivered(f"the server of {SMTP_URL} has not taken the mail within {DEADLINE_S:g} s") from None
    except aiosmtplib.SMTPResponseException as problem:
        raise Undelivered(f"the server of {SMTP_URL} answered {problem.code}") from None
    except aiosmtplib.SMTPRecipientsRefused as problem:
        codes = {str(each.code) for each in problem.recipients}
        raise Undelivered(f"the server of {SMTP_URL} refused the recipient: {', '.join(sorted(codes))}") from None
    except (aiosmtplib.SMTPException, OSError, ssl.SSLError) as problem:
        raise Undelivered(f"the server of {SMTP_URL} cannot be reached: {type(problem).__name__}") from None


def _mailbox(address: str) -> str:
    try:
        return checked_mailbox(address)
    except BadArguments:
        raise NotFromHere(f"the address of the recipient, or {SMTP_FROM}, is none of a mailbox") from None


def _server(url: str) -> dict[str, Any]:
    """Read where mail goes: smtps://USER:PASSWORD@HOST, or smtp://, which begins in the clear and must become TLS.

    Only a server on this very computer may go on in the clear, and one whose URL says so, `?tls=no`; a password never does.
    """
    try:
        parts = urlsplit(url)
        host, port, user, password = parts.hostname, parts.port, parts.username, parts.password
    except ValueError:
        host = None
    if not host or parts.scheme not in ("smtp", "smtps"):
        raise NotFromHere(f"{SMTP_URL} is no address of a mail server; write it as smtps://USER:PASSWORD@HOST")
    here = host in ("localhost", "127.0.0.1", "::1")
    clear = parts.scheme == "smtp" and (here or "tls=no" in parts.query.split("&")) and user is None
    found = {"hostname": host, "port": port or _PORTS[parts.scheme], "use_tls": parts.scheme == "smtps"}
    found["start_tls"] = parts.scheme == "smtp" and (None if clear else True)
    if user is not None:
        found |= {"username": unquote(user), "password": unquote(password or "")}
    return found
