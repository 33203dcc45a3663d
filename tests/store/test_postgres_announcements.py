"""Announcements that are committed after others that came later: PostgreSQL lets several write at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.store.places import ManualClock, Place
from tests.store.test_announcements import HAND, came, heard, passed, said, trigger, waits
from tests.store.test_postgres import session

from holdfast.store.postgres.execute import ask


@asynccontextmanager
async def publishing(place: Place, id: str) -> AsyncIterator[None]:
    """Somebody who has written an announcement, and commits at the end."""
    async with session(place) as connection, connection.transaction():
        await ask(connection, "announce", id=id, name="paid", value="1", run=None, now=1)
        yield


async def test_what_is_committed_after_a_subscription_comes_to_it(database: Place) -> None:
    """Although its position is below one that was there; and what was there does not come."""
    async with database.open(ManualClock()) as store:
        async with publishing(database, "late"):
            await store.announce(said("there"), **HAND)
            await waits(store, "r")
            await store.declare_subscriptions([trigger("ship")])
            await store.announce(said("next"), **HAND)
        await passed(store)
        assert sorted(await heard(store, "r")) == await came(store, "ship") == ["late", "next"]
        await waits(store, "later")
        await store.announce(said("last"), **HAND)
        await passed(store)
        assert await heard(store, "later") == ["last"]
