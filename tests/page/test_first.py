"""The first opening of a view: all that it needs is asked for at once, because its document names it; and so is who looks."""

import re

import pytest
from tests.page.browser import Visitor
from tests.page.scene import bare, served

# Not /approvals: whether there is a question to open, it does not know before it has asked.
VIEWS = (
    "/runs", "/runs/noor", "/runs/noor/conversation", "/runs/noor/journal", "/runs/noor/data", "/runs/noor/audit",
    "/runs/noor/streams", "/compare?a=noor&b=trip-ana", "/fleet", "/agents", "/schedules", "/conversations", "/audit",
)  # fmt: skip


@pytest.mark.slow
def test_no_script_is_read_to_find_the_next(stage, browser):
    visitor = Visitor(browser, stage.address, stage.tokens["ana"])
    asked = set()
    visitor.page.on("request", lambda request: asked.add(request.url.removeprefix(f"{stage.address}/")))
    (question, *_) = visitor.context.request.get("/api/approvals").json()["approvals"]
    for path in (*VIEWS, f"/approvals/{question['id']}"):
        document = visitor.context.request.get(path).text()
        asked.clear()
        visitor.goto(path, "main h1")
        named = set(re.findall(r'(?:href|src)="(static/[^"]+)"', document))
        found = {each for each in asked if each.startswith("static/")}
        assert (path, found - named) == (path, set())
        assert (path, named - found) == (path, set())
    visitor.leave()


@pytest.mark.slow
def test_who_looks_is_asked_once_and_before_the_scripts_are_there(stage, browser):
    visitor = Visitor(browser, stage.address, stage.tokens["ana"])
    asked, held = [], []
    visitor.page.on("request", lambda request: asked.append(request.url.removeprefix(f"{stage.address}/")))
    visitor.page.route("**/js/app.js", lambda route: held.append(route))  # noqa: PLW0108 (the driver marks what it is given)
    with visitor.page.expect_response("**/api/me"):
        visitor.page.goto("/runs", wait_until="commit")
    while not held:
        visitor.page.wait_for_timeout(20)
    held.pop().continue_()
    visitor.page.wait_for_selector("tr[data-row]")
    assert asked.count("api/me") == 1
    visitor.leave()


@pytest.mark.slow
def test_a_start_is_offered_once_there_is_an_agent_and_one_alone_is_chosen(tmp_path, browser):
    with bare(tmp_path) as made:
        ana = Visitor(browser, made.address, made.tokens["ana"])
        page = ana.goto("/runs", ".empty-acts")
        assert page.locator("main a:has-text('Start a run here')").count() == 0
        made.worker("gull", "old_agents.py")
        made.act(lambda hf: served(hf, "report"))
        page.wait_for_selector("main a:has-text('Start a run here')")
        ana.goto("/agents", "form[aria-label='Start report']")
        ana.leave()
