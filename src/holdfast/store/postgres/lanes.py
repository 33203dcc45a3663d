"""Two connections that write, so that the database works on one batch while this process works on the answers of another.

What one run writes stays in one lane, and so in order. A process in which little happens uses the first lane only: the
second connects when two runs that write fall into different lanes.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from holdfast.store.appends import QueuedAppend
from holdfast.store.changes import News
from holdfast.store.operations import Faults, Operation, Result
from holdfast.store.postgres.connection import Connection
from holdfast.store.postgres.writer import Writer
from holdfast.words.clock import Clock

_LANES: Final = 2


class Lanes:
    """The writers of one store."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], clock: Clock, worker: str, *,
                 deliver: Callable[[Sequence[Result], dict[str, News]], None],
                 died: Callable[[], None], faults: Faults | None) -> None:  # fmt: skip
        # A test that breaks things between two commits wants them one after the other.
        lanes = _LANES if faults is None else 1
        self._lanes = [Writer(connect, clock, worker, deliver=deliver, died=died, faults=faults) for _ in range(lanes)]
        self._first = self._lanes[0]
        self.hook, self._opened = self._first.hook, False

    def open(self, db: Connection) -> None:
        """Begin to write."""
        self._opened = True
        self._first.open(db)
        for lane in self._lanes[1:]:
            lane.open(None)

    def submit(self, batch: Sequence[Operation]) -> None:
        """Have this written; what one run appends, after all that it appended before."""
        if len(self._lanes) == 1:
            self._first.submit(batch)
            return
        shares: list[list[Operation]] = [[] for _ in self._lanes]
        for one in batch:
            number = zlib.crc32(one.append.run.encode()) % len(shares) if type(one) is QueuedAppend else 0
            shares[number].append(one)
        for lane, share in zip(self._lanes, shares, strict=True):
            if share:
                lane.submit(share)

    @property
    def idle(self) -> bool:
        """Is nothing on its way?"""
        return not any(lane.busy for lane in self._lanes)

    async def merge(self) -> None:
        """Write what the other lanes have, then use the first one only: what comes now comes after all that."""
        others, self._lanes = self._lanes[1:], [self._first]
        for lane in others:
            await lane.stop()

    async def stop(self) -> None:
        """Write what is queued, then end."""
        await self.merge()
        await self._first.stop()

    def kill(self) -> None:
        """End without writing what is queued."""
        for lane in self._lanes if self._opened else ():
            if not lane.ended:
                lane.kill()

    def observe(self, commit: Callable[[int, float], None]) -> None:
        """Tell of every commit."""
        for lane in self._lanes:
            lane.observe = commit

    @property
    def ended(self) -> bool:
        return any(lane.ended for lane in self._lanes)

    @property
    def trouble(self) -> BaseException | None:
        return next((lane.trouble for lane in self._lanes if lane.trouble is not None), None)
