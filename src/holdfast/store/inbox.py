"""Signals: how a run hears from outside, inside somebody's transaction."""

from __future__ import annotations

from typing import Any, Final

from holdfast.store.contract import News
from holdfast.store.transaction import Asking, Transaction, to_json

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
