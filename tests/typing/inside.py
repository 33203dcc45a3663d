"""Verbs inside an agent, as users write them."""

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, assert_type
from uuid import UUID

import holdfast
from holdfast import Child


@dataclass
class News:
    headline: str


@dataclass
class State:
    round: int = 0
    child: Child[int] | None = None
    seen: list[str] = field(default_factory=list[str])


@holdfast.step
async def look(topic: str) -> list[str]:
    return [topic]


@holdfast.agent
async def count(words: list[str], start: int = 0) -> int:
    return start + len(words)


@holdfast.agent
async def receives() -> None:
    news = await holdfast.receive("news", News)
    assert_type(news, News)
    assert_type(news.headline, str)
    number = await holdfast.receive("numbers", int, timeout="1h")
    assert_type(number, int)
    assert_type(await holdfast.receive("lists", list[str]), list[str])
    assert_type(await holdfast.receive("anything"), Any)
    assert_type(holdfast.receive_nowait("news", News), list[News])
    assert_type(holdfast.receive_nowait("anything"), list[Any])
    assert_type(await holdfast.next_event("news", News, match={"by": "ana"}), holdfast.Announcement[News])
    assert_type((await holdfast.next_event("news", timeout="1h")).value, Any)
    assert_type(await holdfast.publish("news", news, key="k"), str)


@holdfast.agent
async def talks() -> None:
    async with holdfast.conversation("user-42", News, busy="refuse") as talk:
        assert_type(talk, holdfast.Conversation[News])
        assert_type(await talk.messages(last=20), list[News])
        assert_type(await talk.add(News("a"), News("b")), None)
        assert_type(len(talk), int)
    async with holdfast.conversation("anything") as talk_of_any:
        assert_type(await talk_of_any.messages(after=1, limit=2), list[Any])


@holdfast.agent
async def children() -> int:
    child = await holdfast.spawn(count, ["a"], start=2)
    assert_type(child, Child[int])
    assert_type(child.id, str)
    total = await child
    assert_type(total, int)
    return total + await count(["a"])


@holdfast.agent
async def snapshots() -> int:
    state = await holdfast.restore(State())
    assert_type(state, State)
    state.child = await holdfast.spawn(count, ["a"])
    state = await holdfast.checkpoint(state)
    assert_type(state, State)
    return state.round


async def build() -> State:
    return State(seen=await look("otters"))


@holdfast.agent
async def built() -> State:
    state = await holdfast.restore(build)
    assert_type(state, State)
    return await holdfast.checkpoint(state)


@holdfast.agent
async def plain_state() -> dict[str, int]:
    state = await holdfast.restore({"round": 0})
    assert_type(state, dict[str, int])
    return state


@holdfast.agent
async def facts() -> str:
    assert_type(holdfast.now(), datetime)
    assert_type(holdfast.uuid4(), UUID)
    assert_type(holdfast.rng("dice"), random.Random)
    assert_type(holdfast.this_run().id, str)
    assert_type(holdfast.this_run().labels, dict[str, str])
    if holdfast.patched("two-reviewers"):
        await holdfast.note("new way", reviewers=2)
    await holdfast.sleep("2h")
    await holdfast.sleep(until=datetime.fromisoformat("2026-01-01T00:00:00Z"))
    with holdfast.scope("tool:1"):
        found = await look("otters")
    try:
        async with holdfast.timeout("10m"):
            found += await look("seals")
    except TimeoutError:
        pass
    except holdfast.StepFailed as failure:
        assert_type(failure.type, str)
        assert_type(failure.attempts, int)
        raise holdfast.Permanent(failure.message) from failure
    return ", ".join(found)


@holdfast.step
async def in_a_step() -> str:
    assert_type(holdfast.idempotency_key(), str)
    assert_type(holdfast.this_step().attempt, int)
    if holdfast.this_step().attempt > 3:
        raise holdfast.RetryAfter("30s")
    return holdfast.idempotency_key()


@holdfast.agent
async def asks_people(topic: str) -> int:
    plain = await holdfast.approve("Go on?")
    assert_type(plain, holdfast.Decision[None])
    shown = await holdfast.approve("These?", show=[topic], edit=True, to=["ana", "it"], needs=len)
    assert_type(shown, holdfast.Decision[list[str]])
    assert_type(shown.data, list[str])
    assert_type(shown.by, str | None)
    assert_type(shown.votes, tuple[holdfast.Vote, ...])
    assert_type(bool(shown), bool)
    count = await holdfast.ask("How many?", int, expires="2h", default=3)
    assert_type(count, int)
    either = await holdfast.ask("Which?", int | str, show=topic)
    assert_type(either, Any)
    return count if shown else 0


@holdfast.step(retry=holdfast.Retry.model, rate=holdfast.Rate("500/m", tokens="200000/m", name="openai"))
async def ask_model(model: str, prompt: str, problem: str = "") -> str:
    tokens = [token async for token in holdfast.lively(spoken(), "10s")]
    assert_type(tokens, list[str])
    return "".join(tokens)


async def spoken() -> AsyncIterator[str]:
    yield "otters"


answer = holdfast.fallback(ask_model, ["large", "small"])
number = holdfast.fallback(ask_model, ["large", "small"], check=int, tries=2)
words = holdfast.fallback(ask_model, ["large", "small"], check=str.split)


@holdfast.agent
async def falls_back() -> str:
    try:
        assert_type(await number("How many otters?"), int)
        assert_type(await words("Which otters?"), list[str])
    except holdfast.Unanswered as failure:
        assert_type(failure.problems, dict[str, str])
    text = await answer("What do otters do?")
    assert_type(text, str)
    return text


@holdfast.step
async def speaks() -> str:
    async with holdfast.stream("answer") as out:
        assert_type(out, holdfast.Stream)
        assert_type(out.salvaged, holdfast.Salvaged | None)
        text = out.keep()
        await out.write("otters")
    return text


@holdfast.agent
async def listens() -> str:
    try:
        return await speaks()
    except holdfast.StepFailed as error:
        assert_type(error.partial, dict[str, holdfast.Salvaged])
        assert_type(error.partial["answer"].reason, holdfast.Reason)
        return error.partial["answer"].text
    except ConnectionError as error:
        return holdfast.partial(error)["answer"].text
    finally:
        assert_type(await holdfast.unfinished("answer"), holdfast.Salvaged | None)
