"""asyncio, as a run sees it: numbered tasks, counted steps, recorded timers, and nothing foreign unnoticed.

`install` puts a task factory and a few instance methods on the loop. Each looks at the context variable first, and at the
running task or callback if that is missing, and does nothing unless the caller is agent code, so everything else on the loop
is as it was.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import os
import sys
from collections.abc import Callable, Coroutine
from types import BuiltinFunctionType, FrameType
from typing import TYPE_CHECKING, Any

from holdfast.engine.generators import install_generators
from holdfast.errors import Suspended
from holdfast.runtime import UNSET, Placed, _here, here

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution
    from holdfast.engine.identity import Scope

# What an agent may call on the loop to wait for something that no journal records.
_FOREIGN = (
    "run_in_executor", "create_connection", "create_unix_connection", "create_datagram_endpoint", "create_server",
    "create_unix_server", "subprocess_exec", "subprocess_shell", "connect_read_pipe", "connect_write_pipe", "start_tls",
    "sock_connect", "sock_accept", "sock_recv", "sock_recv_into", "sock_recvfrom", "sock_sendall", "sock_sendto",
    "sock_sendfile", "sendfile", "getaddrinfo", "getnameinfo", "add_reader", "add_writer",
)  # fmt: skip
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_ASYNCIO = os.path.dirname(os.path.abspath(asyncio.__file__)) + os.sep


REFUSALS = 100


class Never(asyncio.Future[Any]):
    """A future that nobody resolves: what code waits for that would not end by itself."""


def never(loop: asyncio.AbstractEventLoop) -> Never:
    """What a coroutine yields to sleep for ever."""
    future = Never(loop=loop)
    future._asyncio_future_blocking = True
    return future


class GateFuture(asyncio.Future[Any]):
    """A future that only the gate resolves; a task that waits for one is accounted for."""


class RunTask(asyncio.Task[Any]):
    """A task of a run. It hashes by order of creation, so that sets of tasks iterate the same way on every replay."""

    def __init__(self, coro: Stirring, *, number: int, scope: Scope, **kw: Any) -> None:
        self._number = number  # before Task.__init__, which puts the task into a set
        self.scope, self.stirring = scope, coro
        self.tidies = False  # it closes a generator, and is let finish when the agent has returned
        super().__init__(coro, **kw)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class Stirring(Coroutine[Any, Any, Any]):
    """A task's coroutine whose every step counts as activity of its run; unwinds when the run leaves memory."""

    __slots__ = ("__name__", "__qualname__", "_coro", "_execution", "_place", "_resumed", "asleep", "scope")

    def __init__(self, coro: Any, execution: Execution, scope: Scope, *, shared: bool = False) -> None:
        self._coro, self._execution, self.scope = coro, execution, scope
        self._place: Any = scope if shared else None  # a context that others use too has it only while this task runs
        self._resumed = 1 if execution.closing else 0  # how often since the run began to leave memory
        self.asleep = False  # for ever
        self.__name__ = getattr(coro, "__name__", type(coro).__name__)
        self.__qualname__ = getattr(coro, "__qualname__", self.__name__)

    def send(self, value: Any, /) -> Any:
        return self._step(self._coro.send, value) if self._place is None else self._placed(self._coro.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._coro.throw, *error) if self._place is None else self._placed(self._coro.throw, *error)

    def _placed(self, resume: Callable[..., Any], *what: Any) -> Any:
        token, lent = _here.set(self._place), _lent.set(True)
        try:
            return self._step(resume, *what)
        finally:
            self._place = _here.get()
            _here.reset(token)
            _lent.reset(lent)

    def _step(self, resume: Callable[..., Any], *what: Any) -> Any:
        execution = self._execution
        execution.gate.activity += 1
        if execution.closing:
            return self._unwind(resume, *what)
        if execution.resting:
            if execution.settled:
                execution.stirred_by_foreign(self.scope, self._coro)
            execution.resting = False
        waits_for = left = None
        try:
            waits_for = resume(*what)
        except Suspended:  # the run began to leave while this very step of it ran
            left = asyncio.CancelledError()
        except SystemExit as error:  # ends the run, not the worker with all its runs
            raise RuntimeError(f"the agent raised SystemExit: {error}") from error
        except Exception as error:
            if not execution.closing or isinstance(error, StopIteration):
                raise
            left = asyncio.CancelledError()  # what it met on its way out matters to nobody
        if left is not None:
            raise left
        if waits_for is not None and not isinstance(waits_for, GateFuture):
            self.asleep = isinstance(waits_for, Never)
            execution.gate.kick()  # what it waits for comes from the run itself, or from nowhere: find out
        return waits_for

    def _unwind(self, resume: Callable[..., Any], *what: Any) -> Any:
        """Throw `Suspended` in once; `finally` blocks may then await local things, and how it ends matters to nobody.

        Code that swallows everything and goes on is put to sleep for ever after REFUSALS turns: it must not spin the
        loop. A cancellation (the worker stops) ends the task even then.
        """
        if (self.asleep or self._execution.given_up) and resume != self._coro.send:
            _leak(self._coro)
            raise asyncio.CancelledError
        self._resumed += 1
        if self._resumed > REFUSALS:
            self.asleep = True
            return never(self._execution.loop)
        try:
            waits_for = self._coro.throw(Suspended()) if self._resumed == 1 else resume(*what)
        except (StopIteration, KeyboardInterrupt):
            raise
        except BaseException:
            pass  # and a context of what is raised below would keep all frames of the agent
        else:
            self.asleep = isinstance(waits_for, Never)
            return waits_for
        raise asyncio.CancelledError  # a cancelled task is not reported as lost

    def close(self) -> None:
        self._coro.close()

    def __await__(self) -> Any:
        return self._coro.__await__()

    def __getattr__(self, name: str) -> Any:  # cr_frame, cr_await: for tracebacks and debuggers
        return getattr(self._coro, name)


def _leak(coro: Any) -> None:
    """Keep a coroutine that will not end for as long as the process lives.

    To collect it would be to resume it, outside its run, where its loop around everything would never end.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coro))


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Make the loop know about runs. Safe to call again; chained to a task factory that was there before."""
    inner = loop.get_task_factory()
    if getattr(inner, "knows_runs", False):
        return

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **kw: Any) -> Any:
        context: contextvars.Context | None = kw.pop("context", None)
        place: Any = here()
        if not _is_scope(place) and context is not None:
            place = context.get(_here)
        if _is_scope(place):
            return place.execution.adopt(place, coro, context, **kw)
        if context is not None:
            kw["context"] = context
        return inner(loop, coro, **kw) if inner is not None else asyncio.Task(coro, loop=loop, **kw)

    factory.knows_runs, factory.inner = True, inner  # type: ignore[attr-defined]
    loop.set_task_factory(factory)
    _install_time(loop)
    install_generators(loop)
    _install_order(loop)
    for name in _FOREIGN:
        if hasattr(loop, name):
            setattr(loop, name, _watched(name, getattr(loop, name)))


def task_of_ours(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, None], context: contextvars.Context
) -> asyncio.Task[None]:
    """A task that belongs to no run, though it may be the agent's own task that we are called in."""
    if getattr(loop.get_task_factory(), "inner", loop) is None:  # as nearly always: then nobody need be asked
        return asyncio.Task(coro, loop=loop, context=context)
    with Placed(None):
        return loop.create_task(coro, context=context)


_WAKES = ("task_wakeup", "TaskWakeupMethWrapper")
_lent: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "holdfast.lent", default=False
)  # a run, to a context of others


def _install_order(loop: Any) -> None:
    """Count what agent code has the loop call: a run has not settled while a callback of its own is on its way.

    asyncio carries every result by `call_soon`, one hop for each future between a call and its task, and so do libraries.
    Each hop runs in the context of whoever asked for it, which says whose it is; in a context that knows of no run, it is
    that of the code that asks. Steps of tasks are counted when they happen.
    """

    def counted(schedule: Callable[..., Any]) -> Callable[..., Any]:
        def run_call_soon(callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
            place: Any = _here.get(UNSET) if context is None else context.get(_here, UNSET)
            if place is None or _steps_a_task(callback):  # as whenever the loop, a store or a client asks
                return schedule(callback, *args, context=context)
            strange = place is UNSET
            if strange:
                place = here()
            place = place.at_home() if _is_scope(place) else None
            if place is not None:
                if strange or (context is not None and context.get(_lent)):
                    callback = in_place(place, callback)
                place.execution.hops()
            return schedule(callback, *args, context=context)

        run_call_soon.uncounted = schedule  # type: ignore[attr-defined]  # for those that are never in a run
        return run_call_soon

    loop.call_soon, loop.call_soon_threadsafe = counted(loop.call_soon), counted(loop.call_soon_threadsafe)


def in_place(scope: Any, callback: Callable[..., Any]) -> Callable[..., Any]:
    """A callback that is known to be agent code, though its context is not that of a run."""

    def placed(*args: Any) -> Any:
        lent = _lent.set(True)
        try:
            with Placed(scope):
                return callback(*args)
        finally:
            _lent.reset(lent)

    return placed


def _steps_a_task(callback: Any) -> bool:
    """Is this how asyncio steps a task, or wakes it? Both are objects of C without a name that could be imported."""
    kind = type(callback)
    if kind is BuiltinFunctionType:
        return callback.__name__ in _WAKES
    return kind.__name__ == "TaskStepMethWrapper"


def _install_time(loop: Any) -> None:
    """Timers of agent code are recorded, and its time stands still between outcomes: what depends on it is replayed.

    `asyncio.timeout` and others compare a deadline with the loop's time; with the real one they would take another branch
    whenever the code ran slower or faster than the first time. A run that leaves memory has the loop's own time again.
    """
    call_at, call_later = loop.call_at, loop.call_later
    real: Callable[[], float] = loop.time

    def run_call_at(when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        place: Any = here()
        if _is_scope(place) and not place.execution.closing:
            return place.tick(when - place.time(), callback, args, context)
        return call_at(when, callback, *args, context=context)

    def run_call_later(delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        place: Any = here()
        if _is_scope(place) and not place.execution.closing:
            return place.tick(delay, callback, args, context)
        return call_later(delay, callback, *args, context=context)

    def run_time() -> float:
        place: Any = _here.get(UNSET)
        if place is None or (place is UNSET and not isinstance(asyncio.current_task(loop), RunTask)):
            return real()  # as whenever the loop itself asks, or another's task
        place = here()
        return float(place.time()) if _is_scope(place) and not place.execution.closing else real()

    loop.call_at, loop.call_later, loop.time = run_call_at, run_call_later, run_time


def _watched(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*args: Any, **kw: Any) -> Any:
        place: Any = here()
        if _is_scope(place) and not place.execution.closing:
            place.execution.report_foreign(place, f"loop.{name}", frame_location(sys._getframe(1)))
        return method(*args, **kw)

    return watched


def _is_scope(place: object) -> bool:
    return getattr(place, "is_scope", False)


def is_ours(filename: str) -> bool:
    """Is this file part of Holdfast or of asyncio, and so of no interest to the person who reads a report?"""
    return filename.startswith((_PACKAGE, _ASYNCIO, "<"))


def frame_location(frame: FrameType | None) -> str:
    """The nearest caller outside asyncio and Holdfast, as file:line; empty if it is asyncio's own doing."""
    while frame is not None and frame.f_code is not Stirring._step.__code__:
        if not is_ours(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        if frame.f_code.co_name in ("_run", "_run_once", "run"):  # of a handle, the loop or the runner
            break
        frame = frame.f_back
    return ""


def made_at(coro: Any) -> str:
    """The line that makes a task of asyncio's own code, such as `to_thread`, which has no line of the agent to show."""
    code = getattr(coro, "cr_code", None)
    return frame_location(sys._getframe(2)) if code is not None and is_ours(code.co_filename) else ""


def waiting_location(coro: Any) -> str:
    """Where a suspended coroutine waits: its innermost frame outside asyncio and Holdfast, as file:line."""
    found = ""
    for _ in range(1000):
        frame = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None)
        if frame is not None and not is_ours(frame.f_code.co_filename):
            found = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        coro = getattr(coro, "cr_await", None) or getattr(coro, "gi_yieldfrom", None)
        if coro is None:
            break
    return found
