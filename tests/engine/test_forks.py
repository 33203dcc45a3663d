"""Random programs, forked at every event of theirs: each fork sees the past again, does nothing twice, and comes to the end."""

import asyncio

import pytest
from tests.engine import schedules
from tests.engine.programs import program

import holdfast.testing

BY_DAY = ("1", "4", "7")


class Named(list):
    """What a life sees, each with the name that the run had then: up to the point a fork has that of the original."""

    def append(self, saw):
        super().append((holdfast.this_run().id, saw))


async def forked_everywhere(seed):
    """Run one program with its children, then forks of it from before each of its events; returns how many."""
    schedules.noise.seed(seed)
    schedules.lives.clear()
    schedules.new_life = Named
    async with holdfast.testing.open(agents=[program]) as hf:
        run = await hf.start(program, seed, 2, id="r")
        assert await run.result(timeout=60) == "end"
        events = [event async for event in run.events(follow=False)]
        saw = schedules.lives["r"].pop()  # its last life: one that left memory has more
        last = 0
        for event in events:
            fork = await run.fork(at=event.seq, effects="new", id=f"f{event.seq}")
            assert await fork.result(timeout=60) == "end", event
            history = [each async for each in fork.events(follow=False)]
            assert [each.seq for each in history] == list(range(len(history)))
            assert [(each.seq, each.kind, each.data) for each in history[: event.seq]] == [
                (each.seq, each.kind, each.data) for each in events[: event.seq]
            ]
            closed = [each.key for each in history if each.kind in ("step.completed", "step.failed", "step.cancelled")]
            assert len(closed) == len(set(closed))
            life = schedules.lives["r"].pop()
            past = [name for name, _ in life].count("r")
            assert life[:past] == saw[:past]
            assert past >= last  # the later the point, the more of what the first life saw is seen again
            last = past
        return len(events)


@pytest.mark.slow
@pytest.mark.by_day(*BY_DAY)
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(60))
def test_a_random_program_is_forked_at_every_event(seed):
    try:
        assert asyncio.run(forked_everywhere(seed)) > 0
    finally:
        schedules.new_life = list
