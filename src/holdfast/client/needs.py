"""Needs: open questions, steps in doubt, and runs that do not go on by themselves, the most urgent first.

Look here for what `hf.needs` lists and in which order. Which runs are stuck is decided in the store (`stalled` in its queries.sql);
this says why. Runs that one worker would mend, because nobody serves their code or nobody takes them, are one thing together.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from holdfast.client.filter import working
from holdfast.client.info import crashes, is_forsaken, wants_worker
from holdfast.errors import NotAllowed
from holdfast.store.approvals import check_allowed
from holdfast.store.store import Store
from holdfast.values.text import cut
from holdfast.words.durations import moment, spoken
from holdfast.words.model import CRASHES_APART, ApprovalRow, Published, RunRow, is_served
from holdfast.words.people import Actor, held_by, passed_on

_LOOKED_AT: Final = 1_000  # questions, and runs
_CHARACTERS: Final = 300
Kind = Literal["question", "in_doubt", "paused", "crashes", "unserved", "overdue"]


@dataclass(frozen=True, slots=True)
class Need:
    """A thing that a person should look at: an open question, also one that ends by itself, or a run that does not go on by itself.

    A failed run is none: it is over.

    Attributes:
        kind: "question", "in_doubt" (nobody knows whether a step happened), "paused", "crashes" (its process ends again and again),
            "unserved" (no worker has its code or takes its queue) or "overdue" (no worker has taken it).
        run: The run; of several the one that has waited longest.
        agent: Its agent.
        version: The version that it is pinned to.
        text: What is the matter, in a sentence.
        detail: More of it, such as the reason of a pause.
        to: For whom a question is; empty: for anybody.
        mine: Whether the person who asks may decide it.
        since: Since when.
        expires_at: When a question ends by itself.
        approval: The id of the question.
        advice: What mends it.
        count: How many runs it is about.

    Example:
        ```python
        for need in (await hf.needs(by="ana")).needs:
            print(need.kind, need.run, need.text)
        ```
    """

    kind: Kind
    run: str
    agent: str
    version: str | None
    text: str
    detail: str
    to: tuple[str, ...]
    mine: bool
    since: datetime
    expires_at: datetime | None
    approval: str | None
    advice: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Needs:
    """The things that need a person, the most urgent first.

    Attributes:
        needs: The first of them.
        total: How many there are.
        runs: How many runs they are about: one run may ask twice, and one worker may mend several.

    Example:
        ```python
        found = await hf.needs(limit=4)
        print(f"{len(found.needs)} of {found.total}, about {found.runs} runs")
        ```
    """

    needs: tuple[Need, ...]
    total: int
    runs: int = 0


async def needs(
    store: Store, limit: int, by: Actor, labels: Mapping[str, str] | None, only: Mapping[str, str] | None = None
) -> Needs:
    """List what needs a person: what this one may decide first, then what stands still, then what others must decide."""
    asked = await store.approvals(statuses=("open",), limit=_LOOKED_AT, only=only)
    served = await store.agents()
    fits = await working(store)
    fits |= {"stuck": True, "labels": dict(labels) if labels else None, "only": only}
    stuck = await store.runs(order="oldest", limit=_LOOKED_AT, **fits)
    rows = {row.id: row for row in await store.these_runs({each.run_id for each in asked})}
    wanted = {*(labels or {}).items()}
    asking = [
        _question(each, rows[each.run_id], by)
        for each in asked
        if each.run_id in rows and wanted <= {*json.loads(rows[each.run_id].labels).items()}
    ]
    taken = fits.get("taken_queues")
    queues = None if taken is None else frozenset(taken)
    still = {row.id: row for row in stuck if row.status == "paused"}
    told = "Decide it, and resume it."
    asking = [
        replace(each, detail=f"{each.detail}, paused", advice=told) if each.run in still else each for each in asking
    ]
    kept = [(_top(row, still), kept_by(row, served, queues, store.clock.now())) for row in stuck]
    found = asking + [
        each for each in _together(kept) if each.kind != "paused" or each.count > 1 or each.run not in rows
    ]
    found.sort(key=lambda need: (_urgency(need), need.expires_at is None, need.expires_at or need.since, need.run))
    return Needs(tuple(found[:limit]), len(found), len({each.run for each in asking} | {row.id for row in stuck}))


def _urgency(need: Need) -> int:
    if need.kind in ("question", "in_doubt"):
        return 0 if need.mine else 3
    return {"crashes": 1, "unserved": 1, "overdue": 1, "paused": 2}[need.kind]


def _question(asked: ApprovalRow, row: RunRow, by: Actor) -> Need:
    mine = False
    with contextlib.suppress(NotAllowed):
        check_allowed(asked, by)
        mine = True
    recipients = held_by(json.loads(asked.recipients), passed_on(asked.delegations))
    return Need(
        "in_doubt" if asked.kind == "in_doubt" else "question", row.id, row.agent, row.version, cut(asked.question, _CHARACTERS),
        " / ".join(json.loads(asked.path)), tuple(recipients), mine, moment(asked.asked_at),
        None if asked.expires_at is None else moment(asked.expires_at), asked.id, "Decide it.",
    )  # fmt: skip


def kept_by(row: RunRow, served: Published, queues: frozenset[str] | None, now: int) -> Need:
    """Say what keeps a run that does not go on by itself, and what mends it."""
    since = row.updated_at if row.due_at is None else min(row.due_at, now)
    code = repr(row.agent) if row.version is None else f"version {row.version} of {row.agent!r}"

    def told(kind: Kind, text: str, detail: str, advice: str) -> Need:
        return Need(kind, row.id, row.agent, row.version, cut(text, _CHARACTERS), cut(detail, _CHARACTERS), (), False,
                    moment(since), None, None, advice)  # fmt: skip

    if row.status == "paused":
        reason = row.reason or ""
        return told("paused", "It is paused.", reason, "Mend the reason and resume it, or cancel it.")
    if not is_served(row, served):
        return told("unserved", f"No live worker serves {code}.", "", f"Start a worker that has {code}.")
    if queues is not None and row.queue not in queues:
        nobody = f"No live worker takes the queue {row.queue!r}."
        return told("unserved", nobody, row.queue, f"Start a worker for the queue {row.queue!r}.")
    if wants_worker(row, now) and crashes(row, now) >= CRASHES_APART:
        ends = f"Its process has ended {crashes(row, now)} times without progress in between."
        then = "It is carried apart from others now, and paused at the fifth time if it is alone then."
        return told("crashes", ends, then, "Look at what its step does: memory, a native crash, os._exit.")
    late = spoken(max(now - since, 0) / 1000)
    if is_forsaken(row, now):
        return told("overdue", f"Its worker is gone or stands still, and nobody has had it for {late}.", "",
                    "Look at the workers: those there are are full or hang.")  # fmt: skip
    return told("overdue", f"It has been due for {late} and no worker took it.", "",
                "Look at the workers, or start another: those there are are full or hang.")  # fmt: skip


def _top(row: RunRow, paused: Mapping[str, RunRow]) -> str:
    """Name the run to resume: the topmost that was paused with this one, for the same reason."""
    while (above := paused.get(row.parent_id or "")) is not None and above.reason == row.reason:
        row = above
    return row.id


def _together(each: Iterable[tuple[str, Need]]) -> list[Need]:
    """Join needs that the same worker, or the resume of the same run, would mend into one."""
    found: dict[tuple[str, ...], Need] = {}
    for top, need in each:
        by_code = {"unserved": (need.agent, need.version or "", need.detail), "overdue": ("",), "paused": (top,)}
        key = (need.kind, *by_code.get(need.kind, (need.run,)))
        first = found.get(key)
        if first is None:
            found[key] = need
        else:
            is_first = need.run == top if need.kind == "paused" else need.since < first.since
            found[key] = replace(need if is_first else first, count=first.count + 1)
    return list(found.values())
