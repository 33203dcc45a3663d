"""What came to a run that is carried goes from its inbox into its journal in one statement, under the fence of an append."""

from __future__ import annotations

import asyncio

import pytest
from tests.store.places import TTL, LosesAnswers, ManualClock, Place, owned, park, step, write

from holdfast.errors import LeaseLost
from holdfast.store.appends import Transition
from holdfast.store.approvals import NewApproval
from holdfast.store.inbox import MOST, Taken
from holdfast.store.store import Store
from holdfast.words.model import Event, RunRow
from holdfast.words.people import Actor, Ballot


async def tell(store: Store, run: str, signal: str, value: str = "1") -> None:
    await store.send(run, signal, "message.received", "mail", value, {})


async def take(store: Store, row: RunRow) -> Taken:
    taking = store.take(row.id, row.lease_epoch, row.next_seq, row.inbox_seen)
    assert taking is not None
    taken = await taking
    row.next_seq += len(taken.events)
    row.inbox_seen += len(taken.events)
    return taken


async def test_what_came_is_in_the_journal_as_its_owner_would_write_it(database: Place) -> None:
    """Messages and decisions are the run's next events, in order, and the owner is told exactly these."""
    async with database.open(ManualClock()) as store:
        row = await owned(store, "a")
        await store.append(write(row, step(), approvals=[NewApproval("q", "k", "approve", 'say "yes", é?')]))
        await store.send("a", "s", "message.received", 'to "é"\\', '"é"', {"from": "x"})
        await store.decide("q", Ballot("b", Actor("eve")), known=(await store.approvals(approval="q"))[0])
        taken = await take(store, row)
        first, second = await store.inbox("a", 0)
        assert not taken.more
        assert [(event.seq, event.kind, event.data, event.value) for event in taken.events] == [
            (1, "message.received", {"from": "x", "topic": 'to "é"\\', "position": 1}, '"é"'),
            (2, "approval.decided", {**second.data, "approval": "q"}, second.value),
        ]
        assert first.position == 1
        written = await store.journal("a", 1)
        for event in written:
            event.position = 0
        assert taken.events == written
        assert await take(store, row) == Taken([], False)
        await store.append(write(row, step()))
        found = await store.run("a")
        assert found is not None
        assert (found.next_seq, found.inbox_seen) == (4, 2)


@pytest.mark.parametrize("reason", ["for the owner", "large", "many"])
async def test_what_is_left_to_the_owner(database: Place, reason: str) -> None:
    """Where anything is not for the agent, is large or is much, nothing is taken, and the owner is told to look."""
    async with database.open() as store:
        row = await owned(store, "a")
        await tell(store, "a", "first", '{"$blob":"x"}' if reason == "large" else "1")
        if reason == "for the owner":
            await store.send("a", "second", "run.pausing", "", None, {"by": "eve", "reason": ""})
        for number in range(MOST if reason == "many" else 0):
            await tell(store, "a", f"more-{number}")
        assert await take(store, row) == Taken([], True)
        assert await store.journal("a") == []


async def test_a_stale_owner_takes_nothing(database: Place) -> None:
    """An epoch that is over, or another place of the journal or the inbox: nothing is written, and nothing goes back."""
    async with database.open() as store, database.open() as other:
        row = await owned(store, "a")
        await store.append(write(row, transition=Transition("ready")))
        (now,) = await other.claim(["agent"], 1, TTL)
        await tell(other, "a", "s")
        assert await take(store, row) == Taken([], True)
        with pytest.raises(LeaseLost):
            await store.append(write(row, step()))
        assert [event.value for event in (await take(other, now)).events] == ["1"]
        for behind in ({"next_seq": 0}, {"inbox_seen": 0}):
            stale = RunRow(**{name: getattr(now, name) for name in RunRow.__slots__} | behind)
            assert (await take(other, stale)).events == []
        assert len(await store.journal("a")) == 1


async def test_an_answer_that_was_lost_is_found(database: Place) -> None:
    """What was taken when the answer was lost is in the journal once, and its owner is told of it."""
    faults = LosesAnswers()
    async with database.open(faults=faults) as store:
        row = await owned(store, "a")
        await tell(store, "a", "s")
        faults.lose = True
        assert [(event.seq, event.data["position"]) for event in (await take(store, row)).events] == [(0, 1)]
        await store.append(write(row, step()))
        assert [event.kind for event in await store.journal("a")] == ["message.received", "step.completed"]


async def test_senders_beside_a_taker_lose_nothing(database: Place) -> None:
    """While two stores send as fast as they can, every message is in the journal once and in the order of its position."""
    messages = 60
    async with database.open() as store, database.open() as one, database.open() as two:
        row = await owned(store, "a")

        async def talk(sender: Store, name: str) -> None:
            for number in range(messages // 2):
                await tell(sender, "a", f"{name}{number}", f'"{name}{number}"')

        talking = asyncio.gather(talk(one, "x"), talk(two, "y"))
        taken: list[Event] = []
        while len(taken) < messages:
            events, more = await take(store, row)
            taken += events
            if more:  # many at once: as its owner does, read and append
                signals = await store.inbox("a", row.inbox_seen)
                read = [Event(0, s.kind, None, {"position": s.position}, s.value) for s in signals]
                row.inbox_seen = signals[-1].position
                await store.append(write(row, *read, inbox_seen=row.inbox_seen))
                taken += read
        await talking
        assert [event.data["position"] for event in taken] == list(range(1, messages + 1))
        assert [event.value for event in await store.journal("a")] == [s.value for s in await store.inbox("a", 0)]
        await park(store, row, seen=messages)
