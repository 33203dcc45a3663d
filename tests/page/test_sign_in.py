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


def test_a_provider_is_a_button_that_leaves_the_page_and_its_refusal_is_told(stage, visit):
    stranger = visit(None)
    page = stranger.page
    page.route("**/api/sign-in", lambda route: route.fulfill(json={"token": True, "oidc": {"name": "Example"}}))
    left = []
    page.route("**/sign-in/oidc?**", lambda route: (left.append(route.request.url), route.fulfill(body="the provider")))
    page.goto("/sign-in?to=approvals#problem=this+sign-in+took+too+long")
    page.wait_for_selector(".problem:has-text('took too long')")
    assert "problem" not in page.url
    page.click("text=Sign in with Example")
    page.wait_for_selector("text=the provider")
    assert left == [f"{stage.address}/sign-in/oidc?to=approvals"]
