"""Sixty workers that start at once on an empty database."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parents[2]

# One process imports everything and forks the sixty, which then open the database in the same moment.
SCRIPT = """
import asyncio, os, sys
import holdfast
from tests.processes.test_claims_sixty import add, count

async def serve():
    async with holdfast.open(sys.argv[1], agents=[count], settings=holdfast.Settings(concurrency=20)):
        os.write(1, b"ready\\n")
        await asyncio.get_running_loop().run_in_executor(None, os.read, 0, 1)  # until the test closes it

children = []
for _ in range(int(sys.argv[2])):
    pid = os.fork()
    if not pid:
        try:
            asyncio.run(serve())
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\\n".encode())
            os._exit(1)
        os._exit(0)
    children.append(pid)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children))
"""


@holdfast.step
async def add(number: int) -> int:
    return number + 1


@holdfast.agent(name="count-to")
async def count(steps: int) -> int:
    total = 0
    for number in range(steps):
        total += await add(number)
    return total


@pytest.mark.nightly
@pytest.mark.timeout(180)  # sixty processes on two busy processors take most of a minute to start
def test_sixty_workers_start_at_once(postgres_url):
    """No deadlock, no error: all of them serve, all work is done, each step once, and all end well."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-c", SCRIPT, postgres_url, "60"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, cwd=ROOT, text=True, **pipes) as fleet:
        assert [fleet.stdout.readline() for _ in range(60)] == ["ready\n"] * 60

        async def work():
            async with holdfast.open(postgres_url) as hf:
                runs = await asyncio.gather(*[hf.start("count-to", 5, id=f"run-{number}") for number in range(120)])
                results = await asyncio.gather(*[run.result(timeout=100) for run in runs])
                steps = [event async for event in hf.events(kinds={"step.completed"}, follow=False)]
                return results, len(steps)

        results, steps = asyncio.run(work())
        assert (set(results), steps) == ({15}, 600)
        fleet.stdin.close()
        # Sixty processes on few processors wait for each other, and some say so.
        told = [line for line in fleet.stderr if not line.startswith("the loop")]
        assert (fleet.wait(50), told) == (0, [])
