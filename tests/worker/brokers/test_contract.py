"""The contract of adapters, held by each of them with a real broker."""

import asyncio
import contextlib
import importlib
import json
import time
import uuid

import pytest
from tests.brokers import BROKERS, SQS

from holdfast.words.queues import address_of, key_of
from holdfast.worker.brokers.contract import QueueMissing, Reading


@pytest.fixture(scope="module", params=BROKERS)
def broker(request, tmp_path_factory):
    server = BROKERS[request.param](tmp_path_factory.mktemp(request.param))
    server.start()
    yield server
    server.stop()


class Queue:
    """A fresh queue, and ways to read it."""

    def __init__(self, broker):
        self.broker, self.name = broker, f"q{uuid.uuid4().hex[:12]}"
        self.address = address_of(broker.url(self.name))
        self._open = contextlib.AsyncExitStack()

    async def __aenter__(self):
        await self.broker.make(self.name)
        return self

    async def __aexit__(self, *_):
        await self._open.aclose()

    async def connect(self, redeliver_s=None, worker=None, in_flight=100, address=None):
        redeliver_s = redeliver_s or self.broker.long_s
        adapter = importlib.import_module(f"holdfast.worker.brokers.{self.address.broker.name}")
        reading = Reading(f"group-{self.name}", worker or f"w{uuid.uuid4().hex[:8]}", in_flight, redeliver_s)
        connection = await adapter.connect(address or self.address, reading)
        self._open.push_async_callback(self._close, connection)
        return connection

    async def _close(self, connection):
        with contextlib.suppress(Exception):
            await connection.close()

    async def publish(self, *bodies):
        await self.broker.publish(self.name, bodies)

    def key(self, message):
        return key_of(message, self.broker.id)


async def taken(connection, count, most=100, limit_s=20.0, *, repeats=False):
    """Take until there are so many. `repeats`: the broker may give one twice at once, as SQS says it does."""
    found, end = [], time.monotonic() + limit_s
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} came"
        more = await connection.take(min(most, count - len(found)))
        found += [each for each in more if not repeats or each.body not in [one.body for one in found]]
    return found


async def nothing(connection, for_s):
    """Nothing comes for a while."""
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        assert not await connection.take(10)


def bodies(messages):
    return sorted(message.body for message in messages)


@pytest.mark.slow
@pytest.mark.by_day("nats*", "redis*")
async def test_what_is_done_does_not_come_again_and_what_is_not_does(broker):
    async with Queue(broker) as queue:
        sent = [b"%d" % number for number in range(20)]
        first = await queue.connect()
        await queue.publish(*sent, "grün: ein Text".encode())
        messages = await taken(first, 21, repeats=isinstance(broker, SQS))
        assert bodies(messages) == sorted([*sent, "grün: ein Text".encode()])
        assert len({queue.key(each) for each in messages}) == 21
        assert {each.before for each in messages} == {0}
        undone = messages[17:] if not broker.counts and broker.notices else [messages[3], messages[20]]
        await first.done([each for each in messages if each not in undone])
        await first.give_back(undone)
        await first.close()
        second = await queue.connect()
        again = await taken(second, len(undone))
        assert {queue.key(each) for each in undone} <= {queue.key(each) for each in again}
        assert not broker.counts or all(each.before >= 1 for each in again)
        await second.done(again)
        await nothing(second, 1.5)


@pytest.mark.slow
async def test_no_more_is_taken_than_asked_for(broker):
    async with Queue(broker) as queue:
        await queue.publish(*[b"%d" % number for number in range(50)])
        connection = await queue.connect()
        found = []
        while len(found) < 50:
            more = await connection.take(7)
            assert len(more) <= 7
            found += more
            await connection.done(more)
        assert len({queue.key(each) for each in found}) == 50


@pytest.mark.nightly
async def test_a_worker_that_is_silent_loses_its_messages_and_one_that_holds_them_does_not(broker):
    if broker.notices:
        pytest.skip("this broker notices by itself that a connection is gone, and waits as long as it is there")
    async with Queue(broker) as queue:
        await queue.publish(b"held", b"left")
        holder = await queue.connect(4.0)
        held = await taken(holder, 2)
        other = await queue.connect(4.0)
        came, end = [], time.monotonic() + 20.0
        while time.monotonic() < end and not came:
            await holder.hold([each for each in held if each.body == b"held"])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    came += await asyncio.shield(pending := asyncio.ensure_future(other.take(5)))
            if not pending.done():
                await holder.hold([each for each in held if each.body == b"held"])
                came += await pending
        assert [each.body for each in came] == [b"left"]


@pytest.mark.slow
@pytest.mark.by_day("nats*", "redis*")
async def test_headers_bodies_and_lag(broker):
    async with Queue(broker) as queue:
        big = b"x" * 200_000
        connection = await queue.connect()
        await queue.publish(big, json.dumps({"id": 7}).encode())
        messages = await taken(connection, 2)
        assert bodies(messages) == sorted([big, b'{"id": 7}'])
        if not isinstance(broker, BROKERS["nats"]):
            assert {each.headers["colour"] for each in messages} == {"grün"}
        assert {key_of(each, "id") for each in messages} == {None, "7"}
        await connection.done(messages)
        await connection.close()
        await queue.publish(b"1", b"2", b"3")
        late = await queue.connect()
        if (
            not broker.notices
        ):  # RabbitMQ has given all ahead, and Kafka knows a member's part when it has taken something
            assert await late.lag() == 3
        await late.done(await taken(late, 3))
        assert await late.lag() == 0


@pytest.mark.slow
@pytest.mark.by_day("nats*")
async def test_a_queue_that_is_missing_is_told(broker):
    if isinstance(broker, BROKERS["redis"]):
        pytest.skip("a stream of Redis is made by its first reader")
    async with Queue(broker) as queue:
        with pytest.raises(QueueMissing, match=r"there is no (stream|queue|topic) 'nowhere'.*; make it with"):
            await queue.connect(address=address_of(broker.url("nowhere")))


async def _used(connection):
    while True:
        await connection.take(1)
        await connection.lag()


@pytest.mark.slow
@pytest.mark.by_day("nats*")
async def test_a_broker_that_is_gone_is_noticed_and_has_what_was_not_done(broker):
    async with Queue(broker) as queue:
        await queue.publish(b"1", b"2")
        connection = await queue.connect(1.0)
        first = await taken(connection, 2)
        await connection.done(first[:1])
        await connection.lag()
        await asyncio.to_thread(broker.kill)
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever its package raises
            await asyncio.wait_for(_used(connection), 30)
        await asyncio.to_thread(broker.start)
        if broker.lasts:
            again = await queue.connect(1.0)
            came = []
            while first[1].body not in came:  # a broker that is killed may have forgotten that the other was done
                came += [each.body for each in await again.take(2)]
