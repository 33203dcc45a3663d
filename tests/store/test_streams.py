from __future__ import annotations

import asyncio

import pytest
from tests.store.places import TTL, ManualClock, Place, finish, owned, step, write
from tests.store.test_changes import Heard
from tests.store.test_trouble import Hooks

from holdfast.errors import LeaseLost
from holdfast.store.changes import News
from holdfast.store.store import Store
from holdfast.store.streams import Piece
from holdfast.words.model import RunRow

TRICKY = "a\0b \ud800 \U0001f9a6 é\r\n"


def text(position: int, words: str, stream: str = "s", key: str = "k", attempt: int = 1) -> Piece:
    return Piece(stream, position, "data", key, attempt, 0, parts=[words])


async def read(store: Store, run: str, stream: str = "s", after: int = 0) -> list[tuple[int, str]]:
    return [(piece.position, piece.text) for piece in await store.pieces(run, stream, after)]


async def test_pieces_come_back_in_order_from_any_position(place: Place) -> None:
    """Another store reads what was written, whatever characters it has, behind any position, page by page."""
    async with place.open() as store, place.open() as other:
        row = await owned(store, "a")
        pieces = [text(5, "hello"), Piece("s", 6, "restart", "k", 2, 5, "crashed"), text(6 + len(TRICKY), TRICKY)]
        await store.append(write(row, pieces=pieces))
        assert await other.pieces("a", "s", 0) == pieces
        assert await other.pieces("a", "s", 3) == pieces  # the first one holds what is behind 3
        assert await other.pieces("a", "s", 5) == pieces[1:]
        assert await other.pieces("a", "s", 0, limit=2) == pieces[:2]
        assert (
            await other.pieces("a", "s", 999)
            == await other.pieces("a", "t", 0)
            == await other.pieces("b", "s", 0)
            == []
        )


async def test_where_streams_stand(place: Place) -> None:
    """Each stream of a run is listed once, with its last row; sizes are those of the text in bytes."""
    async with place.open() as store:
        row = await owned(store, "a")
        for name in ("b", "a", "c"):
            for number in range(1, 30):
                await store.append(write(row, pieces=[text(number * 2, "xé", name, attempt=number)]))
        last = [(piece.stream, piece.position, piece.attempt) for piece in await store.streams("a")]
        assert last == [(name, 58, 29) for name in "abc"]
        assert await store.stream_sizes("a") == dict.fromkeys("abc", 87)
        assert await store.streams("none") == []


async def test_a_stale_owner_cannot_write_to_a_stream(place: Place) -> None:
    """What a zombie wrote to a stream after its lease went is refused as a whole; the successor's text stands alone."""
    clock = ManualClock()
    async with place.open(clock) as old, place.open(clock) as young:
        zombie = await owned(old, "a")
        await old.append(write(zombie, pieces=[text(3, "one")]))
        clock.time += TTL
        (owner,) = await young.claim(["agent"], 1, TTL)
        for events in ([], [step()]):
            with pytest.raises(LeaseLost):
                await old.append(write(zombie, *events, pieces=[text(6, "two")]))
        await young.append(write(owner, pieces=[text(8, "three")]))
        zombie.next_seq = owner.next_seq  # it knows the seq by now, and still has the old epoch
        with pytest.raises(LeaseLost):
            await old.append(write(zombie, pieces=[text(13, "again")]))
        assert await read(young, "a") == [(3, "one"), (8, "three")]


async def test_text_of_an_unknown_commit_is_there_once(place: Place) -> None:
    """When the acknowledgement of a commit is lost, text with and without events before and behind it is written once."""
    hooks = Hooks()
    async with place.open(faults=hooks) as store:
        row = await owned(store, "a")
        for batch in range(3):
            hooks.after.append(OSError("lost"))
            start = batch * 4
            appends = [write(row, pieces=[text(start + 2, "ab")])]
            if batch:
                appends.append(write(row, step()))
            appends.append(write(row, pieces=[text(start + 4, "cd")]))
            await asyncio.gather(*[store.append(each) for each in appends])
        assert await read(store, "a") == [(2 * n, "ab" if n % 2 else "cd") for n in range(1, 7)]
        assert len(await store.journal("a")) == 2


async def test_text_and_events_of_many_runs_share_commits(place: Place) -> None:
    """Of runs that write text and events at once, one that lost its lease is left out, and the others have all of theirs."""
    clock = ManualClock()
    async with place.open(clock) as store, place.open(clock) as thief:
        rows = [await owned(store, f"r{number}") for number in range(6)]
        clock.time += TTL
        (stolen,) = await thief.claim(["agent"], 1, TTL)

        async def work(row: RunRow) -> None:
            writes = [write(row, pieces=[text(1, "x")]), write(row, step()), write(row, pieces=[text(2, "y")])]
            await asyncio.gather(*[store.append(each) for each in writes])

        done = await asyncio.gather(*[work(row) for row in rows], return_exceptions=True)
        for row, outcome in zip(rows, done, strict=True):
            if row.id == stolen.id:
                assert isinstance(outcome, LeaseLost)
                assert await read(store, row.id) == []
            else:
                assert outcome is None
                assert await read(store, row.id) == [(1, "x"), (2, "y")]


async def test_readers_in_other_processes_hear_of_text(place: Place) -> None:
    """A store that watches hears that a run grew when only text was written."""
    async with place.open() as store, place.open() as other:
        row = await owned(store, "a")
        heard, number = Heard(other), 0
        while (
            "a",
            News.GREW,
        ) not in heard.changes:  # what is told together with how the run came to be is told as that
            number += 1
            await store.append(write(row, pieces=[text(number, "x")]))
            await asyncio.sleep(0.02)


async def test_streams_go_with_their_run(place: Place) -> None:
    """A run that is deleted or pruned takes its streams along; those of others stay."""
    clock = ManualClock()
    async with place.open(clock) as store:
        for run in ("a", "b", "c"):
            row = await owned(store, run)
            await store.append(write(row, pieces=[text(1, run)]))
            clock.time += 10
            await finish(store, row)
        await store.delete("a")
        assert await store.prune(clock.time, ["completed"]) == 1
        assert [await read(store, run) for run in ("a", "b", "c")] == [[], [], [(1, "c")]]
