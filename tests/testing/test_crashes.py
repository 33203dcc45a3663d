"""`crash_everywhere` leaves no place out, also where several runs write at once and in another order each time."""

import asyncio
from collections import Counter

import pytest

import holdfast
import holdfast.testing


def act(n: int) -> int:
    return n


ACTS = {name: holdfast.step(name=name)(act) for name in "abc"}


@holdfast.agent
async def child(name: str) -> list[int]:
    return [await ACTS[name](n) for n in range(3)]


@holdfast.agent
async def family() -> list[list[int]]:
    return list(await asyncio.gather(*[child(name) for name in "abc"]))


@pytest.mark.slow
async def test_every_effect_has_a_crash_between_it_and_its_record():
    """In some pass each body ran twice, parent and child were taken up again, and every pass has the same result."""
    most, interrupted, passes = Counter(), set(), 0
    async for hf in holdfast.testing.crash_everywhere(agents=[family, child]):
        run = await hf.start(family, id="f")
        assert await run.result() == [[0, 1, 2]] * 3
        for key, times in hf.keys.items():
            most[key] = max(most[key], times)
        events = [event async for event in hf.events(follow=False)]
        interrupted |= {event.run == "f" for event in events if event.kind == "run.interrupted"}
        passes += 1
    assert most == {f"{name}#{n}": 2 for name in "abc" for n in range(3)}
    assert interrupted == {True, False}
    assert passes > 30


async def test_a_deploy_is_other_code_after_a_crash():
    """A run begun with one code goes on with another one from the next crash on, and not before."""

    def release(number):
        @holdfast.agent(name="served")
        async def served() -> list[str]:
            first = await holdfast.receive("word", str)
            return [f"{number}", first, await holdfast.receive("word", str)]

        return served

    async with holdfast.testing.open(agents=[release(1)]) as hf:
        early, late = [await hf.start("served", id=name) for name in ("early", "late")]
        hf.deploy([release(2)])
        for word in "ab":
            await early.send("word", word)
        assert await early.result() == ["1", "a", "b"]
        await late.send("word", "c")
        await hf.crash()
        await late.send("word", "d")
        assert await late.result() == ["2", "c", "d"]


async def test_a_question_to_the_store_outlives_two_crashes_in_a_row():
    """Who waits until the store is open again, and finds that it has crashed once more, waits again."""
    async with holdfast.testing.open(agents=[]) as hf:

        async def once_more():
            await hf._up.wait()
            await hf.crash()

        first = asyncio.create_task(hf.crash())
        await asyncio.sleep(0)
        second = asyncio.create_task(once_more())
        await asyncio.sleep(0)
        assert await hf.store.run("nobody") is None
        await asyncio.gather(first, second)
        assert hf.crashes == 2


async def test_what_needs_no_store_is_answered_while_it_is_away():
    """A list of events asks which of two places is before the other, also in the middle of a crash."""
    async with holdfast.testing.open(agents=[child]) as hf:
        asked = []

        async def ask():
            while not hf._up.is_set():
                asked.append(hf.store.before(1, 2))
                await asyncio.sleep(0)

        hf._up.clear()
        await asyncio.gather(hf.crash(), ask())
        assert asked and set(asked) == {True}
