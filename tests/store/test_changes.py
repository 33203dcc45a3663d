from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from tests.store.places import TTL, Place, finish, new, owned, python, step, write

from holdfast.store.appends import Transition
from holdfast.store.changes import Changes, News
from holdfast.store.store import Store


class Heard:
    """Collects what a store hears, and waits for it."""

    def __init__(self, store: Store) -> None:
        self.changes: list[tuple[str, News]] = []
        self._more = asyncio.Event()
        store.on_change(self._hear)

    def _hear(self, changes: Changes) -> None:
        self.changes += changes.items()
        self._more.set()

    async def until(self, run: str, news: News) -> None:
        """A change of exactly this kind; a hint that anything may have changed does not count."""
        while (run, news) not in self.changes:
            self._more.clear()
            await self._more.wait()
        self.changes.clear()


async def test_own_commits_are_heard_at_once(place: Place) -> None:
    """A store hears its own commits after those who wait for them: which run, and whether a worker should look."""
    async with place.open() as store:
        heard = Heard(store)
        await store.create(new("a"))
        assert heard.changes == [("a", News.DUE)]
        await store.claim(["agent"], 1, TTL)
        row = await store.run("a")
        assert row is not None
        await store.append(write(row, step(), children=[new("a.c", parent_id="a", agent="child")]))
        await store.append(write(row, transition=Transition("waiting", inbox_seen=0, awaits=["yes"])))
        await store.send("a", "s1", "message.received", "no", None, {})
        await store.send("a", "s2", "message.received", "yes", None, {})
        due, moved, grew = News.DUE, News.MOVED, News.GREW
        assert heard.changes == [
            ("a", due), ("a", moved), ("a", grew), ("a.c", due), ("a", moved), ("a", due), ("a", due),
        ]  # fmt: skip


async def test_a_failing_listener_stops_nobody(place: Place) -> None:
    """A listener that raises neither breaks a write nor keeps the next listener from hearing."""
    async with place.open() as store:

        def broken(changes: Changes) -> None:
            raise RuntimeError("broken")

        store.on_change(broken)
        heard = Heard(store)
        await store.create(new("a"))
        assert heard.changes


async def test_stores_hear_each_other(place: Place) -> None:
    """What one store commits is heard by others by name, also by one that opened later."""
    async with place.open() as one:
        heard_by_one = Heard(one)
        async with place.open() as two:
            heard_by_two = Heard(two)
            await one.create(new("a"))
            await heard_by_two.until("a", News.DUE)
            await two.create(new("b", agent="other"))
            await heard_by_one.until("b", News.DUE)
            row = (await one.claim(["agent"], 1, TTL))[0]
            await heard_by_two.until("a", News.MOVED)
            await finish(one, row)
            await heard_by_two.until("a", News.STOPPED)


async def test_rubbish_on_the_socket_is_ignored(file: Place) -> None:
    """Whatever is sent to a store's socket, it goes on hearing."""
    async with file.open() as store, file.open() as other:
        heard = Heard(store)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            for rubbish in (b"", b"\n\n", b"?x", b"\xff\xfe\n+", bytes(range(256)), b"x" * 10_000):
                stranger.sendto(rubbish, other._peers._address(store.worker_id))  # type: ignore[attr-defined]
        await other.create(new("a"))
        await heard.until("a", News.DUE)


async def test_a_flood_is_heard_as_one_hint(place: Place) -> None:
    """A commit of many runs is heard elsewhere as a change of anything."""
    async with place.open() as one, place.open() as two:
        heard = Heard(two)
        await asyncio.gather(*[one.create(new(f"run-{number}")) for number in range(200)])
        await heard.until("", News.DUE)


WRITER = """
import asyncio, sys
from holdfast.store.runs import NewRun
from holdfast.store.urls import store_at

async def main():
    store = store_at(sys.argv[1])
    await store.open()
    if sys.argv[2] == "silent":
        if sys.argv[1].startswith("sqlite"):
            store._peers.poke = store._writer._committed = lambda changes: None
        else:
            store._wakeups.tell = lambda changes: None
    while text := await asyncio.to_thread(sys.stdin.readline):
        await store.create(NewRun(text.strip(), "uid", "agent", "{}"))
    await store.close()

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.by_day("sqlite")
async def test_another_process_is_heard(place: Place) -> None:
    """A commit of another process is heard by name."""
    await heard_from_process(place, "talking", "from-there")


@pytest.mark.slow
@pytest.mark.by_day("postgres")
async def test_a_silent_process_is_noticed(place: Place) -> None:
    """If no word of it comes, the poll tells within about a second that something changed."""
    await heard_from_process(place, "silent", "")


async def heard_from_process(place: Place, manner: str, expected: str) -> None:
    async with place.open() as store:
        heard = Heard(store)
        process = python(WRITER, place.url, manner)
        assert process.stdin is not None
        process.stdin.write("from-there\n")
        process.stdin.flush()
        async with asyncio.timeout(20):
            await heard.until(expected, News.DUE)
            while await store.run("from-there") is None:  # a server's other programs change things too
                assert not expected
                await heard.until(expected, News.DUE)
        process.communicate()


async def test_long_paths(file: Place) -> None:
    """Wake-ups also work where the path is too long for a socket's address."""
    deep = Path(file.path).parent / ("x" * 120)
    deep.mkdir()
    place = Place(file.connect, f"sqlite:{deep}/runs.db")
    async with place.open() as one, place.open() as two:
        heard = Heard(two)
        await one.create(new("a"))
        await heard.until("a", News.DUE)


async def test_closing_leaves_nothing_behind(place: Place) -> None:
    """After the last close no worker is known, its runs are due, and beside a file there is nothing: no log, no lock."""
    async with place.open() as one, place.open() as two:
        await owned(one, "a")
        await two.runs()
    if place.url.startswith("sqlite:"):
        assert list(Path(place.path).parent.iterdir()) == [Path(place.path)]
    async with place.open() as store:
        row = await store.run("a")
        assert row is not None
        assert row.due_at is not None
        assert row.due_at <= store.clock.now()
        assert (await store.facts())["workers"] == 0
