"""The site: every public name has its place in the reference, and the pages ask nobody for anything."""

import re
from collections import Counter

from tests.docs.pages import ROOT, page
from tests.snapshots.surface import exported

MIRRORS = {
    f"holdfast.sync.{name}"
    for name in (
        "Run",
        "Receipt",
        "NotificationHandle",
        "ScheduleHandle",
        "Transcript",
        "StepInfo",
        "Snapshot",
        "State",
        "MessageInfo",
    )
}  # told in one sentence: without `await`


def test_the_reference_has_every_public_name_once():
    """A name without a place there has no signature, no errors and no example that a reader finds."""
    told = Counter(re.findall(r"^::: (\S+)$", page("docs/reference"), re.MULTILINE))
    assert set(told) == {name for name, _ in exported()} - MIRRORS
    assert max(told.values()) == 1


def test_the_site_is_made_of_locked_parts_alone():
    """Nothing on it is fetched when it is read: no fonts, no scripts, no pictures of other hosts."""
    config = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert "font: false" in config
    assert "://" not in config
    assert "://" not in (ROOT / "docs" / "site.css").read_text("utf-8")
