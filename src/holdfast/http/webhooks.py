"""Webhooks over HTTP: `POST /hooks/{name}` verifies a request, keeps it as a delivery, and answers. A worker maps it later.

Look here when a sender is refused, or what it sends does not arrive.

The signature is the credential. No token, session, cookie or origin counts here, and none is asked for. The server has none of the
agents' code: the store says how the sender of a trigger is known and how much it may send, and the environment of the server has
the secrets. Until the signature was found to fit, the sender is a stranger: how long it may take and how much of it is kept is
bounded for all strangers together (connections.py).

An answer of 2xx means that the delivery is committed. Whatever else is answered, the sender may send it again: it is kept once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from holdfast.client.aside import aside
from holdfast.client.edge import Edge
from holdfast.errors import BadArguments, StoreUnavailable, Unconfirmed, UnknownTrigger
from holdfast.http.connections import KEY, Visit
from holdfast.http.errors import Refused
from holdfast.http.requests import patience
from holdfast.http.routes import Call, Nothing
from holdfast.words.harmless import logger
from holdfast.words.triggers import checked_trigger, delivery_key
from holdfast.words.webhooks import Forged, Verify, check, kept_headers, loaded, secret_bytes

_log = logger("holdfast.http")


@dataclass(frozen=True, slots=True)
class Received:
    delivery: str
    repeated: bool


@dataclass(frozen=True, slots=True)
class _Hook:
    """A webhook as it is declared, with the secrets of this server and the variables that it lacks."""

    name: str
    verify: Verify
    max_bytes: int
    secrets: list[bytes]
    lacks: list[str]


async def take(call: Call[Nothing, None]) -> Any:
    """Keep what a sender posts, if it is that sender's."""
    edge, connection = Edge(call.hf), _connection(call)
    async with patience(call.hf):
        hook = await _hook(edge, call["name"])
    async with connection.strangers_body(call.request, hook.max_bytes) as body:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in call.request.headers.raw]
        try:
            verified = await aside(body, check, hook.verify, hook.secrets, headers, body, edge.now())
        except Forged as forged:
            raise _unverified(hook, forged) from None
        connection.admit(f"webhook:{hook.name}")
        if verified.challenge is not None:
            return Response(verified.challenge, media_type="text/plain")
        try:
            async with patience(call.hf):
                new = await edge.receive(hook.name, verified.id, kept_headers(hook.verify, headers), body)
        except Unconfirmed:
            told = "the store did not confirm in time that it is kept. Send it again: it is kept once"
            raise StoreUnavailable(told, told=told) from None
    if hook.verify.scheme == "slack":  # which shows its users what it is answered
        return Response()
    return Received(delivery_key(verified.id), not new)


def _connection(call: Call[Nothing, None]) -> Visit:
    connection: Visit = call.request.scope[KEY]
    return connection


async def _hook(edge: Edge, name: str) -> _Hook:
    """Read how the sender is known; `UnknownTrigger`, or `Refused` if this server cannot tell."""
    try:
        config = await edge.webhook(checked_trigger(name))
    except BadArguments:
        config = None
    if config is None:
        raise UnknownTrigger(
            f"there is no webhook {name!r}: no worker has declared one. Start one whose code has "
            f"@holdfast.on.webhook({name!r}, ...)"
        )
    try:
        verify, max_bytes = loaded(config["verify"]), int(config["max_bytes"])
    except (BadArguments, KeyError, TypeError, ValueError):
        _log.error("webhook %r is declared by a newer version than this server knows: upgrade the server", name)
        raise _cannot_verify() from None
    secrets, lacks = [], []
    for each in verify.secrets:
        variable = each.removeprefix("env:")
        try:
            secrets.append(secret_bytes(verify, os.environ[variable]))
        except KeyError:
            lacks.append(f"{variable} is not set")
        except BadArguments as wrong:
            lacks.append(f"{variable} cannot be used: {wrong}")
    if not secrets:
        _log.error(
            "webhook %r cannot be verified, so nothing is taken for it: in the environment of this server %s. Set it and start the "
            "server again", name, ", ".join(lacks),
        )  # fmt: skip
        raise _cannot_verify()
    return _Hook(name, verify, max_bytes, secrets, lacks)


def _cannot_verify() -> Refused:
    return Refused(
        "cannot_verify", "this server cannot tell whose request it is: it lacks something", {"Retry-After": "60"}
    )


def _unverified(hook: _Hook, forged: Forged) -> Refused:
    if hook.lacks:
        _log.warning(
            "a request for webhook %r was refused, perhaps for a secret that this server lacks: %s",
            hook.name,
            ", ".join(hook.lacks),
        )
    scheme = "Bearer" if hook.verify.scheme == "bearer" else "Signature"
    headers = {"WWW-Authenticate": f'{scheme} realm="holdfast"', "Connection": "close"}
    return Refused("unverified", str(forged), headers, {"via": f"webhook:{hook.name}"})
