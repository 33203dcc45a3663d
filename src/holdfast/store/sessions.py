"""Sessions: browsers that have proved their user, known to every server of the store by the digest of a cookie.

A session of a token ends with the token, one of a link with the link: nothing is copied from them, so that nothing outlives them.
Only a user who is known through a provider has groups and scopes in the session's own row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.store import audit
from holdfast.store.links import LinkRow, link_of
from holdfast.store.tokens import TokenRow
from holdfast.store.work import Asking, Feature, Transaction, rows

MOST_SESSIONS: Final = 100  # of one owner; the oldest gives way, so nobody ends the sessions of others


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as the store keeps it."""

    digest: str  # of the cookie
    whose: str  # "token ID", "link ID" or "person NAME"
    member_of: str  # JSON list, of a person whom a provider knows
    scopes: str
    account: int | None = None  # the user of the computer whose connections alone may use it
    created_at: int = 0
    expires_at: int = 0


@dataclass(frozen=True, slots=True)
class Sight:
    """A session with what it began with, as it is now; all is None that is not there."""

    session: SessionRow | None = None
    token: TokenRow | None = None
    link: LinkRow | None = None


class Sessions(Feature):
    """Sessions: begun, looked up and ended."""

    async def begin_session(self, new: SessionRow, lasts_ms: int, name: str, via: str) -> SessionRow:
        """Keep a new session; returns it with its times."""

        def work(tx: Transaction) -> Asking[SessionRow]:
            before = yield from tx.row("session", digest=new.digest)
            if before is not None:
                return SessionRow(*before)  # our own, whose commit was unknown
            yield from tx.rows("insert_session", digest=new.digest, whose=new.whose, member_of=new.member_of, scopes=new.scopes,
                               account=new.account, expires_at=tx.now + lasts_ms)  # fmt: skip
            yield from tx.rows("end_sessions", digest="", whose=new.whose, most=MOST_SESSIONS)
            yield from audit.note(tx, "", name, via, "sign_in", {})
            return SessionRow(*(yield from tx.row("session", digest=new.digest)))

        return await self._submit(work, journal=False)

    async def session(self, digest: str) -> Sight:
        """Read one with what it began with."""
        return await self._glance(_seen, digest)

    async def use_once(self, digest: str, lasts_ms: int) -> bool:
        """Note that something was used, for so long; False if it was before. It is a row of no session."""

        def work(tx: Transaction) -> Asking[bool]:
            if (yield from tx.row("session", digest=digest)) is not None:
                return False
            yield from tx.rows("insert_session", digest=digest, whose="used", member_of="[]", scopes="[]", account=None,
                               expires_at=tx.now + lasts_ms)  # fmt: skip
            return True

        return await self._submit(work, journal=False)

    async def end_sessions_of(self, name: str, *, by: str, via: str) -> int:
        """Forget all sessions of a person whom a provider knows; returns how many."""

        def work(tx: Transaction) -> Asking[int]:
            ended = yield from tx.rows("end_sessions_of", whose=f"person {name}")
            if ended:
                yield from audit.note(tx, "", by, via, "end_sessions", {"name": name})
            return len(ended)

        return await self._submit(work, journal=False)

    async def end_session(self, digest: str) -> None:
        """Forget a session, and all sessions whose time is over."""
        await self._submit(
            lambda tx: tx.rows("end_sessions", digest=digest, whose="", most=MOST_SESSIONS), small=True, runs=()
        )


def _seen(digest: str) -> Asking[Sight]:
    row = yield from rows("session", digest=digest)
    if not row:
        return Sight()
    found = SessionRow(*row[0])
    kind, _, id = found.whose.partition(" ")
    if kind == "token":
        token = yield from rows("token", token=id)
        return Sight(found, TokenRow(*token[0]) if token else None)
    return Sight(found, None, (yield from link_of(id)) if kind == "link" else None)
