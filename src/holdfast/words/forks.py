"""Forks whose replaced values do not fit: the sentence that stops one, and what those who advise read in it."""

from __future__ import annotations

import re
from typing import Final

_AGAIN: Final = re.compile(r"Fork '([^']+)' again with a value for '([^']+)' that fits")


def fork_again(of: str, key: str) -> str:
    """Say what to do about a fork that cannot go on, because a value does not fit that it has in the place of another."""
    return f"Fork {of!r} again with a value for {key!r} that fits: to resume this one does not help"


def advised(reason: str | None) -> tuple[str, str] | None:
    """Read which run is to be forked again, and which call needs another value, from the reason of a pause.

    Example:
        ```python
        assert advised("it does not fit. " + fork_again("r", "fetch#0")) == ("r", "fetch#0")
        assert advised("lunch") is None
        ```
    """
    found = _AGAIN.search(reason or "")
    return None if found is None else (found[1], found[2])
