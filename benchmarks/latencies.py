"""Waits of an otherwise idle process, each followed by one bare commit: how many commits' time is it?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

from measuring import Bench, Row, latency, percentile
from rates import Bare

import holdfast

TARGET_S = 0.003


class Waits:
    """What was measured, and beside it what the disk did at that time."""

    def __init__(self, folder: Path) -> None:
        self.seconds: list[float] = []
        self.commits: list[float] = []
        self._bare = Bare(folder, 4096)

    def add(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.commits.append(self._bare.commit())

    def close(self) -> None:
        self._bare.close()

    def row(self, number: int, what: str) -> Row:
        """A line of the table, with the target that all of them have."""
        times = f"{median(self.seconds) / median(self.commits):.1f} x a bare commit"
        passed = percentile(self.seconds, 50) < TARGET_S
        return Row(number, what, latency(self.seconds), times, f"p50 < {TARGET_S * 1000:g} ms", passed)


@asynccontextmanager
async def serving(
    bench: Bench, agent: Any, settings: holdfast.Settings | None = None
) -> AsyncIterator[tuple[holdfast.Client, Waits]]:
    """A store with a worker for this agent, and where to put the waits."""
    with bench.place() as folder:
        waits = Waits(folder)
        try:
            async with holdfast.open(f"sqlite:{folder / 'bench.db'}", agents=[agent], settings=settings) as hf:
                yield hf, waits
        finally:
            waits.close()
