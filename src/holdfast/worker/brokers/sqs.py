"""Amazon SQS. Credentials are found as botocore finds them: variables, files, or the role of the machine.

A call takes or acknowledges ten messages, so several are made at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import ClientError

from holdfast.words.queues import Address, Message, headers_of
from holdfast.worker.brokers.contract import CONNECT_S, TAKE_S, QueueMissing, Reading

_TEN: Final = 10  # messages of one call
_CALLS: Final = 8  # at once


async def connect(address: Address, reading: Reading) -> Queue:
    """Read a queue; the host of its URL is the region."""
    stack = contextlib.AsyncExitStack()
    client = await stack.enter_async_context(
        get_session().create_client(
            "sqs", region_name=address.hosts[0], endpoint_url=address.options.get("endpoint"),
            aws_access_key_id=address.user, aws_secret_access_key=address.password,
            config=AioConfig(connect_timeout=CONNECT_S, read_timeout=CONNECT_S + TAKE_S, retries={"max_attempts": 1}),
        )
    )  # fmt: skip
    try:
        try:
            url = (await client.get_queue_url(QueueName=address.queue))["QueueUrl"]
        except ClientError as problem:
            if "NonExistentQueue" not in str(problem) and "QueueDoesNotExist" not in str(problem):
                raise
            raise QueueMissing(
                f"there is no queue {address.queue!r} in {address.hosts[0]}; make it with `aws sqs create-queue`"
            ) from None
        return Queue(stack, client, url, max(round(reading.redeliver_s), 1))
    except BaseException:
        await stack.aclose()
        raise


def _tens(messages: Sequence[Message]) -> list[Sequence[Message]]:
    return [messages[start : start + _TEN] for start in range(0, len(messages), _TEN)]


class Queue:
    """A queue that is being read."""

    def __init__(self, stack: contextlib.AsyncExitStack, client: Any, url: str, redeliver_s: int) -> None:
        self._stack, self._client, self._url, self._redeliver_s = stack, client, url, redeliver_s

    async def take(self, most: int) -> Sequence[Message]:
        found = await self._receive(most, TAKE_S)
        if len(found) == _TEN < most:
            calls = min(-(-(most - _TEN) // _TEN), _CALLS)
            sizes = [min(_TEN, most - _TEN * (number + 1)) for number in range(calls)]
            for more in await asyncio.gather(*[self._receive(size, 0) for size in sizes]):
                found += more
        return found

    async def _receive(self, most: int, wait_s: float) -> list[Message]:
        answer = await self._client.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=min(most, _TEN), WaitTimeSeconds=round(wait_s),
            VisibilityTimeout=self._redeliver_s, MessageAttributeNames=["All"], AttributeNames=["All"],
        )  # fmt: skip
        return [self._message(each) for each in answer.get("Messages", ())]

    def _message(self, got: dict[str, Any]) -> Message:
        told = {name: value.get("StringValue", "") for name, value in got.get("MessageAttributes", {}).items()}
        before = int(got.get("Attributes", {}).get("ApproximateReceiveCount", 1)) - 1
        return Message(got["Body"].encode(), headers_of(told), got["MessageId"], before, got["ReceiptHandle"])

    async def done(self, messages: Sequence[Message]) -> None:
        await asyncio.gather(*[self._delete(ten) for ten in _tens(messages)])

    async def _delete(self, messages: Sequence[Message]) -> None:
        """Delete messages. What is not deleted now comes again, and is deleted then."""
        entries = [{"Id": str(number), "ReceiptHandle": each.handle} for number, each in enumerate(messages)]
        await self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)

    async def give_back(self, messages: Sequence[Message]) -> None:
        await self._visible_in(messages, 0)

    async def hold(self, messages: Sequence[Message]) -> None:
        await self._visible_in(messages, self._redeliver_s)

    async def _visible_in(self, messages: Sequence[Message], seconds: int) -> None:
        for ten in _tens(messages):
            entries = [
                {"Id": str(number), "ReceiptHandle": each.handle, "VisibilityTimeout": seconds}
                for number, each in enumerate(ten)
            ]
            await self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)

    async def lag(self) -> int | None:
        name = "ApproximateNumberOfMessages"
        answer = await self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=[name])
        return int(answer["Attributes"][name])

    async def close(self) -> None:
        await self._stack.aclose()
