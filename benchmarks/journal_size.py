"""6. How much a conversation takes in the file, against the bytes of its messages."""

from __future__ import annotations

import random
import string
from pathlib import Path

from measuring import Bench, Row, finished
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast.integrations.pydantic_ai import HoldfastDurability

TARGET = 1.5
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
    own, given, chatted = (finished(growth(bench, agent, turns)) for agent in (talk, converse, chat))
    return [
        Row(6, f"{turns} turns of {MESSAGE_BYTES // 1024} KiB, each kept by the agent", kib(own),
            f"{own / payload:.2f} x payload", f"<= {TARGET:g} x", own / payload <= TARGET),
        Row(6, "the same, every step given the whole list", kib(given), f"{given / payload:.2f} x payload"),
        Row(6, "the same, with a Pydantic AI agent", kib(chatted),
            f"{chatted / payload:.2f} x payload", f"<= {TARGET:g} x", chatted / payload <= TARGET),
    ]  # fmt: skip


def kib(size: float) -> str:
    return f"{size / 1024:,.0f} KiB"


async def growth(bench: Bench, agent: holdfast.Agent[[int], int], turns: int) -> float:
    """The file after the run, less the file before it; closing the store moves its log into the file."""
    with bench.place() as folder:
        async with open_at(folder):
            pass
        before = size_of(folder)
        async with open_at(folder) as hf:
            assert await hf.run(agent, turns) == turns
        return size_of(folder) - before


def open_at(folder: Path) -> holdfast.Client:
    return holdfast.open(f"sqlite:{folder / 'bench.db'}?durability=process", agents=[talk, converse, chat])


def size_of(folder: Path) -> int:
    """All files: one that closes last leaves no log behind."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
