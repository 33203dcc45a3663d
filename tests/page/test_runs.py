"""The list of runs: how each stands and what happens in it, filters that are addresses, and rows that do not jump."""

import asyncio
import re
import signal

import pytest
from playwright.sync_api import expect
from tests.page.browser import Visitor
from tests.page.scene import bare

import holdfast

pytestmark = pytest.mark.slow

STANDS = {
    "otters-2026-07": "running", "noor": "waiting", "payout-8841": "in doubt", "scan-lisbon": "asks", "tides-12": "retrying",
    "brief-thursday": "waiting", "brief-friday": "ready", "lisbon-tile-0117": "failed", "cleanup-0716": "completed",
    "shrimp-3": "cancelled", "paused-1": "paused", "migrate-old-7": "no worker",
}  # fmt: skip


TALL = {"width": 1440, "height": 5_000}  # so that every row is in the page


def row(page, id):
    return page.locator(f'tr[data-row="{id}"]')


def test_every_state_is_a_shape_and_a_word_and_what_happens_is_a_sentence(visit):
    page = visit("ana", size=TALL).goto("/runs", "tr[data-row]")
    for id, word in STANDS.items():
        expect(row(page, id).locator(".standing")).to_have_text(word)
        assert row(page, id).locator("svg.glyph").count() == 1
    expect(row(page, "lisbon-tile-0117").locator(".doing")).to_contain_text("ValueError: request of 628 tokens")
    expect(row(page, "payout-8841").locator(".doing")).to_contain_text("Did wire(amount='4,200 EUR') happen? ·")
    expect(row(page, "otters-2026-07").locator(".doing")).to_contain_text("write_section · 3 at once")
    expect(row(page, "tides-12").locator(".doing")).to_contain_text(
        re.compile(r"overloaded · attempt 2 of 8 in .* 503")
    )
    expect(row(page, "shrimp-3").locator(".doing")).to_contain_text("no budget left for shrimp")
    expect(row(page, "brief-thursday").locator(".doing")).to_contain_text(re.compile(r"sleeps until .* left"))
    expect(row(page, "migrate-old-7").locator(".doing")).to_contain_text("waits for a worker with version 1 of report")
    expect(row(page, "scan-lisbon").locator(".spent")).to_have_text("$2.00 / 2")
    assert page.locator('tr[data-row*="privileges"]').count() == 0  # children stand under their parents, in the tree


def test_a_filter_is_an_address(visit):
    page = visit("ana").goto("/runs?q=label%3Adesk%3Dnature", "tr[data-row]")
    expect(page.locator("tr[data-row]")).to_have_count(4)
    page.click(".token button")
    expect(page.locator("tr[data-row]").nth(4)).to_be_visible()
    assert page.url.endswith("/runs")
    page.fill(".query input", "otters")
    page.press(".query input", "Enter")
    expect(page.locator("tr[data-row]").nth(4)).to_have_count(0)
    assert page.url.endswith("/runs?q=otters")
    page.go_back()
    expect(page.locator("tr[data-row]").nth(4)).to_be_visible()
    page.click("[role=tab]:has-text('Failed')")
    expect(page.locator("tr[data-row]")).to_have_count(1)
    assert "status=failed" in page.url
    page.goto("/runs?q=status%3Afailed")
    expect(page.locator("[role=tab][aria-selected=true]")).to_contain_text("Failed")  # it was typed, and is that tab
    page.click("[role=tab]:has-text('All')")
    expect(page.locator("tr[data-row]").nth(1)).to_be_visible()
    assert page.url.endswith("/runs")
    page.goto("/runs?q=agent%3Anobody+waits%3Aperson")
    expect(page.locator(".empty")).to_contain_text("No run of agent nobody, that waits for a person")
    page.click("text=Take the last condition away")
    assert page.url.endswith("/runs?q=agent%3Anobody")


@pytest.mark.parametrize("query", ["q=status%3Abogus", "q=agent%3Alistener+age>abc", "status=bogus"])
def test_a_filter_that_cannot_be_read_shows_no_run_and_says_why(visit, query):
    page = visit("ana").goto(f"/runs?{query}", ".rows .problem")
    expect(page.locator(".rows .problem")).to_contain_text("cannot be read")
    assert page.locator("tr[data-row], th.pick").count() == 0
    assert page.locator(".state-tab span").all_inner_texts() == [""] * 9
    page.click(".token:last-of-type button")  # the next filter is another one
    expect(page.locator("tr[data-row]").first).to_be_visible()


def test_what_needs_a_person_stands_on_top_with_a_way_to_mend_it(visit):
    page = visit("ana").goto("/runs", ".needs li")
    assert page.locator(".needs li").count() <= 4
    expect(page.locator(".needs")).to_contain_text("Which groups may noor join?")
    page.click(".needs li:has-text('Which groups may noor join?') .button")
    page.wait_for_selector(".question .pick-pill")
    page.goto("/runs?needs=yes")
    expect(row(page, "paused-1")).to_be_visible()
    expect(row(page, "migrate-old-7")).to_be_visible()
    assert page.locator('tr[data-row="cleanup-0716"]').count() == 0


def test_a_question_for_nobody_in_particular_is_for_anybody(stage, visit):
    """In the box as on its own page, and also for a token that may not decide it."""
    page = visit("eve").goto("/runs", ".needs li")
    asked = {each.id: each.to for each in stage.act(lambda hf: hf.approvals())}
    shown = {}
    for item in page.locator(".needs li:has(a[href^='approvals/'])").all():
        id = item.locator("a.strong").get_attribute("href").rpartition("/")[2]
        shown[id] = item.locator(".needs-who").inner_text()
    whom = {id: text for id, text in shown.items() if not asked[id]}
    assert whom and all(text.startswith("for anybody") for text in whom.values()), shown


@holdfast.agent
async def asks_twice(what: str) -> list[str]:
    return await asyncio.gather(*[holdfast.ask(f"{what} {n}?", str) for n in (1, 2)])


@holdfast.agent
async def has_asked(what: str) -> list[str]:
    return await asks_twice(what)


async def five(url):
    """Five runs that need a person, of which one is a child and two are nobody's, and six reasons."""
    async with holdfast.open(url, agents=[asks_twice, has_asked]) as hf:
        await hf.start(asks_twice, "two", id="two")
        await hf.start(has_asked, "parent", id="parent")
        async with asyncio.timeout(30):
            while len(await hf.approvals()) < 4:
                await asyncio.sleep(0.02)
        await (await hf.start(has_asked, "later", id="held", after="1d")).pause()
    async with holdfast.open(url) as hf:  # nobody is there to carry them
        for id in ("nobodys-1", "nobodys-2"):
            await hf.start("asks_twice", id, id=id)


def test_what_needs_a_person_is_counted_once_for_all(tmp_path, browser):
    """The box, its tab and the list behind both tell one number: runs, also those that others started, and not their questions."""
    with bare(tmp_path, five) as made:
        ana = Visitor(browser, made.address, made.tokens["ana"], size=TALL)
        page = ana.goto("/runs?needs=yes", "tr[data-row]")
        expect(page.locator("tr[data-row]")).to_have_count(5)
        expect(page.locator("[role=tab][data-id=needs] span")).to_have_text("5")
        expect(page.locator(".needs header")).to_have_text(
            "Needs a person5 runsAll"
        )  # a question may have an end and a default
        page.goto("/runs?needs=yes&q=agent%3Aasks_twice")
        expect(page.locator("tr[data-row]")).to_have_count(4)
        expect(page.locator("[role=tab][data-id=needs] span")).to_have_text("4")
        ana.settle()
        assert page.locator(".needs").count() == 0  # it is of all runs, as are the numbers of the title
        assert "running" not in page.locator(".head").inner_text()
        ana.leave()


def test_a_new_run_waits_behind_a_button_and_no_row_moves(stage, visit):
    page = visit("ana", size=TALL).goto("/runs", "tr[data-row]")
    before = page.locator("tr[data-row]").first.get_attribute("data-row")
    place = row(page, "otters-2026-07").bounding_box()
    stage.act(lambda hf: hf.start("listener", "later", id="news-1"))
    button = page.locator(".news")
    expect(button).to_have_text("1 new run", timeout=15_000)
    assert page.locator("tr[data-row]").first.get_attribute("data-row") == before
    assert row(page, "otters-2026-07").bounding_box() == place
    button.click()
    expect(row(page, "news-1")).to_be_visible()
    expect(button).to_have_count(0)
    stage.act(lambda hf: hf.get("news-1").cancel(by="ana", reason="enough"))
    expect(row(page, "news-1").locator(".standing")).to_have_text("cancelled", timeout=15_000)


def test_a_list_in_which_nothing_fits_shows_what_fits_later(stage, visit):
    """As where failed runs are retried together, leave the list, and come back into it."""
    page = visit("ana").goto("/runs?q=label%3Atide%3Dlow", ".empty")
    expect(page.locator(".empty")).to_contain_text("Nothing fits")
    stage.act(lambda hf: hf.start("listener", "later", id="low-1", after="6h", labels={"tide": "low"}))
    expect(row(page, "low-1")).to_be_visible(timeout=15_000)
    expect(page.locator(".empty")).to_have_count(0)
    stage.act(lambda hf: hf.get("low-1").cancel(by="ana", reason="enough"))
    expect(row(page, "low-1").locator(".standing")).to_have_text("cancelled", timeout=15_000)  # it is followed


def test_who_may_only_read_chooses_two_runs_to_compare(visit):
    page = visit("eve", size=TALL).goto("/runs", "tr[data-row]")
    bar = page.locator(".many")
    page.check("tr[data-row=cleanup-0716] input")
    expect(bar).to_contain_text("1 chosen, two can be compared", timeout=15_000)
    assert bar.locator("button").count() == 1  # which chooses none
    row(page, "paused-1").focus()
    page.keyboard.press("x")
    expect(bar.locator("a")).to_have_attribute("href", "compare?a=cleanup-0716&b=paused-1")
    bar.locator("a").click()
    page.wait_for_url("**/compare?a=cleanup-0716&b=paused-1")


def test_rows_are_chosen_by_keys_and_the_bar_offers_what_fits(visit):
    page = visit("ana", size=TALL).goto("/runs", "tr[data-row]")
    row(page, "paused-1").focus()
    page.keyboard.press("x")
    expect(page.locator(".many")).to_contain_text("1 chosen")
    expect(page.locator(".many button:has-text('Resume')")).to_be_visible()
    assert page.locator(".many button:has-text('Pause')").count() == 0
    row(page, "cleanup-0716").focus()
    page.keyboard.press("x")
    expect(page.locator(".many a:has-text('Compare')")).to_have_attribute("href", "compare?a=paused-1&b=cleanup-0716")
    page.click(".many button:has-text('Cancel')")
    expect(page.locator("dialog")).to_contain_text("Cancel 1 run?")
    expect(page.locator("dialog")).to_contain_text("Of listener.")  # not of those on which it does not act
    page.click("dialog button:has-text('Back')")
    page.keyboard.press("Escape")
    expect(page.locator(".many")).to_have_count(0)


def test_a_server_that_dies_stops_the_clock_and_one_that_comes_back_is_caught_up_with(stage, visit):
    page = visit("ana").goto("/runs", "tr[data-row]")
    expect(page.locator(".live")).to_have_text("live")
    port = int(stage.address.rpartition(":")[2])
    server = next(each for each in stage.processes if "serve" in each.args)
    stage.processes.remove(server)
    server.send_signal(signal.SIGKILL)
    server.wait()
    expect(page.locator(".live.lost")).to_contain_text("as of", timeout=20_000)
    stage.act(lambda hf: hf.start("listener", "later", id="while-away"))
    stage.serve(port)
    expect(page.locator(".live")).to_have_text("live", timeout=40_000)
    expect(page.locator(".news")).to_have_text("1 new run", timeout=20_000)
    stage.act(lambda hf: hf.get("while-away").cancel(by="ana"))


def test_many_runs_are_cancelled_together_and_those_that_refuse_say_why(stage, visit):
    async def begin(hf):
        for at in range(3):
            await hf.start("listener", "never", id=f"many-{at}", labels={"batch": "b"})

    stage.act(begin)
    page = visit("ana").goto("/runs?q=label%3Abatch%3Db", "tr[data-row]")
    expect(page.locator("tr[data-row]")).to_have_count(3)
    page.click("th.pick input")
    expect(page.locator(".many")).to_contain_text("3 chosen")
    stage.act(lambda hf: hf.get("many-1").cancel(by="bo"))
    stage.act(lambda hf: hf.get("many-1").wait("cancelled"))
    page.click(".many button:has-text('Cancel')")
    page.fill("dialog input", "enough of them")
    page.click("dialog button[type=submit]")
    expect(page.locator("dialog, .toast").last).to_contain_text("asked to stop")
    stage.act(lambda hf: hf.get("many-0").wait("cancelled"))
    stage.act(lambda hf: hf.get("many-2").wait("cancelled"))
    reasons = {each.id: each.reason or "" for each in stage.act(lambda hf: hf.runs(labels={"batch": "b"}))}
    assert {id for id, reason in reasons.items() if "enough of them" in reason} == {"many-0", "many-2"}


def test_questions_are_followed_from_now_on(visit):
    """Those that were asked before are counted; they do not come once more, each."""
    page = visit("ana").page
    with page.expect_request("**/api/events?kinds=approval&after=*") as stream:
        page.goto("/runs")
    last = page.evaluate("fetch('/api/runs?limit=1').then(answer => answer.json()).then(told => told.position)")
    assert 0 < int(stream.value.url.rpartition("=")[2]) <= last


def test_one_field_finds_runs_questions_and_agents(visit):
    page = visit("ana").goto("/runs", "tr[data-row]")
    page.keyboard.press("/")
    page.keyboard.type("otters")
    expect(page.locator(".found [role=option]").first).to_contain_text("otters-2026-07")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/otters-2026-07")
    page.keyboard.press("/")
    page.keyboard.type("nobody at all")
    expect(page.locator(".found-foot")).to_contain_text("Nothing by that name")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs?q=nobody+at+all")


def test_a_long_list_keeps_few_rows_in_the_page(stage, visit):
    """Rows out of sight give their elements back, and come again when they are scrolled to."""

    async def begin(hf):
        for at in range(150):
            await hf.start("briefing", "long", id=f"long-{at:03}", labels={"batch": "long"}, after="10d")

    stage.act(begin)
    page = visit("ana").goto("/runs?q=long-", "tr[data-row]")
    page.wait_for_function(
        """() => {
            scrollBy(0, 900); // until it is in sight: a row that came below what is seen may leave again
            const last = document.querySelector('.problem, [data-row="long-000"]');
            return last && last.getBoundingClientRect().top < innerHeight;
        }""",
        polling=100,
    )
    expect(row(page, "long-000")).to_be_visible()
    assert page.locator("tr[data-row]").count() < 100
    assert page.evaluate("document.querySelectorAll('*').length") < 2_500
    page.evaluate("scrollTo(0, 0)")
    expect(row(page, "long-149")).to_be_visible()

    async def leave(hf):
        for id in await hf.cancel(labels={"batch": "long"}, by="ana"):
            await hf.get(id).wait("cancelled")
            await hf.get(id).delete()

    stage.act(leave)
