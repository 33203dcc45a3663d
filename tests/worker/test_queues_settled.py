"""Messages of a queue that cannot be written as they are: each is settled, and holds up no other. No broker is needed for it."""

import asyncio
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import holdfast
from holdfast import Delivery
from holdfast.words.queues import Message, address_of
from holdfast.worker.brokers.contract import Reading
from holdfast.worker.mappings import Mapper
from holdfast.worker.queues import Consumer

URL = "nats://127.0.0.1:4222/orders"


class Store:
    """Keeps deliveries, but those of which `refuses` says True."""

    clock = SimpleNamespace(now=lambda: 1_000)

    def __init__(self, refuses):
        self.kept, self._refuses = [], refuses

    async def receive(self, new):
        if self._refuses(new):
            raise ValueError("this cannot be written")
        self.kept.append(new)


async def settled(fn, messages, refuses=lambda _: False):
    """Have messages mapped; the store, and the consumer, which has acknowledged nothing yet."""

    async def apply(*args, **options):
        raise AssertionError("nothing is to be applied")

    spec = holdfast.on.queue(URL, name="orders", retry=holdfast.Retry(attempts=1))(fn).spec
    store = Store(refuses)
    reading = Reading("group", "worker", 10, 30.0)
    consumer = Consumer(spec, address_of(URL), reading, Mock(), store, Mock(), Mapper(), apply)
    consumer._taken.update((id(each), (each, 0.0)) for each in messages)
    async with asyncio.timeout(5):
        await consumer._handle(messages)
    return store, consumer


def message(number):
    return Message(b"%d" % number, {"a": "b"}, f"m{number}", 0)


def _exits(delivery: Delivery) -> None:
    raise SystemExit(3)


async def _cancels(delivery: Delivery) -> None:
    raise asyncio.CancelledError


def _asks_another_store(delivery: Delivery) -> None:
    raise holdfast.StoreUnavailable("another store")


@pytest.mark.parametrize("fn", [_exits, _cancels, _asks_another_store])
async def test_whatever_a_mapping_raises_is_the_failure_of_its_message(fn):
    messages = [message(1), message(2)]
    store, consumer = await settled(fn, messages)
    assert sorted(new.key for new in store.kept) == ["m1", "m2"] and all(new.error for new in store.kept)
    assert len(consumer._ended) == 2


def _fails(delivery: Delivery) -> None:
    raise ValueError("no")


async def test_a_message_that_the_store_refuses_is_kept_plainly():
    store, consumer = await settled(_fails, [message(1), message(2)], lambda new: new.key == "m1")
    assert sorted((new.key[:5], new.body, dict(new.headers)) for new in store.kept) == [
        ("m2", b"2", {"a": "b"}), ("no-id", b"1", {}),
    ]  # fmt: skip
    assert len(consumer._ended) == 2


async def test_a_message_that_cannot_be_kept_stays_with_its_broker_and_leaves_its_room():
    one, two = message(1), message(2)
    store, consumer = await settled(_fails, [one, two], lambda new: new.body == b"1")
    assert [new.key for new in store.kept] == ["m2"]
    assert consumer._ended == [two] and list(consumer._taken) == [id(two)] and consumer._room.is_set()


async def test_messages_for_a_function_that_hangs_are_left_to_others_with_no_attempt_counted(monkeypatch):
    monkeypatch.setattr("holdfast.worker.mappings._MAPPING_S", 0.05)
    monkeypatch.setattr("holdfast.worker.mappings._MOST_HUNG", 1)
    go_on = threading.Event()

    def hangs(delivery: Delivery) -> None:
        assert go_on.wait(30)

    store, consumer = await settled(hangs, [message(1), message(2), message(3)])
    kept = sorted((new.key, new.attempts, new.error is None) for new in store.kept)
    assert kept == [("m1", 1, False), ("m2", 0, True), ("m3", 0, True)]
    assert len(consumer._ended) == 3
    go_on.set()
