"""Tokens: kept without their secrets, seen by every process, refused once they are revoked."""

from __future__ import annotations

import pytest
from tests.store.places import Place

import holdfast
from holdfast.store.tokens import TokenRow


async def test_a_token_is_kept_once_and_known_to_other_processes(place: Place) -> None:
    """Said twice, as after a lost answer, it is one; another store finds it, without its secret."""
    row = TokenRow("abc", "ana", '["it"]', '["read"]', "d1")
    async with place.open() as store, place.open() as other:
        kept = await store.add_token(row)
        assert await store.add_token(row) == kept
        assert await other.token("abc") == kept
        assert await other.tokens() == [kept]
        assert (kept.name, kept.digest, kept.revoked_at) == ("ana", "d1", None)
        assert kept.created_at > 0
        assert await store.token("abd") is None


async def test_tokens_are_revoked_by_id_or_name(place: Place) -> None:
    """The time of the first time stands; one that was not meant is left alone."""
    async with place.open() as store:
        for id, name in (("a", "ana"), ("b", "ana"), ("c", "bob")):
            await store.add_token(TokenRow(id, name, "[]", "[]", id))
        (first,) = await store.revoke_tokens("a")
        assert first.revoked_at is not None
        assert sorted(row.id for row in await store.revoke_tokens("ana")) == ["a", "b"]
        again = await store.token("a")
        assert again is not None and again.revoked_at == first.revoked_at
        assert [row.id for row in await store.tokens() if row.revoked_at is None] == ["c"]
        assert await store.revoke_tokens("nobody") == []


async def test_a_secret_is_known_by_its_digest_alone(place: Place) -> None:
    """The secret opens the door until it is revoked; the store has nothing that does."""
    async with holdfast.open(place.url) as hf:
        token, secret = await hf.create_token("ana", groups=["it", "legal"], scopes=["decide", "read"])
        found = await hf.token_of(secret)
        assert found == token
        assert (token.name, token.groups, token.scopes) == ("ana", ("it", "legal"), ("decide", "read"))
        row = await hf.store.token(token.id)
        assert row is not None and row.digest not in secret and secret.split("_", 2)[2] not in str(row)
        for wrong in (
            "",
            "x",
            secret[:-1],
            secret + "x",
            secret.replace(token.id, "0" * 12),
            f"holdfast_{token.id}_{row.digest}",
        ):
            assert await hf.token_of(wrong) is None
        assert [each.id for each in await hf.revoke_token("ana")] == [token.id]
        assert await hf.token_of(secret) is None
        with pytest.raises(holdfast.BadArguments, match="no token with the id or name 'bob'"):
            await hf.revoke_token("bob")
        with pytest.raises(holdfast.BadArguments, match="read, write, decide"):
            await hf.create_token("ana", scopes=["admin"])
        with pytest.raises(holdfast.BadArguments, match="read, write, decide"):
            await hf.create_token("ana", scopes=[])
        with pytest.raises(holdfast.BadArguments, match="names nobody"):
            await hf.create_token(" ")
