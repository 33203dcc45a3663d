"""What the bodies of one call have spent: kept here until an event says it, the one that ends the attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from holdfast.words.budget import Purse, left
from holdfast.words.clock import Clock
from holdfast.words.spent import NOTHING, Spent


class Ledger:
    """What events of this life of a run have said was spent."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = NOTHING


class Bill:
    """One call's. `purses` are the budgets that hold for it, as they stood when its last body was let in."""

    __slots__ = ("_before", "_ledger", "_said", "_since", "bodies", "purses", "spendings")

    def __init__(self) -> None:
        self.spendings: list[tuple[Spent, str | None]] = []  # each with its model
        self._said, self.bodies = 0, 0  # how many of them are in an event; bodies that ran since
        self._before = (0, 0)
        self.purses: Sequence[Purse] | None = None
        self._ledger: Ledger | None = None
        self._since = NOTHING

    def let_in(self, purses: Sequence[Purse], ledger: Ledger) -> None:
        """A body may begin."""
        self.purses, self._ledger, self._since = purses, ledger, ledger.total

    def left(self, clock: Clock) -> dict[str, Any]:
        """What is left for the body."""
        return left(self.purses, clock.now()) if self.purses else {}

    def due(self, clock: Clock) -> dict[str, Any]:
        """For the data of an event: what was spent since the last one, and what is left if there is a budget."""
        self._before = (self._said, self.bodies)
        new = self.spendings[self._said :]
        if self.purses is None and not new:
            return {}
        spent = sum((each for each, _ in new), Spent(steps=0 if self.purses is None else self.bodies))
        self._said, self.bodies = self._said + len(new), 0
        if not spent:
            return {}
        models = sorted({model for _, model in new if model is not None})
        data: dict[str, Any] = {"spent": spent.noted() | ({"models": models} if models else {})}
        if self.purses and self._ledger is not None:
            self._ledger.total += spent
            since = self._ledger.total - self._since  # also by other calls of the run
            data["left"] = left([replace(purse, spent=purse.spent + since) for purse in self.purses], clock.now())
        return data

    def take_back(self) -> None:
        """The event was not written: another one will say it."""
        self._said, self.bodies = self._before
