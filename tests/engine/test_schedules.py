"""Random schedules, dropped at a random event and opened anew: the same results, and nothing recorded runs twice."""

import asyncio
import random

import pytest

import holdfast.testing
from holdfast.testing.crashes import CrashAt, _restart
from tests.engine import schedules

ROUNDS = 500


async def once(name, seed):
    """One run that is dropped right after a random commit; what was delivered by then must be delivered again."""
    rng = random.Random(seed)
    schedules.noise.seed(seed)
    faults = CrashAt(rng.randrange(2, {"parallel": 14, "nested": 14, "races": 36, "queues": 26, "cancellation": 30}[name]), after=rng.random() < 0.7)
    async with holdfast.testing.open(agents=[schedules.ALL[name]], faults=faults, park=rng.random() < 0.5) as hf:
        faults.crashed = _restart(hf)
        run = await hf.start(schedules.ALL[name], id="r")
        result = await run.result(timeout=30)
        events = [event async for event in run.events(follow=False)]
        return result, events, hf


def check(name, result, events, hf):
    recorded = [event.key for event in events if event.kind == "step.completed"]
    assert len(recorded) == len(set(recorded))
    if name == "parallel":
        assert result == [f"saved short found {q}" for q in "xyz"]
    if name == "nested":
        assert result == [f"n{n}" for n in range(4)]
    if name == "queues":
        assert sorted(result) == sorted(f"got {n}.{i}" for n in range(3) for i in range(3))
    # A body may run again only if its first run was not recorded, and one crash loses at most what was in flight.
    again = {key for key, count in hf.keys.items() if count > 1}
    assert all(count <= 2 for count in hf.keys.values())
    assert not [event for event in events if event.kind == "foreign"]
    return again


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", schedules.ALL)
def test_a_dropped_run_ends_right(name):
    """Dropped right after a random commit and opened anew, every run ends with the right result, none twice recorded."""
    crashed = 0

    async def main():
        nonlocal crashed
        for seed in range(ROUNDS):
            result, events, hf = await once(name, seed)
            check(name, result, events, hf)
            crashed += hf.crashes > 0

    asyncio.run(main())
    assert crashed > ROUNDS / 4
