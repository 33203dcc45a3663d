"""An agent all of whose texts are somebody else's: what is given to it comes back in every field that there is."""

from __future__ import annotations

import asyncio

import holdfast


class Cursed(Exception):
    """An error with a text of somebody else's."""


@holdfast.step
async def tell(text: str) -> str:
    holdfast.spend(usd=0.01, input_tokens=1, model=text[:60])
    async with holdfast.stream("told") as out:
        await out.write(text)
    return text


@holdfast.step(retry=holdfast.Retry(2, first="10ms"))
async def curse(text: str) -> None:
    raise Cursed(text)


@holdfast.agent
async def echo(text: str) -> str:
    """Say it again, everywhere."""
    state = await holdfast.restore({"first": text})
    plan = await holdfast.plan([text, f"then {text}"])
    await holdfast.note(text)
    await holdfast.progress(1, 2, text)
    await tell(text)
    await plan.done(text)
    await holdfast.checkpoint({**state, text[:40]: text})
    try:
        await curse(text)
    except Exception as error:
        await holdfast.note(str(error))
    async with holdfast.conversation("talk", str) as talk:
        await talk.add(text)
    heard = await holdfast.receive(text[:150], str)
    asked = holdfast.approve(text, show={"text": text, text[:40]: [text]}, edit=True, to=["ana", "bo"], needs=2)
    await asyncio.gather(asked, asyncio.create_task(tell(heard), name=text[:40]))
    return text


@holdfast.agent
async def fall(text: str) -> None:
    await curse(text)
