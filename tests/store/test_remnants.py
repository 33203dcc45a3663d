"""Messages that have left the inbox: what is still known of them, and that nobody can bring them there again."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest
from tests.store.places import ManualClock, Place, finish, owned, write

from holdfast.store.inbox import Send
from holdfast.store.postgres.connection import connect, parse_url
from holdfast.store.postgres.dialect import STATEMENTS
from holdfast.store.remnants import Left, packed, unpacked
from holdfast.store.store import Store
from holdfast.store.work import Asking, Transaction
from holdfast.words.model import Event, RunRow


def id_of(number: int) -> str:
    """The id of a message that was sent without a key."""
    return f"id:{number:016x}"


async def tell(store: Store, run: str, signal: str, topic: str = "mail", value: str = '"text"') -> int:
    return await store.send(run, signal, "message.received", topic, value, {})


async def take(store: Store, row: RunRow, until: int) -> None:
    """Let messages up to this position leave the inbox, as a checkpoint does that has them behind it."""
    signals = [signal for signal in await store.inbox(row.id, row.inbox_seen) if signal.position <= until]
    events = [Event(0, signal.kind, None, {"position": signal.position}, signal.value) for signal in signals]
    await store.append(write(row, *events, inbox_seen=until, releases=(row.inbox_seen, until)))
    row.inbox_seen = until


@pytest.mark.parametrize("many", [0, 1, 2, 999, 1_000, 1_001, 3_500])
def test_what_is_packed_is_what_comes_out(many: int) -> None:
    """Whatever positions are missing, and whichever way the clock went; stretches are few."""
    dice = random.Random(many)
    left, position, at = [], 0, 1_700_000_000_000
    for _ in range(many):
        position += 1 if dice.random() < 0.99 else dice.randint(2, 5)
        at += dice.choice([0, 0, 0, 1, 7, -3])
        left.append(Left(position, id_of(dice.getrandbits(64)), dice.choice(["a"] * 200 + ["é b"]), at))
    rows = packed("r", random.Random(1).sample(left, len(left)))
    assert {row[0] for row in rows} <= {"r"}
    assert list(unpacked(row[1:] for row in rows)) == left
    assert len(rows) <= many // 15 + 1


async def test_a_message_leaves_the_inbox_when_a_checkpoint_is_behind_it(place: Place) -> None:
    """One that was sent without a key. What is known of it is known on, but for its text; what came after it is there."""
    clock = ManualClock()
    async with place.open(clock) as store:
        row = await owned(store, "a")
        for number in range(1, 21):
            clock.time += number
            await tell(store, "a", id_of(number), "é" if number > 10 else "mail", f'"{number}"')
        before = await store.whole_inbox("a")
        await take(store, row, 15)
        assert [signal.position for signal in await store.inbox("a", 0)] == [16, 17, 18, 19, 20]
        for signal in before[:15]:
            signal.value = None
        assert await store.whole_inbox("a") == before
        assert (await store.count_messages("a"), (await store.last_messages("a", 3))[2].value) == (20, '"18"')
        assert await tell(store, "a", id_of(21)) == 21
        await finish(store, row)
        await store.delete("a")
        assert (await store.whole_inbox("a"), await store.count_messages("a")) == ([], 0)


async def test_other_signals_stay_in_the_inbox(place: Place) -> None:
    """Messages with a key are known for ever, so that they come once; so is what a fork was given, and what else came."""
    async with place.open() as store:
        row = await owned(store, "a")
        sent = [
            (id_of(1), "message.received", {}), ("key:k", "message.received", {}), (id_of(2), "message.received", {"from": "x"}),
            ("id:no digits at all", "message.received", {}), ("id:0123456789abcdeg", "message.received", {}),
            ("fork:1", "message.received", {}), (id_of(3), "child.ended", {"child": "c"}), ("id:0123", "message.received", {}),
            (id_of(4), "message.received", {}),
        ]  # fmt: skip
        for signal, kind, data in sent:
            await store.send("a", signal, kind, "t", '"text"', data)
        before = await store.whole_inbox("a")
        await take(store, row, len(sent))
        assert [signal.position for signal in await store.inbox("a", 0)] == [2, 3, 4, 5, 6, 7, 8]
        found = await store.whole_inbox("a")
        assert [(one.position, one.kind, one.data) for one in found] == [
            (one.position, one.kind, one.data) for one in before
        ]
        assert [one.position for one in found if one.value is not None] == [6, 7]
        assert await store.count_messages("a") == 8
        for number, (signal, kind, data) in enumerate(sent[1:8], 2):
            assert await store.send("a", signal, kind, "t", '"text"', data) == number


class LosesLate:
    """The answer of the next message is lost, and its sender hears of that when it may."""

    def __init__(self) -> None:
        self.lost, self.heard = threading.Event(), threading.Event()

    def before_commit(self, writes: list[str]) -> None: ...

    def after_commit(self, writes: list[str]) -> None:
        if "send" in writes and not self.lost.is_set():
            self.lost.set()
            assert self.heard.wait(20)
            raise OSError("lost")


@pytest.mark.parametrize("together", [False, True])
async def test_a_sender_in_doubt_finds_that_its_message_came_and_left(place: Place, together: bool) -> None:
    """A commit whose answer was lost: until the sender tries again the message was taken, and a checkpoint came behind it."""
    faults = LosesLate()
    async with place.open() as owner, place.open(faults=faults) as sender:
        row = await owned(owner, "a")
        # A message alone in SQLite is written by the thread of the loop, which nothing may hold up.
        numbers = range(1, 5) if together or place.url.startswith("sqlite") else [1]
        sending = [asyncio.create_task(tell(sender, "a", id_of(number))) for number in numbers]
        assert await asyncio.to_thread(faults.lost.wait, 20)
        came = await owner.inbox("a", 0)
        await take(owner, row, len(came))
        assert await owner.inbox("a", 0) == []
        faults.heard.set()
        assert await asyncio.gather(*sending) == list(numbers)
        assert [signal.position for signal in await owner.whole_inbox("a")] == list(numbers)
        assert len(await owner.inbox("a", len(came))) == len(numbers) - len(came)


async def test_a_message_that_was_sent_twice_comes_once_however_late_the_first_one_does(place: Place) -> None:
    """The sender lost its connection and sent it again; a server may still carry out what the connection had."""

    def again(tx: Transaction) -> Asking[int]:
        tx.again = True
        return (yield from Send("a", id_of(7), "message.received", "mail", '"text"', {}, {})(tx))

    async with place.open() as store:
        row = await owned(store, "a")
        await tell(store, "a", id_of(1))
        assert await store._submit(again, runs=["a"]) == 2
        await tell(store, "a", id_of(3))
        await take(store, row, 3)
        assert [signal.position for signal in await store.inbox("a", 0)] == [2]
        assert [signal.position for signal in await store.whole_inbox("a")] == [1, 2, 3]
        assert await store.count_messages("a") == 3
        assert await store._submit(again, runs=["a"]) == 2
        if place.url.startswith("postgresql:"):
            text, names = STATEMENTS["send_plain"]
            given = {"run": "a", "signal_id": id_of(7), "kind": "message.received", "topic": "mail", "value": '"text"',
                     "data": None, "token": "mail", "actor": "", "via": "", "now": 1}  # fmt: skip
            connection = await connect(parse_url(place.url))
            assert await connection.fetch(text, *map(given.get, names)) == []
            await connection.close()
        assert await tell(store, "a", id_of(7)) == 2
        assert await store.count_messages("a") == 3
