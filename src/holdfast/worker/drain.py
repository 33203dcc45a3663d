"""The drain of a worker that stops: how its runs leave it, and what is done with tasks that do not end.

Each run leaves by itself at its next safe point: one that waits or is between two steps at once, one with a running body
when that has ended, at the latest after the grace. So other workers go on with most of them long before this one is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from holdfast.engine.carried import Carried
from holdfast.engine.loop import RunTask
from holdfast.errors import StoreUnavailable
from holdfast.words.harmless import logger

_log = logger("holdfast")
_STRAYS_S: Final = 0.5


async def release_all(attempts: Iterable[Carried], grace_s: float) -> None:
    """Give these runs back, each when it can be; no step of theirs begins from now on."""
    leaving = list(attempts)
    for attempt in leaving:
        attempt.hold()
    releases = [attempt.release(grace_s) for attempt in leaving]
    for problem in await asyncio.gather(*releases, return_exceptions=True):
        if isinstance(problem, Exception) and not isinstance(problem, StoreUnavailable):
            _log.error("a run could not be given back: %r", problem)


async def end_strays(strays: set[asyncio.Task[Any]]) -> None:
    """Cancel tasks that outlived their run; tasks that ignore it are left to themselves the second time."""
    for last in (False, True):
        for stray in list(strays):
            if last and isinstance(stray, RunTask):
                stray.scope.tasks.give_up()
            stray.cancel()
        if strays:
            await asyncio.wait(strays, timeout=_STRAYS_S)
