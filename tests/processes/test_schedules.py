"""Workers killed with -9 while schedules begin runs: every second has its run, and no second two."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.processes.schedule_program import tick

import holdfast

PROGRAM = Path(__file__).with_name("schedule_program.py")


def begin(url, workers):
    workers.append(subprocess.Popen([sys.executable, PROGRAM, url], stdout=subprocess.PIPE))
    assert workers[-1].stdout.readline() == b"ready\n"


def ended(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


@pytest.mark.timeout(900)
@pytest.mark.by_day("postgres-4")
@pytest.mark.parametrize("kills", [4, 30])
def test_every_time_has_one_run_whoever_is_killed(store_url, kills):
    """Two workers, one of which is always being killed; now and then nobody is there, and what was missed is caught up."""
    dice, workers = random.Random(3), []
    try:
        begin(store_url, workers)
        begin(store_url, workers)
        for kill in range(kills):
            time.sleep(dice.uniform(0.1, 1.2))
            ended(workers.pop(0))
            if kill % 3 == 2:
                ended(workers.pop(0))
                time.sleep(1.5)
                begin(store_url, workers)
            begin(store_url, workers)
    finally:
        for worker in workers:
            ended(worker)

    async def main():
        async with holdfast.open(store_url, agents=[tick]) as hf:
            await asyncio.sleep(1.2)  # one more of the times that nobody was there for
            infos = await hf.runs(limit=1000)
            for info in infos:
                assert await hf.get(info.id).result(timeout=40) == 1
                steps = [event.kind async for event in hf.get(info.id).events(follow=False)]
                assert steps.count("step.completed") == 1
            return [datetime.fromisoformat(info.id.partition("@")[2]) for info in infos], await hf.get_schedule(
                "tick"
            ).info()

    times, info = asyncio.run(main())
    assert max(Counter(times).values()) == 1
    first = min(times)
    assert sorted(times) == [first + timedelta(seconds=n) for n in range(len(times))]
    assert info.missed == 0
    assert len(times) > kills
