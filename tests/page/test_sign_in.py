"""Sign-in: a token becomes a session of the browser, and is nowhere that a script, a log or another site could find it."""

import pytest

pytestmark = pytest.mark.slow


def test_a_token_becomes_a_session_and_leads_to_where_one_was_going(stage, visit):
    ana = visit(None)
    page = ana.goto("/approvals", "#token")
    assert "/sign-in?to=approvals" in page.url
    page.fill("#token", "holdfast_nobody_knows")
    page.click("button[type=submit]")
    page.wait_for_selector(".problem")
    assert page.get_attribute("#token", "aria-invalid") == "true"
    page.fill("#token", stage.tokens["ana"])
    page.click("button[type=submit]")
    page.wait_for_selector(".inbox")
    assert page.url == f"{stage.address}/approvals"
    token = stage.tokens["ana"]
    kept = page.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, document.documentElement.outerHTML])"
    )
    assert token not in kept
    (cookie,) = ana.context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    assert token not in cookie["value"]


def test_signing_out_ends_the_session_everywhere(visit):
    ana = visit("ana")
    page = ana.goto("/runs", "tr[data-row]")
    page.click("button.me")
    page.click("[role=menuitem]:has-text('Sign out')")
    page.wait_for_selector("#token")
    page.goto("/runs")
    page.wait_for_selector("#token")


def test_a_token_that_may_only_read_is_offered_nothing_else(visit):
    eve = visit("eve")
    page = eve.goto("/runs", "tr[data-row]")
    assert page.query_selector("text=Start a run") is None
    assert page.query_selector("td.pick input:visible") is None or not page.query_selector(".many")
    page = eve.goto("/approvals", ".inbox-item")
    page.wait_for_selector(".q-acts p")
    assert page.query_selector(".q-acts button") is None
