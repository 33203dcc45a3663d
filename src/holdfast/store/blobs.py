"""Blobs: large values, each kept once under its digest. How texts name them, and how those go that nothing names any more."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from holdfast.errors import StoreUnavailable
from holdfast.store.work import Asking, Feature, Transaction, rows
from holdfast.values.codec import BLOB_BYTES

NAMED_BLOB: Final = re.compile(r'"\$blob"\s*:\s*"([^"]+)"')


class HasBlobs(Protocol):
    """A store, as `unspilled` needs it."""

    async def blob(self, digest: str) -> bytes: ...


def spilled(text: str) -> tuple[str, dict[str, bytes]]:
    """Make of a text what is kept in a column: itself, or, if it is large, a reference to the blob that holds it.

    A reference cannot be confused with a value: the codec escapes a user's dict whose only key starts with a dollar sign.
    """
    if len(text) <= BLOB_BYTES:
        return text, {}
    content = text.encode()
    digest = hashlib.sha256(content).hexdigest()
    return f'{{"$blob":"{digest}"}}', {digest: content}


async def unspilled(store: HasBlobs, text: str | None) -> str | None:
    """Read the text itself, wherever it is kept."""
    if text is None or not text.startswith('{"$blob":'):
        return text
    return (await store.blob(text[10:74])).decode()


class Blobs(Feature):
    """Large values, read by digest."""

    async def blob(self, digest: str) -> bytes:
        """Read one; `StoreUnavailable` if it is not there."""
        return await self._read(_blob, digest)


def _blob(digest: str) -> Asking[bytes]:
    found = yield from rows("blob", digest=digest)
    if not found:
        missing = f"the large value {digest!r} is not in the store; was its run deleted meanwhile?"
        raise StoreUnavailable(missing, told=missing)
    content: bytes = found[0][0]
    return content


def insert_blobs(tx: Transaction, blobs: Mapping[str, bytes]) -> Asking[None]:
    """Keep large values, by their digests; values that the store has already stay."""
    for digest, content in blobs.items():
        yield from tx.rows("insert_blob", digest=digest, content=content)


def delete_blobs(tx: Transaction, digests: Iterable[str]) -> Asking[None]:
    """Delete those of these large values that nothing names any more."""
    for digest in sorted(digests):
        yield from tx.rows("lock_blob", digest=digest)
        yield from tx.rows("delete_blob", digest=digest)
