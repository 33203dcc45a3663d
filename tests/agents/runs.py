"""What the tests of agents share: ways to run one to its end, with and without a crash in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import holdfast.testing
from holdfast import Agent, RunEvent
from holdfast.testing import TestClient


def finish(agent: Agent[..., Any], *args: Any, **options: Any) -> Any:
    """What the agent returns when it runs in a store of its own."""
    return with_client(lambda hf: hf.run(agent, *args), agents=[agent], **options)


def fail(agent: Agent[..., Any], *args: Any, **options: Any) -> holdfast.RunFailed:
    """How the agent fails."""
    try:
        value = finish(agent, *args, **options)
    except holdfast.RunFailed as failure:
        return failure
    raise AssertionError(f"it returned {value!r}")


def with_client(test: Callable[[TestClient], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    """Run an async test with an open client, in a loop of its own."""

    async def main() -> Any:
        async with holdfast.testing.open(**options) as hf:
            return await test(hf)

    return asyncio.run(main())


async def nothing_in_memory(hf: TestClient) -> None:
    """Until this process holds no run: a row says 'waiting' a few turns of the loop before its tasks have unwound."""
    async with asyncio.timeout(10):
        while hf._worker is not None and hf._worker.attempts:
            await asyncio.sleep(0)


async def history(hf: TestClient, run: str) -> list[RunEvent]:
    """The events of a run so far."""
    return [event async for event in hf.get(run).events(follow=False)]


async def kinds(hf: TestClient, run: str) -> list[str]:
    """The kinds of its events."""
    return [event.kind for event in await history(hf, run)]


class Gate:
    """A body stops here until the test lets it go on, and the test knows when it is here: no sleep is needed."""

    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.open.wait()
