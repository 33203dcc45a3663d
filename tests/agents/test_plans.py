"""Plans, progress, receipts and the audit: what people see of a run, and of what they did to it."""

from __future__ import annotations

import asyncio

import pytest
from tests.agents.runs import fail, history

import holdfast
import holdfast.testing
from holdfast import BadArguments


@holdfast.agent
async def planner() -> str:
    plan = await holdfast.plan(["read", "write", "send"])
    assert (len(plan), plan.remaining) == (3, ["read", "write", "send"])
    await asyncio.gather(plan.done("read"), plan.done("write"))
    await plan.add("rest", "read")
    await holdfast.sleep("1h")
    await plan.set(["read", "rest"])
    await plan.done("rest")
    return plan.markdown()


@holdfast.agent
async def counter() -> None:
    for number in range(3):
        await holdfast.progress(number, 10, f"page {number}")
    await holdfast.sleep("1h")
    await holdfast.progress(1.5)


@holdfast.agent
async def turns() -> list[str]:
    state = await holdfast.restore({"turn": 0})
    while state["turn"] < 3:
        plan = await holdfast.plan(["0", "1", "2"])
        assert plan.remaining == ["0", "1", "2"][state["turn"] :]
        await plan.done(str(state["turn"]))
        state["turn"] += 1
        await holdfast.sleep("1m")
        state = await holdfast.checkpoint(state)
    return (await holdfast.plan(["0", "1", "2"])).remaining


@holdfast.agent
async def listens() -> list[int]:
    found = [await holdfast.receive("n", int)]
    await holdfast.sleep("1h")
    return [*found, await holdfast.receive("n", int)]


async def test_a_plan_is_shown_and_survives():
    """Changes add up, also in a gather; a crash changes nothing; what is done and stays in the plan stays done."""
    async with holdfast.testing.open(agents=[planner]) as hf:
        run = await hf.start(planner, id="r")
        info = await run.wait("waiting")
        assert (info.progress.done, info.progress.total, info.progress.text) == (2, 4, "send")
        assert str(info.progress) == "2 of 4, send"
        await hf.crash()
        assert await run.result() == "- [x] read\n- [x] rest"
        (listed,) = await hf.runs()
        assert (listed.progress.done, listed.progress.total, listed.progress.text) == (2, 2, "")


async def test_progress_is_the_last_that_was_said():
    """In lists, in info and in events."""
    async with holdfast.testing.open(agents=[counter]) as hf:
        run = await hf.start(counter, id="r")
        assert str((await run.wait("waiting")).progress) == "2 of 10, page 2"
        await run.result()
        assert str((await run.info()).progress) == "1.5"
        said = [event.data["text"] for event in await history(hf, "r") if event.kind == "progress"]
        assert said == ["page 0", "page 1", "page 2", ""]


async def test_a_plan_goes_over_checkpoints():
    """A new era finds what was done before it, live and resumed alike."""
    async with holdfast.testing.open(agents=[turns]) as hf:
        run = await hf.start(turns, id="r")
        await run.wait("waiting")
        await hf.crash()
        assert await run.result() == []


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: holdfast.progress(-1), "a number from 0 on"),
        (lambda: holdfast.progress(1, text=3), "give a text"),
        (lambda: holdfast.plan("read"), "a list of names"),
        (lambda: holdfast.plan(["a", "a"]), "different from each other"),
        (lambda: holdfast.plan([str(n) for n in range(1001)]), "at most 1000"),
    ],
)
def test_what_is_no_plan_is_refused(call, told):
    """With what was found and what to give."""

    @holdfast.agent(name=f"refuses-{len(told)}")
    async def refuses() -> None:
        with pytest.raises(BadArguments, match=told):
            await call()
        plan = await holdfast.plan(["a"])
        await plan.done("b")

    assert "'b' is not in the plan; it has: a" in str(fail(refuses))


async def test_a_receipt_says_when_a_message_was_seen():
    """Accepted at once; seen at the event with which it came into the history; the same key is the same receipt."""
    async with holdfast.testing.open(agents=[listens]) as hf:
        run = await hf.start(listens, id="r", after="1h")
        first = await run.send("n", 1, key="k")
        again = await run.send("n", 1, key="k")
        assert (first.position, again.position) == (1, 1)
        assert await first.seen_at() is None
        await run.wait("waiting")
        seen = await first.seen_at()
        assert (await history(hf, "r"))[seen].data["topic"] == "n"
        second = await run.send("n", 2)
        assert await run.result() == [1, 2]
        assert await second.seen_at() > seen


async def test_the_audit_says_who_did_what_when_and_why():
    """Newest first, of one run or of all; no row is taken out, also when the run is deleted."""
    async with holdfast.testing.open(agents=[listens]) as hf:
        run = await hf.start(listens, id="r")
        await run.wait("waiting")
        await run.pause(by="ana", reason="lunch")
        await run.resume(by="ben")
        await run.cancel(by="cy", reason="enough", grace=0)
        await run.wait()
        deeds = await hf.audit(run="r")
        assert [(deed.by, deed.action) for deed in deeds] == [
            ("cy", "cancel"), ("ben", "resume"), ("ana", "pause"), ("someone", "start"),
        ]  # fmt: skip
        assert deeds[0].data["reason"] == "enough"
        assert deeds[0].at.tzinfo is not None
        await run.delete()
        assert (await hf.audit(run="r"))[1:] == deeds == (await hf.audit())[-4:]
        assert (await hf.audit(run="r"))[0].action == "delete"


@holdfast.agent
async def both() -> None:
    plan = await holdfast.plan(["read", "write"])
    await holdfast.progress(3, 10, "pages")
    await plan.done("read")
    await holdfast.sleep("1h")


async def test_a_plan_and_progress_stand_beside_each_other():
    """Whichever was said last, both are there."""
    async with holdfast.testing.open(agents=[both]) as hf:
        run = await hf.start(both, id="r")
        info = await run.wait("waiting")
        assert str(info.progress) == "3 of 10, pages"
        assert str(info.plan) == "1 of 2, write"
        (listed,) = await hf.runs()
        assert (listed.progress, listed.plan) == (info.progress, info.plan)
        await run.result()


@holdfast.step
async def reads(pages: int) -> int:
    for number in range(pages):
        await holdfast.progress(number + 1, pages, "read")
    return pages


@holdfast.step
def writes(pages: int) -> int:
    for number in range(pages):
        holdfast.progress(number + 1, pages, "written")
    return pages


@holdfast.agent
async def bodies() -> int:
    await holdfast.plan(["all"])
    return await reads(500) + await writes(500)


async def test_a_body_says_how_far_it_has_come():
    """An async body and a plain one; the last word is always there, and of many few are kept; a crash changes nothing."""
    async with holdfast.testing.open(agents=[bodies]) as hf:
        run = await hf.start(bodies, id="r")
        assert await run.result() == 1000
        assert str((await run.info()).progress) == "500 of 500, written"
        assert (await run.info()).plan.total == 1
        said = [event for event in await history(hf, "r") if event.kind == "step.progress"]
        assert {(event.key, event.data["text"]) for event in said} == {("reads#0", "read"), ("writes#0", "written")}
        assert [event.data["done"] for event in said if event.key == "reads#0"][-1] == 500
        assert len(said) < 100


@pytest.mark.slow
async def test_what_a_body_said_is_no_outcome():
    """Wherever a crash comes, the run goes on and ends as if nothing had been said."""
    async for hf in holdfast.testing.crash_everywhere(agents=[bodies]):
        assert await hf.run(bodies, id="r") == 1000


def test_progress_of_a_step_outside_a_run_is_said_to_nobody():
    """It can be tested like any function."""
    assert writes(2) == 2
    assert asyncio.run(reads(2)) == 2
