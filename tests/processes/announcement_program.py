"""Workers whose agents publish, are started by announcements and wait for them; killed with -9 by the test."""

import asyncio

import holdfast


@holdfast.step
async def sell(order: int) -> int:
    await holdfast.publish("sold", {"order": order, "by": "step"})
    return order


@holdfast.agent
async def shop(first: int, count: int) -> int:
    for order in range(first, first + count):
        await holdfast.publish("sold", {"order": order, "by": "agent"})
        await sell(order)
    return count


@holdfast.step
async def packed(sales: list[dict]) -> list[str]:
    return [f"{sale['order']} by {sale['by']}" for sale in sales]


@holdfast.agent(on=holdfast.On("sold"))
async def ship(sale: dict) -> list[str]:
    return await packed([sale])


@holdfast.agent(on=holdfast.On("sold", batch=holdfast.Batch(7, "0.2s")))
async def load(sales: list[dict]) -> list[str]:
    return await packed(sales)


@holdfast.agent(on=holdfast.On("sold", if_=lambda event: event.value["by"] == "agent", debounce="10ms", by="order"))
async def bill(sale: dict) -> list[str]:
    return await packed([sale])


@holdfast.agent
async def watch(by: str) -> list[str]:
    seen: list[str] = []
    await holdfast.note("begun")
    while True:
        sale = (await holdfast.next_event("sold", match={"by": by})).value
        if sale["order"] < 0:
            return seen
        seen += await packed([sale])


ALL = [shop, ship, load, bill, watch]


def warm_up():
    """What a worker needs, before it is forked."""
    for spec in ALL:
        spec.spec.signature.schema()


def serve(parent, url):
    """A worker, until it is killed."""

    async def main():
        async with holdfast.open(url, agents=ALL):
            parent.say(ready=True)
            await parent.told(asyncio.get_running_loop())

    asyncio.run(main())
