"""5. A run with a long journal, its process killed: how soon a new process begins the next step.

As a script it is one of those processes: `python resuming.py record|resume plain|checkpoints FILE STEPS SPAWNED_AT`.
Both end by killing themselves in the body of the step after the recorded ones; the second says when that body began.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from statistics import median

from measuring import Bench, Row, spread, told_by

import holdfast

PLAIN_S, REPLAY_S = 1.0, 0.050
EVERY = 100

times: dict[str, float] = {}


def note(what: str) -> None:
    times.setdefault(what, time.monotonic())  # one clock for all processes of the machine


@holdfast.step
async def add(number: int) -> int:
    return number + 1


@holdfast.step
async def next_one() -> None:
    note("body")
    if sys.argv[1] == "resume":
        print(json.dumps(times), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


@holdfast.agent
async def plain(steps: int) -> None:
    note("agent")
    for number in range(steps):
        await add(number)
    await next_one()


@holdfast.agent
async def checkpoints(steps: int) -> None:
    """Dies just before a checkpoint, so that there is as much to replay as there can be."""
    note("agent")
    done = await holdfast.restore(0)
    while True:
        for number in range(done, min(done + EVERY, steps - 1)):
            await add(number)
        done += EVERY
        if done >= steps:
            await next_one()
        done = await holdfast.checkpoint(done)


async def carry(mode: str, agent: str, file: str, steps: int) -> None:
    # What is resumed is the same; recording it need not wait for the disk ten thousand times.
    url = f"sqlite:{file}?durability=process" if mode == "record" else f"sqlite:{file}"
    opening = holdfast.open(
        url, agents=[plain, checkpoints]
    )  # which imports the rest of the package; nothing is opened yet
    note("imported")
    async with opening as hf:
        note("opened")
        run = await hf.start({"plain": plain, "checkpoints": checkpoints}[agent], steps, id="long")
        await run.result(timeout=600)


def measure(bench: Bench) -> list[Row]:
    steps, rounds = bench.size(10_000, 300), bench.size(7, 2)
    whole, _ = resumed(bench, "plain", steps, rounds)
    _, replay = resumed(bench, "checkpoints", steps, rounds)
    return [
        Row(5, f"resume after {steps} steps: from imports done to the next body", spread(whole, ",.3f", " s"), "",
            f"< {PLAIN_S:g} s", median(whole) < PLAIN_S),
        Row(5, f"the same with a checkpoint every {EVERY}: claim, load and replay", spread(replay, ",.1f", " ms"), "",
            f"< {REPLAY_S * 1000:g} ms", median(replay) < REPLAY_S * 1000),
    ]  # fmt: skip


def resumed(bench: Bench, agent: str, steps: int, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds from imports to body, and milliseconds of it after the store was open; each from the same killed file."""
    whole, replay = [], []
    with bench.place() as folder:
        killed = folder / "killed"
        killed.mkdir()
        told_by("resuming.py", "record", agent, killed / "bench.db", steps, killed=True)
        for number in range(rounds):
            copy = folder / str(number)
            shutil.copytree(killed, copy, ignore=shutil.ignore_patterns("*.sock"))
            at = told_by("resuming.py", "resume", agent, copy / "bench.db", steps, killed=True)
            whole.append(at["body"] - at["imported"])
            replay.append((at["body"] - at["opened"]) * 1000)
            shutil.rmtree(copy, ignore_errors=True)
    return whole, replay


if __name__ == "__main__":
    asyncio.run(carry(sys.argv[1], sys.argv[2], str(Path(sys.argv[3])), int(sys.argv[4])))
