"""The quarantine: a thread with an event loop of its own, in which agents' code is tried that may never give the loop back.

Look here for why a replay has an end whatever the code does. Code that never awaits keeps its loop, so nothing on that loop can
stop it; here it keeps one that nobody else needs. The caller's loop asks for a sign of life. When none comes for too long, the line
is looked up at which the code is, and an exception is raised there (`PyThreadState_SetAsyncExc`). Code that a C function keeps
(`time.sleep`, a read from a socket) or that swallows the exception is left behind: its thread is a daemon, which ends with the
process, and the next run is tried in another quarantine.

Code that keeps Python's own lock inside one C function keeps the caller's loop too, and is not found by this.

`os._exit` ends the tried code alone, in the quarantine's thread and in those of its loop (`asyncio.to_thread`). In a thread that
the code has started itself it ends the process, because nothing tells such a thread from one of the caller's. So it does in a
process that the code has forked, as it must.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

from holdfast.rehearsal.frames import Frame
from holdfast.values.failures import is_users

T = TypeVar("T")
_TAMPERED: Final = "the code has stopped its event loop, or cancelled tasks that are not its own"
_INTERRUPTED: Final = "the code has ended its event loop, as KeyboardInterrupt does"
_LOOK_S: Final = 0.25
_STOP_S: Final = 1.0  # for code to end that was told to
_TELL_S: Final = 0.05
_left: Final[
    list[Any]
] = []  # loops of code that was stopped in the middle: the garbage collector would run the rest of it


class Kept(Exception):
    """The code has kept its loop, or ended it: nothing more is to be had from it."""

    def __init__(self, what: str, line: str = "") -> None:
        super().__init__(what)
        self.line = line


class _Stop(KeyboardInterrupt):
    """Raised in code that keeps its loop. asyncio lets it through, and so ends the loop with it."""


class Quarantine:
    """One such thread. The loop that makes it watches it."""

    def __init__(self) -> None:
        self._home = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _loop, _context: None)  # what tried code loses is nobody's news
        self._loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix=f"{_name()}thread"))
        self._asked_at = self._turned_at = 0.0
        self._over, self._stopping, self._interrupted = threading.Event(), False, False
        self._gone = asyncio.Event()  # the same, for the caller's loop
        os._exit = _exit  # and for good: code that is left behind may call it when this is closed
        self._thread = threading.Thread(target=self._main, name=f"{_name()}loop", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> bool:
        """Can nothing more be tried here?"""
        return self._stopping or self._over.is_set()

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]], limit_s: float | None) -> T:
        """Run a coroutine there, and return what it returns.

        Raises:
            Kept: It has kept its loop for `limit_s`, and was stopped; or it has ended the loop.
        """
        future = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))
        self._asked_at = self._turned_at = 0.0
        look_s = _LOOK_S if limit_s is None else min(_LOOK_S, limit_s / 4)
        try:
            while True:
                await asyncio.wait([future], timeout=look_s)
                if future.cancelled():
                    await self.close()
                    raise Kept(_TAMPERED)
                if future.done():
                    return future.result()
                if self._over.is_set():
                    raise Kept(_INTERRUPTED if self._interrupted else _TAMPERED)
                if limit_s is not None and self._kept_s() >= limit_s:
                    line = place_in(self._thread)
                    await self._stop()
                    raise Kept(_told(limit_s, line), line)
        finally:
            future.cancel()

    def _kept_s(self) -> float:
        """Return for how long the loop has owed a sign; ask for the next one if it owes none."""
        now = time.monotonic()
        if self._turned_at < self._asked_at:
            return now - self._asked_at
        self._asked_at = now
        with contextlib.suppress(RuntimeError):  # the loop has just been closed, and the thread is about to say so
            self._loop.call_soon_threadsafe(self._turn)
        return 0.0

    def _turn(self) -> None:
        self._turned_at = time.monotonic()

    async def close(self) -> None:
        """End the thread; one that does not end is left behind."""
        if not self.lost:
            with contextlib.suppress(RuntimeError):  # the same
                self._loop.call_soon_threadsafe(self._loop.stop)
            await self._ended(_STOP_S)
        if not self._over.is_set():
            await self._stop()

    async def _ended(self, within_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._gone.wait()

    async def _stop(self) -> None:
        """Tell the code to end, again and again if it swallows that."""
        self._stopping = True
        _left.append(self._loop)
        until = time.monotonic() + _STOP_S
        while not self._over.is_set() and time.monotonic() < until:
            number, error = ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(_Stop)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(number, error)
            await self._ended(_TELL_S)

    # In its thread

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._tidy()
        except BaseException:  # noqa: BLE001 - ours, or code's own KeyboardInterrupt: nobody hears it here
            _left.append(self._loop)
            self._interrupted = True
        finally:
            self._over.set()
            with contextlib.suppress(RuntimeError):  # the caller's loop is closed
                self._home.call_soon_threadsafe(self._gone.set)

    def _tidy(self) -> None:
        """End what is left on the loop, as `asyncio.run` does, except threads: nothing waits for those."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=_STOP_S / 2))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class AtHome:
    """An object of the caller's loop, whose coroutine methods can be awaited in a quarantine."""

    def __init__(self, what: Any) -> None:
        self._what, self._home = what, asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._what, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(method(*arguments, **named), self._home))

        return call


def _told(limit_s: float, line: str) -> str:
    place = f" at {line}" if line else ""
    return (
        f"the code has kept the event loop for {limit_s:g} s{place}, and was stopped; put what computes or blocks there into a "
        "step that is a plain function"
    )


def place_in(thread: threading.Thread) -> str:
    """The line of the user's code that a thread is at, as file:line; empty if it is at none."""
    frame: FrameType | None = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - there is no other way to know
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else Frame("", "", frame.f_code.co_filename, frame.f_lineno).place


def _name() -> str:
    """Begin the names of this process's quarantines: a forked process has the thread that forked it, but not this name."""
    return f"holdfast-rehearsal-{os.getpid()}-"


def _exit(status: int) -> NoReturn:
    """Stand in for `os._exit`: tried code ends itself with it, and not the process that tries others too."""
    if threading.current_thread().name.startswith(_name()):
        raise SystemExit(f"os._exit({status!r})")
    _end_process(status)


_end_process: Final = os._exit
