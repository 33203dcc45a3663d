"""Links to a question: one person opens it without a token, sees what is asked, and decides it once."""

from __future__ import annotations

import hmac
import json
import re
import secrets
from typing import Final

from holdfast.client.approvals import Approval
from holdfast.client.base import Base
from holdfast.client.sessions import Identity, digest
from holdfast.errors import AlreadyDecided, BadArguments, Expired, NotAllowed, RunFinished, UnknownApproval
from holdfast.store.approvals import check_allowed, check_voter
from holdfast.store.links import LinkRow
from holdfast.store.store import Store
from holdfast.words.durations import Duration, milliseconds, moment
from holdfast.words.notifications import checked_base
from holdfast.words.people import LINK, Actor

SERVER: Final = "http://127.0.0.1:8010"  # where `holdfast serve` is by default
LINK_LASTS: Final = "7d"
_SECRET: Final = re.compile(r"([0-9a-f]{12})_([\w-]{43})", re.ASCII)
_ANOTHER: Final = "Ask for another"
_LOOK: Final = "A link that nobody was given does nothing; ask for another"


class Links(Base):
    """The part of a client that makes links."""

    async def approval_link(
        self,
        question: Approval | str,
        *,
        by: str | Actor,
        expires: Duration = LINK_LASTS,
        base_url: str = SERVER,
    ) -> str:
        """Make a link by which one person can see a question and decide it once, without a token.

        It is for what the question shows now: if somebody edits that, the link decides nothing. To open it decides
        nothing either, so programs that look at the links of a mail do no harm. Anybody who has it can use it: send it
        to that person alone.

        Args:
            question: The question, or its id.
            by: The person who decides with it, with the person's groups; the question must be for that person.
            expires: How long it is good; no longer than the question.
            base_url: Where `holdfast serve` is reached, as `--url` says there.

        Raises:
            AlreadyDecided: The question is not open.
            Expired: The time of the question is over.
            NotAllowed: It is not for this person.
            UnknownApproval: There is no such question.

        Example:
            ```python
            link = await hf.approval_link(question, by="ana", expires="1d", base_url="https://agents.example.com")
            ```
        """
        person = Actor.of(by)
        id = question.id if isinstance(question, Approval) else question
        row = await self.store.approval(id)
        if row.status != "open":
            raise AlreadyDecided(f"question {row.id!r} is {row.status}: a link to it would decide nothing")
        check_allowed(row, person)
        lasts_ms = milliseconds(expires)
        if lasts_ms <= 0:
            raise BadArguments(f"expires={expires!r}: a link is good for some time, such as expires='1d'")
        if row.expires_at is not None:
            lasts_ms = min(lasts_ms, row.expires_at - self.store.clock.now())
            if lasts_ms <= 0:
                raise Expired(f"question {row.id!r} has expired: a link to it would decide nothing")
        base = checked_base(base_url)
        shown = question.digest if isinstance(question, Approval) else row.digest
        link, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        made = LinkRow(link, digest(secret), row.id, shown, person.name, json.dumps(list(person.groups)))
        await self._written(self.store.add_link(made, lasts_ms, row.run_id, **self._author()), _LOOK)
        return f"{base}/approvals/{row.id}#link={link}_{secret}"


async def link_of(store: Store, secret: str) -> Identity | None:
    """Find the person who may decide by the link with this secret, if it is good now."""
    row = await _row(store, secret)
    if row is None or row.used_at is not None or row.expires_at <= store.clock.now() or await _decided(store, row):
        return None
    return Identity(_person(row), frozenset(("read", "decide")), f"{LINK}{row.id}", moment(row.expires_at), question=row.question,
                    shown=row.shown)  # fmt: skip


async def why_over(store: Store, secret: str) -> str:
    """Say why a link is not good, and whether another would help; its fate is told only to a visitor who has the whole link."""
    row = await _row(store, secret)
    if row is None:
        return (
            f"this is no link to a question, or not the whole of one: it ends with #link= and 56 characters. {_ANOTHER}"
        )
    told = f"this link is over since {moment(row.expires_at):%Y-%m-%d at %H:%M} UTC"
    if row.used_at is not None:
        told = f"this link was used on {moment(row.used_at):%Y-%m-%d at %H:%M} UTC: it is good for one decision, and that was made"
    why = await _decided(store, row)  # the holder could have seen that by the link, so it is told
    if why is None:
        return f"{told}. {_ANOTHER}"
    return f"this link is over: {why}" if row.used_at is None else f"{told}. Its question waits for nobody any more"


async def _decided(store: Store, row: LinkRow) -> str | None:
    """Say why a link's question is no longer this person's to decide, whatever it shows; None if it is."""
    try:
        asked = await store.approval(row.question)
        check_voter(store.clock.now(), asked, _person(row), asked.digest)
    except (AlreadyDecided, Expired, NotAllowed, RunFinished, UnknownApproval) as error:
        return str(error)
    return None


def _person(row: LinkRow) -> Actor:
    return Actor(row.name, tuple(json.loads(row.member_of)))


async def _row(store: Store, secret: str) -> LinkRow | None:
    parts = _SECRET.fullmatch(secret)
    row = None if parts is None else await store.link(parts[1])
    return row if parts is not None and row is not None and hmac.compare_digest(row.digest, digest(parts[2])) else None
