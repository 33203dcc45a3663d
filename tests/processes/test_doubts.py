"""Steps in doubt across processes: killed in mid-body, told about by a person, the worker killed between each two actions."""

import pytest
from tests.processes.office_agents import shop

import holdfast

RUNS = ("happened", "again", "given up")


async def questions(hf):
    """All of them, once they are asked."""
    asked = 0
    async for _ in hf.events(kinds="approval.asked"):
        asked += 1
        if asked == len(RUNS):
            return await hf.approvals()
    raise AssertionError


@pytest.mark.by_day("sqlite")
def test_killed_in_mid_body_and_told_by_people(office):
    """Nothing runs again unasked: of three payments one had happened, one is made again, one fails, each as it was told."""
    office.start_worker()
    for run in RUNS:
        office.ask(lambda hf, run=run: hf.start(shop, run, id=run.replace(" ", "-")))
    office.until(lambda: len(office.bodies()) == len(RUNS))
    office.restart_worker()
    asked = office.ask(questions)
    assert {(each.root, each.path, each.kind, each.key) for each in asked} == {
        (run.replace(" ", "-"), ("shop", "buy"), "in_doubt", "pay#0") for run in RUNS
    }

    happened = {"result": "paid by hand"}
    told = office.meanwhile(lambda hf: hf.answer("happened", happened, by="ana", note="saw the receipt"))
    assert (told.status, told.decision, told.decided_by) == ("decided", "answered", "ana")
    assert office.ask(lambda hf: hf.get("happened", shop).result()) == "paid by hand"

    office.kill_worker()
    office.allow("again")
    assert "Answered" in office.say("answer", "again", "run", "--by", "ben")
    office.start_worker()
    assert office.ask(lambda hf: hf.get("again", shop).result()) == "paid again"

    office.kill_worker()
    office.say("answer", "given-up", "fail", "--by", "cy")
    with pytest.raises(holdfast.AlreadyDecided, match="answered by 'cy'"):
        office.ask(lambda hf: hf.answer("given-up", "run", by="ana"))
    office.start_worker()
    assert office.ask(lambda hf: hf.get("given-up", shop).result()) == "InDoubt"

    assert sorted(office.bodies()) == ["again again", "again again", "given-up given up", "happened happened"]
    assert len(office.effects()) == len(RUNS)
    assert office.ask(lambda hf: hf.approvals()) == []
    deeds = office.ask(lambda hf: hf.audit(action="answer"))
    assert [deed.by for deed in deeds] == ["cy", "ben", "ana"]
