"""Connections to PostgreSQL: the URL, the settings of a connection, and which errors pass by themselves."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import random
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import asyncpg
from asyncpg import exceptions as pg

from holdfast.errors import BadArguments
from holdfast.words.calls import KeptAs, checked_inputs
from holdfast.words.urls import redacted

T = TypeVar("T")
Connection: TypeAlias = Any  # asyncpg has no types

CONNECT_S: Final = 10.0
ANSWER_S: Final = 60.0  # no statement of ours takes nearly as long: one without an answer by then will never have one
# Between two statements of a step's transaction; a process that stands still keeps no rows locked.
IDLE_MS: Final = 10_000
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,50}")
_PORT: Final = re.compile(r"^(?:\[[^\]]*\]|[^:\[\]]*)(?::\d{0,5})?$")  # of a host, if it has one
_QUIET_S, _PROBES, _PROBE_EVERY_S = 5, 3, 2  # a host that is gone is noticed after about this long

# Our statements are small: to compile or to plan one takes longer than to run it. So each is planned once, perhaps when the
# tables are still empty and it would seem best to read the whole of them. A transaction that locks looks afterwards,
# and must then see what was committed before: where a database or a role begins its transactions otherwise, limits
# would be counted wrong.
_OURS: Final = {
    "jit": "off", "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off",
    "default_transaction_isolation": "read committed",
}  # fmt: skip

# The connection is gone, or the server is not there: it is opened anew.
LOST: Final = (
    OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError, pg.PostgresConnectionError,
    pg.OperatorInterventionError, pg.PostgresSystemError, pg.InvalidCachedStatementError, pg.ReadOnlySQLTransactionError,
    pg.IdleInTransactionSessionTimeoutError,
)  # fmt: skip
# PostgreSQL chose this transaction to give way to another.
GAVE_WAY: Final = (pg.TransactionRollbackError, pg.LockNotAvailableError)
FENCED: Final = "HF001"  # the error by which a database that is one of several cells says that a slot is not in it
TROUBLE: Final = (*LOST, *GAVE_WAY, pg.InsufficientResourcesError)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a store URL."""

    dsn: str = field(repr=False)
    shown: str  # the URL without secrets
    schema: str = "holdfast"
    statement_cache: int = 100
    inputs: KeptAs | None = None


def parse_url(url: str) -> Options:
    """`postgresql://user:password@host/database?schema=holdfast`; whatever else it says is for the driver."""
    shown = redacted(url)
    try:
        url.encode()
        parts = urlsplit(url)
    except ValueError:  # or half of a character
        raise BadArguments(f"{shown!r} is no URL; write 'postgresql://user@host/database'") from None
    if parts.scheme not in ("postgresql", "postgres") or not url.startswith(f"{parts.scheme}://"):
        raise BadArguments(f"{shown!r} is not a PostgreSQL URL; write 'postgresql://user@host/database'")
    _check_hosts(parts, shown)
    schema, cache, inputs, rest = "holdfast", 100, None, []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "schema":
            schema = value
        elif name == "inputs":
            inputs = checked_inputs(value)
        elif name == "statement_cache":
            if not value.isdigit():
                raise BadArguments(
                    f"statement_cache={value!r} is no number; 0 keeps no statements, as some poolers need"
                )
            cache = int(value)
        else:
            rest.append((name, value))
    if not _SCHEMA.fullmatch(schema):
        raise BadArguments(
            f"schema={schema!r} is no name for a schema; use small letters, digits and '_', for example 'holdfast'"
        )
    given = dict(rest)
    said = not given.keys().isdisjoint({"sslmode", "service"}) or "PGSSLMODE" in os.environ
    if not said and _leaves_this_machine(parts, given):
        rest.append(("sslmode", "require"))  # the driver's own default goes on in the clear where there is no TLS
    if "service" not in given:
        rest = _with_authorities(rest)
    return Options(_joined(parts._replace(query=urlencode(rest))), shown, schema, cache, inputs)


def _with_authorities(rest: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Make `verify-full` without a word about certificate authorities mean the ones that the system trusts.

    The driver knows a file in the user's home alone, which no container has; `sslrootcert=system` is how PostgreSQL says it.
    """
    given = dict(rest)
    root = given.get("sslrootcert") or os.environ.get("PGSSLROOTCERT", "")
    full = (given.get("sslmode") or os.environ.get("PGSSLMODE")) == "verify-full"
    trusted = ssl.get_default_verify_paths().cafile
    if trusted is None or not (root == "system" or (full and not root and not _has_own_authorities())):
        return rest
    return [*(each for each in rest if each[0] != "sslrootcert"), ("sslrootcert", trusted)]


def _has_own_authorities() -> bool:
    try:
        return (Path.home() / ".postgresql" / "root.crt").exists()
    except (OSError, RuntimeError):  # there is no home, or it is not ours to look into
        return False


def _check_hosts(parts: SplitResult, shown: str) -> None:
    """Refuse hosts that the driver cannot read: its error would repeat a supposed port, which may be a piece of a password."""
    user, at, hosts = parts.netloc.rpartition("@")
    ports = [_PORT.search(host) for host in hosts.split(",")]
    if not all(ports) or "@" in parts.path or (not at and "@" in f"{parts.query}{parts.fragment}") or parts.fragment:
        raise BadArguments(
            f"{shown!r} cannot be taken apart; write 'postgresql://user:password@host:5432/database', and in the password "
            "'%2F' for '/', '%3F' for '?', '%23' for '#', '%40' for '@', '%3A' for ':'"
        )
    if "\0" in unquote(user + parts.path):
        raise BadArguments(f"{shown!r} has a NUL in it")


def _leaves_this_machine(parts: SplitResult, given: dict[str, str]) -> bool:
    """Is one of the hosts neither a socket nor this machine's own loopback interface?"""
    named = parts.netloc.rpartition("@")[2] or given.get("host", "") or os.environ.get("PGHOST", "")
    return any(not _is_here(unquote(host)) for host in named.split(","))


def _is_here(host: str) -> bool:
    name = (
        host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0] if host.count(":") == 1 else host
    )
    if not name or name.startswith(("/", "@")) or name == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback
    return False


def _joined(parts: SplitResult) -> str:
    """Join the URL again, with the two slashes that `urlunsplit` leaves out where no host is named."""
    return f"{parts.scheme}://{parts.netloc}" + urlunsplit(parts._replace(scheme="", netloc=""))


async def connect(options: Options, *, durable: bool = True, ours: bool = True) -> Connection:
    """Open a connection whose unqualified names are those of our schema; or, if it is not for us, those of the database."""
    settings = {
        "application_name": f"holdfast:{options.schema}",
        "tcp_keepalives_idle": str(_QUIET_S),
        "tcp_keepalives_interval": str(_PROBE_EVERY_S),
        "tcp_keepalives_count": str(_PROBES),
    }
    if ours:
        settings |= _OURS | {"search_path": options.schema}
    else:
        settings["idle_in_transaction_session_timeout"] = str(IDLE_MS)
    if not durable:
        settings["synchronous_commit"] = "off"
    connection = await asyncpg.connect(
        options.dsn, timeout=CONNECT_S, server_settings=settings, statement_cache_size=options.statement_cache
    )
    _keep_alive(connection)
    return connection


def _keep_alive(connection: Connection) -> None:
    """Have our side notice too that the other is gone without a word; it would wait for an answer for ever."""
    transport: asyncio.BaseTransport = connection._transport  # noqa: SLF001 - the driver has no other way to its socket
    ours = transport.get_extra_info("socket")
    if ours is None or ours.family == getattr(socket, "AF_UNIX", None):
        return
    wanted = {
        "TCP_KEEPIDLE": _QUIET_S,
        "TCP_KEEPINTVL": _PROBE_EVERY_S,
        "TCP_KEEPCNT": _PROBES,
        "TCP_USER_TIMEOUT": 1000 * (_QUIET_S + _PROBES * _PROBE_EVERY_S),
    }
    with contextlib.suppress(OSError):
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in wanted.items():
            if hasattr(socket, name):
                ours.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def insist(work: Callable[[], Awaitable[T]]) -> T:
    """Do it, and do it again as long as it has to give way to others."""
    while True:
        try:
            return await work()
        except GAVE_WAY:
            await asyncio.sleep(random.uniform(0.001, 0.02))


async def goodbye(connection: Connection | None) -> None:
    """Close it, whatever state it is in."""
    if connection is not None and not connection.is_closed():
        try:
            await connection.close(timeout=2)
        except (*LOST, asyncpg.PostgresError):
            connection.terminate()
