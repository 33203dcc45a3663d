"""Agents for the server that is fuzzed: what they take is of many kinds, and what they have has a mark that no stranger may see."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

import pydantic
from tests.http.senders import SCHEMES, Scheme

import holdfast

MARK = "marked-for-no-stranger"
OTHERS = "marked-for-all-but-those-with-a-label"


class Item(pydantic.BaseModel):
    name: Annotated[str, pydantic.Field(pattern="^(a|b)*$", max_length=50)]
    price: Decimal = Decimal(1)
    tags: set[str] = set()


class Leaf(pydantic.BaseModel):
    kind: Literal["leaf"] = "leaf"
    value: int = 0


class Node(pydantic.BaseModel):
    kind: Literal["node"]
    below: list[Annotated[Leaf | Node, pydantic.Field(discriminator="kind")]] = []


@holdfast.agent
async def keep(value: Any = None) -> Any:
    return value


@holdfast.agent
async def order(
    item: Item, count: Annotated[int, pydantic.Field(ge=0, le=99)] = 1, when: datetime | None = None
) -> Item:
    return item


@holdfast.agent
async def grow(tree: Leaf | Node, *more: float, **named: int | str) -> Leaf | Node:
    return tree


@holdfast.agent
async def listen(words: int = 3) -> list[Any]:
    return [await holdfast.receive("word", Any) for _ in range(words)]


@holdfast.agent
async def approved(what: Any = MARK) -> Any:
    decision = await holdfast.approve("May it?", show={"what": what}, edit=True, needs=2)
    return decision.data if decision else decision.note


@holdfast.agent
async def asked(what: str = MARK) -> Any:
    return [await holdfast.ask(f"Which? {what}", Item), await holdfast.ask("How many?", int)]


@holdfast.step
async def write(text: str) -> None:
    async with holdfast.stream("answer") as out:
        for word in (text, MARK, "x" * 4096):
            await out.write(word)


@holdfast.agent
async def tell(text: str = "") -> None:
    await write(text)
    await holdfast.receive("word", Any)


@holdfast.agent
async def fail(why: str = MARK) -> None:
    raise ValueError(why)


@holdfast.agent
async def talk(who: str = "ana") -> None:
    async with holdfast.conversation(who, str) as said:
        await said.add(MARK, "x")
        await holdfast.receive("word", Any)


def _hook(scheme: Scheme) -> Any:
    @holdfast.on.webhook(scheme.name, verify=scheme.verify, max_bytes=10_000)
    def mapped(delivery: holdfast.Delivery) -> holdfast.Start:
        return holdfast.Start(keep, delivery.json())

    return mapped


AGENTS = [keep, order, grow, listen, approved, asked, tell, fail, talk]
HOOKED = [scheme for scheme in SCHEMES if scheme.name != "standard"]  # its secret is written in another way
HOOKS = {f"hook_{scheme.name}": _hook(scheme) for scheme in HOOKED}
globals().update(HOOKS)  # as if each were declared by itself
