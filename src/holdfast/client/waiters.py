"""Who in this process waits for news of runs.

News is only a hint: it may be lost on its way, for example with the process that had it. So all who wait look again by
themselves, now and then.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

from holdfast.store.contract import Changes, News, looks_again
from holdfast.words.flag import Flag

_LOOK_AGAIN_S: Final = 5.0


class Ear(Flag):
    """Goes up whenever there is news of its run (or, for "", of any), for as long as the block around it lasts."""

    __slots__ = ("_hearing", "least", "run")

    def __init__(self, hearing: Hearing, run: str, least: News) -> None:
        super().__init__()
        self._hearing, self.run, self.least = hearing, run, least

    def __enter__(self) -> Self:
        self._hearing.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._hearing.remove(self)
        looks_again.set(False)


class Hearing:
    """The ears of one client."""

    def __init__(self) -> None:
        self._ears: dict[str, list[Ear]] = {}
        self._waiting = 0
        self._again: asyncio.TimerHandle | None = None  # one for all, while anybody waits

    def add(self, ear: Ear) -> None:
        self._ears.setdefault(ear.run, []).append(ear)

    def remove(self, ear: Ear) -> None:
        self._ears[ear.run].remove(ear)
        if not self._ears[ear.run]:
            del self._ears[ear.run]

    def hear(self, changes: Changes) -> None:
        """There is news."""
        ears = self._ears
        if not ears:
            return
        for run, news in changes.items():
            for ear in ears.get(run, ()):
                if news >= ear.least:
                    ear.set()
        if "" in ears or "" in changes:
            self._hear_of_any(changes)

    def _hear_of_any(self, changes: Changes) -> None:
        most, of_all = max(changes.values()), changes.get("")
        for run, ears in self._ears.items():
            for ear in ears:
                news = most if not run else of_all
                if news is not None and news >= ear.least:
                    ear.set()

    def look_again(self) -> None:
        """Whatever may have been missed: all look for themselves."""
        for ears in self._ears.values():
            for ear in ears:
                ear.set()

    async def wait(self, ear: Ear) -> None:
        """Until there is news, or it is time to look again."""
        self._waiting += 1
        if self._again is None:
            self._again = asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._is_time)
        looks_again.set(True)
        try:
            await ear.wait()
        finally:
            self._waiting -= 1
            if not self._waiting and self._again is not None:
                self._again.cancel()
                self._again = None

    def _is_time(self) -> None:
        self._again = asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._is_time)
        self.look_again()
