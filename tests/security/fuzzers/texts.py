"""What people and programs write in one line: URLs of stores, durations, rates, limits, moments."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.security.fuzzers.inputs import NUMBERS, WORDS, mangled, text

import holdfast
from holdfast.errors import BadArguments, HoldfastError, StoreUnavailable
from holdfast.http.connections import Limits
from holdfast.store.postgres.connection import parse_url as parse_postgres
from holdfast.store.sqlite.connection import parse_url as parse_sqlite
from holdfast.store.urls import store_at
from holdfast.words.durations import epoch_ms, milliseconds, past_ms, seconds, spoken
from holdfast.words.retry import asked_wait_s
from holdfast.words.urls import redacted, redacted_words, without_secrets

MOST_SAID = 6_000  # characters of a message


class Fixed(str):
    """A piece that stays as it is while the rest is made smaller."""

    __slots__ = ()


def refused(work: Any, *given: Any, by: tuple[type[Exception], ...] = (HoldfastError,)) -> tuple[Any, str]:
    """What it returns, or what it says when it refuses. Other errors are found by whoever calls."""
    try:
        return work(*given), ""
    except by as error:
        said = str(error)
        assert len(said) < MOST_SAID, f"a message of {len(said)} characters"
        return None, said


class Urls:
    """A password, wherever one may stand in a URL of a store: it is in nothing that is shown or said."""

    name = "urls"
    schemes = (
        "postgresql://", "postgres://", "POSTGRES://", "postgresql:", "postgresql+asyncpg://", "mysql://", "sqlite://", "//",
        "",
        " postgresql://", "pg://",
    )  # fmt: skip
    letters = "uab:/?#[]%@,&=. 1\t;\\'\"|\u00e9"

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def make(self, dice: random.Random) -> tuple[str, ...]:
        """The pieces of a URL, and the secret among them."""
        secret = Fixed("hunter" + "".join(dice.choices("abcdefgh23456789", k=8)))
        how = dice.choice(["user", "query", "words"])
        before, behind = (self._noise(dice, dice.choice([0, 0, 3, 12])) for _ in range(2))
        host = dice.choice(["h", "127.0.0.1", "[::1]", "h:5432", "a,b", "h:x", "", "[", "é", "h:99999", "[::1"])
        rest = dice.choice(
            ["/d", "", "/d?schema=s", "/d?sslmode=require", "?", "/d?statement_cache=0", "/d#f", "/d?a=%zz"]
        )
        rest = rest if dice.random() < 0.7 else self._noise(dice, 20)
        if how == "user":
            before = before.replace("//", "")  # which would be a scheme
            return Fixed(dice.choice(self.schemes)), Fixed("u:"), before, secret, behind, Fixed("@"), host, rest
        name = dice.choice(
            ["password", "PASSWORD", "passwd", "pwd", "sslpassword", "pass%77ord", "secret_token", "db.password"]
        )
        if how == "query":
            behind = "".join(letter for letter in behind if letter not in "&;\t #\n\r")  # which would end its value
            return (
                Fixed(dice.choice(self.schemes[:6])),
                "u@",
                host,
                Fixed("/d?"),
                Fixed(f"{name}="),
                secret,
                behind,
                "&schema=s",
            )
        return "host=", host, Fixed(" "), Fixed(f"{name}{dice.choice(['=', ' = ', '= '])}"), secret, " dbname=d"

    def _noise(self, dice: random.Random, most: int) -> str:
        return "".join(dice.choices(self.letters, k=dice.randint(0, most))) if dice.random() < 0.9 else text(dice)

    def check(self, case: tuple[str, ...]) -> None:
        url, secret = "".join(case), next(str(part) for part in case if part.startswith("hunter"))
        shown = redacted(url)
        told = {"shown": shown, "shown again": redacted(shown)}
        told["words"] = (
            redacted_words(f"open {url} now") if case[-3] == "@" and url.split() == [url] and "://" in url else ""
        )
        told["without"] = without_secrets(f"the driver says {url!s}", url)
        for name, work in (("sqlite", parse_sqlite), ("postgres", parse_postgres), ("store", store_at)):
            done, told[name] = refused(work, url, by=(BadArguments, StoreUnavailable))
            self.seen["parsed" if done is not None else "refused"] += 1
            for attribute in ("shown", "url"):
                told[f"{name}.{attribute}"] = str(getattr(done, attribute, ""))
        for name, said in told.items():
            assert secret not in said, f"the secret is in what is told: {name}"


class Durations:
    """Durations, rates, limits, moments: a value or an error of ours, in a time that grows with the text."""

    name = "durations"
    parts = (
        "1", "30", "1.5", "0", ".", "1e3", "s", "ms", "m", "h", "d", "w", "min", "days", "weeks", " ", ",", "-", "+", "/", "\u0661",
        "\n", "=", "60/m", "5/s", "address", "head", "connections", "2026-11-16", "T", "Z", "+01:00",
        "Mon, 16 Nov 2026 04:31:18 GMT",
    )  # fmt: skip

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def make(self, dice: random.Random) -> Any:
        how = dice.random()
        if how < 0.1:
            return dice.choice([*NUMBERS, 10**5000, float("nan"), float("inf"), True, None, [], b"1s", {}])
        if how < 0.15:
            return timedelta(dice.randint(-999999999, 999999999), dice.random() * 1e5)
        if how < 0.2:
            zone = dice.choice([None, UTC])
            return datetime(dice.choice([1, 1969, 1970, 2026, 9999]), 1, 1, tzinfo=zone)
        made = "".join(dice.choices(self.parts, k=dice.randint(0, 6))) if how < 0.9 else text(dice, 200)
        made = mangled(dice, made) if dice.random() < 0.3 else made
        return (
            (made * (1_000_000 // max(len(made), 1)))[: dice.choice([10_000, 1_000_000])]
            if dice.random() < 0.003
            else made
        )

    def check(self, case: Any) -> None:
        for name, work in (
            ("durations", seconds), ("durations", milliseconds), ("moments", epoch_ms),
            ("moments", lambda when: past_ms(when, 10**12)),
            ("rates", holdfast.Rate), ("rates", lambda every: holdfast.Rate(5, every=every)), ("limits", _limits),
            ("retries", lambda first: holdfast.Retry(3, first=first)),
        ):  # fmt: skip
            value, said = refused(work, case)
            self.seen[f"{name} {'refused' if said else 'taken'}"] += 1
            if work is seconds and not said:
                assert 0 <= value <= 100 * 365 * 86400.0
                assert spoken(value)
        if isinstance(case, str):
            assert asked_wait_s(_Busy(case)) is None or asked_wait_s(_Busy(case)) >= 0


def _limits(given: Any) -> Any:
    return Limits.parse(given) if isinstance(given, str) else None


class _Busy(Exception):
    """An answer of somebody else's server, with what its headers say."""

    def __init__(self, after: str) -> None:
        super().__init__()
        self.headers = {"retry-after": after, "retry-after-ms": after, "date": WORDS[-1]}
        self.status = 429
