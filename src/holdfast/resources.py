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
from holdfast.runtime import StepContext, here

T = TypeVar("T")


class Resource(Generic[T]):
    """Await it inside a step to get what the generator yields."""

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
    """Declare a resource: an async generator that opens, yields once, and closes."""
    return Resource(fn)


class OpenResources:
    """The resources one worker has opened; `replace` puts other generators in their place, for tests."""

    def __init__(self, replace: Mapping[Any, Callable[..., Any]] | None = None) -> None:
        self._replace = replace or {}
        self._opened: dict[Resource[Any], asyncio.Future[Any]] = {}
        self._closers: list[AsyncGenerator[Any, None]] = []

    async def get(self, resource: Resource[Any]) -> Any:
        opened = self._opened.get(resource)
        if opened is None:
            # Another step may ask while this one is still opening: it waits for the same future.
            opened = self._opened[resource] = asyncio.get_running_loop().create_future()
            try:
                generator = self._replace.get(resource, resource.fn)()
                value = await anext(generator)
            except BaseException as error:
                del self._opened[resource]
                opened.set_exception(error if isinstance(error, Exception) else RuntimeError(f"not opened: {error!r}"))
                opened.exception()  # nobody else may have been waiting
                raise
            self._closers.append(generator)
            opened.set_result(value)
        return await asyncio.shield(opened)

    async def close(self) -> None:
        """Close in the reverse order of opening; one that fails to close does not keep the others open."""
        failures: list[Exception] = []
        self._opened.clear()
        while self._closers:
            generator = self._closers.pop()
            try:
                with contextlib.suppress(StopAsyncIteration):
                    await anext(generator)
                    failures.append(BadArguments(f"resource {generator.__name__!r} yielded more than once"))
            except Exception as error:
                failures.append(error)
        if failures:
            raise ExceptionGroup("closing resources", failures)


@contextlib.asynccontextmanager
async def step_outside_run(name: str) -> AsyncIterator[StepContext]:
    """The context of a step that is called outside any run: a random key, resources of its own."""
    resources = OpenResources()
    try:
        yield StepContext(name, f"hf_{uuid.uuid4().hex}", 1, None, resources)
    finally:
        await resources.close()
