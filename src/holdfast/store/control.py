"""Control: pause, cancel and resume, asked for from outside.

A run that nobody carries is stopped here and now. One that is running has an owner, which alone may write its journal:
the request lies in its inbox, and the owner does it at a safe point. If the owner dies, the next one finds it there.

Each request has an id of its own, so that one whose commit was unknown is made once, with one row in the audit.

Each is tried first in a transaction with others. If the run has relatives to be changed with it, that changes nothing, and
the same is done once more by a transaction that does nothing else (`whole`): only such a one may lock rows of relatives.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast.errors import BadArguments, RunActive, RunFinished
from holdfast.store import audit
from holdfast.store.changes import News
from holdfast.store.families import (
    FAR,
    above,
    asked_to_stop,
    below,
    call_off,
    end_family,
    pause_member,
    requests_that_hold,
    resume_below,
)
from holdfast.store.forks import place_of, take_over
from holdfast.store.inbox import put_signal
from holdfast.store.rewind import dropped_by_cut, first_cause, mended_by_cut, spawned_again
from holdfast.store.runs import existing
from holdfast.store.work import Asking, Feature, Transaction
from holdfast.words.model import CRASHES_PAUSED, FINISHED, RunRow, where_it_went


class Control(Feature):
    """Requests to stop runs, and to let them go on."""

    async def pause(
        self,
        run: str,
        *,
        by: str,
        via: str = "run",
        reason: str = "",
        request: str,
        family: bool = True,
        now: bool = False,
        yields: bool = False,
    ) -> str:
        """Have the run and all below it stop at a safe point; returns its status, 'running' while its owner must do it.

        `request` is the id of the request: the same one twice is one. `now`: bodies that run are stopped. `yields`: any other
        request to pause, made before or later, holds the run instead.
        """
        work = Pause(run, by, via, reason, request, family, now, yields)
        status = await self._submit(work, small=True, runs=[run])
        return status or await self._submit(replace(work, whole=True), small=True) or ""

    async def cancel(
        self, run: str, *, by: str, via: str = "run", reason: str = "", grace_ms: int, request: str, insist: bool = True
    ) -> str:
        """Have the run told to stop, and ended when the grace is over; a second request, or unbegun: at once. Its status.

        A third one ends it also if its worker does not, as when it hangs: then that worker is fenced off. Without `insist` a
        run that was asked before is left alone: what a parent passes on to its children is no second request.
        """
        work = Cancel(run, by, via, reason, grace_ms, request, insist)
        status = await self._submit(work, small=True, runs=[run])
        return status or await self._submit(replace(work, whole=True), small=True) or ""

    async def resume(
        self,
        run: str,
        *,
        by: str,
        via: str = "run",
        retry: bool = False,
        budget: str | None = None,
        family: bool = True,
        at: int | str | None = None,
        effects: str | None = None,
    ) -> None:
        """Make a paused (or, with retry, failed) run ready again, its crash count zero, with this budget.

        With `family` those below it go on too that the same request had paused.

        A failed one goes back to the first outcome that its error came from: events from there on are marked dropped, except
        completed outcomes of calls asked before. Failed children go with it, in one transaction, unless it had dealt with them:
        nobody may carry one on while the run above it still has its old budget, or cannot go on at all.

        `at`: it goes back to this place of its history instead, and `effects` says what becomes of steps that were done behind.
        """
        work = Resume(run, by, via, retry, budget, family, at, effects)
        if not await self._submit(work, runs=[run]):
            await self._submit(replace(work, whole=True))


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop a run and its family until it is resumed; returns its status, or None if it must be done as a `whole`."""

    run: str
    by: str
    via: str
    reason: str
    request: str
    family: bool
    now: bool
    yields: bool = False
    whole: bool = False

    def __call__(self, tx: Transaction) -> Asking[str | None]:
        run, by, request = self.run, self.by, self.request
        yield from tx.rows("hold_run", run=run)
        found = yield from existing(tx, run)
        if (yield from tx.row("signal_position", run=run, signal_id=request)) is not None:
            return found.status  # our own, whose commit was unknown
        if found.status in FINISHED:
            raise RunFinished(f"run {run!r} is {found.status} and cannot be paused{where_it_went(found)}")
        if (yield from asked_to_stop(tx, run)):
            raise RunActive(f"run {run!r} was told to stop and cannot be paused; cancel it again to end it at once")
        takes_others = self.family and (yield from tx.row("has_children", run=run)) is not None
        if takes_others and not self.whole:
            return None
        members = [(0, found), *((yield from below(tx, run)) if takes_others else ())]
        for depth, member in members:
            data = {"by": by, "reason": self.reason, "request": request, "depth": depth + (FAR if self.yields else 0),
                    "family": self.family, "now": self.now}  # fmt: skip
            if depth and (yield from asked_to_stop(tx, member.id)):
                continue
            if (yield from pause_member(tx, member, data)):
                noted: dict[str, Any] = {"by": by, "reason": self.reason}
                noted |= ({"with": run} if depth else {}) | ({"now": True} if self.now else {})
                yield from audit.note(tx, member.id, by, self.via, "pause", noted)
        return "running" if found.status == "running" else "paused"


@dataclass(frozen=True, slots=True)
class Cancel:
    """Ask a run to stop and tidy up, or end it; returns its status, or None if it must be done as a `whole`."""

    run: str
    by: str
    via: str
    reason: str
    grace_ms: int
    request: str
    insist: bool
    whole: bool = False

    def __call__(self, tx: Transaction) -> Asking[str | None]:
        run = self.run
        if self.whole:
            yield from above(tx, run)  # locked first: its parent is told
        found = yield from existing(tx, run)
        if found.status == "cancelled":
            return "cancelled"
        if found.status in FINISHED:
            raise RunFinished(f"run {run!r} is {found.status} and cannot be cancelled{where_it_went(found)}")
        if (yield from tx.row("signal_position", run=run, signal_id=self.request)) is not None:
            return found.status  # our own, whose commit was unknown
        before = yield from asked_to_stop(tx, run)
        if before and not self.insist:
            return found.status
        data = {"by": self.by, "reason": self.reason, "until": tx.now + self.grace_ms}
        hopeless = found.lease_epoch == 0 or (found.status == "paused" and found.crash_count >= CRASHES_PAUSED)
        # Its worker ends it at the second request; if that did not happen, it is ended without that worker.
        carried = _is_carried(tx, found) and before < 2
        if carried or not (before or hopeless):
            yield from _ask_to_stop(tx, run, data, self.request)
            status = found.status
        elif not self.whole and (found.lease_epoch > 0 or found.parent_id is not None):
            return None
        else:
            ended = data
            if not self.reason:  # a second request that says nothing does not unsay what the first one said
                said = [json.loads(each) for (each,) in (yield from tx.rows("reasons_to_stop", run=run))]
                ended = {**data, "reason": next((each["reason"] for each in said if each["reason"]), "")}
            yield from end_family(tx, found, ended)
            status = "cancelled"
        yield from audit.note(tx, run, self.by, self.via, "cancel", data)  # what this one said
        return status


def _is_carried(tx: Transaction, found: RunRow) -> bool:
    """Does a worker have the run? One whose lease is over may be dead; if it is not, it is fenced off."""
    return found.status == "running" and found.due_at is not None and found.due_at > tx.now


def _ask_to_stop(tx: Transaction, run: str, data: dict[str, Any], request: str) -> Asking[None]:
    yield from tx.rows("forgive", run=run)  # it does not pause any more, nor do the children it starts
    yield from put_signal(tx, run, request, "run.cancelling", "", None, data)
    yield from tx.rows("rouse", run=run)


@dataclass(frozen=True, slots=True)
class Resume:
    """Make a stopped run ready again, and its family if the same request had paused it; False: it must be done as a `whole`.

    Writes no event of a run that has an owner.
    """

    run: str
    by: str
    via: str
    retry: bool
    budget: str | None
    family: bool
    at: int | str | None = None
    effects: str | None = None
    whole: bool = False

    def __call__(self, tx: Transaction) -> Asking[bool]:
        run, by, via, whole = self.run, self.by, self.via, self.whole
        cancelled = (yield from above(tx, run)) if whole else None
        found = yield from existing(tx, run)
        if not whole and (found.parent_id or (yield from tx.row("has_children", run=run)) is not None):
            return False
        if tx.again and found.status in ("ready", "running", "waiting"):
            return True  # it was stopped when we looked first: the lost commit did happen
        retries = found.status == "failed" and self.retry
        requests = set[str]() if retries or not self.family else (yield from requests_that_hold(tx, found))
        mark = f"{run}:{found.next_seq}"
        resumed = yield from resume_below(tx, run, requests, by, mark)
        for member in resumed:
            yield from audit.note(tx, member, by, via, "resume", {"by": by, "with": run})
        if found.status in FINISHED and not retries:
            if resumed:
                return True  # it has ended meanwhile, and what was paused with it goes on
            advice = "; retry it instead" if found.status == "failed" else where_it_went(found)
            raise RunFinished(f"run {run!r} is {found.status} and cannot be resumed{advice}")
        if cancelled is not None:
            raise RunFinished(f"run {run!r} belongs to run {cancelled!r}, which was cancelled: it cannot be retried")
        if found.status not in ("paused", "failed"):
            if not requests:
                raise RunActive(f"run {run!r} is {found.status} and not paused: there is nothing to resume")
            yield from call_off(tx, found, requests, by, mark)
            yield from audit.note(tx, run, by, via, "resume", _resumed(by, None, self.budget))
            return True
        other = found.singleton_key and (yield from tx.row("singleton", key=found.singleton_key))
        if other and other[0] != run:
            raise RunActive(f"run {run!r} cannot go on while {other[0]!r}, of the same singleton, has not ended")
        failed: dict[str | None, dict[str, RunRow]] = defaultdict(dict)
        for row in (yield from tx.rows("failed_below", run=run)) if retries and whole else ():
            child = RunRow(*row)
            failed[child.parent_id][child.id] = child
        if self.budget is not None:
            yield from tx.rows("rebudget", run=run, budget=self.budget)
        back = None
        if self.at is not None and self.effects is not None:
            back = (yield from place_of(tx, found, self.at)), self.effects
        yield from _ready(tx, found, failed, by, via, self.retry, self.budget, back)
        return True


def _ready(
    tx: Transaction, found: RunRow, failed: Mapping[str | None, dict[str, RunRow]], by: str, via: str, retry: bool,
    budget: str | None = None, back: tuple[int | None, str] | None = None,
) -> Asking[None]:  # fmt: skip
    """Make a run that stopped ready, and with one that failed those of its failed children that brought it down.

    `back`: the place it goes back to (None: its failure), and what becomes of effects behind it, its children's too.
    """
    run, seq, cut = found.id, found.next_seq, None
    yield from tx.rows("resume", run=run, status=found.status, seq=seq)
    yield from tx.rows("forgive", run=run)
    if retry and found.budget is not None:
        yield from tx.rows("reconsider", run=run)
    if found.status == "failed":
        yield from tx.rows("void_turns", run=run)
        place, below = (None, None) if back is None else (back[0], (None, back[1]))
        cut, children = first_cause(found.error) if place is None else place, failed.get(run, {})
        mended = yield from _drop(tx, run, seq, cut, children)
        for child in sorted(mended & children.keys()):
            yield from _ready(tx, children[child], failed, by, via, retry, back=below)
    data = _resumed(by, cut, budget) | ({} if back is None else {"effects": back[1]})
    yield from tx.record(run, seq, found.lease_epoch, "run.retried" if retry else "run.resumed", data)
    yield from audit.note(tx, run, by, via, "retry" if retry else "resume", data)
    tx.changed(run, News.DUE)


def _resumed(by: str, cut: int | None, budget: str | None) -> dict[str, Any]:
    """Data of the event and of the audit's row."""
    return {"by": by, "cut": cut} | ({"budget": json.loads(budget)} if budget is not None else {})


def _drop(tx: Transaction, run: str, end: int, cause: int | None, failed: Collection[str]) -> Asking[set[str]]:
    """Take out of the history of a failed run what a retry takes out; returns the children whose failures went with it."""
    found = yield from tx.rows("history", run=run)
    history = [(seq, kind, key, json.loads(data) if data else {}) for seq, kind, key, data in found]
    cut = end if cause is None else cause
    mended = mended_by_cut(history, cut, failed)
    dropped = set(dropped_by_cut(history, cut, mended))
    dropped.update(seq for seq, kind, _, _ in history if kind == "run.failed")  # it is not how the run ended any more
    for child, key in spawned_again(history, dropped):
        if (yield from tx.row("run", run=child)) is None:
            raise BadArguments(
                f"child {child!r}, which run {run!r} spawned, was deleted, and the run would wait for it: say at={key!r} to spawn "
                f"it anew, or fork the run with replace={{{key!r}: ...}} to give what it comes to"
            )
    if dropped:
        yield from take_over(tx, run, min(dropped))
    for seq in sorted(dropped):
        yield from tx.rows("drop_event", run=run, seq=seq, dropped=end)
    yield from tx.rows("recount", run=run)
    for child in sorted(mended):  # its end may lie in the inbox, where the run ended before it was taken
        yield from tx.rows("void_end", run=run, topic=child)
    return mended
