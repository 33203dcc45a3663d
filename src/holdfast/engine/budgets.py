"""Budgets: before a body begins, is there enough left for it?

The budgets that hold for a run are its own and those of the runs above it. They are looked at in the store before each
attempt, by runs that have or are below one that has a budget; no others pay for it. When one is spent, no body begins: the
call ends with `BudgetExceeded`, or a person is asked for more. That question is about the run whose budget it is. There is one
of it, however many calls and runs wait for it: a call that finds the budget spent joins the waiting calls, and all are
told of the answer. What people grant is stored in their answers alone; a no is final.

Overshoot. What a body spends is known when it has ended, and no running body is stopped for it: what is spent beyond a
limit is at most what the bodies spend that run when it is reached, in this run and the others below the same budget. Of
steps, the bodies that this run has begun count as spent.

Crash points. The question, and that this run waits for it, are written with the event that asks. The next life finds both in
the store, and waits, or goes on if it was answered meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

from holdfast.engine.approvals import answered
from holdfast.engine.attempt import Attempt
from holdfast.engine.steps import StepCall
from holdfast.errors import BudgetExceeded
from holdfast.store.approvals import NewApproval
from holdfast.store.budgets import BUDGET
from holdfast.values.codec import UNTYPED, digest
from holdfast.words.budget import MOST, Bill, Budget, Ledger, Purse, left
from holdfast.words.model import Event, RunRow
from holdfast.words.people import writable
from holdfast.words.spent import NOTHING


class Meter:
    """Lets the bodies of one run begin while the budgets that hold for it last."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._turn = asyncio.Lock()
        self._running: set[Bill] = set()  # of bodies that were let in, and whose end is not in the store yet
        self._waiting: dict[StepCall, str] = {}  # calls, and the question whose answer each waits for
        self._leaving: dict[str, asyncio.Event] = {}  # questions that the store has yet to hear are left
        self._left = 0  # questions that were left, in all
        self._ledger = Ledger()
        self._low: bool | None = None  # is a soft limit known to be passed? None: as the agent knows it
        attempt.kept.has_left(_declared(attempt.run))

    async def let_in(self, call: StepCall) -> BudgetExceeded | None:
        """Wait until a body of the call may begin; or why it may not."""
        try:
            return await self._until_enough(call)
        except asyncio.CancelledError:
            question = self._waiting.pop(call, None)
            if question is not None and question not in self._waiting.values():
                self._leave(question)
            raise
        finally:
            self._waiting.pop(call, None)

    async def _until_enough(self, call: StepCall) -> BudgetExceeded | None:
        attempt = self._attempt
        while True:
            async with self._turn:  # so that one asks, and each knows of those before it
                purses = await self._look()
                self._waiting.pop(call, None)
                now, running = attempt.host.clock.now(), len(self._running) - (call.bill in self._running)
                spent = next((purse for purse in purses if purse.over(now, running)), None)
                if spent is None:
                    self._running.add(call.bill)
                    call.bill.let_in(purses, self._ledger)
                    self._notice(purses, now)
                    return None
                if spent.budget.at_limit == "fail" or spent.denied is not None:
                    return spent.exceeded(now, running)
                question = spent.open
                if question is None or not question.by_us:
                    await self._ask(call, spent, now, running)
                    continue
                self._waiting[call] = question.id
            await answered(call, question.id)
            del self._waiting[call]

    async def _look(self) -> list[Purse]:
        """Read the budgets, as they stand behind every question that this run has left: it waits for none of these any more."""
        attempt = self._attempt
        while True:
            for known in [*self._leaving.values()]:
                await known.wait()
            before = self._left
            purses = await attempt.host.store.purses(attempt.run.id)
            if before == self._left:
                return purses

    def landed(self, call: StepCall) -> None:
        """The store has what the body of this call spent."""
        self._running.discard(call.bill)

    def saw(self, event: Event) -> None:
        """Do nothing: the outcome itself tells what is left."""

    def begin_era(self) -> None:
        """Do nothing: a budget holds over checkpoints."""

    def _notice(self, purses: list[Purse], now: int) -> None:
        """Have it in the history when a soft limit was passed."""
        was_low = self._attempt.kept.means.get("soft", False) if self._low is None else self._low
        means = left(purses, now)
        self._low = means.get("soft", False)
        if self._low and not was_low:
            self._attempt.pen.record("budget.low", None, {"left": means})

    async def _ask(self, call: StepCall, purse: Purse, now: int, running: int) -> None:
        attempt, over = self._attempt, purse.over(now, running)
        nth = sum(asked.status != "open" for asked in purse.asked)
        question = f"q-{hashlib.sha256(f'{purse.uid}:{BUDGET}:{nth}'.encode()).hexdigest()[:16]}"
        by = [f"{what} {spent}" for what, spent in await attempt.host.store.spent_by(purse.run, 5)]
        text = (
            f"The budget of run {purse.run!r} is spent: {purse.told(over, now, running)}"
            + (f" ({'; '.join(by)})" if by else "")
            + ". Approve to give it what is shown in addition, edited if it should be another amount. "
            "If it is denied, no further step begins and the agent is told (BudgetExceeded)."
        )
        shown = UNTYPED.store({name: purse.budget.limits()[name] for name in over}, "more")[0]
        new = NewApproval(question, BUDGET, "approve", writable(text), shown, digest(shown))
        new.schema, new.recipients, new.about = json.dumps(_form(purse.budget)), list(purse.budget.to), purse.run
        data: dict[str, Any] = {"approval": question, "kind": BUDGET, "key": BUDGET, "question": new.question[:2000]}
        data |= {"to": new.recipients, "about": purse.run, "digest": new.digest}
        self._waiting[call] = question  # from here on: it is asked even if the call is cancelled before that is known
        await attempt.pen.durably("approval.asked", None, data, shown, approvals=[new])

    def _leave(self, question: str) -> None:
        """Record that no call of this run waits for an answer any more. Of a run that leaves memory this is not recorded."""
        attempt, known = self._attempt, asyncio.Event()
        if attempt.life.closing:
            return
        self._leaving[question], self._left = known, self._left + 1

        def then(_: Event) -> None:
            del self._leaving[question]
            known.set()

        data = {"approval": question, "key": BUDGET}
        attempt.pen.record("approval.withdrawn", None, data, withdraws=[question], then=then)


def _declared(run: RunRow) -> dict[str, Any]:
    """The whole budget of the agent, which is left before its first step has ended."""
    if run.budget in (None, "{}"):
        return {}
    budget = Budget.of(json.loads(run.budget or "{}"))
    began = run.started_at or run.created_at
    return left([Purse(run.id, run.uid, budget, began, NOTHING)], began)


def inherited(run: RunRow, budget: Budget | None) -> str | None:
    """The budget of a child, as its row has it."""
    if budget is not None:
        return json.dumps(budget.published())
    return None if run.budget is None else "{}"


def _form(budget: Budget) -> dict[str, Any]:
    """The form for an answer: how much more there may be of each thing that is limited."""
    kinds = {"usd": "number", "wall": "number"}
    fields = {
        name: {"type": kinds.get(name, "integer"), "minimum": 0, "maximum": MOST[name]} for name in budget.limits()
    }
    return {"type": "object", "title": "More", "properties": fields, "additionalProperties": False}
