"""Large values beside the cluster: a payload above the threshold lies in a folder under its digest, and its name travels.

The folder must be shared by all that reach the cluster. A file is written whole or not at all, and never changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

THRESHOLD_BYTES: Final = 65_536
INLINE_BYTES: Final = 1_000_000  # of a value where there is no folder: a cluster refuses payloads of 2 MB


class Folder(StorageDriver):
    """A folder of payloads."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def name(self) -> str:
        return "holdfast-folder"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        return [
            StorageDriverClaim(claim_data={"digest": await asyncio.to_thread(self._write, payload.SerializeToString())})
            for payload in payloads
        ]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        return [
            Payload.FromString(await asyncio.to_thread((self._path / claim.claim_data["digest"]).read_bytes))
            for claim in claims
        ]

    def _write(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        place = self._path / digest
        if not place.exists():
            self._path.mkdir(parents=True, exist_ok=True)
            new = self._path / f"{digest}.{secrets.token_hex(4)}"
            with new.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            new.replace(place)
        return digest
