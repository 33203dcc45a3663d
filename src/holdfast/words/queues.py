"""Queues: which broker and which queue a URL names, what a message of one is, and by which key it is known. No I/O.

Look here for what a URL of `holdfast.on.queue` may say, or to add a broker.

A broker gives a message again until it is acknowledged, so a message must be known when it comes again. Some brokers have an id for
that. Of the others the sender must put one into the message, and `id=` says where it is.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.errors import BadArguments
from holdfast.values.text import is_whole, short
from holdfast.words.durations import Duration, milliseconds
from holdfast.words.urls import HIDDEN, redacted, without_secrets

_REFERENCE: Final = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]{0,199})")
_HEADER: Final = re.compile(r"header:([a-z0-9_.-]{1,100})")
_PATH: Final = re.compile(r"[^.\s]{1,100}(\.[^.\s]{1,100}){0,9}")
_MOST_IN_FLIGHT: Final = 10_000
_MOST_HEADERS: Final = 64
_LONGEST_HEADER: Final = 2_000
DEFAULT_IN_FLIGHT: Final = 500
_SHORTEST_REDELIVER_MS, _LONGEST_REDELIVER_MS = 1_000, 12 * 3_600_000


@dataclass(frozen=True, slots=True)
class Broker:
    """A kind of broker: the package that speaks to it, its extra, and what a URL of it may say."""

    name: str
    package: str
    extra: str
    port: int
    options: tuple[str, ...] = ()
    has_ids: bool = True


_NATS: Final = Broker("nats", "nats", "nats", 4222, ("group", "subject"))
_RABBITMQ: Final = Broker("rabbitmq", "aio_pika", "rabbitmq", 5672, ("vhost",), has_ids=False)
_KAFKA: Final = Broker("kafka", "confluent_kafka", "kafka", 9092, ("group", "sasl", "from"), has_ids=False)
_SQS: Final = Broker("sqs", "aiobotocore", "sqs", 443, ("endpoint",))
_REDIS: Final = Broker("redis", "redis", "redis", 6379, ("group", "db"))
BROKERS: Final[Mapping[str, Broker]] = {
    "nats": _NATS, "tls": _NATS, "amqp": _RABBITMQ, "amqps": _RABBITMQ, "kafka": _KAFKA, "kafkas": _KAFKA, "sqs": _SQS,
    "redis": _REDIS, "rediss": _REDIS, "valkey": _REDIS, "valkeys": _REDIS,
}  # fmt: skip
_ENCRYPTED: Final = ("tls", "amqps", "kafkas", "rediss", "valkeys")


@dataclass(frozen=True, slots=True)
class Address:
    """A queue: its broker, where that is, and the name. `user` and `password` may say where they are, as `env:NAME`."""

    url: str = field(repr=False)
    broker: Broker
    encrypted: bool
    hosts: tuple[str, ...]  # with their ports; of SQS the region
    queue: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def shown(self) -> str:
        """The URL without credentials."""
        return redacted(self.url)

    def resolved(self, environment: Mapping[str, str]) -> Address:
        """Replace the names of variables by credentials; a lone token is a user. `BadArguments` if one is not set."""
        if self.user == "env" and self.password is not None:
            user, colon, password = self._value(self.password, environment).partition(":")
            return replace(self, user=user, password=password if colon else None)
        found = _REFERENCE.fullmatch(self.password or "")
        return self if found is None else replace(self, password=self._value(found[1], environment))

    def _value(self, name: str, environment: Mapping[str, str]) -> str:
        value = environment.get(name)
        if not value:
            raise BadArguments(
                f"{self.shown} takes its credentials from the variable {name}, which is not set here; set it in the environment of "
                "the worker"
            )
        return value

    def told(self, problem: object) -> str:
        """Write down what a driver says, without the credentials that it may show."""
        text = without_secrets(str(problem) or type(problem).__name__, self.url)
        for secret in (self.password, self.user if self.password is None else None):
            text = text.replace(secret, HIDDEN) if secret and len(secret) > 2 else text
        return text


def address_of(url: object) -> Address:
    """Read the URL of a queue, or `BadArguments` that says what one looks like and shows no password."""
    if not isinstance(url, str):
        raise BadArguments(f"{short(url)} is not the URL of a queue; write it as 'nats://host:4222/orders'")
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError as problem:
        raise BadArguments(f"{redacted(url)} cannot be read: {without_secrets(str(problem), url)}") from None
    broker = BROKERS.get(parts.scheme.lower())
    if broker is None:
        raise BadArguments(
            f"{redacted(url)} names no broker that is known; write one of {', '.join(f'{each}://' for each in BROKERS)}"
        )
    userinfo, _, netloc = parts.netloc.rpartition("@")
    name = unquote(parts.path.strip("/"))
    hosts = tuple(_with_port(host, broker) for host in netloc.split(",") if host)
    if not hosts or not name or "/" in parts.path.strip("/"):
        raise BadArguments(
            f"{redacted(url)} does not name a host and a queue; write {parts.scheme}://{_example(broker)}"
        )
    if unknown := [option for option in options if option not in broker.options]:
        known = ", ".join(broker.options) or "none"
        raise BadArguments(f"{redacted(url)}: {broker.name} has no option {short(unknown[0])}; there are {known}")
    user, colon, password = userinfo.partition(":")
    return Address(
        url, broker, parts.scheme.lower() in _ENCRYPTED, hosts, name, unquote(user) or None,
        unquote(password) if colon else None, options,
    )  # fmt: skip


def _with_port(host: str, broker: Broker) -> str:
    return host if broker is _SQS or re.search(r":\d+$", host) else f"{host}:{broker.port}"


def _example(broker: Broker) -> str:
    return "eu-west-1/orders" if broker is _SQS else f"host:{broker.port}/orders"


@dataclass(frozen=True, slots=True)
class Message:
    """A message as an adapter has it. `handle` is how its broker knows it."""

    body: bytes
    headers: Mapping[str, str]
    id: str | None  # that the broker gave it
    before: int  # how often it was given to a worker before, as far as the broker counts
    handle: Any = field(default=None, hash=False, compare=False)


def headers_of(found: Mapping[str, Any]) -> dict[str, str]:
    """Write what a broker tells of a message as headers: names in lower case, as many and as long as are kept."""
    headers: dict[str, str] = {}
    for name, value in list(found.items())[:_MOST_HEADERS]:
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        headers[str(name).lower()] = text[:_LONGEST_HEADER]
    return headers


def checked_id(id: object, broker: Broker) -> str | None:
    """Read `id=`: a field of the JSON body or a header; or `BadArguments`, also if the broker has no ids and none is named."""
    if id is None:
        if not broker.has_ids:
            raise BadArguments(
                f"{broker.name} gives its messages no id by which one is known when it comes again. Say which field of the message "
                "has one: id='order_id' in the JSON body, id='order.id' inside of another, id='header:message-id' in a header"
            )
        return None
    if not isinstance(id, str) or not (_HEADER.fullmatch(id) if id.startswith("header:") else _PATH.fullmatch(id)):
        raise BadArguments(
            f"id={short(id)}: name a field of the JSON body, as 'order_id' or 'order.id', or a header in lower case, as "
            "'header:message-id'"
        )
    return id


def key_of(message: Message, id: str | None) -> str | None:
    """Find the key of a message; None if it has none where `id=` says it is."""
    if id is None:
        return message.id
    found: Any
    if header := _HEADER.fullmatch(id):
        found = message.headers.get(header[1])
    else:
        try:
            found = json.loads(message.body)
        except (ValueError, RecursionError):
            return None
        for name in id.split("."):
            found = found.get(name) if isinstance(found, dict) else None
    fits = isinstance(found, str | int) and not isinstance(found, bool)
    return (str(found) or None) if fits else None


def why_no_key(message: Message, id: str) -> str:
    """Say why a message has no key, and what is to be done about it."""
    there = f"there is no text and no whole number at {id!r}"
    if not _HEADER.fullmatch(id):
        try:
            json.loads(message.body)
        except (ValueError, RecursionError):
            there = f"its body is not JSON, so there is nothing at {id!r}"
    return f"the message has no id: {there}. Have the sender put one there and send it again, or change id=; then dismiss this one"


def makeshift_key(message: Message) -> str:
    """Name a message that lacks its id, so that it can be kept: by the broker's id, or by its body."""
    return f"no-id-{hashlib.sha256((message.id or '').encode() + message.body).hexdigest()[:40]}"


def checked_in_flight(in_flight: object) -> int:
    """The most messages that a worker has taken and not acknowledged, or `BadArguments`."""
    if not isinstance(in_flight, int) or not is_whole(in_flight, 1) or in_flight > _MOST_IN_FLIGHT:
        raise BadArguments(f"in_flight={short(in_flight)}: give a number of messages from 1 to {_MOST_IN_FLIGHT:,}")
    return in_flight


def checked_redeliver(redeliver: Duration) -> int:
    """The time after which a broker gives a message again, in milliseconds, or `BadArguments`."""
    found = milliseconds(redeliver)
    if not _SHORTEST_REDELIVER_MS <= found <= _LONGEST_REDELIVER_MS:
        raise BadArguments(f"redeliver={short(redeliver)}: give a time from 1s to 12h")
    return found
