"""An owner takes what came to its run: it is read from the inbox and put into the journal in one piece of work.

To read first and to append then is right as well, and shares its commit with others; but when nothing else is written at
that moment, it is one round trip more between a person's decision and the agent that waits for it. The fence is that of an
append, and the place up to which the inbox was read as well. What is taken gets the next numbers of the journal, which the
owner learns only from the answer: meanwhile it numbers nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from holdfast.store.arrivals import Taken
from holdfast.store.transaction import Asking, Transaction
from holdfast.words.model import Event

MOST: Final = 10  # at once; who has more to read reads it


@dataclass(frozen=True, slots=True)
class Take:
    """Take what came to a run under this epoch, at this place of its journal."""

    run: str
    epoch: int
    seq: int
    seen: int

    def __call__(self, tx: Transaction) -> Asking[Taken]:
        """Not done by one statement, or its answer was lost: then what it wrote is there, for nobody else writes here."""
        rows: list[Any] = []
        if tx.again:
            rows = yield from tx.rows("written", run=self.run, first=self.seq, end=self.seq + MOST, epoch=self.epoch)
        return Taken([self.event(row[0], row[1], row[3], row[4], row[6]) for row in rows], more=True)

    def event(self, seq: int, kind: str, data: str | None, value: str | None, at: int) -> Event:
        return Event(seq, kind, None, json.loads(data or "{}"), value, None, at, self.epoch, self.run)
