"""Texts, numbers and documents that nobody would write, and small harm done to those that somebody would."""

from __future__ import annotations

import random
from typing import Any

WORDS = (
    "", " ", "a", "0", "-1", "1e999", "NaN", "null", "true", ".", "..", "-x", "--help", "%00", "%", "%2e%2e", "$", "$map",
    "$int",
    "../../etc/passwd", "' OR 1=1 --", '"', "\\", "\0", "\n", "\r\n", "\x1b[31m", "\x1b]0;x\x07", "\u202e", "\u200b", "\ufeff",
    "\ud800", "\udfff\ud800", "\U0001f600", "\u0660", "İ", "ß", "ﬀ", "e\u0301", "{}", "[]", "{0}", "%s", "<script>", "a" * 300,
    "group:x", "http:", "2026-11-16T00:00:00Z", "9" * 400, "1" * 5000, "\u0130" * 70, "1h30m", "a=b", "=", "&", ";", ",", ":",
    "@",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 7, 100, 101, 200, 999, 1000, 1001, 2**31, -(2**31), 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64,
    10**15,
    10**19, 10**400, 0.0, -0.0, 0.5, 1e-320, 1e308, -1e308, 1.5, 253402300800, 1e12,
)  # fmt: skip


def text(dice: random.Random, most: int = 12) -> str:
    """Some words and letters, in any order."""
    pieces = []
    for _ in range(dice.randint(0, 3)):
        if dice.random() < 0.5:
            pieces.append(dice.choice(WORDS))
        else:
            ranges = dice.choice(
                [(32, 126), (0, 31), (0x80, 0x24F), (0x600, 0x6FF), (0x2000, 0x206F), (0xD800, 0x10FFFF)]
            )
            pieces.append("".join(chr(dice.randint(*ranges)) for _ in range(dice.randint(1, most))))
    return "".join(pieces)


def document(dice: random.Random, depth: int = 4) -> Any:
    """A value that JSON has."""
    kind = dice.random()
    if depth == 0 or kind < 0.5:
        return dice.choice(
            [None, True, False, dice.choice(NUMBERS), dice.randint(-9, 9), dice.random(), text(dice), text(dice)]
        )
    if kind < 0.75:
        return [document(dice, depth - 1) for _ in range(dice.randint(0, 4))]
    names = [
        dice.choice(["a", "b", "kind", "value", "$map", "$of"]) if dice.random() < 0.7 else text(dice) for _ in range(4)
    ]
    return {name: document(dice, depth - 1) for name in names[: dice.randint(0, 4)]}


def nested(dice: random.Random) -> Any:
    """One that is deep."""
    made = document(dice, 1)
    for _ in range(dice.choice([20, 190, 197, 198, 199, 200, 201, 202, 300])):
        made = [made] if dice.random() < 0.5 else {"a": made}
    return made


def mutated(dice: random.Random, value: Any) -> Any:
    """The same with a part of it changed, taken out, put elsewhere or made another."""
    if isinstance(value, dict) and value and dice.random() < 0.8:
        name, made, how = dice.choice(list(value)), dict(value), dice.random()
        if how < 0.6:
            made[name] = mutated(dice, value[name])
        elif how < 0.75:
            del made[name]
        elif how < 0.9:
            made[mangled(dice, name) if isinstance(name, str) and dice.random() < 0.5 else text(dice)] = value[name]
        else:
            made[name] = dice.choice(list(value.values()))
        return made
    if isinstance(value, list) and value and dice.random() < 0.8:
        at, made, how = dice.randrange(len(value)), list(value), dice.random()
        if how < 0.6:
            made[at] = mutated(dice, value[at])
        elif how < 0.75:
            del made[at]
        else:
            made[at:at] = [value[dice.randrange(len(value))]] * dice.choice([1, 1, 2, 30])
        return made
    if isinstance(value, str) and dice.random() < 0.6:
        return mangled(dice, value)
    if isinstance(value, int | float) and dice.random() < 0.6:
        return dice.choice([*NUMBERS, value + 1, -value, str(value)[:100] if abs(value) < 10**400 else "1"])
    return nested(dice) if dice.random() < 0.05 else dice.choice([[value], {"a": value}, document(dice)])


MOST = 1 << 24  # characters: far more than any limit, and no gigabytes that the fuzzer itself would choke on


def mangled(dice: random.Random, given: str) -> str:
    """The same text with a piece of it cut out, doubled, moved, or another one put in."""
    at, end = sorted(dice.randint(0, len(given)) for _ in range(2))
    how = dice.random()
    if how < 0.25:
        return given[:at] + given[end:]
    if how < 0.4:
        return given[:end] + given[at:]
    if how < 0.5:
        return given[:end]
    if how < 0.6:
        other = dice.randint(0, len(given))
        return given[:at] + given[other : other + 9] + given[end:]
    if how < 0.7:
        times = dice.choice([2, 10, 100])
        return given[:at] + given[at:end] * max(1, min(times, MOST // max(1, end - at))) + given[end:]
    end = end if how < 0.8 else at
    return given[:at] + (dice.choice(WORDS) if dice.random() < 0.6 else chr(dice.randint(1, 0x17F))) + given[end:]
