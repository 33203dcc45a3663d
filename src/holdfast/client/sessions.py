"""Sessions: the user of a browser, found by a cookie. The cookie is random; the store has only its digest."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from holdfast.client.tokens import Scope, Token
from holdfast.store.sessions import SessionRow, Sight
from holdfast.store.store import Store
from holdfast.words.durations import moment
from holdfast.words.people import LINK, Actor

SESSION_S: Final = 12 * 3600


@dataclass(frozen=True, slots=True)
class Identity:
    """A user that a server knows: the actor, the scopes, the door that the audit names, and until when."""

    actor: Actor
    scopes: frozenset[Scope]
    via: str
    ends_at: datetime | None = None
    only: Mapping[str, str] | None = None  # labels of the runs that are there for this caller; None: all are
    question: str | None = None  # the only one that this caller may see and decide
    shown: str | None = None  # as it was: the digest of what it showed
    session: str = ""  # the digest of its cookie, if it is one: it can end before its token does
    account: int | None = None  # the user of the computer whose connections alone may use the session
    token: Token | None = None

    @classmethod
    def of_token(cls, token: Token) -> Identity:
        """Make it of a token that is good."""
        actor, may = Actor(token.name, token.groups), frozenset(token.scopes)
        return cls(actor, may, f"http:{token.id}", token.expires_at, only=token.only, token=token)


@dataclass(frozen=True, slots=True)
class Begun:
    """A session that has just begun: its cookie, which is nowhere else, and for how long it is good."""

    cookie: str
    seconds: int


def digest(word: str) -> str:
    """Hash a secret that is random and long, to keep it."""
    return hashlib.sha256(word.encode()).hexdigest()


async def begin(store: Store, who: Identity, whose: str, account: int | None) -> Begun:
    """Begin a session of a known user."""
    now = moment(store.clock.now())
    left_s = float(SESSION_S)
    if who.ends_at is not None:
        left_s = max(min(left_s, (who.ends_at - now).total_seconds()), 0)
    cookie = secrets.token_urlsafe(32)
    own = whose.startswith("person ")  # of all others the store has it elsewhere
    groups, scopes = (list(who.actor.groups), sorted(who.scopes)) if own else ([], [])
    row = SessionRow(digest(cookie), whose, json.dumps(groups), json.dumps(scopes), account)
    await store.begin_session(row, int(left_s * 1000), who.actor.name, who.via)
    return Begun(cookie, int(left_s))


async def found(store: Store, cookie: str) -> Identity | None:
    """Find the user of the session with this cookie, if it is good now."""
    sight = await store.session(digest(cookie))
    now = store.clock.now()
    if sight.session is None or sight.session.expires_at <= now:
        return None
    who = _known(sight, now)
    if who is None:
        return None
    ends_at = moment(sight.session.expires_at)
    return replace(who, ends_at=ends_at, session=sight.session.digest, account=sight.session.account)


def _known(sight: Sight, now: int) -> Identity | None:
    assert sight.session is not None
    kind, _, name = sight.session.whose.partition(" ")
    if kind == "token":
        token = None if sight.token is None else Token.of(sight.token)
        return Identity.of_token(token) if token is not None and token.is_good(moment(now)) else None
    if kind == "link":
        link = sight.link
        if link is None or link.used_at is not None or link.expires_at <= now:
            return None
        actor = Actor(link.name, tuple(json.loads(link.member_of)))
        may: frozenset[Scope] = frozenset(("read", "decide"))
        return Identity(actor, may, f"{LINK}{link.id}", question=link.question, shown=link.shown)
    groups, scopes = json.loads(sight.session.member_of), json.loads(sight.session.scopes)
    return Identity(Actor(name, tuple(groups)), frozenset(scopes), "oidc")
