"""Tokens: the users of a server, their names and their scopes. A secret is shown once; the store has only its digest."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from holdfast.client.base import Base
from holdfast.errors import BadArguments
from holdfast.store.tokens import TokenRow
from holdfast.values.text import short
from holdfast.words.durations import Duration, milliseconds, moment
from holdfast.words.people import checked_name, checked_text

Scope = Literal["read", "write", "decide"]
SCOPES: Final[tuple[Scope, ...]] = ("read", "write", "decide")
LIFETIME: Final = "90d"  # of a new token
WARNED: Final = timedelta(days=14)  # so long before its end it is warned of; of a short life it is the last quarter
RENEW: Final = "make another with `holdfast token NAME`, change over, then `holdfast token --revoke` this one"
_USED_EVERY_MS: Final = 60_000
_LOOK: Final = "`holdfast token --list` shows which tokens there are"
_SECRET: Final = re.compile(r"holdfast_([0-9a-f]{12})_([\w-]{43})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Token:
    """A token, without its secret.

    Attributes:
        id: Names it in the audit and for `revoke_token`.
        name: The person or program that acts with it.
        groups: The groups that person is in.
        scopes: "read": look at everything. "write": start and control runs. "decide": decide questions.
        created_at: When it was made.
        revoked_at: When it was revoked.
        expires_at: When it ends; None: never.
        used_at: When it was used last, to the minute.
        only: Labels of the runs that are there for it; None: all runs are.

    Example:
        ```python
        token, secret = await hf.create_token("ana", scopes=["read"])
        assert token.is_good()
        ```
    """

    id: str
    name: str
    groups: tuple[str, ...]
    scopes: tuple[Scope, ...]  # look at everything; start and control runs; decide questions
    created_at: datetime
    revoked_at: datetime | None
    expires_at: datetime | None = None  # None: never
    used_at: datetime | None = None  # to the minute
    only: dict[str, str] | None = field(default=None, hash=False)  # labels of the runs that are there for it

    @classmethod
    def of(cls, row: TokenRow) -> Token:
        """A row of the store."""
        revoked_at, expires_at, used_at = (
            None if at is None else moment(at) for at in (row.revoked_at, row.expires_at, row.used_at)
        )
        groups, scopes = json.loads(row.member_of), json.loads(row.scopes)
        return cls(
            row.id, row.name, tuple(groups), tuple(scopes), moment(row.created_at), revoked_at, expires_at, used_at,
            None if row.only_labels is None else json.loads(row.only_labels),
        )  # fmt: skip

    def is_good(self, now: datetime | None = None) -> bool:
        """Tell whether it is neither revoked nor expired.

        Example:
            ```python
            token, secret = await hf.create_token("ana")
            assert token.is_good()
            ```
        """
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > (now or datetime.now(UTC)))

    def ends_soon(self) -> bool:
        """Tell whether it is good, and in its last 14 days, or in the last quarter of its life if that is shorter.

        Example:
            ```python
            token, secret = await hf.create_token("ana", expires="7d")
            assert not token.ends_soon()  # but six days later
            ```
        """
        if self.expires_at is None:
            return False
        warned = min(WARNED, (self.expires_at - self.created_at) / 4)
        return self.is_good() and not self.is_good(datetime.now(UTC) + warned)


class Tokens(Base):
    """The part of a client that makes and revokes tokens for a server."""

    async def create_token(
        self,
        name: str,
        *,
        groups: Iterable[str] = (),
        scopes: Iterable[str] = SCOPES,
        expires: Duration | None = LIFETIME,
        only: Mapping[str, str] | None = None,
    ) -> tuple[Token, str]:
        """Make a token for a person or a program; returns it with its secret, which cannot be shown again.

        Args:
            name: The person or program that acts with it.
            groups: The groups that person is in.
            scopes: Any of "read", "write" and "decide".
            expires: How long it is good; None: for ever.
            only: Labels: only runs that have them, or are below a run that has them, are there for it.

        Raises:
            BadArguments: A name or scope cannot be used.

        Example:
            ```python
            token, secret = await hf.create_token("ana", groups=["editors"], expires="30d")
            ```
        """
        may = tuple(dict.fromkeys(scopes))
        wrong = [scope for scope in may if scope not in SCOPES]
        if wrong or not may:
            raise BadArguments(f"scopes={may!r}: use one or more of {', '.join(SCOPES)}")
        member_of = json.dumps([checked_name(group, "groups") for group in groups])
        id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        limited = None if only is None else json.dumps(_checked_only(only), sort_keys=True)
        row = TokenRow(id, checked_name(name, "name"), member_of, json.dumps(may), _digest(secret), only_labels=limited)
        lasts_ms = None if expires is None else milliseconds(expires)
        made = await self._written(self.store.add_token(row, lasts_ms, **self._author()), _LOOK)
        return Token.of(made), f"holdfast_{id}_{secret}"

    async def tokens(self) -> list[Token]:
        """List all tokens that were ever made here, the oldest first.

        Example:
            ```python
            good = [token.name for token in await hf.tokens() if token.is_good()]
            ```
        """
        return [Token.of(row) for row in await self.store.tokens()]

    async def revoke_token(self, which: str) -> list[Token]:
        """Revoke a token by its id, or all of a name; returns those revoked. Every server refuses them from now on.

        Sessions end with their token. Those of a person whom a provider knows, by that name, end too.

        Raises:
            BadArguments: There is no such token.

        Example:
            ```python
            await hf.create_token("ana")
            await hf.revoke_token("ana")
            ```
        """
        found = await self._written(self.store.revoke_tokens(which, **self._author()), _LOOK)
        if not found and not await self._written(self.store.end_sessions_of(which, **self._author()), _LOOK):
            raise BadArguments(f"there is no token with the id or name {which!r}; `holdfast token --list` shows them")
        return [Token.of(row) for row in found]

    async def token_of(self, secret: str) -> Token | None:
        """Find the token with this secret, if it is good. For servers."""
        parts = _SECRET.fullmatch(secret)
        row = None if parts is None else await self.store.token(parts[1])
        if parts is None or row is None or not hmac.compare_digest(row.digest, _digest(parts[2])):
            return None
        return self._if_good(row)

    async def good_token(self, id: str) -> Token | None:
        """Find the token with this id, if it is good. For servers."""
        row = await self.store.token(id)
        return None if row is None else self._if_good(row)

    def _if_good(self, row: TokenRow) -> Token | None:
        found = Token.of(row)
        return found if found.is_good(moment(self.store.clock.now())) else None

    async def token_used(self, token: Token) -> None:
        """Note that a token was shown: about when, so that few of many requests write. For servers."""
        await self._written(self.store.use_token(token.id, _USED_EVERY_MS), _LOOK)


def _checked_only(only: Mapping[str, str]) -> dict[str, str]:
    found = dict(only)
    if not found:
        raise BadArguments(
            "only={} would be all runs: name at least one label, only={'team': 'night'}, or leave it out"
        )
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name:
            raise BadArguments(
                f"only: labels are texts, such as only={{'team': 'night'}}; {short(name)}={short(value)} is none"
            )
        checked_text(name + value, "only", 400)
    return found


def id_in(secret: str) -> str:
    """The id of the token that a secret is said to be of, if it looks like one."""
    parts = _SECRET.fullmatch(secret)
    return parts[1] if parts else ""


def _digest(secret: str) -> str:
    """Digest a secret, which is random and long, so a plain digest cannot be turned back."""
    return hashlib.sha256(secret.encode()).hexdigest()
