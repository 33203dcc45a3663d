"""What every measurement needs: sizes, a folder on the disk under test, alternating rounds, and a row for the table."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
LONGEST_S = 900.0  # nothing may hang the whole


@dataclass(frozen=True)
class Bench:
    """How one whole run of the benchmarks is done."""

    folder: Path
    quick: bool = False

    def size(self, full: int, small: int) -> int:
        """The size to measure with, or the one of a smoke run."""
        return small if self.quick else full

    @contextmanager
    def place(self) -> Iterator[Path]:
        """A fresh folder on the disk under test, gone afterwards."""
        with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as folder:
            yield Path(folder)


@dataclass(frozen=True)
class Row:
    """One line of the table. Without `passed` it informs and has no target."""

    number: int
    what: str
    measured: str
    ratio: str = ""
    target: str = ""
    passed: bool | None = None


def alternating(rounds: int, **contestants: Callable[[], float]) -> dict[str, list[float]]:
    """Each contestant once per round, in turn, so that a noisy minute hits them all; the first in line changes."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            found[name].append(contestants[name]())
    return found


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Our value over theirs, round by round."""
    return [our / their for our, their in zip(ours, theirs, strict=True)]


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that so many percent do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-percent * len(ordered) // 100) - 1))]


def spread(values: Sequence[float], form: str = ",.0f", unit: str = "") -> str:
    """A median, and the least and greatest of all rounds."""
    low, high = format(min(values), form), format(max(values), form)
    return f"{format(median(values), form)}{unit} ({low}..{high})"


def latency(seconds: Sequence[float]) -> str:
    """p50, p99 and the number of samples, in milliseconds."""
    p50, p99 = (percentile(seconds, percent) * 1000 for percent in (50, 99))
    return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, n={len(seconds)}"


def finished(work: Coroutine[Any, Any, Any]) -> Any:
    """Run this on a loop of its own, with a limit."""

    async def limited() -> Any:
        async with asyncio.timeout(LONGEST_S):
            return await work

    return asyncio.run(limited())


def told_by(script: str, *arguments: object, killed: bool = False) -> dict[str, Any]:
    """Run one of our scripts in a new process; the JSON object on its last line (none if it is to kill itself)."""
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    if killed != (done.returncode == -9) or (not killed and done.returncode != 0):
        raise RuntimeError(f"{script} ended with {done.returncode}: {done.stderr[-2000:]}")
    lines = done.stdout.strip().splitlines()
    return json.loads(lines[-1]) if lines else {}
