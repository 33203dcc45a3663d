"""Codes: what a server prints for a browser of this computer, good once and for a minute.

They are in the memory of the process that printed them. A session that begins with one is in the store, as every session.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from typing import Final

from holdfast.client.sessions import digest

CODE_S: Final = 60.0
_MOST: Final = 100  # of the token that has most the oldest gives way


class Codes:
    """The codes of one server."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, float]] = {}  # by the digest of the code: the token, and until when

    def code(self, token: str) -> str:
        """Make a word that opens a session of this token, once, within a minute."""
        made = secrets.token_urlsafe(32)
        if len(self._open) >= _MOST:
            ((largest, _),) = Counter(token for token, _ in self._open.values()).most_common(1)
            del self._open[next(word for word, (token, _) in self._open.items() if token == largest)]
        self._open[digest(made)] = token, time.monotonic() + CODE_S
        return made

    def taken(self, code: str) -> str | None:
        """Find the token that a code is for; then the code is used up."""
        token, until = self._open.pop(digest(code), ("", 0.0))
        return token if time.monotonic() < until else None
