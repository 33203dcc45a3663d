"""Agents whose runs come into every state that the page shows. Workers of `scene.py` carry them."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Literal

import holdfast
from holdfast import Budget, Loops, Retry, Schedule

HOLD = os.environ.get("SCENE_HOLD", "/nonexistent")  # while this file is there, slow bodies go on


async def held() -> None:
    """Stay in a body for as long as the scene wants it."""
    while os.path.exists(HOLD):  # noqa: ASYNC240, PTH110 - a look at a file in memory
        await asyncio.sleep(0.05)


# An article, with a plan, a fan, a child, a question and streams


@holdfast.step
async def search(words: str) -> list[str]:
    await asyncio.sleep(0.15)
    return [
        f"{words.partition(' ')[0]}.example/{each}" for each in ("holding", "rafts", "diet", "sleep", "kelp", "range")
    ]


@holdfast.step
async def plan_reading(pages: list[str]) -> str:
    await asyncio.sleep(0.2)
    holdfast.spend(input_tokens=4_000, output_tokens=300, model="small", usd=0.03)
    return f"{len(pages)} pages, the first two twice"


@holdfast.step(retry=Retry(3, first="100ms"))
async def summarise(page: str) -> str:
    await asyncio.sleep(0.1 + len(page) % 7 / 20)
    holdfast.spend(input_tokens=9_000, output_tokens=500, model="small", usd=0.11)
    if page.endswith("rafts") and holdfast.this_step().attempt == 1:
        raise ConnectionError("the connection was closed by the other side")
    return f"{page}: otters wrap themselves in kelp and hold paws."


@holdfast.step
async def write_section(title: str) -> str:
    async with holdfast.stream(title.partition(" ")[0].lower()) as out:
        for word in f"{title}. An otter that sleeps takes a strand of kelp and turns around its own axis".split():
            await out.write(f"{word} ")
            await asyncio.sleep(0.02)
        await held()
    holdfast.spend(input_tokens=12_000, output_tokens=2_000, model="large", usd=0.26)
    return f"{title}: written"


@holdfast.step
async def look_up(claim: str) -> bool:
    await asyncio.sleep(0.1)
    return True


@holdfast.step
async def publish(topic: str) -> str:
    await held()
    return f"published: {topic}"


@holdfast.agent
async def factcheck(notes: list[str]) -> int:
    return sum([await look_up(each) for each in notes[:2]])


@holdfast.agent(version="7", budget=Budget(usd=5, to="finance"))
async def atlas(topic: str, pages: int = 6, editors: list[str] = [], embargo: datetime | None = None) -> str:  # noqa: B006
    """Writes an article from pages on the web, with sources, and asks before it publishes."""
    plan = await holdfast.plan(
        ["find pages", "read them", "check", "outline", "write three sections", "ask", "publish"]
    )
    found = (await search(topic))[:pages]
    await plan.done("find pages")
    await plan_reading(found)
    notes = await asyncio.gather(*(summarise(each) for each in found))
    await plan.done("read them")
    await factcheck(list(notes))
    await plan.done("check")
    await holdfast.note("the outline follows the otters' day")
    await plan.done("outline")
    sections = await asyncio.gather(
        *(write_section(each) for each in ("Holding hands", "Kelp as an anchor", "Rafts in a storm"))
    )
    await plan.done("write three sections")
    yes = await holdfast.approve(
        "Publish this report?", show="\n\n".join(["# Otters", *sections]), to=editors or "group:editors"
    )
    return await publish(topic) if yes else f"kept: {yes.note}"


# People


@dataclass
class Access:
    account: str
    groups: list[Literal["staff", "code", "data", "admin", "billing"]]
    days: int = 30
    reason: str = ""


def two_for_admins(access: Access) -> int:
    return 2 if "admin" in access.groups else 1


@holdfast.step
async def create_account(name: str) -> str:
    await asyncio.sleep(0.1)
    return f"account {name}-hassan"


@holdfast.step
async def read_profile(name: str) -> str:
    await asyncio.sleep(0.05)
    return "engineer, team Harbour, starts Monday"


@holdfast.agent
async def privileges(name: str) -> str:
    decision = await holdfast.approve(
        f"Which groups may {name} join?", show=Access(name, ["staff", "code", "admin"], 30, "backend engineer, team Harbour"),
        edit={
            "type": "object", "required": ["account", "groups", "days"],
            "properties": {
                "account": {"type": "string", "const": name},
                "groups": {"type": "array", "uniqueItems": True, "items": {"enum": ["staff", "code", "data", "admin", "billing"]}},
                "days": {"type": "integer", "minimum": 1, "maximum": 90},
                "reason": {"type": "string", "title": "Reason"},
            },
        },
        to=["ana", "group:it-admins"], needs=2, expires="28h", default=False,
    )  # fmt: skip
    return f"{decision.data}"


@holdfast.agent
async def onboard(name: str) -> str:
    await holdfast.progress(1, 3, "account")
    await create_account(name)
    await read_profile(name)
    return await privileges(name)


@dataclass
class Trip:
    city: Literal["Lisbon", "Porto"]
    when: date
    nights: int
    at_least: float | None = None
    window: bool = True
    people: list[str] = field(default_factory=list)
    meals: dict[str, int] = field(default_factory=dict)
    leaves: datetime | None = None


@holdfast.agent
async def travel(name: str) -> str:
    trip = await holdfast.ask(f"Where does {name} go?", Trip, to="ana", expires="5h")
    return trip.city


@holdfast.agent
async def seat(name: str) -> str:
    return await holdfast.ask(f"Where does {name} sit?", str, to="bo", expires="3h", default="anywhere")


@holdfast.agent
async def refund(amount: float) -> str:
    decision = await holdfast.approve(
        f"Refund {amount:.2f} EUR?", show={"amount": amount, "order": "A-5521"}, edit=True
    )
    return "refunded" if decision else f"no: {decision.note}"


ORDER = {
    "title": "Kettles for Vienna", "items": [{"name": "kettle", "count": 2}, {"name": "pot", "count": 1}],
    "ship_to": {"street": "Ring 1"}, "priority": "low", "tags": ["a", "b"], "lasts": "PT1H30M", "weight": 2.5,
}  # fmt: skip
ITEM = {
    "type": "object", "required": ["name"],
    "properties": {"name": {"type": "string", "minLength": 1}, "count": {"type": "integer", "default": 1}},
}  # fmt: skip


@holdfast.agent
async def ship(title: str) -> str:
    decision = await holdfast.approve(
        f"Ship {title}?", show={**ORDER, "title": title},
        edit={
            "type": "object", "required": ["title", "items", "weight"],
            "properties": {
                "title": {"type": "string"}, "items": {"type": "array", "items": ITEM},
                "ship_to": {"type": "object", "properties": {"street": {"type": "string"}}},
                "priority": {"enum": ["low", "high"]}, "tags": {"type": "array", "items": {"type": "string"}},
                "lasts": {"type": "string", "format": "duration"},
                "weight": {"type": "number", "exclusiveMinimum": 0, "maximum": 50},
            },
        },
        to=["ana", "bo"],
    )  # fmt: skip
    return f"{decision.data}"


# Doubt, budgets, loops


@holdfast.step(in_doubt="ask")
async def wire(amount: str) -> str:
    await held()
    return "sent"


@holdfast.agent
async def settle(amount: str) -> str:
    await holdfast.progress(1, 4, "checked")
    return await wire(amount)


@holdfast.step
async def tile(n: int) -> int:
    await asyncio.sleep(0.01)
    holdfast.spend(usd=0.5)
    return n


@holdfast.agent(budget=Budget(usd=2, to="finance"))
async def survey(city: str, tiles: int = 12) -> int:
    for n in range(tiles):
        await tile(n)
        await holdfast.progress(n + 1, tiles, city)
    return tiles


@holdfast.step
async def seek_keys(where: str) -> str:
    return "nothing"


@holdfast.agent(loops=Loops(same=5))
async def seek(where: str) -> str:
    while await seek_keys(where) == "nothing":
        pass
    return "found"


# Waiting, retrying, failing


@holdfast.step(retry=Retry(8, first="20m", max="30m"))
async def overloaded(what: str) -> str:
    raise RuntimeError("503 overloaded")


@holdfast.agent
async def tides(what: str) -> str:
    return await overloaded(what)


@holdfast.agent
async def briefing(desk: str) -> str:
    await holdfast.progress(2, 5)
    await holdfast.sleep("20h")
    return desk


@holdfast.step(retry=Retry(2, first="50ms"))
async def request(tokens: int) -> None:
    holdfast.spend(usd=0.03)
    raise ValueError(f"request of {tokens} tokens exceeds the context of 500")


@holdfast.agent
async def context(tokens: int) -> None:
    await request(tokens)


@holdfast.step
async def remove(count: int) -> str:
    await asyncio.sleep(0.02)
    return f"{count} files removed"


@holdfast.agent(schedule=Schedule(every="6h"))
async def janitor(count: int = 412) -> str:
    return await remove(count)


@holdfast.step
async def render(n: int) -> str:
    await held()
    return f"invoice {n}"


@holdfast.agent
async def billing(n: int) -> str:
    return f"sent {await render(n)}"


@holdfast.agent
async def reply(customer: str, prompt: str) -> str:
    async with holdfast.conversation(customer, str) as talk:
        await talk.add(f"{customer}: {prompt}")
        answer = await render(len(prompt))
        await talk.add(f"helper: {answer}")
    return answer


@holdfast.agent
async def listener(topic: str) -> str:
    return await holdfast.receive(topic, str)
