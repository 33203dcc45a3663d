"""Workers killed with -9 while senders send events to reducers: each is folded once and in its order, and each command is done."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter as Counts
from pathlib import Path

import pytest
from tests.processes.reducer_program import Closed, Counted, counter

import holdfast

PROGRAM = Path(__file__).with_name("reducer_program.py")
RUNS, SENDERS = 4, 3


async def begin(url, ledger, workers):
    environment = {**os.environ, "LEDGER": str(ledger)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, url, stdout=subprocess.PIPE, env=environment
    )
    workers.append(process)
    assert await process.stdout.readline() == b"ready\n"


async def ended(process):
    process.send_signal(signal.SIGKILL)
    await process.wait()


async def sends(url, sender, over, dice):
    """Send numbers to all, some of them twice, each with its key, until the kills are over; how many."""
    number = 0
    async with holdfast.open(url) as hf:
        while number < 30 or not over.is_set():
            for run in range(RUNS):
                for _ in range(1 + (dice.random() < 0.3)):
                    await hf.get(f"r-{run}").send(Counted(sender, number), key=f"{sender}-{number}")
            number += 1
            await asyncio.sleep(dice.uniform(0.02, 0.1))
    return number


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [30])
async def test_every_event_is_folded_once_whoever_is_killed(store_url, tmp_path, kills):
    dice, over, ledger = random.Random(kills), asyncio.Event(), tmp_path / "ledger"
    async with holdfast.open(store_url) as hf:
        for run in range(RUNS):
            await hf.start(counter, id=f"r-{run}")
    workers = []
    try:
        for _ in range(2):
            await begin(store_url, ledger, workers)
        senders = [asyncio.create_task(sends(store_url, f"s{n}", over, random.Random(n))) for n in range(SENDERS)]
        for kill in range(kills):
            await asyncio.sleep(dice.uniform(0.05, 0.8))
            await ended(workers.pop(0))
            if kill % 5 == 4:
                await ended(workers.pop(0))
                await begin(store_url, ledger, workers)
            await begin(store_url, ledger, workers)
        over.set()
        sent = await asyncio.gather(*senders)
        expected = [n for many in sent for n in range(many)]
        marks, late = [n for n in expected if n % 5 == 0], [n for n in expected if n % 7 == 0]
        async with holdfast.open(store_url) as hf:
            done = Counts()
            for run in range(RUNS):
                handle = hf.get(f"r-{run}")
                async with asyncio.timeout(90):
                    while True:
                        kinds = Counts([event.kind async for event in handle.events(follow=False)])
                        if kinds["step.completed"] >= len(marks) and (await handle.info()).waits_for == "message":
                            break
                        await asyncio.sleep(0.1)
                assert kinds["step.completed"] == len(marks)
                await handle.send(Closed())
                end = await handle.result(timeout=60)
                assert end["wrong"] == ()
                assert (end["count"], end["total"]) == (len(expected), sum(expected))
                assert dict(end["last"]) == {f"s{n}": many - 1 for n, many in enumerate(sent)}
                assert sorted(end["marked"]) == sorted(marks)
                assert sorted(end["late"]) == sorted(late)
                done["events"] += end["count"]
                done["commands"] += len(end["marked"])
                done["timers"] += len(end["late"])
                done["taken over"] += kinds["run.interrupted"]
                done["checkpoints"] += kinds["checkpoint"]
        lines = Counts(ledger.read_text().splitlines())
        assert len(lines) == sum(1 for many in sent for n in range(many) if n % 5 == 0)
        assert min(lines.values()) >= RUNS  # a body that was killed in the middle ran again
        print(kills, dict(done), "bodies", lines.total())  # noqa: T201 - the line of the table
    finally:
        for worker in workers:
            await ended(worker)
