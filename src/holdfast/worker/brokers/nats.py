"""NATS JetStream: a durable pull consumer of a stream, shared by all workers of a trigger.

A message is known by the number that its stream gave it and by when the stream was made: a stream that is deleted and made anew
counts from one again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from holdfast.words.queues import Address, Message, headers_of
from holdfast.worker.brokers.contract import CONNECT_S, TAKE_S, QueueMissing, Reading

_REQUEST_S: Final = 5.0  # for which one request for messages holds
_LOST_S: Final = 10.0  # after which a request without any answer counts as lost
_MOST_PENDING: Final = 20_000  # messages that all workers together have taken
_EXPECTED: Final = ("404", "408", "409")  # no messages, the request is over, too many are pending


async def connect(address: Address, reading: Reading) -> Queue:
    """Read a stream of JetStream."""
    scheme = "tls" if address.encrypted else "nats"
    client = Client()
    try:
        await client.connect(
            [f"{scheme}://{host}" for host in address.hosts],
            user=None if address.password is None else address.user,
            password=address.password,
            token=address.user if address.password is None else None,
            name=f"holdfast {reading.worker}",
            allow_reconnect=False,  # the worker makes a new connection, as with every broker
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=round(CONNECT_S),
            error_cb=_ignore,
        )
        stream = client.jetstream()
        try:
            info = await stream.stream_info(address.queue)
        except NotFoundError:
            raise QueueMissing(
                f"there is no stream {address.queue!r}; make it with `nats stream add {address.queue}`"
            ) from None
        config = ConsumerConfig(
            durable_name=address.options.get("group", reading.group), ack_policy=AckPolicy.EXPLICIT,
            deliver_policy=DeliverPolicy.ALL, ack_wait=reading.redeliver_s, max_ack_pending=_MOST_PENDING,
            filter_subject=address.options.get("subject"),
        )  # fmt: skip
        await stream.add_consumer(address.queue, config)
        inbox = client.new_inbox()
        queue = Queue(client, stream, address.queue, str(config.durable_name), inbox, _made_at(info))
        await client.subscribe(inbox, cb=queue.came)
        return queue
    except BaseException:
        await client.close()
        raise


async def _ignore(_: Exception) -> None:
    """Errors are raised where they matter; the driver would print a traceback of each."""


def _made_at(info: Any) -> str:
    """Return when the stream was made, as a short text."""
    created = info.created
    seconds = created.timestamp() if isinstance(created, datetime) else datetime.fromisoformat(created).timestamp()
    return format(round(seconds * 1_000), "x")


class Queue:
    """A stream that is being read. One request for messages is under way at a time; the server answers as they come."""

    def __init__(
        self, client: Client, stream: JetStreamContext, name: str, durable: str, inbox: str, made_at: str
    ) -> None:
        self._client, self._stream, self._name, self._durable = client, stream, name, durable
        self._inbox, self._made_at = inbox, made_at
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{name}.{durable}"
        self._came: deque[Message] = deque()
        self._heard = asyncio.Event()
        self._asked, self._asked_at = 0, 0.0  # messages of the present request that have not come
        self._refused: str | None = None

    async def came(self, msg: Msg) -> None:
        """Hear of a message, or of the end of the request."""
        self._heard.set()
        if not msg.reply.startswith("$JS.ACK."):
            self._asked = 0
            status = (msg.headers or {}).get("Status", "")
            told = (msg.headers or {}).get("Description", "")
            if status not in _EXPECTED or "deleted" in told.lower():
                self._refused = f"the server refused a request for messages: {status} {told}"
            return
        self._asked = max(self._asked - 1, 0)
        about = msg.metadata
        found = {**(msg.headers or {}), "subject": msg.subject}
        id = f"{about.sequence.stream}-{self._made_at}"
        self._came.append(Message(msg.data, headers_of(found), id, about.num_delivered - 1, msg))

    async def take(self, most: int) -> Sequence[Message]:
        if not self._came:
            self._heard.clear()
            await self._ask(most)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TAKE_S):
                    await self._heard.wait()
        if self._client.is_closed:
            raise ConnectionError("the connection was closed")
        if self._refused is not None:
            raise ConnectionError(self._refused)
        return [self._came.popleft() for _ in range(min(most, len(self._came)))]

    async def _ask(self, most: int) -> None:
        now = time.monotonic()
        if self._asked and now < self._asked_at + _LOST_S:
            return
        self._asked, self._asked_at = most, now
        request = {"batch": most, "expires": round(_REQUEST_S * 1e9)}
        await self._client.publish(self._next, json.dumps(request).encode(), self._inbox)

    async def done(self, messages: Sequence[Message]) -> None:
        for each in messages:
            await each.handle.ack()

    async def give_back(self, messages: Sequence[Message]) -> None:
        for each in (*messages, *self._came):
            await each.handle.nak()
        self._came.clear()
        await self._client.flush()

    async def hold(self, messages: Sequence[Message]) -> None:
        for each in messages:
            await each.handle.in_progress()

    async def lag(self) -> int | None:
        return int((await self._stream.consumer_info(self._name, self._durable)).num_pending or 0)

    async def close(self) -> None:
        await self._client.close()
