"""Random programs of asyncio's tools and durable calls, dropped at random commits: each life sees what the one before saw."""

import asyncio
import contextlib
import random

import pytest
from tests.engine import schedules
from tests.engine.programs import program
from tests.engine.test_schedules import Crashes, check, send

import holdfast.testing
from holdfast.testing.crashes import _restart

FILES = 8
TOGETHER = 10  # programs in one file, which are dropped together


async def together(first):
    """Some programs in one file, dropped together a few times."""
    rng = random.Random(first)
    schedules.noise.seed(first)
    schedules.lives.clear()
    faults = Crashes(rng)
    async with holdfast.testing.open(agents=[program], faults=faults, park=rng.random() < 0.5) as hf:
        faults.crashed = _restart(hf)
        runs = [await hf.start(program, first + n, id=f"r{first + n}") for n in range(TOGETHER)]
        senders = [asyncio.create_task(send(run, rng)) for run in runs]
        assert await asyncio.gather(*(run.result(timeout=50) for run in runs)) == ["end"] * TOGETHER
        for sender in senders:
            with contextlib.suppress(holdfast.RunFinished):
                await sender
        for run in runs:
            check(run.id, [event async for event in run.events(follow=False)])


@pytest.mark.slow
@pytest.mark.by_day("0", "3", "5")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("file", range(FILES))
def test_a_random_program_goes_on_as_if_nothing_had_happened(file):
    """Whatever a program is made of, deep chains of callbacks too, each life of it sees the same in the same order."""
    asyncio.run(together(file * TOGETHER))
