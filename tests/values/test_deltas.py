"""Deltas: a state told by what changed in it is the same state again, to the letter."""

import json
import random

import pytest

from holdfast.errors import NotStorable
from holdfast.values.deltas import LEAST, Chain, delta, whole

LONG = ["a line of an order"] * 200


def text(value):
    return json.dumps(value, separators=(",", ":"))


CHANGES = {
    "a number": ({"total": 1, "lines": LONG}, {"total": 2, "lines": LONG}),
    "nothing": ({"lines": LONG}, {"lines": LONG}),
    "a line more": ({"lines": LONG}, {"lines": [*LONG, "new"]}),
    "a line fewer, in the middle": ({"lines": LONG}, {"lines": LONG[:-1]}),
    "a line in front": ({"lines": LONG}, {"lines": ["new", *LONG]}),
    "an element": ({"lines": LONG}, {"lines": [*LONG[:50], {"new": 1}, *LONG[51:]]}),
    "deep": ({"a": {"b": [{"c": 1, "d": LONG}]}}, {"a": {"b": [{"c": 2, "d": LONG}]}}),
    "a name more, a name fewer": ({"a": 1, "lines": LONG}, {"lines": LONG, "b": {"c": []}}),
    "truth is no number": ({"a": 1, "lines": LONG}, {"a": True, "lines": LONG}),
    "a whole is no fraction": ({"a": [1, 2], "lines": LONG}, {"a": [1.0, 2], "lines": LONG}),
    "a sign": ({"a": 0.0, "lines": LONG}, {"a": -0.0, "lines": LONG}),
    "a marked value": ({"at": {"$decimal": "1.0"}, "lines": LONG}, {"at": {"$decimal": "1.00"}, "lines": LONG}),
    "no ascii": ({"a": "", "lines": LONG}, {"a": "\u00e4\U0001f9a6\u0000\ud800", "lines": LONG}),
    "a list": (LONG, [*LONG, "new"]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_told_in_a_few_characters_and_read_back(name):
    old, new = map(text, CHANGES[name])
    told = delta(old, new)
    assert len(told) < 100
    assert whole([old, told]) == new


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"a": 1}, {"a": 2}),
        ({"lines": LONG}, {"lines": [each + "!" for each in LONG]}),
        ({"a": LONG, "b": LONG}, {"b": LONG, "a": LONG}),  # code may depend on the order of names
        (LONG, {"lines": LONG}),
    ],
)
def test_what_is_small_or_changed_all_over_is_stored_whole(old, new):
    assert delta(text(old), text(new)) is None


def test_any_chain_of_changes_comes_to_the_same_text():
    dice = random.Random(7)

    def value(depth):
        kind = dice.randrange(4 if depth < 3 else 2)
        if kind == 0:
            return dice.choice([None, True, False, 0, 1, 1.0, -0.0, 2.5, 10**20])
        if kind == 1:
            return "".join(dice.choices('ab"\\\n\u00e4', k=dice.randrange(6)))
        if kind == 2:
            return [value(depth + 1) for _ in range(dice.randrange(6))]
        return {dice.choice("abcdefgh"): value(depth + 1) for _ in range(dice.randrange(6))}

    def turned(old):
        if isinstance(old, list):
            new = [turned(each) if dice.random() < 0.2 else each for each in old]
            for _ in range(dice.randrange(2)):
                new.insert(dice.randrange(len(new) + 1), value(2))
            return new[dice.randrange(2) :] if dice.random() < 0.2 else new
        if isinstance(old, dict):
            names = [name for name in old if dice.random() < 0.95]
            if dice.random() < 0.1:
                dice.shuffle(names)
            new = {name: turned(old[name]) if dice.random() < 0.3 else old[name] for name in names}
            return new | ({dice.choice("ijkl"): value(2)} if dice.random() < 0.3 else {})
        return value(2)

    told = 0
    for _ in range(60):
        tree = {"kept": LONG, "more": [value(0) for _ in range(20)], **{name: value(0) for name in "abcdef"}}
        texts, last = [text(tree)], text(tree)
        for _ in range(20):
            tree = turned(tree)
            change = delta(last, text(tree))
            last = text(tree)
            texts = [last] if change is None else [*texts, change]
            told += change is not None
            assert whole(texts) == last
    assert told > 300


def test_a_chain_ends_when_its_changes_are_as_long_as_the_state():
    state = text({"a": 1, "lines": LONG})
    other = text({"a": 2, "lines": LONG})
    assert len(state) > LEAST
    assert Chain(state, [1], 0).told(other) is not None
    assert Chain(state, [1, 2], len(state)).told(other) is None
    assert Chain(state, list(range(65)), 10).told(other) is None


@pytest.mark.parametrize(
    "change",
    ["{}", "[]", '["?",1]', '["[",5,[["=",1]]]', '["+",2,1,[]]', '["+",0,9,[]]', '["{",{"a":["="]},[]]', "7", "[" * 9],
)
def test_damaged_changes_are_told(change):
    with pytest.raises(NotStorable, match="cannot be put together"):
        whole(["[1]", change])
