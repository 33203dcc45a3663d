"""Agents that are carried from store to store: one that asks a person below two others, and one that uses all that a run can."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

from pydantic import Field

import holdfast

LARGE = "otter " * 20_000  # lies in a blob


@holdfast.step
async def act(what: str) -> str:
    return f"did {what}"


@holdfast.step(inputs="full")
async def fetch(words: list[str]) -> str:
    return LARGE


@holdfast.agent
async def clerk(name: str) -> str:
    """Ask a person, and act on it."""
    decision = await holdfast.approve(f"May {name} come in?", show={"name": name}, edit=True, to="doorkeepers")
    return await act(f"let {decision.data['name']} in" if decision else f"sent {name} away: {decision.note}")


@holdfast.agent
async def house(name: str) -> str:
    await act("open")
    done = await clerk(name)
    await act("close")
    return done


@holdfast.agent
async def all_there_is(topic: str) -> list[str]:
    """Streams, plans, conversations, large values, checkpoints, messages, children that have ended, seeds."""
    todo = await holdfast.plan(["look", "ask"])
    async with holdfast.conversation("talk", str) as talk:
        await talk.add(f"about {topic}")
        found = await fetch([f"{topic} " * 100, "and more"])
        async with holdfast.stream("answer") as out:
            await out.write("half a ")
            await out.write("\U0001f9a6 thought")
        child = await house_of_cards(topic)
        await todo.done("look")
        first = holdfast.uuid4().hex
        message = await holdfast.receive("go", str)
        heard = await talk.messages()
        await talk.add("done")
        return [message, child, str(len(found)), first, *heard, await act("last")]


@holdfast.agent
async def house_of_cards(topic: str) -> str:
    return await act(f"stack {topic}")


@holdfast.agent
async def sleeper() -> str:
    await holdfast.sleep("1h")
    return await act("woke")


@holdfast.agent
async def talker(text: str) -> int:
    async with holdfast.conversation("talk", str) as talk:
        await talk.add(text)
        await holdfast.receive("go")
        return len(talk)


@holdfast.agent
async def fails() -> str:
    await act("one")
    raise RuntimeError("no")


@holdfast.agent
async def guest() -> str:
    return await holdfast.receive("go", str)


@holdfast.agent
async def host() -> str:
    """Let a guest in who may stay when the host has gone."""
    await holdfast.spawn(guest)
    return await holdfast.receive("end", str)


@holdfast.agent
async def two_of_us() -> str:
    return "agreed" if await holdfast.approve("Sell the house?", to="owners", needs=2) else "kept"


@holdfast.agent
async def two_edit() -> int:
    decision = await holdfast.approve("Publish this?", show={"name": ""}, edit=True, needs=2)
    return len(decision.data["name"])


@dataclass
class Page:
    name: str
    lines: int = 1


@holdfast.agent
async def two_edit_a_page() -> str:
    decision = await holdfast.approve("Publish this?", show=Page("otters"), edit=True, needs=2)
    return decision.data.name


@dataclass
class Price:
    eur: Annotated[Decimal, Field(ge=0)]


@holdfast.agent
async def two_edit_a_price() -> str:
    decision = await holdfast.approve("Sell for this?", show=Price(Decimal("9.90")), edit=True, needs=2)
    return str(decision.data.eur)


@holdfast.agent
async def by_another() -> str:
    return "fine" if await holdfast.approve("Is this fine?", not_by="starter") else "no"


@holdfast.agent
async def planner(topic: str, more: list[int]) -> str:
    todo = await holdfast.plan(["read", "write"])
    await todo.done("read")
    await holdfast.progress(1, 3, "half way")
    return "yes" if await holdfast.approve("This?", show={"title": topic, "body": "x" * 20}) else "no"


AGENTS = [clerk, house, all_there_is, house_of_cards, sleeper, talker, fails, guest, host]
