"""Processes killed with -9 while they fork and while they carry forks: each fork is there whole, or not at all."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.processes.fork_program import counts

import holdfast

PROGRAM = Path(__file__).with_name("fork_program.py")


@pytest.mark.by_day("postgres")
def test_a_fork_is_there_whole_or_not_at_all(store_url):
    dice = random.Random(7)
    for _ in range(4):
        process = subprocess.Popen([sys.executable, PROGRAM, store_url], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        assert process.stdout.readline().startswith(b"forked")  # one at least, however slow the machine is
        time.sleep(dice.random() * 0.25)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()

    async def main():
        async with holdfast.open(store_url, agents=[counts]) as hf:
            infos = await hf.runs(limit=1000)
            for info in infos:
                run = hf.get(info.id)
                assert await run.result(timeout=40) == 66
                events = [event async for event in run.events(follow=False)]
                assert [event.seq for event in events] == list(range(len(events)))
                done = [event.key for event in events if event.kind == "step.completed"]
                assert sorted(done) == sorted(f"work#{n}" for n in range(12))
            assert (await hf.store.facts())["integrity"] == "ok"
            tree = await hf.get("r").forks()
            assert {each.id for each in tree} == {info.id for info in infos}
            return len(infos)

    assert asyncio.run(main()) > 4
