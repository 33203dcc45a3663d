"""The page offers exactly what a token may do: what is there works, and what the server would refuse is not there."""

import pytest
from tests.page.browser import Visitor
from tests.page.scene import bare, served

pytestmark = pytest.mark.slow

WHO = {
    "all": {},
    "reads": {"scopes": ["read"]},
    "writes": {"scopes": ["read", "write"]},
    "decides": {"scopes": ["read", "decide"]},
    "only-decides": {"scopes": ["decide"]},
    "only-writes": {"scopes": ["write"]},
    "nights": {"only": {"team": "night"}},
    "night-watch": {"only": {"team": "night"}, "scopes": ["read"]},
}
# what: (page, what must be there before one looks, the control, method, path); empty bodies are refused, but not for who asks
RUN = ("/runs/seen", ".run-title .acts button, .problem")
OFFERS = {
    "start": ("/agents/expedition", ".start, .problem", "form.start button[type=submit]", "POST", "/api/runs"),
    "schedules": ("/agents/expedition", ".start, .problem", "main a[href=schedules]", "GET", "/api/schedules"),
    "start from the list": ("/runs", "tr[data-row], .problem", "a:has-text('Start a run')", "POST", "/api/runs"),
    "pause": (
        "/runs/seen",
        ".run-title .acts button, .problem",
        ".acts button:has-text('Pause')",
        "POST",
        "/api/runs/seen/pause?probe",
    ),
    "send": (
        "/runs/seen",
        ".run-title .acts button, .problem",
        ".acts button:has-text('Send')",
        "POST",
        "/api/runs/seen/send",
    ),
    "fork": (
        "/runs/seen",
        ".run-title .acts button, .problem",
        ".acts button:has-text('Fork')",
        "POST",
        "/api/runs/seen/fork?probe",
    ),
    "decide": (
        "/approvals/{question}",
        ".q-acts button, .q-acts p, .problem",
        ".q-buttons button",
        "POST",
        "/api/approvals/{question}",
    ),
    "runs": ("/approvals", "main .inbox-item, main p:not(:empty)", "header.bar nav a[href=runs]", "GET", "/api/runs"),
    "fleet": (
        "/approvals",
        "main .inbox-item, main p:not(:empty)",
        "header.bar nav a[href=fleet]",
        "GET",
        "/api/fleet",
    ),
    "agents": (
        "/approvals",
        "main .inbox-item, main p:not(:empty)",
        "header.bar nav a[href=agents]",
        "GET",
        "/api/agents",
    ),
}
MENU = {
    "Conversations": "/api/conversations", "Schedules and triggers": "/api/schedules", "Audit": "/api/audit",
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with bare(tmp_path_factory.mktemp("offers")) as made:
        made.worker("day", "lives.py")
        made.act(lambda hf: served(hf, "tally"))
        made.act(fill)
        for name, options in WHO.items():
            made.token(name, **options)
        yield made


async def fill(hf):
    for id, team in (("seen", "night"), ("hidden", "day")):
        await hf.start("tally", 20, id=id, labels={"team": team})
        await hf.start("asks", id, id=f"asks-{id}", labels={"team": team})
        await hf.get(f"asks-{id}").wait_for_question()
        await hf.get(id).wait("waiting")


def question(place, run):
    (asked,) = place.act(lambda hf: hf.approvals(run=run))
    return asked.id


def allowed(visitor, method, path, token):
    """Would the server do this for this token? A body that fits nothing is refused for what it is, once it is known who asks."""
    answer = visitor.context.request.fetch(
        path, method=method, headers={"Authorization": f"Bearer {token}"}, data=None if method == "GET" else [0]
    )
    assert answer.status < 500, (path, answer.text())
    return answer.status not in (401, 403, 404)


@pytest.mark.by_day("reads")
@pytest.mark.parametrize("name", WHO)
def test_what_is_offered_is_what_the_server_allows(place, browser, name):
    asked = question(place, "asks-seen")
    visitor = Visitor(browser, place.address, place.tokens[name])
    wrong, at, refused = {}, None, []
    visitor.page.on("response", lambda answer: answer.status == 403 and refused.append(answer.url))
    for what, (page, wanted, control, method, path) in OFFERS.items():
        if page != at:
            visitor.goto(at := page, wanted) if "{" not in page else visitor.goto(page.format(question=asked), wanted)
            visitor.page.wait_for_function("() => document.querySelectorAll('.ghost').length === 0")
        is_there = visitor.page.locator(control).count() > 0
        may = allowed(visitor, method, path.format(question=asked), place.tokens[name])
        if "agents" not in page:  # what cannot be seen is not done here; `curl` can, with an id and a digest
            may = may and allowed(visitor, "GET", "/api" + page.format(question=asked), place.tokens[name])
        if what == "agents":  # whoever may not look at them may know their names
            may = may or allowed(visitor, "POST", "/api/runs", place.tokens[name])
        if is_there != may:
            wrong[what] = f"offered: {is_there}, allowed: {may}"
    visitor.page.click("button.me")
    items = visitor.page.locator("[role=menuitem]").all_text_contents()
    for item, path in MENU.items():
        may = allowed(visitor, "GET", path, place.tokens[name])
        if (item in items) != may:
            wrong[item] = f"offered: {item in items}, allowed: {may}"
    assert wrong == {} and refused == []  # the audit tells of people, not of pages that ask for what nobody offered
    visitor.leave()


def test_who_may_not_read_is_told_what_the_token_may(place, browser):
    """And starts an agent by its name, if it may."""
    visitor = Visitor(browser, place.address, place.tokens["only-decides"])
    page = visitor.goto("/", ".problem")
    assert "Your token may decide, and not read." in page.locator(".problem").text_content()
    visitor.leave()
    visitor = Visitor(browser, place.address, place.tokens["only-writes"])
    page = visitor.goto("/", "main form")
    assert "Your token may write, and not read." in page.locator("main").text_content()
    page.fill("[aria-label=Agent]", "asks")
    page.click("text=Choose")
    page.fill("form.start textarea", '{"name": "blind"}')
    page.fill("#start-id", "blind")
    page.click("form.start button:has-text('Start')")
    page.wait_for_selector(".toast:has-text('blind was started')")
    assert place.act(lambda hf: hf.get("blind").info()).agent == "asks"
    visitor.leave()


def test_a_token_of_some_runs_sees_those_and_no_trace_of_others(place, browser):
    visitor = Visitor(browser, place.address, place.tokens["nights"])
    page = visitor.goto("/runs", "tr[data-row]")
    assert sorted(page.locator("tr[data-row]").evaluate_all("rows => rows.map((row) => row.dataset.row)")) == [
        "asks-seen",
        "seen",
    ]
    assert "hidden" not in page.locator("body").text_content()
    page = visitor.goto("/approvals", ".inbox-item")
    assert page.locator(".inbox-item").count() == 1
    page = visitor.goto("/runs/hidden", ".problem")
    assert "there is no run 'hidden'" in page.locator(".problem").text_content()
    assert "/api/" not in page.locator(".problem").text_content()  # what programs are told
    page = visitor.goto(f"/approvals/{question(place, 'asks-hidden')}", ".problem")
    visitor.goto("/runs", "tr[data-row]")
    page.fill("#find", "hidden")
    page.wait_for_selector(".found-foot")
    assert page.locator(".found-row").count() == 0
    visitor.leave()
