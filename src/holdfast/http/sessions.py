"""A person in a browser of this computer: a code that was printed, or a token, becomes a session.

Browsers send the cookies of a host to all its ports, so also to a server that another account runs on this computer. So a
session has two halves: a cookie, which no script can read, and a key, which the page keeps for itself and sends with each request.
Sessions are in the memory of the process, for half a day, and good as long as their token is.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, TypeVar

CODE_S: Final = 60.0
SESSION_S: Final = 12 * 3600
T = TypeVar("T")
_MOST: Final = 100  # of each; of the token that has most the oldest gives way


@dataclass(frozen=True, slots=True)
class _Session:
    token: str
    key: str  # its digest
    until: float


class Sessions:
    """The sessions of one server, and the codes that begin one."""

    def __init__(self) -> None:
        self._codes: dict[str, tuple[str, float]] = {}  # by the digest of the code
        self._open: dict[str, _Session] = {}  # by the digest of the cookie

    def code(self, token: str) -> str:
        """Make a word that opens a session of this token, once, within a minute."""
        made = secrets.token_urlsafe(32)
        _make_room(self._codes, lambda kept: kept[0])
        self._codes[digest(made)] = token, time.monotonic() + CODE_S
        return made

    def taken(self, code: str) -> str | None:
        """Find the token that a code is for; then the code is used up."""
        token, until = self._codes.pop(digest(code), ("", 0.0))
        return token if time.monotonic() < until else None

    def begin(self, token: str) -> tuple[str, str]:
        """Begin a session, which also ends with its token; returns its cookie and its key."""
        cookie, key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        _make_room(self._open, lambda kept: kept.token)
        self._open[digest(cookie)] = _Session(token, digest(key), time.monotonic() + SESSION_S)
        return cookie, key

    def token(self, cookie: str, key: str) -> str | None:
        """Find the token whose session has these two halves."""
        found = self._open.get(digest(cookie))
        if found is None or not hmac.compare_digest(found.key, digest(key)) or time.monotonic() >= found.until:
            return None
        return found.token

    def end(self, cookie: str) -> None:
        """End a session."""
        self._open.pop(digest(cookie), None)


def _make_room(kept: dict[str, T], token_of: Callable[[T], str]) -> None:
    """Forget the oldest of the token that has most, where there are many: nobody ends the sessions of others."""
    if len(kept) < _MOST:
        return
    ((largest, _),) = Counter(map(token_of, kept.values())).most_common(1)
    del kept[next(word for word, each in kept.items() if token_of(each) == largest)]


def digest(word: str) -> str:
    """Hash a secret, to keep it."""
    return sha256(word.encode()).hexdigest()
