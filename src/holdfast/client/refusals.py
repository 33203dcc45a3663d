"""Tries that were refused, for the audit: counted, and written once a minute at most, so that nobody fills a disk with them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast.errors import HoldfastError
from holdfast.words.harmless import logger
from holdfast.words.people import SOMEONE

_EVERY_S: Final = 60.0
_MOST: Final = 20  # kinds of tries in that time that are told apart: of those with a name, and of all others
_log = logger("holdfast")


@dataclass(frozen=True, slots=True)
class Try:
    """A try that was refused, and why."""

    tried: str
    code: str
    by: str = SOMEONE.name
    via: str = ""
    run: str = ""
    address: str = ""
    token: str = ""  # its id, as it was said

    def row(self, count: int) -> tuple[str, str, str, dict[str, Any]]:
        """The run, the actor, the door and the data of a row of the audit."""
        data = {"tried": self.tried, "code": self.code, "count": count, "address": self.address, "token": self.token}
        return self.run, self.by, self.via, {name: value for name, value in data.items() if value}


class Refusals:
    """The refused tries of one client."""

    def __init__(self, write: Callable[[list[tuple[str, str, str, dict[str, Any]]]], Awaitable[None]]) -> None:
        self._write = write
        self._counts: Counter[Try] = Counter()
        self._next = 0.0
        self._over = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    def note(self, refused: Try) -> None:
        """Count it. The first is written at once, what comes after it with the rest of its minute."""
        known = refused.by != SOMEONE.name
        beside = sum((each.by != SOMEONE.name) == known for each in self._counts)
        if refused not in self._counts and beside >= _MOST:
            refused = Try("several things", "several", via=refused.via.partition(":")[0])
        self._counts[refused] += 1
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        while self._counts:
            try:
                async with asyncio.timeout(max(self._next - time.monotonic(), 0)):
                    await self._over.wait()
            except TimeoutError:
                pass
            self._next = time.monotonic() + _EVERY_S
            counts, self._counts = self._counts, Counter()
            try:
                await self._write([each.row(count) for each, count in counts.items()])
            except HoldfastError as error:
                _log.warning("%d refused tries are not in the audit: %s", counts.total(), error)

    async def close(self) -> None:
        """Write what there is."""
        if self._writing is not None:
            self._over.set()
            await self._writing
            self._over.clear()
