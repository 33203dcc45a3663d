"""A worker process that serves the measured agents: `python fleet_worker.py URL`. Ends with its standard input."""

from __future__ import annotations

import asyncio
import sys

import measured_agents

import holdfast


async def main(url: str) -> None:
    settings = holdfast.Settings(concurrency=500, park_grace_s=float(sys.argv[2]))
    async with holdfast.open(url, agents=[measured_agents], settings=settings):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
