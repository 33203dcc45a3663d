"""A run on the page: torn where its process was gone, folded where nobody worked, told in the command line's sentences."""

import json
import re
import urllib.request

import pytest
from playwright.sync_api import expect
from tests.page.browser import PHONE
from tests.page.scene import served

from holdfast.cli.view.tree import History
from holdfast.client.family import account

pytestmark = pytest.mark.slow

ROW = "[role=treeitem]"


def names(page):
    """What a reader of screens hears, row by row."""
    return page.locator(ROW).evaluate_all("rows => rows.map(row => row.ariaLabel)")


def events_of(stage, run):
    asked = urllib.request.Request(
        f"{stage.address}/api/runs/{run}/events?limit=1000", headers={"Authorization": f"Bearer {stage.tokens['ana']}"}
    )
    with urllib.request.urlopen(asked) as answer:
        return json.load(answer)["events"]


def test_an_interruption_is_a_tear_with_both_names_and_what_was_in_the_middle(visit):
    page = visit("ana").goto("/runs/otters-2026-07", ".pill")
    expect(page.locator(".pill")).to_have_text(re.compile("went on within"))
    expect(page.locator(".side-title")).to_have_text(re.compile(r"fox was killed\. heron went on within"))
    expect(page.locator(".ledger")).to_contain_text("results were read back")
    expect(page.locator(".facts")).to_contain_text("its lock: the process was dead")
    assert page.locator(".tl-paper.over path.rip").count() == 2
    assert page.locator(".bar.going").count() >= 1 + 3  # what the legend shows, and three sections that are written
    assert page.evaluate("document.querySelectorAll('*').length") < 2_500


def test_a_tear_that_happens_is_drawn_while_one_looks(stage, visit, tmp_path):
    """A worker is killed with what it carries: the tear comes by itself, and after the end the page has every event once."""
    worker = stage.worker("doomed", "torn_agents.py")
    stage.act(lambda hf: served(hf, "torn"))
    stage.act(lambda hf: hf.start("torn", 3, str(tmp_path / "air"), id="torn-1"))
    page = visit("ana").goto("/runs/torn-1", ROW)
    expect(page.locator(".tl-rows .bar.going")).not_to_have_count(0, timeout=20_000)
    worker.kill()
    worker.wait()
    stage.worker("saviour", "torn_agents.py")
    expect(page.locator(".pill")).to_have_count(1, timeout=30_000)
    expect(page.locator(".tl-rows .bar.lost")).not_to_have_count(0, timeout=30_000)
    (tmp_path / "air").touch()
    expect(page.locator(".run-state")).to_have_text("completed", timeout=60_000)
    told = page.locator(".pill").get_attribute("aria-label")
    assert "doomed was gone, saviour went on within" in told
    assert any("lost with its process" in each and "done in" in each for each in names(page))
    page.reload()
    expect(page.locator(".tl-rows .bar.lost")).not_to_have_count(0)  # who comes later sees the same
    page.goto("/runs/torn-1/journal")
    expect(page.locator(".ev-row[data-seq]").last).to_be_visible()
    shown = page.locator(".ev-row[data-seq]").evaluate_all("rows => rows.map(row => Number(row.dataset.seq))")
    assert shown == [event["seq"] for event in events_of(stage, "torn-1")]


@pytest.mark.by_day("tides-12", "refund-5521")
@pytest.mark.parametrize("run", ["tides-12", "lisbon-tile-0117", "payout-8841", "refund-5521", "noor", "cleanup-0716"])
def test_every_call_that_the_command_line_shows_is_a_sentence_of_the_page(stage, visit, run):
    page = visit("ana").goto(f"/runs/{run}", ROW)
    heard = "\n".join(names(page))

    async def tree(hf):
        return History((await account(hf, run)).told)

    def calls(items):
        for node in items:
            if node.sort in ("step", "model", "child", "question"):
                yield node
            yield from calls(node.items)

    found = list(calls(stage.act(tree).items))
    assert found
    for node in found:
        assert node.name in heard, (node.name, heard)
        for remark in node.remarks:
            if remark.tone == "bad":
                assert remark.text.partition(": ")[2].partition(";")[0][:60] in heard


def test_what_matters_is_chosen_first(visit):
    """The failure of a run that failed, the question of one that asks."""
    visitor = visit("ana")
    page = visitor.goto("/runs/lisbon-tile-0117", ".side .trace")
    expect(page.locator(".side")).to_contain_text("ValueError")
    expect(page.locator(".fault.bad")).to_contain_text("Retry")
    page = visitor.goto("/runs/payout-8841", ".asked-part")
    expect(page.locator(".asked-part a")).to_have_attribute("href", re.compile("approvals/q-"))


def test_keys_choose_fold_and_move(visit):
    page = visit("ana").goto("/runs/otters-2026-07", ROW)
    page.keyboard.press("Escape")
    expect(page.locator(".side-sort")).to_have_text("The run")
    page.keyboard.press("]")
    expect(page.locator(".side-sort")).to_have_text("Interruption")
    assert re.search(r"\?at=\d+$", page.url)
    page.keyboard.press("t")
    expect(page.locator(".tl-line.axis .tl-cell")).to_have_text("true time")
    assert "time=true" in page.url
    page.keyboard.press("t")
    page.keyboard.press("f")
    expect(page.locator(".side .attempts .failed")).to_contain_text("ConnectionError")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    assert page.locator(f"{ROW}[aria-selected=true]").count() == 1
    page.keyboard.press("3")
    page.wait_for_url("**/runs/otters-2026-07/journal")
    page.go_back()
    expect(page.locator(ROW).first).to_be_visible()


def test_a_filter_shows_what_fits_and_stands_in_the_address(visit):
    page = visit("ana").goto("/runs/otters-2026-07", ROW)
    page.fill(".mini-find input", "attempt>1")
    expect(page.locator(ROW)).to_have_count(1)
    assert "only=attempt" in page.url
    page.reload()
    expect(page.locator(ROW)).to_have_count(1)
    page.fill(".mini-find input", "no such call")
    expect(page.locator(".tl-none")).to_have_text("No call fits the filter.")


@pytest.mark.parametrize("phone", [False, True])
def test_what_one_may_decide_comes_first_and_menus_open_under_their_button(visit, phone):
    page = visit("ana", phone=phone).goto("/runs/payout-8841", ".run-title")
    expect(page.locator(".run-title .acts > *").first).to_have_text("Decide")
    page.keyboard.press(".")
    menu, opener = page.locator(".menu").bounding_box(), page.locator(".run-title .square").bounding_box()
    assert 0 < menu["y"] - opener["y"] - opener["height"] < 20 and menu["x"] >= 0
    assert menu["x"] + menu["width"] <= page.viewport_size["width"] and page.evaluate("scrollY") == 0
    page.keyboard.press("Escape")
    page.click("text=Decide")
    expect(page.locator(".question h1")).to_contain_text("happen")


def test_addresses_that_lead_nowhere_say_so_and_a_part_that_was_not_read_is_read_later(visit):
    visitor = visit("ana")
    page = visitor.goto("/nowhere", "h1")
    expect(page.locator("h1")).to_have_text("There is nothing here")
    for path, told in (
        ("/agents/nope", "There is no agent nope."),
        ("/schedules/nope", "There is no schedule, trigger or notification nope."),
        ("/approvals/nope", "There is no such question."),
    ):
        visitor.goto(path, ".problem")
        expect(page.locator(".problem")).to_contain_text(told)
    page.route(lambda url: url.endswith(("views/fleet.js", "api/me")), lambda route: route.abort())
    page.click("nav >> text=Fleet")
    expect(page.locator("main .problem")).to_contain_text("The server did not answer. It is read as soon as it does.")
    page.unroute_all()
    expect(page.locator("main h1")).to_have_text("Fleet")


def test_two_calls_with_other_inputs_show_both_and_a_journal_is_filtered_by_its_address(visit):
    visitor = visit("ana")
    page = visitor.goto("/compare?a=otters-2026-07&b=seals-2026-07", ".cmp-row:not(.is-same)")
    for of, told in (("A", "how sea otters hold on"), ("B", "harbour seals")):
        expect(page.locator(f".cmp-half[data-of={of}] p code").first).to_contain_text(told)
    page = visitor.goto("/runs/otters-2026-07/journal", ".ev-row[data-seq]")
    page.select_option("[aria-label=Kind]", "run")
    page.fill("[aria-label='Filter events']", "interrupted")
    expect(page.locator(".ev-row[data-seq]")).to_have_count(1)
    assert "kind=run" in page.url and "q=interrupted" in page.url
    page.reload()
    expect(page.locator(".ev-row[data-seq]")).to_have_count(1)


def test_who_may_only_read_is_offered_nothing_else(visit):
    page = visit("eve").goto("/runs/otters-2026-07", ROW)
    assert page.locator(".acts button").count() == 1  # what can be copied and opened
    page.locator(ROW).nth(2).click()
    expect(page.locator(".side-foot")).not_to_contain_text("Fork")


def test_pausing_and_resuming_is_one_press_each(stage, visit):
    stage.act(lambda hf: hf.start("listener", "never", id="pressed-1"))
    page = visit("ana").goto("/runs/pressed-1", ".run-title")
    page.click("button:has-text('Pause')")
    expect(page.locator(".run-state")).to_have_text("paused", timeout=20_000)
    page.click(".run-title button:has-text('Resume')")
    expect(page.locator(".run-state")).to_have_text("waiting", timeout=20_000)
    page.click("button:has-text('Cancel…')")
    page.fill("dialog input", "enough")
    page.click("dialog button:has-text('Cancel the run')")
    expect(page.locator(".run-state")).to_have_text("cancelled", timeout=20_000)
    expect(page.locator(".fault")).to_contain_text("enough")


def test_the_other_sides_of_a_run_are_there(visit):
    visitor = visit("ana")
    page = visitor.goto("/runs/otters-2026-07/streams", ".stream-list button")
    expect(page.locator(".stream-text > .part")).to_contain_text("An otter that sleeps")
    expect(page.locator(".voided summary")).to_contain_text(
        "were written and discarded"
    )  # by the process that was killed
    page = visitor.goto("/runs/otters-2026-07/data", ".data-block")
    expect(page.locator(".data-cols")).to_contain_text("how sea otters hold on")
    page = visitor.goto("/runs/otters-2026-07/audit", ".deed")
    expect(page.locator(".audit-list")).to_contain_text("start")
    page = visitor.goto("/runs/otters-2026-07/conversation", ".turn")
    expect(page.locator(".talk .across")).to_have_count(1)


def test_on_a_phone_the_chosen_side_of_a_run_is_in_sight_and_deeds_fit(visit):
    page = visit("ana", phone=True).goto("/runs/otters-2026-07/audit", ".deed")
    for each in ("[role=tab][aria-selected=true]", ".deed >> nth=0", ".deed time >> nth=0"):
        box = page.locator(each).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"], each
    assert box["height"] < 30  # a time is one line


def test_a_journal_is_read_once_while_nothing_is_new(visit):
    """However often the page looks whether something is."""
    page = visit("ana").page
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "limit=200&dropped=true" in request.url else None)
    page.clock.install()
    page.goto("/runs/otters-2026-07/journal")
    page.wait_for_selector(".ev-row[data-seq]")
    first = page.locator(".ev-row[data-seq]").first
    first.evaluate("row => { row.isTheSame = true; }")
    page.clock.run_for(5_000)
    assert first.evaluate("row => row.isTheSame")
    assert len(asked) == 1


def test_a_run_on_a_phone_is_strips_and_a_sheet(visit):
    page = visit("ana", phone=True).goto("/runs/otters-2026-07", ".dw-row")
    expect(page.locator(".across")).to_have_text(re.compile(r"fox was killed\s*heron went on within"))
    page.click(".across")
    expect(page.locator(".sheet .side-title")).to_contain_text("fox was killed")
    page.click(".sheet-grip")
    expect(page.locator(".sheet")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_two_runs_of_which_one_goes_on_are_followed(stage, visit):
    stage.act(lambda hf: hf.start("refund", 9.0, id="followed"))
    question = stage.act(lambda hf: hf.get("followed").wait_for_question())
    page = visit("ana").goto("/compare?a=refund-5521&b=followed", ".cmp")
    expect(page.locator(".cmp-run").nth(1)).to_contain_text("asks")
    stage.act(lambda hf: hf.approve(question, by="bo"))
    expect(page.locator(".cmp-run").nth(1)).to_contain_text("completed")
    expect(page.locator(".cmp-row").first).to_contain_text("denied by bo")
    expect(page.locator(".cmp-row").first).to_contain_text("approved by bo")


def test_what_the_filter_of_calls_takes_can_be_read(visit):
    """The words in the empty field have room, also in a wide font."""
    page = visit("ana").goto("/runs/noor", ".mini-find input")
    field = page.locator(".mini-find input")
    needed = field.evaluate(
        """(each) => {
        const canvas = document.createElement("canvas").getContext("2d");
        canvas.font = `${getComputedStyle(each).fontSize} "DejaVu Sans"`;
        return canvas.measureText(each.placeholder).width;
        }"""
    )
    assert needed < field.evaluate("(each) => each.clientWidth")
