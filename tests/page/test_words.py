"""The words of the page are those of the command line: spans, money, and every kind of event."""

import dataclasses
import random

import pytest
from tests.page.node import said
from tests.words.test_events import DATA

from holdfast.words.durations import spoken
from holdfast.words.events import told
from holdfast.words.model import KINDS, Event
from holdfast.words.spent import dollars

pytestmark = pytest.mark.slow


def test_spans_and_money_are_said_alike():
    dice = random.Random(7)
    spans = [10 ** dice.uniform(-1, 9) for _ in range(400)] + [250, 1_250, 1_750, 30_000, 90_000, 150_000, 216_000_000]
    sums = [0, 0.1, 0.05, 0.004, 0.00001234, 1234567.891, *(10 ** dice.uniform(-6, 6) for _ in range(200))]
    answers = said([["spoken", each] for each in spans] + [["dollars", each] for each in sums])
    assert answers == [spoken(each / 1000) for each in spans] + [dollars(each) for each in sums]


def test_every_kind_of_event_is_told_alike(monkeypatch):
    """With all that its data may say, and with as little as there is."""
    monkeypatch.setenv("TZ", "UTC")
    more = {
        **DATA, "rate": "openai", "paused": True, "pauses": "openai", "spent": {"usd": 0.012, "input_tokens": 1200},
        "published": {"a": "x"}, "effects": {}, "cut": 3, "changed": True, "until": 1_000_000, "instead": {"k": "1"}, "of": "r-0",
        "votes": [{"by": "cyd", "yes": True}, {"by": "eve", "yes": False}, {"by": "dan", "yes": True}],
        "left": {"usd": 1.5, "tokens": 3, "until": 90_000}, "effect": True, "held_by": "r-2", "at": 9_000, "name": ":sleep",
        "topic": "holdfast:event:order.paid 12ab", "items": [["a", True], ["b", False]],
    }  # fmt: skip
    doubt = {**DATA, "kind": "in_doubt", "attempts": 1, "began": None, "reason": "", "note": ""}
    events = [
        Event(0, kind, "fetch#0", data, at=4_000, run="r")
        for kind in KINDS
        for data in (DATA, more, doubt, {**doubt, "question": "Do fetch() again?"})
        if kind != "message.received"  # told by its value, which the page has as a preview
    ]
    documents = [{**dataclasses.asdict(each), "preview": None} for each in events]
    answers = said([["told", each] for each in documents])
    assert answers == [told(each) for each in events]
