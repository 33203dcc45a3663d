"""A bridge from plain code to async classes: one loop in a thread, and classes whose methods wait for those of another.

Look here when a method of the sync client behaves otherwise than its twin. There are no twins: `mirror` makes a class from an
async one by inspection, so what is added there is here too. A method that is a coroutine becomes one that waits, an async
iterator becomes an iterator, and what comes back is wrapped if its class has a mirror.

A call runs in a task of the bridge's loop, with the context variables of the thread that makes it. Any number of threads may
call. An exception in the waiting thread, Ctrl-C above all, cancels the task.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import os
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

from holdfast.errors import BadArguments, StoreUnavailable

T = TypeVar("T")
_END: Final = object()
_mirrors: Final[dict[type, type[Mirrored]]] = {}
_open: Final[weakref.WeakSet[Bridge]] = weakref.WeakSet()


class Bridge:
    """A loop in a thread. `closing` is awaited there before the loop ends."""

    def __init__(self) -> None:
        self._loop, self._process = asyncio.new_event_loop(), os.getpid()
        self._closing: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._guard, self._ending, self._closed = threading.Lock(), False, False
        self._door = threading.RLock()  # of the loop: nothing is asked of one that ends. Garbage is let go inside, too
        self._thread = threading.Thread(target=self._turn, name="holdfast-sync", daemon=True)
        self._thread.start()
        _close_at_exit()
        _open.add(self)

    def start(
        self, begin: Callable[[], Coroutine[Any, Any, Any]], end: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Begin what the bridge is for; if that fails there is no bridge."""
        try:
            self.run(begin())
        except BaseException:
            self.close()
            raise
        self._closing = end

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this on the loop, and wait for it."""
        future = self._begun(work)
        try:
            return self._result(future)
        except (concurrent.futures.CancelledError, BadArguments, StoreUnavailable) as problem:
            if not self._ending and not isinstance(problem, concurrent.futures.CancelledError):
                raise
            raise StoreUnavailable("this client was closed while it was used") from None

    def _begun(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        try:
            self._check()
            with self._door:
                self._check()
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            work.close()
            raise

    def _result(self, future: concurrent.futures.Future[T]) -> T:
        try:
            return future.result()
        except BaseException:  # if it is one of this thread nobody waits any more
            future.cancel()
            raise

    def _check(self) -> None:
        if self._process != os.getpid():
            raise BadArguments(
                "this client was opened before the process was forked; open one in each process, after the fork; of a store "
                "in SQLite have none open before it"
            )
        if self._closed:
            raise BadArguments("this client is closed; open another one with `holdfast.sync.open(...)`")
        if threading.current_thread() is self._thread:
            raise BadArguments(
                "a sync client was called by async code on its own loop, which would wait for itself. Use a client of "
                "`holdfast.open(...)` there, or call it in a plain `def` step, which runs in a thread"
            )

    def close(self) -> None:
        """End it, once; the second time nothing happens."""
        if self._process != os.getpid():  # where nobody lets go of the lock, if a thread has it
            return
        with self._guard:
            if self._closed:
                return
            closing, self._closing, self._ending = self._closing, None, True
            try:
                if closing is not None:
                    self._result(self._begun(closing()))
            finally:
                with self._door:
                    self._closed = True
                    self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def wrapped(self, value: Any) -> Any:
        """The value as plain code uses it."""
        kind = _mirrors.get(type(value))
        if kind is not None:
            return kind(self, value)
        if type(value) is list or type(value) is tuple:
            return type(value)(self.wrapped(each) for each in value)
        return self._each(value) if isinstance(value, AsyncIterator) else value

    def _each(self, values: AsyncIterator[Any]) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(values, _END)

        try:
            while (value := self.run(following())) is not _END:
                yield self.wrapped(value)
        finally:
            if inspect.isasyncgen(values):
                self._let_go(values)

    def _let_go(self, values: AsyncGenerator[Any, Any]) -> None:
        """End what an iteration follows. Its loop may have ended it already, and that of another process lets nothing go."""

        async def let_go() -> None:
            await values.aclose()

        if self._process != os.getpid() or threading.current_thread() is self._thread:  # where asyncio sees to it
            return
        with contextlib.suppress(BadArguments, StoreUnavailable):  # closed meanwhile
            self.run(let_go())


class Mirrored:
    """An object of an async class, used by plain code."""

    __slots__ = ("__weakref__", "_bridge", "_inner")

    def __init__(self, bridge: Bridge, inner: Any) -> None:
        self._bridge, self._inner = bridge, inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._bridge.wrapped(getattr(self._inner, name))

    def __repr__(self) -> str:
        return repr(self._inner)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._inner == other._inner

    def __hash__(self) -> int:
        return hash(self._inner)


def mirror(of: type, *, leave_out: tuple[str, ...] = (), bases: tuple[type, ...] = (Mirrored,)) -> Any:
    """A class whose objects wait for those of an async class."""
    made: dict[str, Any] = {"__slots__": (), "__doc__": of.__doc__}
    for name in dir(of):
        method = inspect.getattr_static(of, name)
        if not name.startswith("_") and name not in leave_out and inspect.isfunction(method):
            made[name] = _waiting(method)
    _mirrors[of] = made_class = type(of.__name__, bases, made)
    return made_class


def _waiting(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Mirrored, /, *args: Any, **kwargs: Any) -> Any:
        value = method(self._inner, *args, **kwargs)
        return self._bridge.wrapped(self._bridge.run(value) if inspect.iscoroutine(value) else value)

    call.__annotations__ = {}  # those of the method are of another kind; a stub has the right ones
    return call


@functools.cache
def _close_at_exit() -> None:
    """Close what is still open when the program ends: before the pools of threads end, which closing needs."""
    threading._register_atexit(_close_all)  # type: ignore[attr-defined]


def _close_all() -> None:
    for bridge in list(_open):
        bridge.close()
