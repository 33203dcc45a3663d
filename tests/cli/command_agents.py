"""Agents for the tests of the command line. Steps note in a ledger that they ran, and wait for files of the test."""

import asyncio
import contextlib
import json
import os
import signal
import time
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

import holdfast

FOLDER = Path(os.environ.get("FLEET", "."))


def tally(line):
    with (FOLDER / "ledger").open("a") as ledger:
        ledger.write(f"{line}\n")
    print(f"body: {line}", flush=True)  # noqa: T201 - the test waits for it


def wait_for(name):
    while not (FOLDER / name).exists():
        time.sleep(0.01)


@dataclass
class Report:
    title: str
    pages: list[int]


@holdfast.step
def double(n: int) -> int:
    return n * 2


@holdfast.step
def page(n: int) -> int:
    tally(f"page {n}")
    wait_for(f"go-{n}")
    return n


@holdfast.agent
async def twice(n: int, *, note: str = "") -> int:
    if note:
        await holdfast.note(note, n=n)
    return await double(n)


@holdfast.agent
async def read(pages: int) -> Report:
    return Report("read", await asyncio.gather(*[page(n) for n in range(pages)]))


@holdfast.agent
async def tidies(pages: int) -> Report:
    """Read, and when it is told to stop read a page more."""
    try:
        return Report("read", [await page(n) for n in range(pages)])
    finally:
        await page(pages)


@holdfast.agent
async def greet(name: str) -> str:
    return f"hello {name}"


async def branch(n):
    return await double(await double(n))


@holdfast.agent
async def parent(n: int) -> list[int]:
    found = await asyncio.gather(branch(n), branch(n + 1))
    return [*found, await twice(n, note="in the child")]


@holdfast.step(retry=holdfast.Retry(2, first=0.01))
def fragile(n: int) -> int:
    if (FOLDER / "mended").exists():
        return n
    raise ValueError(f"no good: {n}")


@holdfast.agent
async def hopeful(n: int) -> int:
    return await fragile(await double(n))


@holdfast.step(in_doubt="ask")
def pay(amount: int) -> str:
    tally(f"pay {amount}")
    if not (FOLDER / "paid").exists():
        (FOLDER / "paid").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


@holdfast.agent
async def payer(amount: int) -> str:
    return await pay(amount)


@holdfast.agent
async def listener() -> str:
    return await holdfast.receive("words", str)


@holdfast.agent
async def changing() -> int:
    return await fragile(await double(int((FOLDER / "number").read_text())))


@holdfast.agent
async def starter() -> str:
    await holdfast.spawn(read, 1)
    await holdfast.spawn(sleeper)
    return "started"


@holdfast.agent
async def deserting() -> None:
    await holdfast.spawn(read, 1)
    await fragile(1)


@holdfast.agent
async def sleeper() -> None:
    await holdfast.sleep("1h")


@holdfast.agent
async def caller() -> int:
    return await changing()


@holdfast.step
async def hog() -> None:
    tally("hog")
    wait_for("let-go")  # without an await: nothing else runs on this loop meanwhile


@holdfast.agent
async def hogger() -> None:
    await hog()


# Asking people


@dataclass
class Access:
    groups: list[str]


@holdfast.agent
async def privileges(name: str) -> str:
    wanted = Access(["dev"])
    decision = await holdfast.approve(f"Make {name} one of these?", show=wanted, edit=True, to="it", expires="2 days")
    return f"{bool(decision)} {decision.by} {decision.note} {decision.data.groups}"


@dataclass
class Price:
    eur: Annotated[Decimal, Field(ge=0)]


@holdfast.agent
async def sale() -> str:
    return str((await holdfast.approve("Sell for this?", show=Price(Decimal("9.90")), edit=True)).data.eur)


@holdfast.agent
async def onboard(name: str) -> str:
    return await privileges(name)


@holdfast.agent
async def seats() -> int:
    return await holdfast.ask("How many seats?", int)


@holdfast.agent
async def shared() -> str:
    decision = await holdfast.approve("Share this?", show=Access(["dev"]), edit=True, needs=2)
    return f"{decision.data.groups} {[vote.by for vote in decision.votes]}"


@holdfast.agent
async def certain() -> bool:
    return await holdfast.ask("Are you sure?", bool)


@holdfast.agent
async def agreed() -> str:
    return await holdfast.ask("Do you agree?", Literal["yes", "no"])


# Failing


@holdfast.step
def parse(text: str) -> str:
    return json.loads(text)


@holdfast.agent
async def parsing(text: str) -> str:
    return await parse(text)


@holdfast.agent
async def trusting(text: str) -> str:
    return await parsing(text)


@holdfast.agent
async def hurried(text: str) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(parse(text))


@holdfast.agent
async def careful(text: str) -> str:
    try:
        return await parse(text)
    except holdfast.StepFailed:
        await page(0)
        return "never mind"


# Much of the same


async def checked(n: int) -> None:
    with contextlib.suppress(ValueError):
        await check(n)


@holdfast.step
async def check(n: int) -> int:
    if n % 20 == 15:
        raise ValueError(f"{n} is not good")
    return n


@holdfast.agent
async def many(count: int) -> None:
    for n in range(count):
        await double(n)
    await holdfast.progress(count, count * 2, "pages")
    await asyncio.gather(*[checked(n) for n in range(count)])
    await page(0)
