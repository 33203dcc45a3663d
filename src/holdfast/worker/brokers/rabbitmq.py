"""RabbitMQ: a consumer of a queue, to which the server gives so many messages ahead as may be in flight.

The server gives back by itself what a connection that is gone had taken.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from aio_pika.exceptions import ChannelNotFoundEntity

from holdfast.words.queues import Address, Message, headers_of
from holdfast.worker.brokers.contract import CONNECT_S, TAKE_S, QueueMissing, Reading


async def connect(address: Address, reading: Reading) -> Queue:
    """Read a queue."""
    host, _, port = address.hosts[0].rpartition(":")
    connection = await aio_pika.connect(
        host=host.strip("[]"), port=int(port), login=address.user or "guest", password=address.password or "guest",
        virtualhost=address.options.get("vhost", "/"), ssl=address.encrypted, timeout=CONNECT_S,
        client_properties={"connection_name": f"holdfast {reading.worker}"},
    )  # fmt: skip
    try:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=min(reading.in_flight, 65_535))
        try:
            found = await channel.declare_queue(address.queue, passive=True)
        except ChannelNotFoundEntity:
            raise QueueMissing(
                f"there is no queue {address.queue!r}; make it with `rabbitmqadmin declare queue name={address.queue} durable=true`"
            ) from None
        queue = Queue(connection, channel, address.queue)
        await found.consume(queue.came)
        return queue
    except BaseException:
        await connection.close()
        raise


class Queue:
    """A queue that is being read."""

    def __init__(self, connection: AbstractConnection, channel: AbstractChannel, name: str) -> None:
        self._connection, self._channel, self._name = connection, channel, name
        self._came: deque[Message] = deque()
        self._heard = asyncio.Event()
        connection.close_callbacks.add(self._closed)
        channel.close_callbacks.add(self._closed)

    def _closed(self, *_: object) -> None:
        self._heard.set()

    async def came(self, got: AbstractIncomingMessage) -> None:
        """Hear of a message."""
        found = {**got.headers, "routing-key": got.routing_key or ""}
        if got.message_id is not None:
            found["message-id"] = got.message_id
        if got.content_type is not None:
            found["content-type"] = got.content_type
        counted = got.headers.get("x-delivery-count")  # of quorum queues
        before = counted if isinstance(counted, int) else int(bool(got.redelivered))
        self._came.append(Message(got.body, headers_of(found), None, before, got))
        self._heard.set()

    async def take(self, most: int) -> Sequence[Message]:
        if not self._came:
            self._heard.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TAKE_S):
                    await self._heard.wait()
        if self._connection.is_closed or self._channel.is_closed:
            raise ConnectionError("the connection was closed")
        return [self._came.popleft() for _ in range(min(most, len(self._came)))]

    async def done(self, messages: Sequence[Message]) -> None:
        for each in messages:
            await each.handle.ack()

    async def give_back(self, messages: Sequence[Message]) -> None:
        for each in (*messages, *self._came):
            await each.handle.nack(requeue=True)
        self._came.clear()

    async def hold(self, messages: Sequence[Message]) -> None:
        """Do nothing: they are this connection's as long as it lives."""

    async def lag(self) -> int | None:
        found = await self._channel.declare_queue(self._name, passive=True)
        return found.declaration_result.message_count

    async def close(self) -> None:
        await self._connection.close()
