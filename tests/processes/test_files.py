"""Workers killed with -9 while they look for files: every file is handled once, also those that came while no worker was there."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import holdfast

PROGRAM = Path(__file__).with_name("file_program.py")
pytestmark = [pytest.mark.slow, pytest.mark.nightly]


def begun(*arguments):
    process = subprocess.Popen([sys.executable, PROGRAM, *arguments], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def ended(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("kills", [30])
def test_every_file_is_handled_once_whoever_is_killed(kills, store_url, tmp_path, capsys):
    """One worker that is killed again and again, and files that come all the while, half of them by being renamed."""
    dice, folder, ledger, each = random.Random(11), tmp_path / "in", tmp_path / "ledger", 10
    (folder / "deep").mkdir(parents=True)
    arguments = (str(ledger), store_url, str(folder))
    sent, began = 0, time.monotonic()
    worker = begun(*arguments)
    try:
        for _ in range(kills):
            for number in range(sent, sent + each):
                place = folder / ("deep" if number % 3 else "") / f"{number}.txt"
                written = place.with_name(f".{number}") if number % 2 else place
                written.write_text(f"{number}")
                written.rename(place)
            sent += each
            time.sleep(dice.uniform(0.05, 0.8))
            ended(worker)
            (folder / f"{sent}.txt").write_text(f"{sent}")  # nobody is there
            sent += 1
            worker = begun(*arguments)
        runs, dead = asyncio.run(outcome(store_url, sent))
    finally:
        ended(worker)
    lines = [tuple(line.split()) for line in ledger.read_text().splitlines()]
    assert Counter(text for text, _ in set(lines)) == Counter(str(number) for number in range(sent))
    assert runs == sent
    assert not dead
    again, took_s, stored = len(lines) - len(set(lines)), time.monotonic() - began, store_url.partition(":")[0]
    with capsys.disabled():
        print(  # noqa: T201 - the table
            f"\n| files | {stored} | {sent} files | {kills} kills | {runs} runs | {again} bodies ran again | {took_s:.0f} s |"
        )


async def outcome(url, total):
    """Wait until each file has its run; how many runs there are then, and what is dead."""
    async with holdfast.open(url) as hf:
        while (counts := (await hf.count_runs(agent="handle")).get("handle", {})).get("completed", 0) < total:
            for info in await hf.runs(status="paused"):  # it was there each time that a worker died, and is suspected
                await hf.get(info.id).resume()
            await asyncio.sleep(0.05)
        return sum(counts.values()), await hf.deliveries(status="dead")
