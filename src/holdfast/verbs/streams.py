"""`stream`: text that is durable while it is written, and that others read as it comes."""

from __future__ import annotations

import asyncio
import re
from types import TracebackType
from typing import Final, Self

from holdfast.errors import BadArguments
from holdfast.runtime import Called, Outlet, StepContext, current, here
from holdfast.words.salvage import Salvaged

_NAME: Final = re.compile(r"[\w.:@-]{1,200}", re.ASCII)


class Stream:
    """A stream that is open for writing: `async with stream("answer") as out`."""

    def __init__(self, name: str, outlet: Outlet | None) -> None:
        self.name, self._outlet, self._closed = name, outlet, False

    @property
    def salvaged(self) -> Salvaged | None:
        """In a step that runs again: what the attempt before had written, and why it broke off."""
        return None if self._outlet is None else self._outlet.salvaged

    def keep(self) -> str:
        """Go on behind what was salvaged, instead of beginning anew; before the first write. Returns that text, or ''."""
        if self._outlet is None or self._outlet.salvaged is None:
            return ""
        self._outlet.keep()
        return self._outlet.salvaged.text

    async def write(self, text: str) -> None:
        """More text. It is durable soon, and before anything that is recorded later; the write waits only for a slow store."""
        if not isinstance(text, str):
            raise BadArguments(
                f"the stream {self.name!r} takes text, not {type(text).__name__}; decode bytes, and put values as JSON"
            )
        if self._outlet is not None:
            waits = self._outlet.write(text)
            if waits is not None:
                await waits

    async def __aenter__(self) -> Self:
        if self._closed:
            raise BadArguments("a stream can be entered once; make a new one")
        self._closed = True
        if self._outlet is not None:
            await self._outlet.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._outlet is not None:
            cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
            closed = self._outlet.close(None if kind is None else "cancelled" if cancelled else "failed")
            if closed is not None:
                await closed


def stream(name: str) -> Stream:
    """Text that others read while it is written, in agents and in steps; outside a run it goes nowhere.

    The names of streams are those of the run; in a step that runs again, `salvaged` is what was written before.
    """
    checked_stream(name)
    place = here()
    if not isinstance(place, StepContext):
        return Stream(name, None if place is None else place.stream(name))
    if place.connection is not None:
        raise BadArguments(
            f"the step at {place.key!r} is a transaction, and nobody sees what it writes before it is over: it cannot "
            "stream. Stream in a step without transaction=True"
        )
    return Stream(name, None if place.stream is None else place.stream(name))


def unfinished(name: str) -> Called[Salvaged | None]:
    """In agent code: the last text of a stream, if it did not come to its end and nobody is writing it; else None.

    For what no exception carries: a step that was cancelled, by a timeout around it, say.
    """
    return current("unfinished").unfinished(checked_stream(name))


def checked_stream(name: str) -> str:
    """The name itself, or `BadArguments` that says what one looks like."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadArguments(
            f"{name!r} cannot name a stream; use 1 to 200 letters, digits or any of '_ . : @ -', for example 'answer'"
        )
    return name
