"""Runs below runs across processes: a question of a child's child, and a cancel from the top."""

import pytest
from tests.processes.office_agents import chain, hire


async def asked(hf, count):
    """All open questions, once there are so many."""
    async for _ in hf.events(kinds="approval.asked"):
        count -= 1
        if not count:
            return await hf.approvals()
    raise AssertionError


@pytest.mark.by_day("sqlite")
def test_a_question_of_a_childs_child_is_decided_by_the_root(office):
    """It is listed once, with the way to it; the decision makes exactly the run that waits for it due."""
    office.start_worker()

    async def start(hf):
        for run in ("r", "s"):
            await hf.start(hire, id=run)
        found = await asked(hf, 2)
        for each in await hf.runs():
            await hf.get(each.id).wait("waiting")
        return found

    found = {each.root: each for each in office.ask(start)}
    assert {each.path for each in found.values()} == {("hire", "onboard", "privileges")}
    office.kill_worker()
    (mine,) = office.ask(lambda hf: hf.approvals(run="r"))
    assert (sorted(found), mine) == (["r", "s"], found["r"])

    async def due(hf):
        return [
            row.id for row in await hf.store.runs() if row.due_at is not None and row.due_at <= hf.store.clock.now()
        ]

    assert office.ask(due) == []
    assert "hire > onboard > privileges" in office.say("approvals")
    office.say("approve", "r", "--by", "ana")
    assert office.ask(due) == [mine.run]
    office.start_worker()
    assert office.ask(lambda hf: hf.get("r", hire).result()) == "dev by ana"
    office.meanwhile(lambda hf: hf.deny("s", by="ana", note="no"))
    assert office.ask(lambda hf: hf.get("s", hire).result()) == "denied by ana: no"
    assert office.effects() == ["r dev"]
    (deed, start) = office.ask(lambda hf: hf.audit(run="r"))
    assert (deed.run, deed.action, deed.by) == (mine.run, "approve", "ana")
    assert (start.run, start.action) == ("r", "start")


@pytest.mark.by_day("sqlite")
def test_a_cancel_ends_the_lowest_first(office):
    """Three runs below each other, each killed while it tidies up: none begins with that before the one below has ended."""
    office.start_worker()

    async def start(hf):
        await hf.start(chain, 2, id="r")
        await asked(hf, 1)

    office.ask(start)
    office.meanwhile(lambda hf: hf.get("r").cancel(by="ana", reason="enough", grace="1h"))
    for depth in range(3):
        office.until(lambda depth=depth: f"r tidy {depth}" in office.bodies())
        office.restart_worker()
        office.allow(f"tidy {depth}")
    assert office.ask(lambda hf: hf.get("r").wait()).reason == "cancelled by ana: enough"

    async def ends(hf):
        ended = []
        async for event in hf.events(kinds="run.cancelled"):
            ended.append(event.run)
            if event.run == "r":
                break
        return ended

    ended = office.ask(ends)
    assert len(ended) == 3
    assert ended == sorted(ended, key=len, reverse=True)  # an id begins with that of the run above
    assert office.effects() == ["r tidy 0", "r tidy 1", "r tidy 2"]
    assert [each.status for each in office.ask(lambda hf: hf.approvals(open=False))] == ["withdrawn"]
