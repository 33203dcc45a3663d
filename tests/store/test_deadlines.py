"""Writes with a deadline: withdrawn for sure when their time is over, or said to be in doubt; nothing happens later unsaid."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.chaos.server import Server
from tests.store.places import Place, new, owned, step, write

from holdfast.errors import StoreUnavailable, Unconfirmed
from holdfast.store.contract import write_limit
from holdfast.store.store import Store
from holdfast.store.urls import store_at


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    before = write_limit.set(seconds)
    yield
    write_limit.reset(before)


class Disk:
    """Fault hooks: commits fail while it is broken, hang while it is held, and one may succeed without a word."""

    def __init__(self) -> None:
        self.broken = self.loses = False
        self.going: dict[str, threading.Event] = {"before": threading.Event(), "after": threading.Event()}
        for moment in self.going.values():
            moment.set()

    def before_commit(self, writes: list[str]) -> None:
        self.going["before"].wait(20)
        if self.broken:
            raise OSError("no space")

    def after_commit(self, writes: list[str]) -> None:
        self.going["after"].wait(20)
        if self.loses:
            self.loses, self.broken = False, True
            raise OSError("lost")


async def test_a_write_whose_time_is_over_never_happens(place: Place) -> None:
    """It says why, and that nothing was done; what waits without a deadline, as workers do, is written when that works."""
    disk = Disk()
    async with place.open(faults=disk) as store:
        row = await owned(store, "a")
        disk.broken = True
        patient = store.append(write(row, step()))
        with limit(0.3):
            writes = [store.create(new(f"late-{number}")) for number in range(3)]
            writes += [store.send("a", "s", "message.received", "t", None, {})]
            results = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(result) for result in results] == [StoreUnavailable] * 4
        assert "was not written within 300 ms (the store cannot be written now" in str(results[0])
        assert "nothing was done, and nothing will be" in str(results[0])
        disk.broken = False
        await patient
        await store.create(new("b"))
        assert sorted([found.id for found in await store.runs()]) == ["a", "b"]
        assert await store.inbox("a", 0) == []


async def test_nothing_of_a_batch_that_nobody_waits_for_is_tried_for_ever(place: Place) -> None:
    """The next write gets its turn at once when the store works again, and the log has not said so before."""
    disk = Disk()
    async with place.open(faults=disk) as store:
        disk.broken = True
        with limit(0.2), pytest.raises(StoreUnavailable, match="nothing was done"):
            await store.create(new("late"))
        assert store.ailment() is not None
        disk.broken = False
        await store.create(new("b"))
        assert store.ailment() is None
        assert [found.id for found in await store.runs()] == ["b"]


async def test_a_commit_of_which_nothing_is_known_is_in_doubt(place: Place) -> None:
    """It may have happened, and here it has: the one who waited is told that it is not known."""
    disk = Disk()
    async with place.open(faults=disk) as store:
        disk.loses = True
        with limit(0.3), pytest.raises(Unconfirmed, match=r"did not confirm a write within 300 ms .*may have happened"):
            await store.create(new("a"))
        disk.broken = False
        await store.create(new("b"))
        assert sorted([found.id for found in await store.runs()]) == ["a", "b"]


def both(store: Store, *runs: str) -> asyncio.Future[list[object]]:
    """Start two at once: they are written beside the loop, which a hook may then hold up."""
    return asyncio.gather(*[store.create(new(run)) for run in runs], return_exceptions=True)


async def test_a_commit_that_is_under_way_when_the_time_is_over(place: Place) -> None:
    """It is waited for a little longer: a write that was done is not called undone, nor one that failed done."""
    disk = Disk()
    async with place.open(faults=disk) as store:
        disk.going["after"].clear()
        with limit(0.1):
            waiting = both(store, "a", "b")
            await asyncio.sleep(0.3)
            assert not waiting.done()
            disk.going["after"].set()
            assert [type(result) for result in await waiting] == [tuple, tuple]
        disk.going["before"].clear()
        disk.broken = True
        with limit(0.1):
            waiting = both(store, "c", "d")
            await asyncio.sleep(0.3)
            disk.going["before"].set()
            assert [type(result) for result in await waiting] == [StoreUnavailable, StoreUnavailable]
        disk.broken = False
        await store.create(new("e"))
        assert sorted([found.id for found in await store.runs()]) == ["a", "b", "e"]


async def test_a_write_that_hangs_is_in_doubt(place: Place) -> None:
    """A disk or a server that says nothing: after the deadline and a second whoever waits goes on without an answer."""
    disk = Disk()
    async with place.open(faults=disk) as store:
        disk.going["after"].clear()
        with limit(0.1):
            results = await both(store, "a", "b")
        assert [type(result) for result in results] == [Unconfirmed, Unconfirmed]
        disk.going["after"].set()
        await store.create(new("c"))
        assert sorted([found.id for found in await store.runs()]) == ["a", "b", "c"]


async def test_what_its_caller_cancelled_does_not_happen_later(place: Place) -> None:
    """`asyncio.timeout` around a write with a deadline withdraws it too."""
    disk = Disk()
    async with place.open(faults=disk) as store:
        disk.broken = True
        with limit(30), pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await store.create(new("late"))
        disk.broken = False
        await store.create(new("b"))
        assert [found.id for found in await store.runs()] == ["b"]


@pytest.mark.slow
async def test_a_server_that_is_gone_when_the_time_is_over(own_server: Server) -> None:
    """A real PostgreSQL, killed: writes are withdrawn for sure, and are not there when it is back."""
    store = store_at(own_server.url)
    await store.open()
    await store.create(new("a"))
    await asyncio.to_thread(own_server.kill)
    while store.ailment() is None:  # notices with the first write; that one may have been sent
        with limit(0.2):
            await asyncio.gather(store.create(new("probe")), return_exceptions=True)
    with limit(0.5):
        for number in range(3):
            with pytest.raises(StoreUnavailable, match="nothing was done") as raised:
                await store.create(new(f"late-{number}"))
            assert type(raised.value) is StoreUnavailable
    await asyncio.to_thread(own_server.start)
    await store.create(new("b"))
    assert {found.id for found in await store.runs()} - {"probe"} == {"a", "b"}
    await store.close()
