"""A question with a typed answer across processes, followed by a bot that is started again and again."""

import pytest
from tests.processes.office_agents import order

import holdfast


@pytest.mark.by_day("sqlite")
def test_asked_reminded_and_answered(office):
    """What happens to it is told in order to whoever reads on, and only a fitting answer by the right person counts."""
    told, position = [], 0

    def follow(until):
        """A bot's process: it reads on from where the last one stopped."""

        async def main(hf):
            nonlocal position
            async for event in hf.events(kinds="approval", after=position):
                position = event.position
                told.append(event.kind)
                if event.kind == until:
                    break

        office.ask(main)

    office.start_worker()
    office.ask(lambda hf: hf.start(order, id="r"))
    follow("approval.asked")
    office.restart_worker()
    follow("approval.reminded")
    office.kill_worker()
    with pytest.raises(holdfast.NotAllowed):
        office.ask(lambda hf: hf.answer("r", {"groups": ["dev"]}, by="eve"))
    assert "groups" in office.say("answer", "r", '{"groups": 3}', "--by", "ana", code=2)
    office.say("answer", "r", '{"groups": ["dev", "ops"]}', "--by", "ana")
    office.start_worker()
    follow("approval.decided")
    assert office.ask(lambda hf: hf.get("r", order).result()) == "dev,ops"
    assert told[0] == "approval.asked"
    assert set(told[1:-1]) == {"approval.reminded"}
    assert told[-1] == "approval.decided"
    assert office.effects() == ["r dev,ops"]
    (deed,) = office.ask(lambda hf: hf.audit(action="answer"))
    assert (deed.by, deed.via.partition(":")[0], deed.value) == ("ana", "cli", {"groups": ["dev", "ops"]})
