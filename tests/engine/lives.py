"""What the engine's tests share: a run's history, and code that changes between two openings of one file."""

import asyncio

import holdfast.testing


async def history(run, *kinds):
    """The events of a run so far; only these kinds, if any are named."""
    return [event async for event in run.events(follow=False) if not kinds or event.kind in kinds]


async def counted(run, kind):
    """How many events of a kind a run has."""
    return len(await history(run, kind))


def lives(path, *agents_of_lives, act, **options):
    """Open one file several times, each time with the code of that life, and `act(hf, life)` in each."""

    async def main():
        results = []
        for life, agents in enumerate(agents_of_lives):
            agents = agents if isinstance(agents, list) else [agents]
            async with holdfast.testing.open(agents=agents, path=path, **options) as hf:
                results.append(await act(hf, life))
        return results

    return asyncio.run(main())
