"""Links to a question: the holder of a link may see the question as it was when the link was made, and decide it once.

A link is a random secret of which the store has the digest. It is not signed: a reader of the store, or of a copy of
it, would have the key, and could decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.errors import AlreadyDecided
from holdfast.store import audit
from holdfast.store.work import Asking, Feature, Transaction, rows
from holdfast.words.people import LINK

_IS_OVER: Final = "this link is over: it is good for one decision, until its time ends. Ask for another"
_KEPT_MS: Final = 30 * 86_400_000  # behind its end, so that a late visitor is told what it was


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A link as the store keeps it: not its secret, only the digest of that."""

    id: str
    digest: str
    question: str
    shown: str  # the digest of what was to be decided
    name: str
    member_of: str  # JSON list of groups
    created_at: int = 0
    expires_at: int = 0
    used_at: int | None = None


class Links(Feature):
    """Links: made and looked up. A decision uses one up."""

    async def add_link(self, new: LinkRow, lasts_ms: int, run: str, *, by: str, via: str) -> LinkRow:
        """Keep a new link, whose id is random; returns it with its times."""
        return await self._submit(lambda tx: keep_link(tx, new, lasts_ms, run, by, via), journal=False)

    async def link(self, id: str) -> LinkRow | None:
        """Read one."""
        return await self._glance(link_of, id)


def keep_link(tx: Transaction, new: LinkRow, lasts_ms: int, run: str, by: str, via: str) -> Asking[LinkRow]:
    """Keep a new link."""
    yield from tx.rows("prune_links", before=tx.now - _KEPT_MS)
    yield from tx.rows("insert_link", link=new.id, digest=new.digest, question=new.question, shown=new.shown,
                       name=new.name, member_of=new.member_of, expires_at=tx.now + lasts_ms)  # fmt: skip
    told = {"link": new.id, "approval": new.question, "name": new.name}
    yield from audit.note(tx, run, by, via, "create_link", told)
    return LinkRow(*(yield from tx.row("link", link=new.id)))


def link_of(id: str) -> Asking[LinkRow | None]:
    """Read a link, if it is there."""
    found = yield from rows("link", link=id)
    return LinkRow(*found[0]) if found else None


def use_link(tx: Transaction, via: str) -> Asking[None]:
    """Use up the link that a ballot came by, if it came by one: in the transaction of the decision, so that it is one decision."""
    if not via.startswith(LINK):
        return
    found = yield from tx.row("use_link", link=via.removeprefix(LINK))
    if found is None:
        raise AlreadyDecided(_IS_OVER)


def check_unused(votes: Iterable[Mapping[str, Any]], via: str) -> None:
    """Refuse a ballot that comes by a link by which one of these came. Pure: for a question that lies elsewhere than its links."""
    if via.startswith(LINK) and any(vote.get("via") == via for vote in votes):
        raise AlreadyDecided(_IS_OVER)
