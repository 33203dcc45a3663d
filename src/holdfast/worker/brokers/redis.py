"""Redis and Valkey: a consumer group of a stream. A worker is a consumer of the group.

Redis does not notice that a consumer is gone. So each worker takes over what others have had for too long without a sign, and holds
what it is at itself.

An entry has fields instead of a body. The field `body` is the body of the delivery, and the others are its headers; without that
field the body is a JSON object of all.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from holdfast.words.queues import Address, Message, headers_of
from holdfast.worker.brokers.contract import CONNECT_S, TAKE_S, Reading

_BODY: Final = b"body"  # of the fields of an entry
_GONE_MS: Final = 3_600_000  # after which a consumer that has nothing is forgotten


async def connect(address: Address, reading: Reading) -> Queue:
    """Read a stream; the group is made if it is not there, and gets all that the stream has."""
    host, _, port = address.hosts[0].rpartition(":")
    client = Redis(
        host=host.strip("[]"), port=int(port), db=int(address.options.get("db", "0")), username=address.user,
        password=address.password, ssl=address.encrypted, socket_connect_timeout=CONNECT_S,
        socket_timeout=CONNECT_S + TAKE_S, client_name=f"holdfast-{reading.worker}",
    )  # fmt: skip
    group = address.options.get("group", reading.group)
    try:
        try:
            await client.xgroup_create(address.queue, group, id="0", mkstream=True)
        except ResponseError as problem:
            if "BUSYGROUP" not in str(problem):
                raise
        return Queue(client, address.queue, group, reading)
    except BaseException:
        await client.aclose()
        raise


class Queue:
    """A stream that is being read."""

    def __init__(self, client: Redis, stream: str, group: str, reading: Reading) -> None:
        self._client, self._stream, self._group, self._worker = client, stream, group, reading.worker
        self._redeliver_ms = round(reading.redeliver_s * 1000)
        self._look_s = min(reading.redeliver_s / 2, 10.0)
        self._look_at, self._from = 0.0, "0-0"

    async def take(self, most: int) -> Sequence[Message]:
        if time.monotonic() >= self._look_at and (found := await self._orphans(most)):
            return found
        answer = await self._client.xreadgroup(
            self._group, self._worker, {self._stream: ">"}, count=most, block=round(TAKE_S * 1000)
        )
        rows = answer.values() if isinstance(answer, dict) else [entries for _, entries in answer or ()]
        return [self._message(id, fields, 0) for entries in rows for id, fields in _flat(entries)]

    async def _orphans(self, most: int) -> list[Message]:
        """Take over what a consumer has had for too long. What was deleted from the stream meanwhile is dropped by Redis."""
        before, entries = self._from, []
        answer = await self._client.xautoclaim(
            self._stream, self._group, self._worker, self._redeliver_ms, self._from, count=most
        )
        self._from, entries = answer[0], answer[1]
        if self._from in (b"0-0", "0-0", before):
            self._from, self._look_at = "0-0", time.monotonic() + self._look_s
            await self._forget_gone()
        if not entries:
            return []
        pending = await self._client.xpending_range(
            self._stream, self._group, entries[0][0], entries[-1][0], len(entries), self._worker
        )
        counts = {row["message_id"]: int(row["times_delivered"]) for row in pending}
        return [self._message(id, fields, counts.get(id, 2) - 1) for id, fields in entries if fields is not None]

    async def _forget_gone(self) -> None:
        for each in await self._client.xinfo_consumers(self._stream, self._group):
            if not each["pending"] and each["idle"] > _GONE_MS:
                await self._client.xgroup_delconsumer(self._stream, self._group, each["name"])

    def _message(self, id: Any, fields: Mapping[bytes, bytes], before: int) -> Message:
        texts = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}
        if _BODY in fields:
            del texts[_BODY.decode()]
            return Message(fields[_BODY], headers_of(texts), id.decode(), before, id)
        return Message(json.dumps(texts).encode(), {}, id.decode(), before, id)

    async def done(self, messages: Sequence[Message]) -> None:
        if messages:
            await self._client.xack(self._stream, self._group, *[each.handle for each in messages])

    async def give_back(self, messages: Sequence[Message]) -> None:
        """Make them look as if they had been forgotten for long enough: Redis has no other way."""
        if messages:
            await self._claim(messages, self._redeliver_ms + 1)

    async def hold(self, messages: Sequence[Message]) -> None:
        if messages:
            await self._claim(messages, 0)

    async def _claim(self, messages: Sequence[Message], idle_ms: int) -> None:
        await self._client.xclaim(
            self._stream, self._group, self._worker, 0, [each.handle for each in messages], idle=idle_ms, justid=True
        )

    async def lag(self) -> int | None:
        for each in await self._client.xinfo_groups(self._stream):
            if each["name"] == self._group.encode():
                lag = each.get("lag")  # since Redis 7
                return None if lag is None else int(lag)
        return None

    async def close(self) -> None:
        await self._client.aclose()


def _flat(entries: Any) -> list[Any]:
    """Read entries in the form of both protocols of Redis: with the third they come in one more list."""
    return list(entries[0]) if entries and isinstance(entries[0], list) else list(entries)
