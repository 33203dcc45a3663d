"""A process that was stopped for longer than its lease begins nothing that is not its own any more."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parents[2]

SCRIPT = """
import asyncio, os, sys
import holdfast
from tests.fleet.test_trust import chain

async def main():
    settings = holdfast.Settings(lease_ttl_s=0.6, park_grace_s=60.0)
    async with holdfast.open(sys.argv[1], agents=[chain], settings=settings):
        os.write(1, b"ready\\n")
        await asyncio.get_running_loop().run_in_executor(None, os.read, 0, 1)

asyncio.run(main())
"""


@holdfast.step
async def link(number: int) -> int:
    fd = os.open(os.environ["TRUST_LEDGER"], os.O_APPEND | os.O_WRONLY | os.O_CREAT)
    os.write(fd, f"{holdfast.this_run().id} {number} {os.getpid()} {time.time()}\n".encode())
    os.close(fd)
    await asyncio.sleep(0.002)
    return number


@holdfast.agent(name="chain")
async def chain(length: int) -> int:
    return sum([await link(number) for number in range(length)])


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_stopped_worker_begins_nothing_after_its_lease(store, request, tmp_path):
    """Forty runs in mid-chain: when it wakes up, no body of a step that another worker has recorded begins there."""
    url = f"sqlite:{tmp_path / 'runs.db'}" if store == "sqlite" else request.getfixturevalue("postgres_url")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "TRUST_LEDGER": str(tmp_path / "ledger"),
    }

    def worker():
        command = [sys.executable, "-c", SCRIPT, url]
        started = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert started.stdout.readline() == "ready\n"
        return started

    async def main():
        async with holdfast.open(url) as hf:
            runs = [await hf.start("chain", 150, id=f"r{number}") for number in range(40)]
            while not (tmp_path / "ledger").exists():
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            first.send_signal(signal.SIGSTOP)
            try:
                other = worker()
                await asyncio.gather(*[run.result(timeout=50) for run in runs])
            finally:
                first.send_signal(signal.SIGCONT)
            woken = time.time()
            await asyncio.sleep(1.5)
            return other, woken

    first = worker()
    other, woken = asyncio.run(main())
    for process in (first, other):
        process.communicate("", timeout=30)
    lines = [line.split() for line in (tmp_path / "ledger").read_text().splitlines()]
    late = [line for line in lines if int(line[2]) == first.pid and float(line[3]) > woken]
    assert len(lines) >= 6000
    assert late == []
