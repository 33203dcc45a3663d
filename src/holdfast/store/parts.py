"""Parts of inputs: kept once under their digests, with a row for each run that names one. `values/parts.py` says what they are.

Appends write them, with the event that names them. Deleting runs deletes the parts that no other run names.

Naming and deleting at the same moment. SQLite has one writer. On PostgreSQL a writer that names parts first inserts the
missing ones, then locks all of them against being deleted, together with any number of other writers (`hold_parts`),
and only then says that its run uses them. A transaction that deletes locks them against that, waits for writers that
have them, and looks which are still used. So a writer either finds a part, and keeps it, or finds that it is gone and
inserts it again. Both lock in the order of the digests.

Crash points. All of it is in the transaction of the append, or of the deletion: what names a part is there exactly if the part is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from holdfast.store.work import Asking, Count, Feature, Transaction, rows, to_json

_AT_ONCE: Final = 500  # parts that are read together


class Parts(Feature):
    """Parts, read by digest."""

    async def parts_of(self, runs: Iterable[str]) -> set[str]:
        """List the parts that these runs name."""
        return {digest for (digest,) in await self._read(rows, "parts_used", ids=to_json(list(runs)))}

    async def parts(self, digests: Iterable[str]) -> dict[str, str]:
        """Read the texts of these parts, as far as they are there."""
        wanted, found = sorted(set(digests)), dict[str, str]()
        for first in range(0, len(wanted), _AT_ONCE):
            some = to_json(wanted[first : first + _AT_ONCE])
            found.update(dict(await self._read(rows, "parts", ids=some)))
        return found


def keep_parts(tx: Transaction, named: Sequence[tuple[str, Mapping[str, str]]]) -> Asking[None]:
    """Keep the parts that events of these runs name, and that each run names them."""
    texts = {digest: text for _, parts in named for digest, text in parts.items()}
    missing, ids = sorted(texts), to_json(sorted(texts))
    while missing:
        yield Count("insert_part", [[digest, texts[digest]] for digest in missing])
        held = {digest for (digest,) in (yield from tx.rows("hold_parts", ids=ids))}
        missing = [digest for digest in missing if digest not in held]
    uses = sorted({(run, digest) for run, parts in named for digest in parts})
    yield Count("use_part", [list(use) for use in uses])


def delete_parts(tx: Transaction, runs: Sequence[str]) -> Asking[None]:
    """Delete the parts that only these runs name."""
    ids = to_json(list(runs))
    used = [digest for (digest,) in (yield from tx.rows("parts_used", ids=ids))]
    if not used:
        return
    yield from tx.rows("forget_uses", ids=ids)
    for first in range(0, len(used), _AT_ONCE):
        some = to_json(used[first : first + _AT_ONCE])
        yield from tx.rows("lock_parts", ids=some)
        yield from tx.rows("delete_parts", ids=some)
