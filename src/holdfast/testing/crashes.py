"""`crash_everywhere`: the same test again and again, with a crash at each place where one could come.

Each commit of the journal is two places: before it (the effect happened, its record is lost) and after it (the record is
there, nobody was told). The first pass has no crash and counts the commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from holdfast.declaring import Agent
from holdfast.store.operations import Crash
from holdfast.testing.kit import TestClient
from holdfast.testing.kit import open as open_test
from holdfast.worker.settings import Settings


class CrashAt:
    """Crashes once, before or after the n-th commit."""

    def __init__(self, commit: int | None, after: bool) -> None:
        self._commit, self._after = commit, after
        self.commits = 0
        self.crashed: Callable[[], object] | None = None
        self.done = False

    def before_commit(self, appends: int) -> None:
        if self._commit == self.commits and not self._after and not self.done:
            self._crash()

    def after_commit(self, appends: int) -> None:
        commit, self.commits = self.commits, self.commits + 1
        if self._commit == commit and self._after and not self.done:
            self._crash()

    def _crash(self) -> None:
        self.done = True
        if self.crashed is not None:
            self.crashed()
        raise Crash


async def crash_everywhere(
    *,
    agents: Iterable[Agent[..., Any] | ModuleType],
    replace: Mapping[Any, Callable[..., Any]] | None = None,
    park: bool = True,
    settings: Settings | None = None,
) -> AsyncIterator[TestClient]:
    """The body of the loop once without a crash, then once for each commit with a crash before it, and after it.

    What the body awaits goes on by itself after the crash, in a store that was opened anew; so the body is written as if
    nothing happened, and asserts what must hold nevertheless.
    """
    agents = list(agents)
    total, place = 0, 0
    while True:
        commit, after = (None, False) if place == 0 else ((place - 1) // 2, place % 2 == 0)
        faults = CrashAt(commit, after)
        async with open_test(agents=agents, replace=replace, park=park, settings=settings, faults=faults) as hf:
            faults.crashed = _restart(hf)
            yield hf
        if place == 0:
            total = faults.commits
        place += 1
        if place > 2 * total:
            return


def _restart(hf: TestClient) -> Callable[[], object]:
    """Called in the writer's thread at the moment of the crash: have the client opened anew."""
    loop = asyncio.get_running_loop()
    restarts: set[asyncio.Task[None]] = set()

    def begin() -> None:
        task = loop.create_task(hf.crash())
        restarts.add(task)
        task.add_done_callback(restarts.discard)

    return lambda: loop.call_soon_threadsafe(begin)
