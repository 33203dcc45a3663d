"""Deliveries in the store: kept once, taken by one worker, ended with their actions, tried again, dead, replayed, pruned."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.store.places import ManualClock, Place, finish, new, owned

from holdfast import RunExists, RunFinished, UnknownTrigger
from holdfast.errors import LeaseLost
from holdfast.store.inbox import Send
from holdfast.store.notifications import outgoing
from holdfast.store.runs import Create
from holdfast.store.store import Store
from holdfast.store.triggers import Absence, DeclaredTrigger, NewDelivery, SendAct, StartAct

HAND = {"by": "ana", "via": "test"}
TTL = 60_000


def came(key: str, trigger: str = "t", body: bytes = b"body") -> NewDelivery:
    return NewDelivery(trigger, key, "webhook", {"a": "b"}, body)


def start(run: str, *, chosen: bool = False, **fields) -> StartAct:
    return StartAct(Create(new(run, **fields), {}), chosen)


def send(run: str, key: str) -> SendAct:
    return SendAct(Send(run, f"key:{key}", "message.received", "topic", '"x"', {}, {}))


async def test_a_delivery_is_kept_once(place: Place) -> None:
    async with place.open(ManualClock()) as one, place.open(ManualClock()) as two:
        told = await asyncio.gather(*[store.receive(came("k")) for store in (one, two) * 5])
        assert sorted(told) == [False] * 9 + [True]
        assert await one.receive(came("k", "other"))
        row, body = await two.delivery("t", "k")
        assert (row.status, row.attempts, row.headers, row.size, body) == ("new", 0, '{"a":"b"}', 4, b"body")
        with pytest.raises(UnknownTrigger, match="`holdfast triggers t` lists them"):
            await one.delivery("t", "none")


async def test_two_workers_take_different_ones(place: Place) -> None:
    clock = ManualClock()
    async with place.open(clock) as one, place.open(clock) as two:
        for number in range(40):
            await one.receive(came(f"k{number}", f"t{number % 2}", b"\0\xff" * number))
            clock.time += 1
        assert await one.next_delivery(["t0", "t1", "none"]) == clock.time - 40
        assert await one.next_delivery(["none"]) is None
        found = await asyncio.gather(*[store.claim_deliveries(["t0", "t1"], 5, TTL) for store in (one, two) * 6])
        keys = [row.key for rows in found for row, _ in rows]
        assert sorted(keys) == sorted(f"k{number}" for number in range(40))
        assert {body for rows in found for _, body in rows} == {b"\0\xff" * number for number in range(40)}
        assert await one.next_delivery(["t0", "t1"]) == clock.time + TTL
        clock.time += TTL
        again = await one.claim_deliveries(["t1"], 50, TTL)
        assert len(again) == 20 and {row.claims for row, _ in again} == {2}


async def test_actions_and_the_end_of_their_delivery_are_one(place: Place) -> None:
    """If one action cannot be done, none is; and a delivery that another worker has is not ended by the one that had it."""
    clock = ManualClock()
    async with place.open(clock) as one, place.open(clock) as two:
        await finish(one, await owned(one, "over"))
        await one.create(new("there"))
        await one.receive(came("k"))
        ((row, _),) = await one.claim_deliveries(["t"], 5, TTL)
        with pytest.raises(RunFinished):
            await one.apply([start("made"), send("there", "1"), send("over", "2")], row)
        assert await one.run("made") is None
        assert await one.inbox("there", 0) == []
        clock.time += TTL
        ((later, _),) = await two.claim_deliveries(["t"], 5, TTL)
        with pytest.raises(LeaseLost):
            await one.apply([start("made")], row)
        with pytest.raises(LeaseLost):
            await one.fail_delivery(row, "no", None)
        assert await one.run("made") is None
        outcome = await two.apply([start("made"), send("there", "1")], later)
        assert outcome == [{"start": "made", "agent": "agent"}, {"send": "there", "topic": "topic", "position": 1}]
        ended, _ = await one.delivery("t", "k")
        assert (ended.status, ended.owner, ended.due_at, ended.settled_at) == ("done", None, None, clock.time)
        with pytest.raises(LeaseLost):
            await two.apply([start("made")], later)
        again = await two.apply([start("made"), send("there", "1")])  # by a broker that delivers again
        assert [each.get("was_there") for each in again] == [True, None]
        assert len(await one.inbox("there", 0)) == 1


async def test_a_chosen_id_is_of_one_run(place: Place) -> None:
    async with place.open(ManualClock()) as store:
        await store.apply([start("a", chosen=True, identity="1")])
        assert (await store.apply([start("a", chosen=True, identity="1")]))[0]["was_there"]
        with pytest.raises(RunExists, match="another agent or other arguments"):
            await store.apply([start("a", chosen=True, identity="2")])
        assert (await store.apply([start("a", identity="2")]))[0]["was_there"]


async def test_many_who_send_to_the_same_runs_do_not_lock_each_other_out(place: Place) -> None:
    async with place.open(ManualClock()) as one, place.open(ManualClock()) as two:
        names = [f"r{number}" for number in range(6)]
        for name in names:
            await one.create(new(name))
        tasks = []
        for number in range(20):
            order = names if number % 2 else names[::-1]
            tasks.append((one, two)[number % 2].apply([send(name, f"{number}") for name in order]))
        await asyncio.wait_for(asyncio.gather(*tasks), 30)
        assert [len(await one.inbox(name, 0)) for name in names] == [20] * 6


async def test_a_failed_one_is_due_later_and_dead_at_last(place: Place) -> None:
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.receive(came("k"))
        for attempt, wait in enumerate((1_000, 4_000, None), 1):
            ((row, _),) = await store.claim_deliveries(["t"], 5, TTL)
            await store.fail_delivery(row, f"no {attempt}" + "x" * 5_000, wait)
            row, _ = await store.delivery("t", "k")
            assert row.error is not None and row.error.startswith(f"no {attempt}x") and len(row.error) == 2_000
            assert (row.attempts, row.owner) == (attempt, None)
            assert row.due_at == (None if wait is None else clock.time + wait)
            assert await store.claim_deliveries(["t"], 5, TTL) == []
            clock.time += wait or 0
        assert (row.status, row.settled_at) == ("dead", clock.time)
        assert not await store.receive(came("k"))
        row = await store.replay_delivery("t", "k", **HAND)
        assert (row.status, row.attempts, row.due_at) == ("new", 0, clock.time)
        ((row, _),) = await store.claim_deliveries(["t"], 5, TTL)
        await store.apply([], row)
        assert (await store.replay_delivery("t", "k", **HAND)).status == "done"
        with pytest.raises(UnknownTrigger):
            await store.replay_delivery("t", "none", **HAND)
        (deed,) = await store.audit()
        assert (deed["action"], deed["actor"], deed["data"]) == (
            "replay_delivery",
            "ana",
            {"trigger": "t", "delivery": "k"},
        )


async def test_what_a_broker_gave_up_is_dead_from_the_beginning(place: Place) -> None:
    async with place.open(ManualClock()) as store:
        assert await store.receive(replace(came("k"), attempts=5, error="no"))
        row, _ = await store.delivery("t", "k")
        assert (row.status, row.attempts, row.error, row.due_at) == ("dead", 5, "no", None)
        assert await store.next_delivery(["t"]) is None


async def test_one_that_ends_its_workers_again_and_again_is_dead(place: Place) -> None:
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.receive(came("k"))
        for _ in range(25):
            assert len(await store.claim_deliveries(["t"], 5, TTL)) == 1
            clock.time += TTL
        assert await store.claim_deliveries(["t"], 5, TTL) == []
        row, _ = await store.delivery("t", "k")
        assert (row.status, row.error, row.owner) == ("dead", "25 workers ended while they had it", None)


async def test_a_worker_that_leaves_gives_back_what_it_has(place: Place) -> None:
    clock = ManualClock()
    async with place.open(clock) as other:
        async with place.open(clock) as store:
            await store.publish([("agent", None, "{}")])
            await store.receive(came("k"))
            assert len(await store.claim_deliveries(["t"], 5, TTL)) == 1
        ((row, _),) = await other.claim_deliveries(["t"], 5, TTL)
        assert row.claims == 1


async def test_a_new_declaration_takes_effect_and_a_restarted_old_worker_does_not_bring_its_own_back(
    place: Place,
) -> None:
    first, second = DeclaredTrigger("t", "webhook", '{"a":1}', "one"), DeclaredTrigger("t", "webhook", '{"a":2}', "two")
    async with place.open(ManualClock()) as old:
        assert await old.trigger("t") is None
        await old.publish([])
        await old.declare_triggers([first])
        async with place.open(ManualClock()) as new_one:
            await new_one.publish([])
            await new_one.declare_triggers([second])
            await old.declare_triggers([first])
            ((row, workers),) = await old.triggers()
            assert (row.config, workers) == ('{"a":2}', 2)
        await old.declare_triggers([first])  # a rollback
        row = await old.trigger("t")
        assert row is not None and row.config == '{"a":1}'
        await old.delete_trigger("t", **HAND)
        assert await old.triggers() == []
        with pytest.raises(UnknownTrigger):
            await old.delete_trigger("t", **HAND)
        await old.declare_triggers([first])
        assert await old.trigger("t") is not None


async def test_lists_counts_and_pruning(place: Place) -> None:
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.declare_triggers([DeclaredTrigger("t", "webhook", "{}", "one")])
        for number in range(6):
            await store.receive(came(f"k{number}"))
            clock.time += 1_000
        for row, _ in await store.claim_deliveries(["t"], 4, TTL):
            await store.apply([], row)
        tallies = {tally.status: tally for tally in await store.tally_deliveries()}
        assert {status: tally.count for status, tally in tallies.items()} == {"new": 2, "done": 4}
        assert tallies["new"].first_at == clock.time - 2_000
        assert [row.key for row in await store.deliveries("t", "done", limit=3)] == ["k3", "k2", "k1"]
        before = (await store.deliveries("t", "done", limit=3))[-1].received_at
        assert [row.key for row in await store.deliveries("t", "done", before=before)] == ["k0"]
        assert await store.prune_deliveries(clock.time) == 0
        assert await store.prune_deliveries(clock.time + 1) == 4
        assert [tally.status for tally in await store.tally_deliveries()] == ["new"]


async def test_triggers_share_the_room_there_is(place: Place) -> None:
    """However many are due for one, another's are taken too."""
    async with place.open(ManualClock()) as store:
        for number in range(20):
            await store.receive(came(f"k{number}", "busy"))
        await store.receive(came("k", "quiet"))
        taken = await store.claim_deliveries(["busy", "quiet"], 10, TTL)
        assert [row.trigger for row, _ in taken] == ["busy"] * 5 + ["quiet"]
        assert len(await store.claim_deliveries(["busy", "quiet", "other"], 2, TTL)) == 1


async def test_what_is_due_is_taken_among_any_number_of_triggers(place: Place) -> None:
    names = [f"t{number:03}" for number in range(120)]
    async with place.open(ManualClock()) as store:
        for name in (names[60], names[-1]):
            await store.receive(came("k", name))
        taken = await store.claim_deliveries(names, 50, TTL)
        assert [row.trigger for row, _ in taken] == [names[60], names[-1]]


async def test_only_deliveries_of_the_kind_that_is_wanted_are_taken(place: Place) -> None:
    async with place.open(ManualClock()) as store:
        await store.receive(replace(came("queued"), kind="queue"))
        assert await store.next_delivery({"t": "webhook"}) is None
        assert await store.claim_deliveries({"t": "webhook"}, 5, TTL) == []
        await store.receive(came("hooked"))
        ((row, _),) = await store.claim_deliveries({"t": "webhook"}, 5, TTL)
        assert row.key == "hooked"
        ((row, _),) = await store.claim_deliveries({"t": "queue"}, 5, TTL)
        assert row.key == "queued"


async def test_a_delivery_that_is_dismissed_is_done_and_keeps_its_error(place: Place) -> None:
    """Whether dead or waiting; not while a worker has it, and not what is done. It is still known when it comes again."""
    async with place.open(ManualClock()) as store:
        await store.receive(replace(came("dead"), error="no"))
        await store.receive(came("taken"))
        ((taken, _),) = await store.claim_deliveries(["t"], 5, TTL)
        assert (await store.dismiss_delivery("t", "taken", **HAND)).status == "new"
        await store.apply([], taken)
        rows = [await store.dismiss_delivery("t", key, **HAND) for key in ("dead", "taken", "dead")]
        assert [(row.status, row.error) for row in rows] == [("done", "no"), ("done", None), ("done", "no")]
        assert not await store.receive(came("dead"))
        assert [deed["action"] for deed in await store.audit(limit=9)] == ["dismiss_delivery"]
        with pytest.raises(UnknownTrigger):
            await store.dismiss_delivery("t", "none", **HAND)


async def test_all_dead_ones_are_replayed_at_once(place: Place) -> None:
    """Those that were dead then, in parts, and with one row in the audit for each part."""
    clock = ManualClock()
    async with place.open(clock) as store:
        dead = [came(f"k{number}") for number in range(501)] + [came("other", "u")]
        await asyncio.gather(*[store.receive(replace(each, error="no")) for each in dead])
        clock.time += 1
        until = clock.now()
        clock.time += 1
        await store.receive(replace(came("later"), error="no"))
        assert [await store.replay_dead("t", until, **HAND) for _ in range(3)] == [500, 1, 0]
        left = [tally for tally in await store.tally_deliveries() if tally.status == "dead"]
        assert {(tally.trigger, tally.count) for tally in left} == {("t", 1), ("u", 1)}
        row, _ = await store.delivery("t", "k0")
        assert (row.status, row.attempts, row.settled_at) == ("new", 0, None)


async def test_an_error_is_kept_whatever_characters_it_has(place: Place) -> None:
    async with place.open(ManualClock()) as store:
        await store.receive(came("k"))
        ((row, _),) = await store.claim_deliveries(["t"], 5, TTL)
        await store.fail_delivery(row, "a\ud800b\0c", None)
        await store.receive(replace(came("dead"), attempts=1, error="\0"))
        assert [(await store.delivery("t", key))[0].error for key in ("k", "dead")] == ["a\ufffdb\ufffdc", "\ufffd"]


async def test_a_declaration_of_another_kind_waits_until_no_worker_declares_the_present_one(place: Place) -> None:
    hook, queue = DeclaredTrigger("t", "webhook", "{}", "one"), DeclaredTrigger("t", "queue", "{}", "two")
    async with place.open(ManualClock()) as later:
        await later.publish([])
        async with place.open(ManualClock()) as first:
            await first.publish([])
            assert await first.declare_triggers([hook]) == []
            for _ in range(2):
                assert [row.kind for row in await later.declare_triggers([queue])] == ["webhook"]
                assert await first.declare_triggers([hook]) == []
            row = await first.trigger("t")
            assert row is not None and row.kind == "webhook"
        assert await later.declare_triggers([queue]) == []
        row = await later.trigger("t")
        assert row is not None and row.kind == "queue"


async def test_what_came_for_a_trigger_that_is_gone_is_deleted_like_what_has_ended(place: Place) -> None:
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.publish([])
        await store.declare_triggers([DeclaredTrigger(name, "webhook", "{}", "one") for name in ("t", "gone")])
        for new_one in (
            came("k"), replace(came("other kind"), kind="queue"), came("k", "gone"), came("k", outgoing("ops")),
        ):  # fmt: skip
            await store.receive(new_one)
        await store.delete_trigger("gone", **HAND)
        assert await store.prune_deliveries(clock.time) == 0
        assert await store.prune_deliveries(clock.time + 1) == 2
        assert {tally.trigger: tally.count for tally in await store.tally_deliveries()} == {"t": 1, outgoing("ops"): 1}


YEAR = 365 * 86_400_000
HOUR = 3_600_000


async def test_what_a_clock_wrote_that_was_ahead_is_due_soon_once_it_is_right(place: Place) -> None:
    """What came, what waits for its next attempt, and what a worker has; a wait that may be so long stays."""
    clock = ManualClock()
    async with place.open(clock) as store:
        for key in ("failed", "waits", "dead"):
            await store.receive(came(key))
        taken = {row.key: row for row, _ in await store.claim_deliveries(["t"], 10, TTL)}
        await store.fail_delivery(taken["waits"], "no", HOUR)
        right = clock.time
        clock.time += YEAR
        await store.fail_delivery(taken["failed"], "no", 1_000)
        await store.fail_delivery(taken["dead"], "no", None)
        await store.receive(came("new"))
        await store.receive(came("other", "u"))
        await store.receive(came("had", "v"))
        ((had, _),) = await store.claim_deliveries(["v"], 10, TTL)

        clock.time = right + 1_000
        assert await store.claim_deliveries(["t", "u", "v"], 10, TTL) == []
        while await store.recall_deliveries({"t": HOUR, "v": HOUR}, TTL):
            pass
        rows = {row.key: row for name in "tuv" for row in await store.deliveries(name, "new")}
        assert rows["waits"].due_at == right + HOUR
        assert rows["other"].due_at == right + YEAR  # how long its trigger waits was not told
        assert (rows["had"].due_at, rows["had"].owner) == (clock.time + TTL, had.owner)  # who has it may go on
        assert rows["new"].received_at == clock.time
        assert sorted(row.key for row, _ in await store.claim_deliveries(["t", "v"], 10, TTL)) == ["failed", "new"]
        await store.apply([], had)
        assert await store.replay_dead("t", clock.time, **HAND) == 1


async def test_one_that_is_left_to_another_worker_is_due_as_it_was_and_was_not_tried(place: Place) -> None:
    clock = ManualClock()
    async with place.open(clock) as store, place.open(clock) as other:
        await store.receive(came("k"))
        since = clock.time
        for _ in range(30):  # more often than workers may die with one
            clock.time += 1_000
            ((row, _),) = await store.claim_deliveries(["t"], 10, TTL)
            assert row.due_at == since
            await store.leave_delivery(row, "not from here")
        ((row, _),) = await other.claim_deliveries(["t"], 10, TTL)
        assert (row.attempts, row.claims, row.error, row.due_at) == (0, 1, "not from here", since)
        with pytest.raises(LeaseLost):
            await store.leave_delivery(row, "not from here")


async def test_a_broker_that_workers_cannot_reach_is_told_by_those_that_are_there(place: Place) -> None:
    async with place.open(ManualClock()) as one:
        async with place.open(ManualClock()) as two, place.open(ManualClock()) as three:
            for store in (one, two, three):
                await store.publish([("agent", None, "{}")])
            await one.note_broker("orders", 5_000, "refused")
            await two.note_broker("orders", 3_000, "refused")
            await two.note_broker("others", 7_000, "no such queue")
            assert await three.absences() == {
                "orders": Absence(2, 3_000, "refused"),
                "others": Absence(1, 7_000, "no such queue"),
            }
            await two.note_broker("orders", None)
            await three.note_broker("orders", None)
            await one.note_broker("orders", 5_000, "half a character: \ud800, \0" + "x" * 5_000)
            (told,) = [each for name, each in (await three.absences()).items() if name == "orders"]
            assert (told.workers, told.since, len(told.error) <= 2_100) == (1, 5_000, True)
        assert list(await one.absences()) == ["orders"], "of a worker that has gone nothing is told"
        assert await one.triggers() == []


def counting(run: str, key: str) -> tuple[list[SendAct | StartAct], list[SendAct | StartAct]]:
    """Actions of two messages: one that starts a run alone, and one that does two things."""
    return [start(f"{run}-alone")], [start(run), send("listener", key)]


async def counted(store: Store, name: str = "t") -> int:
    (found,) = [row.taken for row, _ in await store.triggers() if row.name == name]
    return found + (await store.taken()).get(name, 0)


async def test_messages_are_counted_with_what_they_do(place: Place) -> None:
    """Once, by whichever worker, in whatever company, and also when that has gone."""
    clock = ManualClock()
    async with place.open(clock) as one:
        async with place.open(clock) as two:
            for store in (one, two):
                await store.publish([("agent", None, "{}")])
            await one.declare_triggers([DeclaredTrigger("t", "queue", "{}", "d")])
            await owned(one, "listener")
            for number in range(3):
                for store in (two, one):  # the second finds all done
                    for acts in counting(f"r{number}", str(number)):
                        await store.apply(acts, counted="t")
            assert await counted(one) == 6
            many = [acts for number in range(10, 30) for acts in counting(f"r{number}", str(number))]
            refused = [start("r0", chosen=True, agent="another")]
            done = await asyncio.gather(
                *[store.apply(acts, counted="t") for acts in [*many, refused] for store in (one, two)],
                return_exceptions=True,
            )
            assert [type(each) for each in done if isinstance(each, Exception)] == [RunExists] * 2
            assert await counted(one) == 46
            await one.apply([start("uncounted")])
            assert (await two.taken())["t"] == 46
        await one.declare_triggers([])  # forgets what the other has declared
        assert await counted(one) == 46
        for _ in range(2):
            await one.note_taken("t", 1, 7, lately=True)
        assert await counted(one) == 48
        ((row, _),) = await one.triggers()
        assert row.taken >= 8 and row.lag == 7  # what the other did first is added up
