"""Runs on uvloop instead of asyncio's own loop."""

import asyncio
import random

import pytest
from tests.engine import schedules
from tests.engine.lives import history
from tests.engine.test_gate import ways
from tests.engine.test_schedules import Crashes

import holdfast
import holdfast.testing
from holdfast.testing.crashes import _restart

uvloop = pytest.importorskip("uvloop")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", schedules.ALL)
def test_schedules_on_uvloop(name):
    """On uvloop random schedules that are dropped at random commits end right too."""

    async def once(seed):
        rng = random.Random(seed)
        faults = Crashes(rng)
        async with holdfast.testing.open(agents=[schedules.ALL[name]], faults=faults, park=rng.random() < 0.5) as hf:
            faults.crashed = _restart(hf)
            run = await hf.start(schedules.ALL[name], id="r")
            for n in range(6 if name == "mailing" else 0):
                await run.send("mail", f"m{n}", key=str(n))
            await run.result(timeout=30)
            assert not await history(run, "foreign")

    async def main():
        for seed in range(25):
            await once(seed)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("seed", range(4))
def test_chains_of_callbacks_on_uvloop(seed):
    """On uvloop, too, no outcome overtakes one that is on its way through callbacks."""

    async def main():
        async for hf in holdfast.testing.crash_everywhere(agents=[ways]):
            run = await hf.start(ways, seed, id="r")
            result = await run.result(timeout=20)
            assert [event.data["text"] for event in await history(run, "note")] == [" ".join(result)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_plain_timers_on_uvloop():
    """On uvloop plain timers and the loop's time are those of the run as well."""
    seen: list[list[float]] = []

    @holdfast.agent
    async def agent() -> list[str]:
        loop = asyncio.get_running_loop()
        times: list[float] = []
        seen.append(times)
        out = []
        for _ in range(3):
            times.append(loop.time())
            await asyncio.sleep(600)
            try:
                async with asyncio.timeout(60):
                    await holdfast.receive("never")
            except TimeoutError:
                out.append("late")
        await holdfast.sleep("1h")
        return out

    async def main():
        async with holdfast.testing.open(agents=[agent]) as hf:
            run = await hf.start(agent, id="r")
            assert await run.result(timeout=20) == ["late"] * 3
            assert len(await history(run, "tick")) == 6
            assert not await history(run, "foreign")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    assert seen[0] == seen[1]
