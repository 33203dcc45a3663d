"""Tokens of servers, made and revoked: pieces of work in a write transaction. Both may be said again after a lost answer."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.store.tokens import TokenRow
from holdfast.store.transaction import Asking, Transaction


def add_token(new: TokenRow) -> Callable[[Transaction], Asking[TokenRow]]:
    """Keep a token."""

    def work(tx: Transaction) -> Asking[TokenRow]:
        yield from tx.rows("insert_token", token=new.id, name=new.name, member_of=new.member_of, scopes=new.scopes,
                           digest=new.digest)  # fmt: skip
        return TokenRow(*(yield from tx.row("token", token=new.id)))

    return work


def revoke_tokens(which: str) -> Callable[[Transaction], Asking[list[TokenRow]]]:
    """Take back a token, or all of a name."""

    def work(tx: Transaction) -> Asking[list[TokenRow]]:
        return [TokenRow(*row) for row in (yield from tx.rows("revoke_tokens", token=which))]

    return work
