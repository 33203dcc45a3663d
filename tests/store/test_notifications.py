"""Notifications in the store: each event is written for each of them once, in whatever order transactions commit."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.store.places import ManualClock, Place, finish, new, owned, step, write

from holdfast import UnknownNotification
from holdfast.errors import LeaseLost
from holdfast.store.notifications import outgoing
from holdfast.store.postgres.connection import connect, parse_url
from holdfast.store.store import Store
from holdfast.store.triggers import NewDelivery
from holdfast.words.model import RunRow
from holdfast.words.notifications import checked, stuck, trial

HAND = {"by": "ana", "via": "test"}
TTL = 60_000


def config(*kinds: str, **options) -> str:
    return checked("https://example.com/", kinds, secret="env:S", **options).stored()


async def told(store: Store, name: str, status: str = "new") -> list[tuple[str, str]]:
    """The kind and run of each message, in the order of the feed."""
    rows = await store.deliveries(outgoing(name), status)
    documents = [json.loads((await store.delivery(row.trigger, row.key))[1]) for row in rows]
    documents.sort(key=lambda document: document["data"].get("position", 0))
    return [(document["type"], document["data"].get("run", "")) for document in documents]


async def quiet(store: Store) -> None:
    """Wait until no transaction is open: what is committed while one is may be told to those who come a moment later."""
    reach = (await store.feed_reach())[1]
    while (await store.feed_reach())[0] < reach:
        await asyncio.sleep(0.005)


async def caught_up(store: Store) -> None:
    """Write all messages there are to write. On PostgreSQL the feed waits for transactions of others."""
    await quiet(store)
    while await store.tell_events():
        pass


async def test_an_event_is_told_once_to_each(place: Place) -> None:
    async with place.open(ManualClock()) as one, place.open(ManualClock()) as two:
        await finish(one, await owned(one, "before"))
        await quiet(one)
        await one.make_notification("ops", config("run.completed", "run.failed"), **HAND)
        await one.make_notification("dev", config("step.completed", "run.failed"), **HAND)
        row = await owned(one, "a")
        await one.append(write(row, step(), step()))
        await finish(one, row, "failed", error='{"type": "E"}')
        await finish(two, await owned(two, "b"))
        await caught_up(one)
        await asyncio.gather(*[store.tell_events() for store in (one, two) * 5])
        assert await told(one, "ops") == [("run.failed", "a"), ("run.completed", "b")]
        assert await told(two, "dev") == [("step.completed", "a"), ("step.completed", "a"), ("run.failed", "a")]
        rows = await one.deliveries(outgoing("ops"), "new")
        assert {(row.kind, row.attempts) for row in rows} == {("notify", 0)}


async def test_one_that_comes_later_is_not_told_of_what_was_before(place: Place) -> None:
    """Though nobody has written that for the others yet."""
    async with place.open(ManualClock()) as store:
        await store.make_notification("early", config("run.completed"), **HAND)
        await finish(store, await owned(store, "a"))
        await quiet(store)
        await store.make_notification("later", config("run.completed"), **HAND)
        await finish(store, await owned(store, "b"))
        await caught_up(store)
        assert await told(store, "early") == [("run.completed", "a"), ("run.completed", "b")]
        assert await told(store, "later") == [("run.completed", "b")]


async def test_many_workers_at_once_miss_nothing_and_write_nothing_twice(place: Place) -> None:
    """While others commit all the time: a place that was passed gets no event later."""
    async with place.open() as one, place.open() as two, place.open() as three:
        await one.make_notification("ops", config("run.completed"), **HAND)
        ended = asyncio.Event()

        async def runs(store: Store, mark: str) -> None:
            for number in range(12):
                await finish(store, await _claimed(store, f"{mark}{number}", f"agent-{mark}"))

        async def follow(store: Store) -> None:
            while not ended.is_set():
                await store.tell_events()
                await asyncio.sleep(0)

        followers = [asyncio.create_task(follow(store)) for store in (two, three)]
        await asyncio.gather(runs(one, "a"), runs(one, "b"), runs(three, "c"))
        ended.set()
        await asyncio.gather(*followers)
        await caught_up(one)
        rows = [row for _, row in await told_all(one, "ops")]
        assert sorted(rows) == sorted(f"{mark}{number}" for mark in "abc" for number in range(12))


async def _claimed(store: Store, run: str, agent: str):
    await store.create(new(run, agent))
    while not (rows := await store.claim([agent], 1, TTL)):
        await asyncio.sleep(0)
    return rows[0]


async def told_all(store: Store, name: str) -> list[tuple[str, str]]:
    rows = await store.deliveries(outgoing(name), "new", limit=10_000)
    found = [json.loads((await store.delivery(row.trigger, row.key))[1]) for row in rows]
    return [(document["type"], document["data"]["run"]) for document in found]


async def test_a_transaction_that_commits_late_is_not_passed(database: Place) -> None:
    """It took its number before others did, and its event comes when they have long been told."""
    async with database.open() as store:
        await store.make_notification("ops", config("run.completed", "note"), **HAND)
        late = await owned(store, "late")
        other = await connect(parse_url(database.url))
        begun = other.transaction()
        await begun.start()
        await other.execute(
            "INSERT INTO events (position, run_id, seq, kind, epoch, at)"
            " VALUES ((pg_current_xact_id()::text::bigint << 20) + 1, 'late', 5, 'note', 1, 1)"
        )
        await finish(store, await owned(store, "quick"))
        await store.tell_events()
        assert await told(store, "ops") == []  # not yet: what is behind the open one waits with it
        await begun.commit()
        await other.close()
        await caught_up(store)
        assert await told(store, "ops") == [("note", "late"), ("run.completed", "quick")]
        assert late.id == "late"


async def test_more_events_than_a_transaction_takes(place: Place) -> None:
    async with place.open(ManualClock()) as store:
        await store.make_notification("ops", config("step.completed"), **HAND)
        row = await owned(store, "a")
        await store.append(write(row, *[step() for _ in range(130)]))
        await caught_up(store)
        assert len(await told_all(store, "ops")) == 130
        assert not await store.tell_events()


async def test_paused_and_resumed(place: Place) -> None:
    """What happens meanwhile is not told; what waited goes out. A change keeps the state and the place."""
    async with place.open(ManualClock()) as store:
        await store.make_notification("ops", config("run.completed"), **HAND)
        await finish(store, await owned(store, "a"))
        await caught_up(store)
        assert (await store.steer_notification("ops", "paused", **HAND)).state == "paused"
        await finish(store, await owned(store, "b"))
        await store.tell_events()
        assert await store.tell([("ops", stuck_message())]) == 0
        assert (await store.make_notification("ops", config("run.completed", "run.stuck"), **HAND)).state == "paused"
        await quiet(store)
        assert (await store.steer_notification("ops", "active", **HAND)).state == "active"
        assert (await store.steer_notification("ops", "active", **HAND)).state == "active"
        await finish(store, await owned(store, "c"))
        await caught_up(store)
        assert await told(store, "ops") == [("run.completed", "a"), ("run.completed", "c")]
        deeds = [deed["action"] for deed in await store.audit() if deed["action"] != "start"]
        assert deeds == ["resume_notification", "notify", "pause_notification", "notify"]


def stuck_message():
    found = stuck("ops", checked("mailto:a@b.c", "run.stuck"), RunRow("r", "u", "a", "ready", "", due_at=0), 100_000)
    assert found is not None
    return found


async def test_a_message_is_written_once_and_goes_with_its_notification(place: Place) -> None:
    async with place.open(ManualClock()) as one, place.open(ManualClock()) as two:
        await one.make_notification("ops", config("run.stuck"), **HAND)
        message = stuck_message()
        written = await asyncio.gather(*[store.tell([("ops", message), ("none", message)]) for store in (one, two) * 3])
        assert sorted(written) == [0, 0, 0, 0, 0, 1]
        ((taken, body),) = await two.claim_deliveries([outgoing("ops")], 5, TTL)
        assert (taken.key, json.loads(body)["type"], json.loads(taken.headers)) == (
            message.id,
            "run.stuck",
            {"type": "run.stuck"},
        )
        dead = trial("ops", "dead", 0)
        await one.tell([("ops", dead)])
        ((other, _),) = await one.claim_deliveries([outgoing("ops")], 5, TTL)
        await one.fail_delivery(other, "no", None)
        await one.delete_notification("ops", **HAND)
        with pytest.raises(LeaseLost):
            await two.apply([], taken)
        assert await one.tally_deliveries() == []
        for gone in (
            one.notification("ops"),
            one.delete_notification("ops", **HAND),
            one.steer_notification("ops", "paused", **HAND),
        ):
            with pytest.raises(UnknownNotification, match="`holdfast notify` lists them"):
                await gone
        assert await one.notifications() == []
        assert await one.deliveries(outgoing("ops"), "new") == []


async def test_one_that_dies_is_in_the_audit(place: Place) -> None:
    """By failing for good, or with the workers that had it; and it can be tried again."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.make_notification("ops", config("run.stuck"), **HAND)
        message = stuck_message()
        await store.tell([("ops", message)])
        ((taken, _),) = await store.claim_deliveries([outgoing("ops")], 5, TTL)
        await store.fail_delivery(taken, "no", 10)
        assert [deed["action"] for deed in await store.audit()] == ["notify"]
        clock.time += 10
        ((taken, _),) = await store.claim_deliveries([outgoing("ops")], 5, TTL)
        await store.fail_delivery(taken, "no", None)
        deed = (await store.audit())[0]
        about = {"notification": "ops", "message": message.id, "type": "run.stuck"}
        assert (deed["action"], deed["actor"], deed["via"], deed["data"]) == (
            "notification_dead",
            "worker",
            "notify:ops",
            about,
        )
        assert (await store.replay_delivery(outgoing("ops"), message.id, **HAND)).status == "new"
        for _ in range(26):
            clock.time += TTL
            await store.claim_deliveries([outgoing("ops")], 5, TTL)
        assert (await store.delivery(outgoing("ops"), message.id))[0].status == "dead"
        assert [deed["action"] for deed in await store.audit()][:2] == ["notification_dead", "replay_delivery"]


async def test_events_of_a_run_that_is_gone_are_passed_over(place: Place) -> None:
    async with place.open(ManualClock()) as store:
        await store.make_notification("ops", config("run.completed"), **HAND)
        await finish(store, await owned(store, "a"))
        await store.delete("a", **HAND)
        await finish(store, await owned(store, "b"))
        await caught_up(store)
        assert await told(store, "ops") == [("run.completed", "b")]


async def test_messages_that_nobody_sends_are_dead_after_a_while(place: Place) -> None:
    """And in the audit, and pruned in their turn. Deliveries that come in wait for their code."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.make_notification("ops", config("run.stuck"), **HAND)
        await store.receive(NewDelivery("t", "k", "webhook", {}, b""))
        await store.tell([("ops", trial("ops", str(number), 0)) for number in range(600)])
        clock.time += 1_000
        await store.tell([("ops", trial("ops", "new", 0))])
        assert [await store.give_up_messages(clock.time) for _ in range(3)] == [500, 100, 0]
        tally = {(row.trigger, row.status): row.count for row in await store.tally_deliveries()}
        assert tally == {("t", "new"): 1, (outgoing("ops"), "dead"): 600, (outgoing("ops"), "new"): 1}
        (row, *_) = await store.deliveries(outgoing("ops"), "dead", limit=1)
        assert row.error is not None and row.error.startswith("it has not gone out for 30 days")
        assert (await store.audit())[0]["action"] == "notification_dead"
        assert (await store.replay_delivery(outgoing("ops"), row.key, **HAND)).status == "new"
        assert await store.give_up_messages(clock.time) == 0
        assert await store.prune_deliveries(clock.time + 1) == 501  # and what came for a trigger that nobody declares
