"""What tests of Pydantic AI agents share: an agent that is durable, and ways to run it and look."""

import asyncio
import json

from pydantic_ai import Agent

import holdfast
import holdfast.testing
from holdfast.integrations.pydantic_ai import HoldfastDurability


def durable(script, name="clerk", **options):
    own = options.pop("capability", None) or HoldfastDurability()
    return Agent(script.model, name=name, capabilities=[own], **options)


def running(agent, *given, act=None, agents=(), **options):
    """Run the agent to its end, and look: its result, its events, and the client."""

    async def main():
        async with holdfast.testing.open(agents=[agent, *agents], **options) as hf:
            run = await hf.start(agent, *given, id="r")
            if act is not None:
                await act(hf, run)
            result = await run.result(timeout=20)
            return result, [event async for event in run.events(follow=False)], hf

    return asyncio.run(main())


def everywhere(agent, *given, act=None, agents=(), check):
    """The same with a crash before and after each commit; `check(result, hf)` each time."""

    async def main():
        passes = 0
        async for hf in holdfast.testing.crash_everywhere(agents=[agent, *agents]):
            run = await hf.start(agent, *given, id="r")
            if act is not None:
                await act(hf, run)
            check(await run.result(timeout=20), hf)
            closed = [event.key async for event in run.events(follow=False) if event.kind == "step.completed"]
            assert len(closed) == len(set(closed))
            passes += 1
        return passes

    return asyncio.run(main())


def keys(events, kind="step.completed"):
    return [event.key for event in events if event.kind == kind]


async def stored(hf, run, name):
    """The results of a step in the journal, in order."""
    return [
        json.loads(event.value) for event in await hf.store.journal(run.id) if event.value and name in (event.key or "")
    ]
