"""Large values by digest: how texts name them, and how those go that nothing names any more."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from holdfast.store.transaction import Asking, Transaction

NAMED_BLOB: Final = re.compile(r'"\$blob"\s*:\s*"([^"]+)"')


def delete_blobs(tx: Transaction, digests: Iterable[str]) -> Asking[None]:
    """Delete large values that nothing names any more."""
    for digest in sorted(digests):
        yield from tx.rows("lock_blob", digest=digest)
        yield from tx.rows("delete_blob", digest=digest)
