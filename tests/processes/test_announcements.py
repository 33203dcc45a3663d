"""Workers killed with -9 while agents publish and wait: each announcement reaches each that waits for it, once."""

import asyncio
import random
import time
from collections import Counter

import pytest
from tests.processes.announcement_program import ALL, serve

import holdfast

MANY, FEW = (4, 12), (2, 4)  # shops, and what each sells


async def open_shops(url, shops, sales, kill):
    """Start what waits, then what publishes; `kill` while it does."""
    async with holdfast.open(url) as hf:
        watchers = [await hf.start("watch", by, id=f"watch-{by}") for by in ("agent", "step", "key")]
        for watcher in watchers:
            async for event in watcher.events():
                if event.kind == "announcement.awaited":
                    break
        for number in range(shops):
            await hf.start("shop", number * sales, sales, id=f"shop-{number}")
        await asyncio.to_thread(kill)
        for order in range(sales):
            for _ in range(2):
                await hf.publish("sold", {"order": order, "by": "key"}, key=str(order))


async def all_heard(url, shops, sales):
    """What each came to, when all is over."""
    async with holdfast.open(url, agents=ALL) as hf:
        for number in range(shops):
            shop = hf.get(f"shop-{number}")
            # On a busy machine it may be killed five times before it gets on.
            if (await shop.info()).status == "paused":
                await shop.resume()
            assert await shop.result(timeout=60) == sales
        for by in ("agent", "step", "key"):
            await hf.publish("sold", {"order": -1, "by": by}, key=f"end-{by}")
        watched = {by: await hf.get(f"watch-{by}").result(timeout=60) for by in ("agent", "step", "key")}
        while await hf.store.next_announcement() != (None, None) or any(info.waiting for info in await hf.triggers()):
            await asyncio.sleep(0.05)
        heard = {"ship": [], "load": [], "bill": []}
        for agent, told in heard.items():
            for info in await hf.runs(agent=agent, limit=1000):
                told += await hf.get(info.id).result(timeout=60)
        dead = [(info.name, info.waiting, info.dead) for info in await hf.triggers() if info.waiting or info.dead]
        return watched, heard, dead


@pytest.mark.slow
@pytest.mark.by_day("postgres-1")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kills", [1, 30])
def test_each_announcement_reaches_each_that_waits_once(forks, store_url, kills, request):
    """Published in agents, in steps and from outside; runs are started one by one, by lists, and when it is quiet."""
    shops, sales = MANY if kills > 1 else FEW

    def begun():
        worker = forks.start(serve, url=store_url)
        assert worker.read() == {"ready": True}
        return worker

    dice, workers = random.Random(5), [begun(), begun()]

    def kill():
        for number in range(kills):
            time.sleep(dice.uniform(0.0, 0.15))  # the moment of death: nothing waits for it
            workers.pop(0).kill()
            if number % 3 == 2:
                workers.pop(0).kill()
                workers.append(begun())
            workers.append(begun())

    asyncio.run(open_shops(store_url, shops, sales, kill))
    for worker in workers:
        worker.kill()
    watched, heard, dead = asyncio.run(all_heard(store_url, shops, sales))
    sold = {by: [f"{order} by {by}" for order in range(shops * sales)] for by in ("agent", "step")}
    sold["key"] = [f"{order} by key" for order in range(sales)]
    for by, seen in watched.items():
        assert sorted(seen) == sorted(sold[by])
        for number in range(shops):  # of one publisher in its order
            orders = [int(sale.split()[0]) for sale in seen]
            own = [order for order in orders if number * sales <= order < (number + 1) * sales]
            assert own == sorted(own)
    everything = Counter([*sold["agent"], *sold["step"], *sold["key"], "-1 by agent", "-1 by step", "-1 by key"])
    assert Counter(heard["ship"]) == everything
    assert Counter(heard["load"]) == everything
    assert Counter(heard["bill"]) == Counter([*sold["agent"], "-1 by agent"])
    assert dead == []
    request.node.user_properties.append(("kills", kills))
