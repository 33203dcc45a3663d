"""`holdfast tail`: events as they come, or the text of a stream; nothing else goes into a pipe. Marks are told beside it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

import click

from holdfast.cli.options import db_option, json_option, run_ids, stored, subcommand
from holdfast.cli.show import event_document
from holdfast.cli.signals import Stop, first
from holdfast.cli.stores import existing
from holdfast.cli.view.console import INTERRUPTED, console, print_json, reader_is_gone, say, write
from holdfast.cli.view.lines import line
from holdfast.client.client import Client
from holdfast.client.edge import Edge
from holdfast.client.streams import Chunk
from holdfast.words.events import is_quiet
from holdfast.words.model import FINISHED, Event

_LAST: Final = 20  # events shown before following all runs
_LOOK_S: Final = 1.0  # how often to look whether anybody still reads


@subcommand()
@click.argument("run", metavar="[ID]", required=False, shell_complete=run_ids, callback=stored)
@click.option("--after", type=click.IntRange(0), help="Begin after this position (without ID) or this many events.")
@click.option("--no-follow", is_flag=True, help="Print what there is and stop.")
@click.option("--stream", metavar="NAME", help="Print what the run writes to this stream; --after is an offset then.")
@db_option
@json_option
async def tail(
    run: str | None, after: int | None, no_follow: bool, stream: str | None, db: str | None, as_json: bool
) -> int:
    """Follow the events of a run or of all, or a stream."""
    if stream is not None and run is None:
        raise click.UsageError("--stream: name the run whose stream it is")
    async with existing(db) as hf:
        if run is not None:
            await Edge(hf).row(run)
        with Stop(lambda: None) as stop:
            if run is not None and stream is not None:
                await _print_stream(hf, run, stream, after or 0, stop, follow=not no_follow, as_json=as_json)
            else:
                await _print_events(Edge(hf), run, after, stop, follow=not no_follow, as_json=as_json)
            return INTERRUPTED if stop.asked.is_set() else 0


# Events


async def _print_events(
    edge: Edge, run: str | None, after: int | None, stop: Stop, *, follow: bool, as_json: bool
) -> None:
    on = console()
    width = on.width if on.is_terminal else None
    async for event in _events(edge, run, after, stop, follow=follow):
        if as_json:
            print_json(event_document(event), line=True)
        elif not is_quiet(event):
            on.print(line(event, width=width, run=run is None), soft_wrap=True)
            on.file.flush()


async def _events(edge: Edge, run: str | None, after: int | None, stop: Stop, *, follow: bool) -> AsyncIterator[Event]:
    """Read events of one run, or of all: first the recorded ones, then new ones as they come."""
    if run is None and after is None:
        after = max(await edge.last_position() - _LAST, 0) if follow else 0
    seen, heard = after or 0, edge.changes()
    while True:
        heard.clear()
        row = await edge.row(run) if run is not None else None
        page = await edge.events(run, seen)
        for event in page:
            seen = event.position if run is None else event.seq + 1
            yield event
        if page:
            if stop.asked.is_set():
                return
            continue
        if not follow or (row is not None and row.status in FINISHED) or reader_is_gone():
            return
        if await first(stop, heard, _LOOK_S):
            return


# A stream


async def _print_stream(
    hf: Client, run: str, name: str, after: int, stop: Stop, *, follow: bool, as_json: bool
) -> None:
    shown = _Shown(terminal=sys.stdout.isatty())
    async for chunk in _until(hf.get(run).stream(name, after, follow=follow), stop):
        if as_json:
            print_json(dataclasses.asdict(chunk), line=True)
        else:
            shown.add(chunk)
    shown.end()


async def _until(chunks: AsyncIterator[Chunk], stop: Stop) -> AsyncIterator[Chunk]:
    """Pass on the chunks that come before the user stops us, or the reader is gone."""
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
        """End the line on a terminal, so that the next text, or the prompt, begins on one of its own."""
        if self._terminal and self._last not in ("", "\n"):
            write("\n")
        self._last = ""
