"""Which events a retry from some point takes out of the history. Pure: no database.

Each outcome stores in `data["asked"]` how many outcomes had been delivered when its call was made. A cut at `seq` goes
back to the moment before that event. Work that was asked for earlier than that moment and is done stays done, although
it ended later; what was asked for afterwards never happened. What came from outside (a message, a decision, a child's
end) did happen, and stays. The event at the cut itself goes, with the attempts that led to it: it is tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.model import KINDS, OUTCOMES

_ATTEMPTS: Final = frozenset({"step.started", "step.retrying"})
_KEPT_IF_ASKED_BEFORE: Final = frozenset(
    {"step.completed", "timer.fired", "child.spawned", "note", "tick", "timer.set", "child.started", "approval.asked"}
)

History = Sequence[tuple[int, str, str | None, dict[str, Any]]]  # seq, kind, key, data; in order, none dropped


def dropped_by_cut(history: History, cut: int) -> list[int]:
    """The seqs that a cut takes out of this history."""
    delivered_before = sum(1 for seq, kind, _, _ in history if seq < cut and kind in OUTCOMES)
    cut_key = next((key for seq, _, key, _ in history if seq == cut), None)

    def goes(seq: int, kind: str, key: str | None, data: dict[str, Any]) -> bool:
        if kind in _ATTEMPTS and key is not None and key == cut_key:
            return True
        if seq < cut:
            return False
        if seq == cut:
            return True
        known = KINDS.get(kind)
        if known is not None and known.arrives:
            return False
        asked = data.get("asked")
        return not (kind in _KEPT_IF_ASKED_BEFORE and asked is not None and asked <= delivered_before)

    return [seq for seq, kind, key, data in history if goes(seq, kind, key, data)]
