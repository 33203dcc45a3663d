"""Agents that do not want to leave: they swallow, spin, ignore cancellation, and act in `finally`.

Each does one step, waits for a message in its own bad manner, and does one more step. Left in memory or resumed in any
life, `effect` must have run once in all, after the message; what `finally` may do is noted in `cleaned`.
"""

import asyncio
import contextlib

import holdfast

cleaned: list[str] = []


@holdfast.step
async def prepare() -> str:
    return "prepared"


@holdfast.step
async def effect(what: str) -> str:
    return what


@holdfast.agent
async def swallows_everything() -> str:
    await prepare()
    while True:
        try:
            text = await holdfast.receive("go", str)
            break
        except BaseException:
            continue
    return await effect(text)


@holdfast.agent
async def swallows_around_every_verb() -> str:
    await prepare()
    text = ""
    while not text:
        for verb in (
            lambda: holdfast.receive("go", str),
            lambda: effect("never"),
            lambda: holdfast.sleep("1s"),
            lambda: holdfast.note("never"),
            lambda: asyncio.sleep(0),
        ):
            try:
                text = await verb() or text
                break
            except BaseException:
                continue
    return await effect(text)


@holdfast.agent
async def returns_when_interrupted() -> str:
    await prepare()
    try:
        text = await holdfast.receive("go", str)
    except BaseException:
        return "interrupted"
    return await effect(text)


@holdfast.agent
async def fails_when_interrupted() -> str:
    await prepare()
    try:
        text = await holdfast.receive("go", str)
    except BaseException:
        raise ValueError("interrupted") from None
    return await effect(text)


@holdfast.agent
async def gathers_exceptions() -> str:
    await prepare()

    async def listens() -> str:
        return await holdfast.receive("go", str)

    while True:
        first, _ = await asyncio.gather(listens(), prepare(), return_exceptions=True)
        if isinstance(first, str):
            return await effect(first)


@holdfast.agent
async def acts_in_finally() -> str:
    await prepare()
    text = ""
    try:
        text = await holdfast.receive("go", str)
    finally:
        text = await effect(text or "never")
    return text


@holdfast.agent
async def cleans_up_locally() -> str:
    await prepare()
    try:
        text = await holdfast.receive("go", str)
    finally:
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        async with asyncio.timeout(5):
            await asyncio.sleep(0.001)
        await asyncio.wait_for(asyncio.sleep(0.001), 5)
        await asyncio.gather(asyncio.sleep(0.001), asyncio.sleep(0))
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0.001))
        cleaned.append("local")
    return await effect(text)


@holdfast.agent
async def spins_when_interrupted() -> str:
    await prepare()
    try:
        text = await holdfast.receive("go", str)
    except BaseException:
        while True:
            with contextlib.suppress(BaseException):
                await asyncio.sleep(0)
    return await effect(text)


@holdfast.agent
async def spins_on_tasks_when_interrupted() -> str:
    await prepare()

    async def nothing() -> None:
        await asyncio.sleep(0)

    try:
        text = await holdfast.receive("go", str)
    except BaseException:
        while True:
            with contextlib.suppress(BaseException):
                await asyncio.create_task(nothing())
    return await effect(text)


@holdfast.agent
async def has_tasks_that_ignore_cancellation() -> str:
    await prepare()
    over = asyncio.Event()

    async def stubborn() -> None:
        while not over.is_set():
            try:
                await over.wait()
            except BaseException:
                continue

    tasks = [asyncio.create_task(stubborn()) for _ in range(3)]
    text = await holdfast.receive("go", str)
    over.set()
    await asyncio.gather(*tasks)
    return await effect(text)


@holdfast.agent
async def iterates_generators() -> str:
    await prepare()

    async def numbers():
        try:
            for n in range(10):
                yield n
        finally:
            await asyncio.sleep(0)
            cleaned.append("generator")
            await effect("never")

    @contextlib.asynccontextmanager
    async def manager():
        try:
            yield
        finally:
            await asyncio.sleep(0.001)
            cleaned.append("manager")

    async with manager():
        stream = numbers()
        async for _ in stream:
            text = await holdfast.receive("go", str)
            break
        kept = stream  # closed below by hand in the end, and by nobody when the run leaves
    with contextlib.suppress(Exception):
        await kept.aclose()
    return text


@holdfast.agent
async def shields_and_groups() -> str:
    await prepare()

    async def listens() -> str:
        try:
            return await asyncio.shield(holdfast.receive("go", str))
        finally:
            cleaned.append("shielded")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(listens())
        group.create_task(asyncio.wait_for(asyncio.shield(task), None))
    return await effect(task.result())


ALL = {
    agent.name: agent
    for agent in (
        swallows_everything, swallows_around_every_verb, returns_when_interrupted, fails_when_interrupted,
        gathers_exceptions, acts_in_finally, cleans_up_locally, spins_when_interrupted, spins_on_tasks_when_interrupted,
        has_tasks_that_ignore_cancellation, iterates_generators, shields_and_groups,
    )
}  # fmt: skip
