"""Events in words: every kind has its row, and no place tells it otherwise."""

import pytest

from holdfast.cli.view.lines import line
from holdfast.cli.view.tree import UNSHOWN, History
from holdfast.words.events import WORDS, told, words_of
from holdfast.words.model import KINDS, Event

DATA = {
    "name": "fetch", "input": "url='a'", "attempt": 1, "attempts": 2, "began": 1_000, "wait_ms": 3_000, "at": 5_000,
    "error": {"type": "ValueError", "message": "no good"}, "by": "ana", "reason": "why", "note": "so", "to": "bo",
    "approval": "q-1", "question": "Go on?", "kind": "approve", "nth": 1, "decision": "approved", "key": "k#0",
    "conversation": "c", "length": 2, "first": 1, "end": 3, "child": "r.1", "status": "completed", "topic": "news",
    "patch": "p", "text": "said", "done": 1, "total": 2, "era": 1, "line": "a.py:1", "what": "socket", "ms": 1_000,
    "left": {}, "position": 1,
}  # fmt: skip


def event(kind):
    return Event(0, kind, "fetch#0", DATA, '"value"', at=4_000, run="r")


def test_every_kind_has_its_words_and_its_place():
    """In the table of words, and in the tree or among those that it leaves out."""
    assert set(WORDS) == set(KINDS)
    assert set(History.TAKERS) | UNSHOWN == set(KINDS)
    assert not set(History.TAKERS) & UNSHOWN


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_told_in_a_whole_sentence(kind):
    """With nothing left out that the event says, and in a line that has a style."""
    said = told(event(kind))
    assert said
    assert "None" not in said
    assert words_of(event(kind)).says(event(kind)) in said
    assert line(event(kind)).plain.endswith(said)


def test_an_error_is_told_once():
    """Behind the words of a failure, unless it is told elsewhere."""
    assert told(event("run.failed")) == "failed: ValueError: no good"
    assert told(event("run.failed"), error=False) == "failed"
    assert told(event("step.failed"), error=False) == "fetch(url='a') failed for good at attempt 2"


def test_all_who_agreed_are_told_to_have_approved():
    """Each once; a person who says no decides alone."""
    votes = [{"by": by, "yes": True} for by in ("ana", "bo")]
    for decision, last, who in [
        ("approved", "bo", "ana and bo"),
        ("approved", "cyd", "ana and bo and cyd"),
        ("denied", "bo", "bo"),
    ]:
        data = {"decision": decision, "by": last, "approval": "q-1", "votes": votes}
        assert f"{decision} by {who}" in told(Event(0, "approval.decided", "k#0", data))


def test_a_kind_of_a_later_version_is_told_by_its_name():
    assert told(event("moon.landed")) == "moon.landed"


FOX, HERON = "fox-2-0123456789abcdef", "heron-1-fedcba9876543210"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "its process was gone; another went on"),
        ({"owner": FOX, "epoch": 1}, "its process was gone; another went on"),  # as versions before wrote it
        ({"owner": "0123456789abcdef", "epoch": 1, "by": "fedcba9876543210", "how": "dead"},
         "its process was gone; another went on"),
        ({"owner": FOX, "epoch": 1, "by": HERON, "how": "dead"}, "the process of fox-2 was gone; heron-1 went on"),
        ({"owner": FOX, "epoch": 1, "by": HERON, "how": "lease"},
         "fox-2 stood still for longer than its lease; heron-1 went on"),
        ({"owner": "0123456789abcdef", "epoch": 1, "by": HERON, "how": "lease"},
         "its worker stood still for longer than its lease; heron-1 went on"),
    ],
)  # fmt: skip
def test_an_interruption_tells_who_went_on_and_how_it_was_noticed(data, words):
    """By the names that workers were given; one without a name is told by what it is."""
    assert told(Event(0, "run.interrupted", None, data)) == f"interrupted: {words}"
