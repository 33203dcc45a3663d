"""Mappings: users' code that says what is to be done about a delivery, as a worker calls it.

Look here when a mapping hangs, or when a worker maps no more for a trigger.

A plain function is called in a thread, because it may wait for something, and nothing can stop a thread. So these are threads of
its trigger alone: a mapping that hangs takes nothing from other triggers, nor from steps. One that takes longer than a minute is
given up, which fails its delivery, and its thread is left to itself. So is an async one that does not let itself be cancelled. Of a
trigger of which many were given up and have not returned, no more is begun here: another worker may do better, and what comes
meanwhile waits in the store or with its broker. The process does not wait for these threads when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from holdfast.values.text import cut, type_name
from holdfast.words.harmless import logger
from holdfast.words.people import writable
from holdfast.words.triggers import Delivery, TriggerSpec

_log = logger("holdfast")
_PACKAGE: Final = Path(__file__).parent.parent
_MAPPING_S: Final = 60.0  # for one mapping
_LET_GO_S: Final = 1.0  # for an async one to end once it was cancelled
_TOGETHER_S: Final = 0.05  # for mappings that are called one after the other
_MOST_THREADS: Final = 50  # of a trigger, that are waited for
_MOST_HUNG: Final = 64  # of a trigger, that were given up and have not returned


@dataclass(frozen=True, slots=True)
class Raised:
    """An error that a mapping raised, kept instead of what it would have returned."""

    error: Exception


def failing(error: BaseException) -> Exception:
    """Make what a mapping raised its failure: `sys.exit()` in a mapping ends the mapping, not the worker."""
    if isinstance(error, Exception):
        return error
    problem = RuntimeError(f"the mapping raised {type_name(type(error))}: {text_of(error)}")
    problem.__cause__ = error
    return problem


def text_of(error: BaseException) -> str:
    """Write down what an error says, as every database takes it. That is users' code too."""
    try:
        return writable(cut(str(error), 1_000))
    except BaseException as problem:
        return f"(its text cannot be told: {type_name(type(problem))})"


def told_of(error: Exception) -> str:
    """Say why a mapping failed, or why what it returned was refused."""
    text = text_of(error)
    if isinstance(error, TimeoutError) and not text:
        return (
            f"TimeoutError: the mapping took longer than {_MAPPING_S:g} s. Give what it waits for a timeout of its own"
        )
    return writable(f"{type(error).__name__ if is_ours(type(error)) else type_name(type(error))}: {text}")


def is_ours(kind: type) -> bool:
    """Is this an error of Holdfast, whose text says all there is to say?"""
    return kind.__module__.partition(".")[0] == "holdfast"


def trace_of(error: Exception) -> tuple[type[Exception], Exception, TracebackType | None] | None:
    """Give the log what the user's code did, without the frames that led there; nothing where that would tell nothing."""
    if is_ours(type(error)):
        return None
    trace = error.__traceback__
    while trace is not None and Path(trace.tb_frame.f_code.co_filename).is_relative_to(_PACKAGE):
        trace = trace.tb_next
    return None if trace is None else (type(error), error, trace)


class Mapper:
    """Calls the mappings of one worker."""

    def __init__(self) -> None:
        self._calls: dict[str, _Calls] = {}

    def hung(self, trigger: str) -> int:
        """Count the calls of the mapping of a trigger that were given up and have not returned."""
        found = self._calls.get(trigger)
        return 0 if found is None else found.hung

    def hangs(self, trigger: str) -> bool:
        """Are these so many that no more should be begun here?"""
        return self.hung(trigger) >= _MOST_HUNG

    async def one(self, spec: TriggerSpec, delivery: Delivery) -> Any:
        """Map one delivery."""
        if inspect.iscoroutinefunction(spec.fn):
            return await self.awaited(spec, spec.fn(delivery))
        (returned,) = await self.some(spec, [delivery])
        if isinstance(returned, Raised):
            raise returned.error
        return await self.awaited(spec, returned) if inspect.isawaitable(returned) else returned

    async def awaited(self, spec: TriggerSpec, returned: Awaitable[Any]) -> Any:
        """Wait for a mapping that is async, but not for ever."""
        return await self._of(spec).awaited(returned)

    async def some(self, spec: TriggerSpec, deliveries: Sequence[Delivery]) -> list[Any]:
        """Map the first of these by a plain function, one after the other: as many as take no time, and one at least.

        To go into a thread and back takes longer than most mappings. One that hangs is the last of those returned.
        """
        return await self._of(spec).some(spec, deliveries)

    def _of(self, spec: TriggerSpec) -> _Calls:
        return self._calls.setdefault(spec.name, _Calls(spec.name))


async def _caught(returned: Awaitable[Any]) -> Any:
    """Await a mapping, in a task of its own: what ends other programs ends the mapping alone."""
    try:
        return await returned
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # ours, not the mapping's own
        raise failing(error) from error


class _Calls:
    """Calls of the mapping of one trigger: in threads, or in tasks."""

    def __init__(self, trigger: str) -> None:
        self._trigger, self._room, self.hung = trigger, asyncio.Semaphore(_MOST_THREADS), 0

    async def some(self, spec: TriggerSpec, deliveries: Sequence[Delivery]) -> list[Any]:
        async with self._room:  # the time of a mapping counts from when a thread has it
            return await self._mapped(spec, deliveries)

    async def _mapped(self, spec: TriggerSpec, deliveries: Sequence[Delivery]) -> list[Any]:
        loop = asyncio.get_running_loop()
        found: list[Any] = []
        ended: asyncio.Future[None] = loop.create_future()
        left = False

        def work() -> None:
            began = time.monotonic()
            for each in deliveries:
                try:
                    found.append(contextvars.copy_context().run(spec.fn, each))
                except BaseException as error:  # a thread hears no Ctrl-C: it is the mapping's own
                    found.append(Raised(failing(error)))
                if left or time.monotonic() > began + _TOGETHER_S:
                    break
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there any more
                loop.call_soon_threadsafe(over)

        def over() -> None:
            if left:
                self._returned()
            else:
                ended.set_result(None)

        try:
            threading.Thread(target=work, name=f"holdfast-{self._trigger}", daemon=True).start()
        except RuntimeError as problem:  # there are too many
            return [Raised(problem)]
        try:
            await asyncio.wait([ended], timeout=_MAPPING_S)
            return found if ended.done() else [*found, Raised(TimeoutError())][: len(deliveries)]
        finally:
            if not ended.done():
                left = True
                self._given_up()

    async def awaited(self, returned: Awaitable[Any]) -> Any:
        task = asyncio.get_running_loop().create_task(_caught(returned))
        try:
            await asyncio.wait([task], timeout=_MAPPING_S)
            if task.done():
                return task.result()
            task.cancel()
            await asyncio.wait([task], timeout=_LET_GO_S)
            if not task.done():
                self._given_up()
                task.add_done_callback(lambda _: self._returned())
            raise TimeoutError
        finally:
            task.add_done_callback(_seen)
            task.cancel()

    def _given_up(self) -> None:
        self.hung += 1
        if self.hung == _MOST_HUNG:
            _log.error(
                "%d calls of the function of trigger %r have not returned within %g s: this worker calls it no more before "
                "some do, and leaves what comes to others. Give what it waits for a timeout, and start the worker again",
                self.hung, self._trigger, _MAPPING_S,
            )  # fmt: skip

    def _returned(self) -> None:
        self.hung -= 1
        if self.hung == _MOST_HUNG - 1:
            _log.warning("the function of trigger %r is called again by this worker", self._trigger)


def _seen(task: asyncio.Task[Any]) -> None:
    """Take notice of how a mapping ended for which nobody waits any more."""
    if not task.cancelled():
        task.exception()
