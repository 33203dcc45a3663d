"""A thousand decisions at once, from eight processes."""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from tests.commands import ROOT
from tests.processes.office_agents import onboard

import holdfast

PROCESSES, DECISIONS = 8, 125

DECIDER = """
import asyncio, json, sys, holdfast
url, question, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

async def decide(hf, number):
    by = holdfast.Actor(f"person-{number}", groups=["it"])
    try:
        act = hf.deny if number % 2 else hf.approve
        decided = await act(question, by=by)
        return ["won", decided.decided_by]
    except holdfast.AlreadyDecided as error:
        return ["AlreadyDecided", str(error)]

async def main():
    async with holdfast.open(url) as hf:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        answers = await asyncio.gather(*[decide(hf, number) for number in range(first, first + count)])
        print(json.dumps(answers))

asyncio.run(main())
"""


@pytest.mark.by_day("postgres")
def test_one_wins(office):
    """Of 1,000 racing decisions one wins and 999 are told who it was; the audit has it once, and the agent sees it."""
    office.start_worker()
    office.ask(lambda hf: hf.start(onboard, id="r"))

    async def asked(hf):
        while not (found := await hf.approvals()):
            await hf.get("r").wait("waiting")
        return found[0].id

    question = office.ask(asked)
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    deciders = [
        subprocess.Popen(
            [sys.executable, "-c", DECIDER, office.url, question, str(number * DECISIONS), str(DECISIONS)],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(PROCESSES)
    ]  # fmt: skip
    try:
        for decider in deciders:
            assert decider.stdout.readline() == "ready\n"
        for decider in deciders:
            decider.stdin.write("go\n")
            decider.stdin.flush()
        answers = [answer for decider in deciders for answer in json.loads(decider.communicate(timeout=50)[0])]
    finally:
        for decider in deciders:
            decider.kill()
            decider.wait()
    assert Counter(kind for kind, _ in answers) == {"won": 1, "AlreadyDecided": PROCESSES * DECISIONS - 1}
    (winner,) = [by for kind, by in answers if kind == "won"]
    assert all(f"by {winner!r} on " in told for kind, told in answers if kind != "won")
    result = office.ask(lambda hf: hf.get("r", onboard).result())
    approved = int(winner.rpartition("-")[2]) % 2 == 0
    assert result == (f"dev by {winner}" if approved else f"denied by {winner}: ")
    deeds = office.ask(lambda hf: hf.audit(action=["approve", "deny"]))
    assert [(deed.by, deed.action) for deed in deeds] == [(winner, "approve" if approved else "deny")]


async def test_of_a_decision_and_an_expiry_one_is_first(office):
    """A hundred questions that expire while they are decided: what each person was told is what the agent saw."""
    many = 100

    @holdfast.agent(name="hasty")
    async def hasty() -> str:
        decision = await holdfast.approve("Quick?", expires=0.4)
        return "expired" if decision.expired else "approved"

    async with holdfast.open(office.url, agents=[hasty]) as hf:

        async def decide(run):
            async for _ in run.events():
                break  # it is asked now
            found = await hf.approvals(run=run.id, open=False)
            await asyncio.sleep(0.3)  # to be near the end of its time
            try:
                await hf.approve(found[0], by="ana")
            except holdfast.Expired:
                return "expired"
            return "approved"

        runs = await asyncio.gather(*[hf.start(hasty, id=f"h{number}") for number in range(many)])
        told = await asyncio.gather(*map(decide, runs))
        seen = await asyncio.gather(*[run.result() for run in runs])
        assert list(told) == list(seen)
        counts = Counter(told)
    assert sum(counts.values()) == many
