"""6. How much a conversation takes in the store, against the bytes of its messages: alone, and with every input kept whole."""

from __future__ import annotations

import random
import string
from pathlib import Path
from typing import Literal

import asyncpg
from measuring import Bench, Row, finished
from postgres_here import postgres
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast.integrations.pydantic_ai import HoldfastDurability

TARGET = 1.5
WHOLE = 1.6  # with every input kept
MESSAGE_BYTES = 2048


def message(turn: int) -> str:
    """Text of a fixed length that no compression would make small."""
    return "".join(random.Random(turn).choices(string.ascii_letters + string.digits + " ", k=MESSAGE_BYTES))


@holdfast.step
async def speak(turn: int) -> str:
    return message(turn)


@holdfast.step
async def reply(messages: list[str]) -> str:
    return message(len(messages))


@holdfast.agent
async def talk(turns: int) -> int:
    messages: list[str] = []
    for turn in range(turns):
        messages.append(await speak(turn))  # noqa: PERF401 - as agents are written
    return len(messages)


@holdfast.agent
async def converse(turns: int) -> int:
    """As with a model: each step is given the whole conversation so far."""
    messages: list[str] = []
    while len(messages) < turns:
        messages.append(await reply(messages))
    return len(messages)


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart(message(len(messages)))])


model = Agent(FunctionModel(answer), name="model", capabilities=[HoldfastDurability()])


@holdfast.agent
async def chat(turns: int) -> int:
    """With a framework's agent, which is given the whole conversation too."""
    messages: list[ModelMessage] = []
    for _ in range(turns):
        messages = (await model.run("go on", message_history=messages)).all_messages()
    return len(messages) // 2


def measure(bench: Bench) -> list[Row]:
    turns = bench.size(400, 20)
    payload = turns * MESSAGE_BYTES
    own, given, chatted = (finished(growth(bench, agent, turns, "digest")) for agent in (talk, converse, chat))
    whole, whole_chat = (finished(growth(bench, agent, turns, "full")) for agent in (converse, chat))
    with postgres(bench) as server:
        in_postgres, chat_in_postgres = (
            finished(growth_in(f"{server.url}?schema={agent.name}", agent, turns)) for agent in (converse, chat)
        )

    def kept(what: str, size: float) -> Row:
        return Row(6, what, kib(size), f"{size / payload:.2f} x payload", f"<= {WHOLE:g} x", size / payload <= WHOLE)

    return [
        Row(6, f"{turns} turns of {MESSAGE_BYTES // 1024} KiB, each kept by the agent", kib(own),
            f"{own / payload:.2f} x payload", f"<= {TARGET:g} x", own / payload <= TARGET),
        Row(6, "the same, every step given the whole list", kib(given), f"{given / payload:.2f} x payload"),
        Row(6, "the same, with a Pydantic AI agent", kib(chatted),
            f"{chatted / payload:.2f} x payload", f"<= {TARGET:g} x", chatted / payload <= TARGET),
        kept("every step given the whole list, and its input kept whole", whole),
        kept("the same, with a Pydantic AI agent", whole_chat),
        kept("the same as the first of these, PostgreSQL", in_postgres),
        Row(6, "the same, with a Pydantic AI agent, PostgreSQL", kib(chat_in_postgres),
            f"{chat_in_postgres / payload:.2f} x payload"),
    ]  # fmt: skip


def kib(size: float) -> str:
    return f"{size / 1024:,.0f} KiB"


async def growth(
    bench: Bench, agent: holdfast.Agent[[int], int], turns: int, inputs: Literal["full", "digest"]
) -> float:
    """The file after the run, less the file before it; closing the store moves its log into the file."""
    with bench.place() as folder:
        url = f"sqlite:{folder / 'bench.db'}?durability=process"
        async with open_at(url, inputs):
            pass
        before = size_of(folder)
        async with open_at(url, inputs) as hf:
            assert await hf.run(agent, turns) == turns
        return size_of(folder) - before


async def growth_in(url: str, agent: holdfast.Agent[[int], int], turns: int) -> float:
    """The tables and indexes after the run, less what they were before it; rows that updates left behind are counted.

    A short run comes first, because the first row of a table takes a page in each of its indexes.
    """
    sizes = []
    for many in (1, turns):
        async with open_at(url, "full") as hf:
            assert await hf.run(agent, many) == many
        sizes.append(await size_in(url))
    return sizes[1] - sizes[0]


async def size_in(url: str) -> int:
    schema = url.rpartition("=")[2]
    db = await asyncpg.connect(url.partition("?")[0])
    try:
        size: int = await db.fetchval(
            "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class"
            " WHERE relnamespace = $1::regnamespace AND relkind = 'r'", schema,
        )  # fmt: skip
    finally:
        await db.close()
    return size


def open_at(url: str, inputs: Literal["full", "digest"]) -> holdfast.Client:
    return holdfast.open(url, agents=[talk, converse, chat], inputs=inputs)


def size_of(folder: Path) -> int:
    """All files: one that closes last leaves no log behind."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
