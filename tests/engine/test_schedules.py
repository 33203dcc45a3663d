"""Random schedules, dropped at random commits and opened anew: the same results, the same winners, nothing twice."""

import asyncio
import random

import pytest
from tests.engine import schedules

import holdfast.testing
from holdfast.store.operations import Crash
from holdfast.testing.crashes import _restart

ROUNDS = 500
TOGETHER = 10  # runs in one file, which are dropped together


class Crashes:
    """Drops the store before or after each of these commits."""

    def __init__(self, rng):
        self._left = sorted(rng.sample(range(3, 30), 3), reverse=True)  # a quick machine makes few commits
        self._after = rng.random() < 0.7
        self._commits = 0
        self.crashed = None

    def before_commit(self, writes):
        self._commits += 1
        if not self._after:
            self._perhaps()

    def after_commit(self, writes):
        if self._after:
            self._perhaps()

    def _perhaps(self):
        if self._left and self._commits >= self._left[-1]:
            self._left.pop()
            self.crashed()
            raise Crash


async def send(run, rng):
    """Messages at random moments; sent again when the crash came first, which changes nothing."""
    for n in range(6):
        await asyncio.sleep(rng.random() * 0.01)
        await run.send("mail", f"m{n}", key=str(n))


async def together(name, seed):
    """Some runs in one file, dropped together a few times."""
    rng = random.Random(seed)
    schedules.noise.seed(seed)
    schedules.lives.clear()
    agent, faults = schedules.ALL[name], Crashes(rng)
    async with holdfast.testing.open(agents=[agent], faults=faults, park=rng.random() < 0.5) as hf:
        faults.crashed = _restart(hf)
        runs = [await hf.start(agent, id=f"r{n}") for n in range(TOGETHER)]
        senders = [asyncio.create_task(send(run, rng)) for run in runs if name == "mailing"]
        results = await asyncio.gather(*(run.result(timeout=50) for run in runs))
        await asyncio.gather(*senders)
        for run, result in zip(runs, results, strict=True):
            assert schedules.CHECKS[name](result), result
            events = [event async for event in run.events(follow=False)]
            check(run.id, events)
        return hf.crashes


def check(run, events):
    closed = [event.key for event in events if event.kind.startswith("step.")]
    assert len(closed) == len(set(closed))
    assert not [event for event in events if event.kind == "foreign"]
    *lives, last = schedules.lives[run]
    for life in lives:  # one that was dropped while it replayed has seen less than the one before it
        assert life == last[: len(life)]


@pytest.mark.slow
@pytest.mark.by_day("mixed")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", schedules.ALL)
async def test_a_dropped_run_goes_on_as_if_nothing_had_happened(name):
    """Dropped at random commits and opened anew, each life sees what the one before saw, in order, and the end is right."""
    crashes = 0

    files = schedules.rounds(name, ROUNDS) // TOGETHER
    for seed in range(files):
        crashes += await together(name, seed)
    assert crashes > files
