"""Budgets across processes: three runs deep, six thinkers, two workers of which one is killed, and one question for all."""

import json

import pytest
from tests.processes.office_agents import firm

import holdfast

THINKERS, THOUGHTS = 6, 4  # more thoughts than there is money for, so that each of them meets the limit


async def all_asked(hf):
    """Until each thinker has found the budget spent."""
    count = 0
    async for event in hf.events(kinds="approval.asked"):
        assert event.data["about"] == "r"
        count += 1
        if count == THINKERS:
            return


@pytest.mark.by_day("postgres")
def test_a_budget_is_one_for_all_processes(office):
    """Spent beyond it is at most what was in flight; the totals are exact although one was killed; a person is asked once."""
    total, other = THINKERS * THOUGHTS, office.another()
    office.start_worker()
    other.start_worker()
    try:
        office.ask(lambda hf: hf.start(firm, THOUGHTS, id="r"))
        office.until(lambda: len(office.bodies()) >= 2)
        office.kill_worker()
        office.ask(all_asked)
        spent = office.ask(lambda hf: hf.get("r").info()).spent
        assert 3 <= spent.usd < 3 + THINKERS
        (question,) = office.ask(lambda hf: hf.approvals())
        assert (question.run, question.shown) == ("r", {"usd": 3.0})
        assert " of $3.00 (think " in question.question

        assert "Approved" in office.say("approve", "r", "--by", "ana", "--data", '{"usd": 100}')
        assert office.ask(lambda hf: hf.get("r", firm).result()) == total
        exact = holdfast.Spent(total, 10 * total, model_calls=total, steps=total)
        assert office.ask(lambda hf: hf.get("r").info()).spent == exact
        assert len(office.effects()) == total
        assert office.ask(lambda hf: hf.approvals()) == []
    finally:
        other.close()

    (listed,) = [run for run in json.loads(office.say("runs", "--json"))["runs"] if run["id"] == "r"]
    assert (listed["spent"]["usd"], listed["budget"]["usd"]) == (24.0, 103.0)  # with what ana gave
    shown = office.say("show", "r")
    assert "$24.00, 240 tokens" in shown
    assert shown.count("$1.00, 10 tokens") == total
