"""A person in a browser of this computer: a code that was printed, or a token, becomes a session.

Browsers send the cookies of a host to all its ports, so also to a server that another account runs on this computer. So a
session has two halves: a cookie, which no script can read, and a key, which the page keeps for itself and sends with each request.
Sessions are in the memory of the process, for half a day, and good as long as their token is.
"""

from __future__ import annotations

import hmac
import secrets
import time
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

CODE_S: Final = 60.0
SESSION_S: Final = 12 * 3600
_MOST: Final = 100  # of each; the oldest gives way


@dataclass(frozen=True, slots=True)
class _Session:
    token: str
    key: str  # its digest
    until: float


class Sessions:
    """Those of one server."""

    def __init__(self) -> None:
        self._codes: dict[str, tuple[str, float]] = {}  # by the digest of the code
        self._open: dict[str, _Session] = {}  # by the digest of the cookie

    def code(self, token: str) -> str:
        """A word that opens a session of this token, once, within a minute."""
        made = secrets.token_urlsafe(32)
        _keep(self._codes, made, (token, time.monotonic() + CODE_S))
        return made

    def taken(self, code: str) -> str | None:
        """The token that a code is for; then it is used up."""
        token, until = self._codes.pop(_digest(code), ("", 0.0))
        return token if time.monotonic() < until else None

    def begin(self, token: str) -> tuple[str, str]:
        """The cookie and the key of a new session, which also ends with its token."""
        cookie, key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        _keep(self._open, cookie, _Session(token, _digest(key), time.monotonic() + SESSION_S))
        return cookie, key

    def token(self, cookie: str, key: str) -> str | None:
        """The token whose session has these two halves."""
        found = self._open.get(_digest(cookie))
        if found is None or not hmac.compare_digest(found.key, _digest(key)) or time.monotonic() >= found.until:
            return None
        return found.token

    def end(self, cookie: str) -> None:
        """It is over."""
        self._open.pop(_digest(cookie), None)


def _keep(kept: dict[str, Any], word: str, what: Any) -> None:
    while len(kept) >= _MOST:
        del kept[next(iter(kept))]
    kept[_digest(word)] = what


def _digest(word: str) -> str:
    return sha256(word.encode()).hexdigest()
