"""The present of a run in words and numbers: what it does or waits for now, and whether it is being stopped.

Look here for what `RunInfo.doing` says. What runs now comes from what its owner told, what waits from its last events; a run of
which neither is known is told by its row alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from holdfast.store.present import Present
from holdfast.values.text import cut
from holdfast.words.announcements import event_of
from holdfast.words.calls import Awaited, Call, Calls
from holdfast.words.durations import moment
from holdfast.words.model import FINISHED, RunRow

_ERROR_CHARACTERS: Final = 300
_QUESTION_CHARACTERS: Final = 300
_SORTS: Final = {"person": "question"}  # what a call waits for, by what its run waits for


@dataclass(frozen=True, slots=True)
class Doing:
    """The thing that a run does or waits for now; of several at once the oldest.

    Attributes:
        kind: "step", "retry", "question", "timer", "message", "child", "conversation", "rate", "slot", "group" or "worker".
        key: The call, if it is one.
        name: The step, the child, the topic, the rate or whatever else it is; of a question its kind: "approve", "ask", "in_doubt",
            "budget" or "loop".
        input: The arguments of the call, in a line; of a question its text.
        attempt: Which attempt of the step runs, or failed last.
        of: How many attempts there may be; None if nobody knows.
        since: Since when.
        next_at: When it goes on by itself.
        error: What the last attempt failed with.
        question: The id of the question it waits for.
        count: How many such things there are at once.

    Example:
        ```python
        doing = (await run.info()).doing
        assert doing is not None
        assert (doing.kind, doing.count) == ("question", 1)
        ```
    """

    kind: str
    key: str | None = None
    name: str = ""
    input: str = ""
    attempt: int | None = None
    of: int | None = None
    since: datetime | None = None
    next_at: datetime | None = None
    error: str | None = None
    question: str | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class Forked:
    """The place where a fork comes from.

    Attributes:
        run: The run it was made from.
        seq: The first event that it does not share with that run.
        by: The person who made it.

    Example:
        ```python
        fork = await run.fork(at=0)
        forked = (await fork.info()).forked
        assert forked is not None
        assert forked.run == run.id
        ```
    """

    run: str
    seq: int
    by: str | None


def doing(row: RunRow, waits_for: str | None, present: Present) -> Doing | None:
    """Say what a run does now; None if it has ended, is paused, or nothing is known."""
    if row.status in FINISHED or row.status == "paused":
        return None
    since = moment(row.updated_at if row.life_at is None else row.life_at)
    due = None if row.due_at is None else moment(row.due_at)
    if waits_for in ("worker", "group"):
        name = row.agent if row.version is None else f"{row.agent} {row.version}"
        return Doing(waits_for, name=name, since=due if waits_for == "worker" else since)
    if row.status == "running" and present.calls is not None:
        first = present.calls.calls[0]
        return Doing("step", first.key, first.name, first.input, first.attempt, since=moment(first.began),
                     count=present.calls.many)  # fmt: skip
    if row.status == "ready":
        what = {"slot": row.limit_key, "rate": row.rate_key}.get(waits_for or "")
        return None if waits_for is None else Doing(waits_for, name=what or "", since=since, next_at=due)
    found = [(call, waits) for call in Calls(present.events) if (waits := call.pending) is not None]
    sort = "step" if row.status == "running" else _SORTS.get(waits_for or "", waits_for or "")
    fitting = [(call, waits) for call, waits in found if waits.sort == sort]
    if fitting:
        return _told(*fitting[0], count=len(fitting))
    if row.status == "running":
        return None
    if waits_for == "message":
        topics = [event_of(token) or token for token in json.loads(row.awaits or "[]")]
        return Doing("message", name=topics[0] if topics else "", since=since, next_at=due, count=max(len(topics), 1))
    return Doing(sort or "message", since=since, next_at=due)


def _told(call: Call, waits: Awaited, count: int) -> Doing:
    last = call.events[-1].data
    if waits.sort == "question":
        asked = next((each.data for each in reversed(call.events) if each.kind == "approval.asked"), {})
        return Doing("question", call.key, str(asked.get("kind", "")), cut(str(asked.get("question", "")), _QUESTION_CHARACTERS),
                     since=moment(waits.since), next_at=None if waits.until is None else moment(waits.until),
                     question=waits.what, count=count)  # fmt: skip
    error: Any = last.get("error") if waits.sort == "retry" else None
    return Doing(
        waits.sort, call.key, call.name.lstrip(":") if waits.sort in ("step", "retry") else waits.what, call.input,
        call.attempts if waits.sort in ("step", "retry") else None, last.get("most"), moment(waits.since),
        None if waits.until is None else moment(waits.until),
        None if error is None else cut(f"{error.get('type')}: {error.get('message')}", _ERROR_CHARACTERS),
        None, count,
    )  # fmt: skip


def stopping(row: RunRow, present: Present) -> Literal["pausing", "cancelling"] | None:
    """Say whether a run that goes on was asked to stop ("cancelling") or to pause ("pausing")."""
    if row.status in FINISHED or row.status == "paused":
        return None
    if any(kind == "run.cancelling" for _, kind in present.stops):
        return "cancelling"
    asked = [place for place, kind in present.stops if kind == "run.pausing"]
    last = next((event.kind for event in reversed(present.events) if event.kind.startswith("run.")), "")
    return "pausing" if any(place > row.inbox_seen for place in asked) or (asked and last == "run.pausing") else None
