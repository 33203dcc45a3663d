"""Facts of events: for each kind the data that engine and readers rely on, and what it may be.

Look here when an event says something new that code reads, or when a bundle is refused for what an event says. Only what
comes from another store is held against it. A fact that is not listed is let through, because nobody reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final

from holdfast.errors import BadArguments
from holdfast.values.text import MOST, is_whole
from holdfast.words.announcements import checked_event, checked_match
from holdfast.words.model import FINISHED, is_run_id
from holdfast.words.spent import Spent

Fits = Callable[[Any], bool]
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_HUGE: Final = 1e300
_LATEST_MS: Final = 253_402_300_799_999  # of the last year that a date has


def _said(value: Any) -> bool:
    """Text of an agent, which stands in the data of an event and nowhere else: any characters."""
    return type(value) is str


def _text(value: Any) -> bool:
    """Is this text that every database keeps in a column? The reason of a pause repeats names and what people wrote."""
    return type(value) is str and _UNSTORABLE.search(value) is None


def _id(value: Any) -> bool:
    return type(value) is str and is_run_id(value)


def _count(value: Any) -> bool:
    return is_whole(value, 0)


def _whole(value: Any) -> bool:
    return is_whole(value, -MOST)


def _moment(value: Any) -> bool:
    return is_whole(value, 0) and value <= _LATEST_MS


def _micros(value: Any) -> bool:
    return is_whole(value, 0, MOST * 1000)


def _number(value: Any) -> bool:
    return type(value) in (int, float) and value >= -_HUGE and value != float("inf")


def _flag(value: Any) -> bool:
    return type(value) is bool


def _object(value: Any) -> bool:
    return type(value) is dict


def _maybe(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def _list_of(fits: Fits) -> Fits:
    return lambda value: type(value) is list and all(map(fits, value))


def _dict_of(fits: Fits) -> Fits:
    return lambda value: type(value) is dict and all(map(fits, value.values()))


def _row(*columns: Fits) -> Fits:
    def fits(value: Any) -> bool:
        known = type(value) is list and len(value) == len(columns)
        return known and all(fits(each) for fits, each in zip(columns, value, strict=True))

    return fits


def _with(needed: dict[str, Fits], also: dict[str, Fits] | None = None) -> Fits:
    def fits(value: Any) -> bool:
        return type(value) is dict and _misfit(value, needed, also or {}) is None

    return fits


def _one_of(*words: str) -> Fits:
    return lambda value: type(value) is str and value in words


def _rest(value: Any) -> bool:
    """The rest of a budget."""
    return type(value) is dict and all(_flag(each) if name == "soft" else _number(each) for name, each in value.items())


def _event(value: Any) -> bool:
    try:
        return bool(checked_event(value))
    except BadArguments:
        return False


def _match(value: Any) -> bool:
    try:
        return _object(value) and checked_match(value) is not None
    except BadArguments:
        return False


_ITEMS: Final = _list_of(_row(_said, _flag))
_NAMES: Final = _row(_text, _maybe(_text), _text)  # of a run, the one that started it, and the one above all
_VOTE: Final = _with({"by": _text, "yes": _flag, "note": _text, "at": _count, "digest": _text})
_CALL: Final[dict[str, Fits]] = {"name": _text, "digest": _text, "input": _text, "asked": _count}
_QUESTION: Final[dict[str, Fits]] = {"approval": _id, "question": _text}
_ASKED: Final[dict[str, Fits]] = {**_QUESTION, "kind": _text, "to": _list_of(_text)}
_TIMES: Final[dict[str, Fits]] = {"expires_ms": _maybe(_whole), "remind_ms": _maybe(lambda value: is_whole(value, 1))}
_SAID: Final[dict[str, Fits]] = {**_QUESTION, "key": _text, "by": _text, "note": _text}
_TALK: Final[dict[str, Fits]] = {"conversation": _id}
_ASKED_TALK: Final[dict[str, Fits]] = {**_TALK, "request": _text}
_BY: Final[dict[str, Fits]] = {"by": _text, "reason": _text}
_STOP: Final[dict[str, Fits]] = {**_BY, "until": _moment}
_HOW_FAR: Final[dict[str, Fits]] = {**_CALL, "done": _number, "total": _maybe(_number), "text": _said}
_ENDED: Final[dict[str, Fits]] = {**_CALL, "attempts": _count, "began": _moment}
_FORKED: Final[dict[str, Fits]] = {
    "uid": _text, "of": _text, "at": _count, "effects": _text, "by": _text, "was": _NAMES, "now": _NAMES, "began": _count,
    "copies": _list_of(_row(_text, _count)),
}  # fmt: skip
_SPENT: Final = _with({}, {field.name: _number if field.name == "usd" else _whole for field in fields(Spent)})
_REDUCER: Final = _with({
    "folded": _count, "begun": _count, "interval": _count, "line": _list_of(lambda value: type(value) in (str, list)),
    "timers": _list_of(_row(_moment, _count, _said)), "children": _list_of(_row(_count, _said, _said, _maybe(_text))),
})  # fmt: skip
_UNREAD: Final = _row(_count, _with({"topic": _text}), _text, _count)

# Kind -> what each event of it says. A kind that is missing says nothing that is relied on.
NEEDED: Final[dict[str, dict[str, Fits]]] = {
    "run.pausing": _BY, "run.paused": _BY, "run.resumed": {"by": _text}, "run.retried": {"by": _text}, "run.forked": _FORKED,
    "run.cancelling": _STOP, "run.unwinding": _BY, "run.failed": {"error": _object}, "run.cancelled": _BY,
    "step.started": {**_CALL, "attempt": _count}, "step.held": {**_CALL, "at": _whole}, "step.progress": _HOW_FAR,
    "step.retrying": {**_CALL, "attempt": _count, "failures": _count, "wait_ms": _count, "error": _object},
    "step.completed": _ENDED, "step.failed": {**_ENDED, "error": _object}, "step.cancelled": _CALL,
    "timer.set": _CALL, "timer.fired": _CALL, "tick": {"asked": _count}, "message.received": {"topic": _text},
    "child.started": {**_CALL, "child": _id}, "child.spawned": {**_CALL, "child": _id},
    "child.ended": {"child": _id, "status": _one_of(*FINISHED), "error": _maybe(_object)},
    "approval.asked": _ASKED, "approval.reminded": {**_ASKED, "nth": _count},
    "approval.delegated": {**_SAID, "to": _text},
    "approval.voted": {**_SAID, "yes": _flag, "digest": _text, "needs": _maybe(_count)},
    "approval.decided": {**_SAID, "yes": _flag, "decision": _text, "votes": _list_of(_VOTE)},
    "approval.expired": {**_QUESTION, "key": _text}, "approval.withdrawn": {"approval": _id},
    "budget.low": {"left": _rest},
    "conversation.asked": _ASKED_TALK, "conversation.entered": {**_ASKED_TALK, "length": _count},
    "conversation.refused": {**_ASKED_TALK, "key": _maybe(_text), "by": _text, "has": _maybe(_text)},
    "conversation.withdrawn": _ASKED_TALK,
    "conversation.read": {**_CALL, **_TALK, "first": _count, "end": _count, "hash": _text},
    "conversation.added": {**_CALL, **_TALK, "first": _count, "end": _count}, "conversation.left": {**_CALL, **_TALK},
    "announcement.published": {**_CALL, "event": _text, "announcement": _text},
    "announcement.awaited": {**_CALL, "event": _event, "match": _match},
    "patched": {"patch": _text}, "note": {**_CALL, "text": _said}, "progress": _HOW_FAR, "plan": {**_CALL, "items": _ITEMS},
    "checkpoint": {"era": _count, "delivered": _count, "unread": _list_of(_UNREAD), "patches": _dict_of(_flag)},
    "stream.opened": _CALL, "stream.closed": _CALL, "stream.read": _CALL, "foreign": {"task": _said, "line": _said},
}  # fmt: skip

# Facts that an event of any kind may have, and that mean the same in each; a kind in `NEEDED` may have its own by the name.
ALSO: Final[dict[str, Fits]] = {
    **_CALL, "whole_digest": _text, "lean_digest": _text, "worker": _text, "child": _id, "approval": _id, "conversation": _id,
    "key": _maybe(_text), "request": _text, "error": _maybe(_object), "status": _text, "position": _count, "held_by": _text,
    "spent": _SPENT, "left": _rest, "inputs": _object, "attempt": _count,
    "attempts": _count, "failures": _count, "wait_ms": _count, "probes": _count, "undone": _count, "place": _micros,
    "rate": _maybe(_text), "began": _moment, "ms": _maybe(_whole), "until": _maybe(_moment), "at": _moment, "cut": _maybe(_whole),
    "depth": _count, "partial": _dict_of(_row(_count, _count, _count, _maybe(_text))), "by": _text, "note": _text,
    "votes": _list_of(_VOTE), "children": _dict_of(_text), "stand_ins": _dict_of(_text), "plan": _ITEMS,
    "choices": _with({}, {"reducer": _REDUCER}),
    "chain": _list_of(_count), "waiting": _list_of(_row(_count, _count)), "released": _count,
    "means": _rest, "announcement": _text, "published": _dict_of(_text),
    "reason": _maybe(_text), "effects": _text, "instead": _dict_of(_text), **_TIMES,
    "cancelling": _with({**_STOP, "unwinding": _flag}),
    "former": _with({}, {
        "origin": _maybe(_with(_FORKED)), "retries": _list_of(_row(_count, _text)), "replace": _dict_of(_text),
    }),
}  # fmt: skip
_ASKS: Final = ("approve", "ask")
_STOPPED_PAUSES: Final[dict[str, Fits]] = {"by": _text, "requests": _list_of(_text)}


def misfit(kind: str, data: dict[str, Any]) -> str | None:
    """Name the fact that an event of this kind lacks, or that it cannot say; None if all are as they should be.

    Example:
        ```python
        assert misfit("patched", {"patch": "since"}) is None
        assert misfit("patched", {}) == "patch"
        ```
    """
    needed = NEEDED.get(kind, {})
    if kind == "approval.asked" and (data.get("kind") in _ASKS or str(data.get("name")).startswith(":")):
        needed = needed | _TIMES
    if kind == "stream.opened" and "held_by" not in data:
        needed = needed | {"position": _count}
    if kind == "checkpoint" and "former" in data:
        needed = needed | {"stand_ins": _dict_of(_text)}
    return _misfit(data, needed, ALSO)


def signal_misfit(data: dict[str, Any]) -> str | None:
    """Name the fact that does not fit in a signal by which requests to pause are called off; no event says the same."""
    return _misfit(data, _STOPPED_PAUSES, {})


def _misfit(data: dict[str, Any], needed: dict[str, Fits], also: dict[str, Fits]) -> str | None:
    for name, fits in needed.items():
        if name not in data or not fits(data[name]):
            return name
    for name, value in data.items():
        if name not in needed and name in also and not also[name](value):
            return name
    return None
