"""What a process takes for the database's time, from what it asked and was told. Without a database."""

from __future__ import annotations

import random
import time

import pytest

from holdfast.store.postgres.clock import DatabaseClock

AHEAD_MS = 5_000_000  # the database's clock, against our steady one


class Ways:
    """Questions and answers that take their time, beside two clocks that run apart by `drift`."""

    def __init__(self, drift: float = 0.0) -> None:
        self.clock, self.s, self.ahead_ms, self._drift = DatabaseClock(), time.monotonic(), float(AHEAD_MS), drift

    def wait(self, seconds: float) -> None:
        self.s += seconds
        self.ahead_ms += seconds * 1000 * self._drift

    def ask(self, there_s: float, back_s: float) -> None:
        asked_s = self.s
        self.wait(there_s)
        told = int(self.s * 1000 + self.ahead_ms)
        self.wait(back_s)
        self.clock.learn(asked_s, told, self.s)

    @property
    def fast_ms(self) -> float:
        """By how much the clock is ahead of the database's."""
        return self.clock._ahead_ms - self.ahead_ms


@pytest.mark.parametrize("drift", [-1e-4, 0.0, 1e-4])
def test_it_is_never_ahead_and_late_by_the_shortest_way_back(drift: float) -> None:
    """Whatever the ways take, and with clocks that run apart as far as those of computers do."""
    chance = random.Random(3)
    ways = Ways(drift)
    ways.ask(0.001, 0.001)
    for _ in range(500):
        ways.wait(chance.choice([0.1, 1, 10]))
        ways.ask(chance.choice([0.001, 0.3, 0.9, 5.0]), chance.choice([0.002, 0.3, 0.9]))
        assert -50 < ways.fast_ms <= 0.001


def test_a_better_way_is_believed_and_a_worse_one_is_not() -> None:
    ways = Ways()
    ways.ask(0.4, 0.4)
    assert -401.5 < ways.fast_ms <= -399.5
    ways.ask(0.4, 0.01)
    assert -11.5 < ways.fast_ms <= -9.5
    ways.ask(0.8, 0.2)
    assert -12 < ways.fast_ms <= -9.5


@pytest.mark.parametrize("step_ms", [-60_000, 60_000])
def test_a_clock_that_was_set_is_followed(step_ms: int) -> None:
    """What was known of it is refuted by the first answer after that."""
    ways = Ways()
    ways.ask(0.001, 0.001)
    ways.ahead_ms += step_ms
    ways.ask(0.2, 0.3)
    assert -302 < ways.fast_ms <= 0.001
