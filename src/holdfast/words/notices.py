"""Notices: changes of code that stop no run and that people want to know of, such as another prompt.

A replay collects them; an integration that sees such a change says so. Nobody listens while runs are carried.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, NamedTuple


class Notice(NamedTuple):
    """A change that stops no run.

    Attributes:
        what: The thing that has changed, such as "instructions of clerk".
        recorded: Its text in the record, shortened.
        present: Its text in the code now, shortened.

    Example:
        ```python
        replayed = await hf.replay("r-1", [report])
        assert not [notice.what for notice in replayed.notices]
        ```
    """

    what: str
    recorded: str
    present: str


notices: Final[ContextVar[list[Notice] | None]] = ContextVar("notices", default=None)
