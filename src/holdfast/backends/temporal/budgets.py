"""Budgets of runs on Temporal: they lie in the database beside the cluster. `store/budgets.py` has the rules.

A budget holds for a family, and a history has one run. So that database has the budgets, what was spent and the questions for
more, in its own tables and under its own rules: a question is about the run that has the budget, also when that has
ended, and every run that meets the limit joins the waiting runs.

Sums are what journals say: the transaction that copies events of a run into the feed adds what they say was spent (`feed.py`), so
each is counted once, whatever is retried. The engine of a run under a budget is told that such an event is recorded when that is
done, so no body begins in the family that does not see it.

Answers. What a person says is an update of a workflow that waits for the answer, which has an activity count it: in one transaction
with the rules of a database, and then a signal to each run that waits. So it is done to the end once it has begun,
whichever process dies.

Crash points. Asking, joining and leaving change nothing when they are done twice. A ballot has an id, and one that was counted
before is told again: a run hears of it once, by the id of the signal. A run that an operator ends in Temporal leaves no question.
An answer that no run waits for any more is counted by the client, and no run is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from holdfast.backends.temporal.side import known, shadow
from holdfast.backends.temporal.talks import Tell
from holdfast.errors import (
    AlreadyDecided,
    BadArguments,
    Expired,
    HoldfastError,
    NotAllowed,
    RunFinished,
    Stale,
    UnknownApproval,
)
from holdfast.store import audit
from holdfast.store.approvals import NewApproval, Said, ask, count, delegated, held, repeated, what_changes
from holdfast.store.changes import News
from holdfast.store.links import use_link
from holdfast.store.store import Store
from holdfast.store.work import Asking, Transaction, rows, to_json
from holdfast.words.budget import Asked, Budget, Purse
from holdfast.words.model import ApprovalRow
from holdfast.words.people import Actor, Ballot
from holdfast.words.spent import Spent

Line = list[list[Any]]  # of `Start.line`
_REFUSALS: Final = (AlreadyDecided, BadArguments, Expired, NotAllowed, RunFinished, Stale, UnknownApproval)
_NONE: Final = (None, "{}")


# What travels


def told(purse: Purse) -> list[Any]:
    """A purse as a list."""
    asked = [
        [each.id, each.status, each.yes, each.at, each.by, each.more, each.by_us, each.note] for each in purse.asked
    ]
    return [purse.run, purse.uid, purse.budget.published(), purse.began, list(purse.spent.row()), asked]


def purse_of(line: Sequence[Any]) -> Purse:
    """A purse from such a list."""
    run, uid, budget, began, spent, asked = line
    return Purse(run, uid, Budget.of(budget), began, Spent.from_row(spent), [Asked(*each) for each in asked])


def ballot_of(said: Mapping[str, Any]) -> Ballot:
    """A ballot as it was given."""
    return Ballot(**{**said, "by": Actor(**said["by"])})


# In the database


async def purses(store: Store, run: str, line: Line, labels: Mapping[str, str]) -> list[list[Any]]:
    """Read the budgets that hold for a run, and how they stand."""
    found = await store.purses(run)
    if {each for each, _, budget, _ in line if budget not in _NONE} - {purse.run for purse in found}:
        await store._submit(Fund(line, labels))
        found = await store.purses(run)
    return [told(purse) for purse in found]


async def spent_by(store: Store, run: str, limit: int) -> list[list[Any]]:
    """Read which steps have spent most of a budget."""
    return [[what, list(spent.row())] for what, spent in await store.spent_by(run, limit)]


async def ask_for_more(store: Store, run: str, new: Iterable[Mapping[str, Any]]) -> None:
    """Put these questions to people, or let a run wait for their answers too."""
    await store._submit(_Ask(run, [NewApproval(**each) for each in new]))


async def leave(store: Store, run: str, approvals: Sequence[str]) -> None:
    """Let a run wait for these answers no longer."""
    if approvals:
        await store._submit(_Leave(run, approvals))


async def leave_all(store: Store, run: str) -> None:
    """Let a run that ends wait for no answer."""
    await leave(store, run, [approval for approval, _ in await store._read(rows, "asked_by", ids=to_json([run]))])


async def decide(store: Store, asked: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Count what a person says, or pass the question on, and tell all that wait; what is refused is told by kind and words."""
    try:
        said, waiting = await store._submit(_Decide(asked["question"], ballot_of(asked["ballot"]), asked.get("to")))
    except _REFUSALS as error:
        return refusal(error)
    signal = {"id": said.signal_id, "kind": said.kind, "topic": said.row.id, "value": said.value, "data": said.data}
    for run in waiting:
        await tell(run, signal)
    return asdict(said.row) | {"shown": None}  # the person who decides has seen it


def refusal(error: HoldfastError) -> dict[str, Any]:
    """Tell of a refusal, as it travels."""
    return {"error": type(error).__name__, "message": str(error)}


@dataclass(frozen=True, slots=True)
class Fund:
    """Let runs have rows, from the root down, and those with a budget that."""

    line: Line
    labels: Mapping[str, str]

    def __call__(self, tx: Transaction) -> Asking[None]:
        above, root = None, self.line[0][0]
        for run, agent, budget, began in self.line:
            yield from shadow(tx, known(run, agent, self.labels, above, root))
            if budget not in _NONE:
                yield from tx.rows("fund", run=run, budget=budget, started_at=began)
            above = run


@dataclass(frozen=True, slots=True)
class Rebudget:
    """Let the last run of a line have another budget."""

    line: Line
    labels: Mapping[str, str]
    budget: str

    def __call__(self, tx: Transaction) -> Asking[None]:
        yield from Fund(self.line, self.labels)(tx)
        yield from tx.rows("rebudget", run=self.line[-1][0], budget=self.budget)


@dataclass(frozen=True, slots=True)
class Reconsider:
    """Forget, for runs that are tried again, that their budgets were denied more."""

    runs: Sequence[str]

    def __call__(self, tx: Transaction) -> Asking[None]:
        for run in self.runs:
            yield from tx.rows("hold_run", run=run)
            yield from tx.rows("reconsider", run=run)


@dataclass(frozen=True, slots=True)
class _Ask:
    run: str
    new: Sequence[NewApproval]

    def __call__(self, tx: Transaction) -> Asking[None]:
        for new in self.new:
            yield from ask(tx, self.run, new)
            tx.changed(new.about or self.run, News.GREW)


@dataclass(frozen=True, slots=True)
class _Leave:
    run: str
    approvals: Sequence[str]

    def __call__(self, tx: Transaction) -> Asking[None]:
        for approval in self.approvals:
            row = yield from tx.row("approval", approval=approval)
            if row is not None:
                about = ApprovalRow(*row).run_id
                yield from tx.rows("hold_run", run=about)  # as a joining run does: it sees that we leave, or we see it
                yield from tx.rows("leave_question", approval=approval, run=self.run)
                yield from tx.rows("withdraw_unasked", approval=approval)
                tx.changed(about, News.GREW)


@dataclass(frozen=True, slots=True)
class _Decide:
    approval: str
    ballot: Ballot
    to: str | None

    def __call__(self, tx: Transaction) -> Asking[tuple[Said, list[str]]]:
        """Return the outcome of the ballot, now or before, and the runs to be told."""
        found = yield from held(tx, self.approval)
        said = repeated(found, self.ballot)
        if said is None:
            rule = (
                count(tx.now, found, self.ballot) if self.to is None else delegated(tx.now, found, self.to, self.ballot)
            )
            yield from use_link(tx, self.ballot.via)
            yield from audit.note(tx, found.run_id, rule.by, rule.via, rule.action, rule.data, rule.about)
            yield from tx.rows("decide", **what_changes(rule.row))
            tx.changed(found.run_id, News.GREW)
            said = rule
        waiting = yield from tx.rows("askers", approval=self.approval)
        return said, [run for (run,) in waiting]
