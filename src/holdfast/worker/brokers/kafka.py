"""Kafka: a member of a consumer group, through librdkafka in a thread of its own.

Kafka does not know of single messages: each partition has a place up to which the group has read. It moves on past a message when
that and all before it are done. A message has no id of its own, as a topic that is made anew counts from zero again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from holdfast.words.queues import Address, Message, headers_of
from holdfast.worker.brokers.contract import CONNECT_S, TAKE_S, QueueMissing, Reading

T = TypeVar("T")
_SHORTEST_SESSION_S: Final = 6.0  # that brokers allow unless told otherwise
_DOWN: Final = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)  # noqa: SLF001 - they are public in all but name
_NO_TOPIC: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001


async def connect(address: Address, reading: Reading) -> Queue:
    """Read a topic, from its beginning if the group is new."""
    settings: dict[str, Any] = {
        "bootstrap.servers": ",".join(address.hosts),
        "group.id": address.options.get("group", reading.group),
        "client.id": f"holdfast-{reading.worker}",
        "enable.auto.commit": False,
        "auto.offset.reset": {"first": "earliest", "next": "latest"}.get(address.options.get("from", ""), "earliest"),
        "session.timeout.ms": round(max(reading.redeliver_s, _SHORTEST_SESSION_S) * 1000),
        "security.protocol": ("SASL_" if address.user else "") + ("SSL" if address.encrypted else "PLAINTEXT"),
    }
    if address.user:
        mechanism = address.options.get("sasl", "PLAIN")
        settings |= {
            "sasl.mechanism": mechanism, "sasl.username": address.user, "sasl.password": address.password or "",
        }  # fmt: skip
    queue = Queue(address.queue, settings)
    try:
        await queue.join()
    except BaseException:
        await queue.close()
        raise
    return queue


class Queue:
    """A topic that is being read. All of librdkafka is called in one thread."""

    def __init__(self, topic: str, settings: dict[str, Any]) -> None:
        self._topic, self._thread = topic, ThreadPoolExecutor(1, thread_name_prefix="holdfast-kafka")
        self._down: str | None = None
        self._consumer = Consumer({**settings, "error_cb": self._trouble})
        self._open: dict[
            int, dict[int, bool]
        ] = {}  # of each partition: the places that were taken, and whether each is done

    def _trouble(self, error: KafkaError) -> None:
        if error.code() in _DOWN:
            self._down = error.str()

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def join(self) -> None:
        """Look whether there is such a topic, and ask for a part of it."""
        found = (await self._call(lambda: self._consumer.list_topics(self._topic, timeout=CONNECT_S))).topics
        topic = found.get(self._topic)
        if topic is None or (topic.error is not None and topic.error.code() in _NO_TOPIC):
            raise QueueMissing(
                f"there is no topic {self._topic!r}; make it with `kafka-topics.sh --create --topic {self._topic}`"
            )
        await self._call(
            lambda: self._consumer.subscribe([self._topic], on_revoke=self._revoked, on_lost=self._revoked)
        )

    def _revoked(self, _: object, partitions: Sequence[TopicPartition]) -> None:
        """Forget what was taken of partitions that another worker has now. It takes what is not done."""
        for each in partitions:
            self._open.pop(each.partition, None)

    async def take(self, most: int) -> Sequence[Message]:
        return await self._call(lambda: self._take(most))

    def _take(self, most: int) -> list[Message]:
        first = self._consumer.poll(TAKE_S)
        if self._down is not None and first is None:
            raise ConnectionError(self._down)
        self._down = None
        found = [] if first is None else [first]
        if first is not None and most > 1:
            found += self._consumer.consume(most - 1, 0)
        return [self._message(each) for each in found if not self._is_news(each)]

    def _is_news(self, got: Any) -> bool:
        error = got.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
            raise KafkaException(error)
        return error is not None

    def _message(self, got: Any) -> Message:
        found = {name: value for name, value in got.headers() or () if value is not None}
        if got.key() is not None:
            found["key"] = got.key()
        self._open.setdefault(got.partition(), {})[got.offset()] = False
        return Message(got.value() or b"", headers_of(found), None, 0, (got.partition(), got.offset()))

    async def done(self, messages: Sequence[Message]) -> None:
        await self._call(lambda: self._done(messages))

    def _done(self, messages: Sequence[Message]) -> None:
        places: dict[int, int] = {}
        for partition, offset in (each.handle for each in messages):
            taken = self._open.get(partition)
            if taken is None or offset not in taken:
                continue  # another worker has the partition
            taken[offset] = True
            while taken and taken[first := next(iter(taken))]:
                del taken[first]
                places[partition] = first + 1
        if places:
            at = [TopicPartition(self._topic, partition, offset) for partition, offset in places.items()]
            self._consumer.commit(offsets=at, asynchronous=False)

    async def give_back(self, messages: Sequence[Message]) -> None:
        """Do nothing: the group's place is still before them."""

    async def hold(self, messages: Sequence[Message]) -> None:
        """Do nothing: they are this member's as long as it is one."""

    async def lag(self) -> int | None:
        return await self._call(self._lag)

    def _lag(self) -> int | None:
        parts, lag = self._consumer.assignment(), 0
        before = (
            {each.partition: each.offset for each in self._consumer.committed(parts, timeout=CONNECT_S)}
            if parts
            else {}
        )
        for each in self._consumer.position(parts):
            low, high = self._consumer.get_watermark_offsets(each, timeout=CONNECT_S)
            at = max(each.offset, before[each.partition], low)  # places that are not known are negative
            lag += max(high - at, 0)
        return lag

    async def close(self) -> None:
        try:
            await self._call(self._consumer.close)
        finally:
            self._thread.shutdown(wait=False)
