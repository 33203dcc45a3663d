"""The names that examples in docstrings use without saying so: a few steps and agents, as a reader would have them."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import holdfast
import holdfast.sync
import holdfast.testing

__all__ = [
    "Ordered", "Reminder", "ask", "asyncio", "broken", "desk", "flaky", "holdfast", "publish", "report", "research", "revenue",
    "search", "slow", "timedelta", "tokens",
]  # fmt: skip


@dataclass(frozen=True)
class Ordered:
    cents: int


@dataclass(frozen=True)
class Reminder:
    text: str


@holdfast.reducer(int)
def revenue(state: int, event: Ordered | Reminder) -> int:
    return state + event.cents if isinstance(event, Ordered) else state


@holdfast.step
async def search(topic: str) -> list[str]:
    return [f"{topic}/1", f"{topic}/2"]


@holdfast.step
async def publish(text: str) -> str:
    return "published" if text else "nothing to publish"


@holdfast.step
async def ask(model: str, prompt: str) -> str:
    return f"{model} says something about {prompt}"


@holdfast.step
async def flaky() -> str:
    async with holdfast.stream("answer") as out:
        await out.write("half of ")
    raise holdfast.Permanent("the model fell silent")


@holdfast.step(timeout="10ms")
async def slow() -> None:
    await asyncio.sleep(10)


async def tokens():
    yield "Otters "
    yield "sleep."


@holdfast.agent
async def research(topic: str) -> str:
    return await publish(", ".join(await search(topic)))


@holdfast.agent
async def report(topic: str) -> str:
    decision = await holdfast.approve("Publish this?", show=await search(topic))
    return "published" if decision else f"kept: {decision.note}"


@holdfast.agent
async def desk() -> str:
    return await holdfast.ask("Where do you sit?", str, to="ana")


@holdfast.agent
async def broken() -> None:
    raise ValueError("no such card")
