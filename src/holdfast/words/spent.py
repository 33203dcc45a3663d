"""Spendings: amounts that are added up, and how people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from typing import Any, Final

NANOS: Final = 1_000_000_000  # parts of a dollar in which money is summed, so that sums are exact


@dataclass(frozen=True, slots=True)
class Spent:
    """An amount that was spent.

    Attributes:
        usd: Dollars, without calls that are `unpriced`.
        input_tokens: Tokens that models were given.
        output_tokens: Tokens that models returned.
        model_calls: Calls of models.
        unpriced: Calls of models whose price nobody knows.
        steps: Steps that completed; under a budget, bodies that ran.

    Example:
        ```python
        spent = (await run.info()).spent
        print(f"{spent.usd:.2f} USD, {spent.tokens} tokens")
        ```
    """

    usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    model_calls: int = 0
    unpriced: int = 0
    steps: int = 0

    @property
    def tokens(self) -> int:
        """Add up the tokens of both directions."""
        return self.input_tokens + self.output_tokens

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Spent:
        """Read the data of an event, which may say more."""
        return cls(**{name: data[name] for name in _FIELDS if name in data})

    @classmethod
    def from_row(cls, row: Sequence[int | None]) -> Spent:
        """Read what the store has summed, in the order of the fields."""
        usd, *rest = (number or 0 for number in row)
        return cls(usd / NANOS, *rest)

    def row(self) -> tuple[int, ...]:
        """Return it as the store sums it."""
        counts = self.input_tokens, self.output_tokens, self.model_calls, self.unpriced, self.steps
        return (round(self.usd * NANOS), *counts)

    def noted(self) -> dict[str, Any]:
        """Return it as an event says it: only what is not zero."""
        return {name: value for name, value in asdict(self).items() if value}

    def __add__(self, other: Spent) -> Spent:
        return Spent.from_row([one + more for one, more in zip(self.row(), other.row(), strict=True)])

    def __sub__(self, other: Spent) -> Spent:
        return Spent.from_row([one - less for one, less in zip(self.row(), other.row(), strict=True)])

    def __bool__(self) -> bool:
        return any(self.row())

    @property
    def cost(self) -> str:
        """The cost in words; empty if there is none."""
        said = [dollars(self.usd)] if self.usd else []
        said += [count(self.tokens, "token")] if self.tokens else []
        said += [f"{count(self.unpriced, 'model call')} of unknown price"] if self.unpriced else []
        return ", ".join(said)

    def __str__(self) -> str:
        return self.cost or count(self.steps, "step")


_FIELDS: Final = tuple(field.name for field in fields(Spent))
NOTHING: Final = Spent()


def dollars(value: float) -> str:
    """An amount of money; small ones with as many digits as they need."""
    return f"${value:,.2f}" if value >= 0.1 or not value else f"${Decimal(f'{value:.4g}'):f}"


def count(number: int, what: str) -> str:
    """A number of things."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
