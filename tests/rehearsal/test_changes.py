"""Fourteen kinds of change: `check` finds each that would diverge, and accepts each that would not."""

import pytest
from tests.rehearsal.changes import KINDS, PAGE, in_page, line_of, replayed, table


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.what.replace(" ", "-"))
async def test_each_kind_of_change_is_found_or_rightly_accepted(kind):
    found = await replayed(kind)
    assert (found.verdict, bool(found.reason)) == (kind.verdict, kind.verdict != "fits"), found.reason
    if kind.verdict != "fits":
        assert found.recorded and found.present and found.advice
        assert line_of(found).startswith(("await ", "async def new", "state = await", "@agent"))


def test_there_are_fourteen_kinds():
    assert len(KINDS) == 14


def test_the_page_has_what_check_says():
    page = PAGE.read_text("utf-8")
    assert in_page(page, table()) == page, "python -m tests.rehearsal.changes writes it"
