"""Agents with long histories, and a pace: what carries them is a real worker, and a file says how far it may go.

A run of `long` folds to a few rows, one of `wide` has a row for each step, and `paced` goes on as the file says.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import holdfast
from holdfast import Retry

PACE = Path(os.environ.get("SCENE_HOLD", "/nonexistent")).with_name("pace")
NAMES = ("search", "read_page", "summarise", "look_up", "write_section")
WIDE = 45  # steps of one name in a place: as many as are rows of their own
AGAIN = Retry(3, first="1ms")
TEXT = "an otter that sleeps takes a strand of kelp and turns around its own axis, "


async def look(number: int) -> str:
    """Say a few words; one time in five hundred the first attempt fails."""
    holdfast.spend(usd=0.001)
    if number % 500 == 250 and holdfast.this_step().attempt == 1:
        raise ConnectionError("the connection was closed by the other side")
    return f"{number}: {TEXT}"


def named(name: str) -> holdfast.Step[[int], str]:
    return holdfast.step(name=name, retry=AGAIN)(look)


STEPS = tuple(named(each) for each in NAMES)


@holdfast.agent
async def long(steps: int, at_once: int = 4) -> int:
    """Steps of five names, one after the other in each of some tasks."""

    async def one(first: int) -> None:
        for number in range(first, steps, at_once):
            await STEPS[number % len(STEPS)](number)

    await asyncio.gather(*(one(first) for first in range(at_once)))
    return steps


@holdfast.agent
async def wide(steps: int) -> int:
    """Steps of so many names that each is a row."""
    made = [named(f"task_{number}") for number in range(-(-steps // WIDE))]
    for number in range(steps):
        await made[number % len(made)](number)
    return steps


@holdfast.agent
async def unsure(steps: int) -> bool:
    """Steps, and then a question that stays open."""
    for number in range(steps):
        await STEPS[0](number)
    return bool(await holdfast.approve("Go on?"))


def read(pace: Path) -> float:
    """How many steps may have been made by now: `1000`, or `1000 since 1752675000.0 at 50`."""
    try:
        steps, *more = pace.read_text().split()
    except (FileNotFoundError, ValueError):
        return 0  # it is not there yet, or not written to its end
    return float(steps) + ((time.time() - float(more[1])) * float(more[3]) if len(more) == 4 else 0)


@holdfast.step(retry=AGAIN)
async def step_in_time(number: int) -> str:
    while number >= read(PACE):
        await asyncio.sleep(0.002)
    return await look(number)


@holdfast.agent
async def paced(steps: int, at_once: int = 4) -> int:
    """As `long`, at the pace of the file."""

    async def one(first: int) -> None:
        for number in range(first, steps, at_once):
            await step_in_time(number)

    await asyncio.gather(*(one(first) for first in range(at_once)))
    return steps


class Pace:
    """Says how far the workers of a scene may go."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / PACE.name
        self._steps = 0.0
        self.up_to(0)

    def up_to(self, steps: float) -> None:
        """Let each run make so many steps, as fast as it can."""
        self._steps = steps
        self._file.write_text(f"{steps}")

    def at(self, rate: float) -> None:
        """Let it make so many more in each second from now on."""
        self._file.write_text(f"{self._steps} since {time.time()} at {rate}")

    def hold(self) -> None:
        """Let it make no more than it may have made by now."""
        self.up_to(read(self._file))


@holdfast.agent
async def later(number: int) -> int:
    return number


async def ask(url: str, steps: int) -> None:
    """Carry a run to its question."""
    async with holdfast.open(f"{url}?durability=process", agents=[unsure]) as hf:
        await (await hf.start(unsure, steps, id="unsure")).wait_for_question()


async def fill(url: str, waiting: int = 0, **runs: tuple[str, int]) -> None:
    """Carry runs to their ends, each of an agent and so many steps: `fill(url, kelp=("long", 10_000))`."""
    async with holdfast.open(f"{url}?durability=process", agents=[long, wide, later]) as hf:
        for id, (agent, steps) in runs.items():
            await (await hf.start(agent, steps, id=id)).result()
        for first in range(0, waiting, 500):
            many = range(first, min(first + 500, waiting))
            await asyncio.gather(*[hf.start(later, each, id=f"later-{each:05}", after="30d") for each in many])
