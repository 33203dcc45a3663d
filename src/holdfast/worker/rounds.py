"""Rounds: work that a worker does again and again beside carrying runs, each kind in a loop of its own.

Look here to add one: a subclass of `Round` says what is done in a turn, and a row in `Worker.rounds` has it done.

The store knows what is due. A round does that and rests until the next is due, or until it hears of a change. As everywhere,
polling is the truth, and news only shorten the rest. Nothing ends a round but the worker: whatever goes wrong is logged and tried
again, because a worker that does not look any more would only seem to work.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from holdfast.errors import BadArguments, StoreUnavailable
from holdfast.store.changes import Changes
from holdfast.words.clock import Clock
from holdfast.words.harmless import logger
from holdfast.worker.agents import Served

_log = logger("holdfast")
_LONGEST_REST_S: Final = 5.0
_SHORTEST_REST_S: Final = 0.02
_AGAIN_S: Final = 1.0
_LACKING_S: Final = 30.0
AT_ONCE: Final = 0


class Round(abc.ABC):
    """One kind of work. `what` names it in the log, and `place` where; `news`: the store tells of a change under this name."""

    what: ClassVar[str]
    news: ClassVar[str]
    place = ""  # for example: " of cell 'a'"
    listens: ClassVar[bool] = False  # is it asked of every commit whether that concerns it?

    def __init__(self, clock: Clock) -> None:
        self._clock, self._look, self._resting = clock, asyncio.Event(), False

    @abc.abstractmethod
    async def turn(self) -> int | None:
        """Do what is due. Returns when the next is due, `AT_ONCE` if there may be more now, None if nobody knows."""

    def serve(self, served: Served) -> None:  # noqa: B027 - most rounds do not care
        """Take notice of the code that the worker has from now on. `BadArguments` if it cannot be used."""

    async def declare(self) -> None:  # noqa: B027 - the same
        """Tell the store what must be known there before the worker counts as begun."""

    def abandon(self) -> None:  # noqa: B027 - the same
        """Drop what is under way, as a killed process would."""

    def concerned(self, changes: Changes) -> bool:
        """Does a commit concern this, though it has no news of it? One that `listens` says when."""
        return False

    def wake(self) -> None:
        """Look now at what is due."""
        self._look.set()

    @property
    def asleep(self) -> bool:
        """Is nothing due that is known here?"""
        return self._resting and not self._look.is_set()

    async def keep(self) -> None:
        """Take turns for ever."""
        while True:
            try:
                self._look.clear()
                due = await self.turn()
                if due != AT_ONCE:
                    await self._rest(due)
            except StoreUnavailable as problem:
                _log.warning("%s%s could not be looked at; trying again: %s", self.what, self.place, problem)
                await asyncio.sleep(_AGAIN_S)
            except BadArguments as problem:  # a row of another worker needs what is not installed here
                _log.warning("this worker cannot begin all that is due: %s", problem)
                await asyncio.sleep(_LACKING_S)
            except Exception:
                _log.exception("%s%s could not be looked at; trying again", self.what, self.place)
                await asyncio.sleep(_AGAIN_S)

    async def _rest(self, due: int | None) -> None:
        """Sleep until the first is due, but not long, because clocks are set; nor not at all: another worker may be at it."""
        left_s = _LONGEST_REST_S if due is None else (due - self._clock.now()) / 1000
        self._resting = True
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(left_s, _SHORTEST_REST_S), _LONGEST_REST_S)):
                    await self._look.wait()
        finally:
            self._resting = False


def listener(rounds: Sequence[Round]) -> Callable[[Changes], None]:
    """Make what wakes the rounds that a commit concerns. One that changed much says only that: an empty name.

    One listener for all of them, because a store calls each listener after every commit, and nearly none concerns a round.
    """
    asked = [each for each in rounds if each.listens]
    known = frozenset(["", *(each.news for each in rounds)])

    def hear(changes: Changes) -> None:
        for each in asked:
            if each.concerned(changes):
                each.wake()
        if not known.isdisjoint(changes):
            for each in rounds:
                if "" in changes or each.news in changes:
                    each.wake()

    return hear
