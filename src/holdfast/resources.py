"""`@resource`: what steps share and must not record, such as an HTTP client or a pool of connections.

Opened once per worker at its first use in a step, closed when the worker stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any, Generic, TypeVar

from holdfast.errors import BadArguments, NotInRun
from holdfast.runtime import Placed, StepContext, here
from holdfast.words.harmless import logger

T = TypeVar("T")
_log = logger("holdfast")
CLOSING_LIMIT_S = 10.0


class Resource(Generic[T]):
    """A shared connection or client, made by `@holdfast.resource`. Await it inside a step.

    Raises:
        NotInRun: It was used outside a step.

    Example:
        ```python
        @holdfast.resource
        async def greetings():
            yield ["hello"]


        @holdfast.step
        async def greet() -> str:
            return (await greetings())[0]
        ```
    """

    def __init__(self, fn: Callable[[], AsyncIterator[T]]) -> None:
        if not inspect.isasyncgenfunction(fn) or inspect.signature(fn).parameters:
            raise BadArguments(
                f"@resource belongs on an async generator without parameters that yields once; {fn!r} is none"
            )
        self.fn, self.name, self.__doc__ = fn, fn.__name__, fn.__doc__

    async def __call__(self) -> T:
        place = here()
        if not isinstance(place, StepContext) or place.resources is None:
            raise NotInRun(f"resource {self.name!r} can be used only inside a step: `client = await {self.name}()`")
        value: T = await place.resources.get(self)
        return value

    def __repr__(self) -> str:
        return f"<resource {self.name}>"


def resource(fn: Callable[[], AsyncIterator[T]], /) -> Resource[T]:
    """Declare a resource: an async generator that opens, yields once, and closes.

    A worker opens it at its first use in a step and closes it when the worker stops. Tests put another in its place.

    Raises:
        BadArguments: The function is no async generator without parameters.

    Example:
        ```python
        @holdfast.resource
        async def cache():
            opened: dict[str, str] = {}
            yield opened
            opened.clear()
        ```
    """
    return Resource(fn)


def _random_key() -> Callable[[], str]:
    key = f"hf_{uuid.uuid4().hex}"
    return lambda: key


class OpenResources:
    """The resources one worker has opened; `replace` puts other generators in their place, for tests.

    Each lives in a task of its own, from opening to closing: a cancelled step does not undo what others wait for, and
    what must be closed by the task that opened it (a task group, a cancel scope) is.
    """

    def __init__(self, replace: Mapping[Any, Callable[..., Any]] | None = None) -> None:
        self._replace = replace or {}
        self._opened: dict[Resource[Any], asyncio.Future[Any]] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._keepers: list[tuple[Resource[Any], asyncio.Task[None], asyncio.Event]] = []  # in the order of opening

    async def get(self, resource: Resource[Any]) -> Any:
        opened = self._opened.get(resource)
        if opened is None:
            opened = self._opened[resource] = asyncio.get_running_loop().create_future()
            keeper = asyncio.get_running_loop().create_task(self._keep(resource, opened))
            self._opening.add(keeper)
        return await asyncio.shield(opened)

    async def _keep(self, resource: Resource[Any], opened: asyncio.Future[Any]) -> None:
        """Open, hold until told, close. A resource that could not be opened is opened anew at its next use."""
        me: Any = asyncio.current_task()
        replaced: Any = self._replace.get(resource, resource)
        place = StepContext(f"resource {resource.name}", _random_key(), 1, None, self)  # of no step, no run
        with Placed(place):
            try:
                generator: AsyncGenerator[Any, None] = (replaced.fn if isinstance(replaced, Resource) else replaced)()
                value = await anext(generator)
            except BaseException as error:
                self._opened.pop(resource, None)
                if isinstance(error, StopAsyncIteration):
                    error = BadArguments(f"resource {resource.name!r} ended without yielding anything")
                elif not isinstance(error, Exception):
                    error = RuntimeError(f"resource {resource.name!r} was not opened: the worker stops")
                opened.set_exception(error)
                opened.exception()  # the caller may be gone
                return
            finally:
                self._opening.discard(me)
            kept = (resource, me, asyncio.Event())
            self._keepers.append(kept)
            opened.set_result(value)
            try:
                await kept[2].wait()
            except asyncio.CancelledError as error:  # it broke: a task group in it cancels the task that entered it
                self._opened.pop(resource, None)
                self._keepers.remove(kept)
                try:
                    await generator.athrow(error)
                except (Exception, asyncio.CancelledError) as problem:
                    _log.warning("resource %r broke, and is opened anew at its next use: %r", resource.name, problem)
                return
            async for _ in generator:
                raise BadArguments(f"resource {resource.name!r} yielded more than once")

    async def close(self) -> None:
        """Close in the reverse order of opening; one that fails to close does not keep the others open."""
        failures: list[Exception] = []
        opening = set(self._opening)
        for unfinished in opening:
            unfinished.cancel()
        if opening:
            await asyncio.wait(opening, timeout=CLOSING_LIMIT_S)
        self._opened.clear()
        while self._keepers:
            resource, keeper, closing = self._keepers.pop()
            closing.set()
            _, late = await asyncio.wait({keeper}, timeout=CLOSING_LIMIT_S)
            if late:
                keeper.cancel()
                failures.append(TimeoutError(f"resource {resource.name!r} did not close within {CLOSING_LIMIT_S:g} s"))
            elif not keeper.cancelled() and isinstance(error := keeper.exception(), Exception):
                failures.append(error)
        if failures:
            raise ExceptionGroup("closing resources", failures)


def plain_context(name: str) -> StepContext:
    """The context of a plain step that is called where no loop runs, so that it cannot wait for resources."""
    return StepContext(name, _random_key(), 1)


@contextlib.asynccontextmanager
async def step_outside_run(name: str) -> AsyncIterator[StepContext]:
    """The context of a step that is called outside any run: a random key, resources of its own."""
    resources = OpenResources()
    try:
        yield StepContext(name, _random_key(), 1, None, resources)
    finally:
        await resources.close()
