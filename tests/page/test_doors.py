"""The view of what begins by itself: why a delivery failed, what came, and what a person can do about it; on a phone too."""

import asyncio
import re
import urllib.request

import pytest
from playwright.sync_api import expect
from tests.page.browser import PHONE, Visitor
from tests.page.scene import bare

import holdfast

pytestmark = pytest.mark.slow

TOKEN = "a-token-of-the-shop"

# What stands further right than the screen.
CUT = """
() => [...document.querySelectorAll("main *")]
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.outerHTML.slice(0, 80))
"""


# What is higher than the cell that it is in, and so lies over the next one.
SPILT = """
() => [...document.querySelectorAll(".wide-table td")]
  .filter((each) => each.scrollHeight > each.clientHeight + 1).map((each) => each.innerText)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A store with a webhook that cannot be read, two deliveries of it, a schedule and a notification that nobody hears."""
    monkeypatch.setenv("DOORS_TOKEN", TOKEN)
    with bare(tmp_path) as made:
        made.hold.touch()
        made.worker("porter", "doors.py")
        made.act(lambda hf: until(hf, workers=1))
        for text in ("three kettles", "a lamp"):
            came = urllib.request.Request(
                f"{made.address}/hooks/orders", text.encode(), {"Authorization": f"Bearer {TOKEN}"}
            )
            urllib.request.urlopen(came).close()
        made.act(prepared)
        yield made


async def until(hf, **counts):
    """Wait until the trigger tells so many."""
    while not any(all(getattr(each, name) == count for name, count in counts.items()) for each in await hf.triggers()):
        await asyncio.sleep(0.02)


async def prepared(hf):
    await until(hf, dead=2)
    await hf.schedule("nightly", "take_order", holdfast.Schedule(every="6h", args={"text": "kettles"}))
    await hf.notify("http://127.0.0.1:9/hook", ["run.failed", "approval"], name="desk", format="slack")


def test_a_delivery_that_failed_says_why_and_is_tried_again_or_let_be(place, browser):
    visitor = Visitor(browser, place.address, place.tokens["ana"])
    page = visitor.goto("/schedules", "tr[data-row=orders]")
    expect(page.locator("tr[data-row=orders]")).to_contain_text("ValueError: the order names no customer")
    expect(page.locator("tr[data-row=desk]")).to_contain_text(
        re.compile(r"http://127\.0\.0\.1:9.*run\.failed, approval", re.DOTALL)
    )
    page.click("tr[data-row=orders] button:has-text('Deliveries…')")
    items = page.locator("dialog .deliveries > li")
    expect(items).to_have_count(2)
    lamp, kettles = items.first, items.last
    lamp.locator("summary").click()
    expect(lamp.locator("pre")).to_contain_text("a lamp")
    lamp.locator("button:has-text('Dismiss')").click()
    expect(page.locator("dialog .deliveries .chip:has-text('let be')")).to_have_count(1)
    place.hold.unlink()
    page.locator("dialog .deliveries button:has-text('Try again')").click()
    run = place.act(only)
    page.keyboard.press("Escape")
    page.click("tr[data-row=orders] button:has-text('Deliveries…')")
    expect(kettles.or_(lamp).locator(f"a:has-text('{run}')")).to_be_visible()
    visitor.leave()


async def only(hf):
    """Wait for the run that the delivery starts."""
    while not (runs := [each for each in await hf.runs() if each.agent == "take_order"]):
        await asyncio.sleep(0.02)
    await hf.get(runs[0].id).wait("completed")
    return runs[0].id


def test_on_a_phone_nothing_of_it_is_cut_off(place, browser):
    visitor = Visitor(browser, place.address, place.tokens["ana"], size=PHONE)
    page = visitor.goto("/schedules", "tr[data-row=desk]")
    assert page.evaluate(CUT) == []
    assert page.evaluate(SPILT) == []
    page.click("tr[data-row=nightly] button:has-text('Pause')")
    expect(page.locator("tr[data-row=nightly]")).to_contain_text("paused")
    page.click("tr[data-row=orders] button:has-text('Deliveries…')")
    expect(page.locator("dialog .deliveries > li")).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    visitor.leave()
