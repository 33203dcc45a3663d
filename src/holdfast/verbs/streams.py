"""`stream`: text that is durable while it is written, and that others read as it comes."""

from __future__ import annotations

import asyncio
import re
from types import TracebackType
from typing import Final, Self

from holdfast.errors import BadArguments
from holdfast.runtime import Called, Outlet, StepContext, Unfinished, current, here
from holdfast.words.salvage import Salvaged

_NAME: Final = re.compile(r"[\w.:@-]{1,200}", re.ASCII)


class Stream:
    """A stream that is open for writing, made by `stream`.

    Example:
        ```python
        async with holdfast.stream("answer") as out:
            await out.write("Otters sleep.")
        ```
    """

    def __init__(self, name: str, outlet: Outlet | None) -> None:
        self.name, self._outlet, self._closed = name, outlet, False

    @property
    def salvaged(self) -> Salvaged | None:
        """Tell, in a step that runs again, what the attempt before had written and why it broke off; otherwise None."""
        return None if self._outlet is None else self._outlet.salvaged

    def keep(self) -> str:
        """Go on behind what was salvaged, instead of beginning anew; returns that text, or "". Call it before the first write.

        Example:
            ```python
            async with holdfast.stream("answer") as out:
                text = out.keep()
                await out.write("Otters sleep."[len(text):])
            ```
        """
        if self._outlet is None or self._outlet.salvaged is None:
            return ""
        self._outlet.keep()
        return self._outlet.salvaged.text

    async def write(self, text: str) -> None:
        """Write more text. It is durable soon, and before anything that is recorded later.

        In a step it waits only for a store that is far behind; in agent code it never waits.

        Raises:
            BadArguments: It is no text; decode bytes first.

        Example:
            ```python
            async with holdfast.stream("answer") as out:
                await out.write("Otters ")
                await out.write("sleep.")
            ```
        """
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
    """Open a stream: text that others read while it is written. In agents and steps; outside a run it goes nowhere.

    The name belongs to the run. In a step that runs again, `salvaged` is what was written before.

    Raises:
        BadArguments: The name cannot be used, or the step is a transaction.

    Example:
        ```python
        async with holdfast.stream("answer") as out:
            await out.write("Otters sleep.")
        ```
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
    """Find, in agent code, the last text of a stream if it did not come to its end and nobody is writing it; else None.

    For what no exception carries, such as the text of a step that a timeout around it cancelled.

    Raises:
        BadArguments: The name cannot be used.

    Example:
        ```python
        left = await holdfast.unfinished("answer")
        ```
    """
    return current("unfinished").call(Unfinished(checked_stream(name)))


def checked_stream(name: str) -> str:
    """The name itself, or `BadArguments` that says what one looks like."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadArguments(
            f"{name!r} cannot name a stream; use 1 to 200 letters, digits or any of '_ . : @ -', for example 'answer'"
        )
    return name
