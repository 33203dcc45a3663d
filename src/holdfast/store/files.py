"""Files that triggers have found: what was found is known by its path and its content, and is kept as a delivery once.

To note a file and to keep its delivery are one transaction. So a file is known exactly if its delivery is kept, whatever dies. It
is known for as long as it is there, and a while longer: a delivery is forgotten sooner.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.store.triggers import NewDelivery, keep
from holdfast.store.work import Asking, Feature, Transaction, rows, to_json

_PAGE: Final = 5_000


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as a trigger found it."""

    path: str
    digest: str
    mark: str


class Files(Feature):
    """Files, found once."""

    async def files(self, trigger: str) -> list[FoundFile]:
        """Read all that a trigger has found."""
        found: list[FoundFile] = []
        while True:
            path, digest = (found[-1].path, found[-1].digest) if found else ("", "")
            page = await self._read(rows, "files", trigger=trigger, path=path, digest=digest, limit=_PAGE)
            found += [FoundFile(*row) for row in page]
            if len(page) < _PAGE:
                return found

    async def find_file(self, file: FoundFile, new: NewDelivery) -> bool:
        """Note a file and keep its delivery; False if the same content was found there before."""
        return await self._submit(lambda tx: _find(tx, file, new), journal=False, runs=())

    async def see_files(self, trigger: str, paths: Sequence[str]) -> None:
        """Note that files are still there."""
        for start in range(0, len(paths), _PAGE):
            await self._submit(functools.partial(_see, trigger, paths[start : start + _PAGE]), journal=False)

    async def prune_files(self, trigger: str, before: int) -> None:
        """Forget what was last there before a time."""
        await self._submit(lambda tx: tx.rows("prune_files", trigger=trigger, before=before), journal=False)


def _see(trigger: str, paths: Sequence[str], tx: Transaction) -> Asking[None]:
    yield from tx.rows("see_files", trigger=trigger, names=to_json(list(paths)))


def _find(tx: Transaction, file: FoundFile, new: NewDelivery) -> Asking[bool]:
    before = yield from tx.row("file_found", trigger=new.trigger, path=file.path, digest=file.digest)
    yield from tx.rows("put_file", trigger=new.trigger, path=file.path, digest=file.digest, mark=file.mark)
    return before is None and (yield from keep(tx, new))
