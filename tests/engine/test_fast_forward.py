"""Passing over what is recorded: what is ahead, where it ends, and that identity comes out the same."""

import asyncio
import contextlib

import pytest

import holdfast
import holdfast.testing
from holdfast.verbs.replay import ahead, skip, task_label


@holdfast.step
async def work(n: int) -> int:
    return n


async def turn(n):
    with holdfast.scope(f"ours:{n}"):
        return await work(n)


async def turns(first, last, labels):
    """Each turn in a task of its own, as frameworks do it; a record of what its tasks were called."""
    for n in range(first, last):

        async def one(n=n):
            labels[n] = task_label()
            return await turn(n)

        await asyncio.create_task(one())


def resumed(agent, **options):
    """What the agent returns after a crash, and its journal."""

    async def main():
        async with holdfast.testing.open(agents=[agent]) as hf:
            run = await hf.start(agent, id="r")
            await run.wait("waiting")
            for _ in range(2):
                await hf.crash()
                await hf.get("r").info()
            await hf.get("r").send("go on", 1)
            result = await hf.get("r").result(timeout=20)
            return result, [event.key for event in await hf.store.journal("r") if event.kind == "step.completed"]

    return asyncio.run(main())


@pytest.mark.parametrize("skips", [False, True])
def test_what_follows_has_the_same_keys(skips):
    """A run that passes over nine turns goes on with the keys of one that replayed them."""
    made = []

    @holdfast.agent
    async def agent() -> list:
        labels = {}

        async def one():
            found = list(ahead("ours:"))
            if found and skips:
                made.append(len(found))
                await skip(found[:9], "one#9")
                return 9
            labels[0] = task_label()
            await turn(0)
            return 1

        done = await asyncio.create_task(one())
        await turns(done, 10, labels)
        await holdfast.receive("go on")

        async def after():
            return [task_label(), await work(99)]

        return await asyncio.create_task(after())

    result, keys = resumed(agent)
    assert result == ["after#0", 99]
    assert keys == [*(f"ours:{n}/work#0" for n in range(10)), "after#0/work#0"]
    assert bool(made) == skips


def test_what_is_ahead_ends_at_what_may_have_been_used():
    """A message, a step of the task around and a failed step end it; steps of other tasks do not."""
    seen = []

    @holdfast.step
    async def fail() -> None:
        raise ValueError("no")

    @holdfast.agent
    async def agent() -> None:
        async def inside():
            seen.append([record.where for record in ahead("ours:")])
            await turn(0)
            await turn(1)

        await asyncio.create_task(inside())
        await work(5)
        await asyncio.create_task(inside_two())
        await holdfast.receive("go on")

    async def inside_two():
        seen.append([record.where for record in ahead("ours:")])
        await turn(2)
        with holdfast.scope("ours:3"), contextlib.suppress(ValueError):
            await fail()
        await turn(4)

    resumed(agent)
    assert ["0/work#0", "1/work#0"] in seen and ["2/work#0"] in seen
    assert seen[0] == []  # live, there is nothing ahead


async def test_nothing_cannot_be_skipped():
    """An empty list is a mistake of whoever asks."""

    @holdfast.agent
    async def agent() -> str:
        try:
            await skip([], "x#0")
        except holdfast.BadArguments as error:
            return str(error)

    async with holdfast.testing.open(agents=[agent]) as hf:
        returned = await hf.run(agent)
    assert "nothing to pass over" in returned
