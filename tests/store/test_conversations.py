"""Conversations in the store: who has one, who comes next, and what was said, on every store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.store.places import ManualClock, Place, finish, owned, park, write

from holdfast.errors import ConversationBusy, LeaseLost
from holdfast.store.conversations import Enter, Leave, Say, Talking
from holdfast.store.store import Store
from holdfast.words.model import Event, RunRow


async def talk(store: Store, row: RunRow, *talks: Talking) -> None:
    await store.append(write(row, Event(0, "note", f"talk#{row.next_seq}"), talks=list(talks)))


async def enter(store: Store, row: RunRow, conversation: str = "c", wait: bool = True) -> None:
    await talk(store, row, Enter(conversation, f"{row.id}-{conversation}", "key", wait))


def say(row: RunRow, first: int, *texts: str, conversation: str = "c") -> Say:
    return Say(conversation, f"{row.id}-{conversation}", first, list(texts))


def leave(row: RunRow, conversation: str = "c") -> Leave:
    return Leave(conversation, f"{row.id}-{conversation}")


async def told(store: Store, run: str) -> list[tuple[str, str, Any]]:
    found = await store.inbox(run, 0)
    return [(each.kind.rpartition(".")[2], each.topic, each.data.get("length", each.data.get("by"))) for each in found]


async def who(store: Store, conversation: str = "c") -> tuple[str | None, int, int]:
    (row,) = await store.conversations(conversation=conversation)
    return row.run, row.waiting, row.length


async def test_first_come_first_served(place: Place) -> None:
    """The first gets it at once, the others when it is left, in the order asked, each told once and with its length."""
    async with place.open(ManualClock()) as store:
        rows = [await owned(store, run) for run in "abc"]
        for row in rows:
            await enter(store, row)
        assert await who(store) == ("a", 2, 0)
        assert await told(store, "a") == [("entered", "a-c", 0)]
        assert await told(store, "b") == []
        await talk(store, rows[0], say(rows[0], 0, '"x"', '"y"'))
        await talk(store, rows[0], leave(rows[0]))
        assert await told(store, "b") == [("entered", "b-c", 2)]
        assert await told(store, "c") == []
        await talk(store, rows[1], say(rows[1], 2, '"z"'), leave(rows[1]))
        assert await told(store, "c") == [("entered", "c-c", 3)]
        await talk(store, rows[2], leave(rows[2]))
        assert await who(store) == (None, 0, 3)
        found = await store.said("c", 1, 3)
        assert [(each.position, each.value, each.run) for each in found] == [(1, '"y"', "a"), (2, '"z"', "b")]


async def test_a_parked_run_is_woken(place: Place) -> None:
    """Who waits for its turn is due when the turn comes, and not before."""
    async with place.open(ManualClock()) as store:
        first, second = await owned(store, "a"), await owned(store, "b")
        await enter(store, first)
        await enter(store, second)
        await park(store, second, awaits=["conversation:b-c"], waits_for="conversation", seen=0)
        await store.send("b", "other", "message.received", "other", None, {})
        assert (await store.run("b")).due_at is None  # type: ignore[union-attr]
        await talk(store, first, leave(first))
        (claimed,) = await store.claim(["agent"], 1, 30_000)
        assert claimed.id == "b"


async def test_asking_again_is_the_same_request(place: Place) -> None:
    """A request that is made twice is answered once, whether the run has the conversation or stands in line."""
    async with place.open(ManualClock()) as store:
        first, second = await owned(store, "a"), await owned(store, "b")
        for row in (first, first, second, second):
            await enter(store, row)
        assert await who(store) == ("a", 1, 0)
        await talk(store, first, leave(first))
        await enter(store, second)
        assert [len(await told(store, run)) for run in "ab"] == [1, 1]
        assert await who(store) == ("b", 0, 0)


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_an_end_leaves_all(place: Place, end: str) -> None:
    """A run that ends leaves what it has and what it waits for; the next in line is told, ended ones are passed over."""
    async with place.open(ManualClock()) as store:
        first, second, third = [await owned(store, run) for run in "abc"]
        await enter(store, first, "x")
        for row in (second, first, third):
            await enter(store, row, "c", wait=row is not first)
        assert await who(store, "c") == ("b", 1, 0)
        await asyncio.gather(finish(store, first, end), finish(store, second, end))
        assert await who(store, "x") == (None, 0, 0)
        assert await who(store, "c") == ("c", 0, 0)


async def test_a_turn_that_was_over_before_it_was_seen(place: Place) -> None:
    """A run that fails before it has heard of its turn is not told of that turn when it is retried: another has it by then."""
    async with place.open(ManualClock()) as store:
        rows = [await owned(store, run) for run in "abc"]
        for row in rows:
            await enter(store, row)
        await talk(store, rows[0], leave(rows[0]))
        assert await who(store) == ("b", 1, 0)
        await finish(store, rows[1], "failed")
        assert await who(store) == ("c", 0, 0)
        await store.resume("b", by="ana", retry=True)
        (signal,) = await store.inbox("b", 0)
        assert (signal.kind, signal.recorded()) == ("conversation.entered", None)


async def test_cancelled_without_its_code(place: Place) -> None:
    """A run that is ended from outside leaves what it has."""
    async with place.open(ManualClock()) as store:
        first, second = await owned(store, "a"), await owned(store, "b")
        await enter(store, first)
        await enter(store, second)
        await park(store, first, awaits=[], waits_for="message", seen=1)
        for request in ("one", "two"):
            await store.cancel("a", by="ana", grace_ms=0, request=request)
        assert await who(store) == ("b", 0, 0)
        assert await told(store, "b") == [("entered", "b-c", 0)]


async def test_refused(place: Place) -> None:
    """Who does not wait is told who has it; so is who waits but has another one, or whose parent has."""
    async with place.open(ManualClock()) as store:
        first, second = await owned(store, "a"), await owned(store, "b")
        child = await owned(store, "b.1", parent_id="b", root_id="b")
        await enter(store, first)
        await enter(store, second, "d")
        await enter(store, second, wait=False)
        assert (await told(store, "b"))[-1] == ("refused", "b-c", "a")
        for row in (second, child):
            await talk(store, row, Enter("c", f"again-{row.id}", "key", True))
            (signal,) = (await store.inbox(row.id, 0))[-1:]
            assert (signal.kind, signal.data["by"], signal.data["has"]) == ("conversation.refused", "a", "d")
        assert await who(store) == ("a", 0, 0)


async def test_a_child_does_not_stand_in_line_behind_its_parent(place: Place) -> None:
    """A child is refused while a run above it waits for a conversation, and not because of what it waits for itself."""
    async with place.open(ManualClock()) as store:
        first, parent = await owned(store, "a"), await owned(store, "b")
        child = await owned(store, "b.1", parent_id="b", root_id="b")
        await enter(store, first)
        await enter(store, parent)
        for _ in range(2):
            await talk(store, parent, Enter("c", "b-c", "key", True))
        await enter(store, child)
        (signal,) = await store.inbox("b.1", 0)
        assert (signal.kind, signal.data["by"], signal.data["has"]) == ("conversation.refused", "a", "c")
        assert (await who(store))[:2] == ("a", 1)
        assert await told(store, "b") == []


async def test_only_who_has_it_adds(place: Place) -> None:
    """Messages of a run that has left, or that believes the conversation to be of another length, are refused."""
    async with place.open(ManualClock()) as store:
        row, other = await owned(store, "a"), await owned(store, "b")
        await enter(store, row)
        with pytest.raises(LeaseLost):
            await talk(store, other, say(other, 0, "1"))
        for first in (1, -1):
            wrong = write(row, Event(0, "note", "wrong#0"), talks=[say(row, first, "1")])
            row.next_seq -= 1
            with pytest.raises(LeaseLost):
                await store.append(wrong)
        await talk(store, row, say(row, 0, "1"), leave(row))
        with pytest.raises(LeaseLost):
            await talk(store, row, say(row, 1, "1"))
        assert [each.value for each in await store.said("c", 0, 9)] == ["1"]


async def test_written_together_or_not_at_all(place: Place) -> None:
    """An append that is refused adds nothing, and the same one again after an unknown commit adds nothing more."""
    async with place.open(ManualClock()) as store:
        row = await owned(store, "a")
        await enter(store, row)
        append = write(row, Event(0, "note", "n#0"), talks=[say(row, 0, "1", "2")])
        await store.append(append)
        await store.append(append)
        stale = write(row, Event(0, "note", "n#1"), talks=[say(row, 2, "3")])
        stale.epoch -= 1
        with pytest.raises(LeaseLost):
            await store.append(stale)
        assert [each.value for each in await store.said("c", 0, 9)] == ["1", "2"]


async def test_listing_and_deleting(place: Place) -> None:
    """Conversations are listed by id, page by page; one that is taken is not deleted, another one goes with its messages."""
    async with place.open(ManualClock()) as store:
        row = await owned(store, "a")
        for name in "dbca":
            await enter(store, row, name)
            await talk(store, row, say(row, 0, "1", conversation=name), leave(row, name))
        assert [each.id for each in await store.conversations(limit=3)] == ["a", "b", "c"]
        assert [each.id for each in await store.conversations(after="c", limit=3)] == ["d"]
        await enter(store, row, "a")
        with pytest.raises(ConversationBusy, match="'a' cannot be deleted while run 'a' has it"):
            await store.delete_conversation("a")
        assert await store.delete_conversation("b") == 1
        assert await store.delete_conversation("b") == 0
        assert [each.id for each in await store.conversations()] == ["a", "c", "d"]
        assert await store.said("b", 0, 9) == []


async def test_a_line_in_two_processes(place: Place) -> None:
    """Thirty runs of two stores that race for one conversation have it one after the other, and all have it."""
    async with place.open() as one, place.open() as other:
        stores = {f"r{number:02}": (one, other)[number % 2] for number in range(30)}
        rows = {
            run: await owned(store, run, agent=f"agent-{number}") for number, (run, store) in enumerate(stores.items())
        }
        await asyncio.gather(*[enter(stores[run], row) for run, row in rows.items()])
        order: list[str] = []
        while (run := (await who(one))[0]) is not None:
            assert await told(one, run) == [("entered", f"{run}-c", len(order))]
            await talk(stores[run], rows[run], say(rows[run], len(order), f'"{run}"'), leave(rows[run]))
            order.append(run)
        assert sorted(order) == sorted(rows)
        assert [each.run for each in await one.said("c", 0, 99)] == order
