"""The page for everybody: contrast, names, targets, no second direction to scroll, in both themes and at five widths."""

import pytest
from tests.page.node import HERE

pytestmark = pytest.mark.slow

SIZES = {"360": (360, 740), "390": (390, 844), "768": (768, 1024), "1440": (1440, 900), "3840": (3840, 2160)}
VIEWS = {
    "/runs": "[data-row]", "/approvals": ".inbox-item", "/agents/atlas": ".start", "/schedules": ".wide-table", "/audit": ".deed",
    "/conversations": "[data-row]", "/runs/otters-2026-07": ".side, .dw-row", "/runs/lisbon-tile-0117": ".run-facts",
    "/runs/otters-2026-07/journal": ".ev-row", "/runs/otters-2026-07/streams": ".stream-list",
    "/runs/otters-2026-07/conversation": ".turn",
}  # fmt: skip

AUDIT = (HERE / "audit.js").read_text()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.by_day("390-light")
def test_every_view_can_be_read_named_and_touched(visit, size, dark):
    width, height = SIZES[size]
    visitor = visit("ana", size={"width": width, "height": height}, dark=dark)
    found = {}
    for path, wanted in VIEWS.items():
        page = visitor.goto(path, wanted)
        if wrong := page.evaluate(AUDIT):
            found[path] = wrong[:12]
    assert found == {}


def test_everything_is_reached_by_keys(visit):
    """The skip link, rows by letters, the keys' own page, and a dialog that gives the focus back."""
    page = visit("ana").goto("/runs", "tr[data-row]")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("j")
    page.keyboard.press("j")
    second = page.evaluate("document.activeElement.dataset.row")
    page.keyboard.press("?")
    page.wait_for_selector("dialog")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.row") == second
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{second}")
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url("**/approvals")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "find"
