"""An agent that uses what lies in the database beside a cluster, with a ledger of its bodies: workers that are killed run it."""

from __future__ import annotations

import asyncio

from tests.grounds.canonical import PACE_S, look, wrote

import holdfast

ROUNDS = 5
WORDS = [f"word{n} " for n in range(6)]


@holdfast.step(rate=holdfast.Rate(10, every="1s"))
async def counted(n: int) -> int:
    wrote("begin")
    return n


@holdfast.step
async def speaks() -> str:
    """Keep what an attempt before has said, and say the rest."""
    wrote("begin")
    async with holdfast.stream("said") as out:
        before = out.keep()
        for word in WORDS:
            if word not in before:
                await out.write(word)
                await asyncio.sleep(PACE_S)
    return "said"


@holdfast.agent
async def neighbour(n: int) -> list[int]:
    """Talks to others in one conversation, takes turns with them, and writes."""
    out: list[int] = []
    async with holdfast.stream("notes") as notes:
        for nth in range(ROUNDS):
            async with holdfast.conversation("all") as talk:
                await talk.add(f"{n}-{nth}")
                await look(f"{n}-{nth}")
            await notes.write(f"{nth} ")
            out.append(await counted(nth))
    await speaks()
    return out
