"""Files in the store: found once, with their delivery or not at all, and known for longer than it."""

from __future__ import annotations

import asyncio

from tests.store.places import ManualClock, Place

from holdfast.store.files import FoundFile
from holdfast.store.triggers import NewDelivery


def found(path: str, digest: str = "d", mark: str = "1") -> tuple[FoundFile, NewDelivery]:
    return FoundFile(path, digest, mark), NewDelivery("t", f"{path}-{digest}", "files", {"path": path}, b"")


async def test_a_path_with_a_content_is_found_once(place: Place) -> None:
    clock = ManualClock()
    async with place.open(clock) as one, place.open(clock) as two:
        told = await asyncio.gather(*[store.find_file(*found("a")) for store in (one, two) * 5])
        assert sorted(told) == [False] * 9 + [True]
        assert await one.find_file(*found("a", "e"))
        assert await one.find_file(*found("b"))
        assert not await two.find_file(*found("a", mark="2"))
        assert await two.files("t") == [FoundFile("a", "d", "2"), FoundFile("a", "e", "1"), FoundFile("b", "d", "1")]
        assert await two.files("other") == []
        assert len(await one.claim_deliveries(["t"], 10, 1000)) == 3


async def test_a_file_is_known_as_long_as_it_is_there(place: Place) -> None:
    clock = ManualClock()
    async with place.open(clock) as store:
        for path in ("a", "b"):
            await store.find_file(*found(path))
        clock.time += 1000
        await store.see_files("t", ["a", "none"])
        await store.prune_files("t", clock.time)
        assert [file.path for file in await store.files("t")] == ["a"]


async def test_many_files_are_read_in_pages(place: Place, monkeypatch) -> None:
    monkeypatch.setattr("holdfast.store.files._PAGE", 3)
    async with place.open(ManualClock()) as store:
        paths = [f"f{number}" for number in range(7)]
        for path in paths:
            await store.find_file(*found(path))
        assert [file.path for file in await store.files("t")] == paths
        await store.see_files("t", paths)


async def test_a_delivery_that_failed_before_it_was_kept_is_due_later(place: Place) -> None:
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.receive(NewDelivery("t", "k", "queue", {}, b"", 1, "why", 500))
        assert await store.next_delivery(["t"]) == clock.time + 500
        clock.time += 500
        ((row, _),) = await store.claim_deliveries(["t"], 1, 1000)
        assert (row.attempts, row.error, row.status) == (1, "why", "new")
