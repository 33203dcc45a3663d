"""Tokens: the people and programs that may ask a server, and what they may do.

To make and to revoke one may be repeated after a lost answer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from holdfast.errors import BadArguments
from holdfast.store import audit
from holdfast.store.work import Asking, Feature, Transaction, rows

_ALL: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token as the store keeps it: not its secret, only the digest of that."""

    id: str
    name: str
    member_of: str  # JSON list of groups
    scopes: str  # JSON list
    digest: str
    created_at: int = 0
    revoked_at: int | None = None
    expires_at: int | None = None
    used_at: int | None = None
    only_labels: str | None = None  # JSON object: the labels of the runs that are there for it; None: all are


class Tokens(Feature):
    """Tokens: made, used, revoked and read."""

    async def add_token(self, token: TokenRow, lasts_ms: int | None = None, *, by: str = "", via: str = "") -> TokenRow:
        """Keep a new token, whose id is random; returns it with its time. `BadArguments` if its name is another's group."""
        return await self._submit(lambda tx: _add(tx, token, lasts_ms, by, via), journal=False)

    async def use_token(self, id: str, every_ms: int) -> None:
        """Note that a token was shown, unless that was noted less than so long ago."""
        await self._submit(lambda tx: tx.rows("use_token", token=id, before=tx.now - every_ms), small=True, runs=())

    async def revoke_tokens(self, which: str, *, by: str = "", via: str = "") -> list[TokenRow]:
        """Revoke the token with this id, or all of this name; returns them."""

        def work(tx: Transaction) -> Asking[list[TokenRow]]:
            good = {id for (id,) in (yield from tx.rows("good_tokens", token=which))}
            found = [TokenRow(*row) for row in (yield from tx.rows("revoke_tokens", token=which))]
            if found:
                yield from tx.rows("end_sessions_of", whose=f"person {which}")
            for token in found:
                if token.id in good:
                    yield from audit.note(tx, "", by, via, "revoke_token", {"token": token.id, "name": token.name})
            return found

        return await self._submit(work, journal=False)

    async def token(self, id: str) -> TokenRow | None:
        """Read one."""
        found = await self._glance(rows, "token", token=id)
        return TokenRow(*found[0]) if found else None

    async def tokens(self, limit: int = 1000) -> list[TokenRow]:
        """Read all of them, revoked ones too, the oldest first."""
        return [TokenRow(*row) for row in await self._read(rows, "tokens", limit=limit)]


def _add(tx: Transaction, new: TokenRow, lasts_ms: int | None, by: str, via: str) -> Asking[TokenRow]:
    before = yield from tx.row("token", token=new.id)
    if before is not None:
        return TokenRow(*before)  # our own, whose commit was unknown
    yield from _check_names(tx, new)
    expires_at = None if lasts_ms is None else tx.now + lasts_ms
    yield from tx.rows("insert_token", token=new.id, name=new.name, member_of=new.member_of, scopes=new.scopes,
                       digest=new.digest, expires_at=expires_at, only_labels=new.only_labels)  # fmt: skip
    told = {
        "token": new.id,
        "name": new.name,
        "groups": json.loads(new.member_of),
        "scopes": json.loads(new.scopes),
        "expires_at": expires_at,
        **({} if new.only_labels is None else {"only": json.loads(new.only_labels)}),
    }
    yield from audit.note(tx, "", by, via, "create_token", told)
    return TokenRow(*(yield from tx.row("token", token=new.id)))


def _check_names(tx: Transaction, new: TokenRow) -> Asking[None]:
    """Refuse a person who is called like a group, and a group called like a person: each could decide what is the other's."""
    groups = json.loads(new.member_of)
    for row in (yield from tx.rows("tokens", limit=_ALL)):
        other = TokenRow(*row)
        if other.revoked_at is not None or (other.expires_at is not None and other.expires_at <= tx.now):
            continue
        if new.name in json.loads(other.member_of):
            raise BadArguments(f"{new.name!r} is a group here, of {other.name!r}: nobody else can have that name")
        if other.name in groups:
            raise BadArguments(f"{other.name!r} is a name here, of the token {other.id}: no group can be called so")
