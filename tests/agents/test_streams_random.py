"""Streams under random schedules: writers that crash at random commits, readers that break off and come back anywhere."""

import asyncio
import random

import pytest
from tests.engine.test_schedules import Crashes

import holdfast
import holdfast.testing
from holdfast.testing.crashes import _restart

noise = random.Random()
RUNS = 3


class Soon(Crashes):
    """Three crashes among the first commits."""

    def __init__(self, rng):
        super().__init__(rng)
        self._left = sorted(rng.sample(range(3, 25), 3), reverse=True)


async def nap():
    await asyncio.sleep(noise.choice([0, 0, noise.random() * 0.03]))


@holdfast.step(retry=holdfast.Retry(9, first="1s", factor=1))
async def speak(name: str, words: list[str], keeps: bool) -> str:
    async with holdfast.stream(name) as out:
        said = out.keep() if keeps else ""
        if out.salvaged is not None:
            assert "".join(words).startswith(out.salvaged.text)
        for word in words[said.count(" ") :]:
            await out.write(word)
            said += word
            await nap()
        if noise.random() < 0.2:
            raise ConnectionError("the model is gone")
    return said


@holdfast.agent
async def talking(seed: int) -> list[str]:
    rng = holdfast.rng()
    words = [[f"{branch}.{n}{'é' * rng.randrange(3)} " for n in range(rng.randrange(1, 30))] for branch in range(3)]
    async with holdfast.stream("agent") as out:
        await out.write("begins ")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(speak(f"s{n}", said, rng.random() < 0.5)) for n, said in enumerate(words)]
        for task in tasks:
            await out.write(task.result())
        again = await speak("s0", words[1], False)
        await out.write(again)
    return [task.result() for task in tasks] + [again]


def joined(seen):
    """The same however it was cut into chunks."""
    made = []
    for kind, data in seen:
        if kind == "data" and made and made[-1][0] == "data":
            made[-1] = ("data", made[-1][1] + data)
        elif kind != "data" or data:
            made.append((kind, data))
    return made


async def follow(run, name, rng):
    """A reader that goes away after a few chunks, or in the middle of one, and comes back at its offset."""
    seen, after = [], 0
    while True:
        left = rng.randrange(1, 4)
        async for chunk in run.stream(name, after):
            part = rng.randrange(len(chunk.data) + 1) if left == 1 and chunk.data else len(chunk.data)
            seen.append((chunk.kind, chunk.data[:part]))
            after = chunk.offset - len(chunk.data) + part
            left -= 1
            if not left:
                break
        else:
            return joined(seen)
        await asyncio.sleep(rng.random() * 0.02)


def text_of(seen):
    """The texts that hold: what a restart made void is left out."""
    made, text = [], ""
    for kind, data in seen:
        text = "" if kind == "restart" else text + data
        if kind == "end":
            made.append(text)
            text = ""
    return made


@pytest.mark.by_day("0", "1", "2", "3")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(10))
async def test_readers_that_come_back_see_everything_once(seed):
    """Whatever crashes and breaks off, a reader has seen just what is in the stream at the end, and that is the result."""
    rng = random.Random(seed)
    noise.seed(seed)
    faults = Soon(rng)
    async with holdfast.testing.open(agents=[talking], faults=faults, park=rng.random() < 0.5) as hf:
        faults.crashed = _restart(hf)
        runs = [await hf.start(talking, seed, id=f"r{n}") for n in range(RUNS)]
        readers = {
            (run.id, name): asyncio.create_task(follow(run, name, rng))
            for run in runs
            for name in ("s0", "s1", "s2", "agent")
        }
        for run in runs:
            *said, again = await run.result(timeout=50)
            expected = {"s0": [said[0], again], "s1": [said[1]], "s2": [said[2]]}
            expected["agent"] = ["begins " + "".join([*said, again])]
            for name, texts in expected.items():
                seen = await readers[run.id, name]
                stored = [(chunk.kind, chunk.data) async for chunk in run.stream(name)]
                assert seen == joined(stored)
                assert text_of(seen) == texts
        returned = hf.crashes
    assert returned > 0
