"""All that the fake provider can do to a run, through the real `openai` client: each run ends right, and pays the least.

The least is one right answer and what the provider took money for before it: each line of a script is asked for once. The
table is in docs/guide/models.md, and a test compares it.
"""

from __future__ import annotations

import asyncio
import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import openai
import pytest
from pydantic import BaseModel
from tests.agents.runs import history

import holdfast
import holdfast.testing
from holdfast import Rate, Retry
from holdfast.testing.provider import (
    Failure,
    Garbage,
    Half,
    Hang,
    Overloaded,
    RateLimited,
    Reset,
    Trickle,
    WrongShape,
    provider,
)

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "models.md"


class Fact(BaseModel):
    animal: str
    hours: int


RIGHT = '{"animal": "otter", "hours": 11}'


@holdfast.resource
async def client():
    async with openai.AsyncOpenAI(max_retries=0) as opened:
        yield opened


@holdfast.step(retry=Retry.model, timeout="3s", rate=Rate(name="openai", per="model"))
async def ask(model: str, prompt: str, streamed: bool, problem: str = "") -> str:
    messages = [{"role": "user", "content": prompt}, *([{"role": "user", "content": problem}] if problem else [])]
    create = (await client()).chat.completions.create
    if not streamed:
        return (await create(model=model, messages=messages)).choices[0].message.content
    tokens = holdfast.lively(await create(model=model, messages=messages, stream=True), "1s")
    return "".join([token.choices[0].delta.content or "" async for token in tokens])


answer = holdfast.fallback(ask, ["large", "small"], check=Fact)


@holdfast.agent
async def learns(streamed: bool) -> int:
    return (await answer("How long do otters sleep?", streamed)).hours


class Line(NamedTuple):
    """What the provider is told to do, in words and as a script; and what must come of it."""

    words: str
    script: list[object]
    paid: int = 1
    waits: tuple[int, ...] = ()  # in seconds; those that nobody asked for are up to a quarter shorter
    model: str = "large"  # that gives the right answer
    streamed: bool = False


REPERTOIRE = [
    Line("answers", [RIGHT]),
    Line("answers in a slow trickle", [Trickle(RIGHT, pause="100ms")], streamed=True),
    Line("429 with Retry-After", [RateLimited("30s"), RIGHT], waits=(30,)),
    Line("429 with a date", [RateLimited("5m", as_date=True), RIGHT], waits=(300,)),
    Line("503 with Retry-After", [Overloaded("10s"), RIGHT], waits=(10,)),
    Line("500, twice", [Failure(), Failure(), RIGHT], waits=(2, 4)),
    Line("500, without end", [*[Failure()] * 8, RIGHT], waits=(2, 4, 8, 16, 32, 64, 120), model="small"),
    Line("404 (or 400, 401)", [Failure(404, "no such model"), RIGHT], model="small"),
    Line("resets the connection", [Reset(), RIGHT], waits=(2,)),
    Line("resets it in a stream", [Reset("Otters"), RIGHT], 2, waits=(2,), streamed=True),
    Line("garbage", [Garbage(), RIGHT], 2, waits=(2,)),
    Line("JSON of another form", [WrongShape(), RIGHT], 2, waits=(2,)),
    Line("half an answer", [Half(RIGHT), RIGHT], 2, waits=(2,)),
    Line("half a stream", [Half("Otters sleep"), RIGHT], 2, waits=(2,), streamed=True),
    Line("silence (`timeout=`)", [Hang(), RIGHT], waits=(2,)),
    Line("silence in a stream (`lively`)", [Hang(said="Otters"), RIGHT], 2, waits=(2,), streamed=True),
    Line("an empty answer", ["", RIGHT], 2),
    Line("not what was asked for", ["About eleven hours.", RIGHT], 2),
    Line("nonsense, three times", ["Eleven.", "11", "{}", RIGHT], 4, model="small"),
]


@pytest.mark.parametrize("line", REPERTOIRE, ids=lambda line: line.words.replace(" ", "_"))
def test_the_run_ends_right_and_pays_the_least(line, monkeypatch):
    """Each answer of the script is asked for once, in the order of the script, and the run has the right one."""

    async def main():
        async with provider(line.script) as fake, holdfast.testing.open(agents=[learns]) as hf:
            for name, value in fake.env.items():
                monkeypatch.setenv(name, value)
            assert await hf.run(learns, line.streamed, id="r") == 11
            return fake, await history(hf, "r")

    fake, events = asyncio.run(main())
    assert (fake.asked, fake.paid) == (len(line.script), line.paid)
    assert fake.requests[-1].model == line.model
    waits = [event.data["wait_ms"] / 1000 for event in events if event.kind == "step.retrying"]
    assert len(waits) == len(line.waits)
    assert all(0.75 * said <= waited <= said + 2 for waited, said in zip(waits, line.waits, strict=True))
    again = [request for before, request in pairwise(fake.requests) if isinstance(before.given, str)]
    told = [len(request.messages) == 2 for request in again if request.model == "large"]
    assert all(told)  # of the problem with the answer before


def test_the_table_in_the_guide_is_this_one():
    """It says of each what the tests above prove."""
    rows = ["| the provider | requests | paid | waits | the answer is from |", "|---|---|---|---|---|"]
    for line in REPERTOIRE:
        waits = ", ".join(f"{wait} s" for wait in line.waits)
        rows.append(f"| {line.words} | {len(line.script)} | {line.paid} | {waits} | {line.model} |")
    table = "\n".join(rows)
    shown = re.search(r"<!-- repertoire -->\n(.*?)\n<!-- /repertoire -->", GUIDE.read_text("utf-8"), re.DOTALL)
    assert shown is not None
    assert shown[1] == table
