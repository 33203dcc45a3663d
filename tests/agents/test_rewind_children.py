"""`run.retry()` of a run that failed with its child: the whole branch goes on, down to the step that failed."""

from __future__ import annotations

import asyncio

import pytest
from tests.agents.broken_steps import BROKEN, KEYS, act, bodies, fails, forget, mended
from tests.agents.runs import history

import holdfast
import holdfast.testing


@pytest.fixture(autouse=True)
def fresh():
    forget()


@holdfast.agent
async def child(what: str) -> str:
    before = await act(f"{what} before")
    return f"{before}, {await act(what)}"


@holdfast.agent
async def middle(what: str) -> str:
    return await child(what)


@holdfast.agent
async def parent(spawned: bool) -> str:
    await act("parent")
    if spawned:
        handle = await holdfast.spawn(middle, "c")
        return await handle
    return await middle("c")


@pytest.mark.parametrize("spawned", [False, True])
async def test_a_failed_child_is_retried_with_its_parent(spawned):
    """Down to the step that failed, in the same children; a child that is quicker than its parent is not missed."""
    BROKEN.add("c")

    async with holdfast.testing.open(agents=[parent, middle, child]) as hf:
        run = await hf.start(parent, spawned, id="r")
        assert (await fails(run)).type == "RunFailed"
        before = sorted(info.id for info in await hf.runs())
        assert await mended(run, "c") == "c before done, c done"
        assert sorted(info.id for info in await hf.runs()) == before
        assert (bodies("parent"), bodies("c before"), bodies("c")) == (1, 1, 2)
        assert {info.status for info in await hf.runs()} == {"completed"}


async def test_a_child_that_was_mended_before_its_parent_is_found():
    """The child was retried alone and is done; then the parent is retried and takes its result."""
    BROKEN.add("c")

    async with holdfast.testing.open(agents=[parent, middle, child]) as hf:
        run = await hf.start(parent, False, id="r")
        await fails(run)
        (lowest,) = await hf.runs(agent=child)
        assert await mended(hf.get(lowest.id), "c") == "c before done, c done"
        await run.retry()
        assert await run.result() == "c before done, c done"
        assert bodies("c") == 2


@pytest.mark.slow
async def test_a_crash_anywhere_in_a_retry_is_harmless():
    """Wherever it comes: the result is right, and no recorded step ran twice."""
    async for hf in holdfast.testing.crash_everywhere(agents=[middle, child]):
        KEYS.clear()
        BROKEN.add("c")
        run = await hf.start(middle, "c", id="r")
        await fails(run)
        assert await mended(run, "c") == "c before done, c done"
        (inner,) = await hf.runs(parent="r")
        recorded = [event.key for event in await history(hf, inner.id) if event.kind == "step.completed"]
        assert recorded == ["act#0", "act#1"]


@holdfast.agent
async def forgiving(what: str) -> str:
    try:
        return await child(what)
    except holdfast.RunFailed:
        return "without it"


async def test_failed_runs_are_retried_by_agent_and_labels():
    """Those that fit and no others; the child of one that dealt with its failure is left alone unless its agent is named."""
    BROKEN.update("abc")

    async with holdfast.testing.open(agents=[parent, middle, child, forgiving]) as hf:
        runs = [
            await hf.start(parent, False, id="p", labels={"team": "x"}),
            await hf.start(child, "a", id="a", labels={"team": "x"}),
            await hf.start(child, "b", id="b", labels={"team": "y"}),
        ]
        for run in runs:
            await fails(run)
        assert await hf.run(forgiving, "a", id="f", labels={"team": "x"}) == "without it"
        with pytest.raises(holdfast.BadArguments, match="say which runs"):
            await hf.retry()
        BROKEN.clear()
        assert await hf.retry(labels={"team": "x"}, by="ana") == ["a", "p"]
        assert [await run.result() for run in runs[:2]] == ["c before done, c done", "a before done, a done"]
        forgiven, other = [info.id for info in await hf.runs(status="failed")]
        assert (forgiven.partition(".")[0], other) == ("f", "b")
        assert [deed.by for deed in await hf.audit(run="a") if deed.action == "retry"] == ["ana"]
        assert await hf.retry(agent=child, labels={"team": "y"}) == ["b"]
        assert await hf.retry(status="failed") == []
        assert await hf.retry(agent="child") == [forgiven]
        assert await hf.get(forgiven).result() == "a before done, a done"


@holdfast.agent
async def fan(names: list[str], handled: bool) -> list[str]:
    """All at once; the first failure brings it down, and the others may have failed as well by then, or fail later."""
    if handled:
        try:
            await child("handled")
        except holdfast.RunFailed:
            await act("instead")
    return list(await asyncio.gather(*[child(name) for name in names]))


@pytest.mark.parametrize("handled", [False, True])
async def test_one_retry_mends_all_failed_children_of_a_fan_out(handled):
    """Not one for each call of retry. What the agent had dealt with before stays as it was."""
    BROKEN.update(["a", "b", "c", "handled"])

    async with holdfast.testing.open(agents=[fan, child]) as hf:
        run = await hf.start(fan, ["a", "b", "c", "well"], handled, id="r")
        await fails(run)

        async def all_ended():
            return not await hf.runs(status=["ready", "running", "waiting"])

        async with asyncio.timeout(20):
            while not await all_ended():
                await asyncio.sleep(0.005)
        BROKEN.clear()
        await run.retry()
        assert await run.result(timeout=20) == [f"{name} before done, {name} done" for name in ("a", "b", "c", "well")]
        assert [bodies(name) for name in ("a", "b", "c", "well", "a before")] == [2, 2, 2, 1, 1]
        assert bodies("handled") == (1 if handled else 0)


async def test_a_retry_says_which_budget_it_brought():
    """In the history and in the audit."""
    BROKEN.add("a")

    async with holdfast.testing.open(agents=[fan, child]) as hf:
        run = await hf.start(fan, ["a"], False, id="r")
        await fails(run)
        BROKEN.clear()
        await run.retry(by="ana", budget=holdfast.Budget(usd=5))
        await run.result(timeout=20)
        (retried,) = [event for event in await history(hf, "r") if event.kind == "run.retried"]
        assert retried.data["budget"] == holdfast.Budget(usd=5).published()
        (deed,) = [deed for deed in await hf.audit(run="r") if (deed.run, deed.action) == ("r", "retry")]
        assert deed.data["budget"] == holdfast.Budget(usd=5).published()
