"""Announcements in the store: published once, passed on once and in order, gathered, kept from those that come later."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.store.places import TTL, ManualClock, Place, finish, owned, park, write

from holdfast.store.announcements import Announced, NewAnnouncement, NewSubscription
from holdfast.store.gatherings import GatherAct
from holdfast.store.store import Store
from holdfast.store.triggers import DeclaredTrigger, NewDelivery
from holdfast.words.announcements import keyed_id, topic_of
from holdfast.words.model import Event
from holdfast.words.triggers import Gather

HAND = {"by": "ana", "via": "test"}


def said(id: str, name: str = "paid", value: object = None) -> NewAnnouncement:
    return NewAnnouncement(id, name, json.dumps(value))


def awaited(name: str = "paid", **match: object) -> Event:
    return Event(0, "announcement.awaited", f":subscribe#{name}{match}", {"event": name, "match": match})


async def waits(store: Store, run: str, name: str = "paid", **match: object) -> None:
    """Have a run wait for announcements, parked."""
    row = await owned(store, run, agent=run)
    await store.append(write(row, awaited(name, **match), announces=[NewSubscription(name, match)]))
    await park(store, row, seen=0, awaits=[topic_of(name, match)])


def trigger(name: str, event: str = "paid", **more: object) -> DeclaredTrigger:
    config = json.dumps({"event": event, **more})
    return DeclaredTrigger(name, "event", config, f"digest of {config}")


async def passed(store: Store) -> None:
    """Pass on all that waits."""
    while (await store.next_announcement())[0] is not None:
        await store.pass_on()


async def heard(store: Store, run: str) -> list[str]:
    return [signal.data["announcement"] for signal in await store.inbox(run, 0)]


async def came(store: Store, name: str) -> list[str]:
    rows = [row for status in ("new", "done") for row in await store.deliveries(name, status)]
    return sorted(row.key for row in rows)


async def test_one_announcement_is_passed_on_once_to_each(place: Place) -> None:
    clock = ManualClock()
    async with place.open(clock) as one, place.open(clock) as two:
        await one.declare_subscriptions([trigger("ship"), trigger("count"), trigger("other", "refunded")])
        await waits(one, "r1")
        await waits(one, "r2", order=7)
        await waits(two, "r3", order=8)
        made = await asyncio.gather(
            *[store.announce(said("e1", value={"order": 7}), **HAND) for store in (one, two) * 3]
        )
        assert [each.made for each in made].count(True) == 1
        assert not (await two.announce(said("e1", value={"order": 8}), **HAND)).made
        await asyncio.gather(*[passed(store) for store in (one, two) * 3])
        assert [await heard(two, run) for run in ("r1", "r2", "r3")] == [["e1"], ["e1"], []]
        assert [await came(one, name) for name in ("ship", "count", "other")] == [["e1"], ["e1"], []]
        (signal,) = await one.inbox("r2", 0)
        assert (signal.topic, signal.value, signal.data["at"]) == (
            topic_of("paid", {"order": 7}), '{"order": 7}', clock.time,
        )  # fmt: skip
        assert [(await one.run(run)).due_at for run in ("r1", "r2", "r3")] == [clock.time, clock.time, None]
        row, body = await one.delivery("ship", "e1")
        assert (row.kind, body) == ("event", b'{"order": 7}')
        headers = json.loads(row.headers)
        assert int(headers.pop("position")) > 0  # one that was not published may have taken the first
        assert headers == {"event": "paid", "at": str(clock.time)}
        (deed,) = await one.audit(run="")
        assert (deed["action"], deed["actor"]) == ("publish", "ana")


async def test_those_that_come_later_do_not_hear_what_came_before(place: Place) -> None:
    """Also not what was published before and is passed on after; and positions count on when all is forgotten."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.announce(said("before"), **HAND)
        await store.declare_subscriptions([trigger("ship")])
        await waits(store, "r")
        await store.announce(said("after"), **HAND)
        await passed(store)
        assert (await came(store, "ship"), await heard(store, "r")) == (["after"], ["after"])
        assert await store.prune_announcements(clock.time) == 0
        clock.time += 1
        assert await store.prune_announcements(clock.time) == 1
        await waits(store, "late")
        await store.announce(said("last"), **HAND)
        await store.announce(said("before"), **HAND)  # its id was forgotten: it is another one
        await passed(store)
        assert [await heard(store, run) for run in ("r", "late")] == [["after", "last", "before"], ["last", "before"]]


async def test_what_a_run_publishes_is_written_with_its_record(place: Place) -> None:
    async with place.open(ManualClock()) as store:
        await waits(store, "r")
        row = await owned(store, "publisher")
        event = Event(0, "announcement.published", ":publish#0", {"event": "paid"})
        append = write(row, event, announces=[said("e1")])
        await store.append(append)
        await passed(store)
        stale = write(row, Event(0, "announcement.published", ":publish#1"), announces=[said("e2")])
        stale.epoch -= 1
        with pytest.raises(BaseException, match="epoch"):
            await store.append(stale)
        await passed(store)
        (signal,) = await store.inbox("r", 0)
        assert signal.data == {"announcement": "e1", "at": 1_000_000, "run": "publisher"}


async def test_a_run_hears_in_the_order_of_publishing(place: Place) -> None:
    """However many workers pass on, and however many announcements there are."""
    clock = ManualClock()
    async with place.open(clock) as one, place.open(clock) as two:
        for run in ("a", "b", "c"):
            await waits(one, run)
        for number in range(120):
            await one.announce(said(f"e{number:03}"), **HAND)
        await asyncio.gather(*[passed(store) for store in (one, two)])
        for run in ("a", "b", "c"):
            assert await heard(one, run) == [f"e{number:03}" for number in range(120)]


async def test_a_crowd_is_served_in_pieces(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.announcements._MOST_TOLD", 3)
    async with place.open(ManualClock()) as store:
        for number in range(7):
            await waits(store, f"r{number}", **({} if number % 2 else {"order": 7}))
        await store.declare_subscriptions([trigger(f"t{number}") for number in range(3)])
        for id in ("e1", "e2"):
            await store.announce(said(id, value={"order": 7}), **HAND)
        turns = 0
        while (await store.next_announcement())[0] is not None:
            await store.pass_on()
            turns += 1
        assert turns == 7
        assert [await heard(store, f"r{number}") for number in range(7)] == [["e1", "e2"]] * 7
        assert [await came(store, f"t{number}") for number in range(3)] == [["e1", "e2"]] * 3


async def test_a_number_of_thousands_of_digits_matches_nothing_and_holds_up_nothing(place: Place) -> None:
    from holdfast.verbs.announcements import value_text

    async with place.open(ManualClock()) as store:
        await waits(store, "r", order=7)
        await store.declare_subscriptions([trigger("ship")])
        await store.announce(NewAnnouncement("huge", "paid", value_text({"order": 10**4300}, "paid")), **HAND)
        await store.announce(said("e1", value={"order": 7}), **HAND)
        await passed(store)
        assert (await heard(store, "r"), await came(store, "ship")) == (["e1"], ["e1", "huge"])


async def test_one_that_cannot_be_passed_on_is_set_aside(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are passed on. It is in the log and in the audit, and its id is known."""
    from holdfast.store import announcements

    plain = announcements.wanted

    def breaks(fields: str, value: object) -> str | None:
        if value == {"order": "bad"}:
            raise ArithmeticError("cannot be read")
        return plain(fields, value)

    async with place.open(ManualClock()) as store:
        await waits(store, "r", order=7)
        await waits(store, "all")
        monkeypatch.setattr(announcements, "wanted", breaks)
        for id, order in (("e1", 7), ("e2", "bad"), ("e3", 7)):
            await store.announce(said(id, value={"order": order}), **HAND)
        await passed(store)
        assert [await heard(store, run) for run in ("r", "all")] == [["e1", "e3"]] * 2
        assert not (await store.announce(said("e2"), **HAND)).made
        (deed,) = await store.audit(actions=["announcement_set_aside"])
        assert deed["data"] == {"event": "paid", "id": "e2", "error": "ArithmeticError: cannot be read"}
    assert "'paid', e2, was set aside" in caplog.text


async def test_one_that_was_published_before_is_told_from_a_new_one(place: Place) -> None:
    """Also when its value was passed on, and whatever the order of its keys."""
    clock, id = ManualClock(), keyed_id("paid", "k")
    async with place.open(clock) as store:
        await waits(store, "r")
        assert await store.announce(said(id, value={"order": 7, "to": "a"}), **HAND) == Announced(True, None, True)
        first = clock.now()
        for _ in range(2):
            clock.time += 5
            again = await store.announce(said(id, value={"to": "a", "order": 7}), **HAND)
            assert again == Announced(False, first, True)
            assert await store.announce(said(id, value={"order": 8}), **HAND) == Announced(False, first, False)
            await passed(store)
        assert await heard(store, "r") == [id]
        assert len(await store.audit(actions=["publish"])) == 1


async def test_a_run_that_has_ended_waits_no_more(place: Place) -> None:
    """A failed one may be retried and waits again, from then on; one that is over or deleted is forgotten."""
    async with place.open(ManualClock()) as store:
        for run, status in (("done", "completed"), ("failed", "failed"), ("deleted", "completed")):
            row = await owned(store, run, agent=run)
            await store.append(write(row, awaited(), announces=[NewSubscription("paid", {})]))
            error = {"error": '{"type": "E"}'} if status == "failed" else {}
            await finish(store, row, status, **error)
        await store.delete("deleted")
        await store.announce(said("e1"), **HAND)
        await passed(store)
        await store.resume("failed", by="ana", retry=True)
        await store.announce(said("e2"), **HAND)
        await passed(store)
        assert [await heard(store, run) for run in ("done", "failed")] == [[], ["e2"]]


async def test_a_fork_waits_for_what_its_past_waits_for(place: Place) -> None:
    """And for nothing that the other run came to wait for behind the point; also when the other has ended."""
    from holdfast.store.forks import NewFork
    from holdfast.words.people import Actor

    async with place.open(ManualClock()) as store:
        row = await owned(store, "base")
        await store.append(write(row, awaited(), announces=[NewSubscription("paid", {})]))
        await store.append(write(row, awaited("refunded"), announces=[NewSubscription("refunded", {})]))
        await finish(store, row)
        await store.announce(said("e0"), **HAND)
        await passed(store)
        await store.fork(NewFork("base", "fork", "0" * 32, 1, "ask", Actor("ana"), "test"))
        await store.announce(said("e1"), **HAND)
        await store.announce(said("e2", "refunded"), **HAND)
        await passed(store)
        assert (await heard(store, "base"), await heard(store, "fork")) == ([], ["e1"])


async def test_a_declaration_is_changed_retired_and_brought_back(place: Place) -> None:
    """By deploys and rollbacks; an old worker that is restarted beside newer ones changes nothing."""
    nothing = DeclaredTrigger("ship", "event", "", "")
    async with place.open(ManualClock()) as old:
        await old.publish([])
        await old.declare_subscriptions([nothing])
        assert await old.triggers() == []
        async with place.open(ManualClock()) as newer:
            await newer.publish([])
            await newer.declare_subscriptions([trigger("ship")])
            await old.declare_subscriptions([nothing])
            await old.announce(said("e1"), **HAND)
            await newer.declare_subscriptions([trigger("ship", debounce_ms=5)])  # counts on: it waits for the same
            await passed(old)
            assert await came(old, "ship") == ["e1"]
            await newer.announce(said("e2"), **HAND)
            await newer.declare_subscriptions([trigger("ship", "refunded")])  # begins anew
            await passed(old)
            assert await came(old, "ship") == ["e1"]
            await old.announce(said("e3", "refunded"), **HAND)
            await passed(old)
            assert await came(old, "ship") == ["e1", "e3"]
        await old.declare_subscriptions([nothing])
        assert await old.triggers() == []
        await old.announce(said("e4", "refunded"), **HAND)
        await passed(old)
        assert await came(old, "ship") == ["e1", "e3"]
        await old.declare_subscriptions([trigger("ship", "refunded")])
        await old.announce(said("e5", "refunded"), **HAND)
        await passed(old)
        assert await came(old, "ship") == ["e1", "e3", "e5"]


async def test_a_webhook_of_the_name_is_left_alone(place: Place) -> None:
    async with place.open(ManualClock()) as store:
        await store.declare_triggers([DeclaredTrigger("ship", "webhook", "{}", "d")])
        await store.declare_subscriptions([DeclaredTrigger("ship", "event", "", "")])
        ((row, _),) = await store.triggers()
        assert row.kind == "webhook"


async def test_a_held_copy_passes_nothing_on(place: Place, tmp_path) -> None:
    async with place.open(ManualClock()) as store:
        await waits(store, "r")
        for number in range(5):
            await store.announce(said(f"e{number}"), **HAND)
        await store.backup(tmp_path / "copy.db", **HAND)
    copy = place.connect(f"sqlite:{tmp_path / 'restored.db'}", clock=ManualClock())
    await copy.restore(tmp_path / "copy.db", **HAND)
    await copy.open()
    try:
        assert await copy.next_announcement() == (None, None)
        assert (await copy.pass_on()).done == 0
        assert await heard(copy, "r") == []
        await copy.activate(**HAND)
        await copy.announce(said("e5"), **HAND)
        await passed(copy)
        assert await heard(copy, "r") == [f"e{number}" for number in range(6)]
    finally:
        await copy.close()


# Gatherings


def gather(key: str, position: int, value: object = None, **how: object) -> GatherAct:
    options = {"most": 0, "quiet_ms": None, "within_ms": None, "bucket": ""} | how
    return GatherAct(Gather("t", key, position=position, value=json.dumps(value), **options))


async def bodies(store: Store) -> list[object]:
    rows = sorted(await store.deliveries("t", "new"), key=lambda row: row.received_at)
    return [json.loads((await store.delivery("t", row.key))[1]) for row in rows]


async def test_the_last_one_is_delivered_when_it_is_quiet(place: Place) -> None:
    clock = ManualClock()
    async with place.open(clock) as store:
        for key, position, value in (("a", 1, "first"), ("c", 3, "last"), ("b", 2, "mapped late")):
            await store.apply([gather(key, position, value, quiet_ms=100)])
            clock.time += 60
        await store.apply([gather("x", 4, "other", quiet_ms=100, bucket="b")])
        assert await store.next_announcement() == (None, clock.time + 40)
        assert await store.end_gatherings() == 0
        clock.time += 40
        assert await store.end_gatherings() == 1
        assert await bodies(store) == [["last"]]
        clock.time += 60
        assert await store.end_gatherings() == 1
        assert await bodies(store) == [["last"], ["other"]]
        assert await store.next_announcement() == (None, None)


async def test_a_list_is_delivered_when_it_is_full_or_late(place: Place) -> None:
    clock = ManualClock()
    async with place.open(clock) as one, place.open(clock) as two:
        acts = [gather(f"k{number}", number, number, most=3, within_ms=1000) for number in range(8)]
        await asyncio.gather(*[store.apply([act]) for act, store in zip(acts, (one, two) * 4, strict=True)])
        lists = await bodies(one)
        assert [len(each) for each in lists] == [3, 3]
        clock.time += 1000
        assert sum(await asyncio.gather(*[store.end_gatherings() for store in (one, two) * 3])) == 1
        lists = await bodies(one)
        assert sorted(value for each in lists for value in each) == list(range(8))
        assert all(each == sorted(each) for each in lists)


async def test_a_list_ends_when_it_is_quiet_or_late(place: Place) -> None:
    clock = ManualClock()
    async with place.open(clock) as store:
        for number in range(4):
            await store.apply([gather(f"k{number}", number, number, most=100, within_ms=250, quiet_ms=100)])
            assert await store.next_announcement() == (None, min(clock.time + 100, 1_000_250))
            clock.time += 90
        assert await store.end_gatherings() == 1
        assert await bodies(store) == [[0, 1, 2, 3]]


async def test_what_a_clock_gathered_that_was_ahead_is_delivered_soon_once_it_is_right(place: Place) -> None:
    """Whether it was begun by that clock, or came to what another had begun; what waits as it should goes on waiting."""
    clock = ManualClock()
    async with place.open(clock) as store:
        await store.declare_subscriptions([trigger("t", batch=[9, 1_000]), trigger("plain")])
        for bucket in ("begun", "waits"):
            await store.apply([gather(f"1{bucket}", 1, bucket, most=9, within_ms=1_000, bucket=bucket)])
        right = clock.time
        clock.time += 365 * 86_400_000
        await store.apply([gather("2", 2, "b", most=9, quiet_ms=900, bucket="begun")])
        await store.apply([gather("3", 3, "c", most=9, within_ms=1_000, bucket="new")])
        clock.time = right + 500
        assert await store.end_gatherings() == 0
        assert await store.recall_gatherings() == 2
        assert await store.end_gatherings() == 2
        assert sorted(await bodies(store)) == [["begun", "b"], ["c"]]
        clock.time += 500
        assert await store.recall_gatherings() == 0
        assert await store.end_gatherings() == 1


async def test_what_is_gathered_and_the_end_of_its_delivery_are_one(place: Place) -> None:
    clock = ManualClock()
    async with place.open(clock) as one, place.open(clock) as two:
        await one.receive(NewDelivery("t", "k", "event", {}, b"1"))
        ((row, _),) = await one.claim_deliveries(["t"], 5, TTL)
        clock.time += TTL
        ((later, _),) = await two.claim_deliveries(["t"], 5, TTL)
        with pytest.raises(BaseException):  # noqa: B017, PT011 - LeaseLost
            await one.apply([gather("k", 1, 1, most=5, within_ms=10)], row)
        assert await two.next_announcement() == (None, None)
        await two.apply([gather("k", 1, 1, most=5, within_ms=10)], later)
        clock.time += 10
        await two.end_gatherings()
        assert await bodies(one) == [[1]]


async def test_a_list_is_kept_although_its_first_announcement_has_an_id_that_was_there(place: Place) -> None:
    """Ids of announcements are forgotten after a while, and come again; the delivery that it was in may still be known."""
    clock = ManualClock()
    async with place.open(clock) as store:
        for position in (1, 2):
            await store.apply([gather("key_a", position, position, most=5, within_ms=10)])
            clock.time += 10
            await store.end_gatherings()
        assert await bodies(store) == [[1], [2]]


async def test_an_older_one_that_comes_late_is_not_the_last(place: Place) -> None:
    """In its bucket; and what is noted for that is forgotten after a while."""
    clock = ManualClock()
    async with place.open(clock) as store:

        async def last(key: str, position: int, value: str, **how: object) -> list[object]:
            await store.apply([gather(key, position, value, **{"quiet_ms": 10, **how})])
            clock.time += 10
            assert await store.end_gatherings() == 1
            return await bodies(store)

        assert await last("b", 2, "newer") == [["newer"]]
        assert await last("a", 1, "older") == [["newer"]]
        assert await last("c", 1, "elsewhere", bucket="b") == [["newer"], ["elsewhere"]]
        assert await last("d", 3, "newest") == [["newer"], ["elsewhere"], ["newest"]]
        lists = await last("e", 1, "listed", most=5)
        assert lists[-1] == ["listed"]
        assert [await store.prune_announcements(clock.time) for _ in range(2)] == [2, 0]
