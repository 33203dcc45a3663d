"""Agents that cost something."""

import holdfast


@holdfast.step
async def think(n: int) -> int:
    holdfast.spend(0.25, input_tokens=1000, output_tokens=10, model="made-up")
    return n


@holdfast.step
async def rest() -> None: ...


@holdfast.agent
async def thinker(n: int) -> str:
    for each in range(n):
        await think(each)
    await rest()
    return "done"


@holdfast.agent
async def sleeper() -> None: ...
