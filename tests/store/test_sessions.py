"""Sessions and links in the store: known to every process by a digest, ended by what they began with, few of one owner."""

from __future__ import annotations

import asyncio

import pytest
from tests.store.places import Place

import holdfast
from holdfast.client import sessions
from holdfast.client.sessions import Identity
from holdfast.store.sessions import MOST_SESSIONS


async def test_a_session_is_as_good_as_its_token(place: Place) -> None:
    """In every process: it has what the token has now, and ends when it is revoked or its own time is over."""
    async with holdfast.open(place.url) as hf, holdfast.open(place.url) as other:
        token, _ = await hf.create_token("ana", groups=["it"], scopes=["read"])
        who = Identity.of_token(token)
        begun = await sessions.begin(hf.store, who, f"token {token.id}", 7)
        assert begun.seconds == sessions.SESSION_S
        found = await sessions.found(other.store, begun.cookie)
        assert found is not None
        assert (found.actor, found.scopes, found.via, found.account) == (who.actor, who.scopes, who.via, 7)
        assert begun.cookie not in str(await hf.store.session(sessions.digest(begun.cookie)))
        assert await sessions.found(other.store, begun.cookie + "x") is None
        await other.revoke_token("ana")
        assert await sessions.found(hf.store, begun.cookie) is None
        short, _ = await hf.create_token("bo", expires="1h")
        begun = await sessions.begin(hf.store, Identity.of_token(short), f"token {short.id}", None)
        assert 3_590 <= begun.seconds <= 3_600
        await other.store.end_session(sessions.digest(begun.cookie))
        assert await sessions.found(hf.store, begun.cookie) is None
        assert [deed.by for deed in await hf.audit(action="sign_in")] == ["bo", "ana"]


async def test_of_one_owner_the_oldest_session_gives_way(place: Place) -> None:
    """Others keep theirs."""
    async with holdfast.open(place.url) as hf:
        ana, _ = await hf.create_token("ana")
        bo, _ = await hf.create_token("bo")
        first = await sessions.begin(hf.store, Identity.of_token(ana), f"token {ana.id}", None)
        his = await sessions.begin(hf.store, Identity.of_token(bo), f"token {bo.id}", None)
        await asyncio.sleep(0.002)  # the store tells times in milliseconds: now it is older than all others
        for _ in range(MOST_SESSIONS):
            last = await sessions.begin(hf.store, Identity.of_token(ana), f"token {ana.id}", None)
        assert await sessions.found(hf.store, first.cookie) is None
        assert await sessions.found(hf.store, last.cookie) is not None
        assert await sessions.found(hf.store, his.cookie) is not None


async def test_a_person_whom_a_provider_knows_is_sent_away_by_name(place: Place) -> None:
    """Groups and scopes are the session's own; to revoke the name ends it, though there is no such token."""
    async with holdfast.open(place.url) as hf:
        who = Identity(holdfast.Actor("ana@example.com", ("it",)), frozenset(("read", "decide")), "oidc")
        begun = await sessions.begin(hf.store, who, "person ana@example.com", None)
        found = await sessions.found(hf.store, begun.cookie)
        assert found is not None and (found.actor, found.scopes, found.via) == (who.actor, who.scopes, "oidc")
        assert await hf.revoke_token("ana@example.com") == []
        assert await sessions.found(hf.store, begun.cookie) is None
        with pytest.raises(holdfast.BadArguments, match="no token"):
            await hf.revoke_token("ana@example.com")
