"""`holdfast tail ID --stream NAME`: the text as it comes; nothing else goes into a pipe. Marks are told beside it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

from holdfast.cli.signals import Stop
from holdfast.cli.view.console import INTERRUPTED, print_json, reader_is_gone, say, write
from holdfast.cli.view.read import existing, row_of
from holdfast.client.streams import Chunk, StreamInfo
from holdfast.values.text import size

_LOOK_S: Final = 1.0  # how often to look whether anybody still reads


async def follow(url: str | None, run: str, name: str, after: int, *, to_end: bool, as_json: bool) -> int:
    """The command; returns its exit code."""
    shown = _Shown(terminal=sys.stdout.isatty())
    async with existing(url) as hf:
        await row_of(hf, run)
        with Stop(lambda: None) as stop:
            async for chunk in _until(hf.get(run).stream(name, after, follow=to_end), stop):
                if as_json:
                    print_json(dataclasses.asdict(chunk), line=True)
                else:
                    shown.add(chunk)
            shown.end()
            return INTERRUPTED if stop.asked.is_set() else 0


async def _until(chunks: AsyncIterator[Chunk], stop: Stop) -> AsyncIterator[Chunk]:
    """Those that come before somebody stops us, or nobody reads any more."""
    asked: asyncio.Future[Any] = asyncio.ensure_future(stop.asked.wait())
    coming: asyncio.Future[Any] = asyncio.ensure_future(anext(chunks))
    try:
        while True:
            done, _ = await asyncio.wait([asked, coming], timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            if coming in done:
                try:
                    yield coming.result()
                except StopAsyncIteration:
                    return
                coming = asyncio.ensure_future(anext(chunks))
            elif done or reader_is_gone():
                return
    finally:
        for each in (asked, coming):
            each.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                await each


class _Shown:
    """Text on standard output. To a terminal goes nothing that could steer it."""

    def __init__(self, *, terminal: bool) -> None:
        self._terminal, self._last = terminal, ""

    def add(self, chunk: Chunk) -> None:
        if chunk.kind == "data":
            write(chunk.data, self._last)
            self._last = chunk.data[-1:] or self._last
        elif chunk.kind == "restart":
            self._tell(f"what is above is void ({chunk.reason}); it begins anew:")
        elif chunk.reason is not None:
            self._tell(f"it ended too early: {chunk.reason}")
        else:
            self.end()

    def _tell(self, what: str) -> None:
        self.end()
        say(f"[{what}]")

    def end(self) -> None:
        """On a terminal the next text, or the prompt, begins on a line of its own."""
        if self._terminal and self._last not in ("", "\n"):
            write("\n")
        self._last = ""


def stream_line(stream: StreamInfo) -> str:
    """A stream in a line."""
    state = "open" if not stream.ended else f"ended, {stream.reason}" if stream.reason else "ended"
    again = f", attempt {stream.attempt}" if stream.attempt > 1 else ""
    return f"stream {stream.name}: {size(stream.size_bytes)}, {state}{again}"
