"""What the fleets of these tests serve. Each effect is one line of a ledger outside of anything Holdfast knows."""

import asyncio
import contextlib
import json
import os
import signal
import time
import urllib.request
from pathlib import Path

import holdfast

FOLDER = Path(os.environ.get("FLEET", "."))


def effect(what):
    """One line: run, call, process, time, what. Written in one call, so that lines of several processes do not mix."""
    step = holdfast.this_step()
    assert step.run is not None
    line = f"{step.run.id}\t{step.key}\t{os.getpid()}\t{time.time()}\t{what}\n"
    ledger = os.open(FOLDER / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(ledger, line.encode())
    os.close(ledger)


def allowed(name):
    return (FOLDER / name).exists()


@holdfast.step
async def act(what: str, takes_s: float = 0.0) -> str:
    effect(what)
    await asyncio.sleep(takes_s)
    return what


@holdfast.step
async def held(what: str) -> str:
    """Ends when the test allows it."""
    effect(what)
    while not allowed(what):
        await asyncio.sleep(0.005)
    return what


@holdfast.step(in_doubt="fail")
def held_in_thread(what: str) -> str:
    """The same in a thread; leaves a sign of life all the time."""
    effect(what)
    while not allowed(what):
        (FOLDER / f"alive-{what}").touch()
        time.sleep(0.005)
    return what


@holdfast.agent
async def steady(steps: int, takes_s: float) -> int:
    for number in range(steps):
        await act(str(number), takes_s)
    return steps


@holdfast.step
async def work(takes_s: float) -> bool:
    """One piece of work; True when the test says that it is enough."""
    effect("work")
    await asyncio.sleep(takes_s)
    return allowed("enough")


@holdfast.agent
async def enduring(takes_s: float) -> int:
    done = 1
    while not await work(takes_s):
        done += 1
    return done


@holdfast.agent
async def pausing(pause_s: float) -> int:
    """Is nearly always between two steps."""
    done = 1
    while not await work(0.0):
        done += 1
        await asyncio.sleep(pause_s)
    return done


@holdfast.agent
async def slow(what: str) -> str:
    await held(what)
    return await act("after")


@holdfast.agent
async def stubborn(what: str) -> str:
    await held_in_thread(what)
    return await act("after")


@holdfast.agent
async def hog(what: str, seconds: float) -> str:
    await held(what)
    time.sleep(seconds)  # this is the line that must be named
    return await act("after")


@holdfast.step
async def hog_in_body(what: str, seconds: float) -> None:
    effect(what)
    time.sleep(seconds)


@holdfast.step
async def hog_in_task(what: str, seconds: float) -> None:
    effect(what)
    await asyncio.gather(block(seconds))


async def block(seconds):
    time.sleep(seconds)


@holdfast.agent
async def hogging_step(what: str, seconds: float) -> None:
    await hog_in_body(what, seconds)


@holdfast.agent
async def hogging_task(what: str, seconds: float) -> None:
    await hog_in_task(what, seconds)


# Told to stop


@holdfast.agent
async def tidy(name: str) -> str:
    """Waits for a message; tidies up with two steps, of which the second ends when the test allows it."""
    try:
        await act("begins")
        return await holdfast.receive("go", str)
    except asyncio.CancelledError:
        await act("tidies")
        await held(f"{name}-tidy")
        raise


@holdfast.agent
async def family(name: str) -> None:
    """Three children; the last word is the parent's."""
    try:
        await asyncio.gather(*[tidy(f"{name}-{number}") for number in range(3)])
    finally:
        await act("last")


@holdfast.step
async def buy() -> bool:
    """Costs a cent; True when the test says that it is enough."""
    effect("buy")
    holdfast.spend(usd=0.01)
    await asyncio.sleep(0.02)
    return allowed("enough")


@holdfast.agent
async def buyer(number: int) -> int:
    bought = 1
    while not await buy():
        bought += 1
    return bought


@holdfast.agent
async def buyers(count: int) -> list[int]:
    return await asyncio.gather(*[buyer(number) for number in range(count)])


@holdfast.agent
async def unwilling(name: str) -> None:
    """Does not stop when told."""
    while True:
        try:
            await holdfast.receive("never")
        except asyncio.CancelledError:
            await act("no")


@holdfast.agent
async def roams(turns: int) -> list[str]:
    """Steps, waits for messages and parks, in turn; ends with the two messages it was sent."""
    found: list[str] = []
    try:
        for number in range(turns):
            await act(str(number), 0.01)
            with contextlib.suppress(TimeoutError):
                found.append(await holdfast.receive("m", str, timeout=0.05))
        while len(found) < 2:
            found.append(await holdfast.receive("m", str))
    except asyncio.CancelledError:
        await act("tidies")
        raise
    return sorted(found)


# Families


@holdfast.agent
async def kin(depth: int) -> None:
    """Steps that end at any time, each followed by a child, called or spawned, that has children of its own."""
    dice = holdfast.rng()

    async def line(number: int, takes_s: float) -> None:
        await act(f"{depth}.{number}", takes_s)
        if depth and number % 2:
            await holdfast.spawn(kin, depth - 1)
        elif depth:
            await kin(depth - 1)
        await holdfast.sleep("1h")

    try:
        await asyncio.gather(*[line(number, dice.random() * 0.1) for number in range(3)])
    except asyncio.CancelledError:
        if depth:  # else each child that is told to stop would start one more, for ever
            await holdfast.spawn(kin, 0)
        raise


# Asking a model


@holdfast.step(retry=holdfast.Retry.model, rate=holdfast.Rate("50/s", name="provider"))
def complete(prompt: str) -> str:
    """By the client that is imported soonest."""
    effect(prompt)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": prompt}]}).encode()
    with urllib.request.urlopen(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body) as answer:
        text = json.load(answer)["choices"][0]["message"]["content"]
    return str(text)


@holdfast.agent
async def asking(prompt: str) -> str:
    return await complete(prompt)


@holdfast.agent(queue="elsewhere")
async def asking_elsewhere(prompt: str) -> str:
    return await complete(prompt)


@holdfast.step
async def wait_and_work(takes_s: float) -> None:
    effect("work")
    while not allowed("go"):
        await asyncio.sleep(0.05)
    await asyncio.sleep(takes_s)


@holdfast.agent
async def patient(takes_s: float) -> int:
    await wait_and_work(takes_s)
    return 1


@holdfast.step
async def deadly(after_s: float) -> None:
    effect("deadly")
    await asyncio.sleep(after_s)
    os.kill(os.getpid(), signal.SIGKILL)


@holdfast.agent
async def poison(after_s: float) -> None:
    await deadly(after_s)
