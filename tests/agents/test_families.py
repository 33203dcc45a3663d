"""A run and all below it: when it was cancelled, nobody is left behind."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.agents.acting import Gate, with_client

import holdfast
import holdfast.testing
from holdfast import RunCancelled, RunFinished

LOG: list[str] = []
GATES: dict[str, Gate] = {}
OPEN = {"ready", "running", "waiting", "paused"}


@pytest.fixture(autouse=True)
def fresh():
    LOG.clear()
    GATES.clear()


@holdfast.step
async def act(what: str) -> str:
    if what in GATES:
        await GATES[what]()
    LOG.append(what)
    return what


@holdfast.step
async def takes(seconds: float) -> None:
    await asyncio.sleep(seconds)


@holdfast.agent
async def sleeper(name: str) -> str:
    """Tidies up with a step."""
    try:
        await holdfast.sleep("1 day")
    except asyncio.CancelledError:
        await act(f"{name} tidies")
        raise
    return name


@holdfast.agent
async def worker(name: str) -> str:
    return await act(name)


async def left(hf):
    """Who has not ended."""
    return {info.id: info.status for info in await hf.runs(limit=1000) if info.status in OPEN}


async def until(holds):
    async with asyncio.timeout(20):
        while not await holds():
            await asyncio.sleep(0.005)


def waiting(hf, count):
    async def holds():
        return len(await hf.runs(status="waiting")) == count

    return holds


def at_least(hf, count):
    async def holds():
        return len(await hf.runs(status="waiting")) >= count

    return holds


@holdfast.agent
async def breeds(seed: int, crowd: int = 6) -> None:
    """Steps that end at any time, each followed by a child: also in the moment in which the agent is told."""
    chance = random.Random(seed)

    async def line(name: str, takes_s: float, spawns: bool) -> None:
        await takes(takes_s)
        if not spawns:
            await sleeper(name)
            return
        await holdfast.spawn(sleeper, name)
        await holdfast.sleep("1 day")

    await asyncio.gather(*[line(str(n), chance.random() * 0.01, bool(chance.randrange(2))) for n in range(crowd)])


@pytest.mark.parametrize("seeds", range(4))
def test_a_child_that_is_started_while_its_parent_is_told_is_not_left_behind(seeds):
    """An outcome that was recorded before the agent was told may start a child after its children were counted."""

    async def one(seed):
        async with holdfast.testing.open(agents=[breeds, sleeper]) as hf:
            run = await hf.start(breeds, seed, id="r")
            await asyncio.sleep(random.Random(f"when {seed}").random() * 0.02)
            await run.cancel(grace="1h")
            await run.wait(timeout=30)
            assert await left(hf) == {}, seed

    for seed in range(seeds * 25, seeds * 25 + 25):
        asyncio.run(one(seed))


@holdfast.agent
async def restarts(how: str) -> None:
    """Starts a child while it tidies up, and does not wait for it."""
    try:
        await holdfast.sleep("1 day")
    finally:
        await act("tidies")
        if how == "spawn":
            await holdfast.spawn(sleeper, "late")
        else:
            waiting = asyncio.ensure_future(sleeper("late"))
            await holdfast.sleep("1m")
            waiting.cancel()


@pytest.mark.parametrize("how", ["spawn", "call"])
def test_what_is_started_while_tidying_up_ends_first(how):
    """A child that the agent leaves behind is told when the agent has ended; the run ends after it."""

    async def main(hf):
        run = await hf.start(restarts, how, id="r")
        await run.wait("waiting")
        await run.cancel(grace="1 day")
        with pytest.raises(RunCancelled):
            await run.result()
        assert await left(hf) == {}
        assert LOG == ["tidies", "late tidies"]

    with_client(main, agents=[restarts, sleeper])


@holdfast.agent
async def swallows() -> str:
    """Goes on as if nothing had been said."""
    try:
        await holdfast.sleep("1 day")
    except asyncio.CancelledError:
        await holdfast.spawn(sleeper, "late")
    return "done"


def test_an_agent_that_swallows_the_cancellation_leaves_nobody_behind_either():
    """It has completed, and what it started is told and ends before it."""

    async def main(hf):
        run = await hf.start(swallows, id="r")
        await run.wait("waiting")
        await run.cancel(grace="1 day")
        assert await run.result() == "done"
        assert await left(hf) == {}
        assert LOG == ["late tidies"]

    with_client(main, agents=[swallows, sleeper])


@holdfast.agent
async def leaves_one(name: str) -> str:
    """Ends before its child does."""
    await holdfast.spawn(sleeper, name)
    return name


@holdfast.agent
async def grandparent() -> None:
    await leaves_one("left")
    await leaves_one("right")
    await holdfast.sleep("1 day")


def test_children_of_children_that_have_ended_are_told():
    """A child that has completed tells nobody any more: the run above it does, and waits for their ends."""

    async def main(hf):
        run = await hf.start(grandparent, id="r")
        await until(waiting(hf, 3))
        await run.cancel(grace="1 day")
        await run.wait()
        assert await left(hf) == {}
        assert sorted(LOG) == ["left tidies", "right tidies"]

    with_client(main, agents=[grandparent, leaves_one, sleeper])


@holdfast.agent
async def above_a_body() -> None:
    await worker("slow")


@pytest.mark.parametrize("how", ["no grace", "second"])
def test_who_is_ended_without_its_code_ends_together_with_all_below_it(how):
    """A child whose body runs is over in the very moment in which its parent is: nobody sees one without the other."""

    async def main(hf):
        gate = GATES["slow"] = Gate()
        run = await hf.start(above_a_body, id="r")
        await gate.reached.wait()
        await until(waiting(hf, 1))
        await run.cancel(grace=0 if how == "no grace" else "1 day")
        if how == "second":
            await run.cancel()
        await run.wait(timeout=20)
        assert await left(hf) == {}
        (child,) = await hf.runs(parent="r")
        assert child.status == "cancelled"

        async def let_go():
            return not hf._worker.executions

        await until(let_go)  # its owner hears of it, and stops the body
        assert LOG == []

    with_client(main, agents=[above_a_body, worker])


@holdfast.agent
async def fails(name: str) -> None:
    raise ValueError(name)


@holdfast.agent
async def above_a_failure() -> None:
    try:
        await fails("it")
    except holdfast.RunFailed:
        await holdfast.sleep("1 day")


def test_a_failed_child_of_a_cancelled_run_cannot_be_retried():
    """It would be unfinished below a run that has ended for good."""

    async def main(hf):
        run = await hf.start(above_a_failure, id="r")
        await until(waiting(hf, 1))
        await run.cancel()
        await run.wait()
        (child,) = await hf.runs(parent="r")
        assert child.status == "failed"
        with pytest.raises(RunFinished, match="belongs to run 'r', which was cancelled"):
            await hf.get(child.id).retry()
        assert await left(hf) == {}

    with_client(main, agents=[above_a_failure, fails])


@holdfast.agent
async def everything() -> None:
    """Children before, in between and after, spawned and called, with children of their own."""
    try:
        await holdfast.spawn(leaves_one, "spawned")
        await asyncio.gather(leaves_one("called"), act("one"), act("two"))
        await sleeper("last")
    finally:
        await holdfast.spawn(sleeper, "late")


def test_nobody_is_left_behind_wherever_a_crash_comes():
    """At every commit on the way."""

    async def main():
        async for hf in holdfast.testing.crash_everywhere(agents=[everything, leaves_one, sleeper]):
            run = await hf.start(everything, id="r")
            await until(at_least(hf, 4))
            await run.cancel(grace="1 day")
            await run.wait()
            assert await left(hf) == {}
            assert {info.status for info in await hf.runs()} == {"completed", "cancelled"}

    asyncio.run(main())
