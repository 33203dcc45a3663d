"""A process that runs an agent and forks it again and again, until it is killed: `fork_program.py URL`."""

import asyncio
import itertools
import sys

import holdfast


@holdfast.step
async def work(n: int) -> int:
    await asyncio.sleep(0.001)
    return n


@holdfast.agent
async def counts(to: int) -> int:
    total = 0
    for n in range(to):
        total += await work(n)
    return total


async def main(url: str) -> None:
    async with holdfast.open(url, agents=[counts]) as hf:
        first = await hf.start(counts, 12, id="r")
        await first.result()
        print("ready", flush=True)  # noqa: T201
        made = len(await hf.runs(limit=1000))
        for n in itertools.count(made):
            of = hf.get("r" if n % 3 else f"f{n - 1}") if n > 1 else first
            await of.fork(at=n % 12, effects="new", id=f"f{n}")
            print("forked", n, flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
