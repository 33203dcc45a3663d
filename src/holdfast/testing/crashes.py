"""`crash_everywhere`: the same test again and again, with a crash at each place where one could come.

Each write to the journal is two places: before its commit (the effect happened, its record is lost) and after it (the record
is there, nobody was told). The first pass has no crash and learns the writes. They are known by name (`step.completed
publish#0`, `claim`, the second `waiting`) and not by number: where several runs are at work, their commits come in another
order each time, and a number would miss some of them. A write that only a later pass shows is a place too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from holdfast.declare import Agent
from holdfast.store.operations import Crash
from holdfast.testing.kit import TestClient
from holdfast.testing.kit import open as open_test
from holdfast.worker.settings import Settings


class CrashAt:
    """Crashes once, before or after the commit of a write."""

    def __init__(self, write: str | None, after: bool) -> None:
        self._write, self._after = write, after
        self._times: Counter[str] = Counter()
        self._written: list[str] = []
        self.commits: list[str] = []  # the first write of each, until the crash
        self.crashed: Callable[[], object] | None = None
        self.done = False

    def before_commit(self, writes: list[str]) -> None:
        self._times.update(writes)
        self._written = [f"{write} {self._times[write]}" for write in writes]
        if not self.done:
            self.commits.append(self._written[0])
            self._crash_if(not self._after)

    def after_commit(self, writes: list[str]) -> None:
        if not self.done:
            self._crash_if(self._after)

    def _crash_if(self, now: bool) -> None:
        if now and self._write in self._written:
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
    """Run the body of a loop once without a crash, then once for each write with a crash before its commit, and after it.

    What the body awaits goes on by itself after the crash, in a store that was opened anew. So the body is written as if
    nothing happened, and asserts what must hold nevertheless.

    Example:
        ```python
        async def test() -> None:
            async for hf in holdfast.testing.crash_everywhere(agents=[research]):
                assert await hf.run(research, "otters") == "published"


        asyncio.run(test())
        ```
    """
    agents = list(agents)
    places: dict[tuple[str | None, bool], None] = {(None, False): None}
    done = 0
    while done < len(places):
        faults = CrashAt(*list(places)[done])
        async with open_test(agents=agents, replace=replace, park=park, settings=settings, faults=faults) as hf:
            faults.crashed = _restart(hf)
            yield hf
        places.update(dict.fromkeys((write, after) for write in faults.commits for after in (False, True)))
        done += 1


def _restart(hf: TestClient) -> Callable[[], object]:
    """Called in the writer's thread at the moment of the crash: have the client opened anew."""
    loop = asyncio.get_running_loop()
    restarts: set[asyncio.Task[None]] = set()

    def begin() -> None:
        task = loop.create_task(hf.crash())
        restarts.add(task)
        task.add_done_callback(restarts.discard)

    return lambda: loop.call_soon_threadsafe(begin)
