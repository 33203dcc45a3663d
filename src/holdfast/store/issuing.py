"""Tokens of servers, made and revoked: pieces of work in a write transaction. Both may be said again after a lost answer."""

from __future__ import annotations

import json
from collections.abc import Callable

from holdfast.store import audit
from holdfast.store.tokens import TokenRow
from holdfast.store.transaction import Asking, Transaction


def add_token(new: TokenRow, by: str, via: str) -> Callable[[Transaction], Asking[TokenRow]]:
    """Keep a token."""

    def work(tx: Transaction) -> Asking[TokenRow]:
        before = yield from tx.row("token", token=new.id)
        if before is not None:
            return TokenRow(*before)  # our own, whose commit was unknown
        yield from tx.rows("insert_token", token=new.id, name=new.name, member_of=new.member_of, scopes=new.scopes,
                           digest=new.digest)  # fmt: skip
        told = {
            "token": new.id,
            "name": new.name,
            "groups": json.loads(new.member_of),
            "scopes": json.loads(new.scopes),
        }
        yield from audit.note(tx, "", by, via, "create_token", told)
        return TokenRow(*(yield from tx.row("token", token=new.id)))

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
