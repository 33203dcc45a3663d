"""Rates of steps on Temporal, counted in a database beside the cluster: a call has one turn, and its body begins at that."""

import asyncio
import time
from urllib.parse import quote

import pytest
from tests.temporal import cluster, temporal_url  # noqa: F401 - fixtures

import holdfast

CALLS, PER_SECOND = 15, 5
begun: list[tuple[int, float]] = []


@holdfast.step(rate=holdfast.Rate(PER_SECOND, every="1s"))
async def rated(n: int) -> int:
    begun.append((n, time.time()))
    return n


@holdfast.agent
async def many() -> list[int]:
    return await asyncio.gather(*(rated(n) for n in range(CALLS)))


@pytest.mark.slow
async def test_a_call_takes_one_turn_and_calls_have_theirs_in_order(temporal_url, postgres_url):  # noqa: F811
    begun.clear()
    url = f"{temporal_url}&side={quote(postgres_url, safe='')}"
    async with holdfast.open(url, agents=[many], settings=holdfast.Settings(lease_ttl_s=10.0)) as hf:
        run = await hf.start(many)
        assert await run.result(timeout="120s") == [*range(CALLS)]
        held = [event async for event in run.events(follow=False, kinds="step.held")]
    keys = [event.key for event in held]
    assert len(keys) == len({*keys}), keys
    places = {event.key: event.data["place"] for event in held}
    assert sorted(places, key=places.get) == sorted(places, key=lambda key: int(key.partition("#")[2]))
    times = [at for _, at in begun]
    for n, at in begun:
        assert at * 1_000_000 >= places.get(f"rated#{n}", 0)
        assert sum(at <= other < at + 1 for other in times) <= PER_SECOND
