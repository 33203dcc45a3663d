"""`sleep` and `timeout`: durable time. A run that waits holds no process, and the wait goes on after a crash."""

from __future__ import annotations

import asyncio
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from holdfast.errors import BadArguments
from holdfast.runtime import Called, Deadline, Sleep, current
from holdfast.words.durations import Duration, epoch_ms, milliseconds


def sleep(duration: Duration | None = None, *, until: datetime | None = None) -> Called[None]:
    """Wait this long, or until a moment: never shorter, and across restarts. The run leaves memory meanwhile.

    Raises:
        BadArguments: Neither a duration nor a moment was given, or both.

    Example:
        ```python
        await holdfast.sleep("2 days")
        await holdfast.sleep(until=holdfast.now() + timedelta(hours=1))
        ```
    """
    if (duration is None) == (until is None):
        raise BadArguments("sleep takes either a duration, sleep('2h'), or a moment, sleep(until=...)")
    runtime = current("sleep")
    if until is not None:
        return runtime.call(Sleep(None, epoch_ms(until)))
    assert duration is not None
    return runtime.call(Sleep(milliseconds(duration), None))


class timeout:  # noqa: N801 - a verb, used as `async with timeout("10m"):`
    """Bound the time of a block, counted across restarts.

    Raises:
        TimeoutError: The block took longer.

    Example:
        ```python
        async with holdfast.timeout("10m"):
            await search("otters")
        ```
    """

    def __init__(self, duration: Duration) -> None:
        self._delay_ms = milliseconds(duration)
        self._task: asyncio.Task[Any] | None = None
        self._deadline: Deadline | None = None
        self._expired = False
        self._cancelling = 0

    async def __aenter__(self) -> Self:
        runtime = current("timeout")
        if self._task is not None:
            raise BadArguments("a timeout can be entered once; make a new one")
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        self._deadline = runtime.deadline(self._delay_ms, self._expire)
        return self

    def _expire(self) -> None:
        assert self._task is not None
        self._expired = True
        self._task.cancel()

    @property
    def expired(self) -> bool:
        """Tell whether the deadline passed inside the block."""
        return self._expired

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._task is not None
        assert self._deadline is not None
        self._deadline.cancel()
        # Only our own cancellation becomes a TimeoutError; one from outside must go on as what it is.
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise self._deadline.blame(TimeoutError("the durable timeout has passed")) from error
