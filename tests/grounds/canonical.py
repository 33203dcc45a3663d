"""An agent that does a little of everything, with a ledger of its bodies on disk: workers that are killed run it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import holdfast
from holdfast import Local, Retry

PACE_S = 0.1


@dataclass
class Draft:
    text: str
    n: int = 1


class Refused(Exception):
    """Is declared by the step that raises it."""


def wrote(what: str) -> None:
    """One line of the ledger, in one write."""
    step = holdfast.this_step()
    line = f"{time.time():.6f}\t{what}\t{step.run.id}\t{step.key}\t{step.idempotency_key}\n"
    ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, line.encode())
    os.close(ledger)


@holdfast.step
async def look(what: str) -> str:
    wrote("begin")
    await asyncio.sleep(PACE_S)
    wrote("end")
    return what


@holdfast.step(retry=Retry(3, first="0.1s"))
async def flaky(n: int) -> int:
    wrote("begin")
    if holdfast.this_step().attempt < 3:
        raise ConnectionError("not yet")
    return n


@holdfast.step(raises=(Refused,), retry=1)
async def refuses(n: int) -> int:
    wrote("begin")
    raise Refused(f"{n} is refused")


@holdfast.step
async def shouts(loud: Local[Callable[[str], str]], what: str) -> str:
    wrote("begin")
    await asyncio.sleep(PACE_S)
    return loud(what)


@holdfast.step
async def nothing(n: int) -> int:
    return n


@holdfast.agent
async def child(n: int) -> int:
    return len(await look("x" * n))


@holdfast.agent
async def canonical(topic: str) -> dict[str, Any]:
    out: dict[str, Any] = {"sequence": [await look(f"{topic}-{n}") for n in range(3)]}

    async def branch(n: int) -> list[str]:
        return [await look(f"{n}-{m}") for m in range(2)]

    out["gather"] = await asyncio.gather(*(branch(n) for n in range(3)))
    first, late = asyncio.create_task(look("first")), asyncio.create_task(slow("late"))
    await asyncio.wait([first, late], return_when=asyncio.FIRST_COMPLETED)
    late.cancel()
    out["race"] = first.result()
    try:
        await asyncio.wait_for(slow("too long"), 0.3)
    except TimeoutError:
        out["wait_for"] = "timed out"
    out["message"] = await holdfast.receive("go", str)
    decision = await holdfast.approve("Send it?", show=Draft(topic), edit=True)
    out["approved"] = [bool(decision), decision.data.text, decision.by]
    out["children"] = await asyncio.gather(child(3), child(4))
    out["flaky"] = await flaky(42)
    try:
        await refuses(3)
    except Refused as error:
        out["refused"] = str(error)
    mark = "!"
    out["shouts"] = await shouts(lambda text: text.upper() + mark, "hey")
    with holdfast.scope("end"):
        out["scoped"] = await look("scoped")
    return out


@holdfast.agent
async def traveller(topic: str) -> dict[str, Any]:
    """Waits twice, so that it can be carried elsewhere in the middle."""
    out: dict[str, Any] = {"first": [await look(f"{topic}-{n}") for n in range(2)], "child": await child(3)}
    out["message"] = await holdfast.receive("go", str)
    out["second"] = await asyncio.gather(look("a"), look("b"))
    decision = await holdfast.approve("Send it?", show=Draft(topic), edit=True)
    out["approved"] = [decision.data.text, decision.by]
    out["last"] = await look("last")
    return out


@holdfast.agent
async def hears() -> str:
    return await holdfast.receive("go", str)


@holdfast.agent
async def above() -> str:
    return f"above: {await hears()}"


@holdfast.agent
async def collects() -> list[str]:
    found: list[str] = []
    while (text := await holdfast.receive("mail", str)) != "end":
        found.append(text)
    return found


TRAVELLED = {
    "first": ["otters-0", "otters-1"], "child": 3, "message": "now", "second": ["a", "b"], "approved": ["edited", "ann"],
    "last": "last",
}  # fmt: skip


@holdfast.step
async def slow(what: str) -> str:
    wrote("begin")
    await asyncio.sleep(30)
    return what


EXPECTED = {
    "sequence": ["otters-0", "otters-1", "otters-2"], "gather": [[f"{n}-0", f"{n}-1"] for n in range(3)], "race": "first",
    "wait_for": "timed out", "message": "now", "approved": [True, "edited", "ann"], "children": [3, 4], "flaky": 42,
    "refused": "3 is refused", "shouts": "HEY!", "scoped": "scoped",
}  # fmt: skip


@holdfast.agent
async def long(steps: int) -> int:
    """Takes no checkpoint, however long it is."""
    total = 0
    for n in range(steps):
        total += await nothing(n)
    return total


@holdfast.step
async def large(megabytes: float) -> str:
    return "x" * int(megabytes * 1_000_000)


@holdfast.agent
async def carries(megabytes: float) -> int:
    first = await large(megabytes)
    await holdfast.sleep("0.05s")
    return len(first)
