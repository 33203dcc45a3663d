"""The client for plain code: Flask, Django, scripts, notebooks. `holdfast.sync.open` is `holdfast.open` without `await`.

Every class here is made from the async one of its name (bridge.py). What type checkers see of them is sync.pyi, which a test
makes from the same classes.
"""

from __future__ import annotations

from typing import Any, Self

from holdfast.client import bridge
from holdfast.client.client import Client as AsyncClient
from holdfast.client.conversations import Transcript as AsyncTranscript
from holdfast.client.history import MessageInfo as AsyncMessageInfo
from holdfast.client.history import Snapshot as AsyncSnapshot
from holdfast.client.history import State as AsyncState
from holdfast.client.history import StepInfo as AsyncStepInfo
from holdfast.client.notifications import NotificationHandle as AsyncNotificationHandle
from holdfast.client.run import Receipt as AsyncReceipt
from holdfast.client.run import Run as AsyncRun
from holdfast.client.schedules import ScheduleHandle as AsyncScheduleHandle

__all__ = [
    "Client",
    "MessageInfo",
    "NotificationHandle",
    "Receipt",
    "Run",
    "ScheduleHandle",
    "Snapshot",
    "State",
    "StepInfo",
    "Transcript",
    "open",
]

Run = bridge.mirror(AsyncRun)
Receipt = bridge.mirror(AsyncReceipt)
NotificationHandle = bridge.mirror(AsyncNotificationHandle)
ScheduleHandle = bridge.mirror(AsyncScheduleHandle)
Transcript = bridge.mirror(AsyncTranscript)
StepInfo = bridge.mirror(AsyncStepInfo)
State = bridge.mirror(AsyncState)
MessageInfo = bridge.mirror(AsyncMessageInfo)
Snapshot = bridge.mirror(AsyncSnapshot)


class _Closing(bridge.Mirrored):
    """The block of a client: its async twin has `async with`."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the worker at a safe point, if there is one, and let go of the store. Done by itself when the program ends."""
        self._bridge.close()


Client = bridge.mirror(AsyncClient, bases=(_Closing,))


def open(*args: Any, **options: Any) -> Any:
    """Open a store for plain code, at once. With agents there is a worker in the background.

    The arguments are those of `holdfast.open`.

    Example:
        ```python
        with holdfast.sync.open("sqlite:runs.db", agents=[research]) as hf:
            assert hf.run(research, "otters") == "published"
        ```
    """
    inner, own = AsyncClient(*args, **options), bridge.Bridge()

    async def end() -> None:
        await inner.__aexit__(None, None, None)

    own.start(inner.__aenter__, end)
    return Client(own, inner)
