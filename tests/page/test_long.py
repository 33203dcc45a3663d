"""Histories and lists of ten thousand rows: all of it can be reached and counted, and little of it is in the page or in memory.

How long that takes is measured in `benchmarks/dashboard.py`; here is what holds on the slowest computer.
"""

import re
from itertools import pairwise

import pytest
from playwright.sync_api import expect
from tests.page.browser import PHONE, Visitor
from tests.page.long_agents import Pace, ask, fill
from tests.page.scene import bare, served

pytestmark = pytest.mark.nightly

ROW, EVENT, RUN = "[role=treeitem]", ".ev-row[data-seq]", "tr[data-row]"
ELEMENTS, HEAP_MB, HUGE, RATE = 2_500, 80, 5_000, 50
RUNS = 1_000
# The number behind the last event of the run that the page has: it came by the stream, or was read before that began.
HEARD = """
window.heard = 0;
window.EventSource = class extends EventSource {
  constructor(url) {
    super(url);
    if (!String(url).includes("/runs/")) return;
    window.heard = Number(new URL(url).searchParams.get("after"));
    this.addEventListener("message", (message) => { window.heard = Number(message.lastEventId); });
  }
};
"""


@pytest.fixture(scope="module", params=[10_000, 100_000])
def steps(request):
    """How many steps the run `kelp` has made: as many in each of four tasks."""
    return request.param


@pytest.fixture(scope="module")
def place(steps, tmp_path_factory):
    """A store with a long run and many that wait, and a server."""
    folder = tmp_path_factory.mktemp("long")

    async def prepare(url):
        await fill(url, waiting=RUNS, kelp=("long", steps))
        await ask(url, HUGE)

    with bare(folder, prepare=prepare) as made:
        yield made


@pytest.fixture
def ana(place, browser):
    visitor = Visitor(browser, place.address, place.tokens["ana"])
    yield visitor
    visitor.leave()


def elements(page):
    return page.evaluate("document.querySelectorAll('*').length")


def rows(page):
    return page.locator(ROW).evaluate_all("rows => rows.map(row => row.ariaLabel)")


def inputs_of_last(visitor, events):
    """With which numbers the steps of the last 200 events were called: one task does all the waiting, and ends after the others."""
    answer = visitor.context.request.get(f"/api/runs/kelp/events?before={events}&limit=200").json()["events"]
    assert len(answer) == 200
    return {int(each["data"]["input"].removeprefix("number=")) for each in answer if each["kind"] == "step.completed"}


def test_the_end_of_a_long_run_is_shown_while_the_server_folds_it(ana, steps):
    """Its last calls at once, then all of them: four tasks, five names in each, and each of them counted."""
    events, held = steps + steps // 500 + 1, []  # with those that were tried again, and its end
    ana.page.route("**/outline?buckets=240", lambda asked: held.append(asked))  # noqa: PLW0108 - it must be a function
    page = ana.page
    page.goto("/runs/kelp")  # and do not wait for what is held
    told = page.locator(".windowed")
    expect(told).to_contain_text(re.compile(r"the last 200 of [\d,]+ events"))
    numbers = {int(each) for each in re.findall(r" (\d+), done in", "\n".join(rows(page)))}
    assert numbers and numbers <= inputs_of_last(ana, events)
    assert elements(page) < ELEMENTS
    (outline,) = held
    outline.continue_()
    expect(page.locator(ROW)).to_have_count(4)
    assert all(re.match(rf"one#\d, {steps // 4:,} calls, ", each) for each in rows(page))
    expect(told).to_contain_text(f"{events:,} events, of which 4 rows are drawn")
    expect(page.locator(".run-facts")).to_contain_text(f"Events{events:,}{steps:,} calls")
    page.locator(f"{ROW} .twist").first.click()
    expect(page.locator(f"{ROW}[aria-level='2']")).to_have_count(5)
    assert sum(f", {steps // 20:,} calls" in each for each in rows(page)) == 5
    assert elements(page) < ELEMENTS


def test_a_long_run_on_a_phone_is_told_by_what_the_server_folded(place, browser, steps):
    visitor = Visitor(browser, place.address, place.tokens["ana"], size=PHONE)
    page = visitor.goto("/runs/kelp", ".dw-row")
    expect(page.locator(".dw-row")).to_have_count(4)
    assert f", {steps // 4:,} calls, " in page.locator(".dw-row").first.get_attribute("aria-label")
    page.locator(".dw-row").first.tap()
    expect(page.locator(".dw-row")).to_have_count(9)
    visitor.leave()


def test_a_question_of_a_long_run_is_drawn_as_long_as_it_waits(ana):
    """What the server folded has it as a group of one."""
    page = ana.goto("/runs/unsure", ROW)
    expect(page.locator(".windowed")).to_contain_text("of which 2 rows are drawn")
    expect(page.locator(".density")).to_have_count(1)
    assert page.locator(".bar.asked[title]").bounding_box()["width"] > 3


def test_every_event_of_a_long_journal_can_be_scrolled_to(ana, steps):
    """The last, the first, and one in the middle; beside them stands what was before and behind, and no more is in the page."""
    page = ana.goto("/runs/kelp/journal", EVENT)
    last = steps + steps // 500
    for part, wanted in ((1, last), (0.5, last // 2), (0, 0)):
        page.locator(".ev-scroll").evaluate(
            "(list, part) => list.scrollTo(0, part * (list.scrollHeight - list.clientHeight))", part
        )
        expect(page.locator(f"{EVENT}[data-seq='{wanted}']")).to_be_visible()
        expect(page.locator(".ev-row.ghosted")).to_have_count(0)
        seen = page.locator(EVENT).evaluate_all("rows => rows.map(row => Number(row.dataset.seq))")
        assert 20 < len(seen) < 90
        assert all(after == before + 1 for before, after in pairwise(seen))
        assert elements(page) < ELEMENTS
        if part == 1:
            expect(page.locator(EVENT).last).to_contain_text("run.completed")


def test_every_run_of_a_long_list_can_be_scrolled_to(ana, steps):
    """From the newest to the oldest and back, with few rows in the page all the way."""
    page = ana.goto("/runs", RUN)
    newest, most = page.locator(RUN).first.get_attribute("data-row"), 0
    while not page.locator("[data-row=kelp]").count():
        page.mouse.wheel(0, 3_000)
        page.evaluate("new Promise(requestAnimationFrame)")
        most = max(most, elements(page))
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(page.locator("[data-row=kelp]")).to_be_visible()
    assert most < ELEMENTS
    expect(page.locator(".foot")).to_contain_text(f"{RUNS + 2:,} of {RUNS + 2:,}")
    page.evaluate("scrollTo(0, 0)")
    expect(page.locator(RUN).first).to_have_attribute("data-row", newest)
    assert page.locator(RUN).count() < 90


# A run that goes on


@pytest.fixture(scope="module")
def alive(tmp_path_factory):
    """A store, a worker that goes as far as it may, and a server."""
    with bare(tmp_path_factory.mktemp("alive")) as made:
        made.pace = Pace(made.folder)
        made.worker("fast", "long_agents.py")
        made.act(lambda hf: served(hf, "paced"))
        yield made


@pytest.mark.parametrize("seconds", [140, 3_600])
def test_a_page_that_follows_a_run_for_long_keeps_and_draws_little(alive, browser, seconds):
    """With fifty events in each second, whose time goes by as fast as they come: the page's clock is moved on.

    When they are too many the page leaves them to the server, keeps none of their calls, and counts them all the same. What the
    server has folded does not come once more by the stream.
    """
    run, piece, most, streams = f"paced-{seconds}", 10, 0, []
    alive.pace.up_to(0)  # another run may have gone far
    alive.act(lambda hf: hf.start("paced", seconds * RATE, id=run))
    visitor = Visitor(browser, alive.address, alive.tokens["ana"])
    page = visitor.page
    page.add_init_script(HEARD)
    page.on("request", lambda asked: streams.append(asked.url) if asked.resource_type == "eventsource" else None)
    page.clock.install()
    page.goto(f"/runs/{run}")
    page.evaluate("""() => {
        window.drawings = 0;
        const watch = new MutationObserver(() => { window.drawings += 1; });
        watch.observe(document.querySelector("#page"), { childList: true, subtree: true });
    }""")
    for until in range(piece, seconds, piece):
        alive.pace.up_to(until * RATE)
        page.wait_for_function("(least) => window.heard >= least", arg=until * RATE, timeout=120_000)
        before = page.evaluate("window.drawings")
        page.clock.run_for(piece * 1_000)
        most = max(most, page.evaluate("window.drawings") - before)
    expect(page.locator("svg.density")).not_to_have_count(0)
    *_, last = (int(each.rpartition("=")[2]) for each in streams if f"/runs/{run}/" in each)
    assert last > HUGE
    assert most <= 10 * (piece + 1)
    assert elements(page) < ELEMENTS
    alive.pace.up_to(seconds * RATE)
    page.clock.resume()
    expect(page.locator(".run-state")).to_have_text("completed", timeout=60_000)
    expect(page.locator(".run-facts")).to_contain_text(f"{seconds * RATE:,} calls", timeout=20_000)
    told = visitor.context.new_cdp_session(page)
    told.send("HeapProfiler.collectGarbage")
    assert told.send("Runtime.getHeapUsage")["usedSize"] / 1e6 < (HEAP_MB if seconds == 3_600 else 10)
    visitor.leave()
