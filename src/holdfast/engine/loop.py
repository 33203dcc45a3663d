"""asyncio, as a run sees it: numbered tasks, counted steps, recorded timers, and nothing foreign unnoticed.

`Tasks` has the tasks of one attempt. A task counts as activity of its run whenever it is stepped, which is how the gate knows
that the run has settled; and it unwinds when the run leaves memory.

`install` puts a task factory and a few instance methods on the loop. Each looks at the context variable first, and at the
running task or callback if that is missing, and does nothing unless the caller is agent code, so everything else on the loop
is as it was.

Async generators of agent code that were left in the middle are closed in their own run, whatever happens to run then. Python
hands such a generator to the loop when it is collected, and the loop closes it in a task of whatever context is current: that
of another run, or of none, where a step in its `finally` would simply run. So each generator's scope is remembered from its
first iteration on, and the task that closes it is one of its own run: refused its verbs when the run has left memory, recorded
like any other while it is live.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Generator, Iterator
from types import BuiltinFunctionType, FrameType
from typing import Any, Protocol

from holdfast.engine.gate import Gate, Settling
from holdfast.engine.identity import Identity
from holdfast.engine.life import Life
from holdfast.errors import Suspended
from holdfast.runtime import UNSET, Durable, Placed, Runtime, _here, here

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
    """A future that a coroutine yields to sleep for ever."""
    future = Never(loop=loop)
    future._asyncio_future_blocking = True
    return future


class GateFuture(asyncio.Future[Any]):
    """A future that only the gate resolves; a task that waits for one is accounted for."""


class Place(Runtime, Protocol):
    """A task of a run, or one named block of it, as asyncio's own code is told of it."""

    path: str
    named: str
    made_at: str
    tasks: Tasks

    def at_home(self) -> Place: ...
    def runs_in(self, task: RunTask) -> None:
        """The code of this place runs in this task."""
        ...

    def time(self) -> float: ...
    def tick(self, delay_s: float, callback: Any, args: tuple[Any, ...], context: Any) -> Any: ...


class RunTask(asyncio.Task[Any]):
    """A task of a run. It hashes by order of creation, so that sets of tasks iterate the same way on every replay."""

    def __init__(self, coro: Stirring, *, number: int, scope: Place, **kw: Any) -> None:
        self._number = number  # before Task.__init__, which puts the task into a set
        self.scope, self.stirring = scope, coro
        self.tidies = False  # it closes a generator, and is let finish when the agent has returned
        super().__init__(coro, **kw)

    def enter(self, scope: Place) -> None:
        """Code of this task is in this scope from now on."""
        self.scope = scope

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class Stirring(Coroutine[Any, Any, Any]):
    """A task's coroutine whose every step counts as activity of its run; unwinds when the run leaves memory."""

    __slots__ = ("__name__", "__qualname__", "_coro", "_place", "_resumed", "_tasks", "asleep", "scope")

    def __init__(self, coro: Any, tasks: Tasks, scope: Place, *, shared: bool = False) -> None:
        self._coro, self._tasks, self.scope = coro, tasks, scope
        self._place: Any = scope if shared else None  # a context that others use too has it only while this task runs
        self._resumed = 1 if tasks.life.closing else 0  # how often since the run began to leave memory
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
        tasks = self._tasks
        tasks.activity += 1
        if tasks.life.closing:
            return self._unwind(resume, *what)
        if tasks.resting:
            tasks.stirs(self)
        waits_for = left = None
        try:
            waits_for = resume(*what)
        except Suspended:  # the run began to leave while this very step of it ran
            left = asyncio.CancelledError()
        except SystemExit as error:  # ends the run, not the worker with all its runs
            raise RuntimeError(f"the agent raised SystemExit: {error}") from error
        except Exception as error:
            if not tasks.life.closing or isinstance(error, StopIteration):
                raise
            left = asyncio.CancelledError()  # what it met on its way out matters to nobody
        if left is not None:
            raise left
        if waits_for is not None and not isinstance(waits_for, GateFuture):
            self.asleep = isinstance(waits_for, Never)
            tasks.gate.kick()  # what it waits for comes from the run itself, or from nowhere: find out
        return waits_for

    def _unwind(self, resume: Callable[..., Any], *what: Any) -> Any:
        """Throw `Suspended` in once; `finally` blocks may then await local things, and how it ends matters to nobody.

        Code that swallows everything and goes on is put to sleep for ever after REFUSALS turns: it must not spin the
        loop. A cancellation (the worker stops) ends the task even then.
        """
        if (self.asleep or self._tasks.given_up) and resume != self._coro.send:
            _leak(self._coro)
            raise asyncio.CancelledError
        self._resumed += 1
        if self._resumed > REFUSALS:
            self.asleep = True
            return never(self._tasks.life.loop)
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


class Maker(Protocol):
    """Makes tasks of runs: a host."""

    def new_task(self, make: Callable[[], RunTask]) -> RunTask: ...


class Carrying(Settling, Protocol):
    """The owner of tasks: one attempt at a run."""

    def new_scope(self, path: str, named: str, made_at: str) -> Place:
        """Make the place of a new task."""
        ...

    def conclude(self) -> None:
        """The agent has ended."""

    def stirred(self, place: Place, coro: Any) -> None:
        """A task of a settled run has moved by itself."""

    def report(self, place: Place, what: str, line: str) -> None:
        """Agent code waits for something foreign."""


class Tasks:
    """The tasks of one attempt, and whether they have come to rest."""

    __slots__ = (
        "_failed", "_host", "_identity", "_refusals", "activity", "alive", "dusty", "gate", "given_up", "hops", "life",
        "never_settle", "owner", "resting", "root", "settled", "ticked_s",
    )  # fmt: skip

    def __init__(self, life: Life, host: Maker, identity: Identity, owner: Carrying) -> None:
        self.life, self._host, self._identity, self.owner = life, host, identity, owner
        self.activity = self.hops = 0  # steps of tasks and callbacks that were asked for; of these, callbacks
        self.gate = Gate(life.loop, life.outside, owner, self)
        self.alive: dict[RunTask, None] = {}
        self.root: RunTask | None = None
        self._failed: weakref.WeakSet[RunTask] | None = None  # tasks, as long as the agent holds them
        self.dusty = False  # something may be left of tasks that have ended, or of callbacks, that could still move
        self.resting = self.settled = False  # its only task waits at the gate; all of it has been seen to wait
        self.never_settle = False  # they go on without waiting for anything
        self.given_up = False  # what has not ended by now never will
        self._refusals = 0  # of verbs, while the run leaves memory
        self.ticked_s = 0.0  # when the last asyncio timer of the agent was due, as the loop's time

    # Making them

    def start(self, code: Coroutine[Any, Any, Any], context: contextvars.Context) -> None:
        """Start the agent's code from its first line."""
        scope = self.owner.new_scope("", "", "")
        context.run(_here.set, scope)
        self.root = self._new(Stirring(code, self, scope), scope, context)
        self.gate.kick()

    def adopt(self, parent: Place, coro: Any, given: contextvars.Context | None, **kw: Any) -> RunTask:
        """A task created inside the run: numbered now, in its parent's program order."""
        name = getattr(coro, "__name__", "task").replace("/", ".").replace("#", ".")
        place = f"{parent.path}/{name}" if parent.path else name
        nameless = (
            isinstance(coro, Durable) or self.life.closing
        )  # has its key, or may not call: `finally` needs tasks too
        path = f"{place}~" if nameless else f"{place}#{self._identity.nth(place)}"
        scope = self.owner.new_scope(path, parent.named, made_at(coro))
        context = contextvars.copy_context() if given is None else given
        if given is None:
            context.run(_here.set, scope)
        return self._new(Stirring(coro, self, scope, shared=given is not None), scope, context, **kw)

    def _new(self, stirring: Stirring, scope: Place, context: contextvars.Context, **kw: Any) -> RunTask:
        number = self._identity.next_task()
        loop = self.life.loop
        task = self._host.new_task(
            lambda: RunTask(stirring, number=number, scope=scope, loop=loop, context=context, **kw)
        )
        scope.runs_in(task)
        self.alive[task] = None
        self.dusty = len(self.alive) > 1
        self.activity += 1
        task.add_done_callback(self._done, context=self.life.outside)
        return task

    def _done(self, task: Any) -> None:
        self.alive.pop(task, None)
        self.activity += 1
        if self.life.closing:
            if task.cancelled():
                with contextlib.suppress(asyncio.CancelledError):
                    task.exception()  # which lets go of the frames that it was cancelled in
            return
        if task._log_traceback:  # it failed, and asyncio reports that unless the agent looks at it
            self._failed = self._failed or weakref.WeakSet()
            self._failed.add(task)
        if task is self.root:
            if not self.alive and not self.dusty:
                self.owner.conclude()
                if not (self.life.finishing or self.life.closing):
                    self.gate.kick()  # it cannot end yet, and waits
                return
            for other in list(self.alive):  # as asyncio.run does
                if not other.tidies:
                    other.cancel()
        self.dusty = True
        self.gate.kick()

    def cancel_all(self) -> None:
        """The run leaves memory: each task unwinds."""
        for task in list(self.alive):
            task.cancel()
        if self.life.closing != "ended":
            for task in self._failed or ():
                task.exception()  # no loss to be reported: the agent meets the failure in its next life

    def give_up(self) -> None:
        """Give up on tasks that have not ended by now: a cancellation ends them whatever their code does."""
        self.given_up = True

    def refused(self, verb: str) -> Durable[Any]:
        """Refuse a verb while the run leaves memory: the first hundred times it raises `Suspended`, then it never ends.

        Code that swallows the refusals and goes on is put to sleep for ever that way: it must not spin the loop.
        """
        self._refusals += 1
        if self._refusals <= REFUSALS:
            raise Suspended
        return Durable(verb, self.refusal)

    def refusal(self) -> Generator[Any, Any, Any]:
        """A call that is awaited meanwhile was asked too late, or it diverged."""
        self._refusals += 1
        if self._refusals <= REFUSALS:
            raise Suspended
        while True:
            yield never(self.life.loop)

    # Coming to rest

    @property
    def alone(self) -> bool:
        """Is there one live task, and nothing left of others that could still move?"""
        return len(self.alive) == 1 and not self.dusty

    @property
    def awaited(self) -> GateFuture | None:
        """The future at the gate that the only task there is waits for."""
        if not self.resting or self.dusty or len(self.alive) != 1:
            return None
        (task,) = self.alive
        waiter = getattr(task, "_fut_waiter", None)
        return waiter if isinstance(waiter, GateFuture) and not waiter.done() else None

    def hop(self) -> None:
        """Agent code, or asyncio on its behalf, has the loop call something that is no step of a task."""
        self.dusty = True
        self.activity += 1
        self.hops += 1

    def asked(self) -> None:
        """Note that a call was made: the run has not settled."""
        self.activity += 1

    def swept(self) -> None:
        """The gate has seen that nothing moves: nothing is left of tasks that have ended."""
        self.dusty = False

    def rest(self) -> None:
        """Note that the only task there is waits at the gate."""
        self.resting = True

    def settle(self) -> bool:
        """Note that all of the run waits, with nothing left to deliver. True if the agent has ended, and all it started."""
        self.resting = self.settled = True
        return not self.alive and self.root is not None

    def stir(self) -> None:
        """Note that the run moves: an outcome is delivered."""
        self.resting = self.settled = False
        self.activity += 1

    def stirs(self, task: Stirring) -> None:
        """Note that a task of a resting run is stepped. If the run has settled, it was not the gate that moved it."""
        if self.settled:
            self.owner.stirred(task.scope, task)
        self.resting = False

    def stray(self, now_s: float) -> None:
        """Let the loop's time go on, because something foreign moved the run: else code that polls would never end."""
        self.resting = self.settled = False
        self.tick(now_s)

    def tick(self, when_s: float) -> None:
        """The loop's time, as agent code sees it, is not before this any more."""
        self.ticked_s = max(self.ticked_s, when_s)

    def restart_time(self) -> None:
        """Restart the loop's time: a new era begins."""
        self.ticked_s = 0.0

    def go_on_forever(self) -> None:
        """Note that the tasks go on without waiting for anything: requests to stop do not wait for them to settle."""
        self.never_settle = True


def _leak(coro: Any) -> None:
    """Keep a coroutine that will not end for as long as the process lives.

    To collect it would be to resume it, outside its run, where its loop around everything would never end.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coro))


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Make the loop know about runs. Safe to call again; chained to a task factory that was there before."""
    inner = loop.get_task_factory()
    if getattr(inner, "knows_runs", False) or getattr(loop.create_task, "knows_runs", False):
        return

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **kw: Any) -> Any:
        context: contextvars.Context | None = kw.pop("context", None)
        place: Any = here()
        if not _is_scope(place) and context is not None:
            place = context.get(_here)
        if _is_scope(place):
            return place.tasks.adopt(place, coro, context, **kw)
        if context is not None:
            kw["context"] = context
        return inner(loop, coro, **kw) if inner is not None else asyncio.Task(coro, loop=loop, **kw)

    factory.knows_runs, factory.inner = True, inner  # type: ignore[attr-defined]
    try:
        loop.set_task_factory(factory)
    except NotImplementedError:  # a loop of Temporal's
        loop.create_task = _made_by(factory, loop.create_task)  # type: ignore[method-assign]
    _install_time(loop)
    install_generators(loop)
    _install_order(loop)
    for name in _FOREIGN:
        if hasattr(loop, name):
            setattr(loop, name, _watched(name, getattr(loop, name)))


def _made_by(factory: Callable[..., Any], made: Callable[..., Any]) -> Any:
    """`create_task` of a loop that takes no task factory: tasks of runs come from ours, all others from the loop."""

    def create_task(coro: Any, **kw: Any) -> Any:
        place: Any = here()
        if not _is_scope(place) and kw.get("context") is not None:
            place = kw["context"].get(_here)
        return factory(None, coro, **kw) if _is_scope(place) else made(coro, **kw)

    create_task.knows_runs, create_task.inner = True, None  # type: ignore[attr-defined]
    return create_task


def task_of_ours(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, None], context: contextvars.Context
) -> asyncio.Task[None]:
    """A task that belongs to no run, though it may be the agent's own task that we are called in."""
    way = loop.get_task_factory() or loop.create_task
    if getattr(way, "inner", loop) is None:  # as nearly always: then nobody need be asked
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
    Each hop runs in the context of the code that asked for it, which says whose it is; in a context that knows of no run, it is
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
                place.tasks.hop()
            return schedule(callback, *args, context=context)

        run_call_soon.uncounted = schedule  # type: ignore[attr-defined]  # for callers that are never in a run
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
        if _is_scope(place) and not place.tasks.life.closing:
            return place.tick(when - place.time(), callback, args, context)
        return call_at(when, callback, *args, context=context)

    def run_call_later(delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        place: Any = here()
        if _is_scope(place) and not place.tasks.life.closing:
            return place.tick(delay, callback, args, context)
        return call_later(delay, callback, *args, context=context)

    def run_time() -> float:
        place: Any = _here.get(UNSET)
        if place is None or (place is UNSET and not isinstance(asyncio.current_task(loop), RunTask)):
            return real()  # as whenever the loop itself asks, or another's task
        place = here()
        return float(place.time()) if _is_scope(place) and not place.tasks.life.closing else real()

    loop.call_at, loop.call_later, loop.time = run_call_at, run_call_later, run_time


def _watched(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*args: Any, **kw: Any) -> Any:
        place: Any = here()
        if _is_scope(place) and not place.tasks.life.closing:
            place.tasks.owner.report(place, f"loop.{name}", frame_location(sys._getframe(1)))
        return method(*args, **kw)

    return watched


def _is_scope(place: object) -> bool:
    return getattr(place, "is_scope", False)


def is_ours(filename: str) -> bool:
    """Is this file part of Holdfast or of asyncio, and so of no interest to the reader of a report?"""
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
    """Find where a suspended coroutine waits: its innermost frame outside asyncio and Holdfast, as file:line."""
    found = ""
    for frame in suspended_frames(coro):
        if not is_ours(frame.f_code.co_filename):
            found = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
    return found


def suspended_frames(coro: Any) -> Iterator[FrameType]:
    """The frames of a coroutine that waits, the outermost first."""
    for _ in range(1000):
        frame = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None)
        if frame is not None:
            yield frame
        coro = getattr(coro, "cr_await", None) or getattr(coro, "gi_yieldfrom", None)
        if coro is None:
            return


def running_frames() -> list[FrameType]:
    """The frames of the task of a run that runs now, up to the caller, the outermost first."""
    found: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not Stirring._step.__code__:
        found.append(frame)
        frame = frame.f_back
    return found[::-1]


class Generators:
    """The generators of all runs on one loop, by their identity: a dying one cannot be looked up by a weak reference."""

    def __init__(self, loop: Any) -> None:
        self._loop, self._thread = loop, threading.get_ident()
        self._call_soon = loop.call_soon  # as it was before it counted what runs ask for: this is no doing of theirs
        self._first, self._last = loop._asyncgen_firstiter_hook, loop._asyncgen_finalizer_hook
        self._homes: dict[int, tuple[Any, Place]] = {}

    def first(self, generator: Any) -> None:
        """Note the first iteration of a generator. A run's generator is ours alone, also when the loop is shut down."""
        place: Any = here()
        if not getattr(place, "is_scope", False):
            self._homes.pop(id(generator), None)  # of one that was at the same address
            self._first(generator)
            return
        number = id(generator)
        self._homes[number] = weakref.ref(generator, lambda _: self._dies(number)), place

    def _dies(self, number: int) -> None:
        """Forget a generator that is about to be collected; `last` is called right after this if it was left in the middle."""
        home = self._homes.get(number)
        if home is not None and not self._loop.is_closed():
            self._soon(self._forget, number, home)

    def _soon(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call on the loop. Some frameworks use up dozens of generators a turn: waking the loop for each takes long."""
        here = threading.get_ident() == self._thread
        (self._call_soon if here else self._loop.call_soon_threadsafe)(call, *arguments)

    def _forget(self, number: int, home: tuple[Any, Place]) -> None:
        if self._homes.get(number) is home:
            del self._homes[number]

    def last(self, generator: Any) -> None:
        """A generator that was left in the middle is collected: close it where it belongs."""
        home = self._homes.pop(id(generator), None)
        if home is None:
            with Placed(None):
                self._last(generator)
        elif not self._loop.is_closed():
            if threading.get_ident() == self._thread:
                _close(home[1], generator.aclose())
            else:
                self._loop.call_soon_threadsafe(_close, home[1], generator.aclose())


def _close(scope: Place, closing: Any) -> None:
    with Placed(scope):
        scope.tasks.adopt(scope, closing, None, name="close a generator").tidies = True


def install_generators(loop: asyncio.AbstractEventLoop) -> None:
    """Watch generators on this loop, now and whenever it is run again."""
    anyloop: Any = loop
    if not hasattr(loop, "_asyncgen_firstiter_hook"):
        return
    generators = Generators(loop)
    anyloop._asyncgen_firstiter_hook, anyloop._asyncgen_finalizer_hook = generators.first, generators.last
    sys.set_asyncgen_hooks(firstiter=generators.first, finalizer=generators.last)
