"""Callers: the sender of a request, as that caller is told it; and how a browser may become one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from holdfast.client.edge import Edge, version
from holdfast.client.tokens import SCOPES, Scope
from holdfast.http.auth import Door
from holdfast.http.routes import Call, Nothing
from holdfast.words.durations import moment
from holdfast.words.features import Feature

Ground = Literal["sqlite", "postgresql", "cells", "temporal"]


@dataclass(frozen=True, slots=True)
class Me:
    """The caller, and what is asked."""

    name: str
    groups: list[str]
    scopes: list[Scope]
    only: dict[str, str] | None  # labels of the runs that are there for this caller
    question: str | None  # the one that this caller may see and decide, if it is one
    shown: str | None  # the digest of what that question showed when the link to it was made: it decides nothing else
    via: Door
    version: str
    store: Ground
    now: datetime
    ends_at: datetime | None  # when the credential ends
    lacks: list[Feature]  # what the store does not have: it is not worth asking for


@dataclass(frozen=True, slots=True)
class Provider:
    """An identity provider, by the name that is written on the button."""

    name: str


@dataclass(frozen=True, slots=True)
class SignIn:
    """The ways in which a browser can begin a session here."""

    token: bool
    oidc: Provider | None


async def me(call: Call[Nothing, None]) -> Me:
    """Tell a caller its own identity and scopes."""
    caller, edge = call.caller, Edge(call.hf)
    assert caller is not None  # the row says that there must be a caller
    who, only = caller.who, caller.who.only
    may = [scope for scope in SCOPES if scope in caller.scopes]
    return Me(
        caller.actor.name, list(caller.actor.groups), may, None if only is None else dict(only), who.question, who.shown,
        caller.kind, version(), _kind(edge.url), moment(edge.now()), caller.ends_at, sorted(edge.lacks),
    )  # fmt: skip


def _kind(url: str) -> Ground:
    kinds: dict[str, Ground] = {"sqlite": "sqlite", "cells": "cells", "temporal": "temporal"}
    return kinds.get(url.partition(":")[0], "postgresql")


async def sign_in(call: Call[Any, Any]) -> SignIn:
    """Tell a browser which ways to sign in it can offer to an unknown user."""
    ways: SignIn = call.request.app.state.ways
    return ways
