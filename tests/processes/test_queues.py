"""Workers killed with -9 while they read a queue, and brokers that are restarted: every message does its work once, none is lost.

moto and librdkafka's cluster lose what they have when they end. With them only workers are killed.
"""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.brokers import BROKERS

import holdfast

PROGRAM = Path(__file__).with_name("queue_program.py")
pytestmark = pytest.mark.slow


def begun(*arguments):
    process = subprocess.Popen([sys.executable, PROGRAM, *arguments], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def ended(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


@pytest.mark.timeout(900)
@pytest.mark.by_day("nats-2-1-sqlite")
@pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize(("kills", "restarts"), [(2, 1), (30, 5)])
@pytest.mark.parametrize("name", BROKERS)
def test_every_message_does_its_work_once_whoever_is_killed(name, kills, restarts, store_url, tmp_path, capsys):
    """Two workers, one of which is always being killed, and a sender that goes on all the while."""
    broker, dice = BROKERS[name](tmp_path / "broker"), random.Random(5)
    ledger, workers = tmp_path / "ledger", []
    restart_at = set(range(0, kills, max(kills // restarts, 1))[:restarts] if broker.lasts else ())
    each, sent = 25, 0
    began = time.monotonic()
    try:
        broker.start()
        asyncio.run(broker.make("numbers"))
        arguments = (str(ledger), store_url, broker.url("numbers"), broker.id or "")
        workers += [begun(*arguments), begun(*arguments)]
        total = each * (kills + 1)
        asyncio.run(start_listener(store_url, total))
        for kill in range(kills):
            asyncio.run(broker.publish("numbers", [b"%d" % number for number in range(sent, sent + each)]))
            sent += each
            time.sleep(dice.uniform(0.02, 0.5))
            ended(workers.pop(0))
            if kill in restart_at:
                broker.restart(away_s=dice.uniform(0, 0.3))
            workers.append(begun(*arguments))
        asyncio.run(broker.publish("numbers", [b"%d" % number for number in range(sent, total)]))
        heard, runs, dead = asyncio.run(outcome(store_url, total))
    finally:
        for worker in workers:
            ended(worker)
        broker.stop()
    assert sorted(heard) == list(range(total))  # each once
    assert len(runs) == total
    lines = [line.split() for line in ledger.read_text().splitlines()]
    effects = Counter(number for number, _ in set(map(tuple, lines)))  # a body that runs again has the key it had
    assert effects == Counter(str(number) for number in range(total))
    assert not dead
    again, took_s = len(lines) - len(set(map(tuple, lines))), time.monotonic() - began
    with capsys.disabled():
        stored = store_url.partition(":")[0]
        print(  # noqa: T201 - the table
            f"\n| {name} | {stored} | {total} messages | {kills} kills | {len(restart_at)} restarts | {len(runs)} runs "
            f"| {len(heard)} heard | {again} bodies ran again | {took_s:.0f} s |"
        )


async def start_listener(url, total):
    async with holdfast.open(url) as hf:
        await until(lambda: published(hf))
        await hf.start("listen", total, id="listener")


async def published(hf):
    return "listen" in {each.name for each in await hf.agents()}


async def until(holds):
    while not await holds():
        await asyncio.sleep(0.05)


async def outcome(url, total):
    async with holdfast.open(url) as hf:
        heard = await hf.get("listener").result(timeout=240)
        while await hf.runs(agent="handle", status=["ready", "running", "waiting", "paused"], limit=1):
            for info in await hf.runs(status="paused"):  # it was there each time that a worker died, and is suspected
                await hf.get(info.id).resume()
            await asyncio.sleep(0.05)
        counts = await hf.count_runs(agent="handle")
        assert counts["handle"] == {"completed": total}
        runs = {run.id async for run in every(hf)}
        (trigger,) = [info for info in await hf.triggers() if info.name == "numbers"]
        assert trigger.messages == total, "each was counted once, whoever was killed"
        return heard, runs, await hf.deliveries(status="dead")


async def every(hf):
    after = None
    while found := await hf.runs(agent="handle", limit=500, after=after):
        for run in found:
            yield run
        after = found[-1].id
