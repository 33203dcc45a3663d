"""Fourteen kinds of change to the code of an agent, each with a run that the old code began and the new code would go on with.

`python -m tests.rehearsal.changes` writes what `check` says of each into docs/time-travel.md. A test holds the page to it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

import holdfast
import holdfast.testing
from holdfast.integrations.pydantic_ai import HoldfastDurability

PAGE = Path(__file__).parents[2] / "docs" / "time-travel.md"
BEGIN, END = "<!-- changes -->", "<!-- /changes -->"


@dataclass
class Kind:
    """A kind of change: the function before and after it, and what is right to say of it."""

    what: str
    old: Any
    new: Any
    verdict: str
    rightly: str


KINDS: list[Kind] = []


def change(what: str, verdict: str, rightly: str) -> Callable[[Callable[[], tuple[Any, Any]]], None]:
    def add(make: Callable[[], tuple[Any, Any]]) -> None:
        KINDS.append(Kind(what, *make(), verdict, rightly))

    return add


# The steps that all of them have


@holdfast.step
async def reserve(item: str) -> int:
    return 40


@holdfast.step
async def charge(amount: int) -> str:
    return f"charged {amount}"


@holdfast.step
async def mail(text: str) -> str:
    return f"mailed {text}"


def agent(code: Any) -> Any:
    return holdfast.agent(name="order")(code)


async def arrives() -> None:
    """Wait here, with everything recorded behind."""
    await holdfast.receive("go", str)


@change("two steps change places", "diverges", "the first outcome is of a call that the code has not made yet")
def _reordered() -> tuple[Any, Any]:
    @agent
    async def old(item: str) -> None:
        await reserve(item)
        await charge(40)
        await arrives()

    @agent
    async def new(item: str) -> None:
        await charge(40)
        await reserve(item)
        await arrives()

    return old, new


@change("a step is removed", "diverges", "its outcome is recorded and nobody asks for it")
def _removed() -> tuple[Any, Any]:
    @agent
    async def old(item: str) -> None:
        await charge(await reserve(item))
        await mail(item)
        await arrives()

    @agent
    async def new(item: str) -> None:
        await charge(await reserve(item))
        await arrives()

    return old, new


@change("a step is added before the last outcome", "diverges", "it would run now, after what came later")
def _added() -> tuple[Any, Any]:
    @agent
    async def old(item: str) -> None:
        await charge(await reserve(item))
        await arrives()

    @agent
    async def new(item: str) -> None:
        price = await reserve(item)
        await mail(item)
        await charge(price)
        await arrives()

    return old, new


@change("a step is renamed", "diverges", "a key has the name of the step; `@step(name=...)` keeps the old one")
def _renamed() -> tuple[Any, Any]:
    @holdfast.step
    async def take(amount: int) -> str:
        return f"took {amount}"

    @agent
    async def old(item: str) -> None:
        await charge(40)
        await arrives()

    @agent
    async def new(item: str) -> None:
        await take(40)
        await arrives()

    return old, new


@change("an argument changes", "diverges", "the result is that of another input")
def _argument() -> tuple[Any, Any]:
    @agent
    async def old(item: str) -> None:
        await charge(40)
        await arrives()

    @agent
    async def new(item: str) -> None:
        await charge(45)
        await arrives()

    return old, new


@change("the bound of a loop changes", "diverges", "a round is recorded that the code does not come to")
def _bound() -> tuple[Any, Any]:
    @agent
    async def old(item: str) -> None:
        for n in range(3):
            await mail(f"{item} {n}")
        await arrives()

    @agent
    async def new(item: str) -> None:
        for n in range(2):
            await mail(f"{item} {n}")
        await arrives()

    return old, new


@change("the type of a result changes", "unfit", "the recorded value is none of the new type")
def _type() -> tuple[Any, Any]:
    @holdfast.step(name="reserve")
    async def reserve_more(item: str) -> list[int]:
        return [40]

    @agent
    async def old(item: str) -> None:
        await reserve(item)
        await arrives()

    @agent
    async def new(item: str) -> None:
        await reserve_more(item)
        await arrives()

    return old, new


@change("a condition changes", "diverges", "the code takes the other branch")
def _condition() -> tuple[Any, Any]:
    @agent
    async def old(item: str) -> None:
        price = await reserve(item)
        if price < 100:
            await charge(price)
        await arrives()

    @agent
    async def new(item: str) -> None:
        price = await reserve(item)
        if price < 10:
            await charge(price)
        await arrives()

    return old, new


@change(
    "steps are moved into a gather",
    "fits",
    "the calls have the same keys, and their outcomes come in the recorded order",
)
def _gathered() -> tuple[Any, Any]:
    @agent
    async def old(item: str) -> None:
        await reserve(item)
        await mail(item)
        await arrives()

    @agent
    async def new(item: str) -> None:
        await asyncio.gather(reserve(item), mail(item))
        await arrives()

    return old, new


@change("a coroutine that runs as a task is renamed", "diverges", "the keys of its calls begin with its name")
def _coroutine() -> tuple[Any, Any]:
    async def notify(item: str) -> None:
        await mail(item)

    async def tell(item: str) -> None:
        await mail(item)

    @agent
    async def old(item: str) -> None:
        await asyncio.gather(notify(item))
        await arrives()

    @agent
    async def new(item: str) -> None:
        await asyncio.gather(tell(item))
        await arrives()

    return old, new


@change(
    "a field of the state is renamed",
    "unfit",
    "what was kept under the old name would be lost; `migrate=` carries it over",
)
def _state() -> tuple[Any, Any]:
    @dataclass
    class Sent:
        sent: int = 0

    @dataclass
    class Mailed:
        mailed: int = 0

    @agent
    async def old(item: str) -> None:
        state = await holdfast.restore(Sent())
        state.sent += 1
        await holdfast.checkpoint(state)
        await arrives()

    @agent
    async def new(item: str) -> None:
        state = await holdfast.restore(Mailed())
        state.mailed += 1
        await holdfast.checkpoint(state)
        await arrives()

    return old, new


@change("a parameter with a default is added", "fits", "a call that does not give it is the same call")
def _default() -> tuple[Any, Any]:
    @holdfast.step(name="mail")
    async def mail_with_copy(text: str, copy: bool = False) -> str:
        return f"mailed {text}"

    @agent
    async def old(item: str) -> None:
        await mail(item)
        await arrives()

    @agent
    async def new(item: str) -> None:
        await mail_with_copy(item)
        await arrives()

    return old, new


async def find(number: int) -> str:
    """Find an order."""
    return "a kettle"


async def find_by_name(number: int | str) -> str:
    """Find an order."""
    return "a kettle"


def _clerk(instructions: str, tool: Any = find) -> Any:
    clerk: Any = Agent(TestModel(), name="clerk", instructions=instructions, capabilities=[HoldfastDurability()])
    clerk.tool_plain(tool, name="find")
    return clerk


@change("a prompt changes", "fits", "what the model said before was said; the change is told")
def _prompt() -> tuple[Any, Any]:
    before, after = _clerk("Be brief."), _clerk("Be brief and kind.")

    @agent
    async def old(item: str) -> None:
        await before.run(item)
        await arrives()

    @agent
    async def new(item: str) -> None:
        await after.run(item)
        await arrives()

    return old, new


@change("the schema of a tool changes", "fits", "the tool was called as it was then; the change is told")
def _schema() -> tuple[Any, Any]:
    before, after = _clerk("Be brief."), _clerk("Be brief.", find_by_name)

    @agent
    async def old(item: str) -> None:
        await before.run(item)
        await arrives()

    @agent
    async def new(item: str) -> None:
        await after.run(item)
        await arrives()

    return old, new


# What is said of each


async def replayed(kind: Kind) -> Any:
    """Begin a run with the old code, and hold the new code against it."""
    async with holdfast.testing.open(agents=[kind.old]) as hf:
        run = await hf.start(kind.old, "kettle", id="order-1")
        await run.wait("waiting")
        checked = await hf.check([kind.new])
        same = await hf.check([kind.old])
    assert [each.verdict for each in same.replays] == ["fits"]
    assert not same.replays[0].notices
    return checked.replays[0]


def line_of(found: Any) -> str:
    """The text of the line that is named."""
    file, _, number = found.line.rpartition(":")
    return Path(file).read_text().splitlines()[int(number) - 1].strip() if number else ""


def row(kind: Kind, found: Any) -> str:
    """One row of the table."""
    told = {"fits": "accepted", "diverges": "found", "unfit": "found"}[found.verdict]
    says = f"at `{found.key}`" if found.key else "".join(f"told: {notice.what}" for notice in found.notices)
    if found.verdict != "fits":
        says += f", line `{line_of(found)}`"
    return f"| {kind.what} | {told} | {says or 'nothing'} | {kind.rightly} |"


def table() -> str:
    rows = [row(kind, asyncio.run(replayed(kind))) for kind in KINDS]
    head = ["| change | `check` | it says | because |", "|---|---|---|---|"]
    return "\n".join([BEGIN, *head, *rows, END])


def in_page(page: str, made: str) -> str:
    return re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: made, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(in_page(PAGE.read_text("utf-8"), table()), "utf-8")
