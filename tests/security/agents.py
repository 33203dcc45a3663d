"""Agents for the servers and workers that are attacked."""

from typing import Any

import holdfast


@holdfast.agent
async def keep(value: Any) -> Any:
    return value


@holdfast.agent
async def listen(words: int) -> list[str]:
    return [await holdfast.receive("word", str) for _ in range(words)]


@holdfast.step
async def write(kilobytes: int) -> None:
    async with holdfast.stream("answer") as out:
        for _ in range(kilobytes // 4):
            await out.write("x" * 4096)


@holdfast.agent
async def flood(kilobytes: int) -> None:
    await write(kilobytes)
    await holdfast.receive("end", str)
