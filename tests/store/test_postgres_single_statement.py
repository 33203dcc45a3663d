"""What PostgreSQL does in one statement when it comes alone: the same as in a transaction."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.store.places import TTL, LosesAnswers, ManualClock, Place, finish, new, owned, park, step, write

from holdfast.errors import AlreadyDecided, RunFinished, UnknownRun
from holdfast.store.appends import InboxMoved, Transition
from holdfast.store.approvals import NewApproval
from holdfast.store.postgres import single_statement
from holdfast.store.postgres.connection import connect, parse_url
from holdfast.store.postgres.dialect import STATEMENTS
from holdfast.store.store import Store
from holdfast.store.streams import Piece
from holdfast.words.model import Claimed, Event
from holdfast.words.people import Actor, Ballot


async def tell(store: Store, run: str, signal: str, kind: str = "message.received", topic: str = "mail", value: str = "1",
               **data: object) -> int:  # fmt: skip
    return await store.send(run, signal, kind, topic, value, data)


async def arrived(store: Store, run: str) -> list[tuple[int, str, dict[str, object], str | None, int]]:
    events = await store.journal(run)
    return [(event.seq, event.kind, event.data, event.value, event.epoch) for event in events if event.epoch > 1]


async def known_of(store: Store, run: str, from_seq: int = 0) -> list[Event]:
    return [replace(event, position=0) for event in await store.journal(run, from_seq)]


async def test_a_short_journal_comes_with_the_claim(database: Place) -> None:
    """It is what would be read: from the last checkpoint on, large values named, and without what was dropped."""
    async with database.open(ManualClock()) as store:
        row = await owned(store, "a")
        many = write(row, *[step() for _ in range(single_statement.SHORT + 1)])
        await store.append(many)
        await park(store, row, seen=0, due_at=0)
        (row,) = await store.claim(["agent"], 1, TTL)
        assert isinstance(row, Claimed)
        assert row.journal is None
        state = Event(0, "checkpoint", "@1", {"delivered": 1}, '"é\\ud800"')
        await store.append(write(row, state, checkpoint_seq=row.next_seq))
        large = Event(0, "step.completed", "large", {"name": "é"}, None, "d" * 64)
        await store.append(write(row, large, blobs={"d" * 64: b"content"}))
        await park(store, row, seen=0, due_at=0)
        (row,) = await store.claim(["agent"], 1, TTL)
        assert isinstance(row, Claimed)
        assert row.journal == await known_of(store, "a", row.checkpoint_seq or 0)
        assert [event.kind for event in row.journal] == ["checkpoint", "step.completed"]


async def test_who_has_written_to_no_stream_is_known_by_the_claim(database: Place) -> None:
    """So that a run that never wrote to one is not asked for them; of one that did, nothing is said."""
    async with database.open(ManualClock()) as store:
        row = await owned(store, "a")
        for piece in ([], [Piece("s", 3, "data", "k", 1, 0, parts=["abc"])]):
            await store.append(write(row, step(), pieces=piece))
            await park(store, row, seen=0, due_at=0)
            (row,) = await store.claim(["agent"], 1, TTL)
            assert isinstance(row, Claimed)
            assert row.silent is not bool(piece)


async def test_a_claim_takes_no_journal_of_before(database: Place) -> None:
    """Of a run that another worker carried between the look and the lock of a claim: that is left to a transaction."""
    async with database.open(ManualClock()) as store:
        await park(store, await owned(store, "a"), seen=0, due_at=0)
        text, names = STATEMENTS["claim_plain"]
        text = text.replace("WHERE priority", "WHERE pg_advisory_xact_lock(7) IS NOT NULL AND priority", 1)
        given = {"agents": '["agent"]', "worker": "slow", "limit": 1, "ttl": TTL, "claim": "c", "alone": 0,
                 "now": 1_000_000, "soon": 1_000_000, "short": single_statement.SHORT}  # fmt: skip
        other, slow = [await connect(parse_url(database.url)) for _ in range(2)]
        await other.execute("SELECT pg_advisory_lock(7)")
        claim = asyncio.create_task(slow.fetch(text, *map(given.get, names)))
        while not await other.fetchval("SELECT cardinality(pg_blocking_pids($1))", slow.get_server_pid()):
            await asyncio.sleep(0.005)
        (row,) = await store.claim(["agent"], 1, TTL)
        await store.append(write(row, step()))
        await park(store, row, seen=0, due_at=0)
        await other.execute("SELECT pg_advisory_unlock(7)")
        ((due, needing, *taken),) = await claim
        assert (due, needing) == (1, 1)
        assert not any(taken)
        await other.close()
        await slow.close()


async def test_what_woke_a_run_is_in_its_journal_with_the_claim(database: Place) -> None:
    """Messages and decisions that came to a parked run are its next events, in order, and are not unseen any more."""
    clock = ManualClock()
    async with database.open(clock) as store:
        row = await owned(store, "a")
        await store.append(write(row, step(), approvals=[NewApproval("q", "k", "approve", 'say "yes", é?')]))
        await park(store, row, seen=0)
        clock.time += 5
        await tell(store, "a", "s1", topic='to "é"\\', value='"é"')
        known = (await store.approvals(approval="q"))[0]
        await store.decide("q", Ballot("b", Actor("eve"), note="fine"), known=known)
        clock.time += 5
        (taken,) = await store.claim(["agent"], 1, TTL)
        assert isinstance(taken, Claimed)
        assert (taken.lease_epoch, taken.next_seq, taken.inbox_count, taken.inbox_seen) == (2, 3, 2, 2)
        message, decision = await arrived(store, "a")
        assert message == (1, "message.received", {"topic": 'to "é"\\', "position": 1}, '"é"', 2)
        assert decision[:2] == (2, "approval.decided")
        (_, signal) = await store.inbox("a", 0)
        assert decision[2] == {**signal.data, "approval": "q"}
        assert taken.journal == await known_of(store, "a")
        await store.append(write(taken, step()))
        await finish(store, taken)


@pytest.mark.parametrize("reason", ["a timer was due before", "for the owner", "large", "many"])
async def test_what_a_claim_leaves_to_the_owner(database: Place, reason: str) -> None:
    """What must come after a timer, is not for the agent, is large or is much stays in the inbox; the run is claimed."""
    clock = ManualClock()
    async with database.open(clock) as store:
        row = await owned(store, "a")
        await park(store, row, seen=0, due_at=clock.time + 10 if reason.startswith("a timer") else None)
        clock.time += 20
        await tell(store, "a", "first", value='{"$blob":"x"}' if reason == "large" else "1")
        if reason == "for the owner":
            await store.send("a", "second", "run.pausing", "", None, {"by": "eve", "reason": ""})
        for number in range(12 if reason == "many" else 0):
            await tell(store, "a", f"more-{number}")
        (taken,) = await store.claim(["agent"], 1, TTL)
        assert (taken.inbox_seen, await arrived(store, "a")) == (0, [])
        assert len(await store.inbox("a", 0)) == taken.inbox_count


async def test_a_claim_whose_answer_was_lost_finds_what_it_took(database: Place) -> None:
    """With what it wrote into the journal, once."""
    faults = LosesAnswers()
    async with database.open(faults=faults) as store:
        await park(store, await owned(store, "a"), seen=0)
        await tell(store, "a", "s")
        faults.lose = True
        (taken,) = await store.claim(["agent"], 5, TTL)
        assert (taken.lease_epoch, taken.next_seq, taken.inbox_seen) == (2, 1, 1)
        assert [event[1] for event in await arrived(store, "a")] == ["message.received"]
        assert await store.claim(["agent"], 5, TTL) == []


async def test_signals_that_are_sent_at_once_change_the_row_of_their_run_once(database: Place) -> None:
    """What a transaction wrote to a row before cannot be pruned in it: 500 versions would be 20 pages that nobody uses again."""
    async with database.open() as store:
        row = await owned(store, "a")
        sent = await asyncio.gather(*[tell(store, "a", f"s{number}", value=str(number)) for number in range(500)])
        assert sent == list(range(1, 501))
        assert [signal.value for signal in await store.inbox("a", 0)] == [str(number) for number in range(500)]
        connection = await connect(parse_url(database.url))
        assert await connection.fetchval("SELECT pg_relation_size('runs') / 8192") <= 3
        await connection.close()
        row.inbox_seen = 500
        await finish(store, row)


async def test_signals_that_are_sent_at_once_are_what_they_are_one_by_one(database: Place) -> None:
    """Each keeps its place in its run; what came before, or comes twice, is one; who sends to no run or an ended one is told."""
    clock = ManualClock()
    async with database.open(clock) as store:
        picky, deaf, ended = [await owned(store, run) for run in ("picky", "deaf", "ended")]
        await tell(store, "picky", "first")
        await park(store, picky, Event(0, "message.received"), seen=1, awaits=["yes", "child:c"])
        await park(store, deaf, awaits=["child:d"], seen=0)
        await finish(store, ended)
        clock.time += 7
        sends = [
            ("deaf", "k", "a"), ("picky", "k", "no"), ("picky", "first", "no"), ("nobody", "k", "a"), ("picky", "l", "yes"),
            ("ended", "k", "a"), ("deaf", "l", "b"), ("picky", "k", "other"), ("deaf", "m", 'to "\u00e9"\\'),
        ]  # fmt: skip
        told = [
            store.send(run, signal, "message.received", topic, None, {}, by="eve", via="cli")
            for run, signal, topic in sends
        ]
        found = await asyncio.gather(tell(store, "picky", "before", topic="no"), *told, return_exceptions=True)
        assert [type(each) for each in found if not isinstance(each, int)] == [UnknownRun, RunFinished]
        assert [each for each in found if isinstance(each, int)] == [2, 1, 3, 1, 4, 2, 3, 3]
        assert [signal.topic for signal in await store.inbox("deaf", 0)] == ["a", "b", 'to "\u00e9"\\']
        assert [signal.topic for signal in await store.inbox("picky", 2)] == ["no", "yes"]
        rows = {row.id: row for row in await store.runs()}
        assert (rows["picky"].due_at, rows["deaf"].due_at) == (clock.time, None)
        audit = [(row["run"], row["actor"], row["via"], row["data"]["position"]) for row in await store.audit()]
        assert sorted(audit) == [
            *[("deaf", "eve", "cli", position) for position in (1, 2, 3)],
            *[("picky", "eve", "cli", position) for position in (3, 4)],
        ]


async def test_a_signal_that_cannot_be_kept_fails_alone(database: Place) -> None:
    async with database.open() as store:
        await owned(store, "a")
        sends = [tell(store, "a", f"s{number}", topic="no\0text" if number == 5 else "mail") for number in range(9)]
        found = await asyncio.gather(*sends, return_exceptions=True)
        assert sorted(each for each in found if isinstance(each, int)) == list(range(1, 9))
        assert isinstance(found[5], Exception)
        assert len(await store.inbox("a", 0)) == 8


class LosesMany(LosesAnswers):
    """The answer of the next commit of several writes is lost on the way."""

    def after_commit(self, writes: list[str]) -> None:
        if len(writes) > 1:
            super().after_commit(writes)


async def test_signals_that_were_sent_at_once_and_not_confirmed_come_once(database: Place) -> None:
    faults = LosesMany()
    async with database.open(faults=faults) as store:
        await owned(store, "a")
        faults.lose = True
        sent = await asyncio.gather(*[tell(store, "a", f"s{number}") for number in range(20)])
        assert (sent, faults.lose) == (list(range(1, 21)), False)
        assert len(await store.inbox("a", 0)) == 20


async def test_what_was_known_of_a_question_may_be_old(database: Place) -> None:
    """A decision on a question that has changed since it was looked up is judged by what it is now."""
    async with database.open() as store, database.open() as other:
        row = await owned(store, "a")
        await store.append(write(row, approvals=[NewApproval(q, q, "approve", "?", needs="2") for q in ("q", "r")]))
        known = (await store.approvals(approval="q"))[0]
        await other.decide("q", Ballot("1", Actor("ana")))
        second = await store.decide("q", Ballot("2", Actor("eve")), known=known)
        assert (second.status, second.decision) == ("decided", "approved")
        with pytest.raises(AlreadyDecided, match="eve"):
            await store.decide("q", Ballot("3", Actor("bob")), known=known)
        assert [signal.kind for signal in await store.inbox("a", 0)] == ["approval.voted", "approval.decided"]
        left = (await store.approvals(approval="r"))[0]
        row.inbox_seen = 2
        await finish(store, row)
        with pytest.raises(RunFinished):
            await store.decide("r", Ballot("4", Actor("ana")), known=left)


async def test_claims_beside_messages_lose_nothing(database: Place) -> None:
    """While runs are parked, told and claimed by three stores at once, every message is in a journal or an inbox, once."""
    runs, messages = 8, 12
    async with database.open() as one, database.open() as two, database.open() as three:
        for number in range(runs):
            await one.create(new(f"run-{number}"))
        done = asyncio.Event()

        async def carry(store: Store) -> None:
            while not done.is_set():
                for row in await store.claim(["agent"], 3, TTL):
                    events = []
                    for signal in await store.inbox(row.id, row.inbox_seen):
                        events.append(step(key=f"{row.id}:{signal.position}"))
                        events[-1].kind, events[-1].data = "message.received", {"position": signal.position}
                        row.inbox_seen = signal.position
                    append = write(row, *events)
                    append.inbox_seen = row.inbox_seen
                    await store.append(append)
                    try:
                        await park(store, row, seen=row.inbox_seen)
                    except InboxMoved:  # the next claim has it
                        await store.append(write(row, transition=Transition("ready")))
                await asyncio.sleep(0)

        async def talk(run: int) -> None:
            for number in range(messages):
                await one.send(f"run-{run}", f"s{number}", "message.received", "t", str(number), {})
                await asyncio.sleep(0.001)

        carriers = [asyncio.create_task(carry(store)) for store in (two, three)]
        await asyncio.gather(*[talk(run) for run in range(runs)])
        for run in range(runs):
            while len(await one.journal(f"run-{run}")) < messages:
                await asyncio.sleep(0.01)
        done.set()
        await asyncio.gather(*carriers)
        for run in range(runs):
            positions = [event.data["position"] for event in await one.journal(f"run-{run}")]
            assert positions == list(range(1, messages + 1))
