"""A worker that streams, in a process of its own: it is started with the URL of a store, and killed."""

import asyncio
import contextlib
import sys

import holdfast

TOKENS = [f"t{number} " for number in range(60)]


@holdfast.step
async def speak(keeps: bool) -> int:
    async with holdfast.stream("answer") as out:
        said = out.keep().count(" ") if keeps else 0
        for token in TOKENS[said:]:
            await out.write(token)
            await asyncio.sleep(0.01)
    return said


@holdfast.agent
async def talk(keeps: bool) -> int:
    return await speak(keeps)


async def serve(url: str, lease_s: float) -> None:
    async with holdfast.open(url, agents=[talk], settings=holdfast.Settings(lease_ttl_s=lease_s)):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        with contextlib.suppress(EOFError):
            await asyncio.to_thread(sys.stdin.read)  # the test has ended


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], float(sys.argv[2])))
