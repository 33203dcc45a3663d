"""Questions: the form of every type, the change beside it, one sheet before a decision, and what others did meanwhile."""

import json
import re

import pytest
from playwright.sync_api import expect
from tests.page.browser import DESK, PHONE

import holdfast

pytestmark = pytest.mark.slow


def ask(stage, agent, *args, id):
    """Start a run that asks, and wait for its question."""

    async def asking(hf):
        run = await hf.acting_as("bo").start(agent, *args, id=id)
        return await run.wait_for_question()

    return stage.act(asking)


def look(stage, id):
    return stage.act(lambda hf: hf.approval(id))


def test_a_change_on_a_phone_is_told_confirmed_and_decided_as_it_was_seen(stage, visit):
    question = ask(stage, "privileges", "kim", id="kim")
    ana = visit("ana", phone=True)
    page = ana.goto("/approvals", ".inbox-item")
    assert page.locator("header.bar nav").is_visible()
    page.tap(".inbox-item:has-text('kim')")
    page.wait_for_selector(".pick-pill")
    assert page.locator("header.bar nav").is_hidden()  # nothing is beside the two buttons
    page.tap(".pick-pill:has-text('admin')")
    page.fill("[aria-label=Days]", "140")
    expect(page.locator(".hint.wrong:visible")).to_have_text("at most 90")
    expect(page.locator(".q-buttons .primary")).to_be_disabled()
    page.fill("[aria-label=Days]", "14")
    expect(page.locator(".q-buttons .primary")).to_have_text("Approve staff, code, 14 days")
    expect(page.locator(".q-change .diff-line.del").nth(0)).to_contain_text('"admin"')
    sent = []
    page.on("request", lambda request: sent.append(request) if request.method == "POST" else None)
    page.tap(".q-buttons .primary")
    expect(page.locator("dialog")).to_contain_text("Approve staff, code, 14 days?")
    assert sent == []  # the first tap decides nothing
    page.fill("dialog input", "two weeks will do")
    page.tap("dialog button[type=submit]")
    expect(page.locator(".q-said")).to_contain_text("two weeks will do")
    (request,) = sent
    said = json.loads(request.post_data)
    assert said["digest"] == question.digest
    assert said["data"] == {
        "account": "kim",
        "groups": ["staff", "code"],
        "days": 14,
        "reason": "backend engineer, team Harbour",
    }
    assert request.headers["x-holdfast-page"] == "1"
    kept = look(stage, question.id)
    assert (kept.status, kept.data["days"], kept.votes[0].by) == ("open", 14, "ana")


def test_an_answer_has_a_control_for_every_type(stage, visit):
    question = ask(stage, "travel", "lee", id="lee")
    page = visit("ana").goto(f"/approvals/{question.id}", ".form")
    page.click("text=Answer >> nth=-1")
    expect(page.locator(".hint.wrong:visible").first).to_have_text("city is needed")
    page.click(".pick-pill:has-text('Porto')")
    page.fill("[aria-label=When]", "2026-12-24")
    page.fill("[aria-label=Nights]", "3")
    page.fill("[aria-label='At Least']", "12.5")
    page.click(".pick-pill:has-text('no')")
    for name in ("ana", "bo"):
        page.fill("[aria-label='Add to People']", name)
        page.press("[aria-label='Add to People']", "Enter")
    page.fill("[aria-label='Meals, as JSON']", '{"lunch": ')
    expect(page.locator(".hint.wrong:visible").last).to_contain_text("it is no JSON")
    page.fill("[aria-label='Meals, as JSON']", '{"lunch": 2}')
    page.fill("[aria-label=Leaves]", "2026-12-24T08:30:00")
    page.click(".q-buttons .primary")
    page.click("dialog button[type=submit]")
    expect(page.locator(".q-meta")).to_contain_text("answered by ana")
    kept = look(stage, question.id)
    assert kept.data == {
        "city": "Porto", "when": "2026-12-24", "nights": 3, "at_least": 12.5, "window": False, "people": ["ana", "bo"],
        "meals": {"lunch": 2}, "leaves": "2026-12-24T08:30:00.000Z",
    }  # fmt: skip


def test_what_is_missing_is_marked_and_said_beside_the_button(stage, visit):
    question = ask(stage, "ship", "Kettles", id="ship-missing")
    page = visit("ana").goto(f"/approvals/{question.id}", ".form")
    approve, why = page.locator(".q-buttons .primary"), page.locator(".q-why")
    page.fill("[aria-label=Weight]", "")
    expect(approve).to_be_disabled()
    expect(why).to_contain_text("weight is needed")
    expect(page.locator("[aria-label=Weight]")).to_have_attribute("aria-invalid", "true")
    page.fill("[aria-label=Weight]", "60")
    expect(why).to_contain_text("weight: at most 50")
    page.fill("[aria-label=Weight]", "3")
    expect(approve).to_be_enabled()
    page.click("text=Add to items")
    expect(approve).to_be_disabled()
    expect(why).to_contain_text("name is needed")
    why.locator("text=Go there").click()
    expect(page.locator(".several .form").nth(2).locator("[aria-label=Name]")).to_be_focused()
    page.keyboard.type("lid")
    expect(why).to_have_count(0)
    expect(approve).to_be_enabled()


def test_it_is_said_what_is_decided_and_what_a_change_takes_the_place_of(stage, visit):
    question = ask(stage, "ship", "Kettles for Vienna", id="ship-words")
    page = visit("ana").goto(f"/approvals/{question.id}", ".form")
    change, sheet, named = page.locator(".q-change"), page.locator("dialog"), question.digest[:11]
    expect(page.locator(".q-buttons .primary")).to_have_text("Approve Kettles for Viennaa")
    expect(change).to_contain_text(f"You decide exactly this, {named}")
    page.click(".q-buttons .primary")
    expect(sheet).to_contain_text("Ring 1")  # all of the value, not a line of it
    expect(sheet).to_contain_text(f"ana decides {named}")
    page.keyboard.press("Escape")
    page.fill("[aria-label=Weight]", "3.5")
    expect(change).to_contain_text(f"You decide your change, in place of {named}")
    page.click(".q-buttons .primary")
    expect(sheet.locator(".diff-line.add")).to_contain_text("3.5")
    expect(sheet).to_contain_text(f"ana puts this in place of {named}")


def test_a_list_of_a_form_has_room_for_its_buttons_and_tells_its_change_beside(stage, visit):
    question = ask(stage, "ship", "Kettles", id="ship-list")
    ana = visit("ana")
    page = ana.goto(f"/approvals/{question.id}", ".form")
    for size in (DESK, PHONE):
        page.set_viewport_size(size)
        ana.settle()
        cross = page.locator(".several .quiet").first.bounding_box()
        field = page.locator(".several [aria-label=Name]").first.bounding_box()
        assert field["x"] + field["width"] <= cross["x"] + 1
    page.set_viewport_size(DESK)
    page.click(".several .quiet >> nth=0")
    expect(page.locator(".field-name:has(> label:text-is('Items')) .was")).to_have_text("changed")
    expect(page.locator(".q-change .diff-line.del")).to_contain_text("kettle")


def test_an_answer_is_needed_before_it_is_confirmed(stage, visit):
    question = ask(stage, "seat", "kai", id="seat-kai")
    page = visit("bo").goto(f"/approvals/{question.id}", ".form")
    page.click(".q-buttons .primary")
    expect(page.locator(".hint.wrong")).to_have_text("an answer is needed")
    expect(page.locator("dialog")).to_have_count(0)


def test_two_people_at_once_the_second_sees_who_when_and_the_change(stage, visit):
    question = ask(stage, "refund", 12.0, id="refund-12")
    ana, bo = visit("ana"), visit("bo")
    first, second = (each.goto(f"/approvals/{question.id}", ".q-buttons .primary") for each in (ana, bo))
    second.route("**/api/events**", lambda route: route.abort())  # so that only the answer tells
    second.reload()
    second.wait_for_selector(".q-buttons .primary")
    second.fill("[aria-label=Note]", "mine was longer")
    first.fill("[aria-label=amount]", "10.0")
    first.click(".q-buttons .primary")
    first.click("dialog button[type=submit]")
    expect(first.locator(".q-meta")).to_contain_text("approved by ana")
    second.click(".q-buttons .primary")
    second.click("dialog button[type=submit]")
    told = second.locator(".q-told")
    expect(told).to_contain_text("ana approved it")
    expect(told).to_contain_text("with a change")
    expect(told.locator(".diff-line.add")).to_contain_text("10")


def test_a_value_that_changed_while_one_looked_is_shown_and_nothing_is_decided(stage, visit):
    question = ask(stage, "privileges", "sam", id="sam")
    bo = visit("bo")
    page = bo.goto(f"/approvals/{question.id}", ".q-buttons .primary")
    page.route("**/api/events**", lambda route: route.abort())
    page.reload()
    page.wait_for_selector(".pick-pill")

    other = holdfast.Actor("ana", groups=["it-admins"])
    stage.act(lambda hf: hf.approve(question, by=other, data={**question.data, "days": 7}))
    page.fill("[aria-label=Days]", "20")
    page.click(".q-buttons .primary")
    page.click("dialog button[type=submit]")
    told = page.locator(".q-told")
    expect(told).to_contain_text("changed it while you looked. Nothing was decided.")
    expect(told.locator("h3")).to_have_text(["Shown to you", "ana's", "Yours"])
    for nth, days in enumerate(("7", "20")):  # what differs from what was shown is marked
        expect(told.locator(".q-values .diff").nth(nth).locator(".diff-line.add mark")).to_have_text(days)
    expect(page.locator(".q-said")).to_contain_text("1 of 2 agrees")
    expect(page.locator(".q-buttons .primary")).to_be_disabled()
    told.locator("text=Keep mine").click()
    expect(page.locator("[aria-label=Days]")).to_have_value("20")
    expect(page.locator(".q-change")).to_contain_text("ana's yes was for the value before")
    page.click(".q-change >> text=undo")
    page.click(".q-buttons .primary")
    expect(page.locator("dialog")).to_contain_text("ana changed this:")
    expect(page.locator("dialog .diff-line.add mark")).to_have_text("7")


@pytest.mark.parametrize("what", ["changes it", "decides"])
def test_a_sheet_closes_when_somebody_else_decides_or_changes_the_value(stage, visit, what):
    question = ask(stage, "privileges", "rob", id=f"rob-{what.split()[0]}")
    page = visit("bo").goto(f"/approvals/{question.id}", ".q-buttons .primary")
    page.locator(".q-scroll").evaluate("(each) => { each.style.height = '200px'; each.scrollTop = 5000; }")
    page.click(".q-buttons .primary")
    page.fill("dialog input", "it is due")
    other = holdfast.Actor("ana", groups=["it-admins"])
    if what == "decides":
        stage.act(lambda hf: hf.deny(question, by=other))
        told = "ana denied it"
    else:
        stage.act(lambda hf: hf.approve(question, by=other, data={**question.data, "days": 7}))
        told = "ana changed it while you looked"
    expect(page.locator("dialog")).to_have_count(0, timeout=15_000)
    expect(page.locator(".q-told")).to_contain_text(told)
    expect(page.locator(".q-told")).to_be_in_viewport()
    expect(page.locator(".q-buttons .primary:enabled")).to_have_count(0)
    if what != "decides":
        expect(page.locator("[aria-label=Note]")).to_have_value("it is due")


def test_how_long_ago_goes_on_wherever_it_stands(stage, visit):
    question = ask(stage, "refund", 22.0, id="refund-22")
    ask(stage, "refund", 23.0, id="refund-23")
    ana = visit("ana")
    page = ana.goto(f"/approvals/{question.id}", ".q-buttons .primary")
    page.clock.install()
    page.reload()
    page.wait_for_selector(".q-buttons .primary")
    stage.act(lambda hf: hf.deny(question, by="ana"))
    foot = page.locator(".q-acts")
    expect(foot).to_contain_text("ana denied it")
    ana.settle()
    page.clock.run_for(300_000)
    listed, decided = page.locator(".inbox-item:has-text('23.00')"), page.locator(".decided li").first
    for place in (foot, page.locator(".q-told"), listed, decided):
        expect(place).to_contain_text(re.compile("[5-9] min ago"), timeout=10_000)


def test_doubt_is_resolved_by_what_a_person_knows(stage, visit):
    page = visit("ana").goto("/approvals", ".inbox-item")
    page.click(".inbox-item:has-text('wire(')")
    expect(page.locator(".facts")).to_contain_text("hf_")
    for told in ("It began", "Cut off", "found gone"):  # what one looks up at the bank
        expect(page.locator(".facts")).to_contain_text(told)
    expect(page.locator(".q-buttons .button")).to_have_text(
        ["Pass on…p", "Fail the step…d", "It did not, run it…r", "It happened…a"]
    )
    page.click("h1")
    page.keyboard.press("a")
    expect(page.locator("dialog")).to_contain_text("it does not run again")
    expect(page.locator("dialog .strong", has_text="Its result")).to_be_visible()
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog .hint.wrong")).to_have_text("a result is needed: str")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)


def forked(stage, id):
    """Fork a run that is done from before its only step, and wait until the fork asks about that."""

    async def forking(hf):
        fork = await hf.get("cleanup-0716").fork(at="remove", id=id, by="bo")
        return await fork.wait_for_question()

    return stage.act(forking)


def test_a_fork_asks_whether_to_do_again_what_is_known_to_be_done(stage, visit):
    question = forked(stage, "cleanup-again")
    page = visit("ana").goto(f"/approvals/{question.id}", ".q-buttons .primary")
    expect(page.locator(".q-buttons .button")).to_have_text(
        ["Pass on…p", "Fail the step…d", "Do it again…r", "Give a result…", "Use the recorded resulta"]
    )
    facts = page.locator(".facts")
    expect(facts).to_contain_text("Callremove(")
    expect(facts).to_contain_text("It ranin cleanup-0716, event")
    expect(facts).to_contain_text("Recorded result'412 files removed'")
    expect(facts).to_contain_text("It is new: nobody has seen it")
    for false in ("Called with", "did not", "It happened", "whether it arrived", "Answer"):
        expect(page.locator(".question")).not_to_contain_text(false)
    expect(page.locator(f".inbox-item[data-row='{question.id}']")).to_contain_text(
        "use its result, do it again, or fail"
    )
    page.click("h1")
    for key, says in (("d", "What was done before stays done."), ("r", "with the idempotency key that is shown")):
        page.keyboard.press(key)
        expect(page.locator("dialog")).to_contain_text(says)
        page.keyboard.press("Escape")
        expect(page.locator("dialog")).to_have_count(0)
    page.click(".q-buttons .primary")
    expect(page.locator("dialog")).to_contain_text("412 files removed")
    page.click("dialog button[type=submit]")
    expect(page.locator(".q-meta")).to_contain_text("answered by ana")
    assert look(stage, question.id).data == {"result": "412 files removed"}


def test_the_page_of_a_fork_says_that_what_it_asks_about_ran_before(stage, visit):
    question = forked(stage, "cleanup-asks")
    ana = visit("ana")
    side = ana.goto(f"/runs/{question.run}?at=remove%230", ".asked-part").locator(".asked-part")
    expect(side).to_contain_text("Its body ran before, behind the point from which this run goes on")
    page = ana.goto(f"/runs/{question.run}/journal", "main :text('asks a person')")
    expect(page.locator("main")).to_contain_text("its body ran before; question")
    expect(page.locator("main")).not_to_contain_text("not known")


def test_the_sheet_of_a_fork_says_that_its_first_call_is_asked_about_like_all_others(visit):
    page = visit("ana").goto("/runs/cleanup-0716?at=remove%230", "text=Fork from here…")
    page.click("text=Fork from here…")
    sheet = page.locator("dialog")
    expect(sheet).to_contain_text("This callAs all from here onPut a result there")
    expect(sheet).to_contain_text("Steps from here on that were done beforeask a person")
    expect(sheet).not_to_contain_text("Call it again")


def test_of_a_paused_run_it_is_said_that_the_decision_is_kept(stage, visit):
    question = ask(stage, "refund", 6.0, id="refund-6")
    stage.act(lambda hf: hf.get("refund-6").pause(by="bo"))
    page = visit("ana").goto(f"/approvals/{question.id}", ".q-buttons .primary")
    kept = "The run is paused: the store keeps what is decided until somebody resumes it."
    expect(page.locator(".q-acts")).to_contain_text(kept)
    page.click(".q-buttons .primary")
    page.click("dialog button[type=submit]")
    expect(page.locator(".q-acts")).to_contain_text(f"Nothing is left to decide. {kept}")


def test_the_way_back_counts_what_waits_when_a_question_is_decided(stage, visit):
    question = ask(stage, "refund", 7.0, id="refund-7")
    page = visit("ana", phone=True).goto(f"/approvals/{question.id}", ".q-buttons .primary")
    back = page.locator(".back")
    before = int(back.inner_text().split()[0])
    page.tap(".q-buttons .primary")
    page.tap("dialog button[type=submit]")
    expect(page.locator(".q-meta")).to_contain_text("approved by ana")
    expect(back).to_have_text(f"{before - 1} for you" if before > 1 else "Approvals")


def test_when_the_answer_to_a_decision_is_lost_the_page_looks_what_became_of_it(stage, visit):
    question = ask(stage, "refund", 3.0, id="refund-3")
    ana = visit("ana")
    how = ["before", "after"]

    def lose(route):
        if how.pop(0) == "after":
            route.fetch()
        route.abort()

    page = ana.goto(f"/approvals/{question.id}", ".q-buttons .primary")
    page.route(
        lambda url: url.endswith(question.id),
        lambda route: route.continue_() if route.request.method == "GET" else lose(route),
    )
    page.click(".q-buttons .primary")
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog .problem")).to_contain_text("It was not decided: the question is as it was.")
    assert look(stage, question.id).status == "open"
    page.click("dialog button[type=submit]")
    expect(page.locator(".q-meta")).to_contain_text("approved by ana")
    expect(page.locator("dialog")).to_have_count(0)
    expect(page.locator(".q-buttons button")).to_have_count(0)


def test_offline_nothing_is_decided_and_nothing_is_queued(stage, visit):
    question = ask(stage, "refund", 4.0, id="refund-4")
    ana = visit("ana")
    page = ana.goto(f"/approvals/{question.id}", ".q-buttons .primary")
    ana.context.set_offline(True)
    page.click(".q-buttons .primary")
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog .problem")).to_contain_text("It is not known whether this was decided; looking.")
    expect(page.locator("dialog button[type=submit]")).to_be_disabled()
    expect(page.locator(".q-buttons .primary")).to_be_disabled()
    ana.context.set_offline(False)
    expect(page.locator("dialog .problem")).to_contain_text("It was not decided")
    assert look(stage, question.id).status == "open"


def test_a_link_opens_one_question_for_one_person(stage, visit):
    question = ask(stage, "refund", 5.0, id="refund-5")

    made = stage.act(lambda hf: hf.approval_link(question, by="cyd", expires="1h"))
    cyd, refused = visit(None, phone=True), []
    cyd.page.on("response", lambda answer: answer.status == 403 and refused.append(answer.url))
    page = cyd.goto(f"/approvals/{question.id}#link={made.rpartition('link=')[2]}", ".q-buttons .primary")
    assert "link=" not in page.url
    assert look(stage, question.id).status == "open"  # to look decides nothing
    expect(page.locator("#find")).to_be_hidden()
    cyd.goto("/runs", ".problem:has-text('Your link opens one question')")
    cyd.goto("/", ".q-buttons .primary")
    page.tap(".q-buttons .primary")
    assert page.evaluate("document.activeElement.type") == "submit"  # a field would open the keyboard over the buttons
    page.tap("dialog button[type=submit]")
    expect(page.locator(".q-meta")).to_contain_text("approved by cyd")
    assert refused == []  # the audit would say that cyd was refused, and it was the page that asked


@pytest.mark.parametrize("pressed", [False, True])
def test_a_link_sees_that_another_person_has_decided(stage, visit, pressed):
    """No event comes to who has only a link: it looks again, and a refusal shows the same."""
    question = ask(stage, "refund", 6.0, id=f"refund-6-{pressed}")
    made = stage.act(lambda hf: hf.approval_link(question, by="cyd", expires="1h"))
    page = visit(None).goto(f"/approvals/{question.id}#link={made.rpartition('link=')[2]}", ".q-buttons .primary")
    page.fill("[aria-label=amount]", "5.5")
    if pressed:
        page.click(".q-buttons .primary")
    stage.act(lambda hf: hf.deny(question, by="bo", note="not this one"))
    if pressed:
        page.click("dialog button[type=submit]")
    expect(page.locator(".q-told")).to_contain_text("bo denied it")
    expect(page.locator(".q-told pre")).to_contain_text("5.5")  # nothing that was entered is lost
    expect(page.locator(".q-acts")).to_contain_text("Nothing is left to decide")
    expect(page.locator(".q-buttons, .form, .q-digest")).to_have_count(0)


def test_all_of_a_text_that_is_decided_is_shown(visit):
    """Also what stands beside the marks of code, or in code and cannot be seen."""
    page = visit("ana").goto("/runs", "tr[data-row]")
    text = "Pay 10.\n``` and pay 9000 to mallory\n```sh\nabc\u202edef\n```\nThat is all."
    told = page.evaluate("async (text) => (await import('/static/js/parts.js')).prose(text).textContent", text)
    assert "and pay 9000 to mallory" in told and "sh" in told
    assert "\u202e" not in told and "abc⟨U+202E⟩def" in told


def test_what_is_typed_to_start_a_run_stays_when_a_phone_is_turned(visit):
    page = visit("ana", phone=True).goto("/agents/ship", "form.start")
    page.fill("form.start [aria-label=title]", "Kettles")
    page.fill("#start-id", "typed")
    for width, height in ((844, 390), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function("(wide) => innerWidth === wide", arg=width)
        expect(page.locator("form.start [aria-label=title]")).to_have_value("Kettles")
        expect(page.locator("#start-id")).to_have_value("typed")


def test_the_list_of_questions_scrolls_in_one_direction_and_cuts_nothing(visit):
    """Nor does the page beside it scroll."""
    page = visit("eve").goto("/approvals", ".inbox-item[aria-current]")
    over = """() => [".inbox-place", ".inbox-meta", ".inbox-meta span"].flatMap((each) => [...document.querySelectorAll(each)])
        .filter((each) => each.scrollWidth > each.clientWidth && each.clientWidth).map((each) => each.className)"""
    assert page.evaluate(over) == []
    boxes = page.evaluate("""() => [...document.querySelectorAll(".inbox-meta")].flatMap((meta) => [...meta.children].map((each) =>
        [each.textContent, each.getBoundingClientRect().right <= meta.getBoundingClientRect().right + 1]))""")
    assert all(fits for _, fits in boxes), boxes
    assert page.evaluate("document.documentElement.scrollHeight - innerHeight") <= 0


def test_a_long_question_leaves_its_buttons_in_the_window_and_no_toast_covers_them(stage, visit):
    question = ask(stage, "refund", 7.0, id="refund-long")
    page = visit("ana", phone=True).goto(f"/approvals/{question.id}", ".q-buttons .primary")
    page.evaluate(
        "import('/static/js/parts.js').then(({ ask }) => void ask({ title: 'Long', body: ['word '.repeat(3000)] }))"
    )
    box = page.locator("dialog button[type=submit]").bounding_box()
    assert box["y"] + box["height"] <= 844
    page.keyboard.press("Escape")
    page.evaluate("async () => (await import('/static/js/parts.js')).toast('Done')")
    toast, bar = page.locator(".toast").bounding_box(), page.locator(".q-acts").bounding_box()
    assert toast["y"] + toast["height"] <= bar["y"]
