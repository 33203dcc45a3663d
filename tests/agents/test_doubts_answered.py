"""Answers of people to steps in doubt, and a ledger outside that shows: no effect is ever lost or done twice."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import datetime

import pytest
from tests.agents.runs import history, kinds

import holdfast
import holdfast.testing
from holdfast import NOT_DONE, BadArguments, InDoubt, StepFailed, UnknownApproval


@dataclass
class Receipt:
    number: int
    at: datetime | None = None


LEDGER: list[str] = []
DOUBT: list[bool] = []  # one entry for each body that is to end in doubt; True: after its effect


@holdfast.step(in_doubt="ask", retry=5)
async def pay(amount: int) -> Receipt:
    trouble = DOUBT.pop(0) if DOUBT else None
    if trouble is not False:
        LEDGER.append(holdfast.idempotency_key())
    if trouble is not None:
        raise InDoubt("the line went dead")
    return Receipt(amount)


@holdfast.agent
async def buy(amount: int, twice: bool = False) -> list[object]:
    try:
        paid = await asyncio.gather(*[pay(amount)] * (1 + twice), *([pay(amount + 1)] if twice else []))
    except StepFailed as failure:
        return [failure.type, failure.message, failure.attempts]
    await holdfast.sleep("1h")
    return [receipt.number for receipt in paid]


@pytest.fixture(autouse=True)
def fresh():
    LEDGER.clear()
    DOUBT.clear()


async def asked(hf, *args):
    DOUBT[:] = DOUBT or [False]
    run = await hf.start(buy, *args, id="r")
    await run.wait("waiting")
    return run


async def answered(hf, run, answer):
    """Answer every question of the run as it comes."""
    async for event in run.events():
        if event.kind == "approval.asked":
            await hf.answer(event.data["approval"], answer, by="ana")
            yield event


async def test_it_happened_with_this_result():
    """The result is validated by the step's type and is what the agent gets; the body does not run again."""
    async with holdfast.testing.open(agents=[buy]) as hf:
        run = await asked(hf, 3)
        await hf.answer("r", {"result": {"number": 42}}, by="ana")
        assert await run.result() == [42]
        assert (LEDGER, hf.bodies[pay]) == ([], 1)
        assert (await kinds(hf, "r"))[:4] == ["step.started", "approval.asked", "approval.decided", "step.completed"]


async def test_a_result_may_be_given_as_the_type_itself():
    """A caller with the class at hand need not take it apart."""
    async with holdfast.testing.open(agents=[buy]) as hf:
        run = await asked(hf, 3)
        (question,) = await hf.approvals()
        await hf.answer(question, {"result": Receipt(7)}, by="ana")
        assert await run.result() == [7]


async def test_it_did_not_happen_run_it():
    """The body runs again with the same key, as often as a person says so; attempts are counted."""
    async with holdfast.testing.open(agents=[buy]) as hf:
        DOUBT[:] = [False, False, False]
        run = await asked(hf, 3)
        questions = [event.data["approval"] async for event in answered(hf, run, "run")]
        assert len(set(questions)) == 3
        assert await run.result() == [3]
        assert len(LEDGER) == 1
        attempts = [event.data["attempt"] for event in await history(hf, "r") if event.kind == "step.started"]
        assert attempts == [1, 2, 3, 4]
        assert len(await hf.approvals(open=False)) == 3


async def test_fail_is_final():
    """A person's decision to fail is not retried, whatever `retry=` says; the failure names who decided."""
    async with holdfast.testing.open(agents=[buy]) as hf:
        run = await asked(hf, 3)
        await hf.answer("r", "fail", by="ana")
        assert await run.result() == [
            "InDoubt", "whether the effect happened is not known; ana decided to fail the step", 1,
        ]  # fmt: skip
        assert hf.bodies[pay] == 1


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("maybe", "use {'result': ...} if it happened, 'run' if it did not"),
        (None, "does not answer"),
        (True, "does not answer"),
        ({}, "does not answer"),
        ({"result": 1, "more": 2}, "does not answer"),
        ({"result": {"number": "many"}}, "number"),
        ({"result": {}}, "number"),
        ({"result": None}, "result"),
        ({"result": {"number": 1, "at": "noon"}}, "at"),
        ({"result": object()}, "object cannot be stored"),
    ],
)
async def test_a_wrong_answer_is_refused(answer, says):
    """The person is told what is wrong with it, nothing is written, and the question stays open."""
    async with holdfast.testing.open(agents=[buy]) as hf:
        run = await asked(hf, 3)
        with pytest.raises((BadArguments, holdfast.NotStorable), match=says):
            await hf.answer("r", answer, by="ana")
        (question,) = await run.approvals()
        assert question.status == "open"
        await hf.answer("r", {"result": {"number": 1, "at": "2026-01-02T12:00:00Z"}}, by="ana")
        assert await run.result() == [1]


@pytest.mark.parametrize("by", ["", "  ", None, 7])
async def test_an_answer_has_a_name(by):
    """Who decided is part of the record."""
    async with holdfast.testing.open(agents=[buy]) as hf:
        await asked(hf, 3)
        with pytest.raises(BadArguments, match=r"names nobody|give the name of whoever acts"):
            await hf.answer("r", "run", by=by)


async def test_a_question_must_be_found():
    """An unknown id, a run without an open question and a run with two are told apart from success."""
    async with holdfast.testing.open(agents=[buy]) as hf:
        with pytest.raises(UnknownApproval, match=r"'nobody' is neither .* \(it has 0\)"):
            await hf.answer("nobody", "run", by="ana")
        DOUBT[:] = [False, False]
        run = await asked(hf, 3, True)
        questions = await run.approvals()
        with pytest.raises(UnknownApproval, match=r"exactly one open question \(it has 2: q-"):
            await hf.answer("r", "run", by="ana")
        await hf.answer(questions[0], "run", by="ana")
        await hf.answer("r", {"result": {"number": 9}}, by="ana")  # one is left now
        assert 9 in await run.result()


async def test_questions_of_a_run_that_ended_are_withdrawn():
    """Whoever answers late is told that nobody waits any more."""

    @holdfast.agent
    async def gives_up() -> str:
        try:
            async with holdfast.timeout("1h"):
                await pay(1)
        except TimeoutError:
            return "gave up"
        return "paid"

    async with holdfast.testing.open(agents=[gives_up]) as hf:
        DOUBT[:] = [False]
        run = await hf.start(gives_up, id="r")
        await run.wait("waiting")
        (question,) = await run.approvals()
        assert await run.result() == "gave up"
        with pytest.raises(holdfast.RunFinished, match="was withdrawn"):
            await hf.answer(question, "run", by="ana")
        assert await hf.approvals() == []


@holdfast.agent
async def moves_on() -> str:
    try:
        async with holdfast.timeout("1h"):
            await pay(1)
    except TimeoutError:
        await holdfast.sleep("1 day")
    return "moved on"


@pytest.mark.slow
async def test_a_question_about_a_step_that_nobody_waits_for_is_withdrawn():
    """Before the run goes on, with a crash at every place; nobody is asked to look into what does not matter any more."""
    passes = 0
    async for hf in holdfast.testing.crash_everywhere(agents=[moves_on]):
        DOUBT[:] = [False]
        run = await hf.start(moves_on, id="r")
        assert await run.result() == "moved on"
        assert [each.status for each in await hf.approvals(open=False)] == ["withdrawn"]
        told = await kinds(hf, "r")
        assert told.index("approval.withdrawn") < len(told) - told[::-1].index("timer.fired") - 1
        passes += 1
    assert passes > 8


@pytest.mark.parametrize("answer", [{"result": {"number": 5}}, "run"])
@pytest.mark.parametrize("crashes", ["before", "after", "both"])
async def test_an_answer_survives_crashes(crashes, answer):
    """Given before, between or after crashes, and from another process, it is what the agent sees."""
    async with holdfast.testing.open(agents=[buy]) as hf:
        run = await asked(hf, 5)
        if crashes != "after":
            await hf.crash()
            assert len(await run.approvals()) == 1
        async with holdfast.open(f"sqlite:{hf.path}") as elsewhere:  # without agents: it only decides
            await elsewhere.answer("r", answer, by="ana")
        if crashes != "before":
            await hf.crash()
        # The run may have begun to pay when the crash came: then it asks once more.
        while (await run.wait("waiting", "completed")).waits_for == "person":
            for question in await run.approvals():
                await answer_truthfully(hf, question, {"number": 5})
        assert await run.result() == [5]
        assert len(LEDGER) == (answer == "run")


# A ledger outside, and a crash at every place


@holdfast.step(timeout="1h")
async def effect_retry(n: int) -> int:
    key = holdfast.idempotency_key()
    if key not in LEDGER:  # as a service does that takes idempotency keys
        LEDGER.append(key)
    return n


async def happened(n: int) -> int | holdfast.NotDone:
    return n if holdfast.idempotency_key() in LEDGER else NOT_DONE


@holdfast.step(in_doubt=happened)
async def effect_probe(n: int) -> int:
    LEDGER.append(holdfast.idempotency_key())
    return n


@holdfast.step(in_doubt="ask")
async def effect_ask(n: int) -> int:
    LEDGER.append(holdfast.idempotency_key())
    return n


@holdfast.step(in_doubt="fail")
async def effect_fail(n: int) -> int:
    LEDGER.append(holdfast.idempotency_key())
    return n


EFFECTS = {"retry": effect_retry, "probe": effect_probe, "ask": effect_ask, "fail": effect_fail}


@holdfast.agent
async def acts(policy: str) -> list[int | None]:
    step = EFFECTS[policy]

    async def one(n: int) -> int | None:
        try:
            return await step(n)
        except StepFailed:
            return None

    first = await one(0)
    await holdfast.sleep("1h")
    return [first, *await asyncio.gather(one(1), one(2)), await one(3)]


async def answer_truthfully(hf, question, result):
    """As a person does who looks up the key of the question in the ledger."""
    key = re.search(r"hf_[0-9a-f]{32}", question.question)[0]
    await hf.answer(question, {"result": result} if key in LEDGER else "run", by="ana")


@pytest.mark.slow
@pytest.mark.by_day("ask")
@pytest.mark.parametrize("policy", EFFECTS)
async def test_no_effect_is_lost_or_done_twice(policy):
    """With a crash before and after every commit, each effect is in the ledger once; `fail` never claims one."""
    passes = 0
    async for hf in holdfast.testing.crash_everywhere(agents=[acts]):
        LEDGER.clear()
        run = await hf.start(acts, policy, id="r")
        while (info := await run.wait("waiting", "completed")).status != "completed":
            if info.waits_for != "person":
                await hf.advance("2h")
            for question in await run.approvals():
                await answer_truthfully(hf, question, int(question.shown.removeprefix("n=")))
        result = await run.result()
        assert len(LEDGER) == len(set(LEDGER))
        if policy == "fail":
            assert sum(value is None for value in result) <= 2 * (hf.crashes > 0)
            assert sum(value is not None for value in result) <= len(LEDGER) <= 4
        else:
            assert (result, len(LEDGER)) == ([0, 1, 2, 3], 4)
        passes += 1
    assert passes > 10
