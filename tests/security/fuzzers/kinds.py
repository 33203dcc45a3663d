"""Annotations made from a grammar, each with a way to make values of it."""

from __future__ import annotations

import dataclasses
import enum
import functools
import ipaddress
import random
import string
import typing
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
from tests.security.fuzzers.inputs import NUMBERS, text
from typing_extensions import TypedDict  # which pydantic needs before Python 3.12

from holdfast.errors import NotStorable
from holdfast.values.codec import shape_of

T = TypeVar("T")
U = TypeVar("U")
Make = Callable[[random.Random], Any]
ZONES = (
    None,
    UTC,
    timezone(timedelta(hours=-3, seconds=7)),
    timezone(timedelta(hours=1), "CET"),
    ZoneInfo("Europe/Berlin"),
)


class Color(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    YES = "yes"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Box(pydantic.BaseModel, Generic[T]):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    inside: T
    label: str = "box"


@dataclasses.dataclass
class Pair(Generic[T, U]):
    left: T
    right: U


class Point(NamedTuple):
    x: int
    label: str = "p"


class Tree(pydantic.BaseModel):
    value: int = 0
    children: list[Tree] = []


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    name: str | None = None


@dataclasses.dataclass(frozen=True)
class Money:
    amount: Decimal
    currency: str = "EUR"


def _tree(dice: random.Random, depth: int = 3) -> Tree:
    children = [_tree(dice, depth - 1) for _ in range(dice.randint(0, 2))] if depth else []
    return Tree(value=dice.randint(0, 9), children=children) if dice.random() < 0.7 else Tree(children=children)


def _integer(dice: random.Random) -> int:
    return (
        dice.choice([each for each in NUMBERS if isinstance(each, int)])
        if dice.random() < 0.3
        else dice.randint(-99, 99)
    )


def _float(dice: random.Random) -> float:
    return (
        dice.choice([float("nan"), float("inf"), -0.0, 1e308, 5e-324])
        if dice.random() < 0.3
        else dice.uniform(-1e6, 1e6)
    )


def _moment(dice: random.Random) -> datetime:
    after = timedelta(seconds=dice.randrange(315537897600), microseconds=dice.choice([0, dice.randrange(10**6)]))
    at = datetime.min.replace(tzinfo=UTC) + after
    return at.replace(tzinfo=dice.choice(ZONES), fold=dice.choice([0, 0, 1]))


def _decimal(dice: random.Random) -> Decimal:
    # Not the largest exponent that there is: each reading of it takes a fifth of a second (`test_forged`), and a case has many.
    return Decimal(dice.choice(["0", "-0", "1.00", "1E+3", "NaN", "Infinity", "1E-99999", str(dice.uniform(-9, 9))]))


class Kind(NamedTuple):
    """An annotation, a way to make values of it, and whether they can be members of a set."""

    annotation: Any
    make: Make
    hashable: bool = False

    def text(self, dice: random.Random) -> str | None:
        """The text of one of its values, if that can be stored."""
        try:
            return shape_of(self.annotation).store(self.make(dice))[0]
        except NotStorable:
            return None

    def schema(self) -> dict[str, Any]:
        """What an agent publishes of it."""
        return _schema(self)


@functools.lru_cache(maxsize=1000)
def _schema(kind: Kind) -> dict[str, Any]:
    try:
        return shape_of(kind.annotation).schema()
    except NotStorable:
        return {}


ATOMS = (
    Kind(int, _integer, True), Kind(str, text, True), Kind(bool, lambda dice: dice.random() < 0.5, True),
    Kind(float, _float, True),
    Kind(bytes, lambda dice: dice.randbytes(dice.randint(0, 9)), True), Kind(datetime, _moment, True),
    Kind(date, lambda dice: _moment(dice).date(), True), Kind(time, lambda dice: _moment(dice).timetz(), True),
    Kind(timedelta, lambda dice: timedelta(dice.randint(-999999999, 999999998), dice.random() * 86400), True),
    Kind(Decimal, _decimal, True), Kind(UUID, lambda dice: UUID(int=dice.getrandbits(128)), True),
    Kind(None, lambda _: None, True),
    Kind(complex, lambda dice: complex(_float(dice), _float(dice)), True),
    Kind(Color, lambda dice: dice.choice(list(Color)), True),
    Kind(Level, lambda dice: dice.choice(list(Level)), True), Kind(Word, lambda _: Word.YES, True),
    Kind(Rights, lambda dice: Rights(dice.randint(0, 3)), True),
    Kind(Literal["a", 1], lambda dice: dice.choice(["a", 1]), True),
    Kind(Point, lambda dice: Point(_integer(dice), text(dice)), True), Kind(Tree, _tree),
    Kind(Money, lambda dice: Money(_decimal(dice)), False), Kind(Any, lambda dice: _anything(dice, 3)),
    Kind(ipaddress.IPv4Address, lambda dice: ipaddress.IPv4Address(dice.getrandbits(32)), True),
    Kind(PurePosixPath, lambda dice: PurePosixPath("/".join("ab.."[: dice.randint(0, 4)])), True),
    Kind(Annotated[int, pydantic.Field(ge=0)], lambda dice: dice.randint(0, 2**70), True),
    Kind(Annotated[str, pydantic.StringConstraints(max_length=9)], lambda dice: text(dice)[:9], True),
    Kind(Annotated[Cat | Dog, pydantic.Field(discriminator="kind")],
         lambda dice: Cat() if dice.random() < 0.5 else Dog(kind="dog", name=text(dice))),
    Kind(bytearray, lambda dice: bytearray(dice.randbytes(3))),
)  # fmt: skip


def _anything(dice: random.Random, depth: int) -> Any:
    """A plain value of any kind."""
    if depth == 0 or dice.random() < 0.5:
        return dice.choice(ATOMS[:13]).make(dice)
    parts = [_anything(dice, depth - 1) for _ in range(dice.randint(0, 3))]
    flat = [_anything(dice, 0) for _ in parts]
    return dice.choice([parts, tuple(parts), {"$" + name: part for name, part in zip("abc", parts, strict=False)},
                        set(flat), frozenset(flat), dict(zip(flat, parts, strict=True))])  # fmt: skip


class Kinds:
    """So many annotations of a seed: types take memory that is never given back, so there is an end of them."""

    def __init__(self, seed: int, most: int) -> None:
        self._seed, self._most, self._made = seed, most, dict[int, Kind]()

    def one(self, dice: random.Random) -> Kind:
        """One of them."""
        number = dice.randrange(self._most)
        if number not in self._made:
            own = random.Random(f"kind {self._seed} {number}")
            self._made[number] = self._kind(own, own.randint(0, 4), number)
        return self._made[number]

    def _kind(self, dice: random.Random, depth: int, number: int, hashable: bool = False) -> Kind:
        if depth == 0:
            return dice.choice([each for each in ATOMS if each.hashable or not hashable])
        one, other = (self._kind(dice, depth - 1, number, hashable) for _ in range(2))
        key = self._kind(dice, dice.randint(0, 1), number, hashable=True)
        if hashable:
            return dice.choice([
                Kind(tuple[one.annotation, other.annotation], lambda d: (one.make(d), other.make(d)), True),
                Kind(frozenset[key.annotation], lambda d: frozenset(_row(d, key)), True), _either(one, other, True),
            ])  # fmt: skip
        fields = {
            name: self._kind(dice, dice.randint(0, depth - 1), number)
            for name in dice.sample(string.ascii_lowercase, 3)
        }
        return dice.choice([
            lambda: Kind(list[one.annotation], lambda d: _row(d, one)),
            lambda: Kind(Sequence[one.annotation], lambda d: d.choice([list, tuple])(_row(d, one))),
            lambda: Kind(deque[one.annotation], lambda d: deque(_row(d, one))),
            lambda: Kind(set[key.annotation], lambda d: set(_row(d, key))),
            lambda: Kind(dict[key.annotation, one.annotation], lambda d: {each: one.make(d) for each in _row(d, key)}),
            lambda: Kind(Mapping[str, one.annotation], lambda d: {each: one.make(d) for each in _row(d, ATOMS[1])}),
            lambda: Kind(tuple[one.annotation, ...], lambda d: tuple(_row(d, one))),
            lambda: Kind(tuple[one.annotation, other.annotation], lambda d: (one.make(d), other.make(d))),
            lambda: _either(one, other), lambda: _either(one, ATOMS[11]), lambda: _either(_model(dice, fields, number), one),
            lambda: Kind(Box[one.annotation], lambda d: Box[one.annotation].model_construct(inside=one.make(d))),
            lambda: Kind(Pair[one.annotation, other.annotation], lambda d: Pair(one.make(d), other.make(d))),
            lambda: _model(dice, fields, number), lambda: _dataclass(dice, fields, number),
            lambda: _typed_dict(dice, fields, number),
            lambda: Kind(Counter[str], lambda d: Counter(_row(d, ATOMS[1]))),
        ])()  # fmt: skip


def _row(dice: random.Random, kind: Kind) -> list[Any]:
    return [kind.make(dice) for _ in range(dice.choice([0, 1, 2, 5]))]


def _either(one: Kind, other: Kind, hashable: bool = False) -> Kind:
    return Kind(typing.Union[one.annotation, other.annotation], lambda d: d.choice([one, other]).make(d), hashable)  # noqa: UP007


def _some(dice: random.Random, fields: dict[str, Kind], optional: set[str]) -> dict[str, Any]:
    """Values of the fields; of those that have a default, perhaps none."""
    return {name: kind.make(dice) for name, kind in fields.items() if name not in optional or dice.random() < 0.7}


def _model(dice: random.Random, fields: dict[str, Kind], number: int) -> Kind:
    optional = {name for name in fields if dice.random() < 0.4}
    made = {name: (kind.annotation, kind.make(dice) if name in optional else ...) for name, kind in fields.items()}
    extra = dice.choice(["forbid", "ignore", "allow"])
    config = pydantic.ConfigDict(
        arbitrary_types_allowed=True, extra=extra, frozen=dice.random() < 0.3, validate_default=False
    )
    model = pydantic.create_model(f"Model{number}", __config__=config, **made)
    return Kind(model, lambda d: model.model_construct(**_some(d, fields, optional)))


def _dataclass(dice: random.Random, fields: dict[str, Kind], number: int) -> Kind:
    optional = {name for name in fields if dice.random() < 0.4}
    parts = [
        (name, kind.annotation, dataclasses.field(default_factory=functools.partial(_again, kind, dice.random())))
        if name in optional
        else (name, kind.annotation)
        for name, kind in fields.items()
    ]
    made = dataclasses.make_dataclass(f"Data{number}", parts, kw_only=True, slots=dice.random() < 0.3)
    return Kind(made, lambda d: made(**_some(d, fields, optional)))


def _again(kind: Kind, seed: float) -> Any:
    return kind.make(random.Random(seed))


def _typed_dict(dice: random.Random, fields: dict[str, Kind], number: int) -> Kind:
    total = dice.random() < 0.5
    kind = TypedDict(f"Dict{number}", {name: each.annotation for name, each in fields.items()}, total=total)
    return Kind(kind, lambda d: _some(d, fields, set() if total else set(fields)))
