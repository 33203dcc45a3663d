"""Announcements in a worker, on every store: what is gathered ends in time, however much is published meanwhile."""

from tests.store.places import ManualClock, Place

from holdfast.store.announcements import NewAnnouncement
from holdfast.store.gatherings import GatherAct
from holdfast.words.triggers import Gather
from holdfast.worker.announcements import Announcements


async def test_gatherings_end_in_time_although_more_is_published_than_can_be_passed_on(place: Place) -> None:
    clock = ManualClock()
    async with place.open(clock) as store:
        worker = Announcements(store)
        await store.apply([GatherAct(Gather("t", "k", "", 1, '"first"', 10, None, 1_000))])
        clock.time += 1_000
        for nth in range(3):  # something waits at each turn
            for each in range(101):
                await store.announce(NewAnnouncement(f"e{nth}-{each}", "paid", "null"), by="ana", via="test")
            await worker.turn()
            assert (await store.next_announcement())[0] is not None
        (row,) = await store.deliveries("t", "new")
        assert (await store.delivery("t", row.key))[1] == b'["first"]'
