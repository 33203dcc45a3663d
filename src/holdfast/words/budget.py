"""Budgets: what a run may spend, and what is left. Data and arithmetic only: no clock and no I/O.

A budget holds for a run and all below it. It bounds any of five things: money, tokens, calls of models, bodies of steps, and
the time since the run began. What people have granted on top is added to what was declared; of time, from the moment they
did so, because it goes on while they think.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeGuard

from holdfast.errors import BadArguments, BudgetExceeded
from holdfast.values.text import cut, is_whole, short
from holdfast.words.durations import LONGEST_S, Duration, seconds, spoken
from holdfast.words.people import checked_names
from holdfast.words.spent import NOTHING, Spent, count, dollars

AtLimit = Literal["ask", "fail"]
DIMENSIONS: Final = ("usd", "tokens", "model_calls", "steps", "wall")
# Of each; what is summed up to it is exact, and no database has to round it.
MOST: Final[dict[str, int]] = {
    "usd": 1_000_000_000,
    "tokens": 10**15,
    "model_calls": 10**12,
    "steps": 10**12,
    "wall": round(LONGEST_S),
}
_WHOLE: Final = ("tokens", "model_calls", "steps")


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on what a run and all runs below it may spend.

    When a limit is reached, no further body begins.

    Attributes:
        tokens: Tokens, of both directions.
        usd: Dollars.
        wall: The time since the run began, waits included.
        steps: Bodies of steps that ran, each attempt counted.
        model_calls: Calls of models.
        at_limit: "ask" asks a person for more; "fail" raises `BudgetExceeded` in the agent.
        soft: The part of a limit from which on `remaining().soft` is true, so that an agent can come to an end.
        to: The people who may grant more; anybody if there is none.

    Raises:
        BadArguments: Nothing is limited, or a number cannot be used.

    Example:
        ```python
        @holdfast.agent(budget=holdfast.Budget(usd=5, wall="2h", to="finance"))
        async def ponder(question: str) -> str:
            return await publish(question)
        ```
    """

    tokens: int | None = None
    usd: float | None = None
    wall: Duration | None = None
    steps: int | None = None
    model_calls: int | None = None
    at_limit: AtLimit = "ask"
    soft: float = 0.8
    to: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in _WHOLE:
            value = getattr(self, name)
            if value is not None and not is_whole(value, 1, MOST[name]):
                raise BadArguments(f"Budget({name}={short(value)}): use a whole number from 1 to {MOST[name]:,}")
        if self.usd is not None and not (_is_number(self.usd) and 0 < self.usd <= MOST["usd"]):
            told = f"use an amount of dollars above 0, such as 2.5, and at most {MOST['usd']:,}"
            raise BadArguments(f"Budget(usd={short(self.usd)}): {told}")
        object.__setattr__(self, "usd", None if self.usd is None else float(self.usd))
        if self.wall is not None:
            object.__setattr__(self, "wall", seconds(self.wall))
            if not self.limits()["wall"]:
                raise BadArguments(f"Budget(wall={self.wall!r}): use a time, such as '2h'")
        if self.at_limit not in ("ask", "fail"):
            raise BadArguments(f"Budget(at_limit={self.at_limit!r}): use 'ask' or 'fail'")
        if not _is_number(self.soft) or not 0 < self.soft <= 1:
            raise BadArguments(f"Budget(soft={short(self.soft)}): use a part of the whole, such as 0.8")
        if not self.limits():
            raise BadArguments(f"a budget limits something; use one or more of: {', '.join(DIMENSIONS)}")
        object.__setattr__(self, "to", tuple(checked_names(self.to)))

    def limits(self) -> dict[str, float]:
        """Return everything that is limited, and to how much; time in seconds."""
        found = {name: getattr(self, name) for name in DIMENSIONS}
        return {name: value for name, value in found.items() if value is not None}

    def published(self) -> dict[str, Any]:
        """Return plain data, for the store and for clients that start the agent without its code."""
        return {**self.limits(), "at_limit": self.at_limit, "soft": self.soft, "to": list(self.to)}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Budget:
        """Read a published budget. More than there can be, which was taken once, is the most that can be."""
        bounded = {name: min(data[name], most) for name, most in MOST.items() if data.get(name) is not None}
        return cls(**{**data, **bounded})

    @classmethod
    def seen(cls, text: str | None) -> Budget | None:
        """Read the budget of a row, for lists: a budget that cannot be read is None, and hides no other run."""
        try:
            return None if text in (None, "{}") else cls.of(json.loads(text or ""))
        except (BadArguments, ValueError, TypeError, AttributeError):
            return None

    @classmethod
    def parse(cls, text: str) -> Budget:
        """`usd=5,tokens=100000,wall=2h`, as it is typed."""
        given: dict[str, Any] = {}
        for part in text.split(","):
            name, equals, value = (word.strip() for word in part.partition("="))
            if not equals or name not in (*DIMENSIONS, "at_limit", "soft"):
                known = ", ".join((*DIMENSIONS, "at_limit", "soft"))
                raise BadArguments(f"{part!r} is no part of a budget; write usd=5,tokens=100000 with any of: {known}")
            try:
                given[name] = int(value) if name in _WHOLE else float(value) if name in ("usd", "soft") else value
            except ValueError:
                raise BadArguments(f"{name}={cut(value, 60)!r} in a budget must be a number") from None
        return cls(**given)


def checked_budget(budget: object) -> Budget | None:
    """The budget itself; `BadArguments` if it is none."""
    if budget is not None and not isinstance(budget, Budget):
        raise BadArguments(f"budget={budget!r}: use a Budget, such as Budget(usd=5, tokens=1_000_000)")
    return budget


@dataclass(frozen=True, slots=True)
class Remaining:
    """The rest of the budgets that hold here. None: that is not limited.

    Attributes:
        usd: Dollars that are left.
        tokens: Tokens that are left.
        model_calls: Calls of models that are left.
        steps: Bodies that are left.
        wall: Seconds that are left.
        soft: Most of one of them is spent.

    Example:
        ```python
        left = holdfast.remaining()
        found = await search("otters") if not left.soft else []
        ```
    """

    usd: float | None = None
    tokens: int | None = None
    model_calls: int | None = None
    steps: int | None = None
    wall: float | None = None
    soft: bool = False

    def __str__(self) -> str:
        return self.told(_usd)  # agents put this into prompts: the words of a run must not change under it

    def told(self, money: Callable[[float], str] = dollars) -> str:
        """Tell people what is left."""
        left = {name: getattr(self, name) for name in DIMENSIONS}
        said = [_amount(name, value, money) for name, value in left.items() if value is not None]
        return f"{', '.join(said)} left" if said else "no limit"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question for more that was put to people: how it stands, and what they gave."""

    id: str
    status: str
    yes: bool
    at: int | None
    by: str | None
    more: Mapping[str, Any]
    by_us: bool  # the run that looks waits for it
    note: str = ""


@dataclass(frozen=True, slots=True)
class Purse:
    """A budget that holds for a run, its own or one of a run above it, and how it stands."""

    run: str
    uid: str
    budget: Budget
    began: int
    spent: Spent
    asked: Sequence[Asked] = ()

    def limits(self) -> dict[str, float]:
        """The declared limits, with what people have added."""
        found = self.budget.limits()
        for each in self.asked:
            for name in found if each.yes else ():
                more = each.more.get(name)
                if _is_number(more) and more > 0:
                    late = (each.at or 0) - self.began if name == "wall" else 0
                    found[name] = round(max(found[name], late / 1000) + min(more, MOST[name]), 9)
        return found

    @property
    def in_force(self) -> Budget:
        """The budget with what people have added: what the run may spend now."""
        now = {name: min(int(limit) if name in _WHOLE else limit, MOST[name]) for name, limit in self.limits().items()}
        return Budget.of(self.budget.published() | now)

    def used(self, name: str, now: int, running: int = 0) -> float:
        """Return how much of a limit is used; of steps, with the steps that run now."""
        if name == "wall":
            return max(now - self.began, 0) / 1000
        return float(getattr(self.spent, name)) + (running if name == "steps" else 0)

    def over(self, now: int, running: int = 0) -> dict[str, float]:
        """The limits that are reached."""
        return {name: limit for name, limit in self.limits().items() if self.used(name, now, running) >= limit}

    def is_low(self, now: int) -> bool:
        """Is the soft limit passed?"""
        return any(self.used(name, now) >= limit * self.budget.soft for name, limit in self.limits().items())

    @property
    def open(self) -> Asked | None:
        """The question that people have not answered yet."""
        return next((each for each in self.asked if each.status == "open"), None)

    @property
    def denied(self) -> Asked | None:
        """The no that is the last word, if it was said."""
        decided = [each for each in self.asked if each.status == "decided"]
        return None if not decided or decided[-1].yes else decided[-1]

    def exceeded(self, now: int, running: int = 0) -> BudgetExceeded:
        """The exception that is raised when no more may be spent."""
        limit, denied = self.over(now, running), self.denied
        who = (
            "" if denied is None else f", and {denied.by} gives no more" + (f" ({denied.note})" if denied.note else "")
        )
        return BudgetExceeded(
            f"the budget of run {self.run!r} is spent{who}: {self.told(limit, now, running)}",
            run=self.run, budget=self.budget, spent=self.spent, limit=limit,
        )  # fmt: skip

    def told(self, names: Iterable[str], now: int, running: int = 0) -> str:
        """Tell people how the budget stands."""
        used, limits = {name: self.used(name, now, running) for name in names}, self.limits()
        return ", ".join(f"{_amount(name, used[name])} of {_amount(name, limits[name])}" for name in used)


def left(purses: Iterable[Purse], now: int) -> dict[str, Any]:
    """The rest of all budgets together, as an event notes it: the least of each, and until when there is time."""
    found: dict[str, Any] = {}
    for purse in purses:
        for name, limit in purse.limits().items():
            rest: float = round(limit - purse.used(name, now), 9 if name == "usd" else None)
            noted = name
            if name == "wall":
                noted, rest = "until", round(purse.began + limit * 1000)
            found[noted] = min(found.get(noted, rest), rest)
        if purse.is_low(now):
            found["soft"] = True
    return found


def remaining(noted: Mapping[str, Any], spent: Spent, now: int) -> Remaining:
    """Take what was spent since from what was noted."""

    def less(name: str) -> Any:
        if name not in noted:
            return None
        rest = noted[name] - getattr(spent, name)
        return max(round(rest, 9), 0.0) if name == "usd" else max(rest, 0)

    wall = max(noted["until"] - now, 0) / 1000 if "until" in noted else None
    return Remaining(less("usd"), less("tokens"), less("model_calls"), less("steps"), wall, noted.get("soft", False))


class Ledger:
    """A sum of what events of this life of a run have said was spent."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = NOTHING


class Bill:
    """Spending reported by a call's bodies, held until the event that ends the attempt records it.

    `purses` are the budgets that hold for it, as they stood when its last body was let in.
    """

    __slots__ = ("_before", "_ledger", "_said", "_since", "bodies", "purses", "spendings")

    def __init__(self) -> None:
        self.spendings: list[tuple[Spent, str | None]] = []  # each with its model
        self._said, self.bodies = 0, 0  # how many of them are in an event; bodies that ran since
        self._before = (0, 0)
        self.purses: Sequence[Purse] | None = None
        self._ledger: Ledger | None = None
        self._since = NOTHING

    def let_in(self, purses: Sequence[Purse], ledger: Ledger) -> None:
        """Note that a body may begin, under these budgets."""
        self.purses, self._ledger, self._since = purses, ledger, ledger.total

    def left(self, now: int) -> dict[str, Any]:
        """The rest of the budgets for the body."""
        return left(self.purses, now) if self.purses else {}

    def due(self, now: int) -> dict[str, Any]:
        """Return data for an event: what was spent since the last one, and what is left if there is a budget."""
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
            data["left"] = left([replace(purse, spent=purse.spent + since) for purse in self.purses], now)
        return data

    def take_back(self) -> None:
        """Take back what an event said that was not written: another one will say it."""
        self._said, self.bodies = self._before


def rebuilt(message: str, data: Any) -> BudgetExceeded:
    """The exception of a record."""
    try:
        budget, spent = Budget.of(data["budget"]), Spent.of(data["spent"])
        return BudgetExceeded(message, run=data["run"], budget=budget, spent=spent, limit=data["limit"])
    except (KeyError, TypeError, ValueError):  # written by another version
        return BudgetExceeded(message)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _usd(value: float) -> str:
    return f"{value:.2f} USD" if value >= 0.1 or not value else f"{value:.4g} USD"


def _amount(name: str, value: float, money: Callable[[float], str] = dollars) -> str:
    if name == "usd":
        return money(value)
    return spoken(value) if name == "wall" else count(round(value), name.replace("_", " ").removesuffix("s"))
