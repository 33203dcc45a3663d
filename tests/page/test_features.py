"""The page of a store that lacks something offers nothing of it, and says why to whoever comes by its address."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from tests.grounds import scenes
from tests.page.browser import Visitor
from tests.page.scene import Scene
from tests.temporal import cluster, temporal_url  # noqa: F401 - fixtures

import holdfast

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path, temporal_url, postgres_url):  # noqa: F811
    made = Scene(tmp_path, f"{temporal_url}&side={quote(postgres_url, safe='')}")

    async def fill():
        async with holdfast.open(made.url, agents=[scenes.sequential]) as hf:
            await hf.run(scenes.sequential, 1, id="over")

    with ThreadPoolExecutor(1) as other:  # the browser's driver has a loop in this thread
        other.submit(lambda: asyncio.run(fill())).result(150)
    made.token("ana")
    made.serve()
    yield made
    made.stop()


def test_a_page_over_a_cluster_offers_what_a_cluster_has(place, browser):
    visitor = Visitor(browser, place.address, place.tokens["ana"])
    page = visitor.goto("/runs/over", ".run-title .acts button")
    assert page.locator("header.bar nav a").all_text_contents() == ["Runs", "Approvals", "Agents"]
    assert page.locator(".run-title .acts button:has-text('Fork')").count() == 0
    assert page.locator(".run-title .acts button:has-text('Send')").count() == 1
    page.click(".run-title .acts .square")
    more = page.locator("[role=menuitem]").all_text_contents()
    assert "Export as a file" in more
    assert not [each for each in more if each.startswith("Delete")]
    page.click("button.me")
    menu = page.locator("[role=menuitem]").all_text_contents()
    assert "Conversations" in menu
    assert "Schedules and triggers" not in menu
    page = visitor.goto("/fleet", ".problem")
    assert "which has no overview of the fleet" in page.locator(".problem").text_content()
    assert page.locator(".problem button").count() == 0
    visitor.leave()
