"""A worker whose agent begins by itself each second; killed with -9 by the test."""

import asyncio
import sys

import holdfast


@holdfast.step
async def mark() -> int:
    return 1


@holdfast.agent(schedule=holdfast.Schedule(every="1s", overlap="allow", catch_up="all"))
async def tick() -> int:
    return await mark()


async def main() -> None:
    async with holdfast.open(sys.argv[1], agents=[tick]):
        print("ready", flush=True)  # noqa: T201 - the test reads it
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main())
