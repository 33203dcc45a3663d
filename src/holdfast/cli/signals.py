"""Ctrl-C and SIGTERM. The first asks to stop at a safe point, the second ends the process at once.

When the grace is over and what cannot be stopped still runs (a thread, a loop that hangs), the process ends all the same:
its runs are then taken over as those of a killed one.

The handler is Python's own and not the loop's: it must be heard also while the user's code keeps the loop busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, Self

from holdfast.cli.view.console import INTERRUPTED

_GIVING_BACK_S: Final = 3.0  # after the grace, for what is given back then
_ONE_PRESS_S: Final = 0.2  # a launcher that forwards signals delivers one press twice


class Stop:
    """Asked to stop? `asked` is set by the first signal; `last_words` is called before the second one ends it all.

    So does the end of the grace, a little later: with `late_code`.
    """

    def __init__(self, last_words: Callable[[], None], *, grace_s: float = 0.0, late_code: int = INTERRUPTED) -> None:
        self.asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._last_words = last_words
        self._first_at: float | None = None
        self._ending = False
        self._late = threading.Timer(grace_s + _GIVING_BACK_S, self._end, [late_code])
        self._late.daemon = True
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._late.cancel()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now
            self._loop.call_soon_threadsafe(self.asked.set)
            self._late.start()
        elif now - self._first_at > _ONE_PRESS_S:
            self._end(INTERRUPTED)

    def _end(self, code: int) -> None:
        if self._ending:
            return  # a third one must not break into the last words
        self._ending = True
        try:
            self._last_words()
        finally:  # they fail when the signal came in the middle of another print
            leave(code)


def leave(code: int) -> None:
    """End the process now, whatever its threads do."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def leave_if_held(code: int) -> None:
    """End the process now if a step's thread would keep it: what it did is not recorded any more."""
    others = [each for each in threading.enumerate() if each is not threading.main_thread() and not each.daemon]
    if any(each.name.startswith("holdfast-step") for each in others):
        leave(code)


async def first(stop: Stop, heard: asyncio.Event, timeout_s: float) -> bool:
    """Wait for a change, a stop or the time; True when asked to stop."""
    waiting = [asyncio.ensure_future(event.wait()) for event in (stop.asked, heard)]
    try:
        await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
    return stop.asked.is_set()
