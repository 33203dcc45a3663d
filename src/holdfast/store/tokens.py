"""Tokens of servers, made and revoked: pieces of work in a write transaction. Both may be said again after a lost answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from holdfast.errors import BadArguments
from holdfast.store import audit
from holdfast.store.contract import TokenRow
from holdfast.store.transaction import Asking, Transaction

_ALL: Final = 1_000_000


def add_token(new: TokenRow, lasts_ms: int | None, by: str, via: str) -> Callable[[Transaction], Asking[TokenRow]]:
    """Keep a token."""

    def work(tx: Transaction) -> Asking[TokenRow]:
        before = yield from tx.row("token", token=new.id)
        if before is not None:
            return TokenRow(*before)  # our own, whose commit was unknown
        yield from _check_names(tx, new)
        expires_at = None if lasts_ms is None else tx.now + lasts_ms
        yield from tx.rows("insert_token", token=new.id, name=new.name, member_of=new.member_of, scopes=new.scopes,
                           digest=new.digest, expires_at=expires_at)  # fmt: skip
        told = {
            "token": new.id,
            "name": new.name,
            "groups": json.loads(new.member_of),
            "scopes": json.loads(new.scopes),
            "expires_at": expires_at,
        }
        yield from audit.note(tx, "", by, via, "create_token", told)
        return TokenRow(*(yield from tx.row("token", token=new.id)))

    return work


def _check_names(tx: Transaction, new: TokenRow) -> Asking[None]:
    """A person who is called like a group could decide what is the group's, and the other way round."""
    groups = json.loads(new.member_of)
    for row in (yield from tx.rows("tokens", limit=_ALL)):
        other = TokenRow(*row)
        if other.revoked_at is not None or (other.expires_at is not None and other.expires_at <= tx.now):
            continue
        if new.name in json.loads(other.member_of):
            raise BadArguments(f"{new.name!r} is a group here, of {other.name!r}: nobody else can have that name")
        if other.name in groups:
            raise BadArguments(f"{other.name!r} is a name here, of the token {other.id}: no group can be called so")


def use_token(id: str, every_ms: int) -> Callable[[Transaction], Asking[None]]:
    """Note when a token was used, about."""

    def work(tx: Transaction) -> Asking[None]:
        yield from tx.rows("use_token", token=id, before=tx.now - every_ms)

    return work


def revoke_tokens(which: str, by: str, via: str) -> Callable[[Transaction], Asking[list[TokenRow]]]:
    """Take back a token, or all of a name."""

    def work(tx: Transaction) -> Asking[list[TokenRow]]:
        good = {id for (id,) in (yield from tx.rows("good_tokens", token=which))}
        found = [TokenRow(*row) for row in (yield from tx.rows("revoke_tokens", token=which))]
        for token in found:
            if token.id in good:
                yield from audit.note(tx, "", by, via, "revoke_token", {"token": token.id, "name": token.name})
        return found

    return work
