"""Sign-in: a token becomes a session of the browser, and is nowhere that a script, a log or another site could find it."""

import base64
import json
import re
import time
from urllib.parse import quote

import pytest
from playwright.sync_api import expect
from tests.http.provider import OidcProvider
from tests.page.browser import Visitor
from tests.page.scene import bare

import holdfast

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
    assert page.query_selector("text=For you") is None
    page = eve.goto("/runs", ".needs-who")
    assert page.query_selector("text=Decide") is None and page.query_selector(".needs-who .you") is None


@holdfast.agent
async def notice(text: str) -> str:
    return "published" if await holdfast.approve("Publish this notice?", show=text, to="group:editors") else "kept"


async def asked(url):
    """A store with a question for the editors."""
    async with holdfast.open(url, agents=[notice]) as hf:
        await (await hf.start(notice, "The pool is closed.", id="notice-1")).wait("waiting", timeout="30s")


@pytest.fixture(scope="module")
def club(tmp_path_factory):
    """A server, and a provider that is another site to a browser and asks whoever comes."""
    with OidcProvider("localhost", asks=True) as idp, pytest.MonkeyPatch.context() as env:
        env.setenv("HOLDFAST_OIDC_SECRET", "s3cret")
        words = ("--oidc", idp.issuer, "--oidc-client", "holdfast-1", "--oidc-name", "Example")
        grants = ("--oidc-grant", "editors=read+decide")
        with bare(tmp_path_factory.mktemp("club"), asked, (*words, *grants)) as made:
            yield made, idp


@pytest.fixture
def come(club, browser):
    """Somebody whom nobody knows yet, at the page where one signs in."""
    made, idp = club
    here = []

    def stranger(path="/approvals"):
        visitor = Visitor(browser, made.address, None)
        here.append(visitor)
        visitor.goto(path, "text=Sign in with Example")
        return visitor

    idp.spoil = {}
    yield stranger
    for each in here:
        each.leave()


def cookies(visitor):
    """Those of the server, without its port in their names."""
    found = visitor.context.cookies(visitor.address)
    return {each["name"].rpartition("_")[0]: each for each in found}


def test_a_person_signs_in_with_a_provider_decides_and_signs_out(club, come):
    """The button, the provider, back to where one was going; a cookie as it must be; groups; and it is over everywhere."""
    made, _ = club
    ana = come()
    page = ana.page
    page.click("text=Sign in with Example")
    page.wait_for_selector("text=Allow")
    assert cookies(ana)["holdfast_oidc"]["sameSite"] == "Lax"  # it must come along from the provider's page
    page.click("text=Allow")
    page.wait_for_selector(".inbox-item:has-text('Publish this notice?')")  # it is for the group, and so for her
    assert page.url == f"{made.address}/approvals"
    assert page.get_attribute("button.me", "title") == "ana@example.com, in editors, staff"
    assert "holdfast_oidc" not in cookies(ana)
    session = cookies(ana)["holdfast_session"]
    assert (session["httpOnly"], session["sameSite"], session["path"]) == (True, "Strict", "/")
    assert 11 * 3600 < session["expires"] - time.time() <= 12 * 3600
    assert page.evaluate("document.cookie") == ""
    page.click(".inbox-item")
    page.click(".q-buttons .primary")
    page.click("dialog button[type=submit]")
    page.wait_for_selector(".q-meta:has-text('approved by')")
    (deed,) = made.act(lambda hf: hf.audit(action="approve"))
    assert (deed.by, deed.via) == ("ana@example.com", "oidc")
    page.goto("/runs")
    page.wait_for_selector("tr[data-row]")
    assert page.query_selector("text=Start a run") is None  # her groups do not write
    page.click("button.me")
    page.click("[role=menuitem]:has-text('Sign out')")
    page.wait_for_selector("text=Sign in with Example")
    assert cookies(ana) == {}
    ana.context.add_cookies([session])  # somebody has kept it
    assert ana.context.request.get("/api/me").status == 401


def allow(visitor):
    visitor.page.click("text=Allow")


def deny(visitor):
    visitor.page.click("text=Deny")


def take_long(visitor):
    """As if the provider's page had been open for an hour: the time is in what the browser brings back."""
    (kept,) = [each for each in visitor.context.cookies(visitor.address) if "_oidc_" in each["name"]]
    state, *rest = json.loads(base64.urlsafe_b64decode(kept["value"].strip('"')))
    old = f"{int(time.time()) - 3600}.{state.partition('.')[2]}"
    value = base64.urlsafe_b64encode(json.dumps([old, *rest]).encode()).decode()
    visitor.context.add_cookies([{"name": kept["name"], "value": value, "url": visitor.address}])
    place = visitor.page.get_attribute("text=Allow", "href")
    visitor.page.goto(place.replace(quote(state), quote(old)))


def lose_the_way(visitor):
    """As if another browser had begun it."""
    place = visitor.page.get_attribute("text=Allow", "href")
    visitor.page.goto(re.sub(r"state=[^&]*", "state=1.x", place))


WRONG = {
    "denied": (deny, {}, "the provider refused: access_denied"),
    "another nonce": (allow, {"nonce": "x"}, "of another sign-in"),
    "expired": (allow, {"exp": 1}, "has expired"),
    "in no group": (allow, {"groups": ["staff"]}, "is in no group that may come in"),
    "another state": (lose_the_way, {}, "did not begin in this browser"),
    "too late": (take_long, {}, "took too long"),
}


@pytest.mark.by_day("another state")
@pytest.mark.parametrize("how", WRONG)
def test_a_sign_in_that_proves_nothing_says_so_and_can_be_begun_again(club, come, how):
    """The page says what was wrong and what to do; the same button leads to where one was going all along."""
    made, idp = club
    do, idp.spoil, told = WRONG[how]
    ben = come("/approvals?tab=decided")
    page = ben.page
    page.click("text=Sign in with Example")
    page.wait_for_selector("text=Allow")
    do(ben)
    page.wait_for_selector(f".problem:has-text('{told}')")
    assert "Sign in again" in page.inner_text(".problem")
    assert "problem" not in page.url
    assert cookies(ben) == {}
    idp.spoil = {}
    page.click("text=Sign in with Example")
    page.click("text=Allow")
    page.wait_for_selector(".inbox")
    assert page.url == f"{made.address}/approvals?tab=decided"


@pytest.fixture
def uma(stage, visit):
    """Somebody whose token is revoked while she looks."""
    made = visit(None)
    made.sign_in(stage.token("uma", groups=["it-admins", "editors"]))
    yield made
    stage.act(revoke)


async def revoke(hf):
    for each in await hf.tokens():
        if each.name == "uma" and each.revoked_at is None:
            await hf.revoke_token(each.id)


async def refunds(hf):
    """A question of a new run."""
    return await (await hf.start("refund", 31.0)).wait_for_question()


ENDED = "Your session has ended: it ran out, or was revoked."


@pytest.mark.parametrize("path", ["/runs", "/runs/noor", "/fleet", "/audit"])
def test_when_a_session_ends_the_page_says_so(stage, uma, path):
    page = uma.goto(path, "main h1")
    stage.act(revoke)
    expect(page.locator(".told")).to_contain_text(ENDED, timeout=15_000)
    page.fill("#token", stage.token("uma"))
    page.click("button[type=submit]")
    page.wait_for_url(f"**{path}")


def test_a_page_that_does_not_follow_itself_sees_the_end_of_its_session_and_keeps_the_note(stage, uma):
    """One page of a browser follows the questions for all."""
    uma.goto("/approvals", ".inbox-item")
    question = stage.act(refunds)
    page = uma.context.new_page()
    page.goto(f"/approvals/{question.id}")
    page.fill("[aria-label=Note]", "by the window")
    page.click(".q-buttons .primary")
    expect(page.locator("dialog input")).to_have_value("by the window")
    page.fill("dialog input", "by the river")
    stage.act(revoke)
    expect(page.locator(".told")).to_contain_text(ENDED, timeout=15_000)
    expect(page.locator(".told")).not_to_contain_text("Nothing was done")
    expect(page.locator("dialog")).to_have_count(0)
    page.fill("#token", stage.token("uma", groups=["it-admins", "editors"]))
    page.click("button[type=submit]")
    expect(page.locator("[aria-label=Note]")).to_have_value("by the river", timeout=15_000)


def test_what_is_pressed_after_a_session_ended_does_nothing_and_that_is_said(stage, uma):
    question = stage.act(refunds)
    uma.page.route("**/api/events**", lambda _: None)  # nothing tells the page
    page = uma.goto(f"/approvals/{question.id}", ".q-buttons .primary")
    page.click(".q-buttons .primary")
    stage.act(revoke)
    page.click("dialog button[type=submit]")
    expect(page.locator(".told")).to_contain_text(ENDED, timeout=15_000)
    expect(page.locator(".told")).to_contain_text("Nothing was done by what you pressed.")
    assert stage.act(lambda hf: hf.approval(question.id)).status == "open"


def test_a_page_of_one_person_decides_nothing_when_another_has_signed_in_beside_it(stage, uma):
    """The sheet says uma; by now the browser's session is bo's. Her press is nobody's, and the page is his and says so."""
    question = stage.act(refunds)
    page = uma.goto(f"/approvals/{question.id}", ".q-buttons .primary")
    page.click(".q-buttons .primary")
    expect(page.locator("dialog .q-sure")).to_contain_text("uma")
    uma.sign_in(stage.tokens["bo"])
    page.click("dialog button[type=submit]")
    told = "bo is signed in in this browser now. Nothing was done by what you pressed."
    expect(page.locator(".notice")).to_contain_text(told, timeout=15_000)
    expect(page.locator("button.me")).to_contain_text("bo")
    expect(page.locator("dialog")).to_have_count(0)
    assert stage.act(lambda hf: hf.approval(question.id)).status == "open"
    page.click(".notice button")
    expect(page.locator(".notice")).to_be_hidden()
    page.click(".q-buttons .primary")
    page.click("dialog button[type=submit]")
    expect(page.locator(".q-meta")).to_contain_text("approved by bo", timeout=15_000)
