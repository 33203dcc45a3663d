"""Rewind: the events that a retry from some point takes out of the history. Pure: no database.

Each outcome stores in `data["asked"]` how many outcomes had been delivered when its call was made. A cut at `seq` goes
back to the moment before that event. Work that was asked for earlier than that moment and is done stays done, although
it ended later; what was asked for afterwards never happened. An arrival from outside (a message, a decision, a child's
end) did happen, and stays. The event at the cut itself goes, with the attempts that led to it: it is tried again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

from holdfast.words.model import KINDS, OUTCOMES

_ATTEMPTS: Final = frozenset({"step.started", "step.retrying", "step.held", "step.progress"})
_ENDS_OF_QUESTIONS: Final = frozenset(
    {"approval.decided", "approval.expired", "conversation.entered", "conversation.refused"}
)
_QUESTIONS: Final = frozenset(
    {"approval.asked", "approval.reminded", "approval.withdrawn", "conversation.asked", "conversation.withdrawn"}
)

History = Sequence[tuple[int, str, str | None, dict[str, Any]]]  # seq, kind, key, data; in order, none dropped


def first_cause(error: str | None) -> int | None:
    """Find the cut: the first of the outcomes that the error of a run came from, if it came from any."""
    return min((source["seq"] for source in json.loads(error or "{}").get("from", ())), default=None)


def mended_by_cut(history: History, cut: int, failed: Collection[str]) -> set[str]:
    """Find the children whose failures are forgotten: children that are `failed` now, and children that were retried before.

    A failure that the agent had seen before the cut was dealt with. A child that was spawned, and of whose end the agent has
    not heard, is left alone: perhaps no call waits for it.
    """
    heard = {data.get("child") for _, kind, _, data in history if kind in ("child.spawned", "child.ended")}
    ended = [(seq, data) for seq, kind, _, data in history if kind == "child.ended"]
    return {data["child"] for seq, data in ended if seq >= cut and data.get("status") == "failed"} | (
        set(failed) - heard
    )


def dropped_by_cut(history: History, cut: int, mended: Collection[str] = ()) -> list[int]:
    """List the seqs that a cut takes out of this history. `mended`: children retried too, whose ends behind it are over."""
    delivered_before = sum(1 for seq, kind, _, _ in history if seq < cut and kind in OUTCOMES)
    again = {*mended, *(data["child"] for seq, _, _, data in history if seq == cut and "child" in data)}

    def goes(seq: int, kind: str, data: dict[str, Any]) -> bool:
        if seq <= cut:
            return seq == cut
        known = KINDS.get(kind)
        if known is not None and known.arrives:
            return data.get("child") in again  # it ends once more, and that counts
        asked = data.get("asked")
        return known is None or not known.stays or asked is None or asked > delivered_before

    dropped = {seq for seq, kind, _, data in history if goes(seq, kind, data)}
    # A failure goes with its attempts: they count from the first again, and none of them is in doubt. A cancelled call
    # keeps them, because what it did is not known. A question of either was withdrawn, or its answer is used up. A deadline
    # that passed is set anew.
    lost = {key: kind for seq, kind, key, _ in history if seq in dropped and key is not None}
    # What people said is an arrival without a key; if that goes, the same is asked anew.
    lost |= {data["key"]: kind for seq, kind, _, data in history if seq in dropped and kind in _ENDS_OF_QUESTIONS}
    for seq, kind, key, _ in history:
        ended = lost.get(key or "")
        anew = ended == "step.failed" if kind in _ATTEMPTS else kind == "timer.set" and ended == "timer.fired"
        if anew or (kind in _QUESTIONS and ended is not None):
            dropped.add(seq)
    return sorted(dropped)


def spawned_again(history: History, dropped: Collection[int]) -> list[tuple[str, str]]:
    """List the spawned children that must end once more, with the keys of their calls: the code knows them, and waits for them.

    A call that starts its child itself needs no care, because it can start it again.
    """
    again = {data["child"] for seq, kind, _, data in history if seq in dropped and kind == "child.ended"}
    own: dict[str, str] = {}  # in a fork: by a child that its code knows, the one it has
    for _, kind, _, data in history:
        if kind == "run.forked":
            own |= data.get("children", {})
    spawned: list[tuple[str, str]] = []
    for seq, kind, key, data in history:
        if kind == "child.spawned" and seq not in dropped:
            known: str = data["child"]
            spawned.append((own.get(known, known), key or ""))
    return [(child, key) for child, key in spawned if child in again]
