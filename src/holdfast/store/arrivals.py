"""The part of the contract with a database that has to do with arrivals: an owner takes what came to its run."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

from holdfast.words.model import Event, Signal


class Taken(NamedTuple):
    """What is in the journal now, and whether the owner must look for more itself: of another kind, large, or many."""

    events: list[Event]
    more: bool


class ArrivalStore(Protocol):
    """Where arrivals lie, and from where they may go into the journal by themselves."""

    async def inbox(self, run: str, after: int, limit: int = 1000) -> list[Signal]:
        """What came to a run after a position, in the order in which it came."""
        ...

    def take(self, run: str, epoch: int, expected_seq: int, seen: int) -> asyncio.Future[Taken] | None:
        """Begin to take what came after `seen`, at this place of the journal; None where to read and append is as quick.

        Until it is known what was taken, the owner must not append. If its fence does not hold, nothing is taken.
        """
        ...
