"""Agents that are recorded and replayed here. Their steps write a file, so that a body that runs is noticed."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import holdfast

LEDGER: list[Path] = []  # where bodies write, while a test wants to know


def ran(what):
    for file in LEDGER:
        with file.open("a") as ledger:
            ledger.write(f"{what}\n")


@dataclass
class Order:
    item: str
    price: int = 0
    tags: list[str] = field(default_factory=list)


@holdfast.step
async def look(item: str) -> Order:
    ran("look")
    return Order(item, len(item), ["new"])


@holdfast.step
def pay(order: Order) -> str:
    ran("pay")
    return f"paid {order.price}"


@holdfast.step
async def fails(text: str) -> None:
    ran("fails")
    raise ValueError(text)


@holdfast.agent
async def shop(item: str) -> str:
    order = await look(item)
    receipt = await pay(order)
    answer = await holdfast.approve("Send it?", show=receipt)
    return f"{receipt}, {'sent' if answer else 'kept'}"


@holdfast.agent
async def both(item: str) -> list[str]:
    async def one(n: int) -> str:
        order = await look(f"{item} {n}")
        await holdfast.sleep("1h")
        return order.item

    return await asyncio.gather(*[one(n) for n in range(3)])


@holdfast.agent
async def rounds(count: int) -> int:
    state = await holdfast.restore(Order("none"))
    while state.price < count:
        found = await look("x" * (state.price + 1))
        state.price = found.price
        await holdfast.checkpoint(state)
    await holdfast.receive("go", str)
    return state.price


@holdfast.agent
async def stumbles(text: str) -> str:
    try:
        await fails(text)
    except ValueError as error:
        await pay(Order(str(error)))
        raise


@holdfast.agent
async def parent(item: str) -> str:
    return await shop(item) + "!"
