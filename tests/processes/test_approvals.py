"""Decisions across processes: the one that carries the run is killed between each two actions, and each variant ends right."""

import asyncio

import pytest
from tests.processes.office_agents import onboard

import holdfast

ANA, BOB = "ana", holdfast.Actor("bob", groups=["it"])


async def question(hf):
    """The question, wherever it comes from."""
    async for _ in hf.events(kinds="approval"):
        return (await hf.approvals(open=False))[0]
    raise AssertionError


async def counted(hf):
    """The same once the worker has said how many must agree to what was made of it."""
    while (found := await question(hf)).needs is None:
        await asyncio.sleep(0.02)  # of which nobody is told
    return found


async def approved(hf):
    await hf.approve("r", by=ANA)


async def denied(hf):
    await hf.deny("r", by=BOB, note="too early")


async def edited(hf):
    await hf.approve(await question(hf), by=ANA, data={"groups": ["ops"]})


async def edited_to_admin(hf):
    await hf.approve(await question(hf), by=ANA, data={"groups": ["admin"]})


async def second_vote(hf):
    await hf.approve(await counted(hf), by=BOB)


async def delegated(hf):
    await hf.delegate("r", to="eve", by=ANA, note="on leave")


async def approved_by_delegate(hf):
    await hf.approve("r", by="eve")


VARIANTS = {
    "approved": ([approved], "dev by ana", ["r dev"]),
    "denied": ([denied], "denied by bob: too early", []),
    "edited": ([edited], "ops by ana", ["r ops"]),
    "two for admins": ([edited_to_admin, second_vote], "admin by ana, bob", ["r admin"]),
    "delegated": ([delegated, approved_by_delegate], "dev by eve", ["r dev"]),
    "expired": ([], "expired", []),
}


@pytest.mark.by_day("sqlite-*", "*-approved")
@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_between_each_two_actions(office, variant):
    """Whoever decides is told what the agent sees, and the effect happens once or never, as decided."""
    actions, told, effects = VARIANTS[variant]
    office.start_worker()
    office.ask(lambda hf: hf.start(onboard, 0.5 if variant == "expired" else 3600.0, id="r"))
    assert office.ask(question).path == ("onboard", "privileges")
    office.restart_worker()
    for action in actions:
        office.ask(action)
        office.restart_worker()
    assert office.ask(lambda hf: hf.get("r", onboard).result()) == told
    assert office.effects() == effects
    (found,) = office.ask(lambda hf: hf.approvals(open=False))
    assert found.status == ("expired" if variant == "expired" else "decided")


def test_nobody_carries_a_run_that_waits(office):
    """With no worker at all the question can be decided; the next worker goes on with it."""
    office.start_worker()
    office.ask(lambda hf: hf.start(onboard, id="r"))
    office.ask(parked)
    office.kill_worker()
    office.ask(approved)
    with pytest.raises(holdfast.AlreadyDecided, match="approved by 'ana'"):
        office.ask(denied)
    office.start_worker()
    assert office.ask(lambda hf: hf.get("r", onboard).result()) == "dev by ana"


async def parked(hf):
    found = await question(hf)
    await hf.get(found.run).wait("waiting")
    await hf.get("r").wait("waiting")
