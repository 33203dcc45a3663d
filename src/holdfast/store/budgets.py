"""The part of the contract with a database that has to do with money: what was spent, and what may be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from holdfast.words.budget import Purse
from holdfast.words.spent import Spent

BUDGET: Final = "budget"  # the key of questions for more; no call has such a key


class BudgetStore(Protocol):
    """Where spending is summed. It is never written by itself: appends sum what their events say (`data["spent"]`)."""

    async def spent(self, runs: Iterable[str]) -> dict[str, Spent]:
        """What each of these runs has spent with all below it, if it has spent anything."""
        ...

    async def spent_with_steps(self, runs: Iterable[str]) -> dict[str, Spent]:
        """The same; `steps` of a run that no budget holds for are those completed, in it and in all below it."""
        ...

    async def spent_by(self, run: str, limit: int = 10) -> list[tuple[str, Spent]]:
        """Which steps, by their names, have spent most of it."""
        ...

    async def purses(self, run: str) -> list[Purse]:
        """The budgets that hold for a run, its own and those above it, the nearest first, and how they stand."""
        ...
