"""Waiters in this process: woken when a run changes, and every few seconds in case the news was lost.

News is only a hint: it may be lost on its way, for example with the process that had it.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

from holdfast.store.changes import Changes, News
from holdfast.store.contract import looks_again
from holdfast.words.flag import Flag

_LOOK_AGAIN_S: Final = 5.0


class Waiter(Flag):
    """Goes up whenever there is news of its run (or, for "", of any), for as long as the block around it lasts."""

    __slots__ = ("_among", "least", "run")

    def __init__(self, waiters: Waiters, run: str, least: News) -> None:
        super().__init__()
        self._among, self.run, self.least = waiters, run, least

    def __enter__(self) -> Self:
        self._among.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._among.remove(self)
        looks_again.set(False)


class Waiters:
    """The waiters of one client."""

    def __init__(self) -> None:
        self._waiting_for: dict[str, list[Waiter]] = {}
        self._waiting = 0
        self._again: asyncio.TimerHandle | None = None  # one for all, while anybody waits

    def add(self, waiter: Waiter) -> None:
        self._waiting_for.setdefault(waiter.run, []).append(waiter)

    def remove(self, waiter: Waiter) -> None:
        self._waiting_for[waiter.run].remove(waiter)
        if not self._waiting_for[waiter.run]:
            del self._waiting_for[waiter.run]

    def wake(self, changes: Changes) -> None:
        """Wake the waiters that this news is for."""
        waiters = self._waiting_for
        if not waiters:
            return
        for run, news in changes.items():
            for waiter in waiters.get(run, ()):
                if news >= waiter.least:
                    waiter.set()
        if "" in waiters or "" in changes:
            self._wake_any(changes)

    def _wake_any(self, changes: Changes) -> None:
        most, of_all = max(changes.values()), changes.get("")
        for run, waiters in self._waiting_for.items():
            for waiter in waiters:
                news = most if not run else of_all
                if news is not None and news >= waiter.least:
                    waiter.set()

    def look_again(self) -> None:
        """Wake all waiters: each looks for itself what may have been missed."""
        for waiters in self._waiting_for.values():
            for waiter in waiters:
                waiter.set()

    async def wait(self, waiter: Waiter) -> None:
        """Wait until there is news, or it is time to look again."""
        self._waiting += 1
        if self._again is None:
            self._again = asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._is_time)
        looks_again.set(True)
        try:
            await waiter.wait()
        finally:
            self._waiting -= 1
            if not self._waiting and self._again is not None:
                self._again.cancel()
                self._again = None

    def _is_time(self) -> None:
        self._again = asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._is_time)
        self.look_again()
