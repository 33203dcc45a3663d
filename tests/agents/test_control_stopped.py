"""Between a request to stop and the moment when the agent is told nothing that it asks for begins."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
import holdfast.testing

done: list[str] = []


@holdfast.step
async def pay(amount: int) -> int:
    done.append(f"paid {amount}")
    return amount


@holdfast.step
async def tidy() -> None:
    done.append("tidied")


@holdfast.agent
async def asks(amount: int) -> int:
    try:
        if await holdfast.approve("Pay?", show=amount):
            return await pay(amount)
        return 0
    except asyncio.CancelledError:
        await tidy()
        raise


@holdfast.agent
async def hears() -> str:
    word = await holdfast.receive("word", str)
    await pay(1)
    return word


@holdfast.agent
async def waits_for_one() -> int:
    return await asks(5)


@holdfast.agent
async def insists() -> int:
    """Its payment is not withdrawn when it is told, so it begins then."""
    word = asyncio.ensure_future(holdfast.receive("word", str))
    await word
    paying = asyncio.create_task(pay(3), name="paying")
    while True:
        try:
            return await asyncio.shield(paying)
        except asyncio.CancelledError:
            done.append("told")


@pytest.fixture(autouse=True)
def nothing_done():
    done.clear()


async def waiting_without_a_worker(store_url, agent, *args, waits_for):
    async with holdfast.open(store_url, agents=[asks, hears, waits_for_one, insists]) as hf:
        run = await hf.start(agent, *args, id="r")
        question = None if waits_for != "person" else await run.wait_for_question(timeout=20)
        await hf.get(question.run if question else "r").wait("waiting", waits_for=waits_for, timeout=20)
        return question


async def ended(store_url):
    async with holdfast.open(store_url, agents=[asks, hears, waits_for_one, insists]) as hf:
        run = hf.get("r")
        with pytest.raises(holdfast.RunCancelled):
            await run.result(timeout=20)
        return [event.kind async for event in run.events(follow=False)]


@pytest.mark.parametrize("agent", [asks, waits_for_one], ids=["its own", "of a run below"])
async def test_a_decision_behind_a_cancel_is_refused(store_url, agent):
    question = await waiting_without_a_worker(store_url, agent, *([7] if agent is asks else []), waits_for="person")
    async with holdfast.open(store_url) as hf:
        await hf.get("r").cancel(by="ben")
        with pytest.raises(holdfast.RunFinished, match="run 'r' was cancelled"):
            await hf.approve(question.id, by="ana", digest=question.digest)
    kinds = await ended(store_url)
    assert done == ["tidied"] and "approval.decided" not in kinds


async def test_a_question_that_is_asked_to_tidy_up_is_decided(store_url):
    @holdfast.agent
    async def asks_at_the_end() -> bool:
        try:
            await holdfast.receive("never", str)
        except asyncio.CancelledError:
            done.append(str(bool(await holdfast.approve("Give it back?"))))
            raise
        return True

    async with holdfast.open(store_url, agents=[asks_at_the_end]) as hf:
        run = await hf.start(asks_at_the_end)
        await run.wait("waiting", waits_for="message", timeout=20)
        await run.cancel(by="ben", grace="1h")
        question = await run.wait_for_question(timeout=20)
        await hf.approve(question.id, by="ana", digest=question.digest)
        with pytest.raises(holdfast.RunCancelled):
            await run.result(timeout=20)
    assert done == ["True"]


async def test_a_message_behind_a_cancel_has_no_effect(store_url):
    await waiting_without_a_worker(store_url, hears, waits_for="message")
    async with holdfast.open(store_url) as hf:
        await hf.get("r").cancel(by="ben")
        await hf.get("r").send("word", "go")
    kinds = await ended(store_url)
    assert done == [] and "step.completed" not in kinds


async def test_a_cancel_behind_a_message_lets_it_be_heard_first(store_url):
    await waiting_without_a_worker(store_url, hears, waits_for="message")
    async with holdfast.open(store_url) as hf:
        await hf.get("r").send("word", "go")
        await hf.get("r").cancel(by="ben")
    kinds = await ended(store_url)
    assert kinds.index("message.received") < kinds.index("run.cancelling")


async def test_what_the_agent_still_waits_for_begins_when_it_was_told(store_url):
    await waiting_without_a_worker(store_url, insists, waits_for="message")
    async with holdfast.open(store_url) as hf:
        await hf.get("r").cancel(by="ben")
        await hf.get("r").send("word", "go")
    async with holdfast.open(store_url, agents=[insists]) as hf:
        assert await hf.get("r").result(timeout=20) == 3
    assert done == ["told", "paid 3"]


@pytest.mark.slow
async def test_nothing_is_paid_behind_a_cancel_that_was_acknowledged(store_url):
    """With a live worker, whenever the answer comes: it is refused, or it reaches the agent's code and nothing begins."""
    refused = 0
    async with holdfast.open(store_url, agents=[asks]) as hf:
        runs = [await hf.start(asks, n, id=f"r-{n}") for n in range(40)]
        for n, run in enumerate(runs):
            question = await run.wait_for_question(timeout=20)
            await run.cancel(by="ben")
            await asyncio.sleep(n / 10_000)
            try:
                await hf.approve(question.id, by="ana", digest=question.digest)
            except holdfast.RunFinished:
                refused += 1
        for run in runs:
            with pytest.raises(holdfast.RunCancelled):
                await run.result(timeout=20)
    assert done == ["tidied"] * 40 and refused > 0
