"""Hunting for faults: cases made from a seed, each tried, and the smallest that still shows what was found.

A case is made by a generator that is seeded with the seed of the hunt, the name of the target and the number of the case: so
every case can be made again alone. Time is processor time: on a busy machine a hunt finds less, and nothing that is not there.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import re
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

LONGEST_S = 1.0  # of processor time, for one case
STUCK_S = 10.0  # then it is not waited for any longer
LOST_S = 200.0  # then its process ends
SMALLER_S = 10.0  # for making what was found smaller
MOST_GROWTH = 64 << 20  # bytes, after a time to get warm
MOST_FINDINGS = 5
SHOWN = 2_000  # characters of an input


class Slow(AssertionError):
    """A case took too long."""


class Target(Protocol):
    """What is hunted in. `check` raises whatever is wrong; `seen` counts what became of cases."""

    name: str
    seen: Counter[str]

    def make(self, dice: random.Random) -> Any: ...

    def check(self, case: Any) -> None: ...


@dataclass
class Report:
    """What a hunt has found."""

    name: str
    seed: int
    cases: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    growth: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    findings: dict[str, str] = field(default_factory=dict)  # what is wrong -> the smallest input, and where
    told: str = ""
    table: dict[str, dict[int, int]] = field(default_factory=dict)  # of HTTP: by route, how many answers of each status

    def __str__(self) -> str:
        seen = ", ".join(f"{count} {what}" for what, count in sorted(self.seen.items()))
        told = f"{self.name}: {self.cases} cases in {self.seconds:.0f} s (seed {self.seed}), slowest {self.slowest:.3f} s, "
        told += f"grown by {self.growth / (1 << 20):.0f} MiB; {self.told}{'; ' if self.told else ''}{seen}"
        return "\n".join([told, *(f"FOUND {self.name}: {what}\n{shown}" for what, shown in self.findings.items())])


def dice_of(seed: int, name: str, number: int) -> random.Random:
    """The generator of one case."""
    return random.Random(f"{seed}/{name}/{number}")


def hunt(target: Target, seconds: float, seed: int) -> Report:
    """Try cases for so long."""
    report, began, number = Report(target.name, seed, seen=target.seen), time.monotonic(), 0
    warm_at, warm = began + max(seconds / 4, 10), 0
    with _watched():
        while (now := time.monotonic()) < began + seconds and len(report.findings) < MOST_FINDINGS:
            if now > warm_at:
                warm_at, warm = began + 2 * seconds, resident()
            faulthandler.dump_traceback_later(LOST_S, exit=True)  # stuck where no signal is heard
            for _ in range(50):
                case, number = target.make(dice_of(seed, target.name, number)), number + 1
                error, spent = tried(target, case)
                report.slowest = max(report.slowest, spent)
                if error is not None:
                    _told(report, target, case, number - 1, error)
        faulthandler.cancel_dump_traceback_later()
    report.cases, report.seconds = number, time.monotonic() - began
    if warm:
        report.growth = resident() - warm
        if report.growth > MOST_GROWTH:
            report.findings["memory grows"] = f"{report.growth >> 20} MiB in {report.cases} cases"
    return report


def tried(target: Target, case: Any) -> tuple[BaseException | None, float]:
    """What is wrong with a case, if something is, and the processor time that it took."""
    began = time.process_time()
    error: BaseException | None = None
    signal.setitimer(signal.ITIMER_PROF, STUCK_S)
    try:
        target.check(case)
    except Exception as found:
        error = found
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    spent = time.process_time() - began
    if error is None and spent > LONGEST_S and _least(target, case) > LONGEST_S:
        error = Slow(f"more than {LONGEST_S:g} s")
    return error, spent


def _least(target: Target, case: Any) -> float:
    """Once more: what took its time may have been an import, or the collector."""
    began = time.process_time()
    with contextlib.suppress(Exception):
        target.check(case)
    return time.process_time() - began


def _told(report: Report, target: Target, case: Any, number: int, error: BaseException) -> None:
    kind = kind_of(error)
    if kind in report.findings:
        return
    found, least = smallest(
        case, lambda smaller: (seen := tried(target, smaller)[0]) is not None and kind_of(seen) == kind
    )
    try:
        shown = repr(found)
    except ValueError:  # of a number of thousands of digits
        shown = f"something of {type(found).__name__} that has no text"
    trace = "".join(traceback.format_exception(error)[-4:])
    report.findings[kind] = f"case {number}, smallest input ({least} steps): {shown[:SHOWN]}\n{trace[-SHOWN:]}"


def kind_of(error: BaseException) -> str:
    """The same for findings that are the same: what was raised, and where."""
    frames = traceback.extract_tb(error.__traceback__)
    where = (
        f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames and not isinstance(error, Slow) else ""
    )
    said = re.sub(r"\d+", "N", str(error)[:100]) if isinstance(error, AssertionError) else ""
    return f"{type(error).__name__}{where}: {said}"


def smallest(case: Any, still: Callable[[Any], bool]) -> tuple[Any, int]:
    """The smallest case that still shows it, as far as it is found in time, and in how many steps."""
    steps, until = 0, time.monotonic() + SMALLER_S
    found = True
    while found and time.monotonic() < until:
        found = False
        for smaller in _smaller(case):
            if time.monotonic() > until:
                break
            if still(smaller):
                case, found, steps = smaller, True, steps + 1
                break
    return case, steps


def _smaller(case: Any) -> Iterator[Any]:
    """The case without a piece, the largest pieces first; then with one of its parts made smaller."""
    kind = type(case)
    if kind in (str, bytes, list):
        size = len(case)
        while size:
            for at in range(0, len(case), size):
                yield case[:at] + case[at + size :]
            size //= 2
    if kind is dict:
        for key in case:
            yield {name: part for name, part in case.items() if name != key}
        for key, part in case.items():
            yield from ({**case, key: less} for less in _smaller(part))
    if kind in (list, tuple):
        for at, part in enumerate(case):
            for less in _smaller(part):
                made = [*case[:at], less, *case[at + 1 :]]
                yield made if kind is list else tuple(made)
    if kind is int and abs(case) > 1:
        yield case // 2


@contextlib.contextmanager
def _watched() -> Iterator[None]:
    def stuck(*_: object) -> None:
        raise Slow(f"more than {STUCK_S:g} s")

    before = signal.signal(signal.SIGPROF, stuck)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def resident(pid: int | str = "self") -> int:
    """Bytes that a process has in memory; 0 where nobody tells."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
