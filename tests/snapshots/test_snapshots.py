"""Whatever others hold on to (public names, stored words, texts that people read) is as it was when somebody last looked."""

import pytest
from tests.snapshots import comparison
from tests.snapshots.surface import SNAPSHOTS


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_nothing_is_gone_or_new_that_nobody_has_accepted(name):
    found = comparison.difference(name)
    assert not found, found


def test_what_must_be_kept_is_missed_even_after_it_was_accepted(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "HERE", tmp_path)
    monkeypatch.setitem(SNAPSHOTS, "event_kinds", (lambda: iter(["a", "b"]), True))
    comparison.accept("event_kinds")
    monkeypatch.setitem(SNAPSHOTS, "event_kinds", (lambda: iter(["b", "c"]), True))
    assert "  - a" in comparison.difference("event_kinds")
    assert "  + c" in comparison.difference("event_kinds")
    comparison.accept("event_kinds")
    assert "  - a" in comparison.difference("event_kinds")
    (tmp_path / "removed.txt").write_text("a  # nobody ever wrote one\n")
    assert not comparison.difference("event_kinds")
