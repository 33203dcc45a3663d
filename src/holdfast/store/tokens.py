"""The part of the contract with a database that has to do with tokens: who may ask a server, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


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


class TokenStore(Protocol):
    """Where tokens are kept."""

    async def add_token(self, token: TokenRow, lasts_ms: int | None = None, *, by: str = "", via: str = "") -> TokenRow:
        """Keep a new token; its id is random. Returns it with its time. `BadArguments` if its name is another's group."""
        ...

    async def use_token(self, id: str, every_ms: int) -> None:
        """Note that it was shown, unless that was noted less than so long ago."""
        ...

    async def revoke_tokens(self, which: str, *, by: str = "", via: str = "") -> list[TokenRow]:
        """Revoke the token with this id, or all of this name; returns them."""
        ...

    async def token(self, id: str) -> TokenRow | None: ...
    async def tokens(self, limit: int = 1000) -> list[TokenRow]:
        """All of them, revoked ones too, the oldest first."""
        ...
