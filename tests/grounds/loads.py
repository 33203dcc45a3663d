"""Agents that record, ask and begin more than a cluster takes at once."""

from __future__ import annotations

import asyncio
import base64
import os

import holdfast


@holdfast.step
async def noise(size: int) -> str:
    """Returns what cannot be compressed."""
    return base64.b85encode(os.urandom(size * 4 // 5)).decode()


@holdfast.step
async def measure(n: int, text: str) -> int:
    return len(text)


refused: list[bool] = []


@holdfast.step
async def refuse() -> None:
    if refused:
        refused.clear()
        raise holdfast.Permanent("not now")


@holdfast.agent
async def heavy(steps: int, fails: bool = False) -> int:
    total = 0
    for _ in range(steps):
        total += len(await noise(900_000))
    if fails:
        await refuse()
    await holdfast.receive("go", str)
    return total


@holdfast.agent
async def spread(calls: int, size: int) -> int:
    return sum(await asyncio.gather(*(measure(n, "x" * size) for n in range(calls))))


@holdfast.agent
async def gathers(calls: int, size: int) -> int:
    return sum(map(len, await asyncio.gather(*(noise(size) for _ in range(calls)))))


@holdfast.agent
async def child_of_many(text: str) -> int:
    return len(text)


@holdfast.agent
async def begets(children: int, size: int) -> int:
    return sum(await asyncio.gather(*(child_of_many("x" * size) for _ in range(children))))


@holdfast.agent
async def asks_much(questions: int, size: int) -> int:
    asked = (holdfast.approve(f"q{n}", show=f"{n}".zfill(size)) for n in range(questions))
    return sum(map(bool, await asyncio.gather(*asked)))


@holdfast.agent
async def hears_much(messages: int) -> int:
    await holdfast.receive("go", str)
    return sum([len(await holdfast.receive("text", str)) for _ in range(messages)])


@holdfast.agent
async def asks_texts(questions: int) -> int:
    return sum(map(len, await asyncio.gather(*(holdfast.ask(f"q{n}", str) for n in range(questions)))))


@holdfast.agent
async def asks_edit() -> int:
    decision = await holdfast.approve("send it?", show={"text": "a"}, edit=True)
    return len(decision.data["text"])


@holdfast.agent
async def hears_text() -> int:
    return len(await holdfast.receive("text", str))


begun: list[int] = []


@holdfast.agent
async def tells_much(size: int) -> str:
    await holdfast.note("much", text="m" * size)
    decision = await holdfast.approve("send it?", show={"text": '"' * 450_000}, edit=True, needs=2)
    return decision.data["text"]


@holdfast.agent
async def asks_often(times: int) -> int:
    state = await holdfast.restore({"n": 0})
    while state["n"] < times:
        await holdfast.approve(f"q{state['n']}")
        state = await holdfast.checkpoint({"n": state["n"] + 1})
    return state["n"]


@holdfast.step
async def complain(size: int) -> None:
    begun.append(size)
    try:
        raise KeyError("m" * size)
    except KeyError as error:
        raise ValueError("m" * size) from error


@holdfast.agent
async def complains(size: int) -> str:
    try:
        await complain(size)
    except ValueError as error:
        return str(error)
    return ""


@holdfast.step
async def nap(n: int) -> int:
    begun.append(n)
    await asyncio.sleep(0.3)
    return n


@holdfast.agent
async def naps(many: int) -> int:
    return sum(await asyncio.gather(*(nap(n) for n in range(many))))


@holdfast.agent
async def begets_one(text: str, times: int) -> str:
    try:
        return str(await child_of_many(text * times))
    except holdfast.RunFailed as error:
        return str(error)
