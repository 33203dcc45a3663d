"""Whole inputs while processes die: each call has its input, as it was, and what is told stays small."""

import asyncio
import signal

import pytest
from tests.agents.test_inputs import converse, message, told_bytes
from tests.store.places import python

import holdfast

TURNS = 40
WORKER = """
import asyncio, sys
import holdfast
from tests.agents.test_inputs import converse

async def main():
    async with holdfast.open(sys.argv[1], agents=[converse]) as hf:
        await hf.get("r").wait()

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.by_day("sqlite")
async def test_inputs_are_whole_although_workers_are_killed(store_url):
    """Two workers are killed in the middle of it, one after the other; a third ends the run."""
    async with holdfast.open(store_url) as hf:
        run = await hf.start(converse, TURNS, id="r")
        for kill in range(2):
            with python(WORKER, store_url) as worker:
                try:
                    async with asyncio.timeout(60):
                        while (await run.info()).steps < (kill + 1) * 10:
                            await asyncio.sleep(0.002)
                finally:
                    worker.send_signal(signal.SIGKILL)
    async with holdfast.open(store_url, agents=[converse]) as hf:
        run = hf.get("r")
        assert await run.result(timeout=60) == TURNS
        found = [step async for step in run.steps()]
        assert len({step.worker for step in found}) >= 2
        for turn, step in enumerate(found):
            assert await step.arguments() == {"messages": [message(each) for each in range(turn)]}
        assert await told_bytes(hf, run) < TURNS * 100
        assert await hf.store.parts_of(["r"]) == set()
