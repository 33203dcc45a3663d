"""Steered from other processes: messages and their receipts, what it says of its progress, many runs at once, the audit."""

import asyncio
import json

import pytest
from tests.processes.office_agents import report


def start(office, **labels):
    """Runs by id with their team, that wait for their first message; and the worker that brought them there."""
    office.start_worker()

    async def main(hf):
        runs = [await hf.start(report, ["one", "two"], id=run, labels={"team": labels[run]}) for run in labels]
        await asyncio.gather(*[run.wait("waiting") for run in runs])

    office.ask(main)


def send(run, topic, text=None, key=None):
    """Send it, and say where in the inbox it is and at which event it was seen."""

    async def main(hf):
        receipt = await hf.get(run).send(topic, text, key=key)
        while (at := await receipt.seen_at()) is None:
            await asyncio.sleep(0.01)  # of which nobody is told
        return receipt.position, at

    return main


def test_a_message_is_taken_once_and_its_receipt_says_when(office):
    """However often and from wherever it is sent, before and after it is seen: one message, one receipt."""
    start(office, r="x")

    async def ten_times(hf):
        receipts = await asyncio.gather(*[hf.get("r").send("text", "a", key="first") for _ in range(10)])
        return {receipt.position for receipt in receipts}, await receipts[0].seen_at()

    assert office.meanwhile(ten_times) == ({1}, None)
    first = office.ask(send("r", "text", "a", "first"))
    office.kill_worker()
    assert "number 1 in its inbox" in office.say("send", "r", "text", "a", "--key", "first")
    told = json.loads(office.say("send", "r", "text", "a", "--key", "first", "--json"))
    assert (told["position"], told["seen_at"]) == first
    assert office.meanwhile(send("r", "text", "a", "first")) == first
    second = office.ask(send("r", "text", "b", "second"))
    assert office.meanwhile(send("r", "text", "b", "second")) == second
    third = office.ask(send("r", "printed"))
    assert office.ask(lambda hf: hf.get("r", report).result()) == ["A", "B"]

    async def taken(hf):
        return [event.seq async for event in hf.get("r").events(follow=False) if event.kind == "message.received"]

    assert [first, second, third] == list(enumerate(office.ask(taken), 1))
    assert office.effects() == ["r a", "r b"]


@pytest.mark.by_day("sqlite")
def test_progress_is_seen_elsewhere(office):
    """What a run says of its plan is in lists, in its picture and in the feed of other processes, whoever carries it."""
    start(office, r="x")
    said, position = [], 0

    def wait_for(count):
        """What it says next; the feed is read on from where the last process that read it stopped."""

        async def main(hf):
            nonlocal position
            async for event in hf.events(kinds=("plan", "progress"), after=position):
                position = event.position
                said.append(event.data.get("text") or [name for name, done in event.data["items"] if not done])
                if len(said) == count:
                    break
            return await hf.get("r").info()

        return str(office.ask(main).progress)

    assert wait_for(1) == "0 of 2, one"
    office.kill_worker()
    assert "0 of 2, one" in office.say("runs")
    office.start_worker()
    office.ask(send("r", "text", "a"))
    assert wait_for(2) == "1 of 2, two"
    office.kill_worker()
    assert "1 of 2, two" in office.say("show", "r")
    office.start_worker()
    office.ask(send("r", "text", "b"))
    assert wait_for(4) == "1 of 4, printing"
    office.kill_worker()
    (shown,) = json.loads(office.say("runs", "--json"))["runs"]
    assert shown["progress"] == {"done": 1, "total": 4, "text": "printing"}
    assert said == [["one", "two"], ["two"], [], "printing"]


@pytest.mark.by_day("sqlite")
def test_many_are_paused_resumed_and_cancelled(office):
    """By labels and by agent, from several processes; each request has its line in the audit, which all of them read."""
    start(office, a="x", b="x", c="y")

    def states():
        return {info.id: info.status for info in office.ask(lambda hf: hf.runs())}

    assert sorted(office.meanwhile(lambda hf: hf.pause(labels={"team": "x"}, by="ana", reason="lunch"))) == ["a", "b"]
    assert office.ask(send("c", "text", "1"))
    office.ask(lambda hf: hf.get("a").send("text", "1"))
    office.until(office.bodies)
    office.kill_worker()
    assert (states()["a"], states()["b"], office.effects()) == ("paused", "paused", ["c 1"])
    office.say("resume", "--agent", "report", "--by", "ben")
    assert (states()["a"], states()["b"]) == ("ready", "ready")
    office.start_worker()
    office.until(lambda: office.effects() == ["c 1", "a 1"])
    office.kill_worker()
    office.say("cancel", "--label", "team=x", "--by", "cy", "--reason", "enough", "--grace", "1h")
    assert office.meanwhile(lambda hf: hf.cancel(labels={"team": "y"}, by="dan", grace="1h")) == ["c"]

    async def ends(hf):
        return {(await hf.get(run).wait()).status for run in "abc"}

    assert office.ask(ends) == {"cancelled"}
    office.kill_worker()

    def told(*words):
        deeds = json.loads(office.say(*words, "--json"))["audit"]
        deeds = [deed for deed in deeds if deed["action"] not in ("start", "send")]
        return [(deed["by"], deed["action"], deed["run"], deed["data"].get("reason", "")) for deed in deeds]

    of_a = [("ana", "pause", "a", "lunch"), ("ben", "resume", "a", ""), ("cy", "cancel", "a", "enough")]
    assert told("show", "a", "--audit") == of_a
    of_b = [(by, action, "b", reason) for by, action, _, reason in of_a]
    assert sorted(told("audit")) == sorted([*of_a, *of_b, ("dan", "cancel", "c", "")])
    assert office.effects() == ["c 1", "a 1"]
