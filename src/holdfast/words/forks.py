"""Forks that cannot go on: the sentences that stop one, and the advice that is read from them."""

from __future__ import annotations

import re
from typing import Final

_AGAIN: Final = re.compile(r"Fork '([^']+)' again with a value for '([^']+)' that fits")
_REFUSED: Final = re.compile(r"InDoubt: it was (?:done|begun) (?:by run '|before the retry )")


def fork_again(of: str, key: str) -> str:
    """Say what to do about a fork that cannot go on, because a value that it was given as a replacement does not fit."""
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


def was_refused(error: str) -> bool:
    """Tell whether an error says that a step was not done again, because it was done before the run went back.

    Example:
        ```python
        assert was_refused("InDoubt: it was done by run 'r' at 2026-01-01 10:00:00 UTC (event 3)")
        assert not was_refused("InDoubt: the worker died")
        ```
    """
    return _REFUSED.search(error) is not None
