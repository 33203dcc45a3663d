"""Agents whose steps take random times: the shapes of concurrency that must resume to the same results and winners."""

import asyncio
import random

import holdfast

noise = random.Random()


async def _nap():
    await asyncio.sleep(noise.choice([0, 0, noise.random() * 0.004]))


@holdfast.step
async def search(q: str) -> str:
    await _nap()
    return f"found {q}"


@holdfast.step
async def summarise(text: str) -> str:
    await _nap()
    return f"short {text}"


@holdfast.step
async def save(text: str) -> str:
    await _nap()
    return f"saved {text}"


@holdfast.step
async def work(what: str) -> str:
    await _nap()
    return what


async def branch(q: str) -> str:
    return await save(await summarise(await search(q)))


@holdfast.agent
async def parallel() -> list[str]:
    return list(await asyncio.gather(*(branch(q) for q in "xyz")))


async def deep(levels: int, name: str) -> str:
    if levels == 0:
        return await work(await work(name))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(deep(levels - 1, name))
        group.create_task(work(f"beside {name}"))
    return task.result()


@holdfast.agent
async def nested() -> list[str]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(deep(n, f"n{n}")) for n in range(4)]
    return [task.result() for task in tasks]


@holdfast.agent
async def races() -> list[str]:
    out = []
    for round_ in range(3):
        tasks = [asyncio.create_task(deep(n, f"r{round_}.{n}")) for n in range(3)]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        out.append(await work("+".join(sorted(task.result() for task in done))))
    for next_done in asyncio.as_completed([asyncio.create_task(deep(n, f"c{n}")) for n in range(4)]):
        out.append(await next_done)
        out.append(await work(f"after {out[-1]}"))
    return out


@holdfast.agent
async def queues() -> list[str]:
    queue: asyncio.Queue[str] = asyncio.Queue(maxsize=2)
    limit = asyncio.Semaphore(2)

    async def produce(n: int) -> None:
        for item in range(3):
            async with limit:
                await queue.put(await work(f"{n}.{item}"))

    producers = [asyncio.create_task(produce(n)) for n in range(3)]
    out = [await work(f"got {await queue.get()}") for _ in range(9)]
    await asyncio.gather(*producers)
    return out


@holdfast.agent
async def cancellation() -> list[str]:
    out = []

    async def worker(name: str) -> str:
        try:
            await work(f"{name} one")
            await work(f"{name} two")
            await work(f"{name} three")
        except asyncio.CancelledError:
            out.append(await work(f"{name} cleaned up"))
            raise
        return name

    for round_ in range(3):
        tasks = [asyncio.create_task(worker(f"{round_}.{n}")) for n in range(3)]
        out.append(await work(f"round {round_}"))
        tasks[round_].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        out.append(",".join(r if isinstance(r, str) else "cancelled" for r in results))
        try:
            async with asyncio.timeout(0.002):
                out.append(await work("in time"))
        except TimeoutError:
            out.append("late")
    return out


ALL = {agent.name: agent for agent in (parallel, nested, races, queues, cancellation)}
