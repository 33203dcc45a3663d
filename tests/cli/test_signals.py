"""A second Ctrl-C ends the process at once, with one exit code, whatever it breaks into and however many follow."""

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, os, signal, sys, time
from holdfast.cli.signals import Stop

def last_words():
    print("ending", flush=True)
    {words}

async def main():
    with Stop(last_words) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.asked.wait()
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(30)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("raise RuntimeError('reentrant call')", id="they cannot be said"),
        pytest.param("os.kill(os.getpid(), signal.SIGTERM)", id="a third signal comes meanwhile"),
    ],
)
def test_the_last_words_do_not_change_how_it_ends(words):
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(words=words)], stdout=subprocess.PIPE, text=True, timeout=30, check=False
    )
    assert (ended.returncode, ended.stdout) == (130, "ending\n")
