"""Which runs a worker claims, and when it looks."""

from types import SimpleNamespace

import holdfast
from holdfast.errors import StoreUnavailable
from holdfast.store.changes import News
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
