"""What is decided is what was seen: every digit, every character, all of it; and what an edit sends is that edit alone."""

import json
import re
from datetime import datetime

import pytest
from playwright.sync_api import expect
from tests.page.browser import PHONE, Visitor
from tests.page.scene import bare, served

pytestmark = pytest.mark.slow

EXACT = '{"account":12345678901234567890,"amount":9007199254740993,"rate":1.0,"note":"hi"}'


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    with bare(tmp_path_factory.mktemp("decided")) as made:
        made.token("bo")
        made.worker("clerk", "decided.py")
        made.act(lambda hf: served(hf, "show"))
        yield made


@pytest.fixture
def come(office, browser):
    here = []

    def visitor(name="ana", **options):
        here.append(Visitor(browser, office.address, office.tokens.get(name), **options))
        return here[-1]

    yield visitor
    for each in here:
        each.leave()


def ask(office, agent, *args, id):
    async def asking(hf):
        return await (await hf.start(agent, *args, id=id)).wait_for_question()

    return office.act(asking)


def look(office, id):
    return office.act(lambda hf: hf.approval(id))


def decide(page):
    """Press the button and that of the sheet; what was sent."""
    with page.expect_request(lambda request: request.method == "POST") as sent:
        page.click(".q-buttons .primary")
        page.click("dialog button[type=submit]")
    expect(page.locator(".q-acts")).to_contain_text("Nothing is left to decide")
    return sent.value.post_data


def test_numbers_are_shown_and_decided_to_the_last_digit(office, come):
    plain, edited = (ask(office, "show", EXACT, edit, id=f"exact-{edit}") for edit in (False, True))
    page = come().goto(f"/approvals/{plain.id}", ".q-shown .tree")
    for digits in ("12345678901234567890", "9007199254740993", "1.0"):
        expect(page.locator(".q-shown")).to_contain_text(digits)
    page.goto(f"/approvals/{edited.id}")
    page.fill("[aria-label=note]", "ho")
    expect(page.locator(".q-change .diff-line.add")).to_have_count(1)
    expect(page.locator(".q-change")).to_contain_text("12345678901234567890")
    assert json.dumps(json.loads(decide(page))["data"], separators=(",", ":")) == EXACT.replace("hi", "ho")
    kept = look(office, edited.id).data
    assert kept == json.loads(EXACT.replace("hi", "ho")) and type(kept["rate"]) is float


def test_a_form_that_nobody_touched_sends_no_edit(office, come):
    at = datetime.fromisoformat("2026-11-17T07:00:00.123456+01:00")
    question = ask(office, "pay", at, 2**60 + 1, "", id="untouched")
    page = come().goto(f"/approvals/{question.id}", ".form")
    expect(page.locator(".q-shown")).to_contain_text(".123456")
    assert "data" not in json.loads(decide(page))
    assert look(office, question.id).data == question.shown


def test_all_of_a_long_line_must_be_on_the_page_before_one_can_agree(office, come):
    question = ask(office, "show", json.dumps("a" * 10_050 + " THEN PAY MALLORY"), id="long")
    page = come().goto(f"/approvals/{question.id}", ".q-why")
    expect(page.locator(".q-buttons .primary")).to_be_disabled()
    expect(page.locator(".q-buttons .danger")).to_be_enabled()
    page.click("text=Show all of it")
    expect(page.locator(".q-shown")).to_contain_text("THEN PAY MALLORY")
    expect(page.locator(".q-buttons .primary")).to_be_enabled()
    expect(page.locator(".q-why")).to_have_count(0)


def test_all_of_a_large_tree_must_be_on_the_page_before_one_can_agree(office, come):
    value = {f"group {n}": [{"name": f"{n}.{m}", "of": {"deep": {"er": m}}} for m in range(250)] for n in range(12)}
    question = ask(office, "show", json.dumps(value), id="large")
    page = come().goto(f"/approvals/{question.id}", ".q-why")
    expect(page.locator(".q-buttons .primary")).to_be_disabled()
    page.click("text=Show all of it")
    expect(page.locator(".q-shown")).to_contain_text("11.249")
    expect(page.locator(".q-buttons .primary")).to_be_enabled()


def test_what_an_agent_calls_cut_is_shown(office, come):
    question = ask(office, "show", '{"$cut": "x", "pay": "mallory"}', id="cut")
    only = ask(office, "show", '{"$cut": {"pay": "mallory"}}', id="only-cut")
    for each in (question, only):
        page = come().goto(f"/approvals/{each.id}", ".q-shown .tree")
        expect(page.locator(".q-shown")).to_contain_text("mallory")


def test_what_cannot_be_seen_in_a_field_is_told_under_it(office, come):
    question = ask(office, "show", '{"note": "pay \u202eallorym\u202c now"}', True, id="turned")
    page = come().goto(f"/approvals/{question.id}", ".form")
    told = page.locator(".turned")
    expect(told).to_contain_text("pay ⟨U+202E⟩allorym⟨U+202C⟩ now")
    assert told.bounding_box()["width"] > 300
    page.fill("[aria-label=note]", "pay ana now")
    expect(told).to_be_hidden()


def test_who_agrees_twice_is_told_that_and_what_is_missing(office, come):
    question = ask(office, "show", '{"a": 1}', False, 2, id="twice")
    ana = come()
    page = ana.goto(f"/approvals/{question.id}", ".q-buttons .primary")
    other = ana.context.new_page()
    other.goto(f"/approvals/{question.id}")
    other.route("**/api/events**", lambda route: route.abort())
    other.reload()
    other.click(".q-buttons .primary")  # before the first yes: then it is disabled there too
    page.click(".q-buttons .primary")
    page.click("dialog button[type=submit]")
    expect(page.locator(".q-why")).to_contain_text(re.compile(r"You agreed .*\. 1 of 2 agrees; 1 more must\."))
    expect(page.locator(".q-buttons .primary")).to_be_disabled()
    expect(page.locator(f"[data-row='{question.id}']")).to_contain_text("you agreed")
    for place in (".q-meta", ".votes", ".q-why"):  # how long ago that was goes on while one looks
        told = page.locator(f"{place} time").first
        expect(told).not_to_have_text(told.inner_text())
    other.click("dialog button[type=submit]")
    expect(other.locator(".q-told")).to_contain_text("You have agreed already. 1 of 2 agrees; 1 more must.")


def test_what_came_after_a_decision_is_not_told_as_before_it(office, come):
    question = ask(office, "around", id="around")
    office.act(lambda hf: hf.approve(question, by="ana"))
    office.act(lambda hf: hf.get("around").result(timeout="30s"))
    page = come().goto(f"/approvals/{question.id}", ".before")
    expect(page.locator(".before")).to_contain_text("first")
    expect(page.locator(".before li")).to_have_count(1)


def test_a_run_that_failed_for_its_budget_is_retried_with_another(office, come):
    async def failed(hf):
        await (await hf.start("spends", id="spends")).wait("failed", timeout="30s")

    office.act(failed)
    page = come().goto("/runs/spends?at=costs%231", ".side-title")
    expect(page.locator(".side")).to_contain_text("failed")
    expect(page.locator(".side")).not_to_contain_text("failed after")  # its body never began
    page.click("text=Retry… >> nth=0")
    page.fill("dialog [aria-label='Budget in dollars']", "2.25")
    page.click("dialog button[type=submit]")
    expect(page.locator("main")).to_contain_text("$0.50 of $2.25")


def test_what_was_passed_on_is_for_who_got_it(office, come):
    question = ask(office, "show", "1", id="passed")
    page = come(size=PHONE).goto(f"/approvals/{question.id}", ".q-buttons .primary")
    page.click("text=Pass on…")
    page.fill("dialog [aria-label='To whom']", "carl")
    expect(page.locator("dialog")).to_contain_text("You cannot take it back: only they can pass it on to you.")
    expect(page.locator("dialog")).to_contain_text("it does not check the name")
    expect(page.locator("dialog .q-sure")).to_contain_text("passes on")
    page.click("dialog button[type=submit]")
    expect(page.locator(".q-acts")).to_contain_text("You passed it on to carl")
    expect(page.locator(".q-meta")).to_contain_text("for bo, carl")
    expect(page.locator(".q-acts")).to_contain_text("It is for bo, carl now.")


def test_a_link_that_is_not_good_is_told_and_what_to_do(office, come):
    question = ask(office, "show", "2", id="linked")
    link = office.act(lambda hf: hf.approval_link(question, by="bo", expires="1h")).rpartition("link=")[2]
    where = f"/approvals/{question.id}"
    page = come(None, size=PHONE).goto(f"{where}#link={link[:-4]}", ".problem")
    expect(page.locator(".problem")).to_contain_text("not the whole of one")
    expect(page.locator(".problem")).to_contain_text("use all of its link")
    page = come(None).goto(f"{where}#lin", ".told")
    expect(page.locator(".told")).to_contain_text("a part of it is missing")
    first = come(None)
    page = first.goto(f"{where}#link={link}", ".q-buttons .primary")
    decide(page)
    page.reload()
    expect(page.locator(".told")).to_contain_text("it was used")
    page = come(None).goto(f"{where}#link={link}", ".problem")
    expect(page.locator(".problem")).to_contain_text("this link was used on")
    expect(page.locator(".problem")).to_contain_text("Its question waits for nobody any more")
    expect(page.locator(".problem")).not_to_contain_text("another")


def test_a_number_that_json_lacks_hides_no_question_and_survives_an_edit(office, come):
    other = ask(office, "show", '"beside it"', id="beside-nan")
    question = ask(office, "lost", id="nan")
    page = come().goto(f"/approvals/{question.id}", ".form")
    expect(page.locator(f"a.inbox-item[data-row='{other.id}']")).to_be_visible()
    expect(page.locator(".form textarea").first).to_have_value(re.compile(r'"\$float": "nan"'))
    page.fill(".form textarea", '{"rate": {"$float": "nan"}, "n": 2}')
    decide(page)
    assert repr(look(office, question.id).data) == "{'rate': nan, 'n': 2}"


def test_an_answer_that_cannot_be_read_is_told(office, come):
    ask(office, "show", '"behind it"', id="torn-answer")
    page = come().page
    page.route(
        "**/api/approvals?**",
        lambda route: route.fulfill(status=200, content_type="application/json", body='{"approvals": [NaN'),
    )
    page.goto("/approvals")
    expect(page.locator(".inbox-place .problem")).to_contain_text("could not be read")


def test_the_server_says_at_the_field_what_does_not_fit_its_pattern(office, come):
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}
    question = ask(office, "schemed", '{"x": "aaa"}', schema, id="pattern")
    page = come().goto(f"/approvals/{question.id}", ".form")
    page.fill("[aria-label=X]", "a" * 60 + "!")
    page.click(".q-buttons .primary")
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog .problem")).to_contain_text("(a+)+")
    expect(page.locator("[aria-label=X]")).to_have_attribute("aria-invalid", "true")
    assert look(office, question.id).status == "open"


@pytest.mark.parametrize("size", [{"width": 1440, "height": 900}, PHONE])
@pytest.mark.parametrize("between", ["\n" * 300, "w " * 300_000], ids=["lines", "words"])
def test_the_end_of_a_text_in_a_form_must_be_shown_before_one_can_agree(office, come, between, size):
    text = f"pay 5{between}AND PAY EVE"
    question = ask(
        office, "show", json.dumps({"body": text, "short": "pay 5"}), True, id=f"end-{len(text)}-{size['width']}"
    )
    page = come(size=size).goto(f"/approvals/{question.id}", ".q-why")
    expect(page.locator(".q-buttons .primary")).to_be_disabled()
    assert page.locator(".q-shown [data-more]").count() == 1
    page.click(".q-why button")
    field = page.locator("[aria-label=body]")
    assert field.evaluate("(each) => each.scrollHeight <= each.clientHeight + 4")
    expect(page.locator(".q-buttons .primary")).to_be_enabled()


def test_a_text_in_a_form_that_was_read_to_its_end_needs_no_button(office, come):
    question = ask(office, "show", json.dumps({"body": "pay 5" + "\n" * 300 + "AND PAY EVE"}), True, id="scrolled")
    page = come().goto(f"/approvals/{question.id}", ".q-why")
    page.locator("[aria-label=body]").evaluate("(each) => each.scrollTo(0, each.scrollHeight)")
    expect(page.locator(".q-buttons .primary")).to_be_enabled()


def test_turning_a_phone_loses_neither_an_edit_nor_a_note(office, come):
    question = ask(office, "show", '{"amount": 5, "note": "hi"}', True, id="turned-phone")
    page = come(size=PHONE).goto(f"/approvals/{question.id}", ".form")
    page.fill("[aria-label=amount]", "7")
    page.click("text=Add a note")
    page.fill("dialog textarea", "as agreed")
    page.click("dialog button[type=submit]")
    page.set_viewport_size({"width": 844, "height": 390})
    expect(page.locator(".q-by [aria-label=Note]")).to_have_value("as agreed")
    expect(page.locator("[aria-label=amount]")).to_have_value("7")
    expect(page.locator(".q-change")).to_contain_text("Your change")
    page.fill("[aria-label=note]", "ho")
    page.fill(".q-by [aria-label=Note]", "as agreed by phone")
    page.set_viewport_size(PHONE)
    expect(page.locator("text=Change the note")).to_be_visible()
    expect(page.locator("[aria-label=note]")).to_have_value("ho")
    sent = json.loads(decide(page))
    assert (sent["data"], sent["note"]) == ({"amount": 7, "note": "ho"}, "as agreed by phone")


def test_times_in_utc_lose_no_edit(office, come):
    question = ask(office, "show", '{"amount": 5}', True, id="utc")
    page = come().goto(f"/approvals/{question.id}", ".form")
    page.fill("[aria-label=amount]", "7")
    page.evaluate("async () => (await import('/static/js/store.js')).set({ utc: true })")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
    expect(page.locator("[aria-label=amount]")).to_have_value("7")
    expect(page.locator(".q-change")).to_contain_text("Your change")


def test_of_two_edits_the_second_can_be_kept(office, come):
    """Whatever comes in from elsewhere while its writer looks at what the first one wrote."""
    question = ask(office, "show", '{"amount": 5}', True, 2, id="both")
    ana, bo = come().goto(f"/approvals/{question.id}", ".form"), come("bo").goto(f"/approvals/{question.id}", ".form")
    ana.fill("[aria-label=amount]", "7")
    bo.fill("[aria-label=amount]", "9")
    bo.click(".q-buttons .primary")
    ana.click(".q-buttons .primary")
    ana.click("dialog button[type=submit]")
    expect(ana.locator(".q-why")).to_contain_text("You agreed")
    expect(bo.locator(".q-told")).to_contain_text("ana changed it while you looked")
    expect(bo.locator("dialog")).to_have_count(0)  # it asked about what is not to be decided any more
    told = bo.locator(".q-told")
    office.act(lambda hf: hf.start("show", '"another"', id="meanwhile"))
    expect(bo.locator("a.inbox-item", has_text="another")).to_be_visible()  # the page has heard of what came later
    told.locator("button", has_text="Keep mine").click()
    expect(bo.locator("[aria-label=amount]")).to_have_value("9")
    bo.click(".q-buttons .primary")
    bo.click("dialog button[type=submit]")
    expect(bo.locator(".q-why")).to_contain_text("You agreed")
    assert look(office, question.id).data == {"amount": 9}


def link(office, question, by):
    made = office.act(lambda hf: hf.approval_link(question, by=by, expires="1h"))
    return f"/approvals/{question.id}#link={made.rpartition('link=')[2]}"


def test_a_second_link_of_the_same_person_takes_the_place_of_the_first(office, come):
    one, two = (ask(office, "show", f'"{each}"', id=f"link-{each}") for each in ("one", "two"))
    zoe = come(None)
    page = zoe.goto(link(office, one, "bo"), ".q-buttons .primary")
    page = zoe.goto(link(office, two, "bo"), ".q-buttons .primary")
    expect(page.locator(".q-shown")).to_contain_text("two")
    decide(page)
    assert (look(office, one.id).status, look(office, two.id).decided_by) == ("open", "bo")


def test_a_link_of_somebody_else_asks_who_one_is(office, come):
    question = ask(office, "show", '"for bo"', id="whose")
    where = link(office, question, "bo")
    ana = come()
    page = ana.goto("/approvals", ".inbox")
    page.evaluate("(to) => { location.href = to }", where)
    told = page.locator(".told")
    expect(told).to_contain_text("This link is for bo, and you are signed in as ana.")
    assert "link=" not in page.url
    told.locator("button", has_text="Go on as ana").click()
    expect(page.locator(".q-by")).to_contain_text("ana")
    page.evaluate("(to) => { location.href = to }", where)  # the same page: only what follows the # is another
    told.locator("button", has_text="Go on as bo").click()
    expect(page.locator(".q-by")).to_contain_text("bo")
    decide(page)
    assert look(office, question.id).decided_by == "bo"


def test_who_is_signed_in_as_the_person_of_a_link_stays_so(office, come):
    question = ask(office, "show", '"for bo too"', id="same")
    bo = come("bo")
    page = bo.goto(link(office, question, "bo"), ".q-buttons .primary")
    assert "link=" not in page.url and page.locator(".inbox").count() == 1


def test_a_link_that_an_edit_has_outlived_says_so_when_it_is_opened(office, come):
    question = ask(office, "show", '{"amount": 5}', True, 2, id="outlived")
    where = link(office, question, "bo")
    early = come(None)
    looking = early.goto(where, ".q-buttons .primary")
    looking.evaluate(
        "() => Object.defineProperty(document, 'hidden', { value: true })"
    )  # so that it does not look every 3 s
    office.act(lambda hf: hf.approve(question, by="ana", data={"amount": 7}))
    page = come(None).goto(where, ".told")
    expect(page.locator(".told")).to_contain_text("This link decides no more: ana changed the value")
    expect(page.locator(".told")).to_contain_text("Ask whoever sent it for another")
    page.locator(".told button", has_text="Look at it as bo").click()
    acts = page.locator(".q-acts")
    expect(acts).to_contain_text("Your link decides no more: ana changed the value")
    assert acts.locator("button").count() == 0
    expect(page.locator(".q-shown")).to_contain_text("7")
    looking.click(".q-buttons .primary")
    looking.click("dialog button[type=submit]")
    expect(looking.locator(".q-told")).to_contain_text("ana changed it while you looked. Nothing was decided.")
    looking.locator(".q-told button", has_text="Look at ana's").click()
    expect(looking.locator(".q-acts")).to_contain_text("Your link decides no more: ana changed the value")


@pytest.mark.parametrize("by", ["link", "name"])
def test_who_has_passed_a_question_on_elsewhere_has_nothing_to_press(office, come, by):
    question = ask(office, "show", '{"amount": 5}', True, id=f"passed-{by}")
    where = link(office, question, "bo") if by == "link" else f"/approvals/{question.id}"
    page = come(None if by == "link" else "bo").goto(where, ".q-buttons .primary")
    page.locator(".q-shown input").first.fill("7")
    office.act(lambda hf: hf.delegate(question, to="max", by="bo"))
    expect(page.locator(".q-told")).to_contain_text("You passed it on to max")
    expect(page.locator(".q-told")).to_contain_text("You had entered")
    expect(page.locator(".q-acts")).to_contain_text("It is for")
    assert page.locator(".q-acts button, .q-shown input").count() == 0


def test_a_page_whose_link_was_used_elsewhere_says_so_and_keeps_what_was_typed(office, come):
    question = ask(office, "show", '{"amount": 5}', True, id="used")
    where = link(office, question, "bo")
    page, other = (come(None).goto(where, ".q-buttons .primary") for _ in range(2))
    page.locator(".q-shown input").first.fill("7")
    decide(other)
    expect(page.locator(".q-told")).to_contain_text("Your link is used up")
    expect(page.locator(".q-told")).to_contain_text("7")
    assert page.locator(".q-acts button, .q-shown input").count() == 0
    assert "sign-in" not in page.url
