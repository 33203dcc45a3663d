"""`lively`: what comes piece by piece must not fall silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from typing import TypeVar

from holdfast.errors import BadArguments, StepTimeout
from holdfast.words.durations import Duration, seconds

T = TypeVar("T")


async def lively(pieces: AsyncIterable[T], idle: Duration) -> AsyncIterator[T]:
    """The pieces as they come; `StepTimeout` when none has come for `idle`.

    For a body that reads a stream: `timeout=` of the step limits the whole, this the silence between two tokens. What the
    body itself does with a piece does not count. The failure is an ordinary one: `retry` applies.
    """
    idle_s = seconds(idle)
    if idle_s <= 0:
        raise BadArguments(f"lively(idle={idle!r}): give the longest silence, for example '10s'")
    coming = aiter(pieces)
    while True:
        limit = asyncio.timeout(idle_s)
        try:
            async with limit:
                piece = await anext(coming)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            if not limit.expired():  # the source's own
                raise
            raise StepTimeout(f"nothing came for {idle_s:g} s") from error
        yield piece
