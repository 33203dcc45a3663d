"""The contract of an adapter: what a worker asks of a broker. Look here to add one.

An adapter is a module with `connect`, and an entry of `BROKERS` in words/queues.py. It keeps no state of its own that matters: what
is not acknowledged when its connection ends is given again by the broker, to this worker or to another.

Each method raises whatever the broker's package raises. The worker then closes the connection, waits and makes a new one. The suite
in tests/worker/brokers holds for every adapter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.words.queues import Address, Message

TAKE_S: Final = 1.0  # that `take` waits for a first message
CONNECT_S: Final = 10.0


class QueueMissing(Exception):
    """There is no such queue, and it is not ours to make one. The text says how to."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Terms on which a queue is read: the name that all workers of a trigger share, and that of this worker among them."""

    group: str
    worker: str
    in_flight: int
    redeliver_s: float  # after which the broker gives a message to another worker, unless it is held


class Connection(Protocol):
    """A queue that is being read."""

    async def take(self, most: int) -> Sequence[Message]:
        """Take messages, up to so many; none if none comes for a while. Does not wait for more than the first."""
        ...

    async def done(self, messages: Sequence[Message]) -> None:
        """Acknowledge messages: the broker does not give them again."""
        ...

    async def give_back(self, messages: Sequence[Message]) -> None:
        """Let another worker have messages at once."""
        ...

    async def hold(self, messages: Sequence[Message]) -> None:
        """Keep messages longer that this worker is still at."""
        ...

    async def lag(self) -> int | None:
        """Count messages that no worker has taken yet; None if the broker does not tell."""
        ...

    async def close(self) -> None:
        """End the connection."""
        ...


class Connect(Protocol):
    """The function `connect` of an adapter. `QueueMissing` if there is no such queue."""

    async def __call__(self, address: Address, reading: Reading) -> Connection: ...
