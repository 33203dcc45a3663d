"""Signals: how a run hears from outside, inside somebody's transaction."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from holdfast.store.contract import News, Taken
from holdfast.store.transaction import Asking, Transaction, to_json
from holdfast.words.model import Event

_BY_FAMILY: Final = ("child", "approval", "conversation")


def wake_token(kind: str, topic: str) -> str:
    """What `Transition.awaits` must contain for a signal to wake a parked run.

    A message's token is its topic; a child's end is `child:<child id>`, a decision `approval:<approval id>`, the answer to a
    run that asked for a conversation `conversation:<request>`.
    """
    family = kind.partition(".")[0]
    return f"{family}:{topic}" if family in _BY_FAMILY else topic


def put_signal(tx: Transaction, run: str, signal_id: str, kind: str, topic: str, value: str | None,
               data: dict[str, Any]) -> Asking[int | None]:  # fmt: skip
    """Put a signal into an inbox and wake the run if it waits for it; None when the run has ended or is not there."""
    notified = yield from tx.row("notify", run=run, token=wake_token(kind, topic))
    if notified is None:
        return None
    position: int = notified[0]
    yield from tx.rows("insert_signal", run=run, position=position, signal_id=signal_id, kind=kind, topic=topic, value=value,
            data=to_json(data) if data else None)  # fmt: skip
    tx.changed(run, News.DUE)  # its owner should look too, if it has one
    return position


# An owner takes what came to its run: it is read from the inbox and put into the journal in one piece of work.
#
# To read first and to append then is right as well, and shares its commit with others; but when nothing else is written at
# that moment, it is one round trip more between a person's decision and the agent that waits for it. The fence is that of an
# append, and the place up to which the inbox was read as well. What is taken gets the next numbers of the journal, which the
# owner learns only from the answer: meanwhile it numbers nothing.

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
