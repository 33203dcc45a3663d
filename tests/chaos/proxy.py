"""A TCP proxy that cuts connections, all at once or each after a random number of bytes, or that is slow one way."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Line:
    """One connection."""

    left: int  # bytes until it is cut
    dead: bool = False  # open at both ends, and nothing passes


class Proxy:
    """Forwards to a port of the loopback interface. With `budget` each connection is reset within so many bytes."""

    def __init__(self, target: int, rng: random.Random) -> None:
        self._target, self._rng = target, rng
        self._open: dict[asyncio.StreamWriter, _Line] = {}
        self.budget: int | None = None
        self.there_s = self.back_s = 0.0  # what passes comes so much later
        self.cut = 0

    async def start(self) -> int:
        """Listen; returns the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        self._server.close()
        self.reset(1.0)

    def reset(self, share: float) -> None:
        """Cut this share of the open connections, without a goodbye."""
        for writer in list(self._open):
            if self._rng.random() < share:
                self._abort(writer)

    def swallow(self) -> None:
        """From now on nothing passes through the connections that are open, and nobody is told."""
        for line in self._open.values():
            line.dead = True

    def _abort(self, writer: asyncio.StreamWriter) -> None:
        if self._open.pop(writer, None) is not None:
            self.cut += 1
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        line = _Line(self._rng.randrange(200, self.budget) if self.budget is not None else 1 << 62)
        self._open[writer] = line
        try:
            await asyncio.gather(
                self._pump(reader, there, line, lambda: self.there_s),
                self._pump(there_reader, writer, line, lambda: self.back_s),
            )
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()
            there.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: _Line, late_s: Callable[[], float]
    ) -> None:
        while data := await reader.read(65536):
            if line.dead:
                continue
            if late_s():
                await asyncio.sleep(late_s())
            whole = len(data) <= line.left
            data, line.left = data[: line.left], line.left - len(data)
            writer.write(data)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            if not whole:  # in the middle of what was being said, in either direction
                self.cut += 1
                raise EOFError
        raise EOFError
