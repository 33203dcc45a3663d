"""In doubt: a body ran and nobody knows whether it had its effect. The step's policy decides before any further attempt.

`resolve` returns what happened, or that the body must run (again). A probe is tried again like a step; a person's answer may
come days later, in another process.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from holdfast.declare import NotDone
from holdfast.engine.approvals import answered, approval_id
from holdfast.engine.attempts import RUN_IT, Ended
from holdfast.errors import InDoubt, StepTimeout
from holdfast.runtime import Placed
from holdfast.store.approvals import NewApproval
from holdfast.values.codec import UNTYPED
from holdfast.values.tagged import read_noting
from holdfast.words.people import writable

if TYPE_CHECKING:
    from holdfast.engine.steps import StepCall


async def resolve(call: StepCall, error: Exception, *, crashed: bool) -> Ended:
    """The policy, before any further attempt: what happened, or that it must run (again)."""
    policy = call.spec.in_doubt
    if policy == "probe":
        found = await _probe(call)
        if found is not None:
            return found
        return RUN_IT if crashed else Ended(error=error)
    if policy == "ask":
        return await _ask(call, error)
    if policy == "fail":
        timed_out = isinstance(error, StepTimeout)  # which says by itself that the effect is not known
        unknown = error if timed_out else InDoubt(f"whether the effect happened is not known: {error}")
        return Ended(error=unknown, final=True)
    return RUN_IT


async def _probe(call: StepCall) -> Ended | None:
    """Look whether the effect happened; None when it did not. A probe that fails is tried again like a step."""
    execution, spec, past = call.execution, call.spec, call.so_far
    assert spec.probe is not None
    args = call.bound.args if call.target is None else (call.target, *call.bound.args)
    while True:
        await call.until_due()
        await execution.permission()
        execution.bodies += 1
        try:
            with Placed(call.context()):
                value = await spec.probe(*args, **call.bound.kwargs)
            return None if isinstance(value, NotDone) else Ended(value)
        except Exception as error:
            past.probes += 1
            problem, wait_s = error, spec.retry.delay_s(past.probes, error, f"{call.key}:probe")
            if wait_s is None:
                unknown = InDoubt(f"the probe failed, so what happened is not known: {error!r}")
                unknown.__cause__ = error
                return Ended(error=unknown, final=True)
        finally:
            execution.body_ended()
        await call.put_off(wait_s, problem, probes=past.probes)


async def _ask(call: StepCall, error: Exception) -> Ended:
    """Ask a person; the answer may come days later, in another process."""
    execution, past = call.execution, call.so_far
    question = past.question or approval_id(execution, call.key)
    if past.question is None:
        text = (
            f"Did {call.name}({call.preview}) happen? Its outcome is not known: {error}. "
            f"Its idempotency key is {call.idempotency_key()}. "
            'Answer {"result": ...} if it happened, "run" if it did not and should run, "fail" to fail the step.'
        )
        past.question = question
        await _put_question(call, question, text)
    decided = await answered(call, question)
    past.question = None
    answer, notes = read_noting(execution.text_of(decided))
    if answer == "run":
        return RUN_IT
    if answer == "fail":
        by = decided.data.get("by")
        unknown = InDoubt(f"whether the effect happened is not known; {by} decided to fail the step")
        return Ended(error=unknown, final=True)
    return Ended(call.spec.signature.returns.revive(answer["result"], notes=notes))


async def _put_question(call: StepCall, question: str, text: str) -> None:
    shown = UNTYPED.store(call.preview)[0]
    approval = NewApproval(question, call.key, "in_doubt", writable(text), shown, call.digest)
    approval.schema = json.dumps(call.spec.signature.returns.schema())
    data = call.facts(kind="in_doubt", approval=question, question=approval.question[:2000], to=[])
    await call.execution.durably("approval.asked", call.key, data, approvals=[approval])
