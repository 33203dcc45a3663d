"""Budgets: before a body begins, is there enough left for it?

The budgets that hold for a run are its own and those of the runs above it. They are looked at in the store before each
attempt, by runs that have or are below one that has a budget; no others pay for it. When one is spent, no body begins: the
call ends with `BudgetExceeded`, or a person is asked for more. That question is about the run whose budget it is. There is one
of it, however many calls and runs wait for it: whoever finds the budget spent joins those that wait, and all are told of
the answer. What people give is nowhere but in their answers; a no is the last word.

Overshoot. What a body spends is known when it has ended, and nobody is stopped for it: what is spent beyond a limit is at most
what the bodies spend that run when it is reached, in this run and the others below the same budget. Of steps, the
bodies that this run has begun count as spent.

Crash points. The question, and that this run waits for it, are written with the event that asks. The next life finds both in
the store, and waits, or goes on if it was answered meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from holdfast.engine.approvals import answered
from holdfast.engine.bills import Bill, Ledger
from holdfast.errors import BudgetExceeded
from holdfast.store.approvals import NewApproval
from holdfast.store.budgets import BUDGET
from holdfast.values.codec import UNTYPED, digest
from holdfast.words.budget import MOST, Budget, Purse, left
from holdfast.words.people import writable
from holdfast.words.spent import NOTHING

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution
    from holdfast.engine.steps import StepCall


class Meter:
    """Lets the bodies of one run begin while the budgets that hold for it last."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._turn = asyncio.Lock()
        self._running: set[Bill] = set()  # of bodies that were let in, and whose end is not in the store yet
        self._waiting: Counter[str] = Counter()  # calls, by the question whose answer they wait for
        self._ledger = Ledger()
        self._low: bool | None = None  # is a soft limit known to be passed? None: as the agent knows it
        execution.means = declared(execution)

    async def let_in(self, call: StepCall) -> BudgetExceeded | None:
        """Wait until a body of the call may begin; or why it may not."""
        execution = self._execution
        while True:
            async with self._turn:  # so that one asks, and each knows of those before it
                purses = await execution.store.purses(execution.run.id)
                now, running = execution.clock.now(), len(self._running) - (call.bill in self._running)
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
                    await self._ask(spent, now, running)
                    continue
            await self._answer(call, question.id)

    def landed(self, call: StepCall) -> None:
        """What its body has spent is in the store."""
        self._running.discard(call.bill)

    def _notice(self, purses: list[Purse], now: int) -> None:
        """Have it in the history when a soft limit was passed."""
        was_low = self._execution.means.get("soft", False) if self._low is None else self._low
        means = left(purses, now)
        self._low = means.get("soft", False)
        if self._low and not was_low:
            self._execution.record("budget.low", None, {"left": means})

    async def _ask(self, purse: Purse, now: int, running: int) -> None:
        execution, over = self._execution, purse.over(now, running)
        nth = sum(asked.status != "open" for asked in purse.asked)
        question = f"q-{hashlib.sha256(f'{purse.uid}:{BUDGET}:{nth}'.encode()).hexdigest()[:16]}"
        by = [f"{what} {spent}" for what, spent in await execution.store.spent_by(purse.run, 5)]
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
        await execution.durably("approval.asked", None, data, shown, approvals=[new])

    async def _answer(self, call: StepCall, question: str) -> None:
        execution = self._execution
        self._waiting[question] += 1
        try:
            await answered(call, question)
        except asyncio.CancelledError:
            if self._waiting[question] == 1:  # nobody else here waits for it; if the run leaves, this is not recorded
                data = {"approval": question, "key": BUDGET}
                execution.record("approval.withdrawn", None, data, withdraws=[question])
            raise
        finally:
            self._waiting[question] -= 1


def meter_of(execution: Execution) -> Meter | None:
    """That of a run for which a budget holds."""
    return None if execution.run.budget is None else Meter(execution)


def declared(execution: Execution) -> dict[str, Any]:
    """What the agent knows to be left before its first step has ended: all of its own budget."""
    run = execution.run
    if run.budget in (None, "{}"):
        return {}
    budget = Budget.of(json.loads(run.budget or "{}"))
    began = run.started_at or run.created_at
    return left([Purse(run.id, run.uid, budget, began, NOTHING)], began)


def inherited(execution: Execution, budget: Budget | None) -> str | None:
    """The budget of a child, as its row has it."""
    if budget is not None:
        return json.dumps(budget.published())
    return None if execution.run.budget is None else "{}"


def _form(budget: Budget) -> dict[str, Any]:
    """What may be entered: how much more there may be of each thing that is limited."""
    kinds = {"usd": "number", "wall": "number"}
    fields = {
        name: {"type": kinds.get(name, "integer"), "minimum": 0, "maximum": MOST[name]} for name in budget.limits()
    }
    return {"type": "object", "title": "More", "properties": fields, "additionalProperties": False}
