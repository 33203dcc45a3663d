"""Flow control of real agents, on both stores: how many at once, how often, what first, and one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter

import pytest

import holdfast
from holdfast import Limit, Rate, RunExists, Settings
from holdfast.words.limits import interval_us

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {
    "test_a_crash_frees_slots_and_keeps_turns",
    "test_a_limit_of_a_step",
    "test_a_rate_of_a_step",
    "test_a_rate_of_an_agent",
    "test_a_singleton",
}

QUICK = Settings(park_grace_s=0.05)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    return f"sqlite:{tmp_path / 'runs.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


class Bodies:
    """Counts the bodies that run at once, and notes when each began."""

    def __init__(self):
        self.now, self.most, self.began = Counter(), Counter(), []

    async def run(self, key="", seconds=0.02):
        self.began.append((key, time.time()))
        self.now[key] += 1
        self.most[key] = max(self.most[key], self.now[key])
        try:
            await asyncio.sleep(seconds)
        finally:
            self.now[key] -= 1


def started(url, agents, *starts, workers=2, **settings):
    """Start runs (agent, arguments) and wait for their results, with several workers on one store."""

    async def main():
        async with asyncio.timeout(40), contextlib.AsyncExitStack() as stack:
            hf = await stack.enter_async_context(holdfast.open(url))
            runs = [await hf.start(agent, *arguments) for agent, arguments in starts]
            for _ in range(workers):
                await stack.enter_async_context(holdfast.open(url, agents=agents, settings=Settings(**settings)))
            results = [await hf.get(run.id).result() for run in runs]
            return results, [[event async for event in run.events(follow=False)] for run in runs]

    return asyncio.run(main())


def test_a_limit_of_an_agent(url):
    """Two workers carry twelve runs of two customers, never more than two of one customer at once, and all end."""
    bodies = Bodies()

    @holdfast.step
    async def work(customer: str) -> str:
        await bodies.run(customer)
        return customer

    @holdfast.agent(limit=Limit(2, per="customer"))
    async def mail(customer: str, number: int) -> str:
        return await work(customer)

    results, _ = started(url, [mail], *[(mail, (customer, n)) for n in range(6) for customer in "ab"])
    assert results == ["a", "b"] * 6
    assert bodies.most == {"a": 2, "b": 2}


def test_a_limit_of_a_step(url):
    """Bodies of one step in runs of two workers: never more at once than its limit, and all are done."""
    bodies = Bodies()

    @holdfast.step(limit=3)
    async def work(number: int) -> int:
        await bodies.run()
        return number

    @holdfast.agent
    async def many(numbers: list[int]) -> list[int]:
        return list(await asyncio.gather(*[work(number) for number in numbers]))

    results, _ = started(
        url, [many], *[(many, ([n, n + 1, n + 2, n + 3],)) for n in range(0, 16, 4)], park_grace_s=0.05
    )
    assert sorted(number for numbers in results for number in numbers) == list(range(16))
    assert bodies.most[""] == 3


def test_a_limit_of_a_step_is_per_value(url):
    """With `per`, bodies with another value have slots of their own."""
    bodies = Bodies()

    @holdfast.step(limit=Limit(1, per="customer"))
    async def work(customer: str, number: int) -> int:
        await bodies.run(customer)
        await bodies.run("all", 0)
        return number

    @holdfast.agent
    async def many() -> list[int]:
        return list(await asyncio.gather(*[work(customer, n) for n in range(3) for customer in "abc"]))

    started(url, [many], (many, ()), workers=1)
    assert [bodies.most[customer] for customer in "abc"] == [1, 1, 1]


def test_a_rate_of_a_step_gives_what_it_declares(url):
    """In real time, by two workers with sixty calls that all wait: in no window more, however busy the computer is.

    That they are 97 % at least is shown with a clock of the test's own, in tests/store.
    """

    @holdfast.step(rate="20/s")
    async def work(number: int) -> int:
        return number

    @holdfast.agent
    async def many(first: int) -> list[int]:
        return list(await asyncio.gather(*[work(first + number) for number in range(30)]))

    _, histories = started(url, [many], (many, (0,)), (many, (30,)))
    began = sorted(event.data["began"] for events in histories for event in events if event.kind == "step.completed")
    assert len(began) == 60
    for first in began:
        assert sum(first <= at < first + 1000 for at in began) <= 20


async def test_a_body_whose_turn_is_late_begins_when_the_store_knows(url):
    """The turn a window behind it must find that, however long the commit takes; one that takes too long loses its turn."""
    began, told = [], asyncio.Event()

    @holdfast.step(rate=Rate(1, every="1s"))
    async def work(number: int) -> int:
        began.append((number, told.is_set()))
        return number

    @holdfast.agent
    async def two() -> list[int]:
        return [await work(1), await work(2)]

    async with holdfast.open(url, agents=[two]) as hf:
        use_late, noted = hf.store.use_late, []

        async def slowly(*args):
            noted.append(list(began))
            await asyncio.sleep(0.1)
            told.set()
            await use_late(*args)

        hf.store.use_late = slowly
        for _ in range(10):
            began.clear(), told.clear(), noted.clear()
            run = await hf.start(two)
            while not began:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.9)
            time.sleep(0.25)  # the whole process stands still when the turn comes
            assert await run.result(timeout=20) == [1, 2]
            if noted and noted[0]:  # else the turn was lost, or the first one was late too: the machine was slow
                break
        assert noted[0] == [(1, False)]
        assert began == [(1, False), (2, True)]


def test_a_rate_of_a_step(url):
    """Bodies begin at the step's rate over all workers; who waits is in the history with its time."""

    @holdfast.step(rate=Rate(5, every="500ms"))
    async def work(number: int) -> int:
        return number

    @holdfast.agent
    async def many(numbers: list[int]) -> list[int]:
        return list(await asyncio.gather(*[work(number) for number in numbers]))

    results, histories = started(url, [many], (many, ([1, 2, 3],)), (many, ([4, 5, 6],)), park_grace_s=0.0)
    assert results == [[1, 2, 3], [4, 5, 6]]
    events = [event for history in histories for event in history]
    began = sorted(event.data["began"] for event in events if event.kind == "step.completed")
    for first in began:
        assert sum(first <= at < first + 500 for at in began) <= 5
    assert began[-1] - began[0] >= 5 * interval_us(5, 500) / 1000 - 10  # evenly apart, late by the slack at most
    held = [event for event in events if event.kind == "step.held"]
    # The calls of one run ask together: only the first may have its turn at once. A turn that comes too late is held again.
    assert len({(event.run, event.key) for event in held}) >= 4
    assert all(event.data["at"] > event.at.timestamp() * 1000 - 250 for event in held)


async def test_a_rate_of_an_agent(url):
    """Runs begin at their rate, in the order in which they were started."""

    @holdfast.agent(rate="20/s")
    async def quick(number: int) -> int:
        return number

    async with holdfast.open(url, agents=[quick]) as hf:
        runs = [await hf.start(quick, number) for number in range(6)]
        assert [await run.result(timeout=20) for run in runs] == list(range(6))
        infos = [await run.info() for run in runs]
        began = [info.started_at.timestamp() * 1000 for info in infos]
        assert began == sorted(began)
        assert began[-1] - began[0] >= 5 * 50


async def test_priorities(url):
    """Of what waits when a worker comes, the highest level begins first."""
    order = []

    @holdfast.agent(priority=1)
    async def low(number: int) -> None:
        order.append(f"low {number}")

    @holdfast.agent
    async def normal(number: int) -> None:
        order.append(f"normal {number}")

    @holdfast.agent(priority=9)
    async def high(number: int) -> None:
        order.append(f"high {number}")

    async with holdfast.open(url) as hf:
        runs = [await hf.start(agent, number) for number in range(2) for agent in (low, normal, high)]
    async with holdfast.open(url, agents=[low, normal, high], settings=Settings(concurrency=1)) as hf:
        for run in runs:
            await hf.get(run.id).result(timeout=20)
    assert order == ["high 0", "high 1", "normal 0", "normal 1", "low 0", "low 1"]


async def test_a_singleton(url):
    """Fifty starts at once are one run; another customer has another; with an id of its own it is `RunExists`."""

    @holdfast.agent(singleton="customer")
    async def sync(customer: str, number: int = 0) -> str:
        return await holdfast.receive("go", str)

    async with holdfast.open(url, agents=[sync]) as hf, holdfast.open(url) as other:
        runs = await asyncio.gather(*[(hf, other)[n % 2].start(sync, "ana", n) for n in range(50)])
        assert len({run.id for run in runs}) == 1
        assert (await other.start("sync", "ana")).id == runs[0].id  # by name, without the code
        assert (await hf.start(sync, "bo")).id != runs[0].id
        with pytest.raises(RunExists, match=f"{runs[0].id}.*has not ended.*'mine' was not started"):
            await hf.start(sync, "ana", id="mine")
        await runs[0].send("go", "went")
        assert await runs[0].result(timeout=20) == "went"
        assert (await hf.start(sync, "ana")).id != runs[0].id


async def test_children_are_let_through_like_others(url):
    """Children of an agent with a limit, and of a singleton, run so many at a time, in the queue of their agent."""
    bodies = Bodies()

    @holdfast.step
    async def work(key: str) -> str:
        await bodies.run(key)
        return key

    @holdfast.agent(limit=2, queue="side")
    async def limited(number: int) -> str:
        return await work("limited")

    @holdfast.agent(singleton=True)
    async def single(number: int) -> str:
        return await work("single")

    @holdfast.agent
    async def parent() -> int:
        calls = [agent(number) for number in range(4) for agent in (limited, single)]
        return len(await asyncio.gather(*calls))

    async with holdfast.open(url, agents=[parent], settings=QUICK) as hf:
        run = await hf.start(parent, id="p")
        assert await run.result(timeout=30) == 8
        rows = await hf.store.runs(parent="p")
        assert {(row.agent, row.queue) for row in rows} == {("limited", "side"), ("single", "default")}
    assert bodies.most == {"limited": 2, "single": 1}


async def test_what_a_held_run_waits_for(url):
    """A run without a slot says 'slot', one before its turn 'rate' and when."""

    @holdfast.agent(limit=1, rate="1/h")
    async def slow() -> None:
        await holdfast.receive("go")

    @holdfast.agent(limit=1)
    async def one() -> None:
        await asyncio.sleep(30)

    async with holdfast.open(url, agents=[slow, one], settings=Settings(stop_grace_s=0)) as hf:
        await (await hf.start(one)).wait("running")
        second = await hf.start(one)
        await (await hf.start(slow)).wait("waiting", timeout=20)
        third = await hf.start(slow)
        async with asyncio.timeout(20):
            while (await second.info()).waits_for != "slot" or (await third.info()).waits_for != "rate":
                await asyncio.sleep(0.01)
        info = await third.info()
        assert info.status == "ready"
        assert 3000 < (info.due_at - info.created_at).total_seconds() < 4000


async def test_a_crash_frees_slots_and_keeps_turns(url):
    """A worker dies with bodies in their slots and a turn reserved: another goes on at once, and takes no turn twice."""
    bodies = Counter()

    @holdfast.step(limit=1)
    async def work(name: str) -> str:
        bodies[name] += 1
        if bodies[name] == 1 and name == "a":
            await asyncio.sleep(60)
        return name

    @holdfast.step(rate="1/s")
    async def paced(number: int) -> int:
        return number

    @holdfast.agent
    async def both() -> list[object]:
        numbers = await asyncio.gather(paced(1), paced(2))
        return [*numbers, await work("a")]

    dead = holdfast.open(url, agents=[both])
    await dead.__aenter__()
    run = await dead.start(both, id="r")
    async with asyncio.timeout(20):
        while not bodies["a"]:
            await asyncio.sleep(0.01)
    await dead._worker.abandon()
    dead.store.abandon()
    async with holdfast.open(url, agents=[both]) as hf:
        assert await hf.get(run.id).result(timeout=20) == [1, 2, "a"]
        kinds = [event.kind async for event in hf.get(run.id).events(follow=False)]
        crash = kinds.index("run.interrupted")
        assert "step.held" in kinds[:crash]
        assert "step.held" not in kinds[crash:]
    assert bodies["a"] == 2


async def test_a_turn_that_is_known_is_not_taken_again(url):
    """After a crash during the wait, the turn of the journal is used: the run goes on at that time."""

    @holdfast.step(rate=Rate(1, every="5s"))  # a turn is lost half a second after its time, however slow the machine is
    async def paced(number: int) -> int:
        return number

    @holdfast.agent
    async def both() -> list[int]:
        return [await paced(1), await paced(2)]

    dead = holdfast.open(url, agents=[both])
    await dead.__aenter__()
    run = await dead.start(both, id="r")
    async with asyncio.timeout(20):
        async for event in run.events():
            if event.kind == "step.held":
                break
    await dead._worker.abandon()
    dead.store.abandon()
    async with holdfast.open(url, agents=[both]) as hf:
        assert await hf.get(run.id).result(timeout=20) == [1, 2]
        events = [event async for event in hf.get(run.id).events(follow=False)]
        held = [event.data["at"] for event in events if event.kind == "step.held"]
        began = [event.data["began"] for event in events if event.kind == "step.completed"]
        assert len(held) == 1
        assert held[0] <= began[1] < held[0] + 5000
