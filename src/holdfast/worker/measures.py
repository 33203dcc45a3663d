"""Measures of one worker: plain numbers, counted where things happen and read by metrics and health checks.

Nothing here is global and nothing needs a library, so counting costs a few additions. Everything is changed on the
worker's loop, except commits, which the store's writer tells one at a time, and heartbeats and hangs, which have one
thread each. Reading needs no lock: each number is read whole, and two of them may be a moment apart.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.words.model import RunRow
from holdfast.words.spent import NOTHING, Spent

STEP_BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
COMMIT_BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
LATE_BOUNDS_S: Final = (0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 3_600, 86_400)
BATCH_BOUNDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000)


class Histogram:
    """Counts of how often a number fell below each bound."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.total = 0.0
        self._counts = [0] * (len(bounds) + 1)  # the last one: above every bound

    def add(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """Count the numbers that there were."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, int]]:
        """(bound, how many numbers up to it), the last bound being infinity."""
        sum_, found = 0, []
        for bound, count in zip((*(str(float(bound)) for bound in self.bounds), "+Inf"), self._counts, strict=True):
            sum_ += count
            found.append((bound, sum_))
        return found


class Measures:
    """The numbers of one worker, since it began."""

    def __init__(self) -> None:
        self.claimed = 0  # runs
        self.taken_over = 0  # of these, that another worker had left in the middle
        self.recovered = 0  # runs of dead workers that this one made due at once
        self.begun = 0  # runs that schedules began here
        self.missed = 0  # times of schedules that began no run
        self.late = Histogram(LATE_BOUNDS_S)  # seconds after which the first of them began that were due together
        self.deliveries: Counter[tuple[str, str]] = Counter()  # by trigger and how: done, failed or dead
        self.delivered = Histogram(LATE_BOUNDS_S)  # seconds from when a delivery came until its actions were applied
        self.connected: dict[str, bool] = {}  # by trigger: is there a connection to its broker
        self.away: dict[str, int] = {}  # by trigger: since when its broker is away, in ms
        self.lag: dict[str, int] = {}  # by trigger: messages that wait with its broker
        self.left: Counter[str] = Counter()  # runs that left memory, by how: ended, parked, released, paused, lost
        self.finished: Counter[tuple[str, str]] = Counter()  # runs that ended here, by agent and status
        self.spent: dict[str, Spent] = {}  # what bodies said, by agent
        self.steps: dict[str, Histogram] = {}  # seconds of each attempt, by how it ended
        self.commits = Histogram(COMMIT_BOUNDS_S)
        self.batches = Histogram(BATCH_BOUNDS)
        self.heartbeats = 0
        self.hung_s = 0.0
        self._heard_at = time.monotonic()

    def claim(self, runs: Iterable[RunRow]) -> None:
        """Count claimed runs. Crashes count from the last progress, so a run that has any was left by another owner."""
        for run in runs:
            self.claimed += 1
            self.taken_over += run.crash_count > 0
            self._heard_at = time.monotonic()

    def begin(self, runs: int, missed: int, late_s: float) -> None:
        """Schedules began runs, the first of them so late, and missed times."""
        self.begun += runs
        self.missed += missed
        if runs:
            self.late.add(late_s)

    def deliver(self, trigger: str, how: str, after_s: float | None) -> None:
        """Count a delivery that was mapped and applied, so long after it came; or that failed."""
        self.deliveries[trigger, how] += 1
        if after_s is not None:
            self.delivered.add(after_s)

    def body(self, how: str, seconds: float) -> None:
        """The body of a step ran, and ended like this."""
        histogram = self.steps.get(how)
        if histogram is None:
            histogram = self.steps[how] = Histogram(STEP_BOUNDS_S)
        histogram.add(seconds)

    def spend(self, agent: str, spendings: Iterable[Spent]) -> None:
        """Bodies of runs of this agent spent so much."""
        self.spent[agent] = sum(spendings, self.spent.get(agent, NOTHING))

    def commit(self, operations: int, seconds: float) -> None:
        """The store committed."""
        self.batches.add(operations)
        self.commits.add(seconds)

    def heartbeat(self) -> None:
        """The store said which leases are still ours."""
        self.heartbeats += 1
        self._heard_at = time.monotonic()

    def hang(self, seconds: float) -> None:
        """The loop did not turn for so long, or for so much longer than when this was last said."""
        self.hung_s += seconds

    @property
    def heartbeat_age_s(self) -> float:
        """Seconds since the store last said that leases are ours: by a heartbeat, or by a claim."""
        return time.monotonic() - self._heard_at
