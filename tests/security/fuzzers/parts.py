"""Inputs as events tell them, forged: reading one gives a value or says that it is damaged, soon and within bounds."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

from holdfast.errors import NotStorable
from holdfast.values.parts import Memory, bases, digest_of, expanded, filled, needed, parsed

LONG = "x" * 300
TEXTS = [json.dumps(LONG), json.dumps([LONG[:100], {"$part": digest_of(json.dumps(LONG))}]), "{}", "[1,2]"]
PARTS = {digest_of(text): text for text in TEXTS}
EVENTS = 6


class Parts:
    """Six events whose inputs name each other, parts and values in every right and wrong way."""

    name = "parts"

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def make(self, dice: random.Random) -> tuple[list[Any], list[str]]:
        """The inputs of each event, and the value of each."""
        values = [dice.choice([json.dumps(LONG), json.dumps({"a": [LONG, 1]}), "null", "3"]) for _ in range(EVENTS)]
        return [_told(dice, seq, 0) for seq in range(EVENTS)], values

    def check(self, case: tuple[list[Any], list[str]]) -> None:
        told, values = case
        inputs = dict(enumerate(told))
        for seq in inputs:
            try:
                text = _read(seq, inputs, values)
            except NotStorable:
                self.seen["refused"] += 1
            else:
                self.seen["read"] += 1
                json.loads(text)
        memory = Memory()
        memory.saw(0, None, values[0])
        assert json.loads(json.dumps(memory.tell(json.dumps({"a": [LONG] * 5})).tree))


def _read(seq: int, inputs: dict[int, Any], values: list[str]) -> str:
    bases(inputs[seq])
    tree, known = expanded(seq, inputs[seq], inputs), dict[str, Any]()
    while lacking := needed(tree, known).parts & PARTS.keys() - known.keys():
        known |= {digest: parsed(digest, PARTS[digest]) for digest in lacking}
    wanted = needed(tree, known).values
    return filled(tree, known, {n: json.loads(values[n]) for n in wanted if 0 <= n < len(values)})


def _told(dice: random.Random, seq: int, depth: int) -> Any:
    kind = dice.choice(
        ["atom", "text", "list", "dict", "part", "value", "told", "told", "odd"] if depth < 5 else ["atom"]
    )
    if kind == "atom":
        return dice.choice([0, -1, 1.5, None, True, "", "$part", 2**70])
    if kind == "text":
        return LONG
    if kind == "list":
        return [_told(dice, seq, depth + 1) for _ in range(dice.randint(0, 4))]
    if kind == "part":
        return {"$part": dice.choice([*PARTS, "A" * 22, 3, None, "../x", []])}
    if kind == "value":
        return {"$value": dice.choice([[0], [1, "a"], [1, "a", 0], [-1], [99], [], "x", [None], [0, "b"], [0, {}]])}
    if kind == "told":
        return {"$list": [_piece(dice, seq, depth) for _ in range(dice.randint(0, 4))]}
    if kind == "odd":
        return {dice.choice(["$list", "$part", "$value", "+", "$spread"]): _told(dice, seq, depth + 1)}
    return {dice.choice("abc$"): _told(dice, seq, depth + 1) for _ in range(dice.randint(0, 4))}


def _piece(dice: random.Random, seq: int, depth: int) -> Any:
    other = dice.choice([max(seq - 1, 0), 0, seq, seq + 1, -1, 99, None])
    bounds = dice.choice([[0, 1], [0, 9], [2, 1], [-1, 2], [0, 2**40], ["a", 1], [0]])
    path = dice.choice([[], [[]], [["a"]], [["a", 0]], [["b", {}]], ["a"], [None]])
    new = dice.choice([[_told(dice, seq, depth + 1)], {"$part": dice.choice([*PARTS])}, 3])
    return dice.choice(
        [[other, *bounds, *path], [other, *bounds, *path], [other], [other, "a"], {"+": new}, {}, "x", []]
    )
