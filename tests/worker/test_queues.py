"""Queues in a worker, with a real NATS: a message does its work once, and none is lost, whatever fails on the way."""

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime, timedelta

import nats
import pytest
from tests.brokers import Nats

import holdfast
from holdfast import Delivery, Retry, Send, Start

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    server = Nats(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def queue(broker):
    name = f"q{uuid.uuid4().hex[:10]}"
    asyncio.run(broker.make(name))
    return name


@pytest.fixture
def url(tmp_path):
    return f"sqlite:{tmp_path / 'runs.db'}?durability=process"


@holdfast.step
async def double(number: int) -> int:
    return 2 * number


@holdfast.agent
async def doubled(number: int) -> int:
    return await double(number)


@holdfast.agent
async def hears(count: int) -> list[int]:
    return [await holdfast.receive("number", int) for _ in range(count)]


async def until(holds, limit_s=60.0):
    end = time.monotonic() + limit_s
    while not (found := await holds()):
        assert time.monotonic() < end, "it never came to be so"
        await asyncio.sleep(0.02)
    return found


async def pending(broker, queue, group):
    """How many messages the broker has that are not done."""
    client = await nats.connect(f"nats://127.0.0.1:{broker.port}")
    try:
        info = await client.jetstream().consumer_info(queue, group)
        return info.num_pending + info.num_ack_pending
    finally:
        await client.close()


def numbers(queue, broker, **options):
    @holdfast.on.queue(broker.url(queue), name="numbers", **options)
    def mapping(delivery: Delivery) -> list[Start | Send]:
        number = delivery.json()["n"]
        return [Start(doubled, number), Send("listener", "number", number)]

    return mapping


def body(number):
    return json.dumps({"n": number, "order": {"id": f"order-{number}"}}).encode()


async def test_each_message_is_mapped_applied_and_acknowledged(broker, queue, url):
    async with holdfast.open(url, agents=[numbers(queue, broker, in_flight=20), hears]) as hf:
        listener = await hf.start(hears, 100, id="listener")
        await broker.publish(queue, [body(number) for number in range(100)])
        assert sorted(await listener.result(timeout=30)) == list(range(100))
        runs = await hf.runs(agent="doubled", limit=1000)
        assert len(runs) == 100
        assert sorted([await hf.get(run.id).result() for run in runs]) == [2 * number for number in range(100)]
        assert {run.id.partition("@")[0] for run in runs} == {"numbers"}
        await until(lambda: _none_pending(broker, queue))
        assert await hf.deliveries() == []  # the store sees a message through its actions alone
        (deed,) = await hf.audit(run=runs[0].id)
        assert (deed.action, deed.by, deed.via) == ("start", "queue", "queue:numbers")
        (info,) = await hf.triggers()
        assert (info.kind, info.config["url"], info.config["in_flight"]) == ("queue", broker.url(queue), 20)
        assert info.messages == 100, "counted with what they did"
        await until(lambda: _is_told_of(hf))
        (info,) = await hf.triggers()
        assert info.lag_messages == 0 and (info.waiting, info.dead, info.done) == (0, 0, 0)
        measures = hf._worker.measures
        assert measures.deliveries["numbers", "done"] == 100
        assert measures.connected == {"numbers": True}


async def _none_pending(broker, queue):
    return await pending(broker, queue, "holdfast-numbers") == 0


async def test_a_message_that_comes_again_does_nothing(broker, queue, url):
    """The sender's id makes two messages of the broker one."""
    mapping = numbers(queue, broker, id="order.id")
    async with holdfast.open(url, agents=[mapping, hears]) as hf:
        listener = await hf.start(hears, 3, id="listener")
        for _ in range(3):
            await broker.publish(queue, [body(1), body(2)])
        await until(lambda: _none_pending(broker, queue))
        await broker.publish(queue, [body(3)])
        assert sorted(await listener.result(timeout=20)) == [1, 2, 3]
        runs = {run.id for run in await hf.runs(agent="doubled")}
        assert runs == {f"numbers@order-{number}" for number in (1, 2, 3)}


async def test_what_cannot_be_mapped_is_tried_again_then_dead_and_can_be_replayed(broker, queue, url, caplog):
    tried, mended = [], []

    @holdfast.on.queue(broker.url(queue), name="weak", id="order.id", retry=Retry(3, first="0.05s", max="0.05s"))
    def weak(delivery):
        number = delivery.json()["n"]
        if number == 13 and not mended:
            tried.append(delivery.id)
            raise ConnectionError("no line")
        return Start(doubled, number)

    async with holdfast.open(url, agents=[weak]) as hf:
        await broker.publish(queue, [body(number) for number in range(20)] + [b"no json", b'{"n": 1}'])
        dead = await until(lambda: _dead(hf, 3))
        assert {(info.id.partition("-")[0], info.attempts) for info in dead} == {("order", 3), ("no", 1)}
        assert {info.error.partition(":")[0] for info in dead} == {"ConnectionError", "the message has no id"}
        assert tried == ["order-13"] * 3
        assert len(await hf.runs(agent="doubled", limit=100)) == 19
        await until(lambda: _acknowledged(broker, queue))
        mended.append(True)
        await hf.replay_delivery("weak", "order-13")
        await until(lambda: _run_of(hf, "weak@order-13"))
        assert await hf.get("weak@order-13").result() == 26
    assert "it is dead: `holdfast triggers weak` shows it" in caplog.text


async def _dead(hf, count):
    found = await hf.deliveries(status="dead")
    return found if len(found) == count else None


async def _run_of(hf, id):
    return id in {run.id for run in await hf.runs()}


async def _acknowledged(broker, queue):
    return await pending(broker, queue, "holdfast-weak") == 0


async def test_one_message_that_is_refused_spoils_no_other_of_its_batch(broker, queue, url):
    @holdfast.on.queue(broker.url(queue), name="mixed", retry=1)
    def mixed(delivery):
        number = delivery.json()["n"]
        if number % 10 == 3:
            return [Start(doubled, number), Send("nobody", "number", number)]
        return Start(doubled, "text" if number % 10 == 4 else number)

    await broker.publish(queue, [body(number) for number in range(50)])
    async with holdfast.open(url, agents=[mixed]) as hf:
        dead = await until(lambda: _dead(hf, 10))
        assert {info.error.partition(":")[0].rpartition(".")[2] for info in dead} == {"UnknownRun", "BadArguments"}
        assert len(await until(lambda: _runs(hf, 40))) == 40


async def _runs(hf, count):
    found = await hf.runs(agent="doubled", limit=1000)
    return found if len(found) == count else None


async def test_no_more_are_in_flight_than_allowed_and_one_that_takes_long_holds_up_no_other(broker, queue, url):
    at_once, most, go_on = set(), [], asyncio.Event()

    @holdfast.on.queue(broker.url(queue), name="slow", in_flight=5)
    async def slow(delivery):
        at_once.add(delivery.id)
        most.append(len(at_once))
        if delivery.json()["n"] == 0:
            await go_on.wait()
        at_once.discard(delivery.id)
        return Start(doubled, delivery.json()["n"])

    async with holdfast.open(url, agents=[slow]) as hf:
        await broker.publish(queue, [body(number) for number in range(30)])
        await until(lambda: _runs(hf, 29))
        assert max(most) <= 5
        go_on.set()
        await until(lambda: _runs(hf, 30))


async def test_a_plain_mapping_that_hangs_holds_up_no_other(broker, queue, url, monkeypatch):
    monkeypatch.setattr("holdfast.worker.mappings._MAPPING_S", 0.3)
    import threading

    go_on = threading.Event()

    @holdfast.on.queue(broker.url(queue), name="hangs", retry=1)
    def hangs(delivery):
        if delivery.json()["n"] == 5:
            go_on.wait()
        return Start(doubled, delivery.json()["n"])

    await broker.publish(queue, [body(number) for number in range(20)])
    async with holdfast.open(url, agents=[hangs]) as hf:
        await until(lambda: _runs(hf, 19))
        (dead,) = await until(lambda: _dead(hf, 1))
        assert dead.error.startswith(
            "TimeoutError: the mapping took longer than 0.3 s. Give what it waits for a timeout"
        )
        go_on.set()


async def test_a_worker_that_stops_finishes_what_it_maps_and_gives_the_rest_back(broker, queue, url):
    begun, go_on = asyncio.Event(), asyncio.Event()

    @holdfast.on.queue(broker.url(queue), name="numbers", in_flight=10, redeliver="1h")
    async def mapping(delivery):
        number = delivery.json()["n"]
        begun.set()
        await (asyncio.sleep(0.2) if number == 0 else go_on.wait())
        return Start(doubled, number)

    await broker.publish(queue, [body(number) for number in range(40)])
    async with holdfast.open(url, agents=[mapping]) as hf:
        await begun.wait()
    async with holdfast.open(url) as hf:
        assert len(await hf.runs(agent="doubled")) == 1
    assert await pending(broker, queue, "holdfast-numbers") == 39
    go_on.set()
    async with holdfast.open(url, agents=[mapping]) as hf:
        await until(lambda: _runs(hf, 40))  # the broker would have given them again after an hour


async def test_a_worker_that_stops_applies_what_a_webhook_brought(url):
    """What is being mapped when a client closes is applied, and does not die of the closed client."""
    begun = asyncio.Event()

    @holdfast.on.webhook("late", verify=holdfast.Verify.bearer("env:TOKEN"))
    async def late(delivery):
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)
        return Start(doubled, 4)

    async with holdfast.open(url, agents=[late]) as hf:
        await hf._receive("late", "webhook", "1", {}, b"")
        await begun.wait()
    async with holdfast.open(url) as hf:
        (info,) = await hf.deliveries()
        assert info.status in ("done", "new"), info.error


@pytest.mark.by_day("broker")
@pytest.mark.parametrize("missing", ["broker", "queue"])
async def test_a_broker_that_is_away_is_waited_for(tmp_path, url, caplog, missing):
    server, began = Nats(tmp_path / "nats"), datetime.now(UTC) - timedelta(seconds=1)
    if missing == "queue":
        await asyncio.to_thread(server.start)
    try:
        async with holdfast.open(url, agents=[numbers("later", server), hears]) as hf:
            await until(lambda: _said(caplog, "cannot read"))
            assert hf._worker.measures.connected == {"numbers": False}
            (away,) = await hf.triggers()
            assert (away.away_workers, away.lag_messages) == (1, None)
            assert began <= away.away_since <= datetime.now(UTC)
            assert (missing == "queue") is ("there is no stream 'later'" in away.away_error), away
            assert hf._worker.measures.away["numbers"] == away.away_since.timestamp() * 1000
            if missing == "broker":
                await asyncio.to_thread(server.start)
            await server.make("later")
            await server.publish("later", [body(1)])
            listener = await hf.start(hears, 2, id="listener")
            await until(lambda: _said(caplog, "reads"))
            await until(lambda: _lag_is(hf, 0))
            (back,) = await hf.triggers()
            assert (back.away_workers, back.away_since, back.away_error) == (0, None, None)
            assert hf._worker.measures.away == {}
            await asyncio.to_thread(server.kill)
            await until(lambda: _away(hf))
            assert hf._worker.measures.lag == {}
            await until(lambda: _lag_is(hf, None))
            (away,) = await hf.triggers()
            assert away.away_since > began and away.away_error
            await asyncio.to_thread(server.start)
            await server.publish("later", [body(2)])
            assert sorted(await listener.result(timeout=30)) == [1, 2]
    finally:
        server.stop()
    assert ("there is no stream 'later'; make it with" in caplog.text) is (missing == "queue")


async def _is_told_of(hf):
    """Has the store been told of the last messages? A worker does so now and then, and at first of a queue that was empty."""
    (info,) = await hf.triggers()
    return info.last_at is not None and info.lag_messages == 0


async def _lag_is(hf, wanted):
    """With `None`: it is told that the broker is away."""
    (info,) = await hf.triggers()
    return info.lag_messages == wanted and (wanted is not None or info.away_workers == 1)


async def _said(caplog, text):
    return text in caplog.text


async def _away(hf):
    return hf._worker.measures.connected == {"numbers": False}


async def test_credentials_are_neither_stored_nor_shown(broker, queue, tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("BROKER_LOGIN", "somebody:f0rb1dden-by-variable")
    port = broker.port

    @holdfast.on.queue(f"nats://me:f0rb1dden-in-url@127.0.0.1:{port}/{queue}")
    def one(delivery):
        return None

    @holdfast.on.queue(f"nats://env:BROKER_LOGIN@127.0.0.1:{port}/{queue}")
    def two(delivery):
        return None

    async with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}", agents=[one, two]) as hf:
        infos = await until(lambda: _triggers(hf, 2))
        shown = {info.name: info.config["url"] for info in infos}
        assert shown["one"] == f"nats://me@127.0.0.1:{port}/{queue}"
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
    for text in (caplog.text.encode(), kept, repr(one.spec).encode(), repr(infos).encode()):
        assert b"f0rb1dden" not in text


async def _triggers(hf, count):
    found = await hf.triggers()
    return found if len(found) == count else None


async def test_a_copy_that_is_held_reads_no_queue(broker, queue, url, tmp_path):
    async with holdfast.open(url) as hf:
        await hf.backup(tmp_path / "copy.backup")
    copy = f"sqlite:{tmp_path / 'copy.db'}"
    await holdfast.restore_backup(tmp_path / "copy.backup", copy)
    await broker.publish(queue, [body(1)])
    async with holdfast.open(copy, agents=[numbers(queue, broker), hears]) as hf:
        queues = next(each for each in hf._worker.rounds if each.what == "queues")
        await until(lambda: _asleep(queues))
        assert hf._worker.measures.connected == {}
        await hf.start(hears, 1, id="listener")
        await hf.activate()
        queues.wake()
        assert await hf.get("listener").result(timeout=20) == [1]


async def _asleep(each):
    return each.asleep


@pytest.mark.nightly
async def test_code_that_is_served_later_takes_the_place_of_a_trigger(broker, queue, url):
    async with holdfast.open(url, agents=[doubled]) as hf:
        await hf.serve(numbers(queue, broker))
        await broker.publish(queue, [body(1)])
        await hf.start(hears, 1, id="listener")
        await until(lambda: _runs(hf, 1))

        @holdfast.on.queue(broker.url(queue), name="numbers")
        async def other(delivery):
            return Start(doubled, 1000)

        await hf.serve(other)
        await until(lambda: _runs_end(hf))
        await broker.publish(queue, [body(2)])
        runs = await until(lambda: _runs(hf, 2))
        assert sorted([await hf.get(run.id).result() for run in runs]) == [2, 2000]


async def _runs_end(hf):
    queues = next(each for each in hf._worker.rounds if each.what == "queues")
    return [each.spec.fn.__name__ for each in queues._reading.values()] == ["other"]


def test_a_package_that_is_not_installed_is_told(tmp_path):
    program = """
import sys, asyncio
sys.modules["nats"] = None
import holdfast
@holdfast.on.queue("nats://host:4222/orders")
def orders(delivery): ...
async def main():
    async with holdfast.open("sqlite:x.db", agents=[orders]): ...
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ
    )
    assert 'pip install "holdfast[nats]"' in done.stderr.splitlines()[-1]
    assert "nats://host:4222/orders needs a package that is not installed" in done.stderr


async def test_a_variable_that_is_not_set_is_told(url):
    @holdfast.on.queue("nats://me:env:NOT_THERE@host:4222/orders")
    def orders(delivery): ...

    with pytest.raises(holdfast.BadArguments, match="from the variable NOT_THERE, which is not set here"):
        async with holdfast.open(url, agents=[orders]):
            pass
