"""Which runs a worker claims, and when it looks."""

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

import holdfast
from holdfast.errors import StoreUnavailable
from holdfast.store.changes import News
from holdfast.store.leases import Leases
from holdfast.worker.agents import Served
from holdfast.worker.scheduler import Scheduler
from holdfast.worker.settings import Settings


@holdfast.agent
async def served() -> None: ...


async def test_news_of_any_run_reach_those_that_are_being_loaded_where_their_owner_sees_them():
    loading = {"loaded": False}
    scheduler = Scheduler(SimpleNamespace(), Served([]), Settings(), {}, loading)
    scheduler.changed({"": News.DUE})
    assert loading == {"loaded": True}
    assert scheduler.changed_meanwhile("whichever")


async def test_agents_that_could_not_be_published_are_published_the_next_time():
    known = []

    async def fails(_agents):
        raise StoreUnavailable("away")

    async def works(agents):
        known.extend(name for name, _, _ in agents)

    agents = Served([served.spec])
    try:
        await agents.publish(SimpleNamespace(publish=fails))
    except StoreUnavailable:
        await agents.publish(SimpleNamespace(publish=works))
    await agents.publish(SimpleNamespace(publish=fails))  # there is nothing left to tell
    assert known == ["served"]


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_worker_claims_its_share_of_what_it_has_made_due_at_once(store_url, workers, monkeypatch):
    """A hundred runs of a schedule do not wait for each other to begin."""
    taken: dict[str, list[int]] = {}
    claim = Leases.claim

    async def noted(self, *args, **more):
        found = await claim(self, *args, **more)
        taken.setdefault(self.worker_id, []).append(len(found))
        return found

    monkeypatch.setattr(Leases, "claim", noted)
    async with contextlib.AsyncExitStack() as opened:
        clients = [await opened.enter_async_context(holdfast.open(store_url, agents=[served])) for _ in range(workers)]
        for each in clients:
            while each._worker.scheduler._workers != workers:
                await asyncio.sleep(0.02)
        handle = await clients[0].schedule("hourly", served, holdfast.Schedule(every="1h"))
        until = datetime(2026, 11, 2, tzinfo=UTC)
        begun = await handle.backfill(until - timedelta(hours=99), until)
        for run in begun:
            await clients[0].get(run).result()
        mine = [found for found in taken[clients[0].store.worker_id] if found]
    assert len(begun) == 100
    assert max(mine) >= 80 // workers, taken  # a look that was on its way already may have taken ten before
